//! Real machines: two with systemd, containerd, kubelet and kubeadm, on a real kube-apiserver with Cluster API's own
//! manager. They join by TLS bootstrap and by kubeadm, run pods, reboot, are given back as they were, and serve others.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use millpond_testkit::machines::{Network, SystemMachine};
use millpond_testkit::{BUSYBOX, ClusterApi, Kubectl, NodePrograms, Process, RealCluster};
use serde_json::{Value, json};

use crate::kubeadm;
use crate::real::{controllers, printed};
use crate::stage::MILLPOND;

/// Name of the Cluster.
const CLUSTER: &str = "my-cluster";
/// Address of the GPU on the machine that has one.
const GPU: &str = "0000:3b:00.0";
/// How long a step may take; only one that never gets there takes so long.
const PATIENCE: Duration = Duration::from_mins(6);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// What belongs to the agent, to systemd and to logs; containerd's own files are not on the disk at all.
const NOT_COMPARED: [&str; 6] =
    ["var/lib/millpond-agent", "var/lib/systemd", "var/log", "var/tmp", "var/lib/containerd", "tmp"];

/// The machines end first, what they speak to after them.
struct Scene {
    machines: Vec<SystemMachine>,
    controllers: Process,
    manager: ClusterApi,
    kubectl: Kubectl,
    cluster: RealCluster,
    network: Network,
}

impl Scene {
    fn start() -> Result<Self> {
        let network = Network::new()?;
        let programs = NodePrograms::ensure()?;
        let cluster = RealCluster::builder()
            .address(network.address())
            .controller_manager("*,bootstrap-signer-controller")
            .scheduler()
            .start()?;
        let kubectl = cluster.kubectl()?;
        let manager = ClusterApi::start(&cluster)?;
        kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &printed(&["install", "crds"])?)?;
        kubectl.run_with_input(&["apply", "-f", "-"], &printed(&["install", "rbac"])?)?;
        kubeadm::init(&cluster)?;
        let controllers = controllers(&cluster)?;
        let mut scene = Self { machines: Vec::new(), controllers, manager, kubectl, cluster, network };
        for (number, purpose) in [(10, "worker"), (11, "gpu")] {
            scene.machine(&programs, number, purpose)?;
        }
        Ok(scene)
    }

    /// A machine that runs, and becomes a host by the command that a token comes with.
    fn machine(&mut self, programs: &NodePrograms, number: u8, purpose: &str) -> Result<()> {
        let mut machine = self.network.system_machine(&format!("node{number}"), number)?;
        programs.install_on(&mut machine)?;
        machine.bind(MILLPOND.as_ref(), "/usr/local/bin/millpond", false);
        if purpose == "gpu" {
            machine.add_gpu("0x10de", "0x1eb8")?;
        }
        machine.boot()?;
        programs.import_busybox(&machine)?;
        let flags = self.entry()?.replacen("millpond agent", "millpond agent install", 1);
        machine.sh(&format!("{flags} --label purpose={purpose} --device-plugin"))?;
        self.machines.push(machine);
        Ok(())
    }

    /// The line that `host token create` prints.
    fn entry(&self) -> Result<String> {
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        Ok(printed(&["host", "token", "create", "--kubeconfig", &kubeconfig])?.trim().to_owned())
    }

    fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl.run_with_input(&["apply", "-f", "-"], &list.to_string()).map(drop)
    }

    /// Repeats kubectl until it prints this; tells what everything said if it never does.
    async fn until(&mut self, words: &[&str], wanted: impl Fn(&str) -> bool) -> Result<String> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let last = self.kubectl.run(words).unwrap_or_else(|error| error.to_string());
            if wanted(last.trim()) {
                return Ok(last.trim().to_owned());
            }
            self.controllers.ensure_running()?;
            self.manager.ensure_running()?;
            if Instant::now() > give_up {
                bail!("kubectl {} prints {last:?}\n{}", words.join(" "), self.logs());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn logs(&self) -> String {
        let mut text = format!("controllers:\n{}\n", self.controllers.log_tail());
        for words in ["get machines,byomachines,byohosts,nodes,pods -A -o wide", "get events -A"] {
            let words: Vec<&str> = words.split(' ').collect();
            text += &self.kubectl.run(&words).unwrap_or_else(|error| error.to_string());
        }
        for machine in &self.machines {
            for unit in ["millpond-agent", "kubelet", "containerd"] {
                let journal = machine.sh(&format!("journalctl -u {unit} -o cat --no-pager | tail -n 25"));
                text += &format!("{} of {}:\n{}\n", unit, machine.name(), journal.unwrap_or_default());
            }
        }
        text
    }

    /// A field of an object, once it is this.
    async fn field(&mut self, object: &str, path: &str, wanted: &str) -> Result<()> {
        let path = format!("jsonpath={{{path}}}");
        self.until(&["get", object, "-o", &path], |got| got == wanted).await.map(drop)
    }

    /// Waits until a host is in a state.
    async fn host(&mut self, name: &str, state: &str) -> Result<()> {
        self.field(&format!("byohost/{name}"), ".status.state", state).await
    }

    /// Runs a pod on the nodes with this label, and reads its log: the GPUs that it got.
    async fn pod(&mut self, name: &str, purpose: &str, node: &str) -> Result<()> {
        self.apply(&[pod(name, purpose)])?;
        self.field(&format!("pod/{name}"), ".status.phase", "Running").await?;
        self.field(&format!("pod/{name}"), ".spec.nodeName", node).await?;
        self.log(name, purpose).await
    }

    async fn log(&mut self, name: &str, purpose: &str) -> Result<()> {
        let gpu = if purpose == "gpu" { GPU } else { "nothing" };
        self.until(&["logs", name], |log| log == format!("{name} runs with {gpu}")).await.map(drop)
    }
}

