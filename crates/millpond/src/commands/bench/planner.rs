//! `millpond bench karpenter|estimator|scale|consolidate|mixes`: how good the planner's plans are, and how fast.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use millpond_bench::workload::mixes::Mix;
use millpond_bench::workload::scale::Scale;
use millpond_bench::workload::{consolidate, estimator, karpenter, mixes, scale};
use millpond_bench::{Families, Row, Workload, measure, save, table};
use millpond_plan::pack::Budget;
use millpond_plan::plan::{Policy, Settings};

use crate::commands::{as_json, print};

/// Options that all benchmarks of the planner share.
#[derive(Debug, Args)]
struct Common {
    /// Policy to plan by; several, or `all`, give a row each
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "millpond", value_parser = policies)]
    policy: Vec<Policies>,
    /// Timed runs after one to warm up; the best counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Work that may go into improving the first plan, in patterns of pods on a node
    #[arg(long, value_name = "N", default_value_t = Budget::default().evaluations)]
    budget: u64,
    /// Verify every plan with the checker, which shares no code with the planner
    #[arg(long)]
    check: bool,
    /// Write the workload to this directory too, for `millpond plan -f` or another engine
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// One word of `--policy`.
#[derive(Debug, Clone)]
struct Policies(Vec<Policy>);

