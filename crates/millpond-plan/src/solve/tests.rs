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

/// Two nodes on their way, and pods that fit on them in one way only: 5 + 3 + 2 and 4 + 3 + 3.
fn tight() -> Cluster {
    let pods = [("a", 5), ("b", 4), ("c", 3), ("d", 3), ("e", 3), ("f", 2)];
    let cluster = Cluster::new()
        .machine("ten", "cpu=10 memory=40Gi", |machine| machine.zones("a").price(100))
        .pool("general", |pool| pool)
        .node("one", "ten", |node| node.pool("general").starting())
        .node("two", "ten", |node| node.pool("general").starting());
    pods.into_iter().fold(cluster, |cluster, (name, cpu)| cluster.pod(name, &format!("cpu={cpu}"), |pod| pod))
}

/// Says that an earlier plan put these pods on a node.
fn meant(snapshot: &mut Snapshot, node: &str, pods: &str) {
    let node = snapshot.find_node(node).unwrap();
    for pod in pods.split(' ') {
        let pod = snapshot.find_pod(&format!("default/{pod}")).unwrap();
        snapshot.planned_placements.push((node, snapshot.pods[pod.index()].class, 1));
    }
}

#[test]
fn pods_go_where_an_earlier_plan_put_them() {
    let told = |snapshot: &mut Snapshot| {
        meant(snapshot, "one", "a c f");
        meant(snapshot, "two", "b d e");
    };
    check(
        tight().edit(told),
        "on one: a c f
         on two: b d e",
    );
}

#[test]
fn nodes_on_their_way_are_packed_as_when_they_were_bought() {
    // Class by class, the last pod would be left over.
    check(
        tight(),
        "on one: a c f
         on two: b d e",
    );
    // What runs stays where it is, and takes room that is not bought again.
    let running = tight().node("zero", "ten", |node| node.pool("general")).pod("old", "cpu=8", |pod| pod.on("zero"));
    check(
        running.pod("g", "cpu=2", |pod| pod),
        "on one: a c g
         on two: b d e
         on zero: f",
    );
}

#[test]
fn what_was_meant_holds_as_far_as_it_fits() {
    // Another pod was bound to one of the nodes first: the pods planned for it go elsewhere.
    let faster = tight().pod("z", "cpu=9", |pod| pod.on("two")).edit(|snapshot| {
        meant(snapshot, "one", "a c f");
        meant(snapshot, "two", "b d e");
    });
    check(
        faster,
        "buy general/ten/a/on-demand: b d e
         on one: a c f",
    );
    // Those of a higher priority come first, wherever they were meant to go.
    let urgent = tight().pod("z", "cpu=10", |pod| pod.priority(1)).edit(|snapshot| {
        meant(snapshot, "one", "a c f");
        meant(snapshot, "two", "b d e");
    });
    check(
        urgent,
        "buy general/ten/a/on-demand: a c f
         on one: z
         on two: b d e",
    );
}

#[test]
fn spread_pods_go_where_they_were_meant_in_turns() {
    let cluster = tight().pods(4, "web", "cpu=1", |pod| pod.spread("kubernetes.io/hostname", 2)).edit(|snapshot| {
        snapshot.pods.retain(|pod| pod.name.starts_with("web"));
        let class = snapshot.pods[0].class;
        for node in ["one", "two"] {
            let node = snapshot.find_node(node).unwrap();
            snapshot.planned_placements.push((node, class, 2));
        }
    });
    check(
        cluster,
        "on one: web-0 web-2
         on two: web-1 web-3",
    );
}

/// Own hosts first, then a cloud with other machines that are cheaper and larger.
fn own_and_cloud(limit: &str) -> Cluster {
    Cluster::new()
        .machine("own-2", "cpu=2 memory=8Gi", |machine| machine.zones("a b").price(60).keeps("cpu=100m memory=500Mi"))
        .machine("own-4", "cpu=4 memory=16Gi", |machine| machine.zones("a b").price(110).keeps("cpu=100m memory=1Gi"))
        .machine("own-8", "cpu=8 memory=32Gi", |machine| machine.zones("a b").price(200).keeps("cpu=100m memory=1Gi"))
        .machine("cloud-8", "cpu=8 memory=32Gi", |machine| machine.zones("a b c").price(90).keeps("cpu=100m"))
        .pool("own", |pool| pool.weight(10).machines("own-2 own-4 own-8").limit(limit))
        .pool("cloud", |pool| pool.machines("cloud-8"))
}

/// Pods of each pool's new nodes, by name of the pool; asserts that the checker agrees.
fn by_pool(cluster: Cluster) -> Vec<(String, usize)> {
    let snapshot = cluster.snapshot();
    let outcome = super::plan(&snapshot, &Settings::default());
    let violations: Vec<String> = crate::check::check(&snapshot, &outcome).iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{}\n{}", violations.join("\n"), shown(&snapshot, &outcome));
    let mut counts = std::collections::BTreeMap::new();
    for (_, target) in &outcome.plan.placements {
        if let Target::New(node) = target {
            let pool = outcome.plan.new_nodes[*node as usize].pool;
            *counts.entry(snapshot.pools[pool.index()].name.clone()).or_default() += 1;
        }
    }
    counts.into_iter().collect()
}

