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
    /// Why it can make no node now; none if it can, or if it has all that it should have.
    pub verdict: Option<PoolVerdict>,
    /// Whether neither time nor nodes that go will help: something about the pool, its class or the limits must change.
    pub is_permanent: bool,
    /// Types that its provider has.
    pub types: usize,
    /// Types that are left after each of its requirements, by the name of the label.
    pub steps: Vec<(Symbol, usize)>,
    /// Types that are left after all rules.
    pub left: usize,
    /// The cheapest node that the pool can create, in words.
    pub cheapest: Option<String>,
}

impl PoolStanding {
    /// Why it can make no node now, in one sentence: what conditions, events and commands say.
    pub fn why(&self) -> Option<&str> {
        let message = self.verdict.as_ref()?.message.as_str();
        Some(message.strip_prefix(reason::NOT_READY).unwrap_or(message))
    }
}

/// What a pool can buy, and if that is nothing, why.
pub fn explain_pool(snapshot: &Snapshot, pool: PoolId) -> PoolStanding {
    standing(snapshot, &Market::new(snapshot), &Usage::by_pool(snapshot), pool)
}

/// The same for all pools, in their order.
pub fn explain_pools(snapshot: &Snapshot) -> Vec<PoolStanding> {
    let (market, usage) = (Market::new(snapshot), Usage::by_pool(snapshot));
    (0..snapshot.pools.len()).map(|pool| standing(snapshot, &market, &usage, PoolId::from(pool))).collect()
}

fn standing(snapshot: &Snapshot, market: &Market, usage: &[Usage], pool: PoolId) -> PoolStanding {
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
    let verdict = verdict(snapshot, market, usage, pool, buyable.clone());
    let is_permanent = verdict.as_ref().is_some_and(|verdict| match verdict.rule {
        Rule::PoolRequirements => true,
        Rule::PoolLimit => fixed_beyond_limit(snapshot, pool).is_some() || never_within_limits(snapshot, market, pool),
        Rule::ClusterLimit => never_within_limits(snapshot, market, pool),
        _ => false,
    });
    PoolStanding {
        pool,
        verdict,
        is_permanent,
        types: snapshot.pools[pool.index()].types.len(),
        steps,
        left: types.len(),
        cheapest: cheapest.map(|offer| in_words(snapshot, market, offer)),
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
    buyable: BitSet,
) -> Option<PoolVerdict> {
    let of = &snapshot.pools[pool.index()];
    let offers = market.of_pool(pool);
    let because = |rule, message| Some(PoolVerdict { pool, rule, message });
    if of.not_ready.is_some() {
        return because(Rule::PoolNotReady, reason::not_ready(snapshot, pool));
    }
    if offers.is_empty() {
        return because(Rule::PoolRequirements, reason::own_requirements(snapshot, pool));
    }
    if let Some((wanted, limit)) = fixed_beyond_limit(snapshot, pool) {
        let message = format!(
            "`spec.replicas: {wanted}` asks for more than the pool's limit of {} (`spec.limits.nodes`) allows",
            words::count(usize::try_from(limit).unwrap_or(usize::MAX), "node"),
        );
        return because(Rule::PoolLimit, message);
    }
    let there = usage[pool.index()].nodes;
    if of.replicas.is_some_and(|wanted| there >= wanted) {
        return None;
    }
    if buyable.is_empty() {
        let types = words::count(offers.len(), "offering");
        return because(Rule::Unavailable, format!("out of stock: none of {types} can be had now"));
    }
    beyond_limits(snapshot, market, usage, pool, buyable)
}

/// The size of a pool of fixed size, and its limit of nodes, where the limit is lower.
fn fixed_beyond_limit(snapshot: &Snapshot, pool: PoolId) -> Option<(u64, u64)> {
    let of = &snapshot.pools[pool.index()];
    of.replicas.zip(of.limits.nodes).filter(|(wanted, limit)| wanted > limit)
}

/// Whether limits are too low for the smallest node, even with no other node there.
fn never_within_limits(snapshot: &Snapshot, market: &Market, pool: PoolId) -> bool {
    let nothing = vec![Usage::default(); snapshot.pools.len() + 1];
    beyond_limits(snapshot, market, &nothing, pool, market.of_pool(pool).clone()).is_some()
}

/// The limit that leaves nothing of what could be bought.
fn beyond_limits(
    snapshot: &Snapshot,
    market: &Market,
    usage: &[Usage],
    pool: PoolId,
    mut buyable: BitSet,
) -> Option<PoolVerdict> {
    let of = &snapshot.pools[pool.index()];
    let because = |rule, message| Some(PoolVerdict { pool, rule, message });
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
