//! What any plan that places the same pods costs at least.
//!
//! The packing problem is stated anew with fewer rules: zones are free, limits are off, only what a node can hold
//! counts, nodes that are there are free of charge but each there only once. Pods may go to the pools that this
//! plan used for their class, or to those of greater weight; where limits could push them elsewhere, to any. Whatever the kernel proves about that problem holds
//! for every plan by the same rules.

use crate::board::SpotId;
use crate::model::{ClassId, Snapshot};
use crate::pack::{self, BitSet};
use crate::plan::BoundProof;

use super::domains::{OfferSets, Part};
use super::rows::{Purpose, amounts};
use super::{Planned, Solver};

impl Solver<'_> {
    /// A lower bound on the price of what is bought, with its proof.
    pub(super) fn prove_bound(&mut self, free_room: &[(SpotId, crate::model::Resources)]) -> Option<BoundProof> {
        let mut sets = OfferSets::default();
        let parts = self.placed_parts(&mut sets);
        let lowest = lowest_weights(self.snapshot, self.market, &self.planned, self.snapshot.classes.len());
        let among = self.on_sale.clone();
        let mut packing = self.packing(&parts, &sets, &among, Purpose::Bound);
        if packing.problem.rows.is_empty() {
            return None;
        }
        if !self.ledger.is_limited() {
            self.drop_lower_weights(&mut packing, &lowest);
        }
        self.add_free_room(&mut packing, free_room);
        let counts = packing.problem.rows.iter().map(|row| row.count).collect();
        let bound = pack::bound(&packing.problem, counts, self.settings.budget);
        Some(BoundProof { problem: packing.problem, certificate: bound.certificate, nodes: Vec::new() })
    }

    /// Classes with the number of their pods that have a place.
    fn placed_parts(&mut self, sets: &mut OfferSets) -> Vec<Part> {
        let classes = self.demand.classes.clone();
        let placed = |solver: &Self, class| solver.demand.count(class) - solver.left(class);
        let mut parts = Vec::with_capacity(classes.len());
        for class in classes {
            let count = placed(self, class);
            if count > 0 {
                parts.push(Part { class, offers: self.base_offers(class, sets), count });
            }
        }
        parts
    }

    /// Bins of pools below the least weight that a row's classes used are none of its bins.
    fn drop_lower_weights(&self, packing: &mut super::rows::Packing, lowest: &[Option<i32>]) {
        let weights: Vec<i32> = packing
            .offers
            .iter()
            .map(|offers| self.snapshot.pools[self.market.offer(offers[0]).pool.index()].weight)
            .collect();
        if weights.windows(2).all(|pair| pair[0] == pair[1]) {
            return;
        }
        for (row, members) in packing.problem.rows.iter_mut().zip(&packing.members) {
            // A class that bought nothing could have bought anywhere.
            let used = members.iter().map(|(class, _)| lowest[class.index()]);
            let Some(least) = used.collect::<Option<Vec<i32>>>().and_then(|used| used.into_iter().min()) else {
                continue;
            };
            let kept: BitSet = row.bins.iter().filter(|&bin| weights[bin] >= least).collect();
            row.bins = kept;
        }
    }

    fn add_free_room(&mut self, packing: &mut super::rows::Packing, free_room: &[(SpotId, crate::model::Resources)]) {
        let dimensions: Vec<_> = packing.dimensions.clone();
        for (spot, free) in free_room {
            let Some(capacity) = amounts(free, &dimensions, false) else { continue };
            let bin = packing.problem.bins.len();
            let mut used = false;
            for (row, members) in packing.problem.rows.iter_mut().zip(&packing.members) {
                if members.iter().any(|(class, _)| self.board.suits(*class, *spot)) {
                    row.bins.insert(bin);
                    used = true;
                }
            }
            if used {
                packing.problem.bins.push(pack::Bin { capacity, price: 0, max_nodes: Some(1) });
            }
        }
    }
}

/// For each class the least weight of the pools that it bought in.
fn lowest_weights(
    snapshot: &Snapshot,
    market: &crate::market::Market,
    planned: &[Planned],
    classes: usize,
) -> Vec<Option<i32>> {
    let mut lowest: Vec<Option<i32>> = vec![None; classes];
    for node in planned.iter().filter(|node| !node.dropped) {
        let weight = snapshot.pools[market.offer(node.offer as usize).pool.index()].weight;
        for (class, _) in &node.contents {
            let known: &mut Option<i32> = &mut lowest[ClassId::index(*class)];
            *known = Some(known.map_or(weight, |least| least.min(weight)));
        }
    }
    lowest
}
