//! `cargo xtask test`: every check and test of the tree, in one command.
//!
//! First a plan, then its steps, each with its time, then a summary that says
//! what ran and what did not. A failed step does not stop the others, so that
//! one run shows everything. The real parts of Kubernetes are built beside the
//! cargo steps; the step that needs them waits.

mod background;
mod counted;
mod summary;

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use millpond_testkit::real::{CLUSTER_PARTS, Part, Parts};

use self::background::Build;
use self::summary::{Outcome, Summary};
use crate::cargo::cargo;
use crate::{conformance, generate, karpenter, rival, tidy};

/// Tests of this name need the real cluster. They are marked `#[ignore]`, so
/// that a plain `cargo test` counts them as ignored, and run in a step of
/// their own.
pub(crate) const IGNORED_PREFIX: &str = "real_";

/// A step that several places name.
const KARPENTER_SUITE: &str = "Karpenter's own suite";

/// What the command line says.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out what needs the real parts of Kubernetes (and so Go)
    #[arg(long)]
    without_real_cluster: bool,
    /// Only what takes a minute or two: checks and unit tests
    #[arg(long)]
    quick: bool,
}

/// One line of the plan.
struct Step {
    name: &'static str,
    /// What a person would type to do the same, or an explanation.
    detail: String,
    work: Work,
}

