//! The planner's output: a [`Plan`] to be carried out and a [`Report`] that explains it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{DisruptionReason, Labels, Nanos, NodeId, PodId, PoolId, Snapshot, TypeId};
use crate::pack;

/// The decisions, as a plain value. It names the snapshot that it was made for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The snapshot's [`Snapshot::revision`].
    pub revision: String,
    /// Nodes to buy.
    pub new_nodes: Vec<NewNode>,
    /// Nodes to remove; each group is one step.
    pub removals: Vec<Removal>,
    /// Where each pod goes that needs a place, sorted by pod: pending ones, and those on nodes that leave.
    pub placements: Vec<(PodId, Target)>,
}

/// A node to buy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NewNode {
    /// The pool that it is for.
    pub pool: PoolId,
    /// Its type.
    pub instance_type: TypeId,
    /// Index of the type's offering.
    pub offering: u32,
    /// Price in nano-dollars per hour.
    pub price: Nanos,
    /// Its labels, with one value chosen for each label that pool and type leave open. Without the hostname, which is
    /// the name of the node.
    pub labels: Arc<Labels>,
}

impl Plan {
    /// The name of a new node: its pool's, and its number in the plan.
    pub fn node_name(&self, snapshot: &Snapshot, node: usize) -> String {
        format!("{}-{:05}", snapshot.pools[self.new_nodes[node].pool.index()].name, node + 1)
    }

    /// The node that a pod goes to.
    pub fn target(&self, pod: PodId) -> Option<Target> {
        self.placements.binary_search_by_key(&pod, |(pod, _)| *pod).ok().map(|index| self.placements[index].1)
    }
}

/// The node that a pod goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// An existing node, or one on its way.
    Existing(NodeId),
    /// A node to buy, an index into [`Plan::new_nodes`].
    New(u32),
}

/// Nodes that go together, and what comes in their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Nodes to remove.
    pub nodes: Vec<NodeId>,
    /// Indexes into [`Plan::new_nodes`]: replacements that must be ready before the nodes are removed.
    pub replacements: Vec<u32>,
    /// Why.
    pub reason: DisruptionReason,
    /// Saving in nano-dollars per hour; negative if a drifted or expired node is replaced by a more expensive one.
    pub savings: i128,
    /// How much is disturbed: the sum of the eviction costs of the pods that move, in thousandths.
    pub disruption: i64,
}

/// Figures and reasons that belong to a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Price of all existing nodes, including those being removed, in nano-dollars per hour.
    pub cost_before: u128,
    /// Price of all nodes after the plan, in nano-dollars per hour.
    pub cost_after: u128,
    /// Nodes whose price is not known; they count as free.
    pub unpriced_nodes: usize,
    /// Existing nodes, including those being removed.
    pub nodes_before: usize,
    /// Nodes after the plan.
    pub nodes_after: usize,
    /// Pods that needed a place.
    pub pods: usize,
    /// The least cost of any plan that places the same pods, in nano-dollars per hour. Includes nodes that stay;
    /// removable nodes count only as far as pods need them.
    pub bound: u128,
    /// What the bound is derived from, one proof for each part of the plan.
    pub proofs: Vec<BoundProof>,
    /// Pods without a place, sorted by pod, and which of `verdicts` says why.
    pub unplaced: Vec<(PodId, u32)>,
    /// Why pods have no place; each reason once.
    pub verdicts: Vec<Verdict>,
    /// Preferences that could not be met without additional cost, each with the number of pods.
    pub relaxed: Vec<(Preference, usize)>,
    /// Amount of work, counted in the kernel's evaluations.
    pub work: u64,
}

impl Report {
    /// How far the cost may be above the best one: `cost / bound − 1`.
    pub fn gap(&self) -> f64 {
        if self.cost_after <= self.bound || self.cost_after == 0 {
            return 0.0;
        }
        self.cost_after as f64 / self.bound as f64 - 1.0
    }

    /// Pods that have a place.
    pub fn placed(&self) -> usize {
        self.pods - self.unplaced.len()
    }
}

/// The proof of a part of the bound: a packing problem and a certificate about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundProof {
    /// Rows and bins in the kernel's terms.
    pub problem: pack::Problem,
    /// What [`pack::verify`] derives the part of the bound from.
    pub certificate: pack::Certificate,
    /// Nodes that may go: the problem has each on offer, once and at its price. All others that do not leave count in
    /// the bound as they are.
    pub nodes: Vec<NodeId>,
}

