//! A real control plane with kwok, and the engine that makes its nodes:
//! Millpond, or Karpenter with its KWOK provider.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use millpond_testkit::real::{Part, Parts};
use millpond_testkit::{Access, Kubectl, Process, RealCluster, free_port};

/// Everything that its suite tests is on.
const KARPENTER_GATES: &str = "NodeRepair=true,ReservedCapacity=true,SpotToSpotConsolidation=true,NodeOverlay=true,\
     StaticCapacity=true,CapacityBuffer=true";

/// As for the controllers of Kubernetes: no throttle of a client is measured. Karpenter derives its concurrency from
/// the millicores that it is configured with.
const KARPENTER_SETTINGS: [(&str, &str); 5] = [
    ("DISABLE_LEADER_ELECTION", "true"),
    ("SYSTEM_NAMESPACE", "kube-system"),
    ("KUBE_CLIENT_QPS", "2000"),
    ("KUBE_CLIENT_BURST", "4000"),
    ("CPU_REQUESTS", "2000"),
];

/// Longer than any suite: the token of the controller is not renewed.
const TOKEN_DURATION: &str = "--duration=12h";

/// The provider of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// `millpond controller`, with the simulated cloud
    Millpond,
    /// Karpenter, with its KWOK provider
    Karpenter,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Millpond => "millpond",
            Self::Karpenter => "karpenter",
        }
    }

    /// The parts to build for it, besides those of a cluster.
    pub(crate) fn parts(self) -> &'static [Part] {
        match self {
            Self::Millpond => &[],
            Self::Karpenter => &[Part::KARPENTER],
        }
    }
}

/// What stacks are built from.
pub(crate) struct Kit {
    engine: Engine,
    parts: Parts,
    binary: PathBuf,
    durable: bool,
}

impl Kit {
    /// With parts that are built already; `millpond` returns the path of its binary.
    pub(crate) fn new(engine: Engine, parts: Parts, millpond: impl FnOnce() -> Result<PathBuf>) -> Result<Self> {
        let binary = match engine {
            Engine::Millpond => millpond()?,
            Engine::Karpenter => parts.path(&Part::KARPENTER)?,
        };
        Ok(Self { engine, parts, binary, durable: false })
    }

    /// With an etcd that waits for the disk.
    pub(crate) fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine
    }

    /// The title for users.
    pub(crate) fn title(&self) -> Result<String> {
        Ok(match self.engine {
            Engine::Millpond => "`millpond controller`".to_owned(),
            Engine::Karpenter => format!("Karpenter {} with KWOK", millpond_testkit::real::karpenter_version()?),
        })
    }

    /// Starts a cluster for Karpenter's suite. The engine's log is
    /// `FOLDER/LABEL.log`.
    pub(crate) fn start(&self, label: &str, logs: &Path) -> Result<Stack> {
        let mut builder = RealCluster::builder().controller_manager("*").scheduler().kwok().durable(self.durable);
        for stage in self.parts.data_files(&Part::KARPENTER_SUITE)? {
            builder = builder.kwok_stage(stage);
        }
        let cluster = builder.start()?;
        self.install_crds(&cluster.kubectl()?)?;
        let mut command = self.command(&cluster)?;
        let engine = Process::spawn(label, &mut command, logs)?;
        Ok(Stack { kind: self.engine, engine, cluster })
    }

    fn install_crds(&self, kubectl: &Kubectl) -> Result<()> {
        let crds = match self.engine {
            Engine::Millpond => self.printed(&["install", "crds"])?,
            Engine::Karpenter => {
                let mut crds = String::new();
                let files = self.parts.data_files(&Part::KARPENTER)?;
                for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "yaml")) {
                    crds += &std::fs::read_to_string(file).with_context(|| format!("read `{}`", file.display()))?;
                    crds += "\n";
                }
                crds
            }
        };
        // A client-side apply would store them in an annotation, for which they are too long.
        kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &crds).context("install the CRDs")?;
        kubectl
            .run(&["wait", "--for=condition=Established", "--timeout=60s", "crds", "--all"])
            .context("wait for the CRDs")?;
        Ok(())
    }

    /// The output of the engine's binary.
    fn printed(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(&self.binary).args(words).output().context("run millpond")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "`millpond {}` failed: {}", words.join(" "), complaint.trim());
        String::from_utf8(output.stdout).context("read what millpond printed")
    }

    /// A kubeconfig of the service account that `millpond install rbac` prints, with its rights and no other ones.
    fn least_rights(&self, cluster: &RealCluster) -> Result<PathBuf> {
        let kubectl = cluster.kubectl()?;
        let objects = self.printed(&["install", "rbac", "--without", "own-hosts", "--without", "ci-nodes"])?;
        kubectl.run_with_input(&["apply", "-f", "-"], &objects).context("give the controller its rights")?;
        let arguments = ["create", "token", "millpond-controller", "--namespace=millpond-system", TOKEN_DURATION];
        let token = kubectl.run(&arguments).context("make a token")?;
        let file = cluster.folder().join("controller.kubeconfig");
        Access { token: Some(token.trim().to_owned()), ..cluster.access().clone() }.write(&file)?;
        Ok(file)
    }

    fn command(&self, cluster: &RealCluster) -> Result<Command> {
        let mut command = Command::new(&self.binary);
        match self.engine {
            Engine::Millpond => {
                command.arg("controller").arg("--kubeconfig").arg(self.least_rights(cluster)?);
                command.arg("--data-dir").arg(cluster.folder().join("millpond")).arg("--no-leader-election");
                command.args(["--health-bind", "0", "--metrics-bind", "0"]);
            }
            Engine::Karpenter => {
                command
                    .env("KUBECONFIG", cluster.kubeconfig())
                    .env("FEATURE_GATES", KARPENTER_GATES)
                    .env("METRICS_PORT", free_port()?.to_string())
                    .env("HEALTH_PROBE_PORT", free_port()?.to_string())
                    .envs(KARPENTER_SETTINGS);
            }
        }
        Ok(command)
    }
}

