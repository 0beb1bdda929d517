//! Chooses among equally priced offers for a node.

use std::cmp::Ordering;
use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::market::{Market, Offer};
use crate::model::{ClassId, NodeState, PoolId, Snapshot};
use crate::symbol::Symbol;

/// Number of nodes of each pool in each zone.
#[derive(Debug, Clone, Default)]
pub(super) struct Balance {
    /// For each offer the index of its pool and zone in `nodes`.
    number_of: Vec<u32>,
    nodes: Vec<u64>,
}

impl Balance {
    pub(super) fn new(snapshot: &Snapshot, market: &Market) -> Self {
        let mut numbers: HashMap<(PoolId, Option<Symbol>), u32, FixedState> = HashMap::default();
        let mut number = |pool: PoolId, zone: Option<Symbol>| {
            let next = numbers.len() as u32;
            *numbers.entry((pool, zone)).or_insert(next)
        };
        let zone = |offer: &Offer| offer.labels.get(snapshot.names.zone);
        let number_of: Vec<u32> = market.offers().iter().map(|offer| number(offer.pool, zone(offer))).collect();
        let staying = snapshot.nodes.iter().filter(|node| node.state != NodeState::Leaving);
        let there: Vec<u32> = staying.filter_map(|node| Some(number(node.pool?, node.zone))).collect();
        let mut nodes = vec![0; numbers.len()];
        for number in there {
            nodes[number as usize] += 1;
        }
        Self { number_of, nodes }
    }

    pub(super) fn add(&mut self, offer: usize) {
        self.nodes[self.number_of[offer] as usize] += 1;
    }

    /// Number of nodes of the offer's pool in its zone.
    fn of(&self, offer: usize) -> u64 {
        self.nodes[self.number_of[offer] as usize]
    }
}

/// Offers in the order in which ties between them are broken by name.
pub(super) fn sort_by_name(offers: &mut [usize], market: &Market, snapshot: &Snapshot) {
    offers.sort_by(|&a, &b| by_name(market.offer(a), market.offer(b), snapshot));
}

/// Compares by pool, type, zone and capacity type; labels are compared only if all these are equal.
fn by_name(a: &Offer, b: &Offer, snapshot: &Snapshot) -> Ordering {
    let kind = |offer: &Offer| &snapshot.types[offer.instance_type.index()];
    let offering = |offer: &Offer| &kind(offer).offerings[offer.offering as usize];
    let pool = |offer: &Offer| &snapshot.pools[offer.pool.index()].name;
    pool(a)
        .cmp(pool(b))
        .then_with(|| snapshot.text(kind(a).name).cmp(snapshot.text(kind(b).name)))
        .then_with(|| snapshot.text(offering(a).zone).cmp(snapshot.text(offering(b).zone)))
        .then_with(|| offering(a).capacity_type.cmp(&offering(b).capacity_type))
        .then_with(|| labels(a, snapshot).cmp(&labels(b, snapshot)))
}

fn labels<'s>(offer: &Offer, snapshot: &'s Snapshot) -> Vec<(&'s str, &'s str)> {
    let mut labels: Vec<_> =
        offer.labels.iter().map(|(key, value)| (snapshot.text(key), snapshot.text(value))).collect();
    labels.sort_unstable();
    labels
}

/// The best of offers in the order of names: what the pods like, then the emptiest zone, then the name.
pub(super) fn choose(
    offers: &[usize],
    contents: &[(ClassId, u32)],
    balance: &Balance,
    market: &Market,
    snapshot: &Snapshot,
) -> Option<usize> {
    let has_preferences =
        contents.iter().any(|(class, _)| !snapshot.classes[class.index()].node_preferences.is_empty());
    let soft = |offer: usize| {
        let pool = &snapshot.pools[market.offer(offer).pool.index()];
        pool.taints.iter().any(|taint| !taint.effect.forbids())
    };
    let liked = |offer: usize| -> i64 {
        if !has_preferences && !soft(offer) {
            return 0;
        }
        let each = contents
            .iter()
            .map(|&(class, count)| market.liking(&snapshot.classes[class.index()], offer, snapshot) * i64::from(count));
        each.sum()
    };
    // The first of equals is taken, so names need not be looked at here.
    offers.iter().copied().min_by_key(|&offer| (std::cmp::Reverse(liked(offer)), balance.of(offer)))
}
