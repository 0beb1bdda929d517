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
use plan::Stock;
use prices::Prices;

/// Chooses nodes for as many pods as possible, at a low cost.
///
/// Pods that cannot be placed are reported, never an error. More than [`MAX_RESOURCES`] resources
/// are ignored.
pub fn solve(problem: &Problem, budget: Budget) -> Solution {
    let instance = Instance::new(problem);
    let prices = Prices::new(&instance, budget.threads);
    let mut left: Vec<u64> = instance.rows.iter().map(|row| row.count).collect();
    let mut stock = Stock::new(&instance);
    let (mut nodes, work) = greedy::place(&instance, &prices, &mut left, &mut stock, budget.threads);
    let by_price = plan::bins_by_price(&instance);
    plan::right_size(&instance, &by_price, &mut stock, &mut nodes);
    let nodes = plan::merge(nodes);
    let mut counts: Vec<u64> = problem.rows.iter().map(|row| row.count).collect();
    let mut unplaced: Vec<(usize, u64)> = Vec::new();
    for &row in &instance.hopeless {
        unplaced.push((row, counts[row]));
    }
    for (row, &left) in instance.rows.iter().zip(&left) {
        if left > 0 {
            unplaced.push((row.origin, left));
        }
    }
    unplaced.sort_unstable();
    for &(row, missing) in &unplaced {
        counts[row] -= missing;
    }
    Solution {
        cost: plan::cost(&instance, &nodes),
        nodes: plan::to_groups(&instance, &nodes),
        unplaced,
        bound: bound::certify(problem, &instance, &prices, counts),
        work: work + prices.work,
    }
}