fn pod(name: &str, purpose: &str) -> Value {
    let script = format!("echo {name} runs with ${{PCI_RESOURCE_NVIDIA_COM_GPU:-nothing}}; exec sleep 1000000");
    let limits = if purpose == "gpu" { json!({"nvidia.com/gpu": "1"}) } else { json!({}) };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeSelector": {"purpose": purpose}, "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script],
                "resources": {"requests": {"cpu": "100m"}, "limits": limits},
            }],
        },
    })
}

fn infrastructure(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

/// A Cluster whose nodes are in the cluster of its objects, and what its machines join with.
fn cluster(scene: &Scene) -> Result<Vec<Value>> {
    use base64::Engine as _;
    let access = scene.cluster.access();
    let (host, port) = access.server.trim_start_matches("https://").split_once(':').context("an address")?;
    let endpoint = json!({"host": host, "port": port.parse::<u16>()?});
    let ca = base64::engine::general_purpose::STANDARD.encode(&access.ca_pem);
    let reach = json!({"apiserver": access.server, "certificate-authority-data": ca});
    let line = scene.entry()?;
    let hash = line.split(' ').skip_while(|word| *word != "--ca-hash").nth(1).context("a hash")?;
    Ok(vec![
        infrastructure("ByoCluster", CLUSTER, json!({"controlPlaneEndpoint": endpoint})),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": CLUSTER, "namespace": "default"},
            "spec": {"infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ByoCluster", "name": CLUSTER,
            }},
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {
                "name": format!("{CLUSTER}-kubeconfig"), "namespace": "default",
                "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
            },
            "stringData": {"value": std::fs::read_to_string(scene.cluster.kubeconfig())?},
        }),
        infrastructure("BootstrapKubeconfig", "workers", reach.clone()),
        infrastructure("BootstrapKubeconfigTemplate", "workers", json!({"template": {"spec": reach}})),
        kubeadm::bootstrap_data(CLUSTER, access, hash),
    ])
}

