//! `cargo xtask karpenter-suite`: runs Karpenter's own end-to-end suite, unmodified, against Millpond or Karpenter.
//!
//! ```text
//! specs (selection.txt, cannot.yaml) ─▶ worker ─▶ Stack: etcd, kube-apiserver, kube-scheduler,
//!                                         │        kube-controller-manager, kwok, the engine
//!                                         └─▶ one process of the suite for each spec ─▶ outcome
//! ```
//!
//! One process for each spec: a container of specs that Ginkgo calls ordered
//! would leave out all that follow a failure, a spec may ask for a pool of its
//! own, and one that hangs takes no other with it. A cluster serves spec after
//! spec until one fails; the next spec gets a new one.

mod lists;
mod queue;
mod report;
pub(crate) mod stack;
mod suite;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use millpond_testkit::Scratch;
use millpond_testkit::real::{CLUSTER_PARTS, Part};
use regex::Regex;

use self::lists::Lists;
use self::queue::Queue;
use self::report::Results;
use self::stack::{Engine, Kit, Stack};
use self::suite::Suite;
use crate::ginkgo::Outcome;
use crate::real_cluster::ensure_parts;
use crate::{cargo, ginkgo, tree};

/// Room for the specs that wait for a registration to time out.
const LIMIT_MINUTES: u64 = 20;

/// Time limit of a spec of the selection, in minutes; none takes half of it on any engine.
const SELECTION_LIMIT_MINUTES: u64 = 5;

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only specs whose name matches this expression
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// Leave out specs whose name matches this expression
    #[arg(long, value_name = "REGEX")]
    skip: Option<String>,
    /// The provider of the nodes
    #[arg(long, value_enum, default_value_t = Engine::Millpond)]
    against: Engine,
    /// Only the specs of tests/karpenter/selection.txt
    #[arg(long, conflicts_with = "all")]
    selection: bool,
    /// Also the specs that tests/karpenter/cannot.yaml says cannot pass
    #[arg(long)]
    all: bool,
    /// How many clusters work through the specs side by side
    #[arg(long, value_name = "N", default_value_t = 1)]
    clusters: usize,
    /// Give up a spec after so many minutes; 20 by default, 5 for the selection
    #[arg(long, value_name = "MINUTES")]
    limit: Option<u64>,
    /// Judge the release build of `millpond`
    #[arg(long)]
    release: bool,
    /// Judge this binary of `millpond`, and build none
    #[arg(long, value_name = "FILE", conflicts_with = "release")]
    binary: Option<PathBuf>,
    /// Keep the logs of the specs and of the engine in this folder
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Write names, outcomes, times and messages to a JSON file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only list the specs
    #[arg(long)]
    list: bool,
}

impl Args {
    fn limit(&self) -> Duration {
        let minutes = if self.selection { SELECTION_LIMIT_MINUTES } else { LIMIT_MINUTES };
        Duration::from_secs(self.limit.unwrap_or(minutes) * 60)
    }
}

/// Chooses the specs, runs them, reports; gives the sums.
pub(crate) fn run(args: &Args) -> Result<String> {
    let mut wanted = CLUSTER_PARTS.to_vec();
    wanted.push(Part::KARPENTER_SUITE);
    wanted.extend(args.against.parts());
    let parts = ensure_parts(&wanted)?;
    let scratch = Scratch::new("karpenter-suite")?;
    let logs = logs_folder(args, &scratch)?;
    let suite = Suite::new(&parts, &logs)?;
    let known = suite.list()?;
    let lists = Lists::read(&tree::root())?;
    lists.ensure_known(&known)?;
    let chosen = choose(args, &lists, &known)?;
    if args.list {
        chosen.iter().for_each(|spec| println!("{spec}"));
        let count = format!("{} specs", chosen.len());
        println!("{count}");
        return Ok(count);
    }
    let kit = Kit::new(args.against, parts, || cargo::millpond(args.binary.as_deref(), args.release))?;
    let started = Instant::now();
    println!("{} specs against {}", chosen.len(), kit.title()?);
    let outcomes = work(args, &suite, &kit, &logs, &chosen)?;
    if let Some(file) = &args.report {
        ginkgo::write(file, &outcomes)?;
    }
    let results = Results { engine: args.against, outcomes, lists: &lists, chosen: chosen.len() };
    results.print(&kit.title()?, started.elapsed())
}

