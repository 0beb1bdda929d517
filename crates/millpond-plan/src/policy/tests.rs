//! The examples of the references, and that every plan is one that kube-scheduler would carry out.

use super::plan;
use crate::check::{Violation, check_rules};
use crate::cluster_state::{ClusterState, NodeSlotId};
use crate::market::{Market, Usage};
use crate::model::{CapacityType, PodId, Snapshot};
use crate::plan::{Outcome, Policy, Rule, Settings, Target};
use crate::testing::{Cluster, Recipe};

const OTHERS: [Policy; 3] = [Policy::Karpenter, Policy::ClusterAutoscaler, Policy::ScalingAdvisor];

fn by(policy: Policy, snapshot: &Snapshot) -> Outcome {
    plan(snapshot, &Settings { policy, ..Settings::default() }).expect("a policy of others")
}

/// `pool/type/zone` of what is bought, sorted, each with its number.
fn bought(snapshot: &Snapshot, outcome: &Outcome) -> Vec<String> {
    let mut counted = std::collections::BTreeMap::new();
    for node in &outcome.plan.new_nodes {
        let kind = &snapshot.types[node.instance_type.index()];
        let zone = snapshot.text(kind.offerings[node.offering as usize].zone);
        let name = format!("{}/{}/{zone}", snapshot.pools[node.pool.index()].name, snapshot.text(kind.name));
        *counted.entry(name).or_insert(0) += 1;
    }
    counted.into_iter().map(|(name, count)| format!("{count}×{name}")).collect()
}

/// Carries a plan out on a cluster of its own; pods with rules between pods first, as far as they can be placed.
fn assert_valid(snapshot: &Snapshot, outcome: &Outcome, what: &str) {
    let market = Market::new(snapshot);
    let mut cluster = ClusterState::new(snapshot, &market);
    let mut usage = Usage::by_pool(snapshot);
    for node in &outcome.plan.new_nodes {
        let same = |offer: &crate::market::Offer| {
            (offer.pool, offer.instance_type, offer.offering) == (node.pool, node.instance_type, node.offering)
                && offer.labels == node.labels
        };
        let offer = market.offers().iter().position(same).expect("what is bought is on offer");
        assert!(market.offer(offer).available, "{what}: bought what is out of stock");
        usage[node.pool.index()].add(&snapshot.types[node.instance_type.index()].capacity, node.price);
        cluster.open(offer);
    }
    let before = Usage::by_pool(snapshot);
    for ((pool, usage), before) in snapshot.pools.iter().zip(&usage).zip(&before) {
        let within = |now: i64, limit: i64, before: i64| now == before || now <= limit;
        for &(resource, limit) in &pool.limits.resources {
            let (now, before) = (usage.capacity.get(resource), before.capacity.get(resource));
            assert!(within(now, limit, before), "{what}: over a limit");
        }
        let nodes = |usage: &Usage| usage.nodes as i64;
        let limit = pool.limits.nodes.map_or(i64::MAX, |limit| limit as i64);
        assert!(within(nodes(usage), limit, nodes(before)), "{what}: too many nodes");
    }
    let spot = |target: Target| match target {
        Target::Existing(node) => NodeSlotId(node.0),
        Target::New(number) => NodeSlotId(snapshot.nodes.len() as u32 + number),
    };
    let mut waiting = outcome.plan.placements.clone();
    waiting.sort_by_key(|(pod, _)| {
        let class = snapshot.class_of(*pod);
        let ruled = !class.affinity.is_empty() || !class.anti_affinity.is_empty() || !class.spread.is_empty();
        (!ruled, *pod)
    });
    loop {
        let before = waiting.len();
        waiting.retain(|&(pod, target)| {
            let class = snapshot.pods[pod.index()].class;
            let fits = cluster.check(class, spot(target)).is_ok();
            if fits {
                cluster.place(class, spot(target), 1);
            }
            !fits
        });
        if waiting.is_empty() || waiting.len() == before {
            break;
        }
    }
    // A spread is asked about when a pod comes: nodes that came later, with zones of their own, were not there yet.
    for &(pod, target) in &waiting {
        let rule = cluster.check(snapshot.pods[pod.index()].class, spot(target));
        assert_eq!(rule, Err(Rule::TopologySpread), "{what}: {} on {target:?}", snapshot.pod_name(pod));
    }
    assert_eq!(outcome.plan.placements.len() + outcome.report.unplaced.len(), outcome.report.pods, "{what}");
}

