//! Consolidation: removed nodes and their replacements.

use super::fixture::{Cluster, NOON, at, carried_out, count, for_reasons, percent};
use crate::check::check;
use crate::disruption::node_verdict;
use crate::model::{
    CapacityType, Consolidation, DisruptionReason, DoNotDisrupt, Drift, InclusionPolicy, NodeId, NodeState, PodKind,
    PodState, PoolId, Snapshot, Spread,
};
use crate::plan::{Outcome, Plan, Settings, Target};
use crate::solve;

use DisruptionReason::{Drifted, Empty, Expired, Underutilized};

const POOL: PoolId = PoolId(0);

fn plan(snapshot: &Snapshot) -> Outcome {
    let outcome = solve::plan(snapshot, &Settings { consolidate: true, ..Settings::default() });
    let found = check(snapshot, &outcome);
    assert!(found.is_empty(), "{found:?}");
    outcome
}

/// One line for each removal: reason, nodes, what replaces them, savings in thousandths of a dollar.
fn removals(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let each = plan.removals.iter().map(|removal| {
        let nodes: Vec<&str> = removal.nodes.iter().map(|node| &*snapshot.nodes[node.index()].name).collect();
        let new = removal.replacements.iter().map(|new| {
            let new = &plan.new_nodes[*new as usize];
            snapshot.text(snapshot.types[new.instance_type.index()].name)
        });
        let new: Vec<&str> = new.collect();
        let saved = removal.savings / 1_000_000;
        format!("{} {} -> [{}] saves {saved}", removal.reason.name(), nodes.join(" "), new.join(" "))
    });
    each.collect()
}

/// Plans, and plans again on the result: there must be nothing left to do.
fn settled_removals(snapshot: &Snapshot) -> Vec<String> {
    let outcome = plan(snapshot);
    let after = carried_out(snapshot, &outcome.plan);
    let again = plan(&after).plan;
    assert_eq!(removals(&after, &again), Vec::<String>::new(), "the second plan finds something");
    removals(snapshot, &outcome.plan)
}

#[test]
fn empty_nodes_go() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    let web = cluster.class("web", 1900, 100);
    for zone in ["a", "b", "c"] {
        cluster.node(POOL, small, zone);
    }
    let busy = cluster.node(POOL, small, "a");
    cluster.pod(web, busy);
    let daemon = cluster.class("agent", 10, 10);
    cluster.class_mut(daemon).kind = PodKind::Daemon;
    cluster.pods(daemon, crate::model::NodeId(1), 1);
    assert_eq!(
        settled_removals(&cluster.snapshot),
        ["Empty node-000 -> [] saves 100", "Empty node-001 -> [] saves 100", "Empty node-002 -> [] saves 100"]
    );
    // The fullest zone first, as far as the budget goes.
    cluster.first_pool().disruption.budgets = vec![count(1)];
    assert_eq!(removals(&cluster.snapshot, &plan(&cluster.snapshot).plan), ["Empty node-000 -> [] saves 100"]);
    cluster.first_pool().min_nodes = 4;
    assert!(plan(&cluster.snapshot).plan.removals.is_empty());
}

#[test]
fn zones_are_balanced_by_what_goes() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    for zone in ["a", "b", "b", "b", "c", "c"] {
        cluster.node(POOL, small, zone);
    }
    cluster.first_pool().disruption.budgets = vec![count(3)];
    let outcome = plan(&cluster.snapshot);
    assert_eq!(
        removals(&cluster.snapshot, &outcome.plan),
        ["Empty node-001 -> [] saves 100", "Empty node-002 -> [] saves 100", "Empty node-004 -> [] saves 100"]
    );
}

