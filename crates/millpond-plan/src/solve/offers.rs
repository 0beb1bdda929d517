//! Which of several equally priced offers a node becomes.

use std::collections::HashMap;

use crate::market::{Market, Offer};
use crate::model::{ClassId, NodeState, PoolId, Snapshot};
use crate::symbol::Symbol;

/// Nodes of each pool in each zone.
#[derive(Debug, Clone, Default)]
pub(super) struct Balance {
    /// For each offer the number of its pool and zone.
    number_of: Vec<u32>,
    nodes: Vec<u64>,
}

impl Balance {
    pub(super) fn new(snapshot: &Snapshot, market: &Market) -> Self {
        let mut numbers: HashMap<(PoolId, Option<Symbol>), u32> = HashMap::new();
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

    /// Nodes of the offer's pool in its zone.
    fn of(&self, offer: usize) -> u64 {
        self.nodes[self.number_of[offer] as usize]
    }
}

/// Offers in the order in which ties between them are broken by name.
pub(super) fn sort_by_name(offers: &mut [usize], market: &Market, snapshot: &Snapshot) {
    offers.sort_by_cached_key(|&offer| name(market.offer(offer), snapshot));
}

fn name(offer: &Offer, snapshot: &Snapshot) -> impl Ord + use<> {
    let kind = &snapshot.types[offer.instance_type.index()];
    let offering = &kind.offerings[offer.offering as usize];
    let mut labels: Vec<(String, String)> = offer
        .labels
        .iter()
        .map(|(key, value)| (snapshot.text(key).to_owned(), snapshot.text(value).to_owned()))
        .collect();
    labels.sort_unstable();
    let texts = (snapshot.pools[offer.pool.index()].name.clone(), snapshot.text(kind.name).to_owned());
    (texts, snapshot.text(offering.zone).to_owned(), offering.capacity_type, labels)
}

/// The best of offers in the order of names: what the pods like, then the emptiest zone, then the name.
pub(super) fn choose(
    offers: &[usize],
    contents: &[(ClassId, u32)],
    balance: &Balance,
    market: &Market,
    snapshot: &Snapshot,
) -> Option<usize> {
    let wishes = contents.iter().any(|(class, _)| !snapshot.classes[class.index()].node_preferences.is_empty());
    let soft = |offer: usize| {
        let pool = &snapshot.pools[market.offer(offer).pool.index()];
        pool.taints.iter().any(|taint| !taint.effect.forbids())
    };
    let liked = |offer: usize| -> i64 {
        if !wishes && !soft(offer) {
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
