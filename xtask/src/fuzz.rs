//! `cargo xtask fuzz`: runs the fuzz tests of the tree with further seeds, for any time. The test command runs the same
//! tests with the same few seeds each time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::suites::{Suite, tests_of};

/// Tests of this name take seeds from `FUZZ_SEEDS`, or are property tests that take their number of cases from
/// `PROPTEST_CASES`.
const PREFIX: &str = "fuzz_";
/// The crates that have some, with the arguments of `cargo test` that choose them.
const CRATES: [(&str, &[&str]); 2] = [("millpond-apiserver", &["--lib"]), ("millpond-state", &["--test", "fuzz"])];
/// Seeds of one round: a round takes a minute or two.
const SEEDS: u64 = 4;
/// Cases of each property test in one round.
const CASES: u32 = 2_000;

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only fuzz tests whose names contain this, such as `fuzz_bad_input`
    #[arg(default_value = PREFIX)]
    filter: String,
    /// No round begins after this many minutes
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The first seed; a failure names the one that it came from
    #[arg(long, default_value_t = 1_000)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut suites = Vec::new();
    for (package, targets) in CRATES {
        suites.extend(Suite::build(package, targets)?);
    }
    let (begun, most) = (Instant::now(), Duration::from_secs(60 * args.minutes));
    let mut first = args.seed;
    while first == args.seed || begun.elapsed() < most {
        let end = first + SEEDS;
        let variables = [("FUZZ_SEEDS", format!("{first}..{end}")), ("PROPTEST_CASES", CASES.to_string())];
        let mut tests = 0;
        for suite in &suites {
            let output = suite.run(Some(&args.filter), &variables)?;
            tests += tests_of(&output);
            if !output.status.success() {
                print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                bail!("failed with FUZZ_SEEDS={first}..{end}");
            }
        }
        if tests == 0 {
            bail!("no fuzz test has `{}` in its name", args.filter);
        }
        println!("seeds {first}..{end}: {tests} fuzz tests passed ({} s so far)", begun.elapsed().as_secs());
        first = end;
    }
    Ok(())
}
