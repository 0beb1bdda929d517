//! Nodes that are on their way with nothing on them yet, bought once more on paper.
//!
//! Who bought them packed them well, and has told nobody what was meant for which: machines of a node group have no names
//! before they are there. Filling them class by class leaves pods over that did fit ([`super::existing`]). Where that
//! happens, the same pods are planned for as if these nodes had not been bought, by the same steps as the first time; of
//! what that buys, as much as possible is what is on its way already. The cheaper of the two plans holds.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::market::Market;
use crate::model::{NodeId, NodeState, PoolId, Snapshot};
use crate::plan::{Outcome, Plan, Settings, Target};
use crate::topology::Topology;

use super::demand::Demand;

/// The plan, or a cheaper one for the same pods that packs nodes on their way anew.
pub(super) fn better(snapshot: &Snapshot, market: &Market, settings: &Settings, plan: Outcome) -> Outcome {
    if plan.plan.new_nodes.is_empty() || !snapshot.meant.is_empty() || !snapshot.limits.is_empty() {
        return plan;
    }
    let blank = blank(snapshot, market);
    if blank.is_empty() {
        return plan;
    }
    let (waiting, topology) = (Demand::new(snapshot), Topology::new(snapshot));
    if !waiting.classes.iter().all(|class| topology.is_free(*class)) {
        // A node that is left empty may be a domain that somebody's spread has to reckon with.
        return plan;
    }
    let gone: HashSet<NodeId> = blank.values().flatten().copied().collect();
    let (without, ids) = without(snapshot, &gone);
    let settings = Settings { prove: false, ..*settings };
    let again = super::solve_once(&without, market, Demand::new(&without), Topology::new(&without), &settings);
    let again = on_their_way(&again, &ids, blank);
    let price = |plan: &Plan| plan.new_nodes.iter().map(|node| u128::from(node.price)).sum::<u128>();
    let (first, second) = (price(&plan.plan), price(&again.plan));
    let same_pods =
        || again.report.unplaced.iter().map(|(pod, _)| pod).eq(plan.report.unplaced.iter().map(|(pod, _)| pod));
    if second >= first || !same_pods() {
        return plan;
    }
    let mut report = plan.report;
    report.cost_after = report.cost_after - first + second;
    report.nodes_after = report.nodes_after - plan.plan.new_nodes.len() + again.plan.new_nodes.len();
    report.relaxed = again.report.relaxed;
    report.work += again.report.work;
    Outcome { plan: Plan { revision: plan.plan.revision, ..again.plan }, report }
}

/// Nodes on their way that are all that can be bought of their pool, with nothing on them, by pool.
fn blank(snapshot: &Snapshot, market: &Market) -> BTreeMap<PoolId, VecDeque<NodeId>> {
    let used: HashSet<NodeId> = snapshot.pods.iter().filter_map(|pod| pod.node).collect();
    let mut blank: BTreeMap<PoolId, VecDeque<NodeId>> = BTreeMap::new();
    for (index, node) in snapshot.nodes.iter().enumerate() {
        let id = NodeId::from(index);
        let Some(pool) = node.pool.filter(|_| node.state == NodeState::Starting && !used.contains(&id)) else {
            continue;
        };
        let mut offers = market.of_pool(pool).iter().map(|offer| market.offer(offer));
        let (Some(only), None) = (offers.next(), offers.next()) else { continue };
        let of = &snapshot.types[only.instance_type.index()];
        let labels = node.labels.iter().filter(|(key, _)| *key != snapshot.names.hostname);
        let is_new = crate::market::usable(snapshot, index)
            && of.allocatable == node.allocatable
            && snapshot.pools[pool.index()].taints == node.taints
            && labels.eq(only.labels.iter().filter(|(key, _)| *key != snapshot.names.hostname));
        if is_new {
            blank.entry(pool).or_default().push_back(id);
        }
    }
    blank
}

/// The snapshot without some nodes that nothing is on, and what the others were numbered. Pods stay where they stand:
/// the same pod has the same number in both.
fn without(snapshot: &Snapshot, gone: &HashSet<NodeId>) -> (Snapshot, Vec<NodeId>) {
    let kept = |id: &NodeId| !gone.contains(id);
    let ids: Vec<NodeId> = (0..snapshot.nodes.len()).map(NodeId::from).filter(kept).collect();
    let mut number = vec![None; snapshot.nodes.len()];
    for (new, old) in ids.iter().enumerate() {
        number[old.index()] = Some(NodeId::from(new));
    }
    let mut without = snapshot.clone();
    without.nodes = ids.iter().map(|id| snapshot.nodes[id.index()].clone()).collect();
    for pod in &mut without.pods {
        pod.node = pod.node.and_then(|node| number[node.index()]);
    }
    (without, ids)
}

/// A plan in which what is on its way already takes the place of what would be bought.
fn on_their_way(outcome: &Outcome, ids: &[NodeId], mut blank: BTreeMap<PoolId, VecDeque<NodeId>>) -> Outcome {
    let mut new_nodes = Vec::new();
    let mut targets = Vec::with_capacity(outcome.plan.new_nodes.len());
    for node in &outcome.plan.new_nodes {
        match blank.get_mut(&node.pool).and_then(VecDeque::pop_front) {
            Some(there) => targets.push(Target::Existing(there)),
            None => {
                targets.push(Target::New(new_nodes.len() as u32));
                new_nodes.push(node.clone());
            }
        }
    }
    let target = |target: Target| match target {
        Target::Existing(node) => Target::Existing(ids[node.index()]),
        Target::New(node) => targets[node as usize],
    };
    let placements = outcome.plan.placements.iter().map(|&(pod, at)| (pod, target(at))).collect();
    Outcome { plan: Plan { new_nodes, placements, ..outcome.plan.clone() }, report: outcome.report.clone() }
}
