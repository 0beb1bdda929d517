//! The violations that the checker reports.

use crate::model::Nanos;
use crate::pack::CertificateError;

/// One violation. If equal pods on one node break the same rule, one of them is reported for all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The plan is for another snapshot.
    #[error("the plan is for revision {plan:?}, the snapshot is {snapshot:?}")]
    Revision {
        /// The revision that the plan names.
        plan: String,
        /// The snapshot's revision.
        snapshot: String,
    },
    /// An index is out of range.
    #[error("{what} {index} is not there: there are {count}")]
    Index {
        /// The kind of object that it refers to.
        what: &'static str,
        /// The index.
        index: usize,
        /// Length of the list.
        count: usize,
    },
    /// A list is not in order.
    #[error("{0} are not sorted by pod")]
    Unsorted(&'static str),
    /// A pod stands twice in placements and pods without a place.
    #[error("pod {0} is decided about twice")]
    DecidedTwice(String),
    /// A pod needs a place and the plan does not mention it.
    #[error("pod {0} needs a place and the plan does not speak of it")]
    Forgotten(String),
    /// A pod needs no place and gets one, or is said to lack one.
    #[error("pod {0} needs no place and the plan speaks of it")]
    NeedsNoPlace(String),
    /// A pod goes to a node that takes no pods.
    #[error("pod {pod} goes to node {node}, which {why}")]
    ClosedNode {
        /// Name of the pod.
        pod: String,
        /// The node.
        node: String,
        /// Why the node takes no pods.
        why: &'static str,
    },
    /// A pod is placed although no node can satisfy it.
    #[error("pod {0} has a place though no node will do for it")]
    Hopeless(String),

    /// A node is bought for a pool that cannot buy any.
    #[error("new node {node} is for a pool that {why}")]
    ClosedPool {
        /// The node.
        node: String,
        /// Why the pool cannot buy any.
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
    /// A node is bought from an offering that is not available.
    #[error("new node {0} is of an offering that cannot be had now")]
    Unavailable(String),
    /// The price of a new node differs from its offering's.
    #[error("new node {node} is said to cost {planned} nano-dollars per hour, its offering costs {actual}")]
    Price {
        /// The node.
        node: String,
        /// The plan's price.
        planned: Nanos,
        /// The offering's price.
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
        /// The rule that the label breaks.
        against: &'static str,
    },
    /// A label that a new node must have is missing.
    #[error("new node {node} lacks the label {key}")]
    MissingLabel {
        /// The node.
        node: String,
        /// The label.
        key: String,
    },
    /// The plan buys more of an offering than its stock.
    #[error("{bought} nodes of type {instance_type} in {zone} are bought and {left} are left")]
    Stock {
        /// The type.
        instance_type: String,
        /// The zone.
        zone: String,
        /// Nodes that the plan buys.
        bought: usize,
        /// Stock of the offering.
        left: u32,
    },
    /// A node is bought but gets no pod.
    #[error("new node {0} is bought for no pod")]
    EmptyNode(String),
    /// The types that could do for a node's pods are fewer than `minValues` asks for.
    #[error("new node {node} leaves {found} values of {key} open, minValues of its pool is {wanted}")]
    MinValues {
        /// The node.
        node: String,
        /// The label.
        key: String,
        /// Number of values that the possible types have.
        found: usize,
        /// The required number of values.
        wanted: u32,
    },

    /// The pods of a node request more than is allocatable.
    #[error("the pods on node {node} ask for {asked} of {resource}, it has {allocatable}")]
    Resources {
        /// The node.
        node: String,
        /// The resource.
        resource: String,
        /// The sum of the requests.
        asked: i64,
        /// The allocatable amount.
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
    /// Two pods use the same host port.
    #[error("pods {pod} and {other} both want port {port} of node {node}")]
    HostPort {
        /// The pod.
        pod: String,
        /// The other pod.
        other: String,
        /// The node.
        node: String,
        /// The port.
        port: u16,
    },
    /// Required pod affinity is not met.
    #[error("pod {pod} on node {node} is not near the pods that its affinity asks for")]
    PodAffinity {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
    /// Required pod anti-affinity is not met.
    #[error("pod {pod} must not be with {other} in one {key}")]
    PodAntiAffinity {
        /// The pod with the rule.
        pod: String,
        /// The other pod.
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
        /// Pods in the pod's domain.
        here: u64,
        /// Pods in the domain with the fewest.
        least: u64,
        /// The constraint's `maxSkew`.
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

    /// The new nodes exceed a limit.
    #[error("{of} would have {used} of {what}, its limit is {limit}")]
    Limit {
        /// The pool, or the cluster.
        of: String,
        /// The resource, `nodes` or `price`.
        what: String,
        /// The sum over all nodes.
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
        /// What the pool could have used: a new node with free capacity, or an instance type that its limits allow.
        capacity: String,
    },
    /// A pool falls below its minimum number of nodes.
    #[error("pool {pool} would have {left} nodes, its least is {least}")]
    MinNodes {
        /// The pool.
        pool: String,
        /// Nodes after the plan.
        left: u64,
        /// The minimum.
        least: u64,
    },

    /// A node is removed twice.
    #[error("node {0} is taken away twice")]
    RemovedTwice(String),
    /// A node is removed that may not be.
    #[error("node {node} is taken away, but {why}")]
    NotRemovable {
        /// The node.
        node: String,
        /// Why it may not be removed.
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
        /// Evictions that the budget allows.
        allowed: u32,
    },
    /// A pod would be evicted that several PodDisruptionBudgets are for.
    #[error("pod {0} would be evicted, and several PodDisruptionBudgets are for it")]
    SeveralBudgets(String),
    /// More nodes of a pool are removed than its budgets allow.
    #[error("node {node} is taken away as {reason}, more than the budgets of its pool allow now")]
    PoolBudget {
        /// The node.
        node: String,
        /// The reason.
        reason: &'static str,
    },
    /// The replacement of underutilized nodes is not cheaper.
    #[error("what replaces node {0} is not cheaper")]
    NoSaving(String),
    /// The savings of a removal are wrong.
    #[error("taking away node {node} is said to save {planned}, it saves {actual}")]
    Savings {
        /// The first node of the removal.
        node: String,
        /// The plan's figure.
        planned: i128,
        /// The correct figure.
        actual: i128,
    },
    /// A new node is the replacement of two removals.
    #[error("new node {0} replaces twice")]
    ReplacesTwice(String),

    /// A figure of the report is wrong.
    #[error("the report says {what} is {reported}, it is {actual}")]
    Figure {
        /// Name of the figure.
        what: &'static str,
        /// The report's figure.
        reported: u128,
        /// The correct figure.
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
    /// The bound counts a node that the plan removes.
    #[error("the bound counts node {0}, which is taken away")]
    BoundCountsRemoved(String),
    /// A proof of the bound leaves out nodes that could stay.
    #[error("proof {index} of the bound does not have all nodes on offer that may go")]
    NotOnOffer {
        /// Index of the proof.
        index: usize,
    },
    /// A proof of the bound is invalid.
    #[error("proof {index} of the bound does not hold: {error}")]
    Proof {
        /// Index of the proof.
        index: usize,
        /// Why it is invalid.
        error: CertificateError,
    },
}