#[test]
fn underused_nodes_are_deleted_where_their_pods_fit_elsewhere() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 4, 16, 100);
    let web = cluster.class("web", 1000, 1024);
    let nodes = [3, 2, 1].map(|pods| {
        let node = cluster.node(POOL, small, "a");
        cluster.pods(web, node, pods);
        node
    });
    assert_eq!(settled_removals(&cluster.snapshot), ["Underutilized node-002 -> [] saves 100"]);
    let outcome = plan(&cluster.snapshot);
    assert_eq!(outcome.plan.placements.len(), 1);
    assert_eq!(outcome.plan.placements[0].1, Target::Existing(nodes[0]));
    assert_eq!(outcome.plan.removals[0].disruption, 1000);
    assert_eq!((outcome.report.nodes_after, outcome.report.cost_after), (2, 200_000_000));

    // Nothing of it if the pool gives up empty nodes only, or the pod may not be moved.
    cluster.first_pool().disruption.policy = Consolidation::WhenEmpty;
    assert!(plan(&cluster.snapshot).plan.removals.is_empty());
    cluster.first_pool().disruption.policy = Consolidation::WhenEmptyOrUnderutilized;
    cluster.class_mut(web).do_not_disrupt = DoNotDisrupt::Always;
    assert!(plan(&cluster.snapshot).plan.removals.is_empty());
}

#[test]
fn a_node_too_large_is_replaced_by_a_smaller_one() {
    let mut cluster = Cluster::new();
    cluster.instance_type("small", 2, 8, 100);
    let large = cluster.instance_type("large", 8, 32, 400);
    let web = cluster.class("web", 500, 512);
    let node = cluster.node(POOL, large, "b");
    cluster.pods(web, node, 3);
    assert_eq!(settled_removals(&cluster.snapshot), ["Underutilized node-000 -> [small] saves 300"]);
    // A limit that both together would break.
    cluster.first_pool().limits.nodes = Some(1);
    assert!(plan(&cluster.snapshot).plan.removals.is_empty());
}

#[test]
fn several_nodes_are_replaced_together_where_no_pair_saves_anything() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    cluster.instance_type("large", 8, 32, 300);
    let web = cluster.class("web", 1900, 2048);
    for zone in ["a", "b", "c", "a", "b", "c", "a", "b"] {
        let node = cluster.node(POOL, small, zone);
        cluster.pod(web, node);
    }
    let found = settled_removals(&cluster.snapshot);
    let saved: i128 = plan(&cluster.snapshot).plan.removals.iter().map(|removal| removal.savings).sum();
    assert_eq!(saved, 200_000_000, "{found:?}");
    // With three nodes there is nothing to gain.
    cluster.snapshot.nodes.truncate(3);
    cluster.snapshot.pods.truncate(3);
    assert!(plan(&cluster.snapshot).plan.removals.is_empty());
}

#[test]
fn equal_nodes_are_never_exchanged() {
    let mut cluster = Cluster::new();
    let small = cluster.type_with("small", 2, 8, &[("on-demand", 100), ("spot", 40)]);
    // As good, and hardly cheaper.
    cluster.type_with("other", 2, 8, &[("on-demand", 98), ("spot", 39)]);
    let web = cluster.class("web", 1500, 1024);
    for (zone, kind) in [("a", CapacityType::Spot), ("b", CapacityType::Spot), ("c", CapacityType::Spot)] {
        let node = cluster.node_bought(POOL, small, zone, kind);
        cluster.pod(web, node);
    }
    assert_eq!(settled_removals(&cluster.snapshot), Vec::<String>::new());
    // From on demand to spot there is something to gain, from dear spot to cheap spot too.
    cluster.node(POOL, small, "a");
    cluster.snapshot.pods[0].node = Some(crate::model::NodeId(3));
    let outcome = plan(&cluster.snapshot);
    assert_eq!(removals(&cluster.snapshot, &outcome.plan), ["Underutilized node-003 -> [] saves 100"]);
    cluster.snapshot.nodes[0].price = Some(90_000_000);
    cluster.snapshot.nodes.pop();
    cluster.snapshot.pods[0].node = Some(crate::model::NodeId(0));
    assert_eq!(
        removals(&cluster.snapshot, &plan(&cluster.snapshot).plan),
        ["Underutilized node-000 -> [other] saves 51"]
    );
}

