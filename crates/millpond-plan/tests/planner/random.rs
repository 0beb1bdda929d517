//! Random clusters: nothing is wrong with their plans.

use millpond_plan::check::{Violation, check, check_rules};
use millpond_plan::model::{Nodes, PodId, PodState, Snapshot};
use millpond_plan::plan::{Outcome, Settings};
use millpond_plan::testing::{Recipe, random_snapshot};

use super::{for_seeds, quick, quick_plan};

fn is_good(seed: u64, recipe: Recipe) -> Result<(), String> {
    let snapshot = recipe.snapshot(seed);
    judge(&snapshot, &quick_plan(&snapshot))
}

fn judge(snapshot: &Snapshot, outcome: &Outcome) -> Result<(), String> {
    tell(&check(snapshot, outcome))
}

/// Consolidation may use a node that a pool of lesser weight needs anyway: its plans are not asked about weights.
fn judge_consolidated(snapshot: &Snapshot, outcome: &Outcome) -> Result<(), String> {
    tell(&check_rules(snapshot, outcome))
}

fn tell(found: &[Violation]) -> Result<(), String> {
    let texts: Vec<String> = found.iter().take(2).map(ToString::to_string).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
}

#[test]
fn plans_of_small_clusters_are_good() {
    for_seeds(0..1500, |seed| is_good(seed, Recipe::everything(4 + seed as usize % 20)));
}

#[test]
fn plans_of_larger_clusters_are_good() {
    for_seeds(10_000..10_400, |seed| is_good(seed, Recipe::everything(30 + seed as usize % 60)));
}

#[test]
fn plans_for_new_nodes_only_are_good() {
    for_seeds(20_000..20_400, |seed| is_good(seed, Recipe { nodes: 0, ..Recipe::everything(40) }));
}

#[test]
fn consolidation_is_good() {
    for_seeds(30_000..30_400, |seed| {
        let recipe = Recipe { nodes: 25, ..Recipe::everything(20 + seed as usize % 40) };
        let mut snapshot = recipe.snapshot(seed);
        for pool in &mut snapshot.pools {
            pool.disruption.budgets[0].nodes = Nodes::Percent(if seed % 3 == 0 { 20 } else { 100 });
        }
        judge_consolidated(&snapshot, &millpond_plan::plan(&snapshot, &Settings { consolidate: true, ..quick() }))
    });
}

#[test]
fn plans_with_buffers_are_good() {
    for_seeds(40_000..40_800, |seed| {
        let recipe = Recipe { buffers: true, ..Recipe::everything(4 + seed as usize % 40) };
        let snapshot = recipe.snapshot(seed);
        let outcome = millpond_plan::plan(&snapshot, &Settings { consolidate: seed % 2 == 0, ..quick() });
        let judge = if seed % 2 == 0 { judge_consolidated } else { judge };
        judge(&snapshot, &outcome)?;
        unseen(&snapshot, &outcome)
    });
}

/// kube-scheduler knows nothing of buffers: without them, pods break no rule where they are.
fn unseen(snapshot: &Snapshot, outcome: &Outcome) -> Result<(), String> {
    let (mut real, mut seen) = (snapshot.clone(), outcome.clone());
    let is_buffer = |pod: &PodId| snapshot.class_of(*pod).is_buffer();
    // Gated, they count for nothing and need no place.
    for (index, pod) in real.pods.iter_mut().enumerate().filter(|(index, _)| is_buffer(&PodId::from(*index))) {
        pod.state = PodState::Gated;
        debug_assert!(snapshot.pods[index].node.is_none(), "a buffer is nowhere");
    }
    seen.plan.placements.retain(|(pod, _)| !is_buffer(pod));
    seen.report.unplaced.retain(|(pod, _)| !is_buffer(pod));
    let rules = |violation: &&Violation| {
        use Violation::{NoDomain, PodAffinity, PodAntiAffinity, Resources, Spread};
        matches!(
            violation,
            NoDomain { .. } | PodAffinity { .. } | PodAntiAffinity { .. } | Resources { .. } | Spread { .. }
        )
    };
    let found = check(&real, &seen);
    found.iter().find(rules).map_or(Ok(()), |violation| Err(format!("without buffers: {violation}")))
}

#[test]
fn the_same_cluster_gives_the_same_bytes() {
    for_seeds(0..200, |seed| {
        let [one, other] = [0; 2].map(|_| format!("{:?}", quick_plan(&random_snapshot(seed, 30))));
        if one == other { Ok(()) } else { Err("two plans differ".to_owned()) }
    });
}
