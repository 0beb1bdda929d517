//! Whether the figures of the report are those of the plan, and the bound is proved.

use std::collections::BTreeSet;

use super::planned_cluster::PlannedCluster;
use super::violation::Violation;
use crate::model::{NodeId, NodeState, PodId};
use crate::pack;
use crate::plan::{BoundProof, Report};

/// Compares the figures of the report with the plan.
pub(super) fn check(cluster: &PlannedCluster<'_>, report: &Report, found: &mut Vec<Violation>) {
    let nodes = &cluster.snapshot.nodes;
    let stays = |index: &usize| cluster.gone(NodeId::from(*index)).is_none();
    let price = |index: usize| u128::from(nodes[index].price.unwrap_or(0));
    let staying: u128 = (0..nodes.len()).filter(stays).map(price).sum();
    let new: u128 = cluster.plan.new_nodes.iter().map(|node| u128::from(node.price)).sum();
    let pods = (0..cluster.snapshot.pods.len()).map(PodId::from);
    let need_place = pods.filter(|pod| cluster.needs_place(*pod)).count();
    let figures = [
        ("cost_before", report.cost_before, (0..nodes.len()).map(price).sum()),
        ("cost_after", report.cost_after, staying + new),
        ("nodes_before", report.nodes_before as u128, nodes.len() as u128),
        (
            "nodes_after",
            report.nodes_after as u128,
            ((0..nodes.len()).filter(stays).count() + cluster.plan.new_nodes.len()) as u128,
        ),
        (
            "unpriced_nodes",
            report.unpriced_nodes as u128,
            nodes.iter().filter(|node| node.price.is_none()).count() as u128,
        ),
        ("pods", report.pods as u128, need_place as u128),
    ];
    for (what, reported, actual) in figures {
        if reported != actual {
            found.push(Violation::Figure { what, reported, actual });
        }
    }
    bound(cluster, report, found);
}

/// The bound is what the nodes cost that may not go and what the proofs prove, and no more than the cost.
fn bound(cluster: &PlannedCluster<'_>, report: &Report, found: &mut Vec<Violation>) {
    let snapshot = cluster.snapshot;
    if report.bound > report.cost_after {
        found.push(Violation::BoundAboveCost { bound: report.bound, cost: report.cost_after });
    }
    let loose: BTreeSet<NodeId> = report.proofs.iter().flat_map(|proof| proof.nodes.iter().copied()).collect();
    let mut proved = 0;
    for (index, node) in snapshot.nodes.iter().enumerate() {
        let id = NodeId::from(index);
        if node.state == NodeState::Leaving || loose.contains(&id) {
            continue;
        }
        proved += u128::from(node.price.unwrap_or(0));
        if cluster.gone(id).is_some() {
            found.push(Violation::BoundCountsRemoved(node.name.clone()));
        }
    }
    for (index, proof) in report.proofs.iter().enumerate() {
        match pack::verify(&proof.problem, &proof.certificate) {
            Ok(value) => proved += value,
            Err(error) => found.push(Violation::Proof { index, error }),
        }
        if !all_on_offer(cluster, proof) {
            found.push(Violation::NotOnOffer { index });
        }
    }
    if report.bound != proved {
        found.push(Violation::Figure { what: "bound", reported: report.bound, actual: proved });
    }
}

/// Whether the problem has the nodes that may go on offer, each at its price or below.
fn all_on_offer(cluster: &PlannedCluster<'_>, proof: &BoundProof) -> bool {
    let mut nodes: Vec<u64> =
        proof.nodes.iter().map(|node| cluster.snapshot.nodes[node.index()].price.unwrap_or(0)).collect();
    nodes.sort_unstable();
    let mut bins: Vec<(u64, u64)> =
        proof.problem.bins.iter().filter_map(|bin| Some((bin.price, bin.max_nodes?))).collect();
    bins.sort_unstable();
    let mut bins = bins.into_iter().peekable();
    let mut offered: u64 = 0;
    nodes.into_iter().zip(1..).all(|(price, wanted)| {
        while let Some((_, stock)) = bins.next_if(|(of, _)| *of <= price) {
            offered = offered.saturating_add(stock);
        }
        offered >= wanted
    })
}
