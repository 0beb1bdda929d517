//! The numeric packing kernel: which nodes to buy for rows of equal pods, and what they cost at
//! least.
//!
//! It knows rows, bins and prices, and nothing of Kubernetes. The layer above turns selectors, taints, topology and
//! limits into sets of bins, counts and caps.
//!
//! ```text
//! Problem ─▶ instance ─▶ prices ─▶ greedy ──▶ columns ─▶ merge ─▶ Solution
//!            sort, prune   what a    first      better    fewer    nodes, cost,
//!               │          pod is    plan       plan      nodes    bound ◀─ certificate ◀─ verify
//!               ▼          worth
//!             exact (tiny problems)
//! ```
//!
//! Work depends on the number of rows, not of pods. Every step is deterministic: rows and bins are
//! put in canonical order first, nothing is drawn at random, work is counted instead of timed, and
//! threads only share out independent pieces. Among equally good nodes the larger is taken, then the one that comes first
//! in canonical order (by capacity, price, stock, and who may use it).

#![allow(clippy::needless_range_loop, reason = "loops run over a prefix of several arrays of fixed length at once")]

mod ascent;
mod bits;
mod bound;
mod certificate;
mod columns;
mod exact;
mod greedy;
mod hybrid;
mod instance;
mod knapsack;
mod merge;
mod model;
pub(crate) mod parallel;
mod plan;
mod prices;
mod repair;
mod scopes;
mod simplex;
mod stock;
#[cfg(test)]
mod tests;
mod whole;

pub use bits::BitSet;
pub use certificate::{Certificate, CertificateError, NodePrices, NodeProof, Proof, verify};
pub use model::{Amounts, Bin, Bound, Budget, Choice, MAX_RESOURCES, NodeGroup, Problem, Row, Solution};

use instance::Instance;
use plan::{Nodes, Stock};
use prices::Prices;

/// A hash map that is fast and has the same iteration order on every machine.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// With fewer pods per row than this on average, relaxations say little about whole nodes.
const PODS_A_ROW: f64 = 10.0;
/// So few rows that a relaxation takes no time to speak of.
const FEW_ROWS: usize = 240;

/// Chooses nodes for as many pods as possible, at a low cost, and proves how low it could be at best.
///
/// Pods that cannot be placed are reported, never an error. More than [`MAX_RESOURCES`] resources
/// are ignored.
pub fn solve(problem: &Problem, budget: Budget) -> Solution {
    let Choice { nodes, unplaced, cost, work } = choose(problem, budget);
    let mut counts: Vec<u64> = problem.rows.iter().map(|row| row.count).collect();
    for &(row, missing) in &unplaced {
        counts[row] -= missing;
    }
    Solution { nodes, unplaced, cost, bound: bound(problem, counts, budget), work }
}

/// Chooses nodes for as many pods as possible, at a low cost.
pub fn choose(problem: &Problem, budget: Budget) -> Choice {
    let mut instance = Instance::new(problem);
    let by_price = plan::bins_by_price(&instance);
    if let Some((nodes, left)) = exact::place(&instance, &by_price) {
        let mut stock = Stock::new(&instance);
        for node in &nodes {
            stock.take(node.bin, node.times);
        }
        return Candidate::new(&instance, &by_price, nodes, left, stock, 0).chosen(problem, &instance, 0);
    }
    scopes::divide(&mut instance);
    let prices = Prices::new(&instance, budget.threads);
    choose_at(problem, &instance, &prices, by_price, budget)
}

/// Chooses nodes, and proves what all pods that fit some bin cost at least. Where both go by the same prices, these are
/// looked for once.
pub fn choose_and_bound(problem: &Problem, budget: Budget) -> (Choice, Bound) {
    let counts: Vec<u64> = problem.rows.iter().map(|row| row.count).collect();
    let instance = Instance::new(problem);
    if !Prices::are_shared(&instance) {
        return parallel::both(budget.threads, || choose(problem, budget), || bound(problem, counts, budget));
    }
    let prices = Prices::new(&instance, budget.threads);
    let choose = || choose_at(problem, &instance, &prices, plan::bins_by_price(&instance), budget);
    parallel::both(budget.threads, choose, || bound::certify(problem, &instance, &prices, counts))
}

