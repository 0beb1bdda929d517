//! Places pods that packing left over, one at a time: on nodes with room, or on nodes of their own.

use crate::cluster_state::NodeSlotId;
use crate::market::Rank;
use crate::model::{ClassId, Node, NodeState, PoolId};
use crate::pack::BitSet;
use crate::plan::Rule;

use super::{Planned, Solver, offers};

/// Rounds over what is left: a pod that had to be near another may have a place once that has one. Each round but
/// the last places something.
const MAX_ROUNDS: usize = 8;

/// The nodes that a leftover pod may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Planned nodes of the domain assigned to it; topology rules about domains are met.
    Dealt,
    /// Any node; every rule is checked.
    Everywhere,
}

impl Solver<'_> {
    /// Places leftover pods.
    pub(super) fn place_leftover_pods(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let waiting = self.waiting();
            if waiting.is_empty() {
                return;
            }
            self.add_planned_nodes();
            let mut placed = false;
            for class in waiting {
                placed |= self.place_class(class);
            }
            if !placed {
                return;
            }
        }
    }

    fn place_class(&mut self, class: ClassId) -> bool {
        let before = self.left(class);
        let mut offers = self.on_sale.clone();
        offers.intersect(self.cluster.suiting_offers(class));
        self.place_some(class, before, &offers, Reach::Everywhere);
        self.left(class) < before
    }

    /// Places pods of a class on planned nodes of some offers.
    pub(super) fn place_among(&mut self, class: ClassId, count: u32, offers: &BitSet) {
        self.place_some(class, count.min(self.left(class)), offers, Reach::Dealt);
    }

    /// Places up to `count` pods on nodes from index `from` on, and on new nodes of some offers.
    fn place_some(&mut self, class: ClassId, count: u32, offers: &BitSet, reach: Reach) {
        let wanted = self.left(class) - count;
        let first = if reach == Reach::Dealt { self.snapshot.nodes.len() } else { 0 };
        let mut from = first;
        while self.left(class) > wanted {
            if let Some(spot) = self.first_place(class, from, offers, reach) {
                self.put_at(class, spot);
                // Nodes before this one were in the way of an equal pod just now.
                from = if self.cluster.topology().is_free(class) { spot.index() } else { first };
                continue;
            }
            from = first;
            let Some(offer) = self.best_offer(class, offers, reach) else { break };
            let node = self.add_planned(offer);
            let spot = self.spot_of(node);
            if self.allows(class, spot, reach).is_err() || !self.stays_flexible(node, class) {
                self.give_back(node);
                break;
            }
            self.put(node, class, 1);
        }
    }

    /// The first node that takes a pod: an existing one, or a planned one of these offers.
    fn first_place(&mut self, class: ClassId, from: usize, offers: &BitSet, reach: Reach) -> Option<NodeSlotId> {
        let mut spots = (from..self.cluster.len()).map(|spot| NodeSlotId(spot as u32));
        spots.find(|&spot| {
            self.cluster.offer(spot).is_none_or(|offer| offers.contains(offer))
                && self.allows(class, spot, reach).is_ok()
                && self.stays_flexible_at(spot, class)
        })
    }

    fn allows(&mut self, class: ClassId, spot: NodeSlotId, reach: Reach) -> Result<(), Rule> {
        match reach {
            Reach::Everywhere => self.cluster.check(class, spot),
            Reach::Dealt => self.cluster.check_host(class, spot),
        }
    }

    pub(super) fn put_at(&mut self, class: ClassId, spot: NodeSlotId) {
        match spot.index().checked_sub(self.snapshot.nodes.len()) {
            Some(planned) => self.put(planned, class, 1),
            None => self.fill(class, spot, 1),
        }
    }

    /// The offer on which the pods that are left cost least, within limits and rules, among those of the
    /// greatest rank that there are.
    fn best_offer(&mut self, class: ClassId, offers: &BitSet, reach: Reach) -> Option<usize> {
        let mut candidates = offers.clone();
        self.min_values.keep_flexible(&mut candidates, self.market);
        let requests = &self.snapshot.classes[class.index()].requests;
        let topology = self.cluster.topology();
        let alone = topology.is_alone_on_host(class) || !self.snapshot.classes[class.index()].host_ports.is_empty();
        let most = if alone { 1 } else { topology.spread_per_host(class) };
        let cap = u64::from(most.min(self.left(class)));
        let next = self.cluster.len() as u32;
        let mut best: Option<(std::cmp::Reverse<Rank>, u128, Vec<usize>)> = None;
        for offer in candidates.iter() {
            let of = self.market.offer(offer);
            let Some(room) = of.free.times(requests).map(|room| room.min(cap)).filter(|room| *room > 0) else {
                continue;
            };
            let rank = std::cmp::Reverse(of.rank);
            // Price per pod, in millionths of a nano-dollar per hour.
            let rate = u128::from(of.price) * 1_000_000 / u128::from(room);
            let known = best.as_ref().map(|(rank, rate, _)| (*rank, *rate));
            if known.is_some_and(|known| (rank, rate) > known)
                || self.ledger.allows(offer).is_err()
                || reach == Reach::Everywhere
                    && self.cluster.topology().check(class, self.cluster.place_on(offer, next)).is_err()
            {
                continue;
            }
            match &mut best {
                Some((known_rank, known_rate, offers)) if (*known_rank, *known_rate) == (rank, rate) => {
                    offers.push(offer);
                }
                _ => best = Some((rank, rate, vec![offer])),
            }
        }
        let (_, _, mut offers) = best?;
        offers::sort_by_name(&mut offers, self.market, self.snapshot);
        offers::choose(&offers, &[(class, 1)], &self.balance, self.market, self.snapshot)
    }

    /// Removes pods whose spread or affinity was broken by a later placement, and looks for other nodes.
    pub(super) fn mend(&mut self) {
        let fragile = |class: &ClassId| self.cluster.topology().has_fragile_rules(*class);
        if !self.demand.classes.iter().any(fragile) {
            return;
        }
        self.add_planned_nodes();
        for _ in 0..MAX_ROUNDS {
            if !self.take_off_broken() {
                return;
            }
            self.place_leftover_pods();
        }
        // Pods whose rules are still broken stay unplaced.
        while self.take_off_broken() {}
    }

    fn take_off_broken(&mut self) -> bool {
        let mut broken = false;
        for planned in 0..self.planned.len() {
            let emptied = !self.planned[planned].contents.is_empty();
            for (class, count) in self.planned[planned].contents.clone() {
                for _ in 0..count {
                    let place = self.cluster.place_of(self.spot_of(planned));
                    if self.cluster.topology().holds(class, place).is_ok() {
                        break;
                    }
                    self.take_off(planned, class, 1);
                    broken = true;
                }
            }
            if emptied && self.planned[planned].contents.is_empty() {
                self.give_back(planned);
            }
        }
        for index in 0..self.filled.len() {
            let (class, spot, count) = self.filled[index];
            for _ in 0..count {
                if self.cluster.topology().holds(class, self.cluster.place_of(spot)).is_ok() {
                    break;
                }
                self.filled[index].2 -= 1;
                self.demand.release(class, 1);
                self.cluster.remove(class, spot, 1);
                broken = true;
            }
        }
        self.filled.retain(|(_, _, count)| *count > 0);
        broken
    }

    /// Pools that must not go below a number of nodes get the cheapest that they may have.
    pub(super) fn fill_up_pools(&mut self) {
        for pool in (0..self.snapshot.pools.len()).map(PoolId::from) {
            let wanted = self.snapshot.pools[pool.index()].min_nodes;
            for _ in self.nodes_of(pool)..wanted {
                let Some(offer) = self.cheapest_of(pool) else { break };
                self.add_planned(offer);
            }
        }
    }

    /// Gives back nodes that were bought to fill up a pool, where others that came later do as well.
    pub(super) fn give_back_spare(&mut self) -> bool {
        let mut any = false;
        for planned in (0..self.planned.len()).rev() {
            let Planned { offer, contents, dropped } = &self.planned[planned];
            let pool = self.market.offer(*offer as usize).pool;
            let least = self.snapshot.pools[pool.index()].min_nodes;
            if contents.is_empty() && !dropped && self.nodes_of(pool) > least {
                self.give_back(planned);
                any = true;
            }
        }
        any
    }

    /// Number of nodes of a pool after the plan.
    fn nodes_of(&self, pool: PoolId) -> u64 {
        let stays = |node: &&Node| node.pool == Some(pool) && node.state != NodeState::Leaving;
        let staying = self.snapshot.nodes.iter().filter(stays).count();
        let bought = |node: &&Planned| !node.dropped && self.market.offer(node.offer as usize).pool == pool;
        (staying + self.planned.iter().filter(bought).count()) as u64
    }

    fn cheapest_of(&mut self, pool: PoolId) -> Option<usize> {
        let mut among = self.market.of_pool(pool).clone();
        among.intersect(&self.on_sale);
        let mut offers: Vec<usize> = among.iter().filter(|&offer| self.ledger.allows(offer).is_ok()).collect();
        offers.retain(|&offer| self.is_flexible(offer, &[]));
        let least = offers.iter().map(|&offer| self.market.offer(offer).price).min()?;
        offers.retain(|&offer| self.market.offer(offer).price == least);
        offers::sort_by_name(&mut offers, self.market, self.snapshot);
        offers::choose(&offers, &[], &self.balance, self.market, self.snapshot)
    }
}