#[test]
fn drifted_and_expired_nodes_are_replaced() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    let web = cluster.class("web", 1500, 1024);
    for zone in ["a", "b", "c"] {
        let node = cluster.node(POOL, small, zone);
        cluster.pod(web, node);
    }
    cluster.snapshot.nodes[1].drifted = Some(Drift::settled("the image is old"));
    assert_eq!(settled_removals(&cluster.snapshot), ["Drifted node-001 -> [small] saves 0"]);

    cluster.snapshot.nodes[2].created = NOON - 200_000;
    cluster.first_pool().disruption.expire_after = Some(100_000);
    let both = ["Drifted node-001 -> [small] saves 0", "Expired node-002 -> [small] saves 0"];
    assert_eq!(settled_removals(&cluster.snapshot), both);
    // Budgets hold for expiry too, and for both together.
    cluster.first_pool().disruption.budgets = vec![for_reasons(count(0), &[Expired])];
    assert_eq!(removals(&cluster.snapshot, &plan(&cluster.snapshot).plan), both[..1]);
    cluster.first_pool().disruption.budgets = vec![count(1)];
    assert_eq!(removals(&cluster.snapshot, &plan(&cluster.snapshot).plan), both[..1]);

    // An empty one simply goes, also from a pool without consolidation.
    cluster.first_pool().disruption.budgets = vec![];
    cluster.first_pool().disruption.consolidate_after = None;
    cluster.snapshot.pods.remove(1);
    assert_eq!(
        removals(&cluster.snapshot, &plan(&cluster.snapshot).plan),
        ["Drifted node-001 -> [] saves 100", "Expired node-002 -> [small] saves 0"]
    );
    // Nothing can be bought: it stays.
    cluster.first_pool().not_ready = Some("no node class".to_owned());
    assert_eq!(removals(&cluster.snapshot, &plan(&cluster.snapshot).plan), ["Drifted node-001 -> [] saves 100"]);
}

#[test]
fn balanced_pools_want_savings_that_are_worth_it() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 4, 16, 100);
    let tiny = cluster.class("tiny", 10, 10);
    let big = cluster.class("big", 3900, 1024);
    let busy = cluster.node(POOL, small, "a");
    cluster.pod(big, busy);
    // Many small pods on one node: a third of the cost, nearly all of the disruption.
    let crowded = cluster.node(POOL, small, "b");
    cluster.pods(tiny, crowded, 60);
    let other = cluster.node(POOL, small, "c");
    cluster.pods(tiny, other, 1);
    cluster.class_mut(big).do_not_disrupt = DoNotDisrupt::Always;
    cluster.first_pool().disruption.policy = Consolidation::Balanced;
    assert_eq!(settled_removals(&cluster.snapshot), ["Underutilized node-002 -> [] saves 100"]);
    cluster.snapshot.nodes[2].do_not_disrupt = true;
    assert!(plan(&cluster.snapshot).plan.removals.is_empty());
    cluster.first_pool().disruption.policy = Consolidation::WhenEmptyOrUnderutilized;
    assert_eq!(removals(&cluster.snapshot, &plan(&cluster.snapshot).plan), ["Underutilized node-001 -> [] saves 100"]);
}

#[test]
fn evictions_of_the_whole_plan_stay_within_pod_disruption_budgets() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 4, 16, 100);
    let web = cluster.class("web", 300, 300);
    for _ in 0..6 {
        let node = cluster.node(POOL, small, "a");
        cluster.pods(web, node, 2);
    }
    cluster.disruption_budget("web", "web", 5);
    let outcome = plan(&cluster.snapshot);
    // Two nodes with two pods each, and a third whose pods leave one after the other.
    assert_eq!(outcome.plan.removals.len(), 3);
    cluster.snapshot.disruption_budgets[0].allowed = 1;
    assert_eq!(plan(&cluster.snapshot).plan.removals.len(), 1);
    cluster.snapshot.disruption_budgets[0].allowed = 0;
    assert_eq!(plan(&cluster.snapshot).plan.removals.len(), 0);
    cluster.snapshot.disruption_budgets[0].allowed = 100;
    assert_eq!(plan(&cluster.snapshot).plan.removals.len(), 5);
}

