//! `millpond bench hosts`: how long it takes to give free hosts to all machines that wait, how soon a host that gets a label
//! serves one, and what the heartbeats of many agents cost.

mod agents;
mod fleet;
mod relabel;

use std::io::Write;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use millpond_bench::hosts::fleet;
use millpond_plan::matching::match_hosts;

use super::report::{Goal, Report};

/// Hosts that are matched, where nothing else is said.
const HOSTS: u32 = 100_000;
/// Hosts beside those that get a label, where nothing else is said.
const HOSTS_RELABELLED: u32 = 1000;
/// Milliseconds for 100,000 hosts of which many are alike.
const MILLISECONDS: f64 = 50.0;
/// Milliseconds for 10,000 hosts of which no two are alike.
const MILLISECONDS_DISTINCT: f64 = 2000.0;

/// Arguments of `millpond bench hosts`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench hosts                                     100,000 hosts, 90,000 machines
  millpond bench hosts --hosts 10000 --distinct            no two hosts are alike
  millpond bench hosts --relabel                           from a label to a claim, among 1,000 hosts
  millpond bench hosts --agents 10000                      heartbeats, and the memory of one real agent")]
pub(crate) struct HostsArgs {
    /// Free hosts; 100,000 without it, 1,000 with `--relabel`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hosts: Option<u32>,
    /// Machines that wait; nine for ten hosts without it
    #[arg(long, value_name = "N")]
    machines: Option<u32>,
    /// No two hosts are alike
    #[arg(long)]
    distinct: bool,
    /// Label hosts under `millpond up`, one after the other, and time until each serves a machine that waits
    #[arg(long, conflicts_with_all = ["machines", "distinct", "agents"])]
    relabel: bool,
    /// Let so many agents renew their Leases under `millpond up`, beside one real agent
    #[arg(long, value_name = "N", conflicts_with_all = ["hosts", "machines", "distinct", "runs"],
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    agents: Option<u32>,
    /// How often it is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: &HostsArgs) -> anyhow::Result<()> {
    let report = match args.agents {
        Some(count) => wait(agents::measure(count as usize))?,
        None if args.relabel => {
            let hosts = args.hosts.unwrap_or(HOSTS_RELABELLED);
            wait(relabel::measure(hosts as usize, args.runs as usize))?
        }
        None => matched(args),
    };
    std::io::stdout().write_all(report.table().as_bytes()).context("cannot write to stdout")
}

fn wait(work: impl Future<Output = anyhow::Result<Report>>) -> anyhow::Result<Report> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(work)
}

fn matched(args: &HostsArgs) -> Report {
    let hosts = args.hosts.unwrap_or(HOSTS) as usize;
    let machines = args.machines.map_or(hosts * 9 / 10, |machines| machines as usize);
    let fleet = fleet(hosts, machines, args.distinct, 1);
    let mut times = Vec::new();
    let mut unplaced = 0;
    for _ in 0..args.runs {
        let begun = Instant::now();
        let outcome = match_hosts(&fleet.inventory, &fleet.pools);
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
        unplaced = outcome.unplaced;
    }
    times.sort_by(f64::total_cmp);
    let goal = match (args.distinct, hosts) {
        (false, ..=100_000) => Some(MILLISECONDS),
        (true, ..=10_000) => Some(MILLISECONDS_DISTINCT),
        _ => None,
    };
    let mut report = Report::default();
    report.add("hosts", hosts as f64, "", None);
    report.add("machines", fleet.machines as f64, "", None);
    report.add("machines without a host", unplaced as f64, "", Some(Goal::AtMost(0.0)));
    report.add("matched in", times[times.len() / 2], "ms", goal.map(Goal::AtMost));
    report
}
