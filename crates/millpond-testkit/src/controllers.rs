//! Real controllers on any API server: real or embedded.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::kubeconfig::{Access, write_private};
use crate::pki;
use crate::process::Process;
use crate::real::{Part, Parts};
use crate::scratch::Scratch;

/// High enough that the client's own throttle is never what is measured: with
/// the default of 20 requests/s a Deployment of 1,000 pods takes 50 s.
const CLIENT_LIMITS: [&str; 2] = ["--kube-api-qps=2000", "--kube-api-burst=4000"];

/// How long a kwok node's lease lasts: the default that kubelets use.
const NODE_LEASE: &str = "40";

/// The controllers to run.
#[derive(Clone, Debug, Default)]
pub struct ControllersBuilder {
    controller_manager: Option<String>,
    scheduler: bool,
    kwok: bool,
    kwok_stages: Vec<PathBuf>,
}

impl ControllersBuilder {
    /// kube-controller-manager with the given `--controllers` list: `*` for
    /// all that are on by default, `*,-nodelifecycle` to leave one out, or the
    /// names of a few.
    pub fn controller_manager(mut self, controllers: &str) -> Self {
        self.controller_manager = Some(controllers.to_owned());
        self
    }

    /// kube-scheduler.
    pub fn scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// kwok for all nodes: they become and stay Ready, pods run and end.
    pub fn kwok(mut self) -> Self {
        self.kwok = true;
        self
    }

    /// Adds a stage for kwok. It replaces a stage with the same file name.
    pub fn kwok_stage(mut self, file: impl Into<PathBuf>) -> Self {
        self.kwok_stages.push(file.into());
        self
    }

    /// Starts them against the server of a kubeconfig.
    pub fn start(&self, parts: &Parts, kubeconfig: &Path) -> Result<Controllers> {
        let scratch = Scratch::new("controllers")?;
        let key = scratch.path().join("sa.key");
        write_private(&key, pki::service_account_key()?.serialize_pem().as_bytes())?;
        let processes = self.spawn(parts, kubeconfig, &key, scratch.path())?;
        Ok(Controllers { processes, _scratch: Some(scratch) })
    }

    /// The same, with the key that the server knows, and logs in `folder`.
    pub(crate) fn start_in(&self, parts: &Parts, kubeconfig: &Path, key: &Path, folder: &Path) -> Result<Controllers> {
        Ok(Controllers { processes: self.spawn(parts, kubeconfig, key, folder)?, _scratch: None })
    }

    fn spawn(&self, parts: &Parts, kubeconfig: &Path, key: &Path, folder: &Path) -> Result<Vec<Process>> {
        let mut processes = Vec::new();
        let mut start = |part: &Part, fill: &dyn Fn(&mut Command) -> Result<()>| -> Result<()> {
            let mut command = Command::new(parts.path(part)?);
            command.arg("--kubeconfig").arg(kubeconfig);
            fill(&mut command)?;
            processes.push(Process::spawn(part.name, &mut command, folder)?);
            Ok(())
        };
        if let Some(controllers) = &self.controller_manager {
            let ca = folder.join("root-ca.crt");
            write_private(&ca, Access::read(kubeconfig)?.ca_pem.as_bytes())?;
            start(&Part::KUBE_CONTROLLER_MANAGER, &|command| {
                command
                    .args(["--leader-elect=false", "--secure-port=0"])
                    .args(CLIENT_LIMITS)
                    .args(["--concurrent-replicaset-syncs=20", "--concurrent-gc-syncs=20"])
                    .arg("--service-account-private-key-file")
                    .arg(key)
                    .arg("--root-ca-file")
                    .arg(&ca)
                    .arg(format!("--controllers={controllers}"));
                let ca_key = folder.join(pki::CA_KEY);
                if ca_key.exists() {
                    command.arg("--cluster-signing-cert-file").arg(&ca).arg("--cluster-signing-key-file").arg(ca_key);
                }
                Ok(())
            })?;
        }
        if self.scheduler {
            start(&Part::KUBE_SCHEDULER, &|command| {
                command
                    .args(["--leader-elect=false", "--secure-port=0"])
                    .args(CLIENT_LIMITS)
                    .arg("--authentication-kubeconfig")
                    .arg(kubeconfig)
                    .arg("--authorization-kubeconfig")
                    .arg(kubeconfig);
                Ok(())
            })?;
        }
        if self.kwok {
            start(&Part::KWOK, &|command| {
                command.args(["--manage-all-nodes", "--node-lease-duration-seconds", NODE_LEASE]);
                for stage in with_replacements(parts.data_files(&Part::KWOK)?, &self.kwok_stages) {
                    command.arg("--config").arg(stage);
                }
                Ok(())
            })?;
        }
        Ok(processes)
    }
}

/// All files, except those with the name of one of the `others`.
fn with_replacements(files: Vec<PathBuf>, others: &[PathBuf]) -> Vec<PathBuf> {
    let replaced = |file: &PathBuf| others.iter().any(|other| other.file_name() == file.file_name());
    files.into_iter().filter(|file| !replaced(file)).chain(others.iter().cloned()).collect()
}

/// Running controllers. Dropping them kills them.
#[derive(Debug)]
pub struct Controllers {
    processes: Vec<Process>,
    // After the processes: they write into it.
    _scratch: Option<Scratch>,
}

impl Controllers {
    /// Says which to start.
    pub fn builder() -> ControllersBuilder {
        ControllersBuilder::default()
    }

    /// Fails, with the end of its log, if one of them has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::ensure_running)
    }

    /// The processes, in the order that they were started in.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_takes_the_place_of_its_namesake() {
        let own = vec!["kwok/pod-ready.yaml".into(), "kwok/pod-delete.yaml".into()];
        let others = ["suite/pod-delete.yaml".into(), "suite/pod-unhealthy.yaml".into()];
        let stages = with_replacements(own, &others);
        let expected = ["kwok/pod-ready.yaml", "suite/pod-delete.yaml", "suite/pod-unhealthy.yaml"];
        assert_eq!(stages, expected.map(PathBuf::from));
    }
}
