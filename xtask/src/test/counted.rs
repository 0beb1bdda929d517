//! `cargo test`, with its results added up: a filter that matches no test must
//! not look like a success.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};

use super::step::Show;
use crate::cargo::cargo;

/// Tests of one run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Count {
    /// Adds a line such as
    /// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    fn add(&mut self, line: &str) {
        let Some((_, numbers)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for field in numbers.split("; ") {
            let Some((number, what)) = field.split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// Runs the tests; gives their numbers.
pub(super) fn run(args: &[&str], show: Show) -> Result<String> {
    let mut command = cargo();
    command.args(args).stdout(Stdio::piped());
    let mut child = command.spawn().context("run cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut count = Count::default();
    let mut kept = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.context("read what cargo prints")?;
        count.add(&line);
        match show {
            Show::AtOnce => println!("{line}"),
            Show::AtTheEnd => kept.extend([line.as_str(), "\n"]),
        }
    }
    print!("{kept}");
    let status = child.wait().context("wait for cargo")?;
    if !status.success() {
        bail!("{} test(s) failed, {} passed", count.failed, count.passed);
    }
    if count.passed == 0 {
        bail!("no test ran");
    }
    Ok(match count.ignored {
        0 => format!("{} tests", count.passed),
        ignored => format!("{} tests, {ignored} left for another step", count.passed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_binaries_add_up() {
        let mut count = Count::default();
        for line in [
            "running 6 tests",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 2 passed; 3 failed; 4 ignored; 0 measured; 9 filtered out; finished in 0.01s",
        ] {
            count.add(line);
        }
        assert_eq!(count, Count { passed: 7, failed: 3, ignored: 5 });
    }
}
