//! Random clusters: every plan is checked, the same cluster gives the same plan, and planning on the result of a plan
//! comes to an end.

use super::fixture::carried_out;
use crate::check::check;
use crate::model::Snapshot;
use crate::plan::{Outcome, Settings};
use crate::solve;
use crate::testing::{Recipe, random_snapshot};

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
        if !check(&snapshot, &solve::plan(&snapshot, &Settings::default())).is_empty() {
            continue;
        }
        let outcome = plan(&snapshot);
        let found = check(&snapshot, &outcome);
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
