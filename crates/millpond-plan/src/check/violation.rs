//! Violations that a plan can have.

use crate::model::Nanos;
use crate::pack::CertificateError;

/// One thing that is wrong with a plan. Where equal pods on one node break one rule, one of them stands for all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The plan is for another snapshot.
    #[error("the plan is for revision {plan:?}, the snapshot is {snapshot:?}")]
    Revision {
        /// What the plan says.
        plan: String,
        /// What the snapshot says.
        snapshot: String,
    },
    /// An index points nowhere.
    #[error("{what} {index} is not there: there are {count}")]
    Index {
        /// What was looked for.
        what: &'static str,
        /// Its number.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// A list is not in order.
    #[error("{0} are not sorted by pod")]
    Unsorted(&'static str),
    /// A pod stands twice in placements and pods without a place.
    #[error("pod {0} is decided about twice")]
    DecidedTwice(String),
    /// A pod needs a place and the plan says nothing about it.
    #[error("pod {0} needs a place and the plan does not speak of it")]
    Forgotten(String),
    /// A pod needs no place and gets one, or is said to lack one.
    #[error("pod {0} needs no place and the plan speaks of it")]
    NeedsNoPlace(String),
    /// A pod goes to a node that takes no pods.
    #[error("pod {pod} goes to node {node}, which {why}")]
    ClosedNode {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
        /// Why it takes none.
        why: &'static str,
    },
    /// A pod has a place though no node will ever do.
    #[error("pod {0} has a place though no node will do for it")]
    Hopeless(String),

    /// A node is bought for a pool that buys none.
    #[error("new node {node} is for a pool that {why}")]
    ClosedPool {
        /// The node.
        node: String,
        /// Why the pool buys none.
        why: String,
    },
    /// A node is of a type that its pool does not have.
    #[error("new node {node} is of type {instance_type}, which its pool does not have")]
    ForeignType {
        /// The node.
        node: String,
        /// The type.
        instance_type: String,
    },
    /// A node is bought where none can be had.
    #[error("new node {0} is of an offering that cannot be had now")]
    Unavailable(String),
    /// A node costs something else.
    #[error("new node {node} is said to cost {planned} nano-dollars per hour, its offering costs {actual}")]
    Price {
        /// The node.
        node: String,
        /// What the plan says.
        planned: Nanos,
        /// What the snapshot says.
        actual: Nanos,
    },
    /// A label of a new node is not what pool, type and offering make of it.
    #[error("new node {node} has {key}={value}, which {against} does not allow")]
    Label {
        /// The node.
        node: String,
        /// The label.
        key: String,
        /// Its value.
        value: String,
        /// The rule that does not allow it.
        against: &'static str,
    },
    /// A label that a new node would have is missing.
    #[error("new node {node} lacks the label {key}")]
    MissingLabel {
        /// The node.
        node: String,
        /// The label.
        key: String,
    },
    /// More are bought of an offering than are left.
    #[error("{bought} nodes of type {instance_type} in {zone} are bought and {left} are left")]
    Stock {
        /// The type.
        instance_type: String,
        /// The zone.
        zone: String,
        /// How many the plan buys.
        bought: usize,
        /// How many are left.
        left: u32,
    },
    /// A node is bought for no pod.
    #[error("new node {0} is bought for no pod")]
    EmptyNode(String),
    /// The types that could do for a node's pods are fewer than `minValues` asks for.
    #[error("new node {node} leaves {found} values of {key} open, minValues of its pool is {wanted}")]
    MinValues {
        /// The node.
        node: String,
        /// The label.
        key: String,
        /// Values that are left open.
        found: usize,
        /// Values asked for.
        wanted: u32,
    },

    /// The pods of a node ask for more than it has.
    #[error("the pods on node {node} ask for {asked} of {resource}, it has {allocatable}")]
    Resources {
        /// The node.
        node: String,
        /// The resource.
        resource: String,
        /// The sum of all pods there.
        asked: i64,
        /// What pods can use.
        allocatable: i64,
    },
    /// The node is not what the pod's selector and affinity ask for.
    #[error("pod {pod} is against its node affinity on node {node}")]
    NodeAffinity {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
    /// A volume of the pod cannot be used there.
    #[error("pod {pod} has a volume that cannot be used on node {node}")]
    Volumes {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
    /// A taint is not tolerated.
    #[error("pod {pod} does not tolerate the taint {taint} of node {node}")]
    Taint {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
        /// The key of the taint.
        taint: String,
    },
    /// Two pods want one port of the host.
    #[error("pods {pod} and {other} both want port {port} of node {node}")]
    HostPort {
        /// The pod.
        pod: String,
        /// The other one.
        other: String,
        /// The node.
        node: String,
        /// The port.
        port: u16,
    },
    /// Pods that must be near are not.
    #[error("pod {pod} on node {node} is not near the pods that its affinity asks for")]
    PodAffinity {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
    /// Pods that must not be near are.
    #[error("pod {pod} must not be with {other} in one {key}")]
    PodAntiAffinity {
        /// The pod whose rule it is.
        pod: String,
        /// The other one.
        other: String,
        /// The label.
        key: String,
    },
    /// A spread is uneven.
    #[error(
        "pod {pod} on node {node}: its domain of {key} has {here} pods, the least has {least}, maxSkew is {max_skew}"
    )]
    Spread {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
        /// The label.
        key: String,
        /// Pods in its domain.
        here: u64,
        /// Pods in the least of the domains.
        least: u64,
        /// How many more are allowed.
        max_skew: u32,
    },
    /// The node lacks the label over which the pod is spread.
    #[error("pod {pod} is spread over {key}, which node {node} lacks")]
    NoDomain {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
        /// The label.
        key: String,
    },

    /// A limit is exceeded by what is bought.
    #[error("{of} would have {used} of {what}, its limit is {limit}")]
    Limit {
        /// The pool, or the cluster.
        of: String,
        /// The resource, `nodes` or `price`.
        what: String,
        /// What all nodes would add up to.
        used: i128,
        /// The limit.
        limit: i128,
    },
    /// A pod goes to a new node of one pool though a pool of greater weight has capacity for it.
    #[error("pod {pod} goes to new node {node} though pool {pool} of greater weight has capacity for it: {capacity}")]
    Weight {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
        /// The pool of greater weight.
        pool: String,
        /// What of it: a new node with room, or an instance type that its limits still allow.
        capacity: String,
    },
    /// Too few nodes of a pool are left.
    #[error("pool {pool} would have {left} nodes, its least is {least}")]
    MinNodes {
        /// The pool.
        pool: String,
        /// Nodes that are left.
        left: u64,
        /// Nodes that it never goes below.
        least: u64,
    },

    /// A node is taken away twice.
    #[error("node {0} is taken away twice")]
    RemovedTwice(String),
    /// A node is taken away that may not be.
    #[error("node {node} is taken away, but {why}")]
    NotRemovable {
        /// The node.
        node: String,
        /// Why it may not be.
        why: &'static str,
    },
    /// A node is taken away for a reason that it does not give.
    #[error("node {node} is taken away as {reason}, which it is not")]
    Reason {
        /// The node.
        node: String,
        /// The reason.
        reason: &'static str,
    },
    /// A pod that may not be evicted would be.
    #[error("pod {pod} on node {node} may not be disrupted")]
    DoNotDisrupt {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
    /// A pod without a controller, which would not be created again, would be evicted.
    #[error("pod {pod} on node {node} has no controller and would be lost")]
    Lost {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
    /// More pods would be evicted than a PodDisruptionBudget allows.
    #[error("{evicted} pods of PodDisruptionBudget {budget} would be evicted, it allows {allowed}")]
    DisruptionBudget {
        /// The budget.
        budget: String,
        /// Pods that would be evicted.
        evicted: u64,
        /// What it allows.
        allowed: u32,
    },
    /// A pod would be evicted that several PodDisruptionBudgets are for.
    #[error("pod {0} would be evicted, and several PodDisruptionBudgets are for it")]
    SeveralBudgets(String),
    /// More nodes of a pool go than its budgets allow.
    #[error("node {node} is taken away as {reason}, more than the budgets of its pool allow now")]
    PoolBudget {
        /// The node.
        node: String,
        /// The reason.
        reason: &'static str,
    },
    /// What comes in the place of underutilized nodes is not cheaper.
    #[error("what replaces node {0} is not cheaper")]
    NoSaving(String),
    /// The savings of a removal are something else.
    #[error("taking away node {node} is said to save {planned}, it saves {actual}")]
    Savings {
        /// The first node.
        node: String,
        /// What the plan says.
        planned: i128,
        /// What it is.
        actual: i128,
    },
    /// A new node comes in the place of two removals.
    #[error("new node {0} replaces twice")]
    ReplacesTwice(String),

    /// A figure of the report is something else.
    #[error("the report says {what} is {reported}, it is {actual}")]
    Figure {
        /// Which.
        what: &'static str,
        /// What it says.
        reported: u128,
        /// What it is.
        actual: u128,
    },
    /// The bound is above the cost.
    #[error("the bound {bound} is above the cost {cost}")]
    BoundAboveCost {
        /// The bound.
        bound: u128,
        /// The cost.
        cost: u128,
    },
    /// The bound counts a node that goes.
    #[error("the bound counts node {0}, which is taken away")]
    BoundCountsRemoved(String),
    /// A proof of the bound leaves out nodes that could stay.
    #[error("proof {index} of the bound does not have all nodes on offer that may go")]
    NotOnOffer {
        /// Which.
        index: usize,
    },
    /// A proof of the bound does not hold.
    #[error("proof {index} of the bound does not hold: {error}")]
    Proof {
        /// Which.
        index: usize,
        /// Why.
        error: CertificateError,
    },
}
