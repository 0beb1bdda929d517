//! The walk-through of pools over own hosts, command by command with the real kubectl: hosts get labels, pools grow and
//! shrink, a GPU pod finds the GPU host, and what goes wrong is explained with a command that helps.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use millpond_testkit::real::{Part, Parts};
use serde_json::Value;

use crate::stage::{Host, MILLPOND, Stage, start, until};

/// Where `examples/byoh` is.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Idle machines go at once, instead of after ten minutes.
const GO_AT_ONCE: &str = "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime=1s";

/// A shell with the real kubectl.
pub(crate) struct Shell<'s> {
    stage: &'s Stage,
    path: String,
}

impl<'s> Shell<'s> {
    pub(crate) fn new(stage: &'s Stage) -> Result<Self> {
        let kubectl = Parts::ensure_each(&[Part::KUBECTL])?.path(&Part::KUBECTL)?;
        let of = |path: &std::path::Path| path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        let path = format!("{}:{}:/usr/bin:/bin", of(&kubectl), of(MILLPOND.as_ref()));
        Ok(Self { stage, path })
    }

    /// Runs a line as a person types it; gives what it printed.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(REPOSITORY)
            .env("PATH", &self.path)
            .env("KUBECONFIG", self.stage.server.kubeconfig())
            .env("KUBECACHEDIR", self.stage.network.folder().join("kubectl-cache"))
            .env_remove("HTTPS_PROXY")
            .env_remove("https_proxy")
            .output()
            .context("run a shell")?;
        if !output.status.success() {
            bail!("`{line}`: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Applies a manifest.
    pub(crate) fn apply(&self, manifest: &str) -> Result<()> {
        let file = self.stage.network.folder().join("manifest.yaml");
        std::fs::write(&file, manifest).context("write a manifest")?;
        self.run(&format!("kubectl apply -f {}", file.display())).map(drop)
    }

    /// Repeats a line until it prints this.
    pub(crate) async fn until(&self, line: &str, wanted: &str) -> Result<()> {
        let mut last = String::new();
        let is = || {
            last = self.run(line).unwrap_or_else(|error| error.to_string());
            last.trim() == wanted
        };
        let waited = until(&format!("`{line}` prints {wanted:?}"), is).await;
        waited.with_context(|| format!("it printed {last:?}"))
    }
}

async fn hosts(stage: &Stage) -> Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for number in 10..=13 {
        let name = format!("node{number}");
        let mut machine = stage.network.machine(&name, number, MILLPOND.as_ref())?;
        if number == 11 {
            machine.add_gpu("0x10de", "0x1eb8")?;
        }
        machine.boot()?;
        let entry = stage.entry(&[])?;
        let agent = start(&machine, &entry)?;
        hosts.push(Host { agent, machine, entry });
    }
    for number in 10..=13 {
        stage.host_is(&format!("node{number}"), "it is free", |host| host["status"]["state"] == "Available").await?;
    }
    Ok(hosts)
}

/// The GPU pod without a toleration.
const GPU_BY_SELECTOR: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: gpu-workload
spec:
  nodeSelector:
    purpose: gpu  # Schedule on GPU nodes
  containers:
  - name: gpu-container
    image: nvidia/cuda:11.0
    resources:
      limits:
        nvidia.com/gpu: 1
";

/// Two pods, of which a host takes one: each asks for more than half of its processors.
fn worker_pods() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let pod = |number: usize| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("web-{number}"), "labels": {"app": "web"}},
            "spec": {
                "nodeSelector": {"purpose": "worker"},
                "containers": [{
                    "name": "web", "image": "web:1",
                    "resources": {"requests": {"cpu": format!("{}m", processors * 600)}},
                }],
            },
        })
    };
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [pod(0), pod(1)]}).to_string()
}

/// Names of the Nodes of hosts with this purpose.
fn nodes_of(purpose: &str) -> String {
    format!("kubectl get nodes -l purpose={purpose} -o jsonpath='{{.items[*].metadata.name}}'")
}

