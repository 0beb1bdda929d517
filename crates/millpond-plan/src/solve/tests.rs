//! Plans of small clusters, as a person would check them.

use std::fmt::Write as _;

use crate::model::{PodId, Snapshot};
use crate::plan::{Outcome, Settings, Target};
use crate::testing::{Cluster, random_snapshot};

/// A plan in a few lines: what is bought, with the pods on it; who goes where there is room; who stays out.
fn shown(snapshot: &Snapshot, outcome: &Outcome) -> String {
    let mut text = String::new();
    let plan = &outcome.plan;
    let names = |target: Target| {
        let there = plan.placements.iter().filter(|(_, at)| *at == target);
        let names: Vec<String> = there.map(|(pod, _)| snapshot.pods[pod.index()].name.to_string()).collect();
        names.join(" ")
    };
    for (index, node) in plan.new_nodes.iter().enumerate() {
        let kind = &snapshot.types[node.instance_type.index()];
        let offering = &kind.offerings[node.offering as usize];
        let (pool, kind) = (&snapshot.pools[node.pool.index()].name, snapshot.text(kind.name));
        let at = format!("{pool}/{kind}/{}/{}", snapshot.text(offering.zone), offering.capacity_type.name());
        _ = writeln!(text, "buy {at}: {}", names(Target::New(index as u32)));
    }
    for (index, node) in snapshot.nodes.iter().enumerate() {
        let pods = names(Target::Existing(crate::model::NodeId(index as u32)));
        if !pods.is_empty() {
            _ = writeln!(text, "on {}: {pods}", node.name);
        }
    }
    let unplaced =
        outcome.report.unplaced.iter().map(|(pod, verdict)| (pod, &outcome.report.verdicts[*verdict as usize]));
    for (pod, verdict) in unplaced {
        _ = writeln!(text, "no place: {} {}", name(snapshot, *pod), verdict.rule);
    }
    text
}

fn name(snapshot: &Snapshot, pod: PodId) -> &str {
    &snapshot.pods[pod.index()].name
}

fn check(cluster: Cluster, expected: &str) {
    let snapshot = cluster.snapshot();
    let outcome = super::plan(&snapshot, &Settings::default());
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let shown = shown(&snapshot, &outcome);
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "\n{shown}");
    assert!(outcome.report.bound <= outcome.report.cost_after);
}

fn shop() -> Cluster {
    Cluster::new().machine("small", "cpu=2 memory=4Gi", |machine| machine.zones("a b c").price(50)).machine(
        "large",
        "cpu=8 memory=16Gi",
        |machine| machine.zones("a b c").price(180),
    )
}

#[test]
fn the_cheapest_nodes_are_bought() {
    let cluster = shop().pool("general", |pool| pool).pods(4, "web", "cpu=2 memory=1Gi", |pod| pod);
    check(cluster, "buy general/large/a/on-demand: web-0 web-1 web-2 web-3");
}

#[test]
fn room_is_used_before_anything_is_bought() {
    let cluster = shop()
        .pool("general", |pool| pool)
        .node("one", "large", |node| node.pool("general").zone("a"))
        .pod("old", "cpu=5", |pod| pod.on("one"))
        .pods(3, "web", "cpu=1500m memory=1Gi", |pod| pod);
    check(
        cluster,
        "buy general/small/b/on-demand: web-2
         on one: web-0 web-1",
    );
}

#[test]
fn a_spread_uses_every_zone_that_can_be_bought() {
    let cluster = shop().pool("general", |pool| pool).pods(3, "web", "cpu=1", |pod| pod.spread("zone", 1));
    check(
        cluster,
        "buy general/small/a/on-demand: web-0
         buy general/small/b/on-demand: web-1
         buy general/small/c/on-demand: web-2",
    );
}

#[test]
fn random_clusters_are_planned() {
    let mut failures = Vec::new();
    for seed in 0..300 {
        let snapshot = random_snapshot(seed, 5 + (seed as usize % 40));
        let outcome = super::plan(&snapshot, &Settings::default());
        let violations = crate::check::check(&snapshot, &outcome);
        if !violations.is_empty() {
            failures.push(format!(
                "seed {seed}: {}",
                violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            ));
        }
    }
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n"));
}

fn cheap_when_small() -> Cluster {
    Cluster::new()
        .machine("small", "cpu=2 memory=4Gi", |machine| machine.zones("a").price(30))
        .machine("large", "cpu=8 memory=16Gi", |machine| machine.zones("a").price(180))
        .pods(8, "web", "cpu=1500m memory=1Gi", |pod| pod)
}

#[test]
fn a_limit_on_nodes_makes_them_larger() {
    check(
        cheap_when_small().pool("general", |pool| pool.limit("nodes=2")),
        "buy general/large/a/on-demand: web-0 web-1 web-2
         buy general/large/a/on-demand: web-3 web-4 web-5 web-6 web-7",
    );
}

#[test]
fn a_limit_on_cores_makes_every_core_count() {
    // Five pods on eight cores, or one on two: within twelve cores only large and small together hold more than six.
    let snapshot = cheap_when_small().pool("general", |pool| pool.limit("cpu=12")).snapshot();
    let outcome = super::plan(&snapshot, &Settings::default());
    assert_eq!(outcome.plan.placements.len(), 7, "{}", shown(&snapshot, &outcome));
}

#[test]
fn limits_that_are_far_away_take_no_work() {
    let work = |limits: &str| {
        let pods = |cluster: Cluster| cluster.pods(40, "more", "cpu=700m memory=3Gi", |pod| pod);
        let snapshot = pods(cheap_when_small()).pool("general", |pool| pool.limit(limits)).snapshot();
        super::plan(&snapshot, &Settings::default()).report.work
    };
    assert_eq!(work("cpu=12 memory=4000Gi nodes=500"), work("cpu=12"));
}
