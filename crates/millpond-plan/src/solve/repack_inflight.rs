//! Packs inflight nodes that are still empty a second time.
//!
//! A node group scales by a number of replicas, so that its inflight machines have no names yet and no pod is assigned to
//! them. Filling them class by class ([`super::existing`]) can leave pods over that the first plan had placed. In that
//! case the same pods are planned again as if these nodes had not been bought; the inflight nodes then take the place of
//! new nodes of their pool, as far as there are some. The cheaper of the two plans is returned.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::market::Market;
use crate::model::{NodeId, NodeState, PoolId, Snapshot};
use crate::plan::{Outcome, Plan, Settings, Target};
use crate::topology::Topology;

use super::demand::Demand;

/// Returns the plan, or a cheaper one for the same pods that packs empty inflight nodes again.
pub(super) fn repack_if_cheaper(snapshot: &Snapshot, market: &Market, settings: &Settings, plan: Outcome) -> Outcome {
    if plan.plan.new_nodes.is_empty() || !snapshot.planned_placements.is_empty() || !snapshot.limits.is_empty() {
        return plan;
    }
    let inflight = empty_inflight_nodes(snapshot, market);
    if inflight.is_empty() {
        return plan;
    }
    let (waiting, topology) = (Demand::new(snapshot), Topology::new(snapshot));
    if !waiting.classes.iter().all(|class| topology.is_free(*class)) {
        // A node that stays empty may be a domain of a pod's topology spread.
        return plan;
    }
    let gone: HashSet<NodeId> = inflight.values().flatten().copied().collect();
    let (without, ids) = without(snapshot, &gone);
    let settings = Settings { prove: false, ..*settings };
    let again = super::solve_once(&without, market, Demand::new(&without), Topology::new(&without), &settings);
    let again = planned_on_inflight(&again, &ids, inflight);
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

/// Inflight nodes without pods, by pool: only of pools that offer nothing but this node.
fn empty_inflight_nodes(snapshot: &Snapshot, market: &Market) -> BTreeMap<PoolId, VecDeque<NodeId>> {
    let used: HashSet<NodeId> = snapshot.pods.iter().filter_map(|pod| pod.node).collect();
    let mut inflight: BTreeMap<PoolId, VecDeque<NodeId>> = BTreeMap::new();
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
            inflight.entry(pool).or_default().push_back(id);
        }
    }
    inflight
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

/// The plan with inflight nodes in the place of new nodes of the same pool.
fn planned_on_inflight(outcome: &Outcome, ids: &[NodeId], mut inflight: BTreeMap<PoolId, VecDeque<NodeId>>) -> Outcome {
    let mut new_nodes = Vec::new();
    let mut targets = Vec::with_capacity(outcome.plan.new_nodes.len());
    for node in &outcome.plan.new_nodes {
        match inflight.get_mut(&node.pool).and_then(VecDeque::pop_front) {
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
