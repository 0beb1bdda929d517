//! Why a pool can create no node at all, whatever pods request; and what its own requirements leave it.
//!
//! This is the only function that computes that reason; the command line, conditions and events all show it.

use super::funnel::{Subject, by_text};
use super::{reason, words};
use crate::market::{Market, Usage};
use crate::model::{PoolId, Snapshot, TypeId};
use crate::pack::BitSet;
use crate::plan::{PoolVerdict, Rule};
use crate::symbol::Symbol;

/// What a pool can buy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStanding {
    /// The pool.
    pub pool: PoolId,
    /// Why the pool can create no node now; `None` if it can.
    pub verdict: Option<PoolVerdict>,
    /// Number of the provider's types.
    pub types: usize,
    /// Types that are left after each of its requirements, by the name of the label.
    pub steps: Vec<(Symbol, usize)>,
    /// Types that are left after all rules.
    pub left: usize,
    /// The cheapest node that the pool can create, in words.
    pub cheapest: Option<String>,
}

/// What a pool can buy; if that is nothing, why.
pub fn explain_pool(snapshot: &Snapshot, pool: PoolId) -> PoolStanding {
    let market = Market::new(snapshot);
    let usage = Usage::by_pool(snapshot);
    let offers = market.of_pool(pool);
    let mut left: Vec<TypeId> = snapshot.pools[pool.index()].types.clone();
    let mut steps = Vec::new();
    for (key, wanted) in by_text(snapshot, snapshot.pools[pool.index()].requirements.iter()) {
        let before = left.len();
        left.retain(|of| reason::type_allows(snapshot, *of, key, wanted));
        if left.len() < before {
            steps.push((key, left.len()));
        }
    }
    let mut types: Vec<TypeId> = offers.iter().map(|offer| market.offer(offer).instance_type).collect();
    types.sort_unstable();
    types.dedup();
    let mut buyable = offers.clone();
    buyable.intersect(market.available());
    let cheapest = buyable.iter().min_by_key(|&offer| (market.offer(offer).price, offer));
    PoolStanding {
        pool,
        verdict: verdict(snapshot, &market, &usage, pool, offers, buyable.clone()),
        types: snapshot.pools[pool.index()].types.len(),
        steps,
        left: types.len(),
        cheapest: cheapest.map(|offer| in_words(snapshot, &market, offer)),
    }
}

fn in_words(snapshot: &Snapshot, market: &Market, offer: usize) -> String {
    let offer = market.offer(offer);
    let kind = &snapshot.types[offer.instance_type.index()];
    let offering = &kind.offerings[offer.offering as usize];
    let (bought, name) = (offering.capacity_type.name(), snapshot.text(kind.name));
    format!("{bought} {name} in {} for {}", snapshot.text(offering.zone), words::node_price(offer.price))
}

fn verdict(
    snapshot: &Snapshot,
    market: &Market,
    usage: &[Usage],
    pool: PoolId,
    offers: &BitSet,
    mut buyable: BitSet,
) -> Option<PoolVerdict> {
    let of = &snapshot.pools[pool.index()];
    let because = |rule, message| Some(PoolVerdict { pool, rule, message });
    if of.not_ready.is_some() {
        return because(Rule::PoolNotReady, reason::not_ready(snapshot, pool));
    }
    if offers.is_empty() {
        return because(Rule::PoolRequirements, reason::own_requirements(snapshot, pool));
    }
    if buyable.is_empty() {
        let types = words::count(offers.len(), "offering");
        return because(Rule::Unavailable, format!("out of stock: none of {types} can be had now"));
    }
    let all = snapshot.pools.len();
    let limits = [
        (Rule::PoolLimit, &of.limits, &usage[pool.index()], "the pool's limit"),
        (Rule::ClusterLimit, &snapshot.limits, &usage[all], "the cluster's limit"),
    ];
    for (rule, limits, usage, whose) in limits {
        let capacity =
            |offer: usize, resource| snapshot.types[market.offer(offer).instance_type.index()].capacity.get(resource);
        let resources = limits.resources.iter().map(|(resource, _)| Subject::Resource(*resource));
        for subject in resources.chain([Subject::Nodes, Subject::Price]) {
            let before = buyable.clone();
            let fits = |offer: &usize| match subject {
                Subject::Resource(resource) => {
                    let limit = limits.resources.iter().find(|(of, _)| *of == resource);
                    limit.is_none_or(|(_, limit)| {
                        capacity(*offer, resource) <= limit.saturating_sub(usage.capacity.get(resource))
                    })
                }
                Subject::Nodes => limits.nodes.is_none_or(|limit| usage.nodes < limit),
                _ => limits
                    .price
                    .is_none_or(|limit| usage.price + u128::from(market.offer(*offer).price) <= u128::from(limit)),
            };
            buyable = before.iter().filter(fits).collect();
            if buyable.is_empty() {
                return because(rule, reason::limit(snapshot, market, &before, subject, limits, usage, whose));
            }
        }
    }
    None
}
