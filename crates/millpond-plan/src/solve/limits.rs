//! Chooses nodes when limits rule out the cheapest ones.
//!
//! A limit on nodes, cores or memory makes what it counts scarce. The kernel knows no limits, so each scarce resource
//! gets a surcharge and the kernel chooses again: the smallest surcharge that places as many pods as a prohibitive one.
//! Only limits that the present choice exceeds are considered, and only if that can help: planning for a cluster that
//! is at its limit must stay fast.

use crate::model::{Limits, ResourceId};
use crate::pack::{self, Budget};

use super::Solver;
use super::packing_problem::Packing;

/// Surcharges, as multiples of the average price of one unit of the scarce resource.
const SURCHARGES: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0];
const HIGHEST_SURCHARGE: f64 = 64.0;

/// A resource that a limit makes scarce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scarce {
    /// The pool with the limit; `None` for the cluster's limit.
    pool: Option<usize>,
    what: LimitedAmount,
    /// The amount that may still be bought.
    left: i128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitedAmount {
    Nodes,
    Resource(ResourceId),
}

impl Solver<'_> {
    /// Chooses nodes within limits, as far as possible.
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
        let mut work = best.1.work;
        for scarce in self.scarce() {
            let taken = self.taken(scarce, &best.1, packing);
            if taken <= scarce.left || best.1.cost == 0 {
                continue;
            }
            let unit = best.1.cost as f64 / taken as f64;
            let mut offer = |surcharge: f64| {
                let choice = self.choose_with(packing, scarce, unit * surcharge);
                work += choice.work;
                (self.placed_within(&choice, packing), choice)
            };
            // If the highest does not help, none will; if it does, the least that helps as much is cheaper.
            let highest = offer(HIGHEST_SURCHARGE);
            if highest.0 <= best.0 {
                continue;
            }
            let enough = SURCHARGES.into_iter().map(&mut offer).find(|(placed, _)| *placed >= highest.0);
            best = enough.unwrap_or(highest);
            if best.0 == wanted {
                break;
            }
        }
        pack::Choice { work, ..best.1 }
    }

    /// The limited resources except the price, which the kernel minimizes anyway.
    fn scarce(&self) -> Vec<Scarce> {
        let usage = self.ledger.usage();
        let counted = |pool: Option<usize>, limits: &Limits| {
            let used = &usage[pool.unwrap_or(self.snapshot.pools.len())];
            let nodes = limits.nodes.map(|most| (LimitedAmount::Nodes, i128::from(most) - i128::from(used.nodes)));
            let resources = limits.resources.iter().map(|&(resource, most)| {
                (LimitedAmount::Resource(resource), i128::from(most) - i128::from(used.capacity.get(resource)))
            });
            let all = nodes.into_iter().chain(resources);
            all.map(|(what, left)| Scarce { pool, what, left }).collect::<Vec<_>>()
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
            LimitedAmount::Nodes => 1,
            LimitedAmount::Resource(resource) => {
                self.snapshot.types[offer.instance_type.index()].capacity.get(resource).max(0)
            }
        }
    }

    /// The amount of a scarce resource that a choice uses.
    fn taken(&self, scarce: Scarce, choice: &pack::Choice, packing: &Packing) -> i128 {
        let each = |group: &pack::NodeGroup| i128::from(self.takes(scarce, group.bin, packing));
        choice.nodes.iter().map(|group| each(group) * i128::from(group.multiplicity)).sum()
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
