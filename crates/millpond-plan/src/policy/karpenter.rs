//! Karpenter's rules (v1.14): a queue, claims that stay open, and a type at the very end.
//!
//! 1. Pods in the order of cpu, memory (both largest first), creation and name.
//! 2. Each goes to the first place that takes it: existing nodes (initialized first, then by name), then claims of
//!    this round (fewest pods first, then oldest), then a new claim of the first pool by weight (equal weights: name
//!    descending).
//! 3. A claim keeps every type and offering that still fits; each pod narrows them. A spread or an affinity picks
//!    one domain when the pod joins. Limits are kept pessimistically: a claim counts as its largest type.
//! 4. Preferences of a pod are required at first, and given up one by one if it finds no place ([`preferences`]).
//! 5. A claim becomes its cheapest offering; ties by name of the type, then reserved before spot before on-demand,
//!    then zone.
//!
//! A claim whose zone stays open counts nowhere until it has one. So kube-scheduler may refuse some pods of the
//! round; as in a cluster, those are planned again with the nodes of the round as they are.
//!
//! Karpenter leaves ties between zones to the order of a map; here the zone with the fewest pods wins, then the
//! first by name.

mod preferences;
mod round;

use std::cmp::Reverse;

use super::plan_builder::PlanBuilder;
use crate::cluster_state::NodeSlotId;
use crate::market::Market;
use crate::model::{CPU, CapacityType, MEMORY, PodId, Snapshot};
use crate::pack::BitSet;
use crate::plan::{Outcome, Settings};
use preferences::RelaxationLevels;
use round::{Home, Round, Solution};

/// Plans by Karpenter's rules.
pub fn plan(snapshot: &Snapshot, _: &Settings) -> Outcome {
    let relaxation = RelaxationLevels::new(snapshot);
    let market = Market::new(&relaxation.snapshot);
    let mut builder = PlanBuilder::new(&relaxation.snapshot, &market);
    let mut queue = queue(&builder);
    // Each round but the last places a pod, so that the number of pods bounds the rounds.
    while !queue.is_empty() {
        let solution = Round::new(&mut builder, &relaxation).solve(&queue);
        let left = carry_out(&mut builder, &solution);
        if left.len() == queue.len() {
            break;
        }
        let mut waiting = BitSet::new();
        left.iter().for_each(|pod| waiting.insert(pod.index()));
        queue.retain(|pod| waiting.contains(pod.index()));
    }
    builder.finish()
}

/// The pods in the order of scheduling.
fn queue(builder: &PlanBuilder<'_>) -> Vec<PodId> {
    let mut pods = builder.pending();
    pods.sort_by_key(|pod| {
        let requests = &builder.snapshot.class_of(*pod).requests;
        let created = builder.snapshot.pods[pod.index()].created;
        (Reverse(requests.get(CPU)), Reverse(requests.get(MEMORY)), created, *pod)
    });
    pods
}

/// Launches the claims of a round and places pods as kube-scheduler would; returns those that fit nowhere.
fn carry_out(builder: &mut PlanBuilder<'_>, solution: &Solution) -> Vec<PodId> {
    let spots: Vec<Option<NodeSlotId>> =
        solution.claims.iter().map(|offers| cheapest(builder, offers).map(|offer| builder.buy(offer))).collect();
    let mut left = solution.failed.clone();
    let mut waiting: Vec<(PodId, NodeSlotId)> = Vec::new();
    for &(pod, home) in &solution.placed {
        let spot = match home {
            Home::Node(spot) => Some(spot),
            Home::Claim(claim) => spots[claim],
        };
        match spot {
            Some(spot) => waiting.push((pod, spot)),
            None => left.push(pod),
        }
    }
    // A pod that has to be near another may come before it in the queue.
    loop {
        let before = waiting.len();
        waiting.retain(|&(pod, spot)| !builder.try_place(pod, spot));
        if waiting.is_empty() || waiting.len() == before {
            break;
        }
    }
    left.extend(waiting.into_iter().map(|(pod, _)| pod));
    left
}

/// The cheapest available offer.
fn cheapest(builder: &PlanBuilder<'_>, offers: &BitSet) -> Option<usize> {
    let snapshot = builder.snapshot;
    let rank = |offer: &usize| {
        let of = builder.market.offer(*offer);
        let kind = &snapshot.types[of.instance_type.index()];
        let offering = &kind.offerings[of.offering as usize];
        let how: CapacityType = offering.capacity_type;
        (of.price, snapshot.text(kind.name), how, snapshot.text(offering.zone), *offer)
    };
    offers.iter().filter(|offer| builder.may_buy(*offer)).min_by_key(rank)
}
