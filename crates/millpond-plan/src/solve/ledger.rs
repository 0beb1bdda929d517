//! Remaining limits of pools and of the cluster, and remaining reserved capacity.

use crate::market::{Market, Usage};
use crate::model::{Limits, Nanos, Resources, Snapshot};
use crate::plan::Rule;

#[derive(Debug, Clone)]
pub(crate) struct Ledger<'s> {
    snapshot: &'s Snapshot,
    market: &'s Market,
    /// By pool; the last entry is the sum over all pools.
    usage: Vec<Usage>,
    /// Nodes left of reserved offerings, by type and offering, because pools share them.
    reserved: std::collections::HashMap<(u32, u32), u32>,
    limited: bool,
}

impl<'s> Ledger<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot, market: &'s Market) -> Self {
        let limited = !snapshot.limits.is_empty()
            || snapshot.pools.iter().any(|pool| !pool.limits.is_empty())
            || market.offers().iter().any(|offer| offer.left.is_some());
        Self { snapshot, market, usage: Usage::by_pool(snapshot), reserved: std::collections::HashMap::new(), limited }
    }

    /// Whether there is any limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    pub(crate) fn usage(&self) -> &[Usage] {
        &self.usage
    }

    /// Nodes left of a reserved offering.
    pub(crate) fn left_of(&self, offer: usize) -> Option<u32> {
        let offer = self.market.offer(offer);
        let left = offer.left?;
        let bought = self.reserved.get(&(offer.instance_type.0, offer.offering)).copied().unwrap_or(0);
        Some(left.saturating_sub(bought))
    }

    /// Whether one more such node is within all limits.
    pub(crate) fn allows(&self, offer: usize) -> Result<(), Rule> {
        if !self.limited {
            return Ok(());
        }
        if self.left_of(offer) == Some(0) {
            return Err(Rule::Unavailable);
        }
        let of = self.market.offer(offer);
        let capacity = &self.snapshot.types[of.instance_type.index()].capacity;
        let pool = of.pool.index();
        if !within(&self.snapshot.pools[pool].limits, &self.usage[pool], capacity, of.price) {
            return Err(Rule::PoolLimit);
        }
        if !within(&self.snapshot.limits, &self.usage[self.snapshot.pools.len()], capacity, of.price) {
            return Err(Rule::ClusterLimit);
        }
        Ok(())
    }

    /// Counts a node as bought.
    pub(crate) fn buy(&mut self, offer: usize) {
        let of = self.market.offer(offer);
        if of.left.is_some() {
            *self.reserved.entry((of.instance_type.0, of.offering)).or_default() += 1;
        }
        let capacity = &self.snapshot.types[of.instance_type.index()].capacity;
        let all = self.snapshot.pools.len();
        for index in [of.pool.index(), all] {
            self.usage[index].add(capacity, of.price);
        }
    }

    /// Reverts [`Self::buy`].
    pub(crate) fn give_back(&mut self, offer: usize) {
        let of = self.market.offer(offer);
        if let Some(bought) = self.reserved.get_mut(&(of.instance_type.0, of.offering)) {
            *bought -= 1;
        }
        let capacity = &self.snapshot.types[of.instance_type.index()].capacity;
        let all = self.snapshot.pools.len();
        for index in [of.pool.index(), all] {
            self.usage[index].take_back(capacity, of.price);
        }
    }
}

fn within(limits: &Limits, usage: &Usage, capacity: &Resources, price: Nanos) -> bool {
    let resources = limits
        .resources
        .iter()
        .all(|(resource, limit)| usage.capacity.get(*resource).saturating_add(capacity.get(*resource)) <= *limit);
    resources
        && limits.nodes.is_none_or(|limit| usage.nodes < limit)
        && limits.price.is_none_or(|limit| usage.price + u128::from(price) <= u128::from(limit))
}