#[test]
fn scaling_advisor_buys_two_small_nodes_where_one_large_is_cheaper() {
    let snapshot = Cluster::new()
        .machine("half", "cpu=4 memory=16Gi", |machine| machine.price(72_000))
        .machine("whole", "cpu=8 memory=32Gi", |machine| machine.price(120_000))
        .pool("general", |pool| pool)
        .pods(3, "web", "cpu=2 memory=8Gi", |pod| pod)
        .snapshot();
    let outcome = by(Policy::ScalingAdvisor, &snapshot);
    assert_eq!(bought(&snapshot, &outcome), ["2×general/half/a"]);
    assert_eq!(outcome.report.cost_after, 144_000_000_000);
    let karpenter = by(Policy::Karpenter, &snapshot);
    assert_eq!(bought(&snapshot, &karpenter), ["1×general/whole/a"]);
}

#[test]
fn scaling_advisor_prefers_the_larger_of_equal_scores_and_counts_gpus() {
    let snapshot = Cluster::new()
        .machine("one", "cpu=2 memory=4Gi", |machine| machine.price(100))
        .machine("two", "cpu=4 memory=8Gi", |machine| machine.price(200))
        .machine("gpu", "cpu=2 memory=4Gi nvidia.com/gpu=1", |machine| machine.price(150))
        .pool("general", |pool| pool)
        .pods(2, "web", "cpu=2 memory=4Gi", |pod| pod)
        .snapshot();
    assert_eq!(bought(&snapshot, &by(Policy::ScalingAdvisor, &snapshot)), ["1×general/two/a"]);
    let snapshot = Cluster::new()
        .machine("plain", "cpu=4 memory=8Gi", |machine| machine.price(200))
        .machine("gpu", "cpu=2 memory=4Gi nvidia.com/gpu=1", |machine| machine.price(150))
        .pool("general", |pool| pool)
        .pod("a-web", "cpu=4 memory=8Gi", |pod| pod)
        .pod("b-train", "cpu=1 memory=1Gi nvidia.com/gpu=1", |pod| pod)
        .snapshot();
    let outcome = by(Policy::ScalingAdvisor, &snapshot);
    // (9·1 + 1 + 20) / 0.15 = 200 against (9·4 + 8) / 0.2 = 220: the plain node first.
    assert_eq!(snapshot.text(snapshot.types[outcome.plan.new_nodes[0].instance_type.index()].name), "plain");
    assert!(outcome.report.unplaced.is_empty());
}

#[test]
fn cluster_autoscaler_needs_2595_nodes_for_the_two_shapes_of_its_benchmark() {
    let snapshot = Cluster::new()
        .machine("node", "cpu=1 memory=1Gi", |machine| machine)
        .pool("group", |pool| pool)
        .pods(50_000, "small", "cpu=50m", |pod| pod)
        .pods(1_000, "large", "cpu=95m", |pod| pod)
        .snapshot();
    let outcome = by(Policy::ClusterAutoscaler, &snapshot);
    assert_eq!((outcome.plan.new_nodes.len(), outcome.report.unplaced.len()), (2_595, 0));
}

#[test]
fn cluster_autoscaler_wastes_least_and_breaks_ties_by_cost() {
    let snapshot = Cluster::new()
        .machine("roomy", "cpu=8 memory=8Gi", |machine| machine.price(10))
        .machine("tight", "cpu=4 memory=4Gi", |machine| machine.price(90).spot(30))
        .pool("general", |pool| pool)
        .pods(1, "web", "cpu=4 memory=4Gi", |pod| pod)
        .snapshot();
    let outcome = by(Policy::ClusterAutoscaler, &snapshot);
    assert_eq!(bought(&snapshot, &outcome), ["1×general/tight/a"]);
    assert_eq!(outcome.report.cost_after, 30_000_000);
}

