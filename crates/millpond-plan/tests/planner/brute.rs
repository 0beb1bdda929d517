//! Tiny clusters: no plan is cheaper, and no bound is above the cheapest plan.

use millpond_plan::check::check;
use millpond_plan::model::{NodeState, Snapshot};
use millpond_plan::plan::{Outcome, Settings, Target};
use millpond_plan::testing::{Cheapest, Recipe, cheapest};

use super::for_seeds;

/// What nodes that stay cost, whatever is bought.
fn staying(snapshot: &Snapshot) -> u128 {
    let staying = snapshot.nodes.iter().filter(|node| node.state != NodeState::Leaving);
    staying.map(|node| u128::from(node.price.unwrap_or(0))).sum()
}

fn compare(snapshot: &Snapshot, outcome: &Outcome, exactly: bool) -> Result<(), String> {
    if let Some(violation) = check(snapshot, outcome).first() {
        return Err(violation.to_string());
    }
    let best = cheapest(snapshot);
    // Nodes that no pod needs are there for pools that want some.
    let used = |number: usize| outcome.plan.placements.iter().any(|(_, target)| *target == Target::New(number as u32));
    let nodes = outcome.plan.new_nodes.iter().enumerate().filter(|(number, _)| used(*number));
    let cost = nodes.map(|(_, node)| u128::from(node.price)).sum();
    let staying = staying(snapshot);
    let report = &outcome.report;
    let made = Cheapest { unplaced: report.unplaced.len(), cost };
    if made < best {
        return Err(format!("{made:?} is better than brute force: {best:?}"));
    }
    if exactly && made != best {
        return Err(format!("{made:?}, brute force finds {best:?}"));
    }
    if made.unplaced == best.unplaced && report.bound > staying + best.cost {
        return Err(format!("the bound {} is above {}", report.bound, staying + best.cost));
    }
    Ok(())
}

fn planned(snapshot: &Snapshot) -> Outcome {
    millpond_plan::plan(snapshot, &Settings::default())
}

/// Resources, node affinity, taints, ports, daemons, stock and one-per-host on new nodes: the cheapest plan.
#[test]
fn tiny_plans_are_the_cheapest() {
    for_seeds(0..300, |seed| {
        let snapshot = Recipe { pods: 1 + seed as usize % 6, ..Recipe::tiny() }.snapshot(seed);
        compare(&snapshot, &planned(&snapshot), true)
    });
}

/// With spread and affinity between pods: never below the cheapest, and neither is the bound above it.
#[test]
fn no_plan_is_below_the_cheapest() {
    for_seeds(1000..1200, |seed| {
        let recipe = Recipe { pods: 1 + seed as usize % 5, spread: true, affinity: true, types: 3, ..Recipe::tiny() };
        let snapshot = recipe.snapshot(seed);
        compare(&snapshot, &planned(&snapshot), false)
    });
}

/// With existing nodes and limits.
#[test]
fn no_plan_with_nodes_is_below_the_cheapest() {
    for_seeds(2000..2150, |seed| {
        let recipe = Recipe { pods: 2 + seed as usize % 4, nodes: 2, limits: true, types: 3, ..Recipe::tiny() };
        let snapshot = recipe.snapshot(seed);
        compare(&snapshot, &planned(&snapshot), false)
    });
}
