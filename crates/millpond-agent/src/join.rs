//! Plans that make a host a node, by kubeadm or by kubelet's own TLS bootstrap.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millpond_api::byoh::names;
use millpond_api::karpenter::Taint;

use crate::cloud_config::{self, CloudConfigError};
use crate::plan::{FileStep, Plan, RunStep, Step, UnitStep};

/// Seconds that one command of the bootstrap data may take.
const COMMAND_TIMEOUT: u64 = 900;
const RESET: &str = "command -v kubeadm >/dev/null || exit 0; exec kubeadm reset --force";

/// Whom the plan is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Name of the host, and of its Node.
    pub host: String,
    /// UID of the machine.
    pub machine_uid: String,
    /// Epoch of the claim.
    pub epoch: i64,
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Taints of the Node.
    pub taints: Vec<Taint>,
}

/// What `tlsBootstrap` writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsBootstrap {
    /// CA of the cluster, in PEM.
    pub ca: Vec<u8>,
    /// Kubeconfig with a bootstrap token.
    pub bootstrap_kubeconfig: Vec<u8>,
    /// KubeletConfiguration.
    pub kubelet_config: Vec<u8>,
}

/// The plan of kubeadm mode: what the bootstrap data says, as it says it. `kubeadm reset` undoes it.
pub fn kubeadm(target: &Target, bootstrap_data: &str) -> Result<Plan, CloudConfigError> {
    // A step that does nothing holds the undo, so that it is written down before the first command runs. A host on
    // which the installation failed has no kubeadm to reset with.
    let undo = ["sh", "-c", RESET].map(str::to_owned).to_vec();
    let argv = vec!["true".to_owned()];
    let mut steps = vec![Step::Run(RunStep { argv, timeout_seconds: COMMAND_TIMEOUT, undo })];
    steps.extend(cloud_config::parse(bootstrap_data, COMMAND_TIMEOUT)?);
    Ok(Plan { machine_uid: target.machine_uid.clone(), epoch: target.epoch, steps })
}

/// The plan of tlsBootstrap mode: files for kubelet, and its unit.
pub fn tls_bootstrap(target: &Target, files: &TlsBootstrap) -> Plan {
    let file = |path: &str, content: &[u8], mode| {
        let content = STANDARD.encode(content);
        Step::WriteFile(FileStep { path: path.to_owned(), content, mode, ..FileStep::default() })
    };
    let steps = vec![
        file("/etc/kubernetes/pki/ca.crt", &files.ca, 0o644),
        file("/etc/kubernetes/bootstrap-kubelet.conf", &files.bootstrap_kubeconfig, 0o600),
        file("/var/lib/kubelet/config.yaml", &files.kubelet_config, 0o644),
        // A drop-in of the packages replaces ExecStart even of a unit in /etc; an empty one of that name hides it.
        file("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", b"", 0o644),
        Step::SystemdUnit(UnitStep { name: "kubelet.service".to_owned(), content: unit(target) }),
    ];
    Plan { machine_uid: target.machine_uid.clone(), epoch: target.epoch, steps }
}

fn unit(target: &Target) -> String {
    let mut command = vec![
        "kubelet".to_owned(),
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf".to_owned(),
        "--kubeconfig=/etc/kubernetes/kubelet.conf".to_owned(),
        "--config=/var/lib/kubelet/config.yaml".to_owned(),
        format!("--hostname-override={}", target.host),
        format!("--provider-id={}", names::provider_id(&target.host)),
    ];
    if !target.labels.is_empty() {
        let labels: Vec<String> = target.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        command.push(format!("--node-labels={}", labels.join(",")));
    }
    if !target.taints.is_empty() {
        let taint = |taint: &Taint| {
            let effect = serde_json::to_value(taint.effect).unwrap_or_default();
            format!("{}={}:{}", taint.key, taint.value, effect.as_str().unwrap_or_default())
        };
        let taints: Vec<String> = target.taints.iter().map(taint).collect();
        command.push(format!("--register-with-taints={}", taints.join(",")));
    }
    // systemd expands `%` and `$`; env finds kubelet by PATH.
    let command = command.join(" ").replace('%', "%%").replace('$', "$$");
    format!(
        "[Unit]\nDescription=kubelet: the node agent of Kubernetes\nWants=network-online.target\n\
         After=network-online.target containerd.service\n\n[Service]\nExecStart=/usr/bin/env {command}\n\
         Restart=always\nRestartSec=5\n\n[Install]\nWantedBy=multi-user.target\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let labels = BTreeMap::from([("purpose".to_owned(), "gpu".to_owned())]);
        let taints = serde_json::from_str(r#"[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]"#).unwrap();
        Target { host: "node11".into(), machine_uid: "u1".into(), epoch: 3, labels, taints }
    }

    #[test]
    fn kubelet_gets_provider_id_labels_and_taints() {
        let plan = tls_bootstrap(&target(), &TlsBootstrap::default());
        assert_eq!((plan.epoch, plan.machine_uid.as_str()), (3, "u1"));
        let Some(Step::SystemdUnit(unit)) = plan.steps.last() else { panic!("a unit") };
        assert_eq!(unit.name, "kubelet.service");
        for flag in [
            "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
            "--kubeconfig=/etc/kubernetes/kubelet.conf",
            "--config=/var/lib/kubelet/config.yaml",
            "--provider-id=byoh://node11",
            "--node-labels=purpose=gpu",
            "--register-with-taints=nvidia.com/gpu=:NoSchedule",
        ] {
            assert!(unit.content.contains(flag), "{flag}: {}", unit.content);
        }
        let secret = plan.steps.iter().find_map(|step| match step {
            Step::WriteFile(file) if file.path.ends_with("bootstrap-kubelet.conf") => Some(file.mode),
            _ => None,
        });
        assert_eq!(secret, Some(0o600));
    }

    #[test]
    fn kubeadm_runs_the_bootstrap_data_as_it_is() {
        let plan = kubeadm(&target(), "#cloud-config\nruncmd: ['kubeadm join && touch /run/ok']\n").unwrap();
        let Step::Run(join) = &plan.steps[1] else { panic!("a command") };
        assert_eq!(join.argv, ["sh", "-c", "kubeadm join && touch /run/ok"]);
        assert_ne!(plan.hash(), kubeadm(&Target { epoch: 4, ..target() }, "#cloud-config\n").unwrap().hash());
    }
}
