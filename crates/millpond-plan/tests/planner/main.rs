//! The planner against its oracles: the checker on random clusters, brute force on tiny ones, and itself on the same
//! cluster told in another order.
//!
//! A failure names its seed; `Recipe::snapshot(seed)` makes the cluster again.

mod brute;
mod orders;
mod random;
mod weights;

use millpond_plan::model::Snapshot;
use millpond_plan::pack::Budget;
use millpond_plan::plan::{Outcome, Settings};

/// Little work: the rules hold whatever the work.
fn quick() -> Settings {
    Settings { budget: Budget { evaluations: 200, threads: 1 }, ..Settings::default() }
}

fn quick_plan(snapshot: &Snapshot) -> Outcome {
    millpond_plan::plan(snapshot, &quick())
}

/// Runs a test for every seed and tells of all that fail, not just the first.
fn for_seeds(seeds: std::ops::Range<u64>, test: impl Fn(u64) -> Result<(), String>) {
    let failures: Vec<String> =
        seeds.clone().filter_map(|seed| test(seed).err().map(|failure| format!("seed {seed}: {failure}"))).collect();
    let shown: Vec<&str> = failures.iter().take(40).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} of {} seeds fail\n{}", failures.len(), seeds.count(), shown.join("\n"));
}
