//! The order in which nodes are tried: by rank, lowest first; among equals, a node of the zone that has most nodes of
//! the pool.

use std::collections::{BTreeMap, HashMap};

use crate::model::{NodeId, NodeState, PoolId, Snapshot};
use crate::symbol::Symbol;

type ZoneOf = (PoolId, Option<Symbol>);

/// How many nodes each pool has in each zone.
#[derive(Debug, Clone, Default)]
pub(super) struct Zones {
    nodes: HashMap<ZoneOf, u64>,
}

impl Zones {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut zones = Self::default();
        for node in snapshot.nodes.iter().filter(|node| node.state != NodeState::Leaving) {
            if let Some(pool) = node.pool {
                *zones.nodes.entry((pool, node.zone)).or_default() += 1;
            }
        }
        zones
    }

    pub(super) fn remove(&mut self, pool: PoolId, zone: Option<Symbol>) {
        if let Some(nodes) = self.nodes.get_mut(&(pool, zone)) {
            *nodes = nodes.saturating_sub(1);
        }
    }

    pub(super) fn count(&self, pool: PoolId, zone: Option<Symbol>) -> u64 {
        self.nodes.get(&(pool, zone)).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, pool: PoolId, zone: Option<Symbol>) {
        *self.nodes.entry((pool, zone)).or_default() += 1;
    }
}

/// Nodes that have not been tried yet.
#[derive(Debug)]
pub(super) struct Queue {
    /// By rank, then by pool and zone: the nodes in reverse order of their names, so that the first is popped.
    ranks: BTreeMap<u128, BTreeMap<(PoolId, String), (Option<Symbol>, Vec<NodeId>)>>,
}

impl Queue {
    /// Builds the queue from nodes with their ranks; the lowest rank comes first.
    pub(super) fn new(snapshot: &Snapshot, nodes: impl IntoIterator<Item = (u128, NodeId)>) -> Self {
        let mut queue = Self { ranks: BTreeMap::new() };
        for (rank, node) in nodes {
            let of = &snapshot.nodes[node.index()];
            let Some(pool) = of.pool else { continue };
            let zone = of.zone.map_or_else(String::new, |zone| snapshot.text(zone).to_owned());
            let zones = queue.ranks.entry(rank).or_default();
            zones.entry((pool, zone)).or_insert_with(|| (of.zone, Vec::new())).1.push(node);
        }
        for (_, nodes) in queue.ranks.values_mut().flat_map(BTreeMap::values_mut) {
            nodes.sort_by(|one, other| snapshot.nodes[other.index()].name.cmp(&snapshot.nodes[one.index()].name));
        }
        queue
    }

    /// The next node, given how many nodes each zone has now.
    pub(super) fn next(&mut self, zones: &Zones) -> Option<NodeId> {
        let mut rank = self.ranks.first_entry()?;
        // Among equals `max_by_key` returns the last, so the reversed order yields the first by name.
        let fullest = rank.get().iter().rev().max_by_key(|((pool, _), (zone, _))| zones.count(*pool, *zone));
        let key = fullest.map(|(key, _)| key.clone())?;
        let (_, nodes) = rank.get_mut().get_mut(&key)?;
        let node = nodes.pop();
        if nodes.is_empty() {
            rank.get_mut().remove(&key);
        }
        if rank.get().is_empty() {
            rank.remove();
        }
        node
    }

    /// All nodes in order, as if each were removed when its turn comes.
    pub(super) fn drain(mut self, snapshot: &Snapshot, mut zones: Zones) -> Vec<NodeId> {
        let mut all = Vec::new();
        while let Some(node) = self.next(&zones) {
            let of = &snapshot.nodes[node.index()];
            if let Some(pool) = of.pool {
                zones.remove(pool, of.zone);
            }
            all.push(node);
        }
        all
    }
}
