//! Nodes that may not be taken away.

use super::{broken, planned};
use crate::model::{DisruptionReason, DoNotDisrupt, NodeId, Nodes, PodKind, Snapshot};
use crate::pack;
use crate::plan::{BoundProof, Outcome, Removal, Target};
use crate::testing::{Cluster, simple_report};

const MILLI_DOLLAR: i128 = 1_000_000;

fn cluster() -> Cluster {
    Cluster::new()
        .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
        .machine("large", "cpu=8 memory=16Gi", |machine| machine.price(180))
        .pool("general", |pool| pool.edit(|pool| pool.disruption.budgets[0].nodes = Nodes::Count(9)))
        .node("wasteful", "large", |node| node.pool("general").drifted("its template changed").age(800 * 3600))
        .node("empty", "large", |node| node.pool("general"))
        .node("foreign", "small", |node| node)
        .node("leaving", "small", |node| node.pool("general").leaving())
        .pods(2, "web", "cpu=500m", |pod| pod.on("wasteful"))
        .pod("log", "cpu=100m", |pod| pod.daemon().on("empty"))
        .budget("web", "app in web", 2)
}

/// `wasteful` gives way to a small node, and `empty` to nothing.
fn good() -> (Snapshot, Outcome) {
    let (snapshot, mut outcome) = planned(cluster(), &["general small a"], &["web-0 #0", "web-1 #0"]);
    let replaced = Removal {
        nodes: vec![NodeId(0)],
        replacements: vec![0],
        reason: DisruptionReason::Underutilized,
        savings: 130 * MILLI_DOLLAR,
        disruption: 2000,
    };
    let emptied = Removal {
        nodes: vec![NodeId(1)],
        replacements: Vec::new(),
        reason: DisruptionReason::Empty,
        savings: 180 * MILLI_DOLLAR,
        disruption: 0,
    };
    outcome.plan.removals = vec![replaced, emptied];
    count(&snapshot, &mut outcome);
    (snapshot, outcome)
}

/// A proof of nothing about nodes that may go: they are on offer for nothing.
fn nothing_needs(nodes: Vec<NodeId>) -> BoundProof {
    let bin = pack::Bin { capacity: [0; pack::MAX_RESOURCES], price: 0, max_nodes: Some(1) };
    let bins = vec![bin; nodes.len()];
    let problem = pack::Problem { resources: 1, bins, rows: Vec::new() };
    let certificate = pack::Certificate { counts: Vec::new(), proof: pack::Proof::Exhaustive };
    BoundProof { problem, certificate, nodes }
}

/// The figures with the removals.
fn count(snapshot: &Snapshot, outcome: &mut Outcome) {
    simple_report(snapshot, outcome);
    let removed: Vec<NodeId> = outcome.plan.removals.iter().flat_map(|removal| removal.nodes.clone()).collect();
    let price: u128 = removed.iter().map(|node| u128::from(snapshot.nodes[node.index()].price.unwrap_or(0))).sum();
    outcome.report.cost_after -= price;
    outcome.report.bound -= price;
    outcome.report.proofs = vec![nothing_needs(removed.clone())];
    outcome.report.nodes_after -= removed.len();
    outcome.report.pods = outcome.plan.placements.len();
    outcome.report.unplaced.clear();
}

#[test]
fn every_node_goes_once_and_for_a_reason() {
    let good = good();
    let reason = |outcome: &mut Outcome, reason| outcome.plan.removals[0].reason = reason;
    broken("not empty", &good, |_, outcome| reason(outcome, DisruptionReason::Empty), &["Reason"]);
    broken(
        "drifted",
        &good,
        |snapshot, outcome| {
            reason(outcome, DisruptionReason::Drifted);
            snapshot.nodes[0].drifted = None;
        },
        &["Reason"],
    );
    broken("drifted it is", &good, |_, outcome| reason(outcome, DisruptionReason::Drifted), &[]);
    broken("expired it is", &good, |_, outcome| reason(outcome, DisruptionReason::Expired), &[]);
    broken(
        "not so old",
        &good,
        |snapshot, outcome| {
            reason(outcome, DisruptionReason::Expired);
            snapshot.nodes[0].created = snapshot.now;
        },
        &["Reason"],
    );
    broken("without a pool", &good, |snapshot, _| snapshot.nodes[1].pool = None, &["NotRemovable"]);
    broken("left alone", &good, |snapshot, _| snapshot.nodes[1].do_not_disrupt = true, &["NotRemovable"]);
    broken(
        "twice",
        &good,
        |_, outcome| {
            outcome.plan.removals[1].nodes.push(NodeId(1));
            outcome.plan.removals[1].savings *= 2;
        },
        &["RemovedTwice"],
    );
    broken(
        "leaving already",
        &good,
        |_, outcome| {
            outcome.plan.removals[1].nodes.push(NodeId(3));
            outcome.plan.removals[1].savings += 50 * MILLI_DOLLAR;
        },
        &["NotRemovable"],
    );
    broken(
        "none may go now",
        &good,
        |snapshot, _| snapshot.pools[0].disruption.budgets[0].nodes = Nodes::Count(1),
        &["PoolBudget"],
    );
    broken("the least", &good, |snapshot, _| snapshot.pools[0].min_nodes = 1, &[]);
    broken("below the least", &good, |snapshot, _| snapshot.pools[0].min_nodes = 2, &["MinNodes"]);
}

