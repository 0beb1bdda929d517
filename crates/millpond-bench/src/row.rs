//! A row of the result, and rows as a table.

use std::time::Duration;

use millpond_plan::plan::Report;
use serde::Serialize;

/// The result of one workload and policy. Programs read these keys, so they do not change.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The workload.
    pub name: String,
    /// The policy.
    pub policy: String,
    /// Pods of the workload.
    pub pods: usize,
    /// Nodes when the plan is done.
    pub nodes: usize,
    /// Pods without a place.
    pub unplaced: usize,
    /// Dollars per hour of all nodes when the plan is done.
    pub cost_per_hour: f64,
    /// The lower bound on the cost of any plan; `None` if the policy computes none.
    pub bound: Option<f64>,
    /// `costPerHour / bound − 1`.
    pub gap: Option<f64>,
    /// The best time.
    pub seconds: f64,
    /// Pods by the best time.
    pub pods_per_second: f64,
    /// The peak memory of the process meanwhile, the workload included; `None` where it is not known.
    pub peak_memory_bytes: Option<u64>,
}

impl Row {
    pub(crate) fn new(
        name: &str,
        policy: &str,
        pods: usize,
        report: &Report,
        best: Duration,
        peak_memory_bytes: Option<u64>,
    ) -> Self {
        let dollars = |nanos: u128| nanos as f64 / 1e9;
        // A clock that did not tick between start and end must not lead to a division by zero.
        let seconds = best.as_secs_f64().max(1e-9);
        // A bound of zero for a plan that costs money has no meaning.
        let is_bounded = report.bound > 0 || report.cost_after == 0;
        Self {
            name: name.to_owned(),
            policy: policy.to_owned(),
            pods,
            nodes: report.nodes_after,
            unplaced: report.unplaced.len(),
            cost_per_hour: dollars(report.cost_after),
            bound: is_bounded.then(|| dollars(report.bound)),
            gap: is_bounded.then(|| report.gap()),
            seconds,
            pods_per_second: pods as f64 / seconds,
            peak_memory_bytes,
        }
    }
}

const HEADS: [&str; 11] =
    ["NAME", "POLICY", "PODS", "NODES", "UNPLACED", "COST/H", "BOUND", "GAP", "TIME", "PODS/S", "MEMORY"];

/// Columns that hold words; the others hold numbers.
const WORDS: usize = 2;

/// Rows for people.
pub fn table(rows: &[Row]) -> String {
    let lines: Vec<[String; 11]> = std::iter::once(HEADS.map(str::to_owned)).chain(rows.iter().map(cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let line = |cells: &[String; 11]| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < WORDS { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

fn cells(row: &Row) -> [String; 11] {
    let unknown = || "-".to_owned();
    [
        row.name.clone(),
        row.policy.clone(),
        grouped(row.pods as u128),
        grouped(row.nodes as u128),
        grouped(row.unplaced as u128),
        money(row.cost_per_hour),
        row.bound.map_or_else(unknown, money),
        row.gap.map_or_else(unknown, |gap| format!("{:.2}%", gap * 100.0)),
        time(row.seconds),
        grouped(row.pods_per_second as u128),
        row.peak_memory_bytes.map_or_else(unknown, |bytes| format!("{:.0}MB", bytes as f64 / 1e6)),
    ]
}

fn money(dollars: f64) -> String {
    let cents = (dollars * 100.0).round() as u128;
    format!("${}.{:02}", grouped(cents / 100), cents % 100)
}

/// Three significant digits in the unit that suits.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds >= 1.0 => (seconds, "s"),
        seconds if seconds >= 1e-3 => (seconds * 1e3, "ms"),
        seconds => (seconds * 1e6, "µs"),
    };
    let decimals = if value >= 100.0 { 0 } else { 2 - usize::from(value >= 10.0) };
    format!("{value:.decimals$}{unit}")
}

/// A whole number with its thousands apart.
fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, seconds: f64) -> Row {
        let nanos = |dollars: f64| (dollars * 1e9) as u128;
        let report = Report {
            cost_after: nanos(4_433.23),
            bound: nanos(4_410.05),
            nodes_after: 4_000,
            pods: 20_000,
            ..Report::default()
        };
        Row::new(name, "millpond", 20_000, &report, Duration::from_secs_f64(seconds), Some(12_345_678))
    }

    #[test]
    fn a_table_reads_well() {
        let mut unknown = row("tiny-case-usual", 0.000_012_3);
        unknown.peak_memory_bytes = None;
        insta::assert_snapshot!(table(&[row("karpenter", 0.0314), unknown]), @r"
        NAME              POLICY       PODS   NODES   UNPLACED      COST/H       BOUND     GAP     TIME          PODS/S   MEMORY
        karpenter         millpond   20,000   4,000          0   $4,433.23   $4,410.05   0.53%   31.4ms         636,942     12MB
        tiny-case-usual   millpond   20,000   4,000          0   $4,433.23   $4,410.05   0.53%   12.3µs   1,626,016,260        -
        ");
    }

    #[test]
    fn a_policy_that_states_no_bound_has_no_gap() {
        let report = Report { cost_after: 1, ..Report::default() };
        let row = Row::new("karpenter", "karpenter", 1, &report, Duration::from_secs(1), None);
        assert_eq!((row.bound, row.gap), (None, None));
        let nothing = Row::new("empty", "millpond", 0, &Report::default(), Duration::ZERO, None);
        assert_eq!((nothing.bound, nothing.gap, nothing.pods_per_second), (Some(0.0), Some(0.0), 0.0));
    }

    #[test]
    fn programs_find_the_keys_that_were_promised() {
        let value = serde_json::to_value(row("karpenter", 0.5)).unwrap();
        let keys: std::collections::BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let promised = [
            "name",
            "policy",
            "pods",
            "nodes",
            "unplaced",
            "costPerHour",
            "bound",
            "gap",
            "seconds",
            "podsPerSecond",
            "peakMemoryBytes",
        ];
        assert_eq!(keys, promised.into_iter().collect());
        assert_eq!((&value["podsPerSecond"], &value["peakMemoryBytes"]), (&40_000.0.into(), &12_345_678.into()));
    }

    #[test]
    fn times_have_the_unit_that_suits() {
        let times = [75.0, 1.5, 0.999, 0.1234, 0.01, 0.000_5].map(time);
        assert_eq!(times, ["75.0s", "1.50s", "999ms", "123ms", "10.0ms", "500µs"]);
    }
}
