//! Buys a small set of nodes that holds pods in any scheduling order, at a low price.
//!
//! Pods that are scheduled in an arbitrary order fill every node with about the same mixture, and a node is full when its
//! first resource is. Each offer therefore has a share: the part of the whole mixture that it holds. Sets of nodes whose
//! shares add up to a little more than one are candidates; [`SchedulingOrders`] tells which of them hold the pods, and the
//! cheapest of those is bought. The packing kernel chooses complementary pods for each node, so most of the sets that it
//! finds do not hold the pods in every order.
//!
//! Applies only to pods that may use the same offers and that no rule keeps together or apart.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::purchase;
use super::scheduling_order::SchedulingOrders;
use super::state::State;
use crate::cluster_state::NodeSlotId;
use crate::model::{ClassId, PodId, ResourceId};
use crate::pack::{Amounts, BitSet};

/// Limit on the nodes of a set. Every node wastes some capacity when it is full, so larger sets seldom pay.
const MAX_NODES: usize = 4;
/// Shares are counted in parts of this number.
const PARTS: i64 = 1_000_000;
/// Limit on the incomplete sets that the search visits: enough to cover the families of one provider's types, and a few
/// milliseconds at most.
const MAX_VISITS: usize = 4_000;
/// How many of the cheapest offers that complete a set are tried: the cheapest one often leaves too little slack.
const LAST_ONES: usize = 3;
/// Limit on the sets that scheduling orders are tried on, the cheapest first.
const MAX_SETS: usize = 64;
/// Limit on the pods placed in all these tries together, since their cost grows with the number of pods.
const MAX_DEALT: usize = 32_000;

/// Offers with equal capacity and price.
struct Shape {
    free: Amounts,
    price: u64,
    share: i64,
    offers: Vec<usize>,
}

/// Buys the cheapest small set of nodes below a price that holds these pods in any scheduling order. If there is none,
/// the caller undoes the changes.
pub(super) fn buy(state: &mut State<'_>, on_sale: &BitSet, pods: &[PodId], most: u128) -> Option<Vec<NodeSlotId>> {
    let topology = state.cluster.topology();
    let ruled =
        |class: ClassId| !topology.is_free(class) || !state.snapshot.classes[class.index()].host_ports.is_empty();
    if pods.iter().any(|pod| ruled(state.class(*pod))) {
        return None;
    }
    let offers = purchase::common_offers(state, on_sale, pods, most)?;
    let dealing = dealing(state, pods);
    let shapes = shapes(state, &offers, &dealing);
    let sets = Search::new(&shapes, most).sets(PARTS + largest_share(&dealing));
    let tries = (MAX_DEALT / dealing.pods().max(1)).clamp(1, MAX_SETS);
    for set in sets.into_iter().take(tries) {
        let nodes: Vec<Amounts> = set.iter().map(|&shape| shapes[shape].free).collect();
        if dealing.fits(&nodes) {
            let mark = state.mark();
            if let Some(bought) = open(state, pods, &dealing, set.iter().map(|&shape| &shapes[shape]).collect()) {
                return Some(bought);
            }
            state.undo(mark);
        }
    }
    None
}

/// The scheduling orders of these pods.
pub(super) fn dealing(state: &State<'_>, pods: &[PodId]) -> SchedulingOrders {
    SchedulingOrders::new(
        by_class(state, pods).iter().map(|(class, pods)| (&state.snapshot.classes[class.index()].requests, pods.len())),
    )
}

/// Pods by class, the classes sorted by request and number of pods, so that the numbering of classes and pods has no
/// influence on the plan's cost.
fn by_class(state: &State<'_>, pods: &[PodId]) -> Vec<(ClassId, Vec<PodId>)> {
    let mut classes: BTreeMap<ClassId, Vec<PodId>> = BTreeMap::new();
    pods.iter().for_each(|pod| classes.entry(state.class(*pod)).or_default().push(*pod));
    let mut classes: Vec<(ClassId, Vec<PodId>)> = classes.into_iter().collect();
    classes.iter_mut().for_each(|(_, pods)| pods.sort_unstable());
    let requests = |class: ClassId| -> Vec<(ResourceId, i64)> {
        state.snapshot.classes[class.index()].requests.iter().filter(|(_, amount)| *amount > 0).collect()
    };
    classes.sort_by_cached_key(|(class, pods)| (requests(*class), pods.len(), pods.first().copied()));
    classes
}

/// The largest pod's share of the sum of all requests, by the resource in which that share is largest.
fn largest_share(dealing: &SchedulingOrders) -> i64 {
    let parts = dealing.total().into_iter().zip(dealing.largest());
    parts.map(|(total, largest)| share(largest, total)).max().unwrap_or(0)
}

fn share(amount: i64, total: i64) -> i64 {
    i64::try_from(i128::from(amount) * i128::from(PARTS) / i128::from(total.max(1))).unwrap_or(i64::MAX)
}

