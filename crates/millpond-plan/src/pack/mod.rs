//! The numeric packing kernel: which nodes to buy for rows of equal pods, and what they cost at
//! least.
//!
//! It knows rows, bins, prices and nothing of Kubernetes. The layer above turns selectors, taints,
//! topology and limits into sets of bins, counts and caps.
//!
//! ```text
//! Problem ─▶ instance ─▶ prices ─▶ greedy ─▶ plan ─▶ Solution
//!            sort, prune   what a    first     right-   nodes, cost,
//!                          pod is    plan      size     bound ◀─ certificate ◀─ verify
//!                          worth
//! ```
//!
//! Work depends on the number of rows, not of pods. Every step is deterministic: rows and bins are
//! put in canonical order first, work is counted instead of timed, and threads only share out
//! independent pieces. Among equally good nodes the larger is taken, then the one that comes first
//! in canonical order (by capacity, price, stock, and who may use it).

mod bits;
mod bound;
mod certificate;
mod columns;
mod greedy;
mod instance;
mod knapsack;
mod model;
mod parallel;
mod plan;
mod prices;
mod simplex;
#[cfg(test)]
mod tests;

pub use bits::BitSet;
pub use certificate::{Certificate, CertificateError, NodePrices, Proof, verify};
pub use model::{Amounts, Bin, Bound, Budget, MAX_RESOURCES, NodeGroup, Problem, Row, Solution};

use instance::Instance;
use plan::{Nodes, Stock};
use prices::Prices;

/// Chooses nodes for as many pods as possible, at a low cost.
///
/// Pods that cannot be placed are reported, never an error. More than [`MAX_RESOURCES`] resources
/// are ignored.
pub fn solve(problem: &Problem, budget: Budget) -> Solution {
    let instance = Instance::new(problem);
    let prices = Prices::new(&instance, budget.threads);
    let by_price = plan::bins_by_price(&instance);
    let mut best = first_plan(&instance, &prices, &by_price, budget.threads);
    let mut work = prices.work + best.work;
    if budget.evaluations > 0 {
        let better = improved_plan(&instance, &prices, &by_price, budget);
        work += better.work;
        best = best.better(better);
    }
    let mut counts: Vec<u64> = problem.rows.iter().map(|row| row.count).collect();
    let mut unplaced: Vec<(usize, u64)> = Vec::new();
    for &row in &instance.hopeless {
        unplaced.push((row, counts[row]));
    }
    for (row, &left) in instance.rows.iter().zip(&best.left) {
        if left > 0 {
            unplaced.push((row.origin, left));
        }
    }
    unplaced.sort_unstable();
    for &(row, missing) in &unplaced {
        counts[row] -= missing;
    }
    Solution {
        cost: best.cost,
        nodes: plan::to_groups(&instance, &best.nodes),
        unplaced,
        bound: bound::certify(problem, &instance, &prices, counts),
        work,
    }
}

/// A valid choice of nodes.
struct Candidate {
    nodes: Vec<Nodes>,
    left: Vec<u64>,
    cost: u128,
    work: u64,
}

impl Candidate {
    fn new(
        instance: &Instance,
        by_price: &[usize],
        mut nodes: Vec<Nodes>,
        left: Vec<u64>,
        mut stock: Stock,
        work: u64,
    ) -> Self {
        plan::right_size(instance, by_price, &mut stock, &mut nodes);
        let nodes = plan::merge(nodes);
        Self { cost: plan::cost(instance, &nodes), nodes, left, work }
    }

    /// More pods placed, then cheaper, then fewer nodes.
    fn better(self, other: Self) -> Self {
        let key = |one: &Self| {
            let left: u128 = one.left.iter().map(|&count| u128::from(count)).sum();
            let nodes: u128 = one.nodes.iter().map(|nodes| u128::from(nodes.times)).sum();
            (left, one.cost, nodes)
        };
        if key(&other) < key(&self) { other } else { self }
    }
}

fn first_plan(instance: &Instance, prices: &Prices, by_price: &[usize], threads: usize) -> Candidate {
    let mut left: Vec<u64> = instance.rows.iter().map(|row| row.count).collect();
    let mut stock = Stock::new(instance);
    let (nodes, work) = greedy::place(instance, prices, &mut left, &mut stock, threads);
    Candidate::new(instance, by_price, nodes, left, stock, work)
}

fn improved_plan(instance: &Instance, prices: &Prices, by_price: &[usize], budget: Budget) -> Candidate {
    let mut left: Vec<u64> = instance.rows.iter().map(|row| row.count).collect();
    let mut stock = Stock::new(instance);
    let (mut nodes, mut work) =
        columns::place(instance, prices, &mut left, &mut stock, budget.evaluations, budget.threads);
    let (rest, more) = greedy::place(instance, prices, &mut left, &mut stock, budget.threads);
    nodes.extend(rest);
    work += more;
    Candidate::new(instance, by_price, nodes, left, stock, work)
}
