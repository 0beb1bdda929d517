//! Chooses between large and small nodes where topology spreads over hosts keep pods apart.
//!
//! Larger nodes are usually cheaper for what they hold, so the packing kernel prefers them. The more pods a node holds, the
//! more of them violate a spread over hosts, and the kernel does not know all of these rules.

use std::collections::BTreeMap;

use crate::pack::{self, BitSet};

use super::Solver;
use super::packing_problem::Packing;

/// Nodes that are not larger than they have to be may cost this much more than others.
const DEARER_BY_SMALL_NODES: f64 = 1.04;
/// Largest size of such nodes, as a multiple of the average capacity that each necessary host must have.
const LARGER_THAN_AVERAGE: (i128, i128) = (5, 2);
/// If fewer than one in this many pods has such a rule, node size is not restricted.
const FEW_GUARDED: u64 = 10;

impl Solver<'_> {
    /// Chooses nodes. If many pods have rules about the hostname that the kernel does not know, nodes should be no
    /// larger than necessary: the more pods share a node, the more of them exclude each other.
    pub(super) fn choose_nodes(&mut self, packing: &Packing) -> pack::Choice {
        let budget = self.settings.budget;
        let any = || pack::choose(&packing.problem, budget);
        let Some(small) = self.with_small_bins(packing) else { return any() };
        let small = pack::choose(&small, budget);
        let dearer = |small: u128, other: u128| small as f64 > other as f64 * DEARER_BY_SMALL_NODES;
        if small.unplaced.is_empty() && self.early_bound().is_some_and(|bound| !dearer(small.cost, bound)) {
            return small;
        }
        let any = any();
        let left = |solution: &pack::Choice| solution.unplaced.iter().map(|(_, count)| count).sum::<u64>();
        if left(&small) > left(&any) || dearer(small.cost, any.cost) { any } else { small }
    }

    /// The problem with bins that are not much larger than a node has to be when rules about the host are kept.
    fn with_small_bins(&self, packing: &Packing) -> Option<pack::Problem> {
        let topology = self.cluster.topology();
        let members = || packing.members.iter().flatten();
        let pods: u64 = members().map(|(_, count)| u64::from(*count)).sum();
        let guarded = members().filter(|(class, _)| topology.is_guarded(*class));
        let guarded: u64 = guarded.map(|(_, count)| u64::from(*count)).sum();
        if guarded * FEW_GUARDED < pods {
            return None;
        }
        let problem = &packing.problem;
        let mut hosts: BTreeMap<u32, u64> = BTreeMap::new();
        for row in &problem.rows {
            for group in &row.exclusive {
                *hosts.entry(*group).or_default() += row.count;
            }
        }
        let hosts = hosts.into_values().max()?;
        let total = |dim: usize| -> i128 {
            problem.rows.iter().map(|row| i128::from(row.request[dim]) * i128::from(row.count)).sum()
        };
        let most: Vec<i128> = (0..problem.resources)
            .map(|dim| total(dim) * LARGER_THAN_AVERAGE.0 / (i128::from(hosts) * LARGER_THAN_AVERAGE.1))
            .collect();
        let small = |bin: &pack::Bin| (0..problem.resources).any(|dim| i128::from(bin.capacity[dim]) <= most[dim]);
        let small: BitSet = (0..problem.bins.len()).filter(|&bin| small(&problem.bins[bin])).collect();
        let mut problem = problem.clone();
        for row in &mut problem.rows {
            let fits = |bin: &usize| {
                let capacity = &packing.problem.bins[*bin].capacity;
                (0..packing.problem.resources).all(|dim| row.request[dim] <= capacity[dim])
            };
            let mut bins = row.bins.clone();
            bins.intersect(&small);
            if bins.iter().any(|bin| fits(&bin)) {
                row.bins = bins;
            }
        }
        Some(problem)
    }
}