/// The distinct shapes of the offers, the largest share first, without shapes that another one dominates.
fn shapes(state: &State<'_>, offers: &BitSet, dealing: &SchedulingOrders) -> Vec<Shape> {
    let mut alike: BTreeMap<(Amounts, u64), Vec<usize>> = BTreeMap::new();
    for offer in offers.iter() {
        let of = state.market.offer(offer);
        alike.entry((dealing.free(&of.free), of.price)).or_default().push(offer);
    }
    let totals = dealing.total();
    let shape = |((free, price), offers): ((Amounts, u64), Vec<usize>)| {
        let share = totals.iter().zip(free).map(|(total, free)| share(free, *total)).min().unwrap_or(0);
        Shape { free, price, share, offers }
    };
    let mut shapes: Vec<Shape> = alike.into_iter().map(shape).filter(|shape| shape.share > 0).collect();
    // Cheaper shapes come first, so that a dominated shape comes after the one that dominates it.
    shapes.sort_by_key(|shape| (shape.price, Reverse(shape.share), Reverse(shape.free)));
    let mut best: Vec<Shape> = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let beats = |known: &Shape| {
            let endless = known.offers.iter().any(|&offer| state.market.offer(offer).left.is_none());
            endless && known.free.iter().zip(&shape.free).all(|(known, free)| known >= free)
        };
        if !best.iter().any(beats) {
            best.push(shape);
        }
    }
    best.sort_by_key(|shape| (Reverse(shape.share), shape.price));
    best
}

/// Opens the nodes of a set and puts the pods on them.
fn open(
    state: &mut State<'_>,
    pods: &[PodId],
    dealing: &SchedulingOrders,
    set: Vec<&Shape>,
) -> Option<Vec<NodeSlotId>> {
    let nodes: Vec<Amounts> = set.iter().map(|shape| shape.free).collect();
    let dealt = dealing.deal(&nodes)?;
    let mut classes: Vec<Vec<PodId>> = by_class(state, pods).into_iter().map(|(_, pods)| pods).collect();
    let mut bought = Vec::with_capacity(set.len());
    for (shape, counts) in set.into_iter().zip(dealt) {
        let here = classes.iter_mut().zip(counts).flat_map(|(pods, count)| pods.split_off(pods.len() - count));
        let here: Vec<PodId> = here.collect();
        let spot = purchase::pick(state, &shape.offers, &here).map(|offer| state.open(offer))?;
        if !state.put_all(&here, spot) {
            return None;
        }
        bought.push(spot);
    }
    bought.retain(|spot| !state.give_back_unused(*spot));
    Some(bought)
}

/// The search for sets of nodes.
struct Search<'s> {
    shapes: &'s [Shape],
    /// Shapes in the order of their price.
    by_price: Vec<usize>,
    /// The lowest price of a whole share.
    rate: u128,
    most: u128,
    visits: usize,
    found: Vec<(u128, Vec<usize>)>,
}

impl<'s> Search<'s> {
    fn new(shapes: &'s [Shape], most: u128) -> Self {
        let mut by_price: Vec<usize> = (0..shapes.len()).collect();
        by_price.sort_by_key(|&shape| (shapes[shape].price, shape));
        let rate = shapes.iter().map(|shape| u128::from(shape.price) * PARTS as u128 / shape.share.max(1) as u128);
        Self { rate: rate.min().unwrap_or(0), shapes, by_price, most, visits: 0, found: Vec::new() }
    }

    /// Sets of at least two nodes whose shares add up to `needed`, the cheapest first; of equal cost, the smaller
    /// first.
    fn sets(mut self, needed: i64) -> Vec<Vec<usize>> {
        self.extend(&mut Vec::new(), needed, 0);
        self.found
            .sort_by(|(cost, set), (other_cost, other)| (cost, set.len(), set).cmp(&(other_cost, other.len(), other)));
        self.found.into_iter().map(|(_, set)| set).collect()
    }

    /// Completes a set, or adds a node whose share is no larger than that of the last one.
    fn extend(&mut self, chosen: &mut Vec<usize>, lacking: i64, cost: u128) {
        self.visits += 1;
        let first = chosen.last().copied().unwrap_or(0);
        if !chosen.is_empty() {
            self.complete(chosen, first, lacking, cost);
        }
        let left = (MAX_NODES - chosen.len()) as i64;
        if left < 2 {
            return;
        }
        for next in first..self.shapes.len() {
            let Shape { share, price, .. } = self.shapes[next];
            if share.saturating_mul(left) < lacking || self.visits >= MAX_VISITS {
                return;
            }
            let rest = (lacking - share).max(0);
            let cost = cost + u128::from(price);
            if share < lacking && cost + self.rate * rest as u128 / (PARTS as u128) < self.most {
                chosen.push(next);
                self.extend(chosen, rest, cost);
                chosen.pop();
            }
        }
    }

    fn complete(&mut self, chosen: &[usize], first: usize, lacking: i64, cost: u128) {
        let completing = |shape: &&usize| **shape >= first && self.shapes[**shape].share >= lacking;
        for &last in self.by_price.iter().filter(completing).take(LAST_ONES) {
            let cost = cost + u128::from(self.shapes[last].price);
            if cost < self.most {
                self.found.push((cost, chosen.iter().copied().chain([last]).collect()));
            }
        }
    }
}