/// A running cluster with its engine. Dropping it kills both.
pub(crate) struct Stack {
    kind: Engine,
    // Goes first, so that it does not complain of a lost server.
    engine: Process,
    cluster: RealCluster,
}

impl Stack {
    /// Fails, with the end of its log, if something of it has ended.
    pub(crate) fn ensure_running(&mut self) -> Result<()> {
        self.engine.ensure_running()?;
        self.cluster.ensure_running()
    }

    pub(crate) fn engine(&self) -> Engine {
        self.kind
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.cluster.kubeconfig()
    }

    pub(crate) fn kubectl(&self) -> Result<Kubectl> {
        self.cluster.kubectl()
    }

    /// Peak memory of the engine, in bytes.
    pub(crate) fn engine_peak_memory(&self) -> Result<u64> {
        Ok(process_usage(&self.engine)?.1)
    }

    /// CPU seconds so far of all that runs, by name. The engine is `engine`.
    pub(crate) fn cpu_seconds(&self) -> Result<CpuSeconds> {
        let parts = self.cluster.processes().iter().chain(self.cluster.controllers().processes());
        let parts = parts.map(|process| (process.name(), process)).chain([("engine", &self.engine)]);
        let used = |(name, process): (&str, &Process)| Ok((name.to_owned(), process_usage(process)?.0));
        Ok(CpuSeconds(parts.map(used).collect::<Result<_>>()?))
    }
}

/// CPU seconds by part.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct CpuSeconds(pub(crate) BTreeMap<String, f64>);

impl CpuSeconds {
    /// The usage since an earlier measurement.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (part, seconds) in &mut self.0 {
            *seconds -= before.0.get(part).unwrap_or(&0.0);
        }
        self
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.values().sum()
    }
}

fn process_usage(process: &Process) -> Result<(f64, u64)> {
    let folder = PathBuf::from(format!("/proc/{}", process.id()));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).context("look at a process");
    usage(&read("stat")?, &read("status")?)
}

/// CPU seconds and peak memory of a process, from the texts of
/// `/proc/PID/stat` and `/proc/PID/status`.
fn usage(stat: &str, status: &str) -> Result<(f64, u64)> {
    /// The same on every Linux that this runs on.
    const TICKS_PER_SECOND: f64 = 100.0;
    // The name of the program, in parentheses, may hold spaces.
    let after_name = stat.rsplit_once(')').context("a name in parentheses")?.1;
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak memory")?;
    let kibibytes: u64 = peak.trim().trim_end_matches(" kB").parse().context("read the peak memory")?;
    Ok((ticks as f64 / TICKS_PER_SECOND, kibibytes * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_proc() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 8 0 1 1 1";
        let status = "Name:\ta\nVmHWM:\t  2048 kB\n";
        assert_eq!(usage(stat, status).unwrap(), (2.0, 2 * 1024 * 1024));
    }
}
