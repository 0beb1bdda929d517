//! Whether the figures of the report are those of the plan, and the bound is proved.

use std::collections::BTreeSet;

use super::violation::Violation;
use super::world::World;
use crate::model::{NodeId, PodId};
use crate::pack;
use crate::plan::Report;

/// Compares.
pub(super) fn check(world: &World<'_>, report: &Report, found: &mut Vec<Violation>) {
    let nodes = &world.snapshot.nodes;
    let stays = |index: &usize| world.gone(NodeId::from(*index)).is_none();
    let price = |index: usize| u128::from(nodes[index].price.unwrap_or(0));
    let staying: u128 = (0..nodes.len()).filter(stays).map(price).sum();
    let new: u128 = world.plan.new_nodes.iter().map(|node| u128::from(node.price)).sum();
    let spoken_of: BTreeSet<PodId> =
        world.plan.placements.iter().map(|(pod, _)| *pod).chain(report.unplaced.iter().map(|(pod, _)| *pod)).collect();
    let counts = |pod: &PodId| world.needs_place(*pod).unwrap_or_else(|| spoken_of.contains(pod));
    let need_place = (0..world.snapshot.pods.len()).map(PodId::from).filter(counts).count();
    let figures = [
        ("cost_before", report.cost_before, (0..nodes.len()).map(price).sum()),
        ("cost_after", report.cost_after, staying + new),
        ("nodes_before", report.nodes_before as u128, nodes.len() as u128),
        (
            "nodes_after",
            report.nodes_after as u128,
            ((0..nodes.len()).filter(stays).count() + world.plan.new_nodes.len()) as u128,
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
    bound(report, staying, found);
}

/// The bound is what the nodes that stay cost and what the proofs prove, and no more than the cost.
fn bound(report: &Report, staying: u128, found: &mut Vec<Violation>) {
    if report.bound > report.cost_after {
        found.push(Violation::BoundAboveCost { bound: report.bound, cost: report.cost_after });
    }
    let mut proved = staying;
    for (index, proof) in report.proofs.iter().enumerate() {
        match pack::verify(&proof.problem, &proof.certificate) {
            Ok(value) => proved += value,
            Err(error) => found.push(Violation::Proof { index, error }),
        }
    }
    if report.bound != proved {
        found.push(Violation::Figure { what: "bound", reported: report.bound, actual: proved });
    }
}
