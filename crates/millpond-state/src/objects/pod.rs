//! Pods, as far as scheduling and disruption look at them.

use millpond_api::karpenter::TaintEffect;
use millpond_api::time::Time;
use serde::Deserialize;

use super::meta::{Condition, LabelSelector, Metadata, NodeSelector, NodeTerm};
use super::storage::ClaimSpec;
use super::text::{Amounts, Pairs, Text};

/// A pod.
#[derive(Debug, Clone, Deserialize)]
pub struct Pod<'a> {
    /// Name, labels and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    pub spec: PodSpec<'a>,
    /// Observed state.
    #[serde(default)]
    pub status: PodStatus<'a>,
}

/// The template of pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodTemplate<'a> {
    /// Labels and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    pub spec: PodSpec<'a>,
}

/// The spec of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec<'a> {
    /// The node that it is bound to.
    #[serde(borrow)]
    pub node_name: Text<'a>,
    /// The scheduler that it names.
    pub scheduler_name: Text<'a>,
    /// How important it is.
    pub priority: Option<i32>,
    /// The same by name.
    pub priority_class_name: Text<'a>,
    /// Whether it may preempt other pods.
    pub preemption_policy: Option<PreemptionPolicy>,
    /// Labels that its node must have.
    pub node_selector: Pairs<'a>,
    /// Its affinity.
    pub affinity: Affinity<'a>,
    /// Taints that it tolerates.
    pub tolerations: Vec<Toleration<'a>>,
    /// How pods like it are spread.
    pub topology_spread_constraints: Vec<SpreadConstraint<'a>>,
    /// Its containers.
    pub containers: Vec<Container<'a>>,
    /// Its init containers.
    pub init_containers: Vec<Container<'a>>,
    /// The overhead of its runtime class.
    pub overhead: Amounts<'a>,
    /// Resources of the pod as a whole.
    pub resources: ResourceRequirements<'a>,
    /// Its volumes.
    pub volumes: Vec<Volume<'a>>,
    /// Whether it uses the network of its host.
    pub host_network: bool,
    /// Its scheduling gates.
    pub scheduling_gates: Vec<SchedulingGate<'a>>,
    /// Devices that it asks for.
    pub resource_claims: Vec<ResourceClaim<'a>>,
}

/// Whether a pod may push out others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum PreemptionPolicy {
    /// It may preempt pods of lower priority.
    PreemptLowerPriority,
    /// It preempts no pods.
    Never,
}

/// Devices that a pod asks for: a claim of its own, or one that is made from a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim<'a> {
    /// The name that containers use.
    #[serde(borrow)]
    pub name: Text<'a>,
}

/// A gate that keeps a pod from being scheduled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct SchedulingGate<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Text<'a>,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Its requests and limits.
    pub resources: ResourceRequirements<'a>,
    /// Its ports.
    pub ports: Vec<Port<'a>>,
    /// `Always` makes an init container run beside the others.
    pub restart_policy: Text<'a>,
}

/// The requests and limits of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements<'a> {
    /// Requests.
    #[serde(borrow)]
    pub requests: Amounts<'a>,
    /// Limits.
    pub limits: Amounts<'a>,
}

/// A port of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port<'a> {
    /// Port of the container.
    pub container_port: u16,
    /// Port of the host.
    pub host_port: u16,
    /// The address of the host.
    #[serde(rename = "hostIP", borrow)]
    pub host_ip: Text<'a>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Option<Protocol>,
}

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A toleration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Toleration<'a> {
    /// The key of the taints; empty for all.
    #[serde(borrow)]
    pub key: Text<'a>,
    /// How to compare.
    pub operator: Option<TolerationOperator>,
    /// The value to compare with.
    pub value: Text<'a>,
    /// The effect; all where none is said.
    #[serde(deserialize_with = "effect")]
    pub effect: Option<TaintEffect>,
}

/// An empty effect is none.
fn effect<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<TaintEffect>, D::Error> {
    let text = Text::deserialize(deserializer)?;
    let effect = match &*text {
        "" => None,
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => return Err(serde::de::Error::custom("is not one of NoSchedule, PreferNoSchedule, NoExecute")),
    };
    Ok(effect)
}

/// How a toleration compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum TolerationOperator {
    /// Any value.
    Exists,
    /// Taints with this value.
    Equal,
    /// A whole number above.
    Gt,
    /// A whole number below.
    Lt,
}

