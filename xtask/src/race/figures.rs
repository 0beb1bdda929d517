//! The figures of a race, side by side.

use serde::Serialize;

use crate::karpenter::stack::{CpuSeconds, Engine};

/// Claims created within this many seconds of each other were bought in one round. Karpenter waits a second for more
/// pods before it plans again.
const ROUND_GAP_S: f64 = 0.5;

/// The part of the rival's time that Millpond may take.
const TIME_SHARE: f64 = 1.0 / 3.0;

/// The figures of one run, or the median of several.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub(super) scenario: String,
    pub(super) engine: Engine,
    /// Until all pods ran, or the last node came or went.
    pub(super) seconds: f64,
    pub(super) first_claim_s: Option<f64>,
    pub(super) last_claim_s: Option<f64>,
    pub(super) rounds: usize,
    pub(super) claims: usize,
    pub(super) nodes: usize,
    pub(super) cost_per_hour: f64,
    /// Pods that were evicted so that nodes could go.
    pub(super) moved: usize,
    /// Until then.
    pub(super) cpu_of_parts: CpuSeconds,
    /// Until pods ran that were made anew, on the nodes that were there by then.
    pub(super) again_seconds: Option<f64>,
    /// Of the whole stack, for those.
    pub(super) again_cpu_seconds: Option<f64>,
    pub(super) peak_memory_bytes: u64,
}

impl Figures {
    /// The figures on one line.
    pub(super) fn line(&self) -> String {
        format!(
            "{:.1} s, {} claims in {} rounds, {} nodes, ${:.3}/h",
            self.seconds, self.claims, self.rounds, self.nodes, self.cost_per_hour
        )
    }
}

/// How often nodes were bought, by the times of the claims, in order.
pub(super) fn rounds(claims_s: &[f64]) -> usize {
    usize::from(!claims_s.is_empty()) + claims_s.windows(2).filter(|pair| pair[1] - pair[0] > ROUND_GAP_S).count()
}

/// The run in the middle, by time.
pub(super) fn median(mut runs: Vec<Figures>) -> Option<Figures> {
    runs.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let middle = runs.len().checked_sub(1)? / 2;
    Some(runs.swap_remove(middle))
}

/// A table with a column for each engine, and the ratio of the first to the
/// second.
pub(super) fn page(title: &str, engines: &[Figures]) -> String {
    let ratio = |figure: &dyn Fn(&Figures) -> f64| match engines {
        [ours, theirs] if figure(theirs) > 0.0 => format!("{:.2}", figure(ours) / figure(theirs)),
        _ => String::new(),
    };
    let row = |name: &str, cell: &dyn Fn(&Figures) -> String, ratio: String| {
        let mut row = vec![name.to_owned()];
        row.extend(engines.iter().map(cell));
        row.push(ratio);
        row
    };
    let moment = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1} s"));
    let settled = engines.iter().any(|figures| figures.scenario == "scale-down");
    let mut rows = vec![
        row("", &|figures| figures.engine.name().to_owned(), String::new()),
        row(
            if settled { "settled after" } else { "all pods run after" },
            &|figures| format!("{:.1} s", figures.seconds),
            ratio(&|figures| figures.seconds),
        ),
        row("first claim", &|figures| moment(figures.first_claim_s), String::new()),
        row("last claim", &|figures| moment(figures.last_claim_s), String::new()),
        row("rounds of claims", &|figures| figures.rounds.to_string(), String::new()),
        row("claims", &|figures| figures.claims.to_string(), String::new()),
        row("nodes", &|figures| figures.nodes.to_string(), ratio(&|figures| figures.nodes as f64)),
        row(
            "cost per hour",
            &|figures| format!("${:.3}", figures.cost_per_hour),
            ratio(&|figures| figures.cost_per_hour),
        ),
    ];
    if settled {
        rows.push(row("pods moved", &|figures| figures.moved.to_string(), ratio(&|figures| figures.moved as f64)));
    }
    rows.push(row(
        "CPU of all parts",
        &|figures| format!("{:.1} s", figures.cpu_of_parts.total()),
        ratio(&|figures| figures.cpu_of_parts.total()),
    ));
    for part in engines.iter().take(1).flat_map(|figures| figures.cpu_of_parts.0.keys()) {
        let used = |figures: &Figures| figures.cpu_of_parts.0.get(part).copied().unwrap_or(0.0);
        rows.push(row(&format!("  {part}"), &|figures| format!("{:.1} s", used(figures)), ratio(&used)));
    }
    if engines.iter().any(|figures| figures.again_seconds.is_some()) {
        rows.push(row("with nodes there already", &|figures| moment(figures.again_seconds), String::new()));
        // Below nothing where the second run was the slower one: two runs differ by more than an engine takes.
        let added = |figures: &Figures| figures.again_seconds.map(|stack| figures.seconds - stack);
        rows.push(row("  so nodes took", &|figures| moment(added(figures)), String::new()));
        rows.push(row("CPU of all parts then", &|figures| moment(figures.again_cpu_seconds), String::new()));
    }
    rows.push(row(
        "peak memory",
        &|figures| format!("{:.0} MB", figures.peak_memory_bytes as f64 / 1e6),
        ratio(&|figures| figures.peak_memory_bytes as f64),
    ));
    format!("{title}\n{}", aligned(&rows))
}

