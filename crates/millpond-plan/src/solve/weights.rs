//! Pools of greater weight are filled as far as their limits go before the next ones are used.
//!
//! The kernel knows no limits: it chooses nodes for all pods at once, and what a limit forbids of them is not bought.
//! Three steps make sure that no pod goes to a pool of lesser weight while a greater one still has capacity for it:
//!
//! 1. Only offers of which a limit allows at least one node are given to the kernel. What is left over afterwards is
//!    packed again into what limits still allow, until nothing is bought any more ([`Solver::buy_of_rank`]).
//! 2. Pods that are left over then fill up the bought nodes one by one ([`Solver::top_up`]): these were packed with
//!    others in mind.
//! 3. Nodes that turned out to be superfluous may have made limits available again: pods of lesser ranks move up
//!    ([`Solver::lift`]).
//!
//! Rules between pods about zones were settled by dealing: a part of a class moves within its domain. Without limits
//! all this costs a look at what is left over.

use crate::market::Rank;
use crate::model::{CPU, ClassId, MEMORY};
use crate::pack::BitSet;

use super::Solver;
use super::buy_nodes::Surcharges;
use super::domains::{OfferSets, Part};

/// Limit on the passes in which pods left over are packed again within one rank. Every pass buys at least one node and
/// leaves less of a limit than one node of the kernel's choice needs, so a few passes come close to the limit; placing
/// single pods uses up the remainder.
const MAX_PASSES: usize = 4;

impl Solver<'_> {
    /// Buys nodes of one rank for classes, as far as limits go.
    pub(super) fn buy_of_rank(&mut self, classes: &[ClassId], sets: &mut OfferSets, among: &BitSet) {
        for pass in 0..MAX_PASSES {
            let waiting = self.still_waiting(classes);
            let allowed = self.within_limits(among);
            if waiting.is_empty() || allowed.is_empty() {
                return;
            }
            if waiting.iter().any(|&class| !self.cluster.topology().is_free(class)) {
                self.add_planned_nodes();
            }
            let bought = self.planned.len();
            let parts = self.deal(&waiting, sets);
            let surcharges = if pass == 0 { Surcharges::Try } else { Surcharges::Skip };
            self.buy_among(&parts, sets, &allowed, surcharges);
            if !self.ledger.is_limited() || self.planned.len() == bought {
                return;
            }
        }
    }

    /// Places what is left of classes on nodes of one rank, one by one: on planned ones, then on new ones within limits.
    pub(super) fn top_up(&mut self, classes: &[ClassId], sets: &mut OfferSets, among: &BitSet) {
        let waiting = self.still_waiting(classes);
        if waiting.is_empty() {
            return;
        }
        let mut parts = self.deal(&waiting, sets);
        parts.retain(|part| part.count > 0 && self.holds_any(part, sets, among));
        if parts.is_empty() {
            return;
        }
        self.add_planned_nodes();
        let roomy = self.with_room_for(&parts, among);
        for part in parts {
            let mut offers = sets.get(part.offers).clone();
            offers.intersect(among);
            self.fill_roomy(part, &offers, &roomy);
            let allowed = self.within_limits(&offers);
            let left = part.count.min(self.left(part.class));
            if left > 0 && !allowed.is_empty() {
                self.place_among(part.class, left, &allowed);
            }
        }
    }

    /// Moves pods from nodes of lesser ranks to nodes of greater ones that limits allow by now. Pods with rules about
    /// other pods stay.
    pub(super) fn lift(&mut self) {
        if !self.ledger.is_limited() {
            return;
        }
        let ranks = self.ranks();
        let Some((_, greater)) = ranks.split_last() else { return };
        for among in greater {
            let rank = among.iter().next().map(|offer| self.market.offer(offer).rank);
            if let Some(rank) = rank.filter(|_| !self.within_limits(among).is_empty()) {
                self.lift_to(rank, among);
            }
        }
    }

    fn lift_to(&mut self, rank: Rank, among: &BitSet) {
        for node in 0..self.planned.len() {
            if self.planned[node].dropped || self.rank_of(node) >= rank {
                continue;
            }
            for (class, count) in self.planned[node].contents.clone() {
                if self.cluster.topology().is_free(class) {
                    self.lift_class(node, class, count, among);
                }
            }
            if self.planned[node].contents.is_empty() {
                self.give_back(node);
            }
        }
    }

    /// Moves pods of a class from a planned node to nodes of these offers, as many as find a place.
    fn lift_class(&mut self, node: usize, class: ClassId, count: u32, among: &BitSet) {
        let mut offers = self.within_limits(among);
        offers.intersect(self.cluster.suiting_offers(class));
        self.min_values.keep_flexible(&mut offers, self.market);
        let requests = &self.snapshot.classes[class.index()].requests;
        if !offers.iter().any(|offer| self.market.offer(offer).free.first_lacking(requests).is_none()) {
            return;
        }
        self.add_planned_nodes();
        let others = self.left(class);
        self.take_off(node, class, count);
        self.place_among(class, count, &offers);
        let back = self.left(class) - others;
        if back > 0 {
            self.put(node, class, back);
        }
    }

    fn still_waiting(&self, classes: &[ClassId]) -> Vec<ClassId> {
        classes.iter().copied().filter(|&class| self.left(class) > 0).collect()
    }

    /// Offers of which limits allow at least one more node.
    fn within_limits(&self, offers: &BitSet) -> BitSet {
        if !self.ledger.is_limited() {
            return offers.clone();
        }
        offers.iter().filter(|&offer| self.ledger.allows(offer).is_ok()).collect()
    }

    /// Whether a node of some offer could hold a pod of the part.
    fn holds_any(&self, part: &Part, sets: &OfferSets, among: &BitSet) -> bool {
        let requests = &self.snapshot.classes[part.class.index()].requests;
        let mut offers = sets.get(part.offers).iter().filter(|&offer| among.contains(offer));
        offers.any(|offer| self.market.offer(offer).free.first_lacking(requests).is_none())
    }

    /// Planned nodes of some offers with enough cores and memory left for the least of the parts. Nodes are packed
    /// tightly, so that few are looked at pod by pod.
    fn with_room_for(&self, parts: &[Part], among: &BitSet) -> Vec<usize> {
        let least = |resource| {
            let asked = parts.iter().map(|part| self.snapshot.classes[part.class.index()].requests.get(resource));
            asked.min().unwrap_or(0)
        };
        let (cpu, memory) = (least(CPU), least(MEMORY));
        let roomy = |&node: &usize| {
            let planned = &self.planned[node];
            let free = self.cluster.free(self.spot_of(node));
            !planned.dropped
                && among.contains(planned.offer as usize)
                && free.get(CPU) >= cpu
                && free.get(MEMORY) >= memory
        };
        (0..self.planned.len()).filter(roomy).collect()
    }

    fn fill_roomy(&mut self, part: Part, offers: &BitSet, roomy: &[usize]) {
        let mut left = part.count.min(self.left(part.class));
        for &node in roomy {
            if left == 0 {
                return;
            }
            if offers.contains(self.planned[node].offer as usize) {
                left -= self.put_checked(node, part.class, left);
            }
        }
    }
}
