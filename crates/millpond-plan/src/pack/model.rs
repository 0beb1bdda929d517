//! Input and output of the packing kernel.

use super::bits::BitSet;
use super::certificate::Certificate;

/// The most resources that a problem can have. A caller chooses the dimensions that some row asks
/// for; asking for fewer is faster.
pub const MAX_RESOURCES: usize = 8;

/// Amounts per resource; entries from [`Problem::resources`] on are ignored.
pub type Amounts = [i64; MAX_RESOURCES];

/// Rows of equal pods, and the nodes that can be bought for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// How many entries of [`Amounts`] count. At most [`MAX_RESOURCES`].
    pub resources: usize,
    /// The offerings.
    pub bins: Vec<Bin>,
    /// The pods.
    pub rows: Vec<Row>,
}

/// A kind of node that can be bought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bin {
    /// What pods can use on one node. A node with a negative amount holds no pods.
    pub capacity: Amounts,
    /// Nano-dollars per hour.
    pub price: u64,
    /// How many can be had at most; `None` for no limit.
    pub max_nodes: Option<u64>,
}

/// Pods that are alike in everything that packing looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The request of one pod. A negative amount counts as zero.
    pub request: Amounts,
    /// How many pods.
    pub count: u64,
    /// The bins that may hold these pods, as indices of [`Problem::bins`].
    pub bins: BitSet,
    /// How many pods of this row one node may hold; `u32::MAX` is as good as no limit.
    pub per_node_cap: u32,
    /// Groups of which one node holds at most one pod, counted over all rows that name the group.
    pub exclusive: Vec<u32>,
}

/// The amount and kind of work that a solution may take.
///
/// Work is counted, never timed, so that a result does not depend on the speed of the machine, nor
/// on the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Budget {
    /// Patterns that may be built to improve on the first plan. Zero gives the first plan.
    pub evaluations: u64,
    /// Threads that share the work.
    pub threads: usize,
}

impl Budget {
    /// Returns the first valid plan without improving it.
    pub fn first_plan() -> Self {
        Self { evaluations: 0, ..Self::default() }
    }
}

impl Default for Budget {
    /// About a quarter of a second of processor time for two thousand rows.
    fn default() -> Self {
        Self { evaluations: 35_000, threads: 2 }
    }
}

/// Nodes to buy, and the lower bound on their cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// The nodes, equal ones together, in a canonical order.
    pub nodes: Vec<NodeGroup>,
    /// Rows with pods that no node was found for, and how many.
    pub unplaced: Vec<(usize, u64)>,
    /// Nano-dollars per hour of all nodes.
    pub cost: u128,
    /// Lower bound on the cost of the placed pods.
    pub bound: Bound,
    /// Patterns that were built.
    pub work: u64,
}

impl Solution {
    /// How far the cost may be above the best one: `cost / bound − 1`, zero for a proved optimum.
    pub fn gap(&self) -> f64 {
        if self.cost == self.bound.value {
            return 0.0;
        }
        self.cost as f64 / self.bound.value as f64 - 1.0
    }

    /// How many nodes are bought.
    pub fn node_count(&self) -> u128 {
        self.nodes.iter().map(|group| u128::from(group.multiplicity)).sum()
    }
}

/// Nodes to buy, without a word on how good they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The nodes, equal ones together, in a canonical order.
    pub nodes: Vec<NodeGroup>,
    /// Rows with pods that no node was found for, and how many.
    pub unplaced: Vec<(usize, u64)>,
    /// Nano-dollars per hour of all nodes.
    pub cost: u128,
    /// Patterns that were built.
    pub work: u64,
}

/// Nodes of one bin that hold the same pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    /// Index of [`Problem::bins`].
    pub bin: usize,
    /// How many such nodes.
    pub multiplicity: u64,
    /// Index of [`Problem::rows`] and the number of its pods on each node; no zero entries.
    pub contents: Vec<(usize, u64)>,
}

/// A lower bound on the cost of the placed pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Nano-dollars per hour.
    pub value: u128,
    /// What [`verify`](super::verify) derives the value from.
    pub certificate: Certificate,
}
