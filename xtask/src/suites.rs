//! Test programs: built once, run as often as a task wants. `cargo xtask repeat` and `cargo xtask fuzz` stand on it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::cargo::{cargo, metadata};
use crate::tree;

/// A test program of one crate.
pub(crate) struct Suite {
    package: String,
    program: PathBuf,
    /// Where cargo runs it.
    directory: PathBuf,
}

impl Suite {
    /// Builds the tests of a crate that these arguments of `cargo test` choose.
    pub(crate) fn build(package: &str, targets: &[&str]) -> Result<Vec<Self>> {
        let mut command = cargo();
        command.args(["test", "--locked", "--no-run", "--message-format=json-render-diagnostics"]);
        command.arg(format!("--package={package}")).args(targets);
        let output = command.stderr(Stdio::inherit()).output().context("run cargo")?;
        if !output.status.success() {
            bail!("the tests of `{package}` do not build");
        }
        let messages = String::from_utf8(output.stdout).context("read cargo's messages")?;
        let programs = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        // The binary that tests of a command line call is built, too.
        let tests = programs.filter(|message| message["profile"]["test"] == true);
        let programs: Vec<PathBuf> = tests.filter_map(|it| it["executable"].as_str().map(PathBuf::from)).collect();
        let directory = directory_of(package)?;
        if programs.is_empty() {
            bail!("`{package}` has no such tests");
        }
        let suite = |program| Self { package: package.to_owned(), program, directory: directory.clone() };
        Ok(programs.into_iter().map(suite).collect())
    }

    /// Runs the tests whose names contain a text; without one, all tests.
    pub(crate) fn run(&self, filter: Option<&str>, variables: &[(&str, String)]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(filter).current_dir(&self.directory).envs(variables.iter().map(|(name, value)| (name, value)));
        // As cargo sets it: tests use it to find the files of their crate.
        command.env("CARGO_MANIFEST_DIR", &self.directory);
        command.output().with_context(|| format!("run the tests of `{}`", self.package))
    }
}

fn directory_of(package: &str) -> Result<PathBuf> {
    let found = metadata()?.packages.into_iter().find(|found| found.name == package);
    let manifest = found.with_context(|| format!("there is no crate `{package}`"))?.manifest_path;
    Ok(manifest.parent().map_or_else(tree::root, Path::to_path_buf))
}

/// How many tests a program ran.
pub(crate) fn tests_of(output: &Output) -> usize {
    let text = String::from_utf8_lossy(&output.stdout);
    let count = text.lines().filter_map(|line| line.strip_prefix("running ")?.split(' ').next()?.parse::<usize>().ok());
    count.sum()
}

/// Threads that compute all the time, two for each processor, until it is dropped.
pub(crate) struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let busy = |_| {
            let ends = Arc::clone(&ends);
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::black_box((0..1_000_000_u64).fold(0, u64::wrapping_add));
                }
            })
        };
        let count = 2 * thread::available_parallelism().map_or(1, usize::from);
        Self { threads: (0..count).map(busy).collect(), ends }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread only computes, so the result of joining it does not matter.
            let _ = thread.join();
        }
    }
}
