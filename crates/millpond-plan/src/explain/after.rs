//! The cluster state after a plan.

use std::collections::HashMap;

use crate::cluster_state::{ClusterState, NodeSlotId};
use crate::market::{Market, Usage};
use crate::model::{Labels, PoolId, Snapshot, TypeId};
use crate::plan::{Outcome, Target};

/// The cluster with a plan on it, and what pools use then.
pub(super) struct After<'s> {
    pub(super) cluster: ClusterState<'s>,
    pub(super) usage: Vec<Usage>,
}

impl<'s> After<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, market: &'s Market, outcome: &Outcome) -> Self {
        let mut cluster = ClusterState::new(snapshot, market);
        let mut usage = Usage::by_pool(snapshot);
        let offers: HashMap<(PoolId, TypeId, u32, &Labels), usize> = market
            .offers()
            .iter()
            .enumerate()
            .map(|(index, offer)| ((offer.pool, offer.instance_type, offer.offering, &*offer.labels), index))
            .collect();
        let mut spots = Vec::with_capacity(outcome.plan.new_nodes.len());
        for node in &outcome.plan.new_nodes {
            let found = offers.get(&(node.pool, node.instance_type, node.offering, &*node.labels));
            spots.push(found.map(|&offer| cluster.open(offer)));
            let capacity = &snapshot.types[node.instance_type.index()].capacity;
            for index in [node.pool.index(), snapshot.pools.len()] {
                usage[index].add(capacity, node.price);
            }
        }
        for &(pod, target) in &outcome.plan.placements {
            let spot = match target {
                Target::Existing(node) => Some(NodeSlotId(node.0)),
                Target::New(number) => spots[number as usize],
            };
            if let Some(spot) = spot {
                cluster.place(snapshot.pods[pod.index()].class, spot, 1);
            }
        }
        Self { cluster, usage }
    }
}
