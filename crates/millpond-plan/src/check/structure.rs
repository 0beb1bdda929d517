//! Whether all indexes of the plan are valid, and whether it places every pod that needs a place exactly once.

use super::planned_cluster::PlannedCluster;
use super::violation::Violation;
use crate::model::{PodId, Snapshot};
use crate::plan::{Outcome, Target};

/// Indexes that are out of range.
pub(super) fn indices(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Violation> {
    let (plan, report) = (&outcome.plan, &outcome.report);
    let mut found = Vec::new();
    let mut look = |what: &'static str, index: usize, count: usize| {
        if index >= count {
            found.push(Violation::Index { what, index, count });
        }
    };
    for node in &plan.new_nodes {
        look("pool", node.pool.index(), snapshot.pools.len());
        look("type", node.instance_type.index(), snapshot.types.len());
        if let Some(instance_type) = snapshot.types.get(node.instance_type.index()) {
            look("offering", node.offering as usize, instance_type.offerings.len());
        }
    }
    for removal in &plan.removals {
        removal.nodes.iter().for_each(|node| look("node", node.index(), snapshot.nodes.len()));
        removal.replacements.iter().for_each(|new| look("new node", *new as usize, plan.new_nodes.len()));
    }
    for (pod, target) in &plan.placements {
        look("pod", pod.index(), snapshot.pods.len());
        match target {
            Target::Existing(node) => look("node", node.index(), snapshot.nodes.len()),
            Target::New(new) => look("new node", *new as usize, plan.new_nodes.len()),
        }
    }
    for (pod, verdict) in &report.unplaced {
        look("pod", pod.index(), snapshot.pods.len());
        look("verdict", *verdict as usize, report.verdicts.len());
    }
    for node in report.proofs.iter().flat_map(|proof| &proof.nodes) {
        look("node", node.index(), snapshot.nodes.len());
    }
    for pool in report.verdicts.iter().flat_map(|verdict| &verdict.pools) {
        look("pool", pool.pool.index(), snapshot.pools.len());
    }
    found
}

/// Every pod that needs a place is placed or said not to be, once; targets take pods.
pub(super) fn decisions(cluster: &PlannedCluster<'_>, outcome: &Outcome, found: &mut Vec<Violation>) {
    let (snapshot, plan) = (cluster.snapshot, &outcome.plan);
    if plan.revision != snapshot.revision {
        found.push(Violation::Revision { plan: plan.revision.clone(), snapshot: snapshot.revision.clone() });
    }
    if !plan.placements.is_sorted_by_key(|(pod, _)| *pod) {
        found.push(Violation::Unsorted("placements"));
    }
    if !outcome.report.unplaced.is_sorted_by_key(|(pod, _)| *pod) {
        found.push(Violation::Unsorted("pods without a place"));
    }
    let mut decided = vec![false; snapshot.pods.len()];
    let spoken_of =
        plan.placements.iter().map(|(pod, _)| *pod).chain(outcome.report.unplaced.iter().map(|(pod, _)| *pod));
    for pod in spoken_of {
        if std::mem::replace(&mut decided[pod.index()], true) {
            found.push(Violation::DecidedTwice(snapshot.pod_name(pod)));
        }
    }
    for (index, decided) in decided.into_iter().enumerate() {
        let pod = PodId::from(index);
        match (cluster.needs_place(pod), decided) {
            (true, false) => found.push(Violation::Forgotten(snapshot.pod_name(pod))),
            (false, true) => found.push(Violation::NeedsNoPlace(snapshot.pod_name(pod))),
            _ => {}
        }
    }
    targets(cluster, found);
}

fn targets(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let snapshot = cluster.snapshot;
    for (pod, target) in &cluster.plan.placements {
        if snapshot.class_of(*pod).problem.is_some() {
            found.push(Violation::Hopeless(snapshot.pod_name(*pod)));
        }
        let Target::Existing(node) = target else { continue };
        let why = match (cluster.gone(*node), snapshot.nodes[node.index()].schedulable) {
            (Some(why), _) => why,
            (None, false) => "is cordoned",
            _ => continue,
        };
        let (pod, node) = (snapshot.pod_name(*pod), snapshot.nodes[node.index()].name.clone());
        found.push(Violation::ClosedNode { pod, node, why });
    }
}