fn logs_folder(args: &Args, scratch: &Scratch) -> Result<PathBuf> {
    let folder = args.logs.clone().unwrap_or_else(|| scratch.path().to_owned());
    std::fs::create_dir_all(&folder).with_context(|| format!("create `{}`", folder.display()))?;
    // Processes run in folders of their own.
    folder.canonicalize().with_context(|| format!("find `{}`", folder.display()))
}

/// The names of the specs to run, sorted.
fn choose(args: &Args, lists: &Lists, known: &[String]) -> Result<Vec<String>> {
    let expression = |text: &Option<String>| text.as_deref().map(Regex::new).transpose().context("read the expression");
    let (focus, skip) = (expression(&args.focus)?, expression(&args.skip)?);
    let wanted = |spec: &&String| {
        focus.as_ref().is_none_or(|focus| focus.is_match(spec))
            && !skip.as_ref().is_some_and(|skip| skip.is_match(spec))
            && (!args.selection || lists.selection.contains(spec))
    };
    let mut chosen = Vec::new();
    for spec in known.iter().filter(wanted) {
        match lists.why_not(args.against, spec) {
            Some(reason) if !args.all => println!("left out: {spec} ({reason})"),
            _ => chosen.push(spec.clone()),
        }
    }
    if chosen.is_empty() {
        bail!("no spec is left to run\nhint: `--all` runs those too that cannot pass");
    }
    Ok(chosen)
}

/// Runs a spec. An engine that ended meanwhile fails it.
fn attempt(args: &Args, suite: &Suite, stack: &mut Stack, spec: &str, place: usize) -> Result<Outcome> {
    let mut outcome = suite.run(spec, place, stack, args.limit())?;
    if let Err(error) = stack.ensure_running() {
        outcome.state = "failed".into();
        outcome.message = format!("{error:#}\n{}", outcome.message);
    }
    Ok(outcome)
}

/// Runs the specs on as many clusters as wanted. Those of the selection wait for seconds, which a busy machine may not
/// have for them: one that fails is run once more, on a new cluster, and the sums say so.
fn work(args: &Args, suite: &Suite, kit: &Kit, logs: &Path, specs: &[String]) -> Result<Vec<Outcome>> {
    let queue = Queue::new(specs);
    let worker = |number: usize| -> Result<Vec<(usize, Outcome)>> {
        let start = || kit.start(&format!("{}-{number}", kit.engine().name()), logs);
        let mut idle: Option<Stack> = None;
        let mut outcomes = Vec::new();
        while let Some(turn) = queue.next() {
            let (place, spec) = (turn.place, turn.spec);
            let mut stack = idle.take().map_or_else(start, Ok)?;
            let mut outcome = attempt(args, suite, &mut stack, spec, place)?;
            println!("[{place}/{}] {}", specs.len(), report::line(&outcome));
            if !outcome.passed() && args.selection {
                stack = start()?;
                outcome = attempt(args, suite, &mut stack, spec, place)?;
                outcome.is_second_try = true;
                println!("[{place}/{}] once more: {}", specs.len(), report::line(&outcome));
            }
            // Start over after a failed spec, whose leftovers could fail the next one.
            idle = outcome.passed().then_some(stack);
            outcomes.push((place, outcome));
        }
        Ok(outcomes)
    };
    let mut outcomes = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> =
            (1..=args.clusters.clamp(1, specs.len())).map(|number| scope.spawn(move || worker(number))).collect();
        for worker in workers {
            outcomes.extend(worker.join().map_err(|_| anyhow!("a worker panicked"))??);
        }
        Ok(())
    })?;
    outcomes.sort_by_key(|(place, _)| *place);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}
