//! Running the suite's binary: list the specs, run one of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use millpond_testkit::Process;
use millpond_testkit::real::{Part, Parts};

use super::stack::{Engine, Stack};
use crate::ginkgo::{self, Outcome};
use crate::tree;

/// The name of the suite; full names of specs start with it.
const SUITE: &str = "Regression";

/// Time for the cleanup of a spec that is given up.
const GRACE: Duration = Duration::from_secs(15);

/// Beyond that the process itself is given up.
const PATIENCE: Duration = Duration::from_secs(45);

/// The class that takes the place of the suite's own.
const CLASS: &str = "tests/karpenter/nodeclass.yaml";

/// The pool that takes the place of the suite's own, by the first word of the
/// spec. The suite narrows its own pool likewise, but only if the class is one
/// of KWOK: with larger types, all the pods of a buffer fit on one node.
const POOLS: &[(&str, &str)] =
    &[("CapacityBuffer ", "tests/karpenter/nodepool-small.yaml"), ("", "tests/karpenter/nodepool.yaml")];

/// The suite, with a place for its logs and reports.
pub(super) struct Suite {
    binary: PathBuf,
    folder: PathBuf,
}

impl Suite {
    pub(super) fn new(parts: &Parts, folder: &Path) -> Result<Self> {
        Ok(Self { binary: parts.path(&Part::KARPENTER_SUITE)?, folder: folder.to_owned() })
    }

    /// All names, sorted, because the suite's own order changes with every run. Asks the binary, not a server.
    pub(super) fn list(&self) -> Result<Vec<String>> {
        let report = self.folder.join("list.json");
        let mut command = self.command(&report);
        let output = command.arg("--ginkgo.dry-run").output().context("run the suite")?;
        if !output.status.success() {
            bail!("the suite cannot list its specs:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let mut names: Vec<_> = ginkgo::read(&report)?.into_iter().map(|outcome| outcome.name).collect();
        names.sort();
        Ok(names)
    }

    /// Runs one spec. What goes wrong on the way is its outcome.
    pub(super) fn run(&self, spec: &str, number: usize, stack: &Stack, limit: Duration) -> Result<Outcome> {
        let label = format!("{number:02}-{}", file_name(spec));
        let report = self.folder.join(format!("{label}.json"));
        let mut command = self.command(&report);
        command
            .env("KUBECONFIG", stack.kubeconfig())
            .arg(format!("--ginkgo.focus=^{SUITE} {}$", regex::escape(spec)))
            .arg(format!("--ginkgo.timeout={}s", limit.as_secs()))
            .arg(format!("--ginkgo.grace-period={}s", GRACE.as_secs()))
            // No time limit of Go's own framework, which must not end the run first.
            .args(["--test.timeout=0", "--ginkgo.v"]);
        if stack.engine() == Engine::Millpond {
            let pool = POOLS.iter().find(|(prefix, _)| spec.starts_with(prefix)).context("every spec has a pool")?.1;
            command.arg("--default-nodeclass").arg(tree::root().join(CLASS));
            command.arg("--default-nodepool").arg(tree::root().join(pool));
        }
        let started = Instant::now();
        let mut process = Process::spawn(&label, &mut command, &self.folder)?;
        if process.wait_within(limit + GRACE + PATIENCE)?.is_none() {
            process.kill()?;
        }
        let failed = |message: String| Outcome {
            name: spec.to_owned(),
            state: "failed".into(),
            seconds: started.elapsed().as_secs_f64(),
            message,
            is_second_try: false,
        };
        let Ok(outcomes) = ginkgo::read(&report) else {
            return Ok(failed(format!("the suite ended without a report:\n{}", process.log_tail())));
        };
        // A failed set-up of the whole suite comes without the spec.
        let other = outcomes.iter().find(|outcome| outcome.name != spec);
        match outcomes.iter().find(|outcome| outcome.name == spec) {
            Some(outcome) if outcome.passed() && other.is_none() => Ok(outcome.clone()),
            Some(outcome) if !outcome.passed() => Ok(outcome.clone()),
            _ => Ok(failed(other.map_or_else(|| "the spec did not run".into(), |other| other.message.clone()))),
        }
    }

    fn command(&self, report: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(&self.folder).arg("--ginkgo.no-color").arg("--ginkgo.json-report").arg(report);
        command
    }
}

/// A name that every file system takes, for a log of one spec.
fn file_name(spec: &str) -> String {
    let words = spec.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = words.collect::<Vec<_>>().join("-").to_lowercase();
    name.truncate(100);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_have_plain_names() {
        let spec = "Integration should allow it ([*].node-restriction.kubernetes.io/custom-label)";
        assert_eq!(file_name(spec), "integration-should-allow-it-node-restriction-kubernetes-io-custom-label");
    }
}