#[test]
fn cluster_autoscaler_goes_one_zone_at_a_time_under_spread() {
    let snapshot = Cluster::new()
        .machine("node", "cpu=4 memory=4Gi", |machine| machine.zones("a b c"))
        .pool("group", |pool| pool)
        .pods(6, "web", "cpu=1", |pod| pod.spread("zone", 1))
        .snapshot();
    let outcome = by(Policy::ClusterAutoscaler, &snapshot);
    assert_valid(&snapshot, &outcome, "spread");
    assert!(outcome.report.unplaced.is_empty());
}

#[test]
fn karpenter_narrows_a_claim_with_every_pod() {
    let cluster = |pods| {
        let snapshot = Cluster::new()
            .machine("small", "cpu=2 memory=8Gi", |machine| machine.price(20))
            .machine("medium", "cpu=4 memory=8Gi", |machine| machine.price(50))
            .machine("large", "cpu=8 memory=8Gi", |machine| machine.price(120))
            .pool("general", |pool| pool)
            .pods(pods, "web", "cpu=2", |pod| pod)
            .snapshot();
        bought(&snapshot, &by(Policy::Karpenter, &snapshot))
    };
    assert_eq!(cluster(1), ["1×general/small/a"]);
    // Two small nodes would cost 40.
    assert_eq!(cluster(2), ["1×general/medium/a"]);
    assert_eq!(cluster(3), ["1×general/large/a"]);
    assert_eq!(cluster(5), ["1×general/large/a", "1×general/small/a"]);
}

#[test]
fn karpenter_takes_pools_by_weight_then_by_name_descending() {
    let cluster = |first: i32, second: i32| {
        let snapshot = Cluster::new()
            .machine("cheap", "cpu=4", |machine| machine.price(10))
            .machine("dear", "cpu=4", |machine| machine.price(90))
            .pool("a", |pool| pool.machines("cheap").weight(first))
            .pool("b", |pool| pool.machines("dear").weight(second))
            .pod("web", "cpu=1", |pod| pod)
            .snapshot();
        bought(&snapshot, &by(Policy::Karpenter, &snapshot))
    };
    assert_eq!(cluster(1, 2), ["1×b/dear/a"]);
    assert_eq!(cluster(2, 1), ["1×a/cheap/a"]);
    assert_eq!(cluster(1, 1), ["1×b/dear/a"]);
}

#[test]
fn karpenter_counts_a_claim_as_its_largest_type_until_the_round_is_over() {
    let snapshot = Cluster::new()
        .machine("small", "cpu=2", |machine| machine.price(20))
        .machine("large", "cpu=8", |machine| machine.price(80))
        .pool("general", |pool| pool.limit("cpu=10"))
        .pods(3, "web", "cpu=2", |pod| pod.apart("host", "app in web"))
        .snapshot();
    let outcome = by(Policy::Karpenter, &snapshot);
    // The first round has one claim of up to 8 cpu and one of the small type; they become small, and the next
    // round has room for the third.
    assert_eq!(bought(&snapshot, &outcome), ["3×general/small/a"]);
}

#[test]
fn karpenter_requires_what_pods_like_and_gives_in_one_by_one() {
    let snapshot = Cluster::new()
        .machine("node", "cpu=4", |machine| machine.zones("a b").price(10))
        .machine("arm", "cpu=4", |machine| machine.zones("a b").price(50).label("arch in arm64"))
        .pool("general", |pool| pool)
        .pod("likes-arm", "cpu=4", |pod| pod.prefers(1, "arch in arm64"))
        .pod("likes-the-moon", "cpu=4", |pod| pod.prefers(9, "zone in moon").prefers(1, "zone in b"))
        .snapshot();
    let outcome = by(Policy::Karpenter, &snapshot);
    assert_eq!(bought(&snapshot, &outcome), ["1×general/arm/a", "1×general/node/b"]);
}