#[track_caller]
fn split(case: &str, cluster: Cluster, expected: &[(&str, usize)]) {
    let expected: Vec<(String, usize)> = expected.iter().map(|(pool, pods)| ((*pool).to_owned(), *pods)).collect();
    assert_eq!(by_pool(cluster), expected, "{case}");
}

#[test]
fn a_greater_pool_is_filled_as_far_as_its_limits_go() {
    let six = |cluster: Cluster| cluster.pods(6, "web", "cpu=1 memory=2Gi", |pod| pod);
    let cases = [
        ("cpu=4", &[("cloud", 3), ("own", 3)][..]),
        ("cpu=3", &[("cloud", 5), ("own", 1)]),
        ("cpu=1", &[("cloud", 6)]),
        ("cpu=6", &[("cloud", 2), ("own", 4)]),
        ("memory=16Gi", &[("cloud", 3), ("own", 3)]),
        ("nodes=1", &[("own", 6)]),
        ("nodes=0", &[("cloud", 6)]),
        ("cpu=100 memory=8Gi", &[("cloud", 5), ("own", 1)]),
        ("cpu=8 nodes=1", &[("own", 6)]),
        ("cpu=4 nodes=1 memory=100Gi", &[("cloud", 3), ("own", 3)]),
        ("price=110", &[("cloud", 3), ("own", 3)]),
    ];
    for (limit, expected) in cases {
        split(limit, six(own_and_cloud(limit)), expected);
    }
    // Existing nodes count.
    let there =
        six(own_and_cloud("cpu=6"))
            .node("one", "own-2", |node| node.pool("own"))
            .pod("old", "cpu=1900m", |pod| pod.on("one"));
    split("a node is there", there, &[("cloud", 3), ("own", 3)]);
}

#[test]
fn the_order_of_weights_goes_through_all_pools() {
    let cluster = Cluster::new()
        .machine("own", "cpu=4 memory=16Gi", |machine| machine.zones("a").price(200))
        .machine("reserved", "cpu=8 memory=32Gi", |machine| machine.zones("b").price(150))
        .machine("spot", "cpu=16 memory=64Gi", |machine| machine.zones("a b c").price(20))
        .pool("cheap", |pool| pool.machines("spot"))
        .pool("middle", |pool| pool.weight(5).machines("reserved").limit("nodes=1"))
        .pool("own", |pool| pool.weight(50).machines("own").limit("cpu=8"));
    let expected = [("cheap", 4), ("middle", 8), ("own", 8)];
    split("three pools", cluster.clone().pods(20, "web", "cpu=1 memory=1Gi", |pod| pod), &expected);
    // The limit of the cluster is used up by the greatest first.
    let limited = cluster.limit("cpu=16").pods(20, "web", "cpu=1 memory=1Gi", |pod| pod);
    split("a limit of the cluster", limited, &[("middle", 8), ("own", 8)]);
}

#[test]
fn pods_that_do_not_fit_the_greater_pool_leave_it_to_others() {
    let cluster = own_and_cloud("cpu=4")
        .pods(2, "large", "cpu=7 memory=2Gi", |pod| pod)
        .pods(4, "small", "cpu=1 memory=1Gi", |pod| pod)
        .pods(2, "elsewhere", "cpu=500m", |pod| pod.needs("zone in c"));
    split("some fit", cluster, &[("cloud", 5), ("own", 3)]);
    // Whatever the kernel packs together: what is left of a node is filled.
    let mixed = own_and_cloud("cpu=4").pods(3, "half", "cpu=1500m memory=1Gi", |pod| pod).pods(
        5,
        "tiny",
        "cpu=300m memory=1Gi",
        |pod| pod,
    );
    let counts = by_pool(mixed);
    assert!(counts.iter().any(|(pool, pods)| pool == "own" && *pods >= 4), "{counts:?}");
}

#[test]
fn higher_priorities_get_the_greater_pool() {
    let snapshot = own_and_cloud("cpu=4")
        .pods(4, "batch", "cpu=1 memory=1Gi", |pod| pod)
        .pods(3, "web", "cpu=1 memory=1Gi", |pod| pod.priority(10))
        .snapshot();
    let outcome = super::plan(&snapshot, &Settings::default());
    let text = shown(&snapshot, &outcome);
    assert!(text.contains("own/own-4/a/on-demand: web-0 web-1 web-2"), "{text}");
}

#[test]
fn spread_pods_use_the_greater_pool_in_its_zones() {
    let cluster = Cluster::new()
        .machine("own", "cpu=4 memory=16Gi", |machine| machine.zones("a").price(200))
        .machine("cloud", "cpu=8 memory=32Gi", |machine| machine.zones("a b").price(90))
        .pool("own", |pool| pool.weight(10).machines("own").limit("cpu=4"))
        .pool("cloud", |pool| pool.machines("cloud"));
    let spread = |count| cluster.clone().pods(count, "web", "cpu=1 memory=1Gi", |pod| pod.spread("zone", 1));
    split("half of them in zone a", spread(6), &[("cloud", 3), ("own", 3)]);
    split("more than it holds", spread(12), &[("cloud", 8), ("own", 4)]);
}
