//! `millpond bench`: figures as commands, so that every user can measure them again.

mod api;
mod ci;
mod gpu;
mod groups;
mod hosts;
mod load;
mod openb;
mod planner;
mod pools;
mod report;

use anyhow::Context as _;
use clap::{Args, Subcommand};

/// Arguments of `millpond bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure the embedded Kubernetes API, or another API server
    Api(api::ApiArgs),
    /// Plan Karpenter's scheduling benchmark
    Karpenter(planner::KarpenterArgs),
    /// Plan the benchmark of Cluster Autoscaler's estimator
    Estimator(planner::EstimatorArgs),
    /// Plan up to millions of pods over EC2
    Scale(planner::ScaleArgs),
    /// Plan a cluster with fewer or cheaper nodes
    Consolidate(planner::ConsolidateArgs),
    /// Plan small workloads with a name, from web services to training on GPUs
    Mixes(planner::MixesArgs),
    /// Let pods wait on the embedded API, and time until they have nodes
    Pools(pools::PoolsArgs),
    /// Let requests for CI nodes wait in ZooKeeper, and time until they have nodes
    Ci(ci::CiBenchArgs),
    /// Let pods wait for many node groups of Cluster API, and time until all groups have their sizes
    Groups(groups::GroupsArgs),
    /// Assign free hosts of your own to waiting machines
    Hosts(hosts::HostsArgs),
    /// Let the answer to a GPU job follow a vCenter of a thousand hosts, and time inventory and updates
    Gpu(gpu::GpuBenchArgs),
    /// Pack the GPU jobs of the openb traces, shares of GPUs included
    Openb(openb::OpenbArgs),
}

/// Runs a benchmark.
pub(crate) fn run(args: BenchArgs) -> anyhow::Result<()> {
    match args.what {
        What::Api(args) => api::run(args),
        What::Karpenter(args) => planner::karpenter(args),
        What::Estimator(args) => planner::estimator(args),
        What::Scale(args) => planner::scale(args),
        What::Consolidate(args) => planner::consolidate(args),
        What::Mixes(args) => planner::mixes(args),
        What::Pools(args) => pools::run(&args),
        What::Ci(args) => ci::run(&args),
        What::Groups(args) => groups::run(&args),
        What::Hosts(args) => hosts::run(&args),
        What::Gpu(args) => gpu::run(&args),
        What::Openb(args) => openb::run(&args),
    }
}

/// Memory of this process, in megabytes.
fn memory_mb() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024.0 / 1e6)
}
