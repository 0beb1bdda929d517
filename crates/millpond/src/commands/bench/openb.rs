//! `millpond bench openb`: how much of the GPUs of the openb traces a policy allocates, beside what FGD's authors publish.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use millpond_bench::openb::{FIRST_SEED, Policy, Trace, TraceError, published, run as pack};

use super::report::{Goal, Report};
use crate::failure::{Code, Failure};

/// A run of the default trace takes at most this many seconds.
const SECONDS: f64 = 0.6;

/// Arguments of `millpond bench openb`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench openb cluster-trace-gpu-v2023/csv
  millpond bench openb --data cluster-trace-gpu-v2023/csv --trace gpushare100 --policy millpond,fgd,bestfit,kubernetes

The data: github.com/alibaba/clusterdata, folder cluster-trace-gpu-v2023/csv")]
pub(crate) struct OpenbArgs {
    /// Folder with `openb_node_list_gpu_node.csv` and the lists of pods
    #[arg(value_name = "DIR", required_unless_present = "data")]
    folder: Option<PathBuf>,
    /// The same
    #[arg(long, value_name = "DIR", env = "MILLPOND_OPENB_DATA", conflicts_with = "folder")]
    data: Option<PathBuf>,
    /// The list of pods: `openb_pod_list_TRACE.csv`
    #[arg(long, value_name = "TRACE", default_value = "default")]
    trace: String,
    /// How nodes are chosen
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "millpond", value_parser = policy)]
    policy: Vec<Policy>,
    /// Orders of arrival; the first is that of seed 42
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
}

fn policy(name: &str) -> Result<Policy, String> {
    Policy::of(name).ok_or_else(|| format!("one of {}", Policy::ALL.map(Policy::name).join(", ")))
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: &OpenbArgs) -> anyhow::Result<()> {
    let folder = args.folder.as_deref().or(args.data.as_deref()).context("no folder is named")?;
    let trace = Trace::read(folder, &args.trace).map_err(|error| {
        let hint = matches!(error, TraceError::File { .. }).then(|| {
            "name a folder with the files of github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/csv".to_owned()
        });
        let failure =
            Failure { message: "cannot use the trace".to_owned(), code: hint.as_ref().map(|_| Code::NotFound), hint };
        anyhow::Error::new(error).context(failure)
    })?;
    let mut report = Report::default();
    for policy in &args.policy {
        measure(&trace, args, *policy, &mut report);
    }
    if let Some(percent) = published(&args.trace) {
        report.add("FGD as published", percent, "%", None);
    }
    std::io::stdout().write_all(report.table().as_bytes()).context("cannot write to stdout")
}

/// Mean allocation and time over all seeds.
fn measure(trace: &Trace, args: &OpenbArgs, policy: Policy, report: &mut Report) {
    let begun = Instant::now();
    let seeds = FIRST_SEED..FIRST_SEED + args.seeds;
    let sum: f64 = seeds.map(|seed| pack(trace, policy, seed).allocated_percent).sum();
    let seconds = begun.elapsed().as_secs_f64() / args.seeds as f64;
    let is_ours = policy == Policy::Millpond;
    let goal = published(&args.trace).filter(|_| is_ours).map(Goal::AtLeast);
    report.add(format!("{policy}: GPUs allocated"), sum / args.seeds as f64, "%", goal);
    report.add(format!("{policy}: a run"), seconds, "s", is_ours.then_some(Goal::AtMost(SECONDS)));
}
