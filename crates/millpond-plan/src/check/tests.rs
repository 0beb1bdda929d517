//! A good plan passes; every way to break it is noticed.

use super::*;
use crate::testing::{random_snapshot, simple_plan};

#[test]
fn plain_plans_of_random_clusters_are_good() {
    let (mut placed, mut bought) = (0, 0);
    for seed in 0..300 {
        let snapshot = random_snapshot(seed, 8 + seed as usize % 30);
        let outcome = simple_plan(&snapshot);
        (placed, bought) = (placed + outcome.plan.placements.len(), bought + outcome.plan.new_nodes.len());
        let found = check(&snapshot, &outcome);
        assert!(found.is_empty(), "seed {seed}: {}", found[0]);
    }
    assert!(placed > 1500 && bought > 400, "{placed} pods were placed, {bought} nodes bought");
}
