//! One scenario by every policy, side by side.

use std::time::Instant;

use millpond_plan::model::Snapshot;
use millpond_plan::plan::{Outcome, Policy, Settings};
use serde::Serialize;

use super::text::time;
use super::{Output, verify};
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml};
use millpond_view::plan::dollars;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    policy: &'static str,
    cost_per_hour: f64,
    nodes: usize,
    placed: usize,
    unplaced: usize,
    /// Gap to the bound that Millpond proved; `None` if other pods are placed than the bound covers.
    gap: Option<f64>,
    seconds: f64,
}

pub(super) fn run(snapshot: &Snapshot, settings: Settings, check: bool, output: Output) -> anyhow::Result<String> {
    let mut outcomes: Vec<(Policy, Outcome, f64)> = Vec::new();
    for policy in Policy::ALL {
        let start = Instant::now();
        let outcome = millpond_plan::plan(snapshot, &Settings { policy, ..settings });
        let seconds = start.elapsed().as_secs_f64();
        if check {
            verify(snapshot, &outcome, &Settings { policy, ..settings })?;
        }
        outcomes.push((policy, outcome, seconds));
    }
    let own = outcomes[0].1.report.clone();
    let rows: Vec<Row> = outcomes
        .iter()
        .map(|(policy, outcome, seconds)| {
            let report = &outcome.report;
            let comparable = report.unplaced.iter().map(|(pod, _)| pod).eq(own.unplaced.iter().map(|(pod, _)| pod));
            let gap = comparable.then(|| (report.cost_after as f64 / own.bound.max(1) as f64 - 1.0).max(0.0));
            Row {
                policy: policy.name(),
                cost_per_hour: dollars(report.cost_after),
                nodes: report.nodes_after,
                placed: report.placed(),
                unplaced: report.unplaced.len(),
                gap: gap.filter(|gap| gap.is_finite()),
                seconds: *seconds,
            }
        })
        .collect();
    match output {
        Output::Json => as_json(&rows),
        Output::Yaml => as_yaml(&rows),
        _ => Ok(table(&rows)),
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("POLICY", Side::Left),
        ("$/H", Side::Right),
        ("NODES", Side::Right),
        ("PLACED", Side::Right),
        ("NO PLACE", Side::Right),
        ("ABOVE BOUND", Side::Right),
        ("TIME", Side::Right),
    ]);
    for row in rows {
        table.row(vec![
            row.policy.to_owned(),
            format!("{:.4}", row.cost_per_hour),
            row.nodes.to_string(),
            row.placed.to_string(),
            row.unplaced.to_string(),
            row.gap.map_or_else(|| "-".to_owned(), |gap| format!("{:.2} %", gap * 100.0)),
            time(row.seconds),
        ]);
    }
    table.text() + "\n"
}
