//! `infrastructure.cluster.x-k8s.io/v1beta1`, the kinds of BYOH: a capacity pool of hosts, and the machines on them.
//!
//! ```text
//!   MachineDeployment ─▶ ByoMachineTemplate ─clone─▶ ByoMachine ─claim (machine UID, epoch)─▶ ByoHost ◀─facts─ agent
//!                          │  selector                  │                                      │
//!                          ├─▶ BootstrapKubeconfig      └─ providerID byoh://HOST              └─ Lease: heartbeat
//!                          └─▶ K8sInstallerConfigTemplate
//! ```
//!
//! Fields, conditions, labels and finalizers are those of the BYOH provider and of its fork with `tlsBootstrap`, so that
//! manifests written for either apply unchanged. Millpond adds the claim, the state, the facts and the quarantine of a
//! host. Cluster API's own manager drives these kinds through its v1beta2 contract.

mod bootstrap;
mod cluster;
pub mod facts;
mod host;
mod machine;
pub mod names;
mod reference;
mod selector;

pub use bootstrap::{
    BootstrapKubeconfig, BootstrapKubeconfigSpec, BootstrapKubeconfigStatus, BootstrapKubeconfigTemplate,
    BootstrapKubeconfigTemplateSpec, K8sInstallerConfig, K8sInstallerConfigSpec, K8sInstallerConfigStatus,
    K8sInstallerConfigTemplate, K8sInstallerConfigTemplateSpec,
};
pub use cluster::{
    ByoCluster, ByoClusterSpec, ByoClusterStatus, ByoClusterTemplate, ByoClusterTemplateSpec, ControlPlaneEndpoint,
    FailureDomain,
};
pub use facts::HostFacts;
pub use host::{
    ByoHost, ByoHostSpec, ByoHostStatus, Claim, DownloadMode, HostInfo, HostState, JoinMode, NetworkStatus,
    PlanProgress, Quarantine,
};
pub use machine::{
    ByoMachine, ByoMachineSpec, ByoMachineStatus, ByoMachineTemplate, ByoMachineTemplateSpec, ByoMachineTemplateStatus,
    Initialization, MachineAddress, NodeInfo, TemplateCapacity,
};
pub use reference::{ObjectReference, ReferenceError, ResolvedReference};
pub use selector::LabelSelector;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The group of the kinds.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// The version of the kinds.
pub const VERSION: &str = "v1beta1";

/// `spec.template` of a template kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Template<S> {
    /// Labels and annotations of the clones.
    #[serde(default, skip_serializing_if = "crate::meta::is_default")]
    pub metadata: TemplateMeta,
    /// The spec of the clones.
    #[serde(default)]
    pub spec: S,
}

/// Labels and annotations that clones of a template get.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct TemplateMeta {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}
