//! Plans that speak of the wrong things, and reports that say something else.

use super::{broken, expect, planned, shop};
use crate::model::{NodeId, PodId, PodState, PoolId, Problem, TypeId};
use crate::pack;
use crate::plan::{BoundProof, Outcome, Target};

fn good() -> (crate::model::Snapshot, Outcome) {
    let cluster = shop()
        .node("one", "large", |node| node.pool("general"))
        .node("gone", "small", |node| node.pool("general").leaving())
        .pods(3, "web", "cpu=1", |pod| pod)
        .pod("old", "cpu=1", |pod| pod.on("gone"))
        .pod("runs", "cpu=1", |pod| pod.on("one"))
        .pod("huge", "cpu=99", |pod| pod);
    planned(cluster, &["general small b"], &["web-0 one", "web-1 #0", "web-2 #0", "old one"])
}

#[test]
fn indices_point_somewhere() {
    let cases: [(&str, fn(&mut Outcome)); 8] = [
        ("pod", |outcome| outcome.plan.placements[0].0 = PodId(99)),
        ("node", |outcome| outcome.plan.placements[0].1 = Target::Existing(NodeId(99))),
        ("new node", |outcome| outcome.plan.placements[0].1 = Target::New(99)),
        ("pool", |outcome| outcome.plan.new_nodes[0].pool = PoolId(99)),
        ("type", |outcome| outcome.plan.new_nodes[0].instance_type = TypeId(99)),
        ("offering", |outcome| outcome.plan.new_nodes[0].offering = 99),
        ("unplaced pod", |outcome| outcome.report.unplaced[0].0 = PodId(99)),
        ("verdict", |outcome| outcome.report.unplaced[0].1 = 99),
    ];
    for (case, change) in cases {
        broken(case, &good(), |_, outcome| change(outcome), &["Index"]);
    }
}

#[test]
fn every_pod_is_decided_about_once() {
    let good = good();
    broken("another revision", &good, |_, outcome| outcome.plan.revision = "old".to_owned(), &["Revision"]);
    broken("unsorted", &good, |_, outcome| outcome.plan.placements.swap(0, 1), &["Unsorted"]);
    broken("forgotten", &good, |_, outcome| _ = outcome.plan.placements.pop(), &["Forgotten"]);
    broken("not even unplaced", &good, |_, outcome| _ = outcome.report.unplaced.pop(), &["Forgotten"]);
    let twice = |outcome: &mut Outcome| {
        let again = outcome.plan.placements[0];
        outcome.plan.placements.insert(1, again);
    };
    broken("placed twice", &good, |_, outcome| twice(outcome), &["DecidedTwice"]);
    broken(
        "placed and unplaced",
        &good,
        |_, outcome| outcome.report.unplaced.insert(0, (outcome.plan.placements[0].0, 0)),
        &["DecidedTwice"],
    );
    broken(
        "unplaced out of order",
        &good,
        |_, outcome| {
            outcome.plan.placements.remove(0);
            outcome.report.unplaced.push((PodId(0), 0));
        },
        &["Unsorted"],
    );
}

#[test]
fn pods_that_need_no_place_get_none() {
    let cluster = || {
        shop()
            .node("one", "large", |node| node.pool("general"))
            .node("gone", "small", |node| node.pool("general").leaving())
            .pod("runs", "", |pod| pod.on("one"))
            .pod("waits", "", |pod| pod.nominated("one"))
            .pod("gated", "", |pod| pod.state(PodState::Gated))
            .pod("going", "", |pod| pod.on("gone").state(PodState::Terminating))
            .pod("daemon", "", |pod| pod.daemon().on("gone"))
            .pod("bare", "", |pod| pod.kind(crate::model::PodKind::Bare).on("gone"))
            .pod("homeless", "", |pod| pod.nominated("gone"))
    };
    expect("only one needs a place", &planned(cluster(), &[], &["homeless one"]), &[]);
    for pod in ["runs", "waits", "gated", "going", "daemon", "bare"] {
        let place = format!("{pod} one");
        expect(pod, &planned(cluster(), &[], &["homeless one", &place]), &["NeedsNoPlace"]);
    }
}

#[test]
fn targets_take_pods() {
    let cluster = || {
        shop()
            .node("gone", "small", |node| node.pool("general").leaving())
            .node("cordoned", "small", |node| node.unschedulable())
            .pod("web", "", |pod| pod)
            .pod("cursed", "", |pod| pod.problem(Problem::ClaimMissing("data".into())))
    };
    expect("leaving", &planned(cluster(), &[], &["web gone"]), &["ClosedNode"]);
    expect("cordoned", &planned(cluster(), &[], &["web cordoned"]), &["ClosedNode"]);
    expect("hopeless", &planned(cluster(), &["general small a"], &["cursed #0"]), &["Hopeless"]);
}

#[test]
fn figures_are_those_of_the_plan() {
    let cases: [(&str, fn(&mut Outcome)); 7] = [
        ("cost_before", |outcome| outcome.report.cost_before += 1),
        ("cost_after", |outcome| outcome.report.cost_after += 1),
        ("nodes_before", |outcome| outcome.report.nodes_before += 1),
        ("nodes_after", |outcome| outcome.report.nodes_after += 1),
        ("unpriced_nodes", |outcome| outcome.report.unpriced_nodes += 1),
        ("pods", |outcome| outcome.report.pods += 1),
        ("bound", |outcome| outcome.report.bound += 1),
    ];
    for (case, change) in cases {
        broken(case, &good(), |_, outcome| change(outcome), &["Figure"]);
    }
}

#[test]
fn the_bound_is_proved() {
    let mut row = pack::Row {
        request: [0; pack::MAX_RESOURCES],
        count: 2,
        bins: pack::BitSet::full(1),
        per_node_cap: u32::MAX,
        exclusive: Vec::new(),
    };
    row.request[0] = 1000;
    let mut capacity = [0; pack::MAX_RESOURCES];
    capacity[0] = 2000;
    let bin = pack::Bin { capacity, price: 50_000_000, max_nodes: None };
    let problem = pack::Problem { resources: 1, bins: vec![bin], rows: vec![row] };
    let certificate = pack::Certificate { counts: vec![2], proof: pack::Proof::Exhaustive };
    let mut proved = good();
    proved.1.report.bound += 50_000_000;
    proved.1.report.proofs.push(BoundProof { problem, certificate, nodes: Vec::new() });
    broken("more pods", &proved, |_, outcome| outcome.report.proofs[0].certificate.counts[0] = 3, &["Proof", "Figure"]);
    broken("no proof", &proved, |_, outcome| outcome.report.proofs.clear(), &["Figure"]);
    broken(
        "above the cost",
        &proved,
        |_, outcome| {
            outcome.report.proofs[0].problem.bins[0].price += 1;
            outcome.report.bound += 1;
        },
        &["BoundAboveCost"],
    );
}
