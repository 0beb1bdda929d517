//! Random clusters: every plan is checked, the same cluster gives the same plan, and planning on the result of a plan
//! comes to an end.

use super::fixture::carried_out;
use crate::check::check_rules;
use crate::disruption::{DisruptionBlocker, node_verdict};
use crate::model::{Drift, InclusionPolicy, NodeId, NodeState, PodState, Snapshot, Spread};
use crate::plan::{Outcome, Settings};
use crate::requirement::Requirements;
use crate::solve;
use crate::testing::{Recipe, Rng, random_snapshot};

fn plan(snapshot: &Snapshot) -> Outcome {
    solve::plan(snapshot, &Settings { consolidate: true, ..Settings::default() })
}

#[test]
fn plans_with_removals_are_good() {
    let (mut removals, mut bought) = (0, 0);
    let mut judged = 0;
    for seed in 0..300 {
        let snapshot = random_snapshot(seed, 8 + seed as usize % 40);
        // What is wrong with the plan for pods that wait is for others to judge.
        if !check_rules(&snapshot, &solve::plan(&snapshot, &Settings::default())).is_empty() {
            continue;
        }
        let outcome = plan(&snapshot);
        let found = check_rules(&snapshot, &outcome);
        assert!(found.is_empty(), "seed {seed}: {}", found[0]);
        assert_eq!(outcome, plan(&snapshot), "seed {seed}");
        removals += outcome.plan.removals.len();
        bought += outcome.plan.removals.iter().map(|removal| removal.replacements.len()).sum::<usize>();
        judged += 1;
    }
    assert!(
        judged > 150 && removals > 100 && bought > 10,
        "{judged} plans, {removals} removals, {bought} replacements"
    );
}

#[test]
fn planning_on_the_result_of_a_plan_finds_little_and_ends() {
    let (mut first, mut later) = (0, 0);
    for seed in 0..60 {
        let mut snapshot = Recipe { odd_pods: false, ..Recipe::everything(60) }.snapshot(seed);
        for pool in &mut snapshot.pools {
            pool.disruption.consolidate_after = Some(0);
            pool.disruption.budgets.clear();
            pool.disruption.expire_after = None;
        }
        snapshot.nodes.iter_mut().for_each(|node| node.drifted = None);
        snapshot.disruption_budgets.clear();
        let mut cost = u128::MAX;
        for round in 0.. {
            let outcome = plan(&snapshot);
            let removed = outcome.plan.removals.len();
            if round == 0 {
                first += removed;
            } else {
                later += removed;
            }
            if removed == 0 {
                break;
            }
            assert!(round < 5, "seed {seed} does not come to an end");
            assert!(round == 0 || outcome.report.cost_after < cost, "seed {seed}: round {round} costs more");
            cost = outcome.report.cost_after;
            snapshot = carried_out(&snapshot, &outcome.plan);
        }
    }
    assert!(first > 100 && later * 20 <= first, "{first} removals at first, {later} later");
}

/// A cluster whose nodes have drifted in part, and whose pods are spread over zones by rules that count pods of others,
/// which have come and gone without regard to them.
fn drifted(seed: u64) -> Snapshot {
    let pods = 8 + seed as usize % 40;
    let size = Recipe { pods, groups: 8, types: 8, zones: 3, pools: 1, nodes: pods / 3 + 1, ..Recipe::tiny() };
    let mut snapshot = Recipe { stock: false, selectors: false, taints: false, daemons: false, ..size }.snapshot(seed);
    let mut rng = Rng::new(seed);
    snapshot.pods.retain(|pod| pod.state == PodState::Bound && rng.chance(75));
    snapshot.disruption_budgets.clear();
    for pool in &mut snapshot.pools {
        (pool.disruption.consolidate_after, pool.disruption.expire_after) = (None, None);
        pool.disruption.budgets.clear();
    }
    for node in &mut snapshot.nodes {
        node.state = NodeState::Running;
        node.drifted = rng.chance(80).then(|| Drift::settled("image"));
    }
    let (namespace, zone) = (snapshot.classes[0].namespace, snapshot.names.zone);
    let labels: Vec<_> = snapshot.classes.iter().map(|class| class.labels.clone()).collect();
    for class in &mut snapshot.classes {
        class.namespace = namespace;
        let spread = Spread {
            key: zone,
            max_skew: rng.between(1, 2) as u32,
            min_domains: None,
            hard: true,
            selector: Some(Requirements::of_labels(rng.pick(&labels).iter())),
            node_affinity: InclusionPolicy::Honor,
            node_taints: InclusionPolicy::Ignore,
        };
        class.spread.extend(rng.chance(60).then_some(spread));
    }
    snapshot
}

/// Whether pods of a node would find a place if it left, as pods that wait do.
fn could_leave(snapshot: &Snapshot, node: NodeId) -> bool {
    let mut without = snapshot.clone();
    for other in &mut without.nodes {
        other.schedulable &= other.drifted.is_none() && other.ready && other.initialized.is_some();
    }
    without.nodes[node.index()].state = NodeState::Leaving;
    solve::plan(&without, &Settings::default()).report.unplaced.is_empty()
}

#[test]
fn drifted_nodes_go_if_their_pods_have_any_place() {
    let settings = Settings { consolidate: true, ..Settings::default() };
    let mut bought = 0;
    for seed in 0..600 {
        let mut snapshot = drifted(seed);
        for _ in 0..6 {
            let outcome = plan(&snapshot);
            let found = check_rules(&snapshot, &outcome);
            assert!(found.is_empty(), "seed {seed}: {}", found[0]);
            bought += outcome.plan.new_nodes.len();
            snapshot = carried_out(&snapshot, &outcome.plan);
        }
        for node in (0..snapshot.nodes.len()).map(NodeId::from) {
            if snapshot.nodes[node.index()].drifted.is_some()
                && let Some(DisruptionBlocker::NoPlace(..)) = node_verdict(&snapshot, node, &settings).blocker
            {
                assert!(!could_leave(&snapshot, node), "seed {seed}: {}", snapshot.nodes[node.index()].name);
            }
        }
    }
    assert!(bought > 300, "{bought} nodes were bought");
}