/// Affinity to nodes and to other pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity<'a> {
    /// Nodes.
    #[serde(borrow)]
    pub node_affinity: NodeAffinity<'a>,
    /// Pods that it wants near.
    pub pod_affinity: PodAffinity<'a>,
    /// Pods that it does not.
    pub pod_anti_affinity: PodAffinity<'a>,
}

/// Affinity to nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeAffinity<'a> {
    /// Must be.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", borrow)]
    pub required: Option<NodeSelector<'a>>,
    /// Should be.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredNodeTerm<'a>>,
}

/// A preferred node selector term.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct PreferredNodeTerm<'a> {
    /// How much.
    pub weight: i32,
    /// Which.
    #[serde(borrow)]
    pub preference: NodeTerm<'a>,
}

/// Affinity or anti-affinity to pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct PodAffinity<'a> {
    /// Must be.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", borrow)]
    pub required: Vec<PodAffinityTerm<'a>>,
    /// Should be.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredPodTerm<'a>>,
}

/// A preferred pod affinity term.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreferredPodTerm<'a> {
    /// How much.
    pub weight: i32,
    /// Which.
    #[serde(borrow)]
    pub pod_affinity_term: PodAffinityTerm<'a>,
}

/// A pod affinity term.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm<'a> {
    /// The topology key: nodes with an equal value of this label are near each other.
    #[serde(borrow)]
    pub topology_key: Text<'a>,
    /// Selector of the pods.
    pub label_selector: Option<LabelSelector<'a>>,
    /// Namespaces of the pods.
    pub namespaces: Vec<Text<'a>>,
    /// Selector of further namespaces.
    pub namespace_selector: Option<LabelSelector<'a>>,
    /// Labels in which they are like this pod.
    pub match_label_keys: Vec<Text<'a>>,
    /// Labels in which they are unlike this pod.
    pub mismatch_label_keys: Vec<Text<'a>>,
}

/// How pods are spread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint<'a> {
    /// The label whose values are the domains.
    #[serde(borrow)]
    pub topology_key: Text<'a>,
    /// How uneven it may be.
    pub max_skew: i32,
    /// How many domains there should be.
    pub min_domains: Option<i32>,
    /// Must or should.
    pub when_unsatisfiable: Option<WhenUnsatisfiable>,
    /// Selector of the pods that count.
    pub label_selector: Option<LabelSelector<'a>>,
    /// Labels in which they are like this pod.
    pub match_label_keys: Vec<Text<'a>>,
    /// Whether nodes against the pod's affinity count.
    pub node_affinity_policy: Option<InclusionPolicy>,
    /// Whether nodes with taints against the pod count.
    pub node_taints_policy: Option<InclusionPolicy>,
}

/// Must or should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum WhenUnsatisfiable {
    /// Must.
    DoNotSchedule,
    /// Should.
    ScheduleAnyway,
}

/// Whether nodes that a pod could not use count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum InclusionPolicy {
    /// Only matching nodes count.
    Honor,
    /// All nodes count.
    Ignore,
}

/// A volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// A claim.
    pub persistent_volume_claim: Option<ClaimVolume<'a>>,
    /// A claim that comes and goes with the pod.
    pub ephemeral: Option<EphemeralVolume<'a>>,
}

/// Names a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume<'a> {
    /// Its name.
    #[serde(borrow)]
    pub claim_name: Text<'a>,
}

/// A claim that comes and goes with the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralVolume<'a> {
    /// The template of the claim.
    #[serde(borrow)]
    pub volume_claim_template: ClaimTemplate<'a>,
}

/// The template of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ClaimTemplate<'a> {
    /// Desired state.
    #[serde(borrow)]
    pub spec: ClaimSpec<'a>,
}

/// The status of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus<'a> {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(borrow)]
    pub phase: Text<'a>,
    /// Where room is kept for it.
    pub nominated_node_name: Text<'a>,
    /// When kubelet took it.
    pub start_time: Option<Time>,
    /// Conditions.
    pub conditions: Vec<Condition<'a>>,
    /// Its containers.
    pub container_statuses: Vec<ContainerStatus<'a>>,
    /// Its init containers.
    pub init_container_statuses: Vec<ContainerStatus<'a>>,
    /// The resources that the pod as a whole has now.
    pub resources: Option<ResourceRequirements<'a>>,
    /// The resources that the pod as a whole was allocated.
    pub allocated_resources: Amounts<'a>,
}

/// The status of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// The resources that it has now.
    pub resources: Option<ResourceRequirements<'a>>,
    /// The resources that it was allocated.
    pub allocated_resources: Amounts<'a>,
}