#[test]
fn karpenter_spreads_preference_pods_over_hosts_at_any_price() {
    let snapshot = Cluster::new()
        .machine("small", "cpu=2", |machine| machine.zones("a b c").price(20))
        .machine("large", "cpu=16", |machine| machine.zones("a b c").price(100))
        .pool("general", |pool| pool)
        .pods(6, "web", "cpu=1", |pod| {
            pod.prefers(1, "zone in a").likes(-10, "zone", "app in web").likes(-1, "host", "app in web")
        })
        .snapshot();
    let outcome = by(Policy::Karpenter, &snapshot);
    assert_eq!(outcome.plan.new_nodes.len(), 6);
    assert!(outcome.report.unplaced.is_empty());
}

#[test]
fn karpenter_fills_nodes_that_are_there_then_claims_with_the_fewest_pods() {
    let snapshot = Cluster::new()
        .machine("node", "cpu=4", |machine| machine.zones("a b").price(10))
        .pool("general", |pool| pool)
        .node("starting", "node", |node| node.pool("general").starting())
        .node("running", "node", |node| node.pool("general"))
        .pods(2, "big", "cpu=3", |pod| pod)
        .pods(2, "spread", "cpu=2", |pod| pod.apart("host", "app in spread"))
        .pods(2, "tiny", "cpu=1", |pod| pod)
        .snapshot();
    let outcome = by(Policy::Karpenter, &snapshot);
    let on = |pod: &str| outcome.plan.target(snapshot.find_pod(pod).expect("there")).expect("placed");
    assert_eq!(on("default/big-0"), Target::Existing(snapshot.find_node("running").expect("there")));
    assert_eq!(on("default/big-1"), Target::Existing(snapshot.find_node("starting").expect("there")));
    assert_eq!((on("default/spread-0"), on("default/spread-1")), (Target::New(0), Target::New(1)));
    assert_eq!(on("default/tiny-0"), Target::Existing(snapshot.find_node("running").expect("there")));
}

#[test]
fn what_cannot_be_placed_has_a_verdict_by_every_policy() {
    let snapshot = Cluster::new()
        .machine("node", "cpu=4 memory=8Gi", |machine| machine.out_of_stock("a", CapacityType::Spot).spot(1))
        .pool("general", |pool| pool.limit("nodes=1"))
        .pod("fits", "cpu=4", |pod| pod)
        .pod("huge", "cpu=64", |pod| pod)
        .pod("later", "cpu=4", |pod| pod)
        .snapshot();
    for policy in OTHERS {
        let outcome = by(policy, &snapshot);
        let rules: Vec<Rule> = outcome
            .report
            .unplaced
            .iter()
            .map(|(_, verdict)| outcome.report.verdicts[*verdict as usize].rule)
            .collect();
        assert_eq!(rules, [Rule::Resources, Rule::PoolLimit], "{policy:?}");
        assert_valid(&snapshot, &outcome, policy.name());
    }
}

#[test]
fn every_plan_of_random_clusters_can_be_carried_out() {
    for seed in 0..60 {
        let snapshot = Recipe::everything(24).snapshot(seed);
        for policy in OTHERS {
            let outcome = by(policy, &snapshot);
            assert_valid(&snapshot, &outcome, &format!("{} seed {seed}", policy.name()));
            // Others ask about a spread when a pod comes, not about the end; and only Karpenter knows `minValues`.
            let karpenter = policy == Policy::Karpenter;
            let ours = |one: &Violation| match one {
                Violation::Spread { .. } => false,
                Violation::MinValues { .. } => karpenter,
                _ => true,
            };
            let found: Vec<Violation> = check_rules(&snapshot, &outcome).into_iter().filter(ours).collect();
            assert_eq!(found, [], "{} seed {seed}", policy.name());
            assert_eq!(by(policy, &snapshot), outcome, "{} seed {seed}: not the same twice", policy.name());
        }
    }
}

#[test]
fn pods_that_need_no_place_are_left_alone() {
    let snapshot = Cluster::new()
        .machine("node", "cpu=4", |machine| machine)
        .pool("general", |pool| pool)
        .node("one", "node", |node| node.pool("general"))
        .pod("runs", "cpu=1", |pod| pod.on("one"))
        .snapshot();
    for policy in OTHERS {
        let outcome = by(policy, &snapshot);
        assert_eq!((outcome.plan.placements.len(), outcome.report.pods), (0, 0));
        assert_eq!(outcome.plan.target(PodId(0)), None);
    }
}
