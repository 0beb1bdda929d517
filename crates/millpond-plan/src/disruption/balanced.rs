//! Whether a saving is worth the disruption, for pools with the policy `Balanced`: the share of the pool's cost that
//! the plan saves must be at least half the share of the pool's disruption cost that it causes.

use super::cost::{NODE_DISRUPTION, pods_cost};
use super::residents::Residents;
use crate::model::{Consolidation, NodeId, PoolId, Snapshot};

/// The share saved must be at least one part in this many of the share disturbed.
const THRESHOLD: u128 = 2;

/// Cost of each pool per hour, and the disruption cost of removing all its nodes.
#[derive(Debug)]
pub(super) struct Totals {
    pools: Vec<(u128, u128)>,
}

impl Totals {
    pub(super) fn new(snapshot: &Snapshot, residents: &Residents) -> Self {
        let mut pools = vec![(0, 0); snapshot.pools.len()];
        for (index, node) in snapshot.nodes.iter().enumerate() {
            if let Some(pool) = node.pool {
                let (price, disruption) = &mut pools[pool.index()];
                *price += u128::from(node.price.unwrap_or(0));
                *disruption += disturbance(snapshot, residents, NodeId::from(index));
            }
        }
        Self { pools }
    }

    /// Whether the saving is worth the disruption for every pool with the policy `Balanced` that loses nodes. A saving
    /// that spans several pools is split between them in proportion to the price of the nodes removed.
    pub(super) fn approve(&self, snapshot: &Snapshot, residents: &Residents, nodes: &[NodeId], savings: i128) -> bool {
        let Ok(savings) = u128::try_from(savings) else { return false };
        let price = |node: &NodeId| u128::from(snapshot.nodes[node.index()].price.unwrap_or(0));
        let whole: u128 = nodes.iter().map(price).sum();
        let mut pools: Vec<PoolId> = nodes.iter().filter_map(|node| snapshot.nodes[node.index()].pool).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.retain(|pool| snapshot.pools[pool.index()].disruption.policy == Consolidation::Balanced);
        pools.iter().all(|pool| {
            let mine = || nodes.iter().filter(|node| snapshot.nodes[node.index()].pool == Some(*pool));
            let (cost, disruption) = self.pools[pool.index()];
            let share: u128 = mine().map(price).sum();
            let disturbed: u128 = mine().map(|node| disturbance(snapshot, residents, *node)).sum();
            // savings · share / whole / cost ≥ disturbed / disruption / 2, without divisions.
            let left = product(&[savings, share, disruption, THRESHOLD]);
            let right = product(&[disturbed, cost, whole]);
            savings > 0 && left >= right
        })
    }
}

fn disturbance(snapshot: &Snapshot, residents: &Residents, node: NodeId) -> u128 {
    u128::try_from(NODE_DISRUPTION + pods_cost(snapshot, residents, node)).unwrap_or(0)
}

/// As floating-point numbers, because the product of amounts of money exceeds every integer type.
fn product(factors: &[u128]) -> f64 {
    factors.iter().map(|factor| *factor as f64).product()
}
