//! `cargo xtask race`: Millpond and Karpenter with its KWOK provider, live, on
//! the same stack, one after the other.
//!
//! ```text
//! Stack (etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kwok) + engine
//!    ▲ class, pool, Deployments                 │ watches: pods, claims
//!    └─ scenario ◀── for each engine ──▶ heat ──┴─▶ figures ─▶ table
//! ```
//!
//! Both get the same pool, the same instance types at the same prices (checked
//! before the start), the same controllers beside them, and an etcd that waits
//! for the disk.

mod figures;
mod heat;
mod prices;
mod scenario;
mod watch;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use millpond_testkit::Scratch;
use millpond_testkit::real::{CLUSTER_PARTS, Part};

use self::prices::Prices;
use self::scenario::Scenario;
use crate::cargo;
use crate::karpenter::stack::{Engine, Kit};
use crate::real_cluster::ensure_parts;

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this scenario (repeatable): burst, zones, scale-down
    #[arg(long, value_enum, value_name = "NAME")]
    scenario: Vec<Scenario>,
    /// Only this engine
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Pods of the burst and of the scale-down
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// How often each engine runs each scenario; the median counts
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Measure a debug build of Millpond
    #[arg(long)]
    debug: bool,
    /// Measure this binary of `millpond`, and build none
    #[arg(long, value_name = "FILE", conflicts_with = "debug")]
    binary: Option<PathBuf>,
    /// Then make all pods anew, on the existing nodes: what the stack itself takes
    #[arg(long)]
    again: bool,
    /// Fail as well if Millpond takes more than a third of Karpenter's time
    #[arg(long)]
    check_time: bool,
    /// Keep the logs of the engines in this folder
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Write all figures to a JSON file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs every scenario with every engine and prints the tables.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.runs > 0, "`--runs` must be at least 1");
    let engines = args.engine.map_or_else(|| vec![Engine::Millpond, Engine::Karpenter], |engine| vec![engine]);
    let scenarios = if args.scenario.is_empty() { Scenario::ALL.to_vec() } else { args.scenario.clone() };
    let mut wanted = CLUSTER_PARTS.to_vec();
    wanted.extend([Part::KARPENTER, Part::KARPENTER_SUITE]);
    let parts = ensure_parts(&wanted)?;
    let prices = Prices::read(&parts)?;
    let scratch = Scratch::new("race")?;
    let logs = args.logs.clone().unwrap_or_else(|| scratch.path().to_owned());
    std::fs::create_dir_all(&logs).with_context(|| format!("create `{}`", logs.display()))?;
    let mut kits = Vec::new();
    for engine in engines {
        let millpond = || {
            let binary = cargo::millpond(args.binary.as_deref(), !args.debug)?;
            prices.ensure_same(&binary)?;
            Ok(binary)
        };
        kits.push(Kit::new(engine, parts.clone(), millpond)?.durable());
    }
    let (mut all, mut complaints) = (Vec::new(), Vec::new());
    for scenario in scenarios {
        let mut medians = Vec::new();
        for kit in &kits {
            let mut runs = Vec::new();
            for number in 1..=args.runs {
                println!("{}, {}, run {number} of {}", scenario.name(), kit.title()?, args.runs);
                let figures = heat::run(kit, scenario, args.pods, &prices, &logs, args.again);
                runs.push(figures.with_context(|| format!("{} with {}", scenario.name(), kit.engine().name()))?);
                runs.iter().last().into_iter().for_each(|figures| println!("  {}", figures.line()));
            }
            all.extend(runs.iter().cloned());
            medians.extend(figures::median(runs));
        }
        println!("\n{}", figures::page(&scenario.title(args.pods), &medians));
        complaints.extend(figures::complaints(&medians, args.check_time));
    }
    if let Some(file) = &args.report {
        let text = serde_json::to_string_pretty(&all).context("render the report")?;
        std::fs::write(file, text + "\n").with_context(|| format!("write `{}`", file.display()))?;
    }
    if !complaints.is_empty() {
        bail!("{}", complaints.join("\n"));
    }
    Ok(())
}