#[test]
fn pods_move_from_what_goes() {
    let good = good();
    broken("left behind", &good, |_, outcome| _ = outcome.plan.placements.pop(), &["Forgotten"]);
    let onto = |outcome: &mut Outcome, node| outcome.plan.placements[0].1 = Target::Existing(NodeId(node));
    broken("onto what goes", &good, |_, outcome| onto(outcome, 1), &["ClosedNode"]);
    broken("onto what stays", &good, |_, outcome| onto(outcome, 2), &[]);
}

#[test]
fn evictions_are_allowed() {
    let good = good();
    broken("one after the other", &good, |snapshot, _| snapshot.disruption_budgets[0].allowed = 1, &[]);
    broken("none", &good, |snapshot, _| snapshot.disruption_budgets[0].allowed = 0, &["DisruptionBudget"]);
    broken(
        "no pod is selected",
        &good,
        |snapshot, _| {
            let budget = &mut snapshot.disruption_budgets[0];
            (budget.allowed, budget.selector) = (0, None);
        },
        &[],
    );
    broken(
        "the sick may always go",
        &good,
        |snapshot, _| {
            let budget = &mut snapshot.disruption_budgets[0];
            (budget.allowed, budget.unhealthy_always) = (0, true);
            (snapshot.pods[0].started, snapshot.pods[1].started) = (None, None);
        },
        &[],
    );
    broken(
        "of several budgets",
        &good,
        |snapshot, _| {
            let again = snapshot.disruption_budgets[0].clone();
            snapshot.disruption_budgets.push(again);
        },
        &["SeveralBudgets"],
    );
    let protect = |snapshot: &mut Snapshot, protection| {
        let class = snapshot.pods[0].class;
        snapshot.classes[class.index()].do_not_disrupt = protection;
    };
    broken("never", &good, |snapshot, _| protect(snapshot, DoNotDisrupt::Always), &["DoNotDisrupt"]);
    broken("for a minute", &good, |snapshot, _| protect(snapshot, DoNotDisrupt::For(60)), &["DoNotDisrupt"]);
    broken(
        "without an owner",
        &good,
        |snapshot, outcome| {
            let class = snapshot.pods[0].class;
            snapshot.classes[class.index()].kind = PodKind::Bare;
            outcome.plan.placements.clear();
            outcome.report.pods = 0;
        },
        &["EmptyNode", "Lost"],
    );
    broken("until just now", &good, |snapshot, _| protect(snapshot, DoNotDisrupt::For(30)), &[]);
    broken(
        "nothing is held for ever",
        &good,
        |snapshot, outcome| {
            protect(snapshot, DoNotDisrupt::Always);
            snapshot.disruption_budgets[0].allowed = 0;
            snapshot.nodes[0].ends_in_time = true;
            outcome.plan.removals[0].reason = DisruptionReason::Expired;
        },
        &[],
    );
    broken(
        "to save something is no need",
        &good,
        |snapshot, _| {
            protect(snapshot, DoNotDisrupt::Always);
            snapshot.nodes[0].ends_in_time = true;
        },
        &["DoNotDisrupt"],
    );
}

#[test]
fn the_bound_is_about_nodes_that_may_go() {
    let good = good();
    broken(
        "counted",
        &good,
        |_, outcome| {
            outcome.report.proofs[0].nodes.pop();
            outcome.report.bound += 180_000_000;
        },
        &["BoundAboveCost", "BoundCountsRemoved"],
    );
    broken("one is missing", &good, |_, outcome| _ = outcome.report.proofs[0].problem.bins.pop(), &["NotOnOffer"]);
    broken("dearer", &good, |_, outcome| outcome.report.proofs[0].problem.bins[0].price = 180_000_001, &["NotOnOffer"]);
    broken("as dear", &good, |_, outcome| outcome.report.proofs[0].problem.bins[0].price = 180_000_000, &[]);
    broken(
        "twice",
        &good,
        |_, outcome| {
            let bins = &mut outcome.report.proofs[0].problem.bins;
            bins.pop();
            bins[0].max_nodes = Some(2);
        },
        &[],
    );
}

#[test]
fn savings_are_what_they_are_said_to_be() {
    let good = good();
    broken("said to be more", &good, |_, outcome| outcome.plan.removals[0].savings += 1, &["Savings"]);
    broken(
        "nothing is saved",
        &good,
        |snapshot, outcome| {
            snapshot.nodes[0].price = Some(50_000_000);
            outcome.plan.removals[0].savings = 0;
            outcome.report.cost_before -= 130_000_000;
        },
        &["NoSaving"],
    );
    broken(
        "one for two",
        &good,
        |_, outcome| {
            outcome.plan.removals[1].replacements = vec![0];
            outcome.plan.removals[1].savings -= 50 * MILLI_DOLLAR;
        },
        &["ReplacesTwice"],
    );
}
