//! `cargo xtask rival`: Millpond and Karpenter's own scheduler on the same files, in one run.
//!
//! ```text
//! millpond bench NAME --save DIR ─┬─▶ its rows ─────────────────┐
//!                                 └─▶ DIR ─▶ karpenter-rival ─▶ rows ─▶ ratios
//! ```
//!
//! `tests/rivals/` holds the driver, and says what is measured.

mod compare;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use millpond_testkit::Scratch;
use millpond_testkit::real::{Part, Parts};

use self::compare::Row;
use crate::{cargo, real_cluster};

/// Pods of the run that is part of `cargo xtask test`.
const QUICK_PODS: usize = 200;

/// Every saved workload has it.
const PODS_FILE: &str = "pods.yaml";

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The workload: one of those of `millpond bench`
    #[arg(default_value = "karpenter")]
    name: String,
    /// How many pods; left out: what the workload has by itself
    #[arg(long)]
    pods: Option<usize>,
    /// Candidates that Karpenter checks at the same time; its own benchmark has 5
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Let Karpenter ignore what pods only prefer
    #[arg(long)]
    ignore_preferences: bool,
    /// Measure a debug build of Millpond
    #[arg(long)]
    debug: bool,
    /// Write the rows of both to a file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// More arguments for `millpond bench NAME`
    #[arg(last = true, value_name = "ARGS")]
    bench: Vec<String>,
}

impl Args {
    /// Small enough for every run of the tests, and without a release build.
    pub(crate) fn quick() -> Self {
        Self {
            name: "karpenter".into(),
            pods: Some(QUICK_PODS),
            workers: 1,
            ignore_preferences: false,
            debug: true,
            report: None,
            bench: Vec::new(),
        }
    }
}

/// Runs both and prints the ratios. Fails if the rival's plan is the better one.
pub(crate) fn run(args: &Args) -> Result<()> {
    let parts = real_cluster::ensure_parts(&[Part::KARPENTER_RIVAL])?;
    let millpond = cargo::build_millpond(!args.debug)?;
    let scratch = Scratch::new("rival")?;
    let saved = scratch.path().join("workload");
    let ours = run_millpond(args, &millpond, &saved)?;
    let mut pairs = Vec::new();
    for (name, folder) in workloads(&saved)? {
        // A workload may have a row for the first plan as well; the last one is of the finished plan.
        let row = ours.iter().rfind(|row| name.as_ref().is_none_or(|name| row.name == *name));
        let row = row.with_context(|| format!("`millpond bench` printed no row of `{}`", folder.display()))?;
        pairs.push((row.clone(), run_rival(args, &parts, &row.name, &folder)?));
    }
    for (ours, theirs) in &pairs {
        println!("{}", compare::page(ours, theirs));
    }
    if let Some(file) = &args.report {
        let rows: Vec<&Row> = pairs.iter().flat_map(|(ours, theirs)| [ours, theirs]).collect();
        let text = serde_json::to_string_pretty(&rows).context("render the report")?;
        std::fs::write(file, text + "\n").with_context(|| format!("write `{}`", file.display()))?;
    }
    pairs.iter().try_for_each(|(ours, theirs)| compare::ensure_no_worse(ours, theirs))
}

/// Vets and tests the driver, then runs it on a small workload.
pub(crate) fn check() -> Result<()> {
    Parts::check_sources(&Part::KARPENTER_RIVAL)?;
    run(&Args::quick())
}

fn run_millpond(args: &Args, millpond: &Path, saved: &Path) -> Result<Vec<Row>> {
    let mut command = Command::new(millpond);
    command.args(["bench", &args.name, "-o", "json", "--save"]).arg(saved);
    if let Some(pods) = args.pods {
        command.args(["--pods", &pods.to_string()]);
    }
    rows(command.args(&args.bench))
}

fn run_rival(args: &Args, parts: &Parts, name: &str, folder: &Path) -> Result<Row> {
    let mut command = Command::new(parts.path(&Part::KARPENTER_RIVAL)?);
    command.args(["--name", name, "--workers", &args.workers.to_string()]);
    if args.ignore_preferences {
        command.arg("--ignore-preferences");
    }
    rows(command.arg(folder))?.into_iter().next().context("the rival printed no row")
}

fn rows(command: &mut Command) -> Result<Vec<Row>> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed ({})", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("read the rows of {command:?}"))
}

/// The saved workloads: a single one, or several in folders of their names.
fn workloads(saved: &Path) -> Result<Vec<(Option<String>, PathBuf)>> {
    if saved.join(PODS_FILE).exists() {
        return Ok(vec![(None, saved.to_owned())]);
    }
    let mut found = Vec::new();
    let mut folders = vec![saved.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("list `{}`", folder.display()))? {
            let path = entry.with_context(|| format!("list `{}`", folder.display()))?.path();
            if path.join(PODS_FILE).exists() {
                let name = path.strip_prefix(saved).context("a folder within the folder")?;
                found.push((Some(name.to_string_lossy().into_owned()), path));
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