fn policies(text: &str) -> Result<Policies, String> {
    if text == "all" {
        return Ok(Policies(Policy::ALL.to_vec()));
    }
    let names = Policy::ALL.map(Policy::name).join("`, `");
    Policy::from_name(text).map(|policy| Policies(vec![policy])).ok_or(format!("not one of `{names}`, `all`"))
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FamiliesArg {
    /// Every EC2 type
    Full,
    /// c, m and r from the fifth generation on, and types with GPUs; no bare metal
    Usual,
}

impl From<FamiliesArg> for Families {
    fn from(families: FamiliesArg) -> Self {
        match families {
            FamiliesArg::Full => Self::Full,
            FamiliesArg::Usual => Self::Usual,
        }
    }
}

/// Arguments of `millpond bench karpenter`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench karpenter                                  20,000 pods, 400 types
  millpond bench karpenter --pods 1000 --policy all         every policy on the same pods
  millpond bench karpenter --preferences                    4,000 pods with preferences that cannot all be met
  millpond bench karpenter --save karpenter-20000 --check   for another engine; the plan is verified")]
pub(crate) struct KarpenterArgs {
    /// Pods; with `--preferences` 4000 unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_PODS))]
    pods: Option<u64>,
    /// What the pods are drawn from [default: 42; with `--preferences` 4]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// The benchmark's pods of one size that prefer a zone, and hosts and zones of their own
    #[arg(long)]
    preferences: bool,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `millpond bench estimator`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench estimator            51,000 pods, 2,595 nodes
  millpond bench estimator -o json")]
pub(crate) struct EstimatorArgs {
    #[command(flatten)]
    common: Common,
}

/// Arguments of `millpond bench scale`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench scale                            10 thousand, 100 thousand and a million pods
  millpond bench scale --pods 100000 --third      a third of the shapes under zone spread or one per host
  millpond bench scale --families usual --seed 6

Two rows for each size: the first valid plan (`-first`), and the plan after the default budget of work.")]
pub(crate) struct ScaleArgs {
    /// Pods; 10000, 100000 and 1000000 unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_PODS))]
    pods: Option<u64>,
    /// Shapes of pods
    #[arg(long, value_name = "N", default_value_t = Scale::default().shapes)]
    shapes: u64,
    /// What sizes and counts are drawn from
    #[arg(long, value_name = "SEED", default_value_t = scale::SEED)]
    seed: u64,
    /// Spread a sixth of the shapes over zones; a sixth has one pod on a host
    #[arg(long)]
    third: bool,
    /// EC2 types that can be bought
    #[arg(long, value_enum, default_value_t = FamiliesArg::Full)]
    families: FamiliesArg,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `millpond bench consolidate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench consolidate                           10,000 nodes, 100,000 pods
  millpond bench consolidate --nodes 500 --pods 5000")]
pub(crate) struct ConsolidateArgs {
    /// Nodes, each filled by 30 to 90 per cent
    #[arg(long, value_name = "N", default_value_t = consolidate::NODES,
        value_parser = clap::value_parser!(u64).range(1..=MOST_PODS))]
    nodes: u64,
    /// Pods that run on them
    #[arg(long, value_name = "N", default_value_t = consolidate::PODS_BOUND,
        value_parser = clap::value_parser!(u64).range(..=MOST_PODS))]
    pods: u64,
    /// What sizes and nodes are drawn from
    #[arg(long, value_name = "SEED", default_value_t = consolidate::SEED)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `millpond bench mixes`.
#[derive(Debug, Args)]
#[command(after_help = mixes_help())]
pub(crate) struct MixesArgs {
    /// Mixes to plan; all unless given
    #[arg(value_name = "MIX", value_parser = clap::builder::PossibleValuesParser::new(mixes::ALL.map(|mix| mix.name)))]
    mixes: Vec<String>,
    /// EC2 types that can be bought; both in turn unless given
    #[arg(long, value_enum)]
    families: Option<FamiliesArg>,
    /// What sizes and counts are drawn from
    #[arg(long, value_name = "SEED", default_value_t = mixes::SEED)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

fn mixes_help() -> String {
    let width = mixes::ALL.iter().map(|mix| mix.name.len()).max().unwrap_or(0);
    let lines = mixes::ALL.iter().map(|mix| format!("  {:<width$}  {}", mix.name, mix.about));
    let lines: Vec<String> = lines.collect();
    format!(
        "Examples:
  millpond bench mixes                                     all of them, over all EC2 types and over the usual ones
  millpond bench mixes web-small gpu-mix --policy all      two of them, all policies side by side
  millpond bench mixes --families usual --seed 2 -o json

Mixes:
{}",
        lines.join("\n")
    )
}

/// Limit on pods: more do not fit the memory of the machines that this is made for.
const MOST_PODS: u64 = 100_000_000;

pub(crate) fn karpenter(args: KarpenterArgs) -> anyhow::Result<()> {
    let workload = if args.preferences {
        let pods = args.pods.unwrap_or(karpenter::PREFERENCE_PODS);
        karpenter::preferences(pods, args.seed.unwrap_or(karpenter::PREFERENCE_SEED))
    } else {
        karpenter::workload(args.pods.unwrap_or(karpenter::PODS), args.seed.unwrap_or(karpenter::SEED))
    };
    args.common.run([workload], false)
}

pub(crate) fn estimator(args: EstimatorArgs) -> anyhow::Result<()> {
    args.common.run([estimator::workload()], false)
}

pub(crate) fn scale(args: ScaleArgs) -> anyhow::Result<()> {
    let sizes = args.pods.map_or_else(|| vec![10_000, 100_000, 1_000_000], |pods| vec![pods]);
    let several = sizes.len() > 1;
    let workloads = sizes.into_iter().map(|pods| {
        let scale = Scale { pods, shapes: args.shapes, third: args.third, families: args.families.into() };
        let mut workload = scale::workload(scale, args.seed);
        if several {
            workload.name = format!("{}-{pods}", workload.name);
        }
        workload
    });
    args.common.run(workloads, true)
}

pub(crate) fn consolidate(args: ConsolidateArgs) -> anyhow::Result<()> {
    args.common.run([consolidate::workload(args.nodes, args.pods, args.seed)], false)
}

pub(crate) fn mixes(args: MixesArgs) -> anyhow::Result<()> {
    let chosen = |mix: &Mix| args.mixes.is_empty() || args.mixes.iter().any(|name| name == mix.name);
    let families = args.families.map_or_else(|| Families::ALL.to_vec(), |families| vec![families.into()]);
    let mixes: Vec<Mix> = mixes::ALL.into_iter().filter(chosen).collect();
    let pairs: Vec<(Mix, Families)> =
        families.into_iter().flat_map(|families| mixes.iter().map(move |mix| (*mix, families))).collect();
    let workloads = pairs.into_iter().map(|(mix, families)| mix.workload(families, args.seed));
    args.common.run(workloads, false)
}

impl Common {
    /// Measures one workload after the other, each made when its turn comes; `first` adds a row for the first plan.
    fn run(
        &self,
        workloads: impl IntoIterator<IntoIter: ExactSizeIterator<Item = Workload>>,
        first: bool,
    ) -> anyhow::Result<()> {
        let workloads = workloads.into_iter();
        let alone = workloads.len() == 1;
        let mut rows = Vec::new();
        for workload in workloads {
            if let Some(directory) = &self.save {
                let directory = if alone { directory.clone() } else { directory.join(&workload.name) };
                save(&workload.snapshot, &directory).context("cannot save the workload")?;
            }
            self.rows(workload, first, &mut rows)?;
        }
        self.print(&rows)
    }

    fn rows(&self, mut workload: Workload, first: bool, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let budget = Budget { evaluations: self.budget, ..Budget::default() };
        for policy in self.policy.iter().flat_map(|word| word.0.iter().copied()) {
            if first && policy == Policy::Millpond {
                let name = workload.name.clone();
                workload.name = format!("{name}-first");
                let budget = Budget { evaluations: 0, ..budget };
                rows.push(self.row(&workload, Settings { policy, budget, ..Settings::default() })?);
                workload.name = name;
            }
            rows.push(self.row(&workload, Settings { policy, budget, ..Settings::default() })?);
        }
        Ok(())
    }

    fn row(&self, workload: &Workload, settings: Settings) -> anyhow::Result<Row> {
        let (row, outcome) = measure(workload, &settings, self.runs as usize, millpond_plan::plan);
        if self.check {
            let check = match settings.policy {
                Policy::Millpond => millpond_plan::check::check,
                _ => millpond_plan::check::check_rules,
            };
            let violations = check(&workload.snapshot, &outcome);
            if let Some(first) = violations.first() {
                bail!(
                    "the plan of {} by {} is wrong in {} ways, first: {first}",
                    row.name,
                    row.policy,
                    violations.len()
                );
            }
        }
        Ok(row)
    }

    fn print(&self, rows: &[Row]) -> anyhow::Result<()> {
        let text = match self.output {
            Output::Table => table(rows),
            Output::Json => as_json(&rows)?,
        };
        print(&mut std::io::stdout().lock(), &text)
    }
}
