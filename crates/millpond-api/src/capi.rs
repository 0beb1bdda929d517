//! Cluster API, both versions of it, and what Tanzu's node pools and the cluster-autoscaler add: names, views, files.
//!
//! Objects of Cluster API are carried as they are, raw, so that nothing of them is lost on the way through. A *view*
//! is a plain value that is read from one, whichever version it is written in:
//!
//! ```text
//!   MachineDeployment, v1beta1 ─┐                        ┌─▶ node_group: bounds of the autoscaler, what a node offers
//!                               ├─▶ look ─▶ Deployment ──┤
//!   MachineDeployment, v1beta2 ─┘                        └─▶ pool verbs (millpond-controllers)
//!
//!   node pool file ─▶ pool_file ─▶ PoolFile, with the place of every mistake;  gpu: PCI ids, MMIO, vGPU profiles
//! ```
//!
//! Views are lenient: a field of the wrong type is reported ([`Problems`]) and treated as missing.

mod cluster;
mod deployment;
pub mod gpu;
mod look;
mod machine;
pub mod names;
pub mod node_group;
mod offer;
pub mod pool_file;
mod reference;

pub use cluster::{Cluster, Topology, TopologyPool};
pub use deployment::{DeletionOrder, Deployment, DeploymentStatus, IntOrPercent, MachineSet, Phase, Strategy};
pub use look::Problems;
pub use machine::{Bootstrap, Machine, MachineStatus, MachineTaint, MachineTemplate, Propagation};
pub use node_group::NodeGroup;
pub use offer::{DEFAULT_PODS, NodeOffer, Sources, gpus_of, kubelet_labels};
pub use reference::Reference;

/// The group of Cluster API's own kinds.
pub const GROUP: &str = "cluster.x-k8s.io";

/// A version of Cluster API's kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `v1beta1`: references with `apiVersion`, timeouts as text.
    V1Beta1,
    /// `v1beta2`: references with `apiGroup`, timeouts in seconds.
    V1Beta2,
}

impl Version {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }

    /// The version of an object, by its `apiVersion`.
    pub fn of_api_version(api_version: &str) -> Option<Self> {
        match api_version.rsplit('/').next()? {
            "v1beta1" => Some(Self::V1Beta1),
            "v1beta2" => Some(Self::V1Beta2),
            _ => None,
        }
    }

    /// Group and version of Cluster API's own kinds.
    pub fn api_version(self) -> String {
        format!("{GROUP}/{}", self.name())
    }
}
