//! The nearest miss: of everything on offer, what the fewest rules speak against.

use std::cmp::Reverse;

use super::funnel::{Inquiry, by_text};
use super::reason;
use super::words::{self, Round};
use crate::market::{Offer, Usage};
use crate::model::{Limits, PoolId, TypeId};
use crate::plan::Rule;
use crate::requirement::Requirements;
use crate::taint;

/// The offering that came closest to taking a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearMiss {
    /// The pool.
    pub pool: PoolId,
    /// The type.
    pub instance_type: TypeId,
    /// Index of the offering.
    pub offering: u32,
    /// The rules that it fails.
    pub misses: Vec<Miss>,
    /// The misses in one sentence.
    pub message: String,
}

/// One rule against an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// The rule.
    pub rule: Rule,
    /// Details with amounts or names: `cpu 65 asked for, it offers 63.77`.
    pub message: String,
}

/// The offer that fails the fewest rules; of equal ones the one whose rules come last, then the one with the smallest
/// shortage, then the cheapest.
pub(super) fn nearest(inquiry: &Inquiry<'_>) -> Option<NearMiss> {
    if inquiry.class().problem.is_some() {
        return None;
    }
    let ranked = (0..inquiry.market.offers().len()).map(|index| (rank(inquiry, index), index));
    let (_, index) = ranked.min()?;
    let offer = inquiry.market.offer(index);
    let misses = misses(inquiry, index);
    if misses.is_empty() {
        return None;
    }
    let what: Vec<&str> = misses.iter().map(|miss| miss.message.as_str()).collect();
    let name = reason::offer_name(inquiry, index);
    let message = format!("{name} of pool {}: {}", words::pool(inquiry.snapshot, offer.pool), what.join("; "));
    Some(NearMiss { pool: offer.pool, instance_type: offer.instance_type, offering: offer.offering, misses, message })
}

/// Rules against it, the last of them, and how much of what is asked for it lacks, in thousandths.
fn rank(inquiry: &Inquiry<'_>, index: usize) -> (usize, Reverse<Option<Rule>>, i64, u64) {
    let offer = inquiry.market.offer(index);
    let rules = failing(inquiry, index);
    // An offer of a wrong pool, or one that lacks a resource altogether, is further away than any shortage can express.
    let wrong_pool = best_term(inquiry, offer, &inquiry.class().node_terms)
        .is_some_and(|keys| keys.contains(&inquiry.snapshot.names.pool));
    let lacks = |(resource, amount): &(_, i64)| *amount > 0 && offer.free.get(*resource) <= 0;
    let strange = usize::from(wrong_pool) + inquiry.class().requests.iter().filter(lacks).count();
    let short = inquiry.class().requests.iter().filter(|(_, amount)| *amount > 0).map(|(resource, amount)| {
        let lack = i128::from(amount) - i128::from(offer.free.get(resource));
        (lack.max(0) * 1000 / i128::from(amount)) as i64
    });
    (rules.len() + strange, Reverse(rules.iter().max().copied()), short.max().unwrap_or(0), offer.price)
}

/// The rules that an offer fails.
fn failing(inquiry: &Inquiry<'_>, index: usize) -> Vec<Rule> {
    let (snapshot, class) = (inquiry.snapshot, inquiry.class());
    let offer = inquiry.market.offer(index);
    let pool = &snapshot.pools[offer.pool.index()];
    let mut rules = Vec::new();
    if pool.not_ready.is_some() || pool.replicas.is_some() {
        rules.push(Rule::PoolNotReady);
    }
    if taint::first_forbidding(&pool.taints, &class.tolerations, &snapshot.symbols).is_some() {
        rules.push(Rule::Taints);
    }
    rules.extend(
        best_term(inquiry, offer, &class.node_terms)
            .map_or(vec![Rule::NodeAffinity], |keys| vec![Rule::NodeAffinity; keys.len()]),
    );
    for terms in &class.volume_terms {
        if best_term(inquiry, offer, terms).is_none_or(|keys| !keys.is_empty()) {
            rules.push(Rule::Volumes);
        }
    }
    let lacking = |&(resource, amount): &(_, i64)| amount > 0 && amount > offer.free.get(resource);
    rules.extend(class.requests.iter().filter(lacking).map(|_| Rule::Resources));
    if !inquiry.in_stock(index) {
        rules.push(Rule::Unavailable);
    }
    rules.extend(inquiry.taken_port(index).map(|_| Rule::HostPorts));
    rules.extend(inquiry.topology.check(inquiry.class, inquiry.place(index)).err());
    let all = snapshot.pools.len();
    rules.extend(over(inquiry, index, &pool.limits, &inquiry.usage[offer.pool.index()]).map(|_| Rule::PoolLimit));
    rules.extend(over(inquiry, index, &snapshot.limits, &inquiry.usage[all]).map(|_| Rule::ClusterLimit));
    rules
}

