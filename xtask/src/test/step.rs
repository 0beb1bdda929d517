//! One step of the test command, and how it runs.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};

use super::background::Build;
use super::counted;
use super::summary::Outcome;
use crate::cargo::cargo;

/// One line of the plan.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// The equivalent command line, or an explanation.
    pub(super) detail: String,
    pub(super) work: Work,
}

/// The work of a step.
pub(super) enum Work {
    /// cargo with these arguments and variables.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// `cargo test` with these arguments. A run without any test fails.
    Tests(Vec<&'static str>),
    /// `cargo xtask` with these arguments. The last line that it prints goes into the summary.
    Xtask(&'static [&'static str]),
    /// A function of this process, with a note for the summary.
    Task(fn() -> Result<String>),
    /// Waits for what is built in the background.
    AwaitParts,
    /// Not run, for this reason, which the plan and the summary show.
    Nothing(String),
}

/// Where the output of a step goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Straight through, while the step runs alone.
    AtOnce,
    /// As one block when the step ends, while other steps run in parallel.
    AtTheEnd,
}

impl Step {
    pub(super) fn cargo(
        name: &'static str,
        args: &'static [&'static str],
        env: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { name, detail: format!("cargo {}", args.join(" ")), work: Work::Cargo(args, env) }
    }

    pub(super) fn tests(name: &'static str, args: &[&'static str]) -> Self {
        let args = [&["test", "--locked", "--no-fail-fast"], args].concat();
        Self { name, detail: format!("cargo {}", args.join(" ")), work: Work::Tests(args) }
    }

    pub(super) fn xtask(name: &'static str, args: &'static [&'static str]) -> Self {
        Self { name, detail: format!("cargo xtask {}", args.join(" ")), work: Work::Xtask(args) }
    }

    pub(super) fn task(name: &'static str, detail: &str, task: fn() -> Result<String>) -> Self {
        Self { name, detail: detail.into(), work: Work::Task(task) }
    }

    pub(super) fn nothing(name: &'static str, reason: &str) -> Self {
        Self { name, detail: "nothing".into(), work: Work::Nothing(reason.into()) }
    }

    /// Runs the step. `build` is needed by [`Work::AwaitParts`] alone.
    pub(super) fn run(&self, build: &mut Option<Build>, show: Show) -> Outcome {
        let result = match &self.work {
            Work::Nothing(reason) => return Outcome::NotRun(reason.clone()),
            Work::Cargo(args, env) => {
                let mut command = cargo();
                command.args(*args).envs(env.iter().copied());
                run_command(command, show).map(|_| String::new())
            }
            Work::Xtask(args) => run_xtask(args, show),
            Work::Task(task) => task(),
            Work::AwaitParts => build.take().map_or_else(|| Ok(String::new()), Build::finish),
            Work::Tests(args) => counted::run(args, show),
        };
        match result {
            Ok(note) => Outcome::Passed(note),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }
}

fn run_xtask(args: &[&str], show: Show) -> Result<String> {
    let mut command = Command::new(std::env::current_exe().context("find the xtask binary")?);
    command.args(args);
    let output = run_command(command, show)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    Ok(printed.lines().next_back().unwrap_or_default().to_owned())
}

/// Runs a command to its end; what it printed is only known where it was not shown at once.
fn run_command(mut command: Command, show: Show) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match show {
        Show::AtOnce => {
            let status = command.status().with_context(|| format!("run `{name}`"))?;
            Output { status, stdout: Vec::new(), stderr: Vec::new() }
        }
        Show::AtTheEnd => {
            let output = command.output().with_context(|| format!("run `{name}`"))?;
            print!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
            output
        }
    };
    if !output.status.success() {
        bail!("{}", output.status);
    }
    Ok(output)
}