#[test]
fn spread_and_waiting_pods_are_minded() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 4, 16, 100);
    let web = cluster.class("web", 300, 300);
    let selector = cluster.selector("web");
    let zone = cluster.snapshot.names.zone;
    cluster.class_mut(web).spread = vec![Spread {
        key: zone,
        max_skew: 1,
        min_domains: Some(3),
        hard: true,
        selector: Some(selector),
        node_affinity: InclusionPolicy::Honor,
        node_taints: InclusionPolicy::Ignore,
    }];
    for zone in ["a", "b", "c"] {
        let node = cluster.node(POOL, small, zone);
        cluster.pod(web, node);
    }
    assert!(plan(&cluster.snapshot).plan.removals.is_empty(), "each zone needs its pod");
    // One more in zone a, whose pod can move within the zone.
    let fourth = cluster.node(POOL, small, "a");
    cluster.pod(web, fourth);
    let found = settled_removals(&cluster.snapshot);
    assert_eq!(found.len(), 1, "{found:?}");
    // A pod that waits keeps the node that it goes to.
    let big = cluster.class("big", 3600, 300);
    cluster.pod_in(big, None, PodState::Pending, None);
    let outcome = plan(&cluster.snapshot);
    assert!(outcome.plan.new_nodes.is_empty(), "{:?}", outcome.plan);
    let taken = outcome.plan.placements.iter().find(|(pod, _)| pod.0 == 4).unwrap().1;
    let gone = outcome.plan.removals.iter().flat_map(|removal| &removal.nodes);
    assert!(gone.into_iter().all(|node| Target::Existing(*node) != taken));
}

#[test]
fn an_empty_node_is_kept_as_long_as_it_is_of_use() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 4, 16, 100);
    let web = cluster.class("web", 300, 300);
    for index in 0..4 {
        let node = cluster.node(POOL, small, "a");
        cluster.pods(web, node, usize::from(index > 0));
    }
    cluster.snapshot.nodes[3].drifted = Some(Drift::settled("image"));
    cluster.first_pool().disruption.budgets = vec![count(3)];
    let outcome = plan(&cluster.snapshot);
    let reasons: Vec<_> = outcome.plan.removals.iter().map(|removal| removal.reason).collect();
    // The empty node stays for the pod of the drifted one, until there is room for that elsewhere.
    assert_eq!(reasons, [Drifted, Empty, Underutilized]);
}

/// What is said about each node.
fn sentences(snapshot: &Snapshot) -> Vec<String> {
    let settings = Settings { consolidate: true, ..Settings::default() };
    let each = (0..snapshot.nodes.len()).map(NodeId::from);
    each.map(|node| node_verdict(snapshot, node, &settings).sentence(snapshot)).collect()
}

#[test]
fn every_node_has_a_verdict() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 4, 16, 100);
    let large = cluster.instance_type("large", 16, 64, 400);
    let web = cluster.class("web", 1000, 1024);
    let full = cluster.class("full", 3900, 1024);
    let node = cluster.node(POOL, small, "a");
    cluster.pod(full, node);
    let node = cluster.node(POOL, large, "b");
    cluster.pods(web, node, 3);
    cluster.node(POOL, small, "c");
    let node = cluster.node(POOL, small, "a");
    cluster.pod(full, node);
    cluster.snapshot.nodes[3].drifted = Some(Drift::settled("image"));
    let node = cluster.node(POOL, small, "b");
    cluster.pods(web, node, 1);
    cluster.snapshot.nodes[4].do_not_disrupt = true;
    cluster.node(POOL, small, "b");
    cluster.snapshot.nodes[5].pool = None;
    cluster.snapshot.nodes[5].schedulable = false;
    assert_eq!(
        sentences(&cluster.snapshot),
        [
            "it stays: pod default/pod-000 has no other place (Resources)",
            "it goes: its pods cost less elsewhere",
            // It was empty; it takes what the next one gives up.
            "it stays: pod default/pod-004 has no other place (Resources)",
            "it goes: it is no longer what its pool asks for",
            "it stays: it is annotated `karpenter.sh/do-not-disrupt`",
            "it stays: no pool manages it",
        ]
    );
    // From nine to five nothing goes, and that is said.
    cluster.first_pool().disruption.budgets = vec![at(count(0), "0 9 * * mon-fri", 8 * 3600)];
    let closed = "it stays: budget 1 (`nodes: 0`) of its pool allows 0 nodes to be away at once, 0 are; \
                  the next chance is at 2026-03-02T17:00:00Z";
    assert_eq!(sentences(&cluster.snapshot)[1..4], [closed; 3]);
    let settings = Settings { consolidate: true, ..Settings::default() };
    let verdict = node_verdict(&cluster.snapshot, NodeId(2), &settings);
    assert_eq!(verdict.not_before(), Some(NOON + 5 * 3600));
    assert_eq!(verdict.reasons.iter().filter(|(_, result)| result.is_ok()).count(), 0);
}

