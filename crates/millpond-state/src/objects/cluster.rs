//! Nodes, namespaces, priorities, disruption budgets, workloads and what their pods are made from.

use serde::Deserialize;

use super::meta::{Condition, LabelSelector, Metadata, Taint};
use super::pod::{PodTemplate, PreemptionPolicy};
use super::text::{Amounts, CountOrShare, Text};

/// A node.
#[derive(Debug, Clone, Deserialize)]
pub struct Node<'a> {
    /// Name, labels and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    #[serde(default)]
    pub spec: NodeSpec<'a>,
    /// Observed state.
    #[serde(default)]
    pub status: NodeStatus<'a>,
}

/// What a node is asked to be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec<'a> {
    /// The machine.
    #[serde(rename = "providerID", borrow)]
    pub provider_id: Text<'a>,
    /// Taints.
    pub taints: Vec<Taint<'a>>,
    /// Closed to new pods.
    pub unschedulable: bool,
}

/// What a node is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus<'a> {
    /// Its capacity.
    #[serde(borrow)]
    pub capacity: Amounts<'a>,
    /// What pods can use.
    pub allocatable: Amounts<'a>,
    /// `Ready` among them.
    pub conditions: Vec<Condition<'a>>,
}

/// A namespace.
#[derive(Debug, Clone, Deserialize)]
pub struct Namespace<'a> {
    /// Name and labels.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
}

/// A ConfigMap, as far as it may hold a catalogue.
#[derive(Debug, Clone, Deserialize)]
pub struct ConfigMap<'a> {
    /// Name and labels.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Its data.
    #[serde(default)]
    data: Option<ConfigData<'a>>,
}

/// The data of a ConfigMap; other keys are skipped.
#[derive(Debug, Clone, Deserialize)]
struct ConfigData<'a> {
    #[serde(default, borrow)]
    catalog: Text<'a>,
}

impl ConfigMap<'_> {
    /// Name and text of the catalogue in it, if it is labelled as one.
    pub fn catalog(&self) -> Option<(&str, &str)> {
        let name = self.metadata.labels.get(millpond_api::catalog::config_map::LABEL)?;
        Some((name, self.data.as_ref().map_or("", |data| &*data.catalog)))
    }
}

/// A PriorityClass.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PriorityClass<'a> {
    /// Name and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// How important.
    pub value: i32,
    /// Whether it applies to pods that name no class.
    #[serde(default)]
    pub global_default: bool,
    /// Whether its pods may preempt others.
    #[serde(default)]
    pub preemption_policy: Option<PreemptionPolicy>,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, Deserialize)]
pub struct DisruptionBudget<'a> {
    /// Name and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    pub spec: DisruptionBudgetSpec<'a>,
    /// Observed state.
    #[serde(default)]
    pub status: DisruptionBudgetStatus,
}

/// What a budget asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudgetSpec<'a> {
    /// The pods that it covers; `None` if the field is missing.
    #[serde(borrow)]
    pub selector: Option<LabelSelector<'a>>,
    /// Healthy pods that must stay.
    pub min_available: Option<CountOrShare>,
    /// Pods that may be away.
    pub max_unavailable: Option<CountOrShare>,
    /// Whether pods that are not ready may always go.
    pub unhealthy_pod_eviction_policy: Text<'a>,
}

/// What a budget allows.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudgetStatus {
    /// Evictions that it allows now.
    pub disruptions_allowed: Option<i32>,
    /// The generation that this was found for.
    pub observed_generation: Option<i64>,
}

/// A DaemonSet, ReplicaSet, Deployment, StatefulSet or Job.
#[derive(Debug, Clone, Deserialize)]
pub struct Workload<'a> {
    /// Name and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    pub spec: WorkloadSpec<'a>,
}

/// What a workload asks for.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpec<'a> {
    /// The template of its pods.
    #[serde(borrow)]
    pub template: PodTemplate<'a>,
    /// The selector of its pods.
    #[serde(default)]
    pub selector: Option<LabelSelector<'a>>,
    /// How many.
    #[serde(default)]
    pub replicas: Option<u32>,
    /// How many of a Job at once.
    #[serde(default)]
    pub parallelism: Option<u32>,
    /// The number of completions of a Job.
    #[serde(default)]
    pub completions: Option<u32>,
    /// Whether a Job waits.
    #[serde(default)]
    pub suspend: Option<bool>,
    /// Claims of a StatefulSet's pods.
    #[serde(default)]
    pub volume_claim_templates: Vec<ClaimOfSet<'a>>,
}

/// A claim that each pod of a StatefulSet gets.
#[derive(Debug, Clone, Deserialize)]
pub struct ClaimOfSet<'a> {
    /// Its name.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    #[serde(default)]
    pub spec: super::storage::ClaimSpec<'a>,
}

/// A PodTemplate object.
#[derive(Debug, Clone, Deserialize)]
pub struct StoredTemplate<'a> {
    /// Name and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// The template of its pods.
    #[serde(default)]
    pub template: PodTemplate<'a>,
}

/// A LimitRange: bounds and defaults for the requests of pods in a namespace.
#[derive(Debug, Clone, Deserialize)]
pub struct LimitRange<'a> {
    /// Name and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    #[serde(default)]
    pub spec: LimitRangeSpec<'a>,
}

/// What a LimitRange says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LimitRangeSpec<'a> {
    /// The limits by type of object.
    #[serde(borrow)]
    pub limits: Vec<LimitRangeItem<'a>>,
}

/// The limits for containers, pods or claims.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRangeItem<'a> {
    /// `Container`, `Pod` or `PersistentVolumeClaim`.
    #[serde(rename = "type", borrow)]
    pub kind: Text<'a>,
    /// Maximum.
    pub max: Amounts<'a>,
    /// Minimum.
    pub min: Amounts<'a>,
    /// Limits of those that have none.
    pub default: Amounts<'a>,
    /// Requests of those that have none.
    pub default_request: Amounts<'a>,
}