/// A preference that the plan could not satisfy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Preference {
    /// `preferredDuringScheduling` of the pod affinity.
    PodAffinity,
    /// `preferredDuringScheduling` of the pod anti-affinity.
    PodAntiAffinity,
    /// `preferredDuringScheduling` of the node affinity.
    NodeAffinity,
    /// `whenUnsatisfiable: ScheduleAnyway`.
    Spread,
    /// A `PreferNoSchedule` taint.
    Taint,
}

/// Why pods have no place: for every pool the first rule that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The rule that says most: of the pool that came nearest.
    pub rule: Rule,
    /// The reason as one sentence.
    pub message: String,
    /// The reason of every pool, in the order of the snapshot.
    pub pools: Vec<PoolVerdict>,
}

/// Why a pool takes none of some pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolVerdict {
    /// The pool.
    pub pool: PoolId,
    /// The first rule that leaves nothing to buy.
    pub rule: Rule,
    /// The reason as one sentence.
    pub message: String,
}

/// The rules, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// The pod refers to something missing, or contradicts itself: no pool can help.
    Pod,
    /// The pool is not ready, or has a fixed size.
    PoolNotReady,
    /// No type satisfies the pool's own requirements.
    PoolRequirements,
    /// The pool's taints are not tolerated.
    Taints,
    /// Node selector or node affinity.
    NodeAffinity,
    /// Where the pod's volumes are.
    Volumes,
    /// No type is large enough.
    Resources,
    /// The types that would suit are out of stock.
    Unavailable,
    /// Too few types are left for `minValues`.
    MinValues,
    /// Host ports.
    HostPorts,
    /// Required pod affinity is not met.
    PodAffinity,
    /// Required pod anti-affinity is not met.
    PodAntiAffinity,
    /// Topology spread allows none of the remaining domains.
    TopologySpread,
    /// A limit of the pool.
    PoolLimit,
    /// The limit of all pools.
    ClusterLimit,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 15] = [
        Self::Pod,
        Self::PoolNotReady,
        Self::PoolRequirements,
        Self::Taints,
        Self::NodeAffinity,
        Self::Volumes,
        Self::Resources,
        Self::Unavailable,
        Self::MinValues,
        Self::HostPorts,
        Self::PodAffinity,
        Self::PodAntiAffinity,
        Self::TopologySpread,
        Self::PoolLimit,
        Self::ClusterLimit,
    ];

    /// The rule's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::PoolNotReady => "PoolNotReady",
            Self::PoolRequirements => "PoolRequirements",
            Self::Taints => "Taints",
            Self::NodeAffinity => "NodeAffinity",
            Self::Volumes => "Volumes",
            Self::Resources => "Resources",
            Self::Unavailable => "Unavailable",
            Self::MinValues => "MinValues",
            Self::HostPorts => "HostPorts",
            Self::PodAffinity => "PodAffinity",
            Self::PodAntiAffinity => "PodAntiAffinity",
            Self::TopologySpread => "TopologySpread",
            Self::PoolLimit => "PoolLimit",
            Self::ClusterLimit => "ClusterLimit",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A plan with its report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The decisions.
    pub plan: Plan,
    /// The reasons and figures.
    pub report: Report,
}

/// How a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The policy to plan by.
    pub policy: Policy,
    /// Whether existing nodes may be removed or replaced.
    pub consolidate: bool,
    /// How much work may go into improving the first valid plan.
    pub budget: pack::Budget,
    /// Whether to prove what the plan costs at least. That takes longer than a small plan itself, and changes none.
    pub prove: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { policy: Policy::Millpond, consolidate: false, budget: pack::Budget::default(), prove: true }
    }
}

/// The rules that a plan is made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Least cost over all pools.
    Millpond,
    /// Karpenter's published rules.
    Karpenter,
    /// Cluster Autoscaler's published rules.
    ClusterAutoscaler,
    /// Gardener Scaling Advisor's published rules.
    ScalingAdvisor,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Millpond, Self::Karpenter, Self::ClusterAutoscaler, Self::ScalingAdvisor];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Millpond => "millpond",
            Self::Karpenter => "karpenter",
            Self::ClusterAutoscaler => "cluster-autoscaler",
            Self::ScalingAdvisor => "scaling-advisor",
        }
    }

    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}
