//! The planner's output: a [`Plan`] to be carried out and a [`Report`] that explains it.

use std::fmt;
use std::sync::Arc;

use crate::model::{DisruptionReason, Labels, Nanos, NodeId, PodId, PoolId, Snapshot, TypeId};
use crate::pack;

/// What to do. A plain value; it names the snapshot that it came from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// [`Snapshot::revision`].
    pub revision: String,
    /// Nodes to buy.
    pub new_nodes: Vec<NewNode>,
    /// Nodes to take away, each group as one step.
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
    /// Which of the type's offerings.
    pub offering: u32,
    /// What it costs.
    pub price: Nanos,
    /// Its labels, with a value chosen where pool and type leave several open. The hostname is not among them: it
    /// is the name of the node.
    pub labels: Arc<Labels>,
}

impl Plan {
    /// The name of a new node: its pool's, and its number in the plan.
    pub fn node_name(&self, snapshot: &Snapshot, node: usize) -> String {
        format!("{}-{:05}", snapshot.pools[self.new_nodes[node].pool.index()].name, node + 1)
    }

    /// Where a pod goes.
    pub fn target(&self, pod: PodId) -> Option<Target> {
        self.placements.binary_search_by_key(&pod, |(pod, _)| *pod).ok().map(|index| self.placements[index].1)
    }
}

/// Where a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A node that is there, or on its way.
    Existing(NodeId),
    /// One of [`Plan::new_nodes`].
    New(u32),
}

/// Nodes that go together, and what comes in their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Nodes that go.
    pub nodes: Vec<NodeId>,
    /// Those of [`Plan::new_nodes`] that must be ready first.
    pub replacements: Vec<u32>,
    /// Why.
    pub reason: DisruptionReason,
    /// What is saved per hour; negative where a drifted or expired node is replaced by a dearer one.
    pub savings: i128,
    /// How much is disturbed: the sum of the eviction costs of the pods that move, in thousandths.
    pub disruption: i64,
}

/// What is known about a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Nano-dollars per hour of all nodes that are there, those leaving included.
    pub cost_before: u128,
    /// The same when the plan is done.
    pub cost_after: u128,
    /// Nodes whose price is not known; they count nothing.
    pub unpriced_nodes: usize,
    /// Nodes there, those leaving included.
    pub nodes_before: usize,
    /// Nodes when the plan is done.
    pub nodes_after: usize,
    /// Pods that needed a place.
    pub pods: usize,
    /// What any plan that places the same pods costs at least, nodes that stay included: those that may go only as
    /// far as pods need them.
    pub bound: u128,
    /// What the bound is derived from, one proof for each part of the plan.
    pub proofs: Vec<BoundProof>,
    /// Pods without a place, sorted by pod, and which of `verdicts` says why.
    pub unplaced: Vec<(PodId, u32)>,
    /// Why pods have no place, each once.
    pub verdicts: Vec<Verdict>,
    /// Wishes of pods that could not be kept for free, each with the number of pods.
    pub relaxed: Vec<(Preference, usize)>,
    /// Counted work.
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

/// A wish that scheduling may leave unfulfilled.
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
    /// One sentence.
    pub message: String,
    /// For every pool, in the order of the snapshot.
    pub pools: Vec<PoolVerdict>,
}

/// Why a pool does not take pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolVerdict {
    /// The pool.
    pub pool: PoolId,
    /// The first rule that leaves nothing to buy.
    pub rule: Rule,
    /// One sentence.
    pub message: String,
}

/// The rules, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Something that the pod names is missing, or it contradicts itself: no pool can help.
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
    /// Types that would do are out of stock.
    Unavailable,
    /// Too few types are left for `minValues`.
    MinValues,
    /// Ports of the host.
    HostPorts,
    /// Pods that must be near are not.
    PodAffinity,
    /// Pods that must not be near are.
    PodAntiAffinity,
    /// The spread allows no domain that is left.
    TopologySpread,
    /// A limit of the pool.
    PoolLimit,
    /// The limit of all pools.
    ClusterLimit,
}

impl Rule {
    /// All of them.
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

    /// Its name in reports.
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

/// A plan and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// What to do.
    pub plan: Plan,
    /// Why.
    pub report: Report,
}

/// How a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// By whose rules.
    pub policy: Policy,
    /// Whether nodes that are there may be taken away or replaced.
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

/// By whose rules a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Least cost, all pools together.
    Millpond,
    /// Karpenter's published rules.
    Karpenter,
    /// Cluster Autoscaler's published rules.
    ClusterAutoscaler,
    /// Gardener Scaling Advisor's published rules.
    ScalingAdvisor,
}

impl Policy {
    /// All of them.
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
