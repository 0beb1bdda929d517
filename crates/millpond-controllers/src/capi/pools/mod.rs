//! Node pools of a Cluster API cluster: what they are, and how they are set, scaled and deleted.
//!
//! ```text
//!   fetch ─▶ Current (raw objects) ─┐
//!                                   ├─▶ plan ─▶ ChangePlan ─▶ execute: templates first, the pool last
//!   node pool file ─▶ PoolFile ─────┘    │                       │
//!                                        └─ parity: field × path └─ on failure what was made goes again;
//!                                                                   unreferenced templates are deleted
//! ```
//!
//! A pool lives in one of three places ([`Path`]): a MachineDeployment of its own, an entry in the topology of a
//! Cluster whose ClusterClass makes the MachineDeployment, or an entry of a TanzuKubernetesCluster. Planning is pure;
//! what it cannot do it refuses, field by field, and then nothing is written.

mod changes;
pub mod execute;
pub mod fetch;
mod find;
mod machine_deployment;
pub mod parity;
mod plan;
mod tanzu;
#[cfg(test)]
mod tests;
mod topology;
mod view;
mod vsphere;

use millpond_api::capi::Version;
use serde_json::Value;

pub use find::{FoundPool, LookupError, find};
pub use plan::{plan, plan_delete, plan_scale};
pub use view::{PoolView, offer, view, views};

/// The one field manager of everything that is written here.
pub const MANAGER: &str = "millpond";
/// Label of templates that were made for a pool, and may be collected; its value is the pool's MachineDeployment.
pub const MADE_FOR: &str = "millpond.dev/node-pool";

/// Where the pools of a cluster live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// MachineDeployments.
    Plain,
    /// `spec.topology` of the Cluster.
    Topology,
    /// `spec.topology.nodePools` of the TanzuKubernetesCluster.
    Tanzu,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Topology, Self::Tanzu];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "MachineDeployment",
            Self::Topology => "ClusterClass",
            Self::Tanzu => "TanzuKubernetesCluster",
        }
    }
}

/// A cluster and all that its pools are made of, as it was read.
#[derive(Debug, Clone)]
pub struct Current {
    /// The name of the cluster.
    pub cluster: String,
    /// Its namespace.
    pub namespace: String,
    /// Where its pools live.
    pub path: Path,
    /// The version of Cluster API that is served.
    pub version: Version,
    /// The Cluster; people have pools without one.
    pub object: Option<Value>,
    /// The TanzuKubernetesCluster.
    pub tanzu: Option<Value>,
    /// The ClusterClass.
    pub class: Option<Value>,
    /// MachineDeployments, by name.
    pub deployments: Vec<Value>,
    /// MachineSets.
    pub sets: Vec<Value>,
    /// Machines.
    pub machines: Vec<Value>,
    /// Templates that MachineDeployments and MachineSets name, and those that were made for pools.
    pub templates: Vec<Value>,
}

impl Current {
    /// The template of that kind and name.
    pub fn template(&self, kind: &str, name: &str) -> Option<&Value> {
        self.templates.iter().find(|it| it["kind"] == kind && name_of(it) == name)
    }
}

/// The name of a raw object.
pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// What else is asked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The pool that a new one is copied from.
    pub base: Option<String>,
    /// Devices that no machine has, so that a rollout may make a machine before another goes.
    pub spare_gpus: u32,
}

/// What happens to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It is made.
    Create,
    /// It is changed.
    Change,
    /// It is what is asked for.
    Nothing,
}

/// How a change comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Part of a new pool.
    New,
    /// No machine is replaced.
    InPlace,
    /// Machines are replaced.
    Rollout,
}

/// One setting that becomes another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The field of the file, or what follows from it.
    pub field: String,
    /// What it was.
    pub from: Option<String>,
    /// What it becomes; none if it goes.
    pub to: Option<String>,
    /// How.
    pub effect: Effect,
}

/// An object on its way to the API.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The object as it is to be, as far as it is written.
    pub object: Value,
    /// What it is now; none if it is new.
    pub live: Option<Value>,
}

/// What will be done.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangePlan {
    /// The pool, as the file names it.
    pub pool: String,
    /// Kind and name of the object that it lives in.
    pub object: String,
    /// What happens.
    pub verb: Verb,
    /// Objects that are made, kind and name.
    pub created: Vec<String>,
    /// Settings that change.
    pub changes: Vec<Change>,
    /// What the file says and what is not done, with the reason.
    pub ignored: Vec<(String, String)>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// What is written, in this order.
    pub writes: Vec<Write>,
}

impl ChangePlan {
    /// Whether this plan does what another one was said to do. A plan that does nothing needs no consent.
    pub fn is_as_agreed(&self, agreed: &Self) -> bool {
        let shown = |plan: &Self| {
            let Self { pool, object, verb, created, changes, ignored, warnings, writes: _ } = plan.clone();
            (pool, object, verb, created, changes, ignored, warnings)
        };
        self.verb == Verb::Nothing || shown(self) == shown(agreed)
    }

    /// Whether machines are replaced.
    pub fn rolls_out(&self) -> bool {
        self.changes.iter().any(|change| change.effect == Effect::Rollout)
    }
}

/// What kind of refusal it is; the exit code follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// What is asked for makes no sense here.
    Usage,
    /// Something that is named is not there.
    NotFound,
    /// A bound, or something that is there already.
    Limit,
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RejectedChange {
    /// The field, flag or object.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub hint: Option<String>,
    /// What kind it is.
    pub why: Why,
}

impl RejectedChange {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), hint: None, why: Why::Usage }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn why(self, why: Why) -> Self {
        Self { why, ..self }
    }
}

/// What deleting a pool does.
#[derive(Debug, Clone, PartialEq)]
pub struct DeletePlan {
    /// The pool, short.
    pub pool: String,
    /// Its MachineDeployment, where one is deleted.
    pub deployment: Option<String>,
    /// The object that an entry is taken out of.
    pub write: Option<Write>,
    /// Its machines.
    pub machines: Vec<String>,
}
