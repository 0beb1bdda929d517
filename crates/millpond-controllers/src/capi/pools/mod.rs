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
//! Cluster whose ClusterClass creates the MachineDeployment, or an entry of a TanzuKubernetesCluster. Planning is pure.
//! A plan rejects what cannot be done field by field, and then nothing is written.

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

/// Where the pools of a cluster are defined.
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
    /// Where its pools are defined.
    pub path: Path,
    /// The served version of Cluster API.
    pub version: Version,
    /// The Cluster object; pools can exist without one.
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

/// Options of a change.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The pool that a new pool is copied from.
    pub base: Option<String>,
    /// Devices that no machine has, so that a rollout may make a machine before another goes.
    pub spare_gpus: u32,
}

/// What a plan does to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It is created.
    Create,
    /// It is changed.
    Change,
    /// Nothing has to change.
    Nothing,
}

/// The effect of a change on machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Part of a new pool.
    New,
    /// No machine is replaced.
    InPlace,
    /// Machines are replaced.
    Rollout,
}

/// One setting that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The field of the file, or what is derived from it.
    pub field: String,
    /// The old value.
    pub from: Option<String>,
    /// The new value; `None` if the setting is removed.
    pub to: Option<String>,
    /// The effect on machines.
    pub effect: Effect,
}

/// An object to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The object as it is to be, as far as it is written.
    pub object: Value,
    /// The present object; `None` if it is created.
    pub live: Option<Value>,
}

/// The plan for one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangePlan {
    /// The pool, as the file names it.
    pub pool: String,
    /// Kind and name of the object that defines it.
    pub object: String,
    /// What the plan does.
    pub verb: Verb,
    /// Kind and name of the objects created.
    pub created: Vec<String>,
    /// Settings that change.
    pub changes: Vec<Change>,
    /// Settings of the file that are not applied, each with the reason.
    pub ignored: Vec<(String, String)>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The writes, in order.
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

/// The kind of a rejection, which decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The request is invalid here.
    Usage,
    /// A named object does not exist.
    NotFound,
    /// A limit is exceeded, or an object exists already.
    Limit,
}

/// Why a change is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RejectedChange {
    /// The field, flag or object.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// How to correct it.
    pub hint: Option<String>,
    /// The kind of rejection.
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
    /// The pool's short name.
    pub pool: String,
    /// Its MachineDeployment, if one is deleted.
    pub deployment: Option<String>,
    /// The object that an entry is removed from.
    pub write: Option<Write>,
    /// Its machines.
    pub machines: Vec<String>,
}