/// A MachineDeployment with one machine, for hosts with this label.
fn pool(name: &str, purpose: &str, mode: &str) -> Result<[Value; 2]> {
    let mut template = json!({"selector": {"matchLabels": {"purpose": purpose}}, "joinMode": mode});
    let mut bootstrap = json!({"dataSecretName": kubeadm::BOOTSTRAP_DATA});
    if mode == "tlsBootstrap" {
        let api_group = "infrastructure.cluster.x-k8s.io";
        template["bootstrapConfigRef"] =
            json!({"apiGroup": format!("{api_group}/v1beta1"), "kind": "BootstrapKubeconfig", "name": "workers"});
        bootstrap = json!({
            "configRef": {"apiGroup": api_group, "kind": "BootstrapKubeconfigTemplate", "name": "workers"},
        });
    }
    let labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER, "pool": name, "purpose": purpose});
    let deployment = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "clusterName": CLUSTER, "replicas": 1, "selector": {"matchLabels": {"pool": name}},
            "template": {"metadata": {"labels": labels}, "spec": {
                "clusterName": CLUSTER, "version": millpond_testkit::real::kubernetes_version()?,
                "bootstrap": bootstrap,
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ByoMachineTemplate", "name": name,
                },
            }},
        },
    });
    Ok([infrastructure("ByoMachineTemplate", name, json!({"template": {"spec": template}})), deployment])
}

/// A NodePool over the hosts with this label, whose empty nodes go at once.
fn node_pool(purpose: &str) -> [Value; 2] {
    let hosts = json!({
        "selector": {"matchLabels": {"purpose": purpose}}, "pricePerHour": "0.10", "bootstrapKubeconfig": "workers",
    });
    let class = json!({
        "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "own"},
        "spec": {"provider": "hosts", "hosts": hosts},
    });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "own"},
        "spec": {
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s"},
            "template": {"spec": {
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "own"},
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
            }},
        },
    });
    [class, pool]
}

/// What a machine shows of having been a node.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    files: BTreeSet<(PathBuf, Vec<u8>)>,
    mounts: BTreeSet<String>,
    enabled: String,
}

fn traces(machine: &SystemMachine) -> Result<Traces> {
    let changes = machine.changes()?.into_iter().map(|change| (change.path, change.content));
    let is_compared = |path: &PathBuf| !NOT_COMPARED.iter().any(|other| path.starts_with(other));
    let mounts = machine.sh("cut -d' ' -f5 /proc/1/mountinfo")?;
    Ok(Traces {
        files: changes.filter(|(path, _)| is_compared(path)).collect(),
        mounts: mounts.lines().map(str::to_owned).collect(),
        enabled: machine.sh("systemctl is-enabled kubelet.service containerd.service")?,
    })
}

/// Fails with every difference, and where kubelet or a pod still runs.
fn is_as_before(machine: &SystemMachine, before: &Traces) -> Result<()> {
    let after = traces(machine)?;
    let named = |one: &BTreeSet<(PathBuf, Vec<u8>)>, other: &BTreeSet<(PathBuf, Vec<u8>)>| -> Vec<String> {
        one.difference(other)
            .map(|(path, content)| format!("{}: {}", path.display(), String::from_utf8_lossy(content)))
            .collect()
    };
    let (new, gone) = (named(&after.files, &before.files), named(&before.files, &after.files));
    assert!(new.is_empty() && gone.is_empty(), "files of {}: new {new:#?}, not any more {gone:#?}", machine.name());
    let mounts: Vec<_> = after.mounts.symmetric_difference(&before.mounts).collect();
    assert!(mounts.is_empty(), "mounts of {}: {mounts:#?}", machine.name());
    assert_eq!(after.enabled, before.enabled, "units of {}", machine.name());
    let left = machine.sh("ps -eo comm=,args= | grep -E '^(kubelet|containerd-shim)'; true")?;
    assert_eq!(left, "", "processes of {}", machine.name());
    Ok(())
}

