//! `minValues`: a pool may ask that a node could be of several types (or families, or zones), so that the provider
//! has a choice when one is out of stock.
//!
//! A node keeps that promise if enough different values of the label are found among the pool's offers that could
//! hold the very pods that are on it.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster_state::NodeSlotId;
use crate::market::Market;
use crate::model::{ClassId, PoolId, Resources, Snapshot};
use crate::pack::BitSet;
use crate::symbol::Symbol;

use super::Solver;

/// The `minValues` of each pool.
#[derive(Debug, Clone)]
pub(super) struct MinValues {
    by_pool: BTreeMap<PoolId, Vec<(Symbol, u32)>>,
}

impl MinValues {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut by_pool = BTreeMap::new();
        for (index, pool) in snapshot.pools.iter().enumerate() {
            let wanted: Vec<(Symbol, u32)> =
                pool.requirements.iter().filter_map(|(key, one)| Some((key, one.min_values()?))).collect();
            if !wanted.is_empty() {
                by_pool.insert(PoolId::from(index), wanted);
            }
        }
        Self { by_pool }
    }

    /// Whether no pool has `minValues`.
    pub(super) fn is_empty(&self) -> bool {
        self.by_pool.is_empty()
    }

    /// Leaves out offers that, once full, too few others could stand in for.
    pub(super) fn keep_flexible(&self, offers: &mut BitSet, market: &Market) {
        for (&pool, wanted) in &self.by_pool {
            let mut of_pool = offers.clone();
            of_pool.intersect(market.of_pool(pool));
            let mut by_capacity: BTreeMap<u32, bool> = BTreeMap::new();
            let mut inflexible = BitSet::new();
            for offer in of_pool.iter() {
                let flexible = *by_capacity.entry(market.offer(offer).capacity).or_insert_with(|| {
                    let room = &market.offer(offer).free;
                    wanted.iter().all(|&(key, least)| values(&of_pool, key, room, market) >= least as usize)
                });
                if !flexible {
                    inflexible.insert(offer);
                }
            }
            offers.subtract(&inflexible);
        }
    }
}

/// Different values of a label among offers with at least such room.
fn values(offers: &BitSet, key: Symbol, room: &Resources, market: &Market) -> usize {
    let large = offers.iter().map(|offer| market.offer(offer)).filter(|offer| offer.free.first_lacking(room).is_none());
    large.filter_map(|offer| offer.labels.get(key)).collect::<BTreeSet<Symbol>>().len()
}

impl Solver<'_> {
    /// Whether enough offers could stand in for a planned node with one more pod of a class.
    pub(super) fn stays_flexible(&mut self, planned: usize, class: ClassId) -> bool {
        let mut contents = self.planned[planned].contents.clone();
        contents.push((class, 1));
        self.is_flexible(self.planned[planned].offer as usize, &contents)
    }

    /// The same for a node in the cluster state; existing nodes have no `minValues` to keep.
    pub(super) fn stays_flexible_at(&mut self, spot: NodeSlotId, class: ClassId) -> bool {
        match spot.index().checked_sub(self.snapshot.nodes.len()) {
            Some(planned) => self.stays_flexible(planned, class),
            None => true,
        }
    }

    /// Whether enough offers could stand in for a node with these pods.
    pub(super) fn is_flexible(&mut self, offer: usize, contents: &[(ClassId, u32)]) -> bool {
        let pool = self.market.offer(offer).pool;
        let Some(wanted) = self.min_values.by_pool.get(&pool).cloned() else { return true };
        let mut others = self.on_sale.clone();
        others.intersect(self.market.of_pool(pool));
        let mut used = Resources::new();
        for &(class, count) in contents {
            used.add_times(&self.snapshot.classes[class.index()].requests, i64::from(count));
            others.intersect(self.cluster.suiting_offers(class));
        }
        wanted.iter().all(|&(key, least)| values(&others, key, &used, self.market) >= least as usize)
    }

    /// Takes everything off a planned node for which too few offers could stand in; its pods are placed one by one.
    pub(super) fn empty_if_inflexible(&mut self, planned: usize) {
        let contents = self.planned[planned].contents.clone();
        if contents.is_empty() || self.is_flexible(self.planned[planned].offer as usize, &contents) {
            return;
        }
        self.add_planned_nodes();
        for (class, count) in contents {
            self.take_off(planned, class, count);
        }
    }
}
