//! Measures the planner without the rest of the binary, which takes minutes to build.
//!
//! ```text
//! cargo run --release -p millpond-bench --example measure -- scale 10000 100000 [third] [usual] [first|improved]
//! cargo run --release -p millpond-bench --example measure -- mixes [everything …] [full|usual]
//! cargo run --release -p millpond-bench --example measure -- karpenter 500 20000
//! cargo run --release -p millpond-bench --example measure -- consolidate
//! ```
//!
//! The columns are those of `millpond bench`. `RUNS` in the environment says how often each plan is made (3), `SEED`
//! what from; `CHECK` verifies the plans.
#![expect(clippy::print_stdout, reason = "it measures and prints")]

use millpond_bench::workload::scale::Scale;
use millpond_bench::workload::{consolidate, karpenter, mixes, scale};
use millpond_bench::{Families, Row, Workload, measure, table};
use millpond_plan::pack::Budget;
use millpond_plan::plan::Settings;

/// The binary's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|known| known == word);
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let families: Vec<Families> = if has("usual") {
        vec![Families::Usual]
    } else if has("full") || words.first().is_some_and(|word| word == "scale") {
        vec![Families::Full]
    } else {
        Families::ALL.to_vec()
    };
    let budgets = [("-first", Budget::first_plan()), ("", Budget::default())];
    let wanted = |name: &str| !(has("improved") && name == "-first" || has("first") && name.is_empty());
    let mut rows = Vec::new();
    match words.first().map(String::as_str) {
        Some("scale") => {
            for pods in numbers {
                let scale = Scale { pods, third: has("third"), families: families[0], ..Scale::default() };
                let workload = scale::workload(scale, setting("SEED").unwrap_or(scale::SEED));
                for (name, budget) in budgets.into_iter().filter(|(name, _)| wanted(name)) {
                    let named = format!("{}-{pods}{name}", workload.name);
                    rows.push(row(&workload, named, budget));
                }
            }
        }
        Some("mixes") => {
            let named = |mix: &mixes::Mix| has(mix.name);
            let any = mixes::ALL.iter().any(named);
            for families in families {
                for mix in mixes::ALL.iter().filter(|mix| !any || named(mix)) {
                    let workload = mix.workload(families, setting("SEED").unwrap_or(mixes::SEED));
                    let name = workload.name.clone();
                    rows.push(row(&workload, name, Budget::default()));
                }
            }
        }
        Some("consolidate") => {
            let seed = setting("SEED").unwrap_or(consolidate::SEED);
            let workload = consolidate::workload(consolidate::NODES, consolidate::PODS_BOUND, seed);
            let name = workload.name.clone();
            rows.push(row(&workload, name, Budget::default()));
        }
        _ => {
            for pods in numbers {
                let workload = karpenter::workload(pods, setting("SEED").unwrap_or(karpenter::SEED));
                rows.push(row(&workload, format!("karpenter-{pods}"), Budget::default()));
            }
        }
    }
    print!("{}", table(&rows));
}

fn row(workload: &Workload, name: String, budget: Budget) -> Row {
    let settings = Settings { budget, ..Settings::default() };
    let runs = setting("RUNS").unwrap_or(3) as usize;
    let (row, outcome) = measure(workload, &settings, runs, millpond_plan::plan);
    if std::env::var_os("CHECK").is_some() {
        let violations = millpond_plan::check::check(&workload.snapshot, &outcome);
        assert!(violations.is_empty(), "{name}: {} violations, first: {}", violations.len(), violations[0]);
    }
    Row { name, ..row }
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