#[tokio::test]
#[ignore = "needs the real parts"]
async fn real_machines_with_systemd_join_by_both_ways_and_are_as_before_afterwards() -> Result<()> {
    let mut scene = Scene::start()?;
    for name in ["node10", "node11"] {
        scene.host(name, "Available").await?;
    }
    scene.field("byohost/node11", ".metadata.labels.gpu", "true").await?;
    scene.field("byohost/node10", ".metadata.labels.gpu", "").await?;
    let before: Vec<Traces> = scene.machines.iter().map(traces).collect::<Result<_>>()?;

    // Cluster API's manager makes machines; one joins by TLS bootstrap, one by kubeadm.
    scene.apply(&cluster(&scene)?)?;
    scene.apply(&pool("worker-pool", "worker", "tlsBootstrap")?)?;
    scene.apply(&pool("gpu-pool", "gpu", "kubeadm")?)?;
    scene
        .until(&["get", "machines", "-o", "jsonpath={.items[*].status.phase}"], |got| got == "Running Running")
        .await?;
    for (pod, purpose, node) in [("first", "worker", "node10"), ("second", "gpu", "node11")] {
        scene.field(&format!("node/{node}"), ".spec.providerID", &format!("byoh://{node}")).await?;
        scene.pod(pod, purpose, node).await?;
        scene.host(node, "InUse").await?;
    }
    let names = ["get", "machines", "-o", "jsonpath={.items[*].status.nodeRef.name}"];
    let nodes = scene.until(&names, |got| got.split(' ').count() == 2).await?;
    assert_eq!(nodes.split(' ').collect::<BTreeSet<_>>(), BTreeSet::from(["node10", "node11"]));

    // A reboot: agent and kubelet start by themselves, the claim and the pod are the same ones.
    let boot =
        |scene: &Scene| scene.kubectl.run(&["get", "node", "node10", "-o", "jsonpath={.status.nodeInfo.bootID}"]);
    let booted = boot(&scene)?;
    scene.machines[0].shut_down()?;
    scene.machines[0].boot()?;
    let path = "jsonpath={.status.nodeInfo.bootID} {.status.conditions[?(@.type==\"Ready\")].status}";
    scene
        .until(&["get", "node", "node10", "-o", path], |got| {
            got.split_once(' ').is_some_and(|(boot, ready)| boot != booted && ready == "True")
        })
        .await?;
    scene.field("pod/first", ".status.containerStatuses[0].restartCount", "1").await?;
    scene.log("first", "worker").await?;
    scene.field("byohost/node10", ".spec.claim.epoch", "1").await?;
    scene.host("node10", "InUse").await?;

    // Down to nothing: the hosts are free, and nothing on them tells what they were.
    scene.kubectl.run(&["delete", "pods", "first", "second", "--wait=false"])?;
    scene.kubectl.run(&["scale", "machinedeployments", "worker-pool", "gpu-pool", "--replicas=0"])?;
    for name in ["node10", "node11"] {
        scene.host(name, "Available").await?;
    }
    scene.until(&["get", "machines,byomachines,nodes", "-o", "name"], str::is_empty).await?;
    for (machine, before) in scene.machines.iter().zip(&before) {
        is_as_before(machine, before)?;
    }

    // The same hosts serve others, each by the other way: a pool that joins by kubeadm, and a NodePool.
    scene.apply(&pool("other-pool", "worker", "kubeadm")?)?;
    scene.pod("third", "worker", "node10").await?;
    scene.apply(&node_pool("gpu"))?;
    scene.pod("fourth", "gpu", "node11").await?;
    scene.field("byohost/node11", ".status.machineRef.kind", "NodeClaim").await?;
    scene.field("node/node11", ".metadata.labels.karpenter\\.sh/nodepool", "own").await?;
    scene.field("byohost/node10", ".spec.claim.epoch", "2").await?;
    scene.kubectl.run(&["delete", "pods", "third", "fourth", "--wait=false"])?;
    scene.kubectl.run(&["scale", "machinedeployments", "other-pool", "--replicas=0"])?;
    for name in ["node10", "node11"] {
        scene.host(name, "Available").await?;
    }
    scene.until(&["get", "machines,nodeclaims,nodes", "-o", "name"], str::is_empty).await?;
    for (machine, before) in scene.machines.iter().zip(&before) {
        is_as_before(machine, before)?;
    }
    Ok(())
}
