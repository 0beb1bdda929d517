//! Gardener Scaling Advisor's rules: one node per pass, by value per dollar.
//!
//! Its strategy `single-node-multi-sim` with the score `least-cost`, as documented:
//!
//! 1. Pools of the highest priority (their weight) first, in them templates of the highest priority; lower ones only
//!    for pods that those cannot take.
//! 2. In each pass every offer of the group gets one node in a simulation of its own, which kube-scheduler fills:
//!    pods by priority, then age, then name.
//! 3. The node whose pods are worth most per dollar is bought: 9 for a core, 1 for a GiB of memory, 20 for a GPU.
//!    Of equal scores the larger node wins (cores, then memory), then pool, type, zone and capacity type by name.
//! 4. The next pass starts from there, until a pass takes no pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::plan_builder::PlanBuilder;
use crate::cluster_state::{ClusterState, NodeSlotId};
use crate::market::{Market, Offer, Rank};
use crate::model::{CPU, ClassId, MEMORY, PodId, Resources, Snapshot};
use crate::plan::{Outcome, Settings};

/// Nodes that simulations may leave closed on their cluster before it is made anew.
const MAX_SCRAPS: usize = 20_000;

/// Plans by Scaling Advisor's rules.
pub fn plan(snapshot: &Snapshot, _: &Settings) -> Outcome {
    let market = Market::new(snapshot);
    let mut builder = PlanBuilder::new(snapshot, &market);
    let mut pods = builder.pending();
    pods.sort_by_key(|pod| {
        let of = &snapshot.pods[pod.index()];
        (Reverse(snapshot.classes[of.class.index()].priority), of.created, *pod)
    });
    let mut waiting = builder.fill(pods);
    for rank in market.ranks() {
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting = pass(&mut builder, rank, waiting);
            if waiting.len() == before {
                break;
            }
        }
    }
    builder.finish()
}

/// Buys the best node of a priority group if any takes a pod; returns the pods that are left.
fn pass(builder: &mut PlanBuilder<'_>, rank: Rank, waiting: Vec<PodId>) -> Vec<PodId> {
    let queue = Queue::new(builder, &waiting);
    let of_group = |offer: &usize| builder.market.offer(*offer).rank == rank && builder.may_buy(*offer);
    let candidates: Vec<usize> = (0..builder.market.offers().len()).filter(of_group).collect();
    let candidates = distinct(builder, &queue, candidates);
    let mut scratch = builder.cluster.clone();
    let mut best: Option<(Score<'_>, usize)> = None;
    let mut work = 0;
    for offer in candidates {
        if scratch.len() > builder.cluster.len() + MAX_SCRAPS {
            scratch = builder.cluster.clone();
        }
        let taken = simulate(&mut scratch, &queue, offer);
        work += taken.len() as u64 + 1;
        if taken.is_empty() {
            continue;
        }
        let score = Score::new(builder.snapshot, builder.market.offer(offer), &taken);
        if best.as_ref().is_none_or(|(known, _)| score.is_better(known)) {
            best = Some((score, offer));
        }
    }
    drop(scratch);
    builder.work += work;
    let Some((_, offer)) = best else { return waiting };
    let spot = builder.buy(offer);
    let left: Vec<PodId> = waiting.into_iter().filter(|pod| !builder.try_place(*pod, spot)).collect();
    // A new node can make room elsewhere: it is a new domain for spreads, and its pods draw others near.
    let (bound, free): (Vec<PodId>, Vec<PodId>) =
        left.into_iter().partition(|pod| !builder.cluster.topology().is_free(builder.class_of(*pod)));
    let mut left = builder.fill(bound);
    left.extend(free);
    left.sort_by_key(|pod| queue.position[pod]);
    left
}

/// The pending pods, grouped by class.
struct Queue {
    /// For each class, the positions of its pods in the queue.
    classes: Vec<(ClassId, Vec<u32>)>,
    position: HashMap<PodId, u32>,
    /// Whether rules between pods matter: then zones of one type differ.
    bound: bool,
}

impl Queue {
    fn new(builder: &PlanBuilder<'_>, waiting: &[PodId]) -> Self {
        let mut classes: BTreeMap<ClassId, Vec<u32>> = BTreeMap::new();
        for (position, pod) in waiting.iter().enumerate() {
            classes.entry(builder.class_of(*pod)).or_default().push(position as u32);
        }
        let bound = classes.keys().any(|class| !builder.cluster.topology().is_free(*class));
        let position = waiting.iter().enumerate().map(|(position, pod)| (*pod, position as u32)).collect();
        Self { classes: classes.into_iter().collect(), position, bound }
    }
}

/// Offers that can differ in their score: where no rule between pods is about zones, the cheapest of each type.
fn distinct(builder: &mut PlanBuilder<'_>, queue: &Queue, candidates: Vec<usize>) -> Vec<usize> {
    if queue.bound {
        return candidates;
    }
    let mut best: BTreeMap<(u32, u32, Vec<bool>), usize> = BTreeMap::new();
    for offer in candidates {
        let suits =
            queue.classes.iter().map(|(class, _)| builder.cluster.suiting_offers(*class).contains(offer)).collect();
        let of = builder.market.offer(offer);
        let entry = best.entry((of.pool.0, of.instance_type.0, suits)).or_insert(offer);
        let rank =
            |index: usize| (builder.market.offer(index).price, names(builder.snapshot, builder.market.offer(index)));
        if rank(offer) < rank(*entry) {
            *entry = offer;
        }
    }
    best.into_values().collect()
}

/// Pool, type, zone and capacity type by name.
fn names<'s>(snapshot: &'s Snapshot, offer: &Offer) -> [&'s str; 4] {
    let kind = &snapshot.types[offer.instance_type.index()];
    let offering = &kind.offerings[offer.offering as usize];
    let pool = &snapshot.pools[offer.pool.index()].name;
    [pool, snapshot.text(kind.name), snapshot.text(offering.zone), offering.capacity_type.name()]
}

