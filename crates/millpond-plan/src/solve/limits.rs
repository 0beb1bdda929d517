//! Choosing nodes where limits are in the way of the cheapest ones.
//!
//! A limit on nodes, cores or memory makes what it counts scarce. The kernel knows no limits; so what is scarce gets a
//! surcharge, and the kernel chooses again, with higher surcharges until all pods have a place or nothing helps.
//! Among choices that place the same number of pods within the limits the cheapest is taken.

use crate::model::{Limits, ResourceId, Snapshot};
use crate::pack::{self, Budget};

use super::Solver;
use super::rows::Packing;

/// Surcharges, as multiples of what one unit of the scarce thing costs on the average.
const SURCHARGES: [f64; 8] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0, 64.0];

/// Something that a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scarce {
    /// The pool that it is limited for; none for the whole cluster.
    pool: Option<usize>,
    what: Counted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Nodes,
    Resource(ResourceId),
}

impl Solver<'_> {
    /// What to buy, within limits as far as that goes.
    pub(super) fn choose_within_limits(&mut self, packing: &Packing) -> pack::Choice {
        let first = self.choose_nodes(packing);
        if !self.ledger.is_limited() {
            return first;
        }
        let pods: u64 = packing.problem.rows.iter().map(|row| row.count).sum();
        let mut best = (self.placed_within(&first, packing), first);
        let wanted = pods - best.1.unplaced.iter().map(|(_, count)| count).sum::<u64>();
        if best.0 == wanted {
            return best.1;
        }
        for scarce in self.scarce() {
            let Some(unit) = self.price_of_unit(scarce, &best.1, packing) else { continue };
            for surcharge in SURCHARGES {
                let choice = self.choose_with(packing, scarce, unit * surcharge);
                let placed = self.placed_within(&choice, packing);
                if (placed, std::cmp::Reverse(choice.cost)) > (best.0, std::cmp::Reverse(best.1.cost)) {
                    best = (placed, choice);
                }
                if best.0 == wanted {
                    return best.1;
                }
            }
        }
        best.1
    }

    /// What is limited, but for money: less of that is what the kernel looks for anyway.
    fn scarce(&self) -> Vec<Scarce> {
        let counted = |pool: Option<usize>, limits: &Limits| {
            let nodes = limits.nodes.map(|_| Counted::Nodes);
            let resources = limits.resources.iter().map(|(resource, _)| Counted::Resource(*resource));
            nodes.into_iter().chain(resources).map(|what| Scarce { pool, what }).collect::<Vec<_>>()
        };
        let of_pools = self.snapshot.pools.iter().enumerate();
        let mut scarce: Vec<Scarce> = of_pools.flat_map(|(index, pool)| counted(Some(index), &pool.limits)).collect();
        scarce.extend(counted(None, &self.snapshot.limits));
        scarce
    }

    /// How much of something scarce a node of a bin takes.
    fn takes(&self, scarce: Scarce, bin: usize, packing: &Packing) -> i64 {
        let offer = self.market.offer(packing.offers[bin][0]);
        if scarce.pool.is_some_and(|pool| pool != offer.pool.index()) {
            return 0;
        }
        match scarce.what {
            Counted::Nodes => 1,
            Counted::Resource(resource) => capacity(self.snapshot, offer.instance_type.index(), resource),
        }
    }

    /// What one unit of something scarce costs on the average.
    fn price_of_unit(&self, scarce: Scarce, choice: &pack::Choice, packing: &Packing) -> Option<f64> {
        let taken = |group: &pack::NodeGroup| self.takes(scarce, group.bin, packing) as f64 * group.multiplicity as f64;
        let taken: f64 = choice.nodes.iter().map(taken).sum();
        (taken > 0.0 && choice.cost > 0).then(|| choice.cost as f64 / taken)
    }

    /// The kernel's choice at prices with a surcharge; its cost is at true prices.
    fn choose_with(&self, packing: &Packing, scarce: Scarce, surcharge: f64) -> pack::Choice {
        let mut problem = packing.problem.clone();
        for (index, bin) in problem.bins.iter_mut().enumerate() {
            let more = self.takes(scarce, index, packing) as f64 * surcharge;
            bin.price = bin.price.saturating_add(more as u64);
        }
        let budget =
            Budget { evaluations: self.settings.budget.evaluations / SURCHARGES.len() as u64, ..self.settings.budget };
        let mut choice = pack::choose(&problem, budget);
        let price = |group: &pack::NodeGroup| u128::from(packing.problem.bins[group.bin].price);
        choice.cost = choice.nodes.iter().map(|group| price(group) * u128::from(group.multiplicity)).sum();
        choice
    }

    /// Pods that have a place when nodes are bought in this order until limits are reached.
    fn placed_within(&self, choice: &pack::Choice, packing: &Packing) -> u64 {
        let mut ledger = self.ledger.clone();
        let mut placed = 0;
        for group in &choice.nodes {
            let pods: u64 = group.contents.iter().map(|(_, count)| count).sum();
            for _ in 0..group.multiplicity {
                let allowed = packing.offers[group.bin].iter().find(|&&offer| ledger.allows(offer).is_ok());
                let Some(&offer) = allowed else { break };
                ledger.buy(offer);
                placed += pods;
            }
        }
        placed
    }
}

fn capacity(snapshot: &Snapshot, of: usize, resource: ResourceId) -> i64 {
    snapshot.types[of].capacity.get(resource).max(0)
}
