//! `cargo xtask repeat`: tests many times, on an idle machine and under load. A test under virtual time has one result;
//! one that fails once in a hundred runs has a cause that this finds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::suites::{Load, Suite, tests_of};

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Crate of the tests, such as `millpond-sim`
    package: String,
    /// Only tests whose names contain this, such as `two_controllers`
    filter: Option<String>,
    /// Only this file or folder of the crate's `tests`, such as `pools`
    #[arg(long)]
    test: Option<String>,
    /// Runs on an idle machine, and as many under load
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// Where the output of a run that fails is written
    #[arg(long, default_value = "target/repeat")]
    output: PathBuf,
}

/// Runs of one kind.
#[derive(Default)]
struct Tally {
    runs: u32,
    failures: u32,
    longest: Duration,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let targets: Vec<&str> = match &args.test {
        Some(test) => vec!["--test", test],
        None => vec!["--lib", "--tests"],
    };
    let suites = Suite::build(&args.package, &targets)?;
    std::fs::create_dir_all(&args.output).with_context(|| format!("create `{}`", args.output.display()))?;
    let mut failures = 0;
    for loaded in [false, true] {
        let load = loaded.then(Load::start);
        let how = if loaded { "under load" } else { "idle" };
        let tally = repeat(args, &suites, how)?;
        drop(load);
        let Tally { runs, failures: failed, longest } = tally;
        println!("{how}: {runs} runs, {failed} failed, the longest took {:.1} s", longest.as_secs_f64());
        failures += failed;
    }
    if failures > 0 {
        bail!("{failures} run(s) failed; their output is in `{}`", args.output.display());
    }
    Ok(())
}

fn repeat(args: &Args, suites: &[Suite], how: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    for number in 1..=args.times {
        let (begun, mut tests) = (Instant::now(), 0);
        for suite in suites {
            let output = suite.run(args.filter.as_deref(), &[])?;
            tests += tests_of(&output);
            if !output.status.success() {
                tally.failures += 1;
                let file = args.output.join(format!("{}-{}-{number}.txt", args.package, how.replace(' ', "-")));
                std::fs::write(&file, [output.stdout, output.stderr].concat())
                    .with_context(|| format!("write `{}`", file.display()))?;
                println!("{how}, run {number}: failed, see `{}`", file.display());
            }
        }
        if tests == 0 {
            bail!("no test of `{}` has such a name", args.package);
        }
        tally.runs += 1;
        tally.longest = tally.longest.max(begun.elapsed());
    }
    Ok(tally)
}