/// The pods that one node of an offer would take, by class. Leaves the cluster state unchanged except for a closed
/// node.
fn simulate(cluster: &mut ClusterState<'_>, queue: &Queue, offer: usize) -> Vec<(ClassId, u32)> {
    let hopeful: Vec<usize> = (0..queue.classes.len())
        .filter(|&index| {
            let class = queue.classes[index].0;
            let requests = &cluster.snapshot().classes[class.index()].requests;
            let free = &cluster.market().offer(offer).free;
            free.first_lacking(requests).is_none() && cluster.suiting_offers(class).contains(offer)
        })
        .collect();
    if hopeful.is_empty() {
        return Vec::new();
    }
    let spot = cluster.open(offer);
    let mut next: BinaryHeap<Reverse<(u32, usize, usize)>> =
        hopeful.into_iter().map(|index| Reverse((queue.classes[index].1[0], index, 0))).collect();
    let mut taken: BTreeMap<ClassId, u32> = BTreeMap::new();
    while let Some(Reverse((_, index, nth))) = next.pop() {
        let (class, positions) = &queue.classes[index];
        // A class that the node refuses is refused for the rest of the pass.
        if cluster.check(*class, spot).is_ok() {
            cluster.place(*class, spot, 1);
            *taken.entry(*class).or_default() += 1;
            if let Some(position) = positions.get(nth + 1) {
                next.push(Reverse((*position, index, nth + 1)));
            }
        }
    }
    undo(cluster, spot, &taken);
    taken.into_iter().collect()
}

fn undo(cluster: &mut ClusterState<'_>, spot: NodeSlotId, taken: &BTreeMap<ClassId, u32>) {
    for (class, count) in taken {
        cluster.remove(*class, spot, *count);
    }
    cluster.close(spot);
}

/// The score of a node.
struct Score<'s> {
    /// Value of its pods, where a core counts 9,000.
    value: u128,
    price: u128,
    size: (i64, i64),
    names: [&'s str; 4],
}

impl<'s> Score<'s> {
    fn new(snapshot: &'s Snapshot, offer: &Offer, taken: &[(ClassId, u32)]) -> Self {
        let mut sum = Resources::new();
        for (class, count) in taken {
            sum.add_times(&snapshot.classes[class.index()].requests, i64::from(*count));
        }
        let size = (offer.free.get(CPU), offer.free.get(MEMORY));
        Self { value: worth(snapshot, &sum), price: u128::from(offer.price), size, names: names(snapshot, offer) }
    }

    /// More value per dollar; without a price infinitely much.
    fn is_better(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.value * other.price, other.value * self.price);
        mine.cmp(&theirs).then(self.size.cmp(&other.size)).then_with(|| other.names.cmp(&self.names)).is_gt()
    }
}

/// 9 for a core, 1 for a GiB, 20 for a GPU, in units of 1/1000 · 1/2³⁰ so that nothing is rounded.
fn worth(snapshot: &Snapshot, sum: &Resources) -> u128 {
    let amount = |value: i64| u128::from(value.max(0).unsigned_abs());
    let gpu = snapshot.resources.find("nvidia.com/gpu").map_or(0, |gpu| amount(sum.get(gpu)));
    let gib = 1_u128 << 30;
    9 * amount(sum.get(CPU)) * gib + amount(sum.get(MEMORY)) * 1000 + 20 * 1000 * gpu * gib
}
