//! Measuring: a workload, a policy, and how long it takes.

use std::time::{Duration, Instant};

use millpond_plan::model::Snapshot;
use millpond_plan::plan::{Outcome, Settings};

use crate::row::Row;
use crate::{Workload, memory};

/// Plans once to warm up, then `runs` times (at least once) against the clock; the best time counts.
///
/// The clock runs from the snapshot, whose texts are numbers already, to the finished plan with every pod's place,
/// the bound and the report. Making the workload and dropping the plan are not part of it.
pub fn measure(
    workload: &Workload,
    settings: &Settings,
    runs: usize,
    planner: impl Fn(&Snapshot, &Settings) -> Outcome,
) -> (Row, Outcome) {
    let settings = Settings { consolidate: workload.consolidate, ..*settings };
    memory::reset_peak();
    let mut outcome = planner(&workload.snapshot, &settings);
    let mut best = Duration::MAX;
    for _ in 0..runs.max(1) {
        // The result of the last run is dropped before the next one starts, or memory would be counted twice.
        drop(outcome);
        let start = Instant::now();
        outcome = planner(&workload.snapshot, &settings);
        best = best.min(start.elapsed());
    }
    let pods = workload.snapshot.pods.len();
    (Row::new(&workload.name, settings.policy.name(), pods, &outcome.report, best, memory::peak_bytes()), outcome)
}
