//! The report after a conformance run.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::ginkgo::Outcome;

/// Lines of a failure's message that are printed; the report holds it all.
const MESSAGE_LINES: usize = 12;

/// Prints each spec and a closing line; fails unless every one of the `chosen`
/// specs passed.
pub(super) fn print(outcomes: &[Outcome], chosen: usize, title: &str, took: Duration) -> Result<()> {
    for outcome in outcomes {
        println!("{:8} {:6.1} s  {}", outcome.state, outcome.seconds, outcome.name);
    }
    let passed = outcomes.iter().filter(|outcome| outcome.passed()).count();
    for outcome in outcomes.iter().filter(|outcome| !outcome.passed()) {
        println!("\n{}: {}", outcome.state, outcome.name);
        for line in outcome.message.lines().take(MESSAGE_LINES) {
            println!("    {line}");
        }
    }
    println!("\n{passed} of {chosen} specs passed against {title} in {} s", took.as_secs());
    if passed != chosen || outcomes.len() != chosen {
        let failed = chosen.saturating_sub(passed).max(1);
        bail!("{failed} of {chosen} specs did not pass\nhint: `MILLPOND_KEEP=1` keeps the logs of all servers");
    }
    Ok(())
}