enum Work {
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// `cargo test` with these arguments. A run of no test at all fails.
    Tests(Vec<&'static str>),
    Task(fn() -> Result<()>),
    /// One that has something to say in the summary.
    Told(fn() -> Result<String>),
    /// Waits for what is built in the background.
    AwaitParts,
    /// Said in the plan and in the summary.
    Nothing(String),
}

/// Prints the plan, runs it, prints the summary.
pub(crate) fn run(args: &Args) -> Result<()> {
    let steps = plan(args);
    println!("plan:");
    for (number, step) in (1..).zip(&steps) {
        match &step.work {
            Work::Nothing(reason) => println!("  {number:2}. {} - not run: {reason}", step.name),
            _ => println!("  {number:2}. {} - {}", step.name, step.detail),
        }
    }
    let mut build = None;
    if steps.iter().any(|step| matches!(step.work, Work::AwaitParts)) {
        // Fails at once where there is no Go, before minutes of compiling.
        build = Some(Build::start(&wanted_parts())?);
    }
    let mut summary = Summary::default();
    for (number, step) in (1..).zip(&steps) {
        println!();
        if !matches!(step.work, Work::Nothing(_)) {
            println!("[{number}/{}] {}: {}", steps.len(), step.name, step.detail);
        }
        let started = Instant::now();
        let outcome = perform(&step.work, &mut build);
        let took = started.elapsed();
        println!("[{number}/{}] {}: {outcome} ({} s)", steps.len(), step.name, took.as_secs());
        summary.add(step.name, outcome, took);
    }
    summary.print();
    if summary.failed() {
        bail!("the tree does not pass its tests");
    }
    Ok(())
}

/// Everything real that the tests run beside Millpond.
pub(crate) fn wanted_parts() -> Vec<Part> {
    let mut parts = CLUSTER_PARTS.to_vec();
    parts.extend([Part::CLUSTER_API, Part::VCSIM, Part::KARPENTER_RIVAL, Part::E2E_TEST, Part::KARPENTER_SUITE]);
    parts
}

fn plan(args: &Args) -> Vec<Step> {
    let mut steps = vec![
        cargo_step("format", &["fmt", "--all", "--check"], &[]),
        task_step("tidy", "cargo xtask tidy", tidy::run),
        task_step("generated files", "cargo xtask generate --check", generate::check),
        deny_step(),
        cargo_step("clippy", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"], &[]),
    ];
    if args.quick {
        steps.push(tests_step("unit tests", &["--workspace", "--lib", "--bins"]));
        for name in ["docs", "all tests", "real-cluster suites", "rival", "Kubernetes conformance", KARPENTER_SUITE] {
            steps.push(nothing(name, "--quick"));
        }
        return steps;
    }
    steps.push(cargo_step(
        "docs",
        &["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"],
        // A room's docs lead to its private rooms; here those are documented.
        &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")],
    ));
    steps.push(tests_step("all tests", &["--workspace"]));
    if args.without_real_cluster {
        for name in ["real-cluster suites", "rival", "Kubernetes conformance", KARPENTER_SUITE] {
            steps.push(nothing(name, "--without-real-cluster"));
        }
        return steps;
    }
    steps.push(Step {
        name: "real parts",
        detail: "wait for the builds of Kubernetes, etcd, kwok, Cluster API, the rival and Karpenter's suite that run beside the steps above".into(),
        work: Work::AwaitParts,
    });
    steps.push(tests_step("real-cluster suites", &["--workspace", "--", "--ignored", IGNORED_PREFIX]));
    steps.push(task_step("rival", "go vet, go test, cargo xtask rival --pods 200 --debug", rival::check));
    steps.push(task_step("Kubernetes conformance", "cargo xtask k8s-conformance --quick", || {
        conformance::run(&conformance::Args::quick())
    }));
    steps.push(Step {
        name: KARPENTER_SUITE,
        detail: "cargo xtask karpenter-suite --selection --clusters 2".into(),
        work: Work::Told(|| karpenter::run(&karpenter::Args::selection())),
    });
    steps
}

fn cargo_step(name: &'static str, args: &'static [&'static str], env: &'static [(&'static str, &'static str)]) -> Step {
    Step { name, detail: format!("cargo {}", args.join(" ")), work: Work::Cargo(args, env) }
}

fn tests_step(name: &'static str, args: &[&'static str]) -> Step {
    let args = [&["test", "--locked", "--no-fail-fast"], args].concat();
    Step { name, detail: format!("cargo {}", args.join(" ")), work: Work::Tests(args) }
}

fn task_step(name: &'static str, detail: &str, task: fn() -> Result<()>) -> Step {
    Step { name, detail: detail.into(), work: Work::Task(task) }
}

fn nothing(name: &'static str, reason: &str) -> Step {
    Step { name, detail: "nothing".into(), work: Work::Nothing(reason.into()) }
}

/// cargo-deny takes longer to compile than all of Millpond, so it is used where
/// it is, and its absence is told. Advisories need a download: people run those.
fn deny_step() -> Step {
    let present = cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if present {
        cargo_step("dependencies", &["deny", "--locked", "check", "bans", "licenses", "sources"], &[])
    } else {
        nothing("dependencies", "cargo-deny is not installed (`cargo install --locked cargo-deny` brings it)")
    }
}

fn perform(work: &Work, build: &mut Option<Build>) -> Outcome {
    let result = match work {
        Work::Nothing(reason) => return Outcome::NotRun(reason.clone()),
        Work::Cargo(args, env) => run_cargo(args, env),
        Work::Task(task) => task().map(|()| String::new()),
        Work::Told(task) => task(),
        Work::AwaitParts => build.take().map_or_else(|| Ok(String::new()), Build::finish),
        Work::Tests(args) => counted::run(args),
    };
    match result {
        Ok(note) => Outcome::Passed(note),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn run_cargo(args: &[&str], env: &[(&str, &str)]) -> Result<String> {
    let status = cargo().args(args).envs(env.iter().copied()).status().context("run cargo")?;
    if !status.success() {
        bail!("cargo failed");
    }
    Ok(String::new())
}

/// Which of the parts are not in the cache yet.
fn missing(parts: &Parts, wanted: &[Part]) -> Result<Vec<Part>> {
    let mut missing = Vec::new();
    for part in wanted {
        if !parts.has(part)? {
            missing.push(*part);
        }
    }
    Ok(missing)
}
