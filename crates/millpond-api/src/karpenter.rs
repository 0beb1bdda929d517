//! Karpenter's kinds, `karpenter.sh/v1`: NodePool and NodeClaim, with the rules that Karpenter checks at run time.

mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::duration::{Duration, NillableDuration};
use crate::meta::{Condition, ObjectMeta};
use crate::selector::Operator;
use crate::time::Time;

/// The API group.
pub const GROUP: &str = "karpenter.sh";

/// Annotation of pods and nodes: leave it alone (`true`, or for pods so long after their start).
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Taint of a node that is about to be taken away.
pub const DISRUPTED_TAINT: &str = "karpenter.sh/disrupted";
/// Taint of a node that Karpenter has not seen yet.
pub const UNREGISTERED_TAINT: &str = "karpenter.sh/unregistered";
/// Label of a node that was seen.
pub const REGISTERED_LABEL: &str = "karpenter.sh/registered";
/// Label of a node that is ready for pods.
pub const INITIALIZED_LABEL: &str = "karpenter.sh/initialized";
/// Millpond's annotation of a NodePool: dollars per hour that its nodes may cost together.
pub const PRICE_LIMIT_ANNOTATION: &str = "millpond.dev/limit-dollars-per-hour";

/// The most seconds that a budget, an age or a quiet time may have: a hundred years. Sums of it and a time fit.
pub const LIMIT_SECONDS: i64 = 100 * 365 * 86_400;

/// A pool of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodePool {
    /// Name, annotations and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: NodePoolSpec,
    /// What is.
    #[serde(default)]
    pub status: NodePoolStatus,
}

/// What a pool is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodePoolSpec {
    /// What its nodes are.
    pub template: NodeClaimTemplate,
    /// When they may be taken away.
    #[serde(default)]
    pub disruption: Disruption,
    /// What they may add up to; `nodes` counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Amounts>,
    /// Pools of greater weight are used first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// A fixed number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

/// What a pool is seen to be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodePoolStatus {
    /// `Ready` among them.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// The template of a pool's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodeClaimTemplate {
    /// Labels and annotations.
    #[serde(default)]
    pub metadata: TemplateMeta,
    /// The rest.
    pub spec: NodeClaimTemplateSpec,
}

/// Labels and annotations of a template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct TemplateMeta {
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What the nodes of a pool are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Requirements on their labels.
    #[serde(default)]
    pub requirements: Vec<PoolRequirement>,
    /// Taints for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints until something takes them away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Who makes them.
    #[serde(default)]
    pub node_class_ref: NodeClassRef,
    /// Age at which they are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<NillableDuration>,
    /// The longest that draining may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<Duration>,
}

/// Names a node class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
pub struct NodeClassRef {
    /// Its API group.
    #[serde(default)]
    pub group: String,
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// A requirement on a label of a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRequirement {
    /// The label.
    pub key: String,
    /// How to compare.
    pub operator: Operator,
    /// What to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// How many different values the types of a node must leave open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i64>,
}

/// What a taint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum TaintEffect {
    /// Pods that do not tolerate it are not placed there.
    NoSchedule,
    /// They are placed there only if nothing else is left.
    PreferNoSchedule,
    /// They are not placed there, and leave.
    NoExecute,
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// When nodes may be taken away.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Quiet time after the last pod came or went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidate_after: Option<NillableDuration>,
    /// Which nodes consolidation looks at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidation_policy: Option<ConsolidationPolicy>,
    /// How many may be taken away at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
}

/// Which nodes consolidation looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum ConsolidationPolicy {
    /// Those without pods.
    WhenEmpty,
    /// Those without pods, and those whose pods fit elsewhere for less.
    WhenEmptyOrUnderutilized,
    /// The same, where the saving is worth the disruption.
    Balanced,
}

/// How many nodes may be taken away at once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// `3` or `10%`.
    #[serde(default = "Budget::default_nodes")]
    pub nodes: String,
    /// When it begins to hold: five fields of cron, or `@daily` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The time zone of the schedule, by its IANA name: Millpond's addition; UTC without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// For how long it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// For which reasons; all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
}

impl Budget {
    fn default_nodes() -> String {
        "10%".to_owned()
    }
}

/// A number of nodes, or a share of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCount {
    /// So many.
    Count(u64),
    /// So many of a hundred.
    Percent(u8),
}

impl NodeCount {
    /// Reads `3` or `10%`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.strip_suffix('%') {
            Some(percent) if digits(percent) => {
                percent.parse().ok().filter(|percent| *percent <= 100).map(Self::Percent)
            }
            None if digits(text) => text.parse().ok().map(Self::Count),
            _ => None,
        }
    }
}

/// Why a node is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum DisruptionReason {
    /// Its pods cost less elsewhere.
    Underutilized,
    /// It has no pods.
    Empty,
    /// It is no longer what its pool asks for.
    Drifted,
}

/// A node that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodeClaim {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: NodeClaimSpec,
    /// What is.
    #[serde(default)]
    pub status: NodeClaimStatus,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSpec {
    /// Requirements on its labels.
    #[serde(default)]
    pub requirements: Vec<PoolRequirement>,
    /// Taints for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints until something takes them away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// What must fit.
    #[serde(default)]
    pub resources: NodeClaimResources,
    /// Who makes it.
    #[serde(default)]
    pub node_class_ref: NodeClassRef,
    /// Age at which it is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<NillableDuration>,
    /// The longest that draining may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<Duration>,
}

/// What must fit on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeClaimResources {
    /// The sum of what its pods ask for.
    #[serde(default)]
    pub requests: Amounts,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// The node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The machine.
    #[serde(default, rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// What the node has.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub capacity: Amounts,
    /// What pods can use of it.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub allocatable: Amounts,
    /// How far it is.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// When a pod last came or went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pod_event_time: Option<Time>,
}
