//! Running `e2e.test`: list the specs, deal them out to a few processes, read
//! their reports.
//!
//! The specs mostly wait, so several processes at once are much faster than
//! one. Ginkgo has a way to do that, which needs its own command; dealing out
//! names is simpler. Specs marked `[Serial]` run afterwards, alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use millpond_testkit::Process;
use millpond_testkit::real::{Part, Parts};

use crate::ginkgo::{self, Outcome};

/// Time limit of one process. Specs have shorter limits of their own; this one ends a suite that hangs as a whole.
const SUITE_TIMEOUT: &str = "3h";

/// Marks specs that want the cluster for themselves.
const SERIAL: &str = "[Serial]";

/// The specs to run.
pub(super) struct Selection<'a> {
    pub(super) focus: &'a str,
    pub(super) skip: &'a [&'a str],
}

/// The suite, with a place for its logs and reports.
pub(super) struct Suite {
    binary: PathBuf,
    kubectl: PathBuf,
    folder: PathBuf,
}

impl Suite {
    /// `folder` takes logs and reports.
    pub(super) fn new(parts: &Parts, folder: &Path) -> Result<Self> {
        let binary = parts.path(&Part::E2E_TEST)?;
        let kubectl = parts.path(&Part::KUBECTL)?;
        Ok(Self { binary, kubectl, folder: folder.to_owned() })
    }

    /// The names of the specs that match, sorted. Asks the binary, no server.
    pub(super) fn list(&self, selection: &Selection<'_>) -> Result<Vec<String>> {
        let mut command = self.command("list");
        command.arg("--ginkgo.dry-run").arg(format!("--ginkgo.focus={}", selection.focus));
        command.args(selection.skip.iter().map(|skip| format!("--ginkgo.skip={skip}")));
        let output = command.output().context("run e2e.test")?;
        if !output.status.success() {
            bail!("e2e.test cannot list its specs:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let mut names: Vec<_> = self.read_report("list")?.into_iter().map(|outcome| outcome.name).collect();
        names.sort();
        Ok(names)
    }

    /// Runs the specs against the server of a kubeconfig: those that may share
    /// it over `jobs` processes, then the others.
    pub(super) fn run(&self, kubeconfig: &Path, specs: &[String], jobs: usize) -> Result<Vec<Outcome>> {
        let (serial, shared): (Vec<_>, Vec<_>) = specs.iter().partition(|name| name.contains(SERIAL));
        let mut workers = Vec::new();
        for number in 0..jobs.clamp(1, shared.len().max(1)) {
            let hand: Vec<_> = shared.iter().copied().skip(number).step_by(jobs.max(1)).collect();
            workers.extend(self.start(&format!("e2e-{}", number + 1), kubeconfig, &hand)?);
        }
        let mut outcomes = self.finish(workers)?;
        let alone = self.start("e2e-serial", kubeconfig, &serial)?;
        outcomes.extend(self.finish(alone.into_iter().collect())?);
        outcomes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(outcomes)
    }

    fn start(&self, label: &str, kubeconfig: &Path, specs: &[&String]) -> Result<Option<Worker>> {
        if specs.is_empty() {
            return Ok(None);
        }
        let mut command = self.command(label);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.arg("--ginkgo.v").args(specs.iter().map(|name| format!("--ginkgo.focus={}$", regex::escape(name))));
        let process = Process::spawn(label, &mut command, &self.folder)?;
        Ok(Some(Worker { label: label.to_owned(), process }))
    }

    /// Waits for the processes. A failed spec makes `e2e.test` fail, so it is
    /// the report that counts; without a report the log is the error.
    fn finish(&self, workers: Vec<Worker>) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for mut worker in workers {
            worker.process.wait()?;
            let read = self.read_report(&worker.label);
            outcomes.extend(read.with_context(|| format!("e2e.test ended early:\n{}", worker.process.log_tail()))?);
        }
        Ok(outcomes)
    }

    fn command(&self, label: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .current_dir(&self.folder)
            // Specs of kubectl leave files behind.
            .env("TMPDIR", &self.folder)
            .arg("--kubectl-path")
            .arg(&self.kubectl)
            .args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=0"])
            .args(["--disable-log-dump=true", "--ginkgo.no-color", "--ginkgo.timeout", SUITE_TIMEOUT])
            .arg("--ginkgo.json-report")
            .arg(self.report_file(label));
        command
    }

    fn report_file(&self, label: &str) -> PathBuf {
        self.folder.join(format!("{label}.json"))
    }

    fn read_report(&self, label: &str) -> Result<Vec<Outcome>> {
        ginkgo::read(&self.report_file(label))
    }
}

struct Worker {
    label: String,
    process: Process,
}
