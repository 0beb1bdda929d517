//! Objects of Cluster API: as they are. Views of `millpond_api::capi` read them, whichever version they are of.

use millpond_api::meta::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::{Kind, Known};

/// The group of Cluster API's own kinds.
pub(super) const GROUP: &str = millpond_api::capi::GROUP;
/// Suffix of the API groups of infrastructure providers.
pub(super) const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The group of bootstrap providers.
pub(super) const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";

/// A kind of Cluster API that planning looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ApiKind {
    /// Machines of one template, replaced step by step when it changes.
    MachineDeployment,
    /// Machines of one template.
    MachineSet,
    /// Machines of a cloud's own autoscaling group.
    MachinePool,
    /// A machine.
    Machine,
    /// A cluster: may be paused.
    Cluster,
    /// Infrastructure machine templates of any provider.
    MachineTemplate,
    /// How machines start: of whichever bootstrap provider.
    ConfigTemplate,
}

/// An object as it is.
#[derive(Debug, Clone, Deserialize)]
pub struct Raw {
    /// The kind as it was written; it distinguishes templates.
    #[serde(default)]
    pub kind: String,
    /// Name, labels and so on.
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: Value,
    /// Observed state.
    #[serde(default)]
    pub status: Value,
}

/// Recognizes further kinds of Cluster API and its providers: templates by the suffix of their names; all others are
/// irrelevant to planning.
pub(super) fn look_up(group: &str, name: &str) -> Option<Known> {
    let of_infrastructure =
        group.strip_suffix(INFRASTRUCTURE).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if of_infrastructure && name.ends_with("MachineTemplate") {
        return Some(Known::Used(Kind::ClusterApi(ApiKind::MachineTemplate)));
    }
    if group == BOOTSTRAP && name.ends_with("ConfigTemplate") {
        return Some(Known::Used(Kind::ClusterApi(ApiKind::ConfigTemplate)));
    }
    // A misspelt kind of the group itself is worth a word.
    let of_others = group != GROUP && group.ends_with(".x-k8s.io") && group.contains("cluster.x-k8s.io");
    let others = ["ClusterClass", "MachineHealthCheck", "MachineDrainRule"];
    (of_others || group == GROUP && others.contains(&name)).then_some(Known::Irrelevant)
}
