//! Nodes while they are being chosen, and the last step to a [`Solution`](super::Solution).

use std::collections::BTreeMap;

use super::instance::{Dims, Instance, MAX_DIMS};
use super::model::NodeGroup;

/// Nodes of one bin with the same content; rows and bins are the instance's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nodes {
    pub(super) bin: usize,
    pub(super) content: Vec<(usize, u64)>,
    pub(super) times: u64,
}

/// How many more nodes of each bin can be had; `u64::MAX` for no limit.
#[derive(Clone)]
pub(super) struct Stock(Vec<u64>);

impl Stock {
    pub(super) fn new(instance: &Instance) -> Self {
        Self(instance.bins.iter().map(|bin| bin.stock).collect())
    }

    /// Only the bins with unlimited stock.
    pub(super) fn endless_only(instance: &Instance) -> Self {
        Self(instance.bins.iter().map(|bin| if bin.stock == u64::MAX { u64::MAX } else { 0 }).collect())
    }

    pub(super) fn left(&self, bin: usize) -> u64 {
        self.0[bin]
    }

    pub(super) fn take(&mut self, bin: usize, nodes: u64) {
        if self.0[bin] != u64::MAX {
            self.0[bin] -= nodes;
        }
    }

    pub(super) fn give_back(&mut self, bin: usize, nodes: u64) {
        if self.0[bin] != u64::MAX {
            self.0[bin] += nodes;
        }
    }
}

/// The sum of the requests of a content.
pub(super) fn usage(instance: &Instance, content: &[(usize, u64)]) -> Dims<i64> {
    let mut sum = [0_i64; MAX_DIMS];
    for &(row, count) in content {
        let request = &instance.rows[row].request;
        for dim in 0..instance.dims {
            if request[dim] > 0 {
                sum[dim] = sum[dim].saturating_add(request[dim].saturating_mul(count as i64));
            }
        }
    }
    sum
}

/// Bins by price, then larger first: the first that holds a content is the best for it.
pub(super) fn bins_by_price(instance: &Instance) -> Vec<usize> {
    let mut order: Vec<usize> = (0..instance.bins.len()).collect();
    order.sort_by_key(|&bin| (instance.bins[bin].price, bin));
    order
}

/// The cheapest bin in stock that holds the content.
pub(super) fn cheapest(
    instance: &Instance,
    by_price: &[usize],
    stock: &Stock,
    content: &[(usize, u64)],
    nodes: u64,
) -> Option<usize> {
    let used = usage(instance, content);
    let holds = |&bin: &usize| {
        let offered = &instance.bins[bin];
        super::instance::within(&used, &offered.capacity, instance.dims)
            && stock.left(bin) >= nodes
            && content.iter().all(|&(row, _)| offered.classes.contains(instance.rows[row].class))
    };
    by_price.iter().copied().find(holds)
}

/// Moves every node to the cheapest bin that holds it.
pub(super) fn right_size(instance: &Instance, by_price: &[usize], stock: &mut Stock, plan: &mut [Nodes]) {
    for nodes in plan {
        let better = cheapest(instance, by_price, stock, &nodes.content, nodes.times);
        if let Some(bin) = better
            && instance.bins[bin].price < instance.bins[nodes.bin].price
        {
            stock.give_back(nodes.bin, nodes.times);
            stock.take(bin, nodes.times);
            nodes.bin = bin;
        }
    }
}

pub(super) fn cost(instance: &Instance, plan: &[Nodes]) -> u128 {
    let cost = |nodes: &Nodes| u128::from(instance.bins[nodes.bin].price) * u128::from(nodes.times);
    plan.iter().map(cost).fold(0, u128::saturating_add)
}

/// Merges equal nodes, in canonical order.
pub(super) fn merge(plan: Vec<Nodes>) -> Vec<Nodes> {
    let mut merged: BTreeMap<(usize, Vec<(usize, u64)>), u64> = BTreeMap::new();
    for nodes in plan {
        if nodes.times > 0 {
            *merged.entry((nodes.bin, nodes.content)).or_default() += nodes.times;
        }
    }
    merged.into_iter().map(|((bin, content), times)| Nodes { bin, content, times }).collect()
}

/// The nodes in the terms of the problem.
pub(super) fn to_groups(instance: &Instance, plan: &[Nodes]) -> Vec<NodeGroup> {
    plan.iter()
        .map(|nodes| NodeGroup {
            bin: instance.bins[nodes.bin].origin,
            multiplicity: nodes.times,
            contents: nodes.content.iter().map(|&(row, count)| (instance.rows[row].origin, count)).collect(),
        })
        .collect()
}
