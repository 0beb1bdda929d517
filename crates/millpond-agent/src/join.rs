//! Plans that make a host a node, by kubeadm or by kubelet's own TLS bootstrap.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millpond_api::byoh::names;
use millpond_api::karpenter::Taint;

use crate::cloud_config::{self, CloudConfigError, Instance};
use crate::plan::{FileStep, GuardStep, Plan, RunStep, Step, UnitStep};

/// Seconds that one command of the bootstrap data may take.
const COMMAND_TIMEOUT: u64 = 900;
/// Seconds that the installation may take: it downloads packages.
const INSTALLATION_TIMEOUT: u64 = 1800;
const RESET: &str = "command -v kubeadm >/dev/null || exit 0; exec kubeadm reset --force";
/// Directories that kubelet, kubeadm and CNI plugins fill.
const GUARDED: [&str; 8] = [
    "/etc/kubernetes",
    "/etc/cni/net.d",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/lib/etcd",
    "/usr/libexec/kubernetes",
    "/run/cluster-api",
    "/run/kubeadm",
];
/// Labels of Kubernetes' own domains that kubelet may give its Node; it refuses to start with any other of them.
const KUBELET_LABELS: [&str; 10] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/exclude-from-external-load-balancers",
];

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

/// Scripts that bring Kubernetes to a host, and take it away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Installer {
    /// Script for `sh`.
    pub install: String,
    /// Script that undoes it; nothing is undone without one.
    pub uninstall: String,
}

/// The plan of kubeadm mode: what the bootstrap data says, as it says it. `kubeadm reset` undoes it.
pub fn kubeadm(
    target: &Target,
    installer: Option<&Installer>,
    bootstrap_data: &str,
    instance: &Instance,
) -> Result<Plan, CloudConfigError> {
    let steps = cloud_config::parse(bootstrap_data, COMMAND_TIMEOUT, instance)?;
    Ok(plan(target, installer, steps))
}

/// The plan of tlsBootstrap mode: files for kubelet, and its unit.
pub fn tls_bootstrap(target: &Target, installer: Option<&Installer>, files: &TlsBootstrap) -> Plan {
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
    plan(target, installer, steps)
}

/// Installation, what the reset has to know, and the steps that join.
fn plan(target: &Target, installer: Option<&Installer>, join: Vec<Step>) -> Plan {
    let mut steps: Vec<Step> = installer.map(installation).into_iter().collect();
    let installed = steps.len();
    steps.push(Step::Guard(GuardStep { paths: GUARDED.map(str::to_owned).to_vec() }));
    steps.push(Step::Pods);
    // A step that does nothing holds the undo, so that it is written down before the first command runs. A host on
    // which the installation failed has no kubeadm to reset with.
    let undo = ["sh", "-c", RESET].map(str::to_owned).to_vec();
    let argv = vec!["true".to_owned()];
    let name = "expect kubeadm".to_owned();
    steps.push(Step::Run(RunStep { argv, timeout_seconds: COMMAND_TIMEOUT, undo, name }));
    steps.extend(join);
    Plan { machine_uid: target.machine_uid.clone(), epoch: target.epoch, installation: installed, steps }
}

fn installation(installer: &Installer) -> Step {
    let script = |text: &str| match text {
        "" => Vec::new(),
        text => vec!["bash".to_owned(), "-c".to_owned(), text.to_owned()],
    };
    let (argv, undo) = (script(&installer.install), script(&installer.uninstall));
    let argv = if argv.is_empty() { vec!["true".to_owned()] } else { argv };
    let name = "install Kubernetes".to_owned();
    Step::Run(RunStep { argv, timeout_seconds: INSTALLATION_TIMEOUT, undo, name })
}

/// Whether kubelet starts with this label in `--node-labels`.
fn is_kubelet_label(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let is_of = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    if is_of("kubelet.kubernetes.io") || is_of("node.kubernetes.io") || KUBELET_LABELS.contains(&key) {
        return true;
    }
    !is_of("kubernetes.io") && !is_of("k8s.io")
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
    let labels = target.labels.iter().filter(|(key, _)| is_kubelet_label(key));
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    if !labels.is_empty() {
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
        let labels = [("purpose", "gpu"), ("node.cluster.x-k8s.io/pool", "a"), ("node.kubernetes.io/class", "b")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let taints = serde_json::from_str(r#"[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]"#).unwrap();
        Target { host: "node11".into(), machine_uid: "u1".into(), epoch: 3, labels, taints }
    }

    #[test]
    fn kubelet_gets_provider_id_labels_and_taints() {
        let plan = tls_bootstrap(&target(), None, &TlsBootstrap::default());
        assert_eq!((plan.epoch, plan.machine_uid.as_str(), plan.installation), (3, "u1", 0));
        let Some(Step::SystemdUnit(unit)) = plan.steps.last() else { panic!("a unit") };
        assert_eq!(unit.name, "kubelet.service");
        for flag in [
            "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
            "--kubeconfig=/etc/kubernetes/kubelet.conf",
            "--config=/var/lib/kubelet/config.yaml",
            "--provider-id=byoh://node11",
            // Kubelet would not start with the label of `x-k8s.io`'s parent domain, but this one is another domain.
            "--node-labels=node.cluster.x-k8s.io/pool=a,node.kubernetes.io/class=b,purpose=gpu",
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
    fn kubelet_gets_no_label_that_stops_it() {
        for (key, is_allowed) in [
            ("purpose", true),
            ("nvidia.com/gpu", true),
            ("topology.kubernetes.io/zone", true),
            ("feature.node.kubernetes.io/x", true),
            ("node-role.kubernetes.io/worker", false),
            ("node-restriction.kubernetes.io/a", false),
            ("capacity.k8s.io/a", false),
        ] {
            assert_eq!(is_kubelet_label(key), is_allowed, "{key}");
        }
    }

    #[test]
    fn kubeadm_runs_the_bootstrap_data_as_it_is() {
        let data = "#cloud-config\nruncmd: ['kubeadm join && touch /run/ok']\n";
        let of = |target: &Target, installer: Option<&Installer>| {
            kubeadm(target, installer, data, &Instance::default()).unwrap()
        };
        let plan = of(&target(), None);
        let Some(Step::Run(join)) = plan.steps.last() else { panic!("a command") };
        assert_eq!(join.argv, ["sh", "-c", "kubeadm join && touch /run/ok"]);
        assert_ne!(plan.hash(), of(&Target { epoch: 4, ..target() }, None).hash());
        let installer =
            Installer { install: "apt-get install kubeadm".into(), uninstall: "apt-get remove kubeadm".into() };
        let plan = of(&target(), Some(&installer));
        assert_eq!(plan.installation, 1);
        let Step::Run(install) = &plan.steps[0] else { panic!("a script") };
        assert_eq!(
            (&install.argv[..2], install.undo[2].as_str()),
            (&["bash".to_owned(), "-c".to_owned()][..], "apt-get remove kubeadm")
        );
        assert_eq!(plan.steps[0].title(), "install Kubernetes");
    }
}
