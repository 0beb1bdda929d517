//! Two rows side by side.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// A row of `millpond bench -o json`; engines that give no bound leave it empty.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) pods: usize,
    pub(super) nodes: usize,
    pub(super) unplaced: usize,
    pub(super) cost_per_hour: f64,
    pub(super) bound: Option<f64>,
    pub(super) gap: Option<f64>,
    pub(super) seconds: f64,
    pub(super) pods_per_second: f64,
    pub(super) peak_memory_bytes: Option<u64>,
}

/// Both, with the ratio of each figure.
pub(super) fn page(ours: &Row, theirs: &Row) -> String {
    let count = |figure: usize| figure as f64;
    let memory = |row: &Row| row.peak_memory_bytes.map(|bytes| bytes as f64 / 1e6);
    let known = |value: Option<f64>, render: &dyn Fn(f64) -> String| value.map_or_else(|| "-".to_owned(), render);
    let megabytes = |value: f64| format!("{value:.0} MB");
    let of = |part: Option<f64>, whole: Option<f64>| match (part, whole) {
        (Some(part), Some(whole)) if whole > 0.0 => format!("{:.2}", part / whole),
        _ => "-".to_owned(),
    };
    let lines = [
        [format!("{}, {} pods", ours.name, ours.pods), ours.policy.clone(), theirs.policy.clone(), "ratio".into()],
        [
            "time".into(),
            time(ours.seconds),
            time(theirs.seconds),
            format!("{:.0} times as fast", theirs.seconds / ours.seconds.max(1e-9)),
        ],
        [
            "nodes".into(),
            ours.nodes.to_string(),
            theirs.nodes.to_string(),
            of(Some(count(ours.nodes)), Some(count(theirs.nodes))),
        ],
        [
            "cost per hour".into(),
            format!("${:.2}", ours.cost_per_hour),
            format!("${:.2}", theirs.cost_per_hour),
            of(Some(ours.cost_per_hour), Some(theirs.cost_per_hour)),
        ],
        [
            "at least".into(),
            known(ours.bound, &|bound| format!("${bound:.2}")),
            known(theirs.bound, &|bound| format!("${bound:.2}")),
            String::new(),
        ],
        ["unplaced".into(), ours.unplaced.to_string(), theirs.unplaced.to_string(), String::new()],
        [
            "peak memory".into(),
            known(memory(ours), &megabytes),
            known(memory(theirs), &megabytes),
            of(memory(ours), memory(theirs)),
        ],
    ];
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let line = |cells: &[String; 4]| {
        let [name, ours, theirs, ratio] = cells;
        let text = format!("{name:<0$}   {ours:>1$}   {theirs:>2$}   {ratio}", widths[0], widths[1], widths[2]);
        text.trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

fn time(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.2} ms", seconds * 1e3) }
}

/// Times are for people to judge; a plan that leaves more pods out, or costs more, is a defect.
pub(super) fn ensure_no_worse(ours: &Row, theirs: &Row) -> Result<()> {
    ensure!(ours.pods == theirs.pods, "{}: {} and {} pods were planned", ours.name, ours.pods, theirs.pods);
    ensure!(
        ours.unplaced <= theirs.unplaced,
        "{}: {} pods have no place, and {} by {}",
        ours.name,
        ours.unplaced,
        theirs.unplaced,
        theirs.policy
    );
    // Where more pods are placed, more may be paid.
    ensure!(
        ours.unplaced < theirs.unplaced || ours.cost_per_hour <= theirs.cost_per_hour * (1.0 + 1e-9),
        "{}: the plan costs ${:.4} an hour, and ${:.4} by {}",
        ours.name,
        ours.cost_per_hour,
        theirs.cost_per_hour,
        theirs.policy
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, unplaced: usize, cost_per_hour: f64, seconds: f64) -> Row {
        Row {
            name: "karpenter".into(),
            policy: policy.into(),
            pods: 1000,
            nodes: 200,
            unplaced,
            cost_per_hour,
            bound: (policy == "millpond").then_some(215.0),
            gap: None,
            seconds,
            pods_per_second: 1000.0 / seconds,
            peak_memory_bytes: Some(50_000_000),
        }
    }

    #[test]
    fn a_page_has_both_and_the_ratios() {
        let page = page(&row("millpond", 0, 217.5, 0.002), &row("karpenter@v1", 0, 348.0, 2.4));
        let expected = "\
karpenter, 1000 pods   millpond   karpenter@v1   ratio
time                    2.00 ms         2.40 s   1200 times as fast
nodes                       200            200   1.00
cost per hour           $217.50        $348.00   0.62
at least                $215.00              -
unplaced                      0              0
peak memory               50 MB          50 MB   1.00
";
        assert_eq!(page, expected);
    }

    #[test]
    fn worse_plans_fail() {
        let theirs = row("karpenter@v1", 1, 100.0, 1.0);
        let judge = |unplaced, cost| ensure_no_worse(&row("millpond", unplaced, cost, 9.0), &theirs).is_ok();
        assert!(judge(1, 100.0));
        assert!(judge(0, 120.0));
        assert!(!judge(1, 100.1));
        assert!(!judge(2, 90.0));
    }
}
