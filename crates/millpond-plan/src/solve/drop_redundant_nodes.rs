//! Drops planned nodes whose pods all fit on other planned nodes. Small plans only.
//!
//! A node with pods that are spread over zones stays: without it kube-scheduler would see one zone less and accept the
//! placement, but the user who asked for the spread would not.

use crate::cluster_state::NodeSlotId;
use crate::market::Rank;
use crate::model::ClassId;

use super::Solver;

/// Plans with more nodes than this are left to the kernel: the work grows with the square.
const MAX_NODES: usize = 64;

impl Solver<'_> {
    /// Does without nodes that the others make superfluous, the cheapest first.
    pub(super) fn drop_redundant_nodes(&mut self) {
        let live: Vec<usize> = (0..self.planned.len()).filter(|&node| !self.planned[node].dropped).collect();
        if live.len() < 2 || live.len() > MAX_NODES {
            return;
        }
        self.add_planned_nodes();
        let mut order = live;
        if self.ledger.is_limited() {
            // Pods in pools of lower weight could use what a pool of higher weight frees of its limits.
            let least = order.iter().map(|&node| self.rank_of(node)).min();
            order.retain(|&node| Some(self.rank_of(node)) == least);
        }
        order.sort_by_key(|&node| self.market.offer(self.planned[node].offer as usize).price);
        for node in order {
            self.try_without(node);
        }
    }

    fn try_without(&mut self, node: usize) {
        let contents = self.planned[node].contents.clone();
        let topology = self.cluster.topology();
        if contents.iter().any(|(class, _)| topology.spread_keys(*class).next().is_some()) {
            return;
        }
        let spot = self.spot_of(node);
        for &(class, count) in &contents {
            self.take_off(node, class, count);
        }
        self.cluster.close(spot);
        let mut moved: Vec<(usize, ClassId)> = Vec::new();
        if self.move_all(&contents, self.rank_of(node), &mut moved) {
            let offer = self.planned[node].offer as usize;
            self.planned[node].dropped = true;
            self.ledger.give_back(offer);
            return;
        }
        for (other, class) in moved {
            self.take_off(other, class, 1);
        }
        self.cluster.reopen(spot);
        for (class, count) in contents {
            self.put(node, class, count);
        }
    }

    /// Places pods on other planned nodes of at least some rank and records where; not all of them if it ends with
    /// false.
    fn move_all(&mut self, contents: &[(ClassId, u32)], least: Rank, moved: &mut Vec<(usize, ClassId)>) -> bool {
        let first = self.snapshot.nodes.len();
        for &(class, count) in contents {
            for _ in 0..count {
                let mut spots = (first..self.cluster.len()).map(|spot| NodeSlotId(spot as u32));
                let found = spots.find(|&spot| {
                    self.rank_of(spot.index() - first) >= least
                        && self.cluster.check(class, spot).is_ok()
                        && self.stays_flexible_at(spot, class)
                });
                let Some(spot) = found else { return false };
                self.put(spot.index() - first, class, 1);
                moved.push((spot.index() - first, class));
            }
        }
        true
    }
}