/// The labels that an offer misses of the alternative it comes closest to; `None` if there is no alternative.
fn best_term(inquiry: &Inquiry<'_>, offer: &Offer, terms: &[Requirements]) -> Option<Vec<crate::symbol::Symbol>> {
    let missed = |term: &Requirements| -> Vec<_> {
        let fails = |(key, requirement): &(_, &crate::requirement::Requirement)| {
            let own = [inquiry.snapshot.names.hostname, inquiry.snapshot.names.node_name].contains(key);
            if own {
                !requirement.named().1
            } else {
                !requirement.allows(offer.labels.get(*key), &inquiry.snapshot.symbols)
            }
        };
        by_text(inquiry.snapshot, term.iter()).into_iter().filter(fails).map(|(key, _)| key).collect()
    };
    terms.iter().map(missed).min_by_key(Vec::len)
}

/// The first limit that an offer would break, in words.
fn over(inquiry: &Inquiry<'_>, index: usize, limits: &Limits, usage: &Usage) -> Option<String> {
    let snapshot = inquiry.snapshot;
    for &(resource, limit) in &limits.resources {
        let capacity = inquiry.capacity(index, resource);
        let rest = limit.saturating_sub(usage.capacity.get(resource));
        if capacity > 0 && capacity > rest {
            let text = |value, round| words::amount(snapshot, resource, value, round);
            let (has, rest) = (text(capacity, Round::Up), text(rest.max(0), Round::Down));
            return Some(format!("it has {} {has}, the limit leaves {rest}", snapshot.resources.name(resource)));
        }
    }
    if limits.nodes.is_some_and(|limit| usage.nodes >= limit) {
        return Some("the limit of nodes is reached".to_owned());
    }
    let price = inquiry.market.offer(index).price;
    let left = limits.price.map(|limit| u128::from(limit).saturating_sub(usage.price));
    left.filter(|left| u128::from(price) > *left)
        .map(|left| format!("it costs {}, the limit leaves {}", words::node_price(price), words::price(left)))
}

/// The rules that an offer fails, with messages.
fn misses(inquiry: &Inquiry<'_>, index: usize) -> Vec<Miss> {
    let (snapshot, class) = (inquiry.snapshot, inquiry.class());
    let offer = inquiry.market.offer(index);
    let pool = &snapshot.pools[offer.pool.index()];
    let mut misses = Vec::new();
    let mut miss = |rule, message: String| misses.push(Miss { rule, message });
    if let Some(why) = &pool.not_ready {
        miss(Rule::PoolNotReady, format!("the pool is not ready: {why}"));
    } else if pool.replicas.is_some() {
        miss(Rule::PoolNotReady, "the pool has a fixed size".to_owned());
    }
    if let Some(taint) = taint::first_forbidding(&pool.taints, &class.tolerations, &snapshot.symbols) {
        miss(Rule::Taints, format!("taint {} is not tolerated", words::taint(snapshot, taint)));
    }
    for (rule, message) in labels_missed(inquiry, offer) {
        miss(rule, message);
    }
    for (resource, amount) in class.requests.iter() {
        let free = offer.free.get(resource);
        if amount > 0 && amount > free {
            let (asked, has) = (
                words::amount(snapshot, resource, amount, Round::Up),
                words::amount(snapshot, resource, free.max(0), Round::Down),
            );
            miss(Rule::Resources, format!("{} {asked} asked for, it offers {has}", snapshot.resources.name(resource)));
        }
    }
    if !inquiry.in_stock(index) {
        miss(Rule::Unavailable, "it is out of stock".to_owned());
    }
    if let Some(port) = inquiry.taken_port(index) {
        miss(Rule::HostPorts, format!("port {} of the host is taken by a daemon", port.port));
    }
    if let Err(rule) = inquiry.topology.check(inquiry.class, inquiry.place(index)) {
        miss(rule, topology_missed(rule).to_owned());
    }
    let all = snapshot.pools.len();
    if let Some(message) = over(inquiry, index, &pool.limits, &inquiry.usage[offer.pool.index()]) {
        miss(Rule::PoolLimit, message);
    }
    if let Some(message) = over(inquiry, index, &snapshot.limits, &inquiry.usage[all]) {
        miss(Rule::ClusterLimit, message);
    }
    misses
}

fn topology_missed(rule: Rule) -> &'static str {
    match rule {
        Rule::PodAffinity => "pods that must be near are not there",
        Rule::PodAntiAffinity => "pods that must not be near are there",
        _ => "the spread allows no more pods there",
    }
}

fn labels_missed(inquiry: &Inquiry<'_>, offer: &Offer) -> Vec<(Rule, String)> {
    let (snapshot, class) = (inquiry.snapshot, inquiry.class());
    let mut missed = Vec::new();
    let groups = std::iter::once((Rule::NodeAffinity, &class.node_terms));
    let groups = groups.chain(class.volume_terms.iter().map(|terms| (Rule::Volumes, terms)));
    for (rule, terms) in groups {
        let Some(keys) = best_term(inquiry, offer, terms) else {
            missed.push((rule, "no node will do".to_owned()));
            continue;
        };
        for key in keys {
            let wanted =
                terms.iter().filter_map(|term| term.get(key)).map(|one| words::wanted(snapshot, key, one)).next();
            let has = match offer.labels.get(key) {
                Some(value) => format!("it has {}", snapshot.text(value)),
                None => "it has no such label".to_owned(),
            };
            missed.push((rule, format!("{} asked for, {has}", wanted.unwrap_or_default())));
        }
    }
    missed
}
