//! `cargo xtask test`: every check and test of the tree, in one command.
//!
//! It prints a plan, runs its stages, and prints a summary that says what ran
//! and what did not. A stage has one or more lanes of steps that run side by
//! side. A failed step does not stop the others, so that one run shows
//! everything. The real parts of Kubernetes are built beside the first stages;
//! the stage that needs them waits.

mod background;
mod counted;
mod step;
mod summary;

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use millpond_testkit::Browser;
use millpond_testkit::real::{CLUSTER_PARTS, NODE_PARTS, Part, Parts};

use self::background::Build;
use self::step::{Show, Step, Work};
use self::summary::Summary;
use crate::{dependencies, generate, rival, tidy};

/// Tests of this name need the real cluster. They are marked `#[ignore]`, so
/// that a plain `cargo test` counts them as ignored, and run in a step of
/// their own.
pub(crate) const IGNORED_PREFIX: &str = "real_";

/// Tests of this name need Debian's Chromium. They are marked `#[ignore]` as well.
pub(crate) const BROWSER_PREFIX: &str = "browser_";

const BROWSER: &str = "pages in a browser";
const REAL_CLUSTER: &str = "real-cluster suites";
const CONFORMANCE: &str = "Kubernetes conformance";
const KARPENTER_SUITE: &str = "Karpenter's own suite";
const RIVAL: &str = "rival";

/// The steps that need the real parts.
const REAL: &[&str] = &[REAL_CLUSTER, CONFORMANCE, KARPENTER_SUITE, RIVAL];

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out what needs the real parts of Kubernetes (and so Go)
    #[arg(long)]
    without_real_cluster: bool,
    /// Only what takes a minute or two: checks and unit tests
    #[arg(long)]
    quick: bool,
}

/// Steps that run one after another.
type Lane = Vec<Step>;

/// Lanes that run side by side. The next stage starts when all of them have ended.
type Stage = Vec<Lane>;

/// Prints the plan, runs it, prints the summary.
pub(crate) fn run(args: &Args) -> Result<()> {
    let stages = plan(args);
    print_plan(&stages);
    let mut build = None;
    if stages.iter().flatten().flatten().any(|step| matches!(step.work, Work::AwaitParts)) {
        // Fails at once where there is no Go, before minutes of compiling.
        build = Some(Build::start(&wanted_parts())?);
    }
    let started = Instant::now();
    let summary = Mutex::new(Summary::default());
    for stage in &stages {
        match stage.as_slice() {
            [lane] => run_lane(lane, &mut build, Show::AtOnce, &summary),
            lanes => thread::scope(|scope| {
                for lane in lanes {
                    scope.spawn(|| run_lane(lane, &mut None, Show::AtTheEnd, &summary));
                }
            }),
        }
    }
    let summary = summary.into_inner().map_err(|_| anyhow!("a lane of steps panicked"))?;
    summary.print(started.elapsed());
    if summary.failed() {
        bail!("the tree does not pass its tests");
    }
    Ok(())
}

fn print_plan(stages: &[Stage]) {
    println!("plan:");
    for stage in stages {
        for (number, lane) in (1..).zip(stage) {
            for step in lane {
                let lane = if stage.len() > 1 { format!("[lane {number}] ") } else { String::new() };
                match &step.work {
                    Work::Nothing(reason) => println!("  {lane}{} - not run: {reason}", step.name),
                    _ => println!("  {lane}{} - {}", step.name, step.detail),
                }
            }
        }
    }
}

fn run_lane(lane: &Lane, build: &mut Option<Build>, show: Show, summary: &Mutex<Summary>) {
    for step in lane {
        if !matches!(step.work, Work::Nothing(_)) {
            println!("\n[{}] {}", step.name, step.detail);
        }
        let started = Instant::now();
        let outcome = step.run(build, show);
        let took = started.elapsed();
        println!("[{}] {outcome} ({} s)", step.name, took.as_secs());
        if let Ok(mut summary) = summary.lock() {
            summary.add(step.name, outcome, took);
        }
    }
}

/// Everything real that the tests run beside Millpond.
pub(crate) fn wanted_parts() -> Vec<Part> {
    let mut parts = [CLUSTER_PARTS, NODE_PARTS].concat();
    parts.extend([Part::CLUSTER_API, Part::VCSIM, Part::KARPENTER_RIVAL, Part::E2E_TEST, Part::KARPENTER_SUITE]);
    parts
}

fn plan(args: &Args) -> Vec<Stage> {
    let checks = vec![
        Step::cargo("format", &["fmt", "--all", "--check"], &[]),
        Step::task("tidy", "cargo xtask tidy", || tidy::run().map(|()| String::new())),
        Step::task("dependencies", "cargo xtask dependencies", dependencies::run),
    ];
    let generated =
        Step::task("generated files", "cargo xtask generate --check", || generate::check().map(|()| String::new()));
    let clippy =
        Step::cargo("clippy", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"], &[]);
    let docs = Step::cargo(
        "docs",
        &["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"],
        // The docs of a module link to its private items, which are documented here.
        &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")],
    );
    let left_out = |names: &[&'static str], why: &str| names.iter().map(|name| Step::nothing(name, why)).collect();
    if args.quick {
        let unit_tests = Step::tests("unit tests", &["--workspace", "--lib", "--bins"]);
        let rest: Lane = left_out(&["generated files", "docs", "all tests", BROWSER], "--quick");
        return vec![vec![checks], vec![vec![clippy, unit_tests]], vec![rest], vec![left_out(REAL, "--quick")]];
    }
    // Tests first: they compile everything that the generated files are made with.
    let tests = vec![Step::tests("all tests", &["--workspace"]), browser(), generated];
    if args.without_real_cluster {
        let rest = left_out(REAL, "--without-real-cluster");
        return vec![vec![checks], vec![tests], vec![vec![clippy, docs]], vec![rest]];
    }
    let parts = Step {
        name: "real parts",
        detail: "wait for the builds of Kubernetes, etcd, kwok, Cluster API, the rival and Karpenter's suite that run beside the steps above".into(),
        work: Work::AwaitParts,
    };
    // The guides of the real-cluster suites show how many nodes pods get that arrive at once; beside a compiler they
    // arrive over seconds.
    let clusters = vec![parts, Step::tests(REAL_CLUSTER, &["--workspace", "--", "--ignored", IGNORED_PREFIX])];
    // These mostly wait, so they can run in parallel.
    let karpenter = vec![Step::xtask(KARPENTER_SUITE, &["karpenter-suite", "--selection", "--clusters", "2"])];
    let beside = vec![
        Step::xtask(CONFORMANCE, &["k8s-conformance", "--quick"]),
        Step::task(RIVAL, "go vet, go test, cargo xtask rival --pods 200 --debug", || {
            rival::check().map(|()| String::new())
        }),
    ];
    vec![vec![checks], vec![tests], vec![vec![clippy, docs]], vec![clusters], vec![karpenter, beside]]
}

/// The dashboard in Chromium, which is installed first where it is missing and the user is root.
fn browser() -> Step {
    match Browser::install() {
        Ok(()) => Step::tests(BROWSER, &["--workspace", "--", "--ignored", BROWSER_PREFIX]),
        Err(error) => Step::nothing(BROWSER, &format!("no Chromium: {error:#}")),
    }
}

/// The parts that are not in the cache.
fn missing(parts: &Parts, wanted: &[Part]) -> Result<Vec<Part>> {
    let mut missing = Vec::new();
    for part in wanted {
        if !parts.has(part)? {
            missing.push(*part);
        }
    }
    Ok(missing)
}