#[test]
fn a_node_that_leaves_already_goes_also_without_a_pool() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 4, 16, 100);
    for _ in 0..2 {
        cluster.node(POOL, small, "a");
    }
    cluster.snapshot.nodes[0].state = NodeState::Leaving;
    cluster.snapshot.nodes[1].state = NodeState::Leaving;
    cluster.snapshot.nodes[1].pool = None;
    assert_eq!(sentences(&cluster.snapshot), ["it goes: it is being removed already"; 2]);
    let verdict = node_verdict(&cluster.snapshot, NodeId(1), &Settings::default());
    assert!(verdict.is_disruptable() && verdict.removal.is_none());
}

#[test]
fn a_budget_that_keeps_nodes_which_would_go_together_is_their_reason() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    cluster.instance_type("large", 4, 16, 150);
    let web = cluster.class("web", 1800, 1024);
    for _ in 0..2 {
        let node = cluster.node(POOL, small, "a");
        cluster.pods(web, node, 1);
    }
    let together =
        "it goes: its pods cost less elsewhere, together with another node, and a new node comes in its place";
    assert_eq!(sentences(&cluster.snapshot), [together; 2]);
    cluster.first_pool().disruption.budgets = vec![percent(10)];
    let held = "it stays: budget 1 (`nodes: 10%`) of its pool allows 1 node to be away at once, 0 are; \
                with others at once it would go, as that costs less";
    assert_eq!(sentences(&cluster.snapshot), [held; 2]);
    // Where nothing would be saved either way, the budget is no reason.
    cluster.snapshot.types[1].offerings.iter_mut().for_each(|offering| offering.price *= 2);
    let dear = sentences(&cluster.snapshot);
    assert!(dear.iter().all(|said| said.contains("no other")), "{dear:?}");
}

#[test]
fn a_node_that_has_just_drifted_is_told_that_and_nothing_else() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    let web = cluster.class("web", 1800, 1024);
    let node = cluster.node(POOL, small, "a");
    cluster.pods(web, node, 1);
    cluster.snapshot.nodes[0].drifted = Some(Drift { why: "image".to_owned(), since: Some(NOON - 5) });
    let lately = "it stays: it drifted a moment ago and is left alone until 2026-03-02T12:00:05Z";
    assert_eq!(sentences(&cluster.snapshot), [lately]);
}

#[test]
fn a_drain_that_does_not_go_on_says_what_holds_it() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    let web = cluster.class("web", 500, 1024);
    let node = cluster.node(POOL, small, "a");
    cluster.pods(web, node, 1);
    cluster.snapshot.nodes[0].state = NodeState::Leaving;
    assert_eq!(sentences(&cluster.snapshot), ["it goes: it is being removed already"]);
    cluster.disruption_budget("web", "web", 0);
    let held = "it goes: it is being removed and waits: \
                PodDisruptionBudget default/web allows no eviction of pod default/pod-000 now";
    assert_eq!(sentences(&cluster.snapshot), [held]);
    // Its pods have to leave within a time: nothing holds them for ever.
    cluster.snapshot.nodes[0].ends_in_time = true;
    assert_eq!(sentences(&cluster.snapshot), ["it goes: it is being removed already"]);
}

#[test]
fn what_replaces_a_node_holds_its_pods_in_any_order() {
    // Two nodes of eight cores hold 4 + 4 and 3 + 3 + 2, and nothing else: a scheduler that prefers the node with the most room finds no
    // place for the last one.
    let cluster = |medium: u64| {
        let mut cluster = Cluster::new();
        let huge = cluster.instance_type("huge", 64, 256, 1000);
        cluster.instance_type("small", 8, 32, 100);
        cluster.instance_type("medium", 16, 64, medium);
        let node = cluster.node(POOL, huge, "a");
        for (name, millicores, count) in [("four", 4000, 2), ("three", 3000, 2), ("two", 2000, 1)] {
            let class = cluster.class(name, millicores, 100);
            cluster.pods(class, node, count);
        }
        cluster.snapshot
    };
    assert_eq!(settled_removals(&cluster(210)), ["Underutilized node-000 -> [medium] saves 790"]);
    // Rather three nodes with room to spare than one that costs more.
    let dearer = cluster(400);
    assert_eq!(removals(&dearer, &plan(&dearer).plan), ["Underutilized node-000 -> [small small small] saves 700"]);
}