/// The ByoMachine of a list that no host suits.
fn without_host(list: &str) -> Option<String> {
    let list: Value = serde_json::from_str(list).ok()?;
    let waits = |machine: &&Value| {
        let mut conditions = machine["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["reason"] == "BYOHostsUnavailable")
    };
    let machine = list["items"].as_array()?.iter().find(waits)?;
    machine["metadata"]["name"].as_str().map(str::to_owned)
}

#[tokio::test]
#[ignore = "needs the real parts"]
async fn real_kubectl_follows_the_walk_through_of_pools_over_own_hosts() -> Result<()> {
    let stage = Stage::new().await?;
    let shell = Shell::new(&stage)?;
    let _hosts = hosts(&stage).await?;

    // Step 1: labels of hosts.
    for (host, labels) in [
        ("node10", "purpose=worker"),
        ("node12", "purpose=worker"),
        ("node11", "purpose=gpu gpu=true"),
        ("node13", "purpose=general"),
    ] {
        shell.run(&format!("kubectl label byohost {host} -n default {labels} --overwrite"))?;
    }
    let shown = shell.run("kubectl get byohost -n default --show-labels")?;
    let row = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("node11").contains("purpose=gpu") && row("node11").contains("gpu=true"), "{shown}");
    assert!(row("node10").contains("capacity.infrastructure.cluster.x-k8s.io/cpu="), "{shown}");
    assert!(!row("node10").contains("gpu=true"), "{shown}");

    // Steps 2 and 3: templates and pools.
    shell.run(
        "kubectl apply -f examples/byoh/cluster.yaml -f examples/byoh/templates.yaml -f examples/byoh/pools.yaml",
    )?;
    shell.until(&nodes_of("worker"), "node10 node12").await?;
    shell.until(&nodes_of("gpu"), "node11").await?;
    let selector =
        "kubectl get byomachinetemplate gpu-template -n default -o jsonpath='{.spec.template.spec.selector}'";
    assert_eq!(shell.run(selector)?, r#"{"matchLabels":{"purpose":"gpu"}}"#);
    assert!(shell.run("kubectl get machinedeployment -n default -o wide")?.contains("worker-pool"));

    // Step 4: bounds. Pools that nothing uses go to their minimum, and their hosts are free.
    for (pool, most) in [("worker-pool", 5), ("gpu-pool", 2)] {
        shell.run(&format!(
            "kubectl annotate machinedeployment {pool} -n default {GO_AT_ONCE} \
             cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size=0 \
             cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size={most}"
        ))?;
    }
    shell.until("kubectl get nodes -l purpose -o jsonpath='{.items[*].metadata.name}'", "").await?;
    for host in ["node10", "node11", "node12"] {
        stage.host_is(host, "it is free again", |host| host["status"]["state"] == "Available").await?;
    }

    // Step 5: the autoscaler is a pod with a log.
    shell.run("kubectl get pods -n kube-system | grep cluster-autoscaler")?;
    let log = "kubectl logs -n kube-system cluster-autoscaler-millpond --tail=50 | grep -i 'discovered\\|nodegroup'";
    let discovered = shell.run(log)?;
    assert!(
        discovered.contains("default/worker-pool (min: 0, max: 5") && discovered.contains("gpu-pool (min: 0, max: 2")
    );

    // Pods that wait bring hosts in: as many as they need, of the pool that suits, and no other.
    shell.apply(&worker_pods())?;
    shell.until(&nodes_of("worker"), "node10 node12").await?;
    let nodes = r"kubectl get pods -l app=web -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\n' | sort | xargs";
    shell.until(nodes, "node10 node12").await?;
    assert_eq!(shell.run(&nodes_of("gpu"))?, "");
    shell.run("kubectl delete pods -l app=web --force --grace-period=0 2>&1")?;
    shell.until(&nodes_of("worker"), "").await?;
    for pod in [GPU_BY_SELECTOR, &std::fs::read_to_string(format!("{REPOSITORY}/examples/byoh/gpu-workload.yaml"))?] {
        shell.apply(pod)?;
        shell.until("kubectl get pod gpu-workload -o jsonpath='{.spec.nodeName}'", "node11").await?;
        assert_eq!(shell.run(&nodes_of("worker"))?, "");
        shell.run("kubectl delete pod gpu-workload --force --grace-period=0 2>&1")?;
        shell.until(&nodes_of("gpu"), "").await?;
        stage.host_is("node11", "it is free again", |host| host["status"]["state"] == "Available").await?;
    }
    for host in ["node10", "node12"] {
        stage.host_is(host, "it is free again", |host| host["status"]["state"] == "Available").await?;
    }

    // Nodes do not scale up: three machines, and two hosts with the label. What `explain` says to type helps.
    shell.run(
        "kubectl annotate machinedeployment worker-pool -n default --overwrite \
         cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size=3",
    )?;
    shell.run("kubectl scale machinedeployment worker-pool -n default --replicas=3")?;
    shell.until(&nodes_of("worker"), "node10 node12").await?;
    let mut machine = None;
    until("one machine has no host", || {
        machine = shell.run("kubectl get byomachines -o json").ok().and_then(|list| without_host(&list));
        machine.is_some()
    })
    .await?;
    let machine = machine.unwrap_or_default();
    let explained = shell.run(&format!("millpond explain machine/{machine}"))?;
    let fix = explained.lines().map(str::trim).find(|line| line.starts_with("kubectl label byohost"));
    assert_eq!(fix, Some("kubectl label byohost node13 -n default purpose=worker --overwrite"), "{explained}");
    assert!(explained.contains("LabelMismatch"), "{explained}");
    shell.run(fix.unwrap_or_default())?;
    shell.until(&nodes_of("worker"), "node10 node12 node13").await?;

    // The wrong host: its labels say so, and it stays where it is.
    shell.run("kubectl label byohost node13 -n default purpose=gpu --overwrite")?;
    let mismatch = |host: &Value| {
        let conditions = host["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "SelectorMatches" && one["status"] == "False"))
    };
    stage.host_is("node13", "its labels are others now", mismatch).await?;
    let explained = shell.run("millpond explain host/node13")?;
    assert!(explained.contains("purpose=worker"), "{explained}");
    assert_eq!(shell.run(&nodes_of("worker"))?, "node10 node12 node13");
    Ok(())
}