/// The first column to the left, all others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], width(0));
        for (column, cell) in row.iter().enumerate().skip(1) {
            line = format!("{line}   {cell:>0$}", width(column));
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Where Millpond is the worse one. Times are for people to judge, unless
/// asked for: a busy machine changes them.
pub(super) fn complaints(engines: &[Figures], check_time: bool) -> Vec<String> {
    let of = |engine: Engine| engines.iter().find(|figures| figures.engine == engine);
    let (Some(ours), Some(theirs)) = (of(Engine::Millpond), of(Engine::Karpenter)) else { return Vec::new() };
    let mut complaints = Vec::new();
    if ours.cost_per_hour > theirs.cost_per_hour * (1.0 + 1e-9) {
        let costs = format!("${:.4} an hour, and Karpenter's ${:.4}", ours.cost_per_hour, theirs.cost_per_hour);
        complaints.push(format!("{}: the nodes cost {costs}", ours.scenario));
    }
    if ours.rounds > 1 && ours.scenario != "scale-down" {
        complaints.push(format!("{}: nodes came in {} rounds", ours.scenario, ours.rounds));
    }
    if check_time && ours.seconds > theirs.seconds * TIME_SHARE {
        let times = format!("{:.1} s, and Karpenter {:.1} s", ours.seconds, theirs.seconds);
        complaints.push(format!("{}: it took {times}", ours.scenario));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(engine: Engine, seconds: f64, cost_per_hour: f64, rounds: usize) -> Figures {
        Figures {
            scenario: "burst".into(),
            engine,
            seconds,
            first_claim_s: Some(0.5),
            last_claim_s: Some(1.0),
            rounds,
            claims: 8,
            nodes: 8,
            cost_per_hour,
            moved: 0,
            cpu_of_parts: CpuSeconds([("engine".to_owned(), 2.0), ("etcd".to_owned(), 38.0)].into()),
            again_seconds: None,
            again_cpu_seconds: None,
            peak_memory_bytes: 100_000_000,
        }
    }

    #[test]
    fn rounds_are_separated_by_gaps() {
        assert_eq!(rounds(&[]), 0);
        assert_eq!(rounds(&[1.0, 1.1, 1.5]), 1);
        assert_eq!(rounds(&[1.0, 1.1, 2.5, 2.6, 9.0]), 3);
    }

    #[test]
    fn the_page_has_both_and_the_ratios() {
        let both = [figures(Engine::Millpond, 8.0, 20.0, 1), figures(Engine::Karpenter, 32.0, 25.0, 2)];
        let expected = "\
burst
                     millpond   karpenter
all pods run after      8.0 s      32.0 s   0.25
first claim             0.5 s       0.5 s
last claim              1.0 s       1.0 s
rounds of claims            1           2
claims                      8           8
nodes                       8           8   1.00
cost per hour         $20.000     $25.000   0.80
CPU of all parts       40.0 s      40.0 s   1.00
  engine                2.0 s       2.0 s   1.00
  etcd                 38.0 s      38.0 s   1.00
peak memory            100 MB      100 MB   1.00
";
        assert_eq!(page("burst", &both), expected);
        assert_eq!(complaints(&both, true), [""; 0]);
    }

    #[test]
    fn what_the_stack_takes_by_itself_is_distinguished() {
        let again = |engine, seconds, stack| Figures { again_seconds: Some(stack), ..figures(engine, seconds, 1.0, 1) };
        let page = page("burst", &[again(Engine::Millpond, 8.0, 6.5), again(Engine::Karpenter, 32.0, 7.0)]);
        let told: Vec<&str> = page.lines().filter(|line| line.contains("nodes took")).collect();
        assert_eq!(told, ["  so nodes took               1.5 s      25.0 s"]);
    }

    #[test]
    fn the_worse_one_is_reported() {
        let both = [figures(Engine::Millpond, 20.0, 26.0, 2), figures(Engine::Karpenter, 32.0, 25.0, 2)];
        assert_eq!(complaints(&both, false).len(), 2);
        assert_eq!(complaints(&both, true).len(), 3);
        assert_eq!(complaints(&both[..1], true), [""; 0]);
    }

    #[test]
    fn the_median_is_the_run_in_the_middle() {
        let runs = [9.0, 1.0, 5.0].map(|seconds| figures(Engine::Millpond, seconds, 1.0, 1));
        assert_eq!(median(runs.to_vec()).map(|run| run.seconds), Some(5.0));
    }
}