fn choose_at(problem: &Problem, instance: &Instance, prices: &Prices, by_price: Vec<usize>, budget: Budget) -> Choice {
    // Free room is filled before anything is bought, and can hold nothing more then.
    let by_price: Vec<usize> = by_price.into_iter().filter(|&bin| !instance.is_free_stock(bin)).collect();
    let mut best = first_plan(instance, prices, &by_price, budget.threads);
    let mut work = prices.work + best.work;
    if budget.evaluations > 0 {
        let pods: f64 = instance.rows.iter().map(|row| row.count as f64).sum();
        if instance.rows.len() <= FEW_ROWS || pods >= PODS_A_ROW * instance.rows.len() as f64 {
            let better = improved_plan(instance, prices, &by_price, budget);
            work += better.work;
            best = best.better(better);
        }
        let Candidate { nodes, left, .. } = best;
        let (nodes, more) = repair::improve(instance, prices, nodes, budget.evaluations, budget.threads);
        work += more;
        let mut stock = Stock::new(instance);
        for node in &nodes {
            stock.take(node.bin, node.times);
        }
        let few = instance.rows.len() <= FEW_ROWS;
        let nodes = if few { merge::pairs(instance, prices, &by_price, &mut stock, nodes) } else { nodes };
        best = Candidate::new(instance, &by_price, nodes, left, stock, 0);
    }
    best.chosen(problem, instance, work)
}

/// The lower bound on the cost of pods, without choosing nodes for them.
///
/// `counts` is the number of pods of each row; counts above the row's are cut, and rows without an entry count zero.
/// Pods that fit no bin cost nothing.
pub fn bound(problem: &Problem, counts: Vec<u64>, budget: Budget) -> Bound {
    let mut counts = counts;
    counts.resize(problem.rows.len(), 0);
    for (count, row) in counts.iter_mut().zip(&problem.rows) {
        *count = (*count).min(row.count);
    }
    let exhaustive = Certificate { counts, proof: Proof::Exhaustive };
    if let Ok(value) = verify(problem, &exhaustive) {
        return Bound { value, certificate: exhaustive };
    }
    let counts = exhaustive.counts;
    let instance = Instance::with_counts(problem, &counts);
    let prices = Prices::for_bound(&instance, budget.threads);
    let bound = bound::certify(problem, &instance, &prices, counts);
    if bound.value > 0 {
        return bound;
    }
    // Numbers too large for a search of whole contents leave nothing proved.
    let prices = Prices::new(&instance, budget.threads);
    bound::certify(problem, &instance, &prices, bound.certificate.counts)
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

    /// The choice in the terms of the problem.
    fn chosen(&self, problem: &Problem, instance: &Instance, work: u64) -> Choice {
        let hopeless = instance.hopeless.iter().map(|&row| (row, problem.rows[row].count));
        let left = instance.rows.iter().zip(&self.left).map(|(row, &left)| (row.origin, left));
        let mut unplaced: Vec<(usize, u64)> = hopeless.chain(left).filter(|&(_, count)| count > 0).collect();
        unplaced.sort_unstable();
        // Join the parts of a row that was split.
        unplaced.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        Choice { cost: self.cost, nodes: plan::to_groups(instance, &self.nodes), unplaced, work }
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
    let (mut nodes, work) = stock::fill(instance, prices, &mut left, &mut stock);
    let (bought, more) = greedy::place(instance, prices, &mut left, &mut stock, threads);
    nodes.extend(bought);
    Candidate::new(instance, by_price, nodes, left, stock, work + more)
}

fn improved_plan(instance: &Instance, prices: &Prices, by_price: &[usize], budget: Budget) -> Candidate {
    let mut left: Vec<u64> = instance.rows.iter().map(|row| row.count).collect();
    let mut stock = Stock::new(instance);
    let (mut nodes, mut work) = stock::fill(instance, prices, &mut left, &mut stock);
    let (bought, more) = columns::place(instance, prices, &mut left, &mut stock, budget.evaluations, budget.threads);
    nodes.extend(bought);
    work += more;
    let (rest, more) = greedy::place(instance, prices, &mut left, &mut stock, budget.threads);
    nodes.extend(rest);
    work += more;
    plan::right_size(instance, by_price, &mut stock, &mut nodes);
    let nodes = merge::pairs(instance, prices, by_price, &mut stock, nodes);
    Candidate::new(instance, by_price, nodes, left, stock, work)
}
