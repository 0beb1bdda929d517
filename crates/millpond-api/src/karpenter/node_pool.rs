//! `karpenter.sh/v1` NodePool: what the nodes of a pool are, how many there may be, when they may be taken away.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{GROUP, NodeClassRef, PoolRequirement, Taint};
use crate::amounts::Amounts;
use crate::duration::{Duration, NillableDuration};
use crate::meta::{Condition, ObjectMeta, is_default, kind};

/// A pool of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodePool {
    /// Name, annotations and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: NodePoolSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: NodePoolStatus,
}

/// The spec of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodePoolSpec {
    /// The template of its nodes.
    pub template: NodeClaimTemplate,
    /// When they may be taken away.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disruption: Disruption,
    /// Limits on the sum of its nodes; `nodes` is their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Amounts>,
    /// Pools of greater weight are used first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// A fixed number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

/// The observed state of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Resources of its nodes.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub resources: Amounts,
    /// How many there are; the server writes 0 if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// The observed generation of the node class.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_class_observed_generation: i64,
    /// `Ready` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The template of a pool's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodeClaimTemplate {
    /// Labels and annotations.
    #[serde(default, skip_serializing_if = "is_default")]
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

/// The spec of a pool's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Requirements on their labels.
    #[serde(default)]
    pub requirements: Vec<PoolRequirement>,
    /// Taints for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that another component removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// The class of its nodes, which names the provider.
    #[serde(default)]
    pub node_class_ref: NodeClassRef,
    /// Age at which they are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<NillableDuration>,
    /// The longest that draining may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<Duration>,
}

kind!(NodePool, GROUP, "v1", "NodePool", "nodepools", namespaced: false);

/// Disruption policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Quiet time after the last pod came or went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidate_after: Option<NillableDuration>,
    /// Which nodes consolidation considers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidation_policy: Option<ConsolidationPolicy>,
    /// How many may be taken away at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
}

/// Which nodes consolidation considers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum ConsolidationPolicy {
    /// Those without pods.
    WhenEmpty,
    /// Nodes without pods, and nodes whose pods fit elsewhere at lower cost.
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
    /// A percentage of the pool's nodes.
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
    /// It differs from what its pool would launch today.
    Drifted,
}
