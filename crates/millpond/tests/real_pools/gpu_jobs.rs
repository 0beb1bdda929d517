//! GPU jobs as the GPUInfo tutorial deploys them: what `millpond install controller --vsphere-secret` prints is applied, and
//! the controller runs under exactly the service account, the arguments and the environment of that Deployment.
//!
//! kwok plays nodes and the pods of the Deployment, a fake vCenter the hosts; kube-scheduler is the real one.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use millpond_testkit::{Access, Kubectl, Process, RealCluster};
use millpond_vsphere::Reference;
use millpond_vsphere::fake::{FakeVCenter, HostShape, Options, Passthrough, VmShape};
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::stack::{PATIENCE, binary, printed};

const NAMESPACE: &str = "gpuinfo-system";
const DEPLOYMENT: &str = "gpuinfo-controller-manager";
const INSTALL: [&str; 8] = [
    "install",
    "controller",
    "--namespace",
    NAMESPACE,
    "--vsphere-secret",
    "vc-creds",
    "--image",
    "localhost/gpuinfo-controller:v1",
];
/// What the rights of the account are tried with beyond planning.
const RIGHTS: [(&str, &str, &str); 6] = [
    ("topology.corinternal.com", "gpuinfoes/status", "patch"),
    ("millpond.dev", "maintenancewindows/status", "patch"),
    ("", "pods", "create"),
    ("", "pods", "patch"),
    ("", "nodes", "patch"),
    ("", "secrets", "watch"),
];
/// A password that XML and shells have to escape.
const PASSWORD: &str = "VMware<&\"123!";
const LONGEST: &str = "--timeout=180s";

/// Hosts of the fake vCenter, each with a machine that is a node; the last two have a GPU. CPU demand in MHz.
const HOSTS: [(&str, usize, i64); 4] =
    [("esxi-0", 0, 400), ("esxi-1", 0, 300), ("esxi-2", 1, 3000), ("esxi-3", 1, 500)];

fn node_name(at: usize) -> String {
    format!("worker-{at}")
}

fn uuid(at: usize) -> String {
    format!("420f1d2c-3b4a-5968-7786-00000000000{at}")
}

/// A file that follows the tutorial.
fn example(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/gpuinfo");
    folder.join(name).display().to_string()
}

struct Site {
    controller: Process,
    gate: Gate,
    vcenter: FakeVCenter,
    hosts: Vec<Reference>,
    kubectl: Kubectl,
    /// Ends after the controller.
    _cluster: RealCluster,
}

impl Site {
    async fn start() -> Result<Self> {
        let cluster = RealCluster::builder().controller_manager("*").scheduler().kwok().start()?;
        let kubectl = cluster.kubectl()?;
        let options = Options { tls: true, password: PASSWORD.to_owned(), ..Options::default() };
        let vcenter = FakeVCenter::start(options).await.context("start the fake vCenter")?;
        let hosts = populate(&vcenter);
        kubectl.run_with_input(&["create", "-f", "-"], &nodes().to_string())?;
        kubectl.run(&["wait", "nodes", "--all", "--for=condition=Ready", LONGEST])?;
        make_secret(&kubectl, &vcenter)?;
        let manifests = printed(&INSTALL)?;
        ensure!(!manifests.contains("VMware") && !manifests.contains("kind: Secret"), "a Secret is printed");
        kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &manifests)?;
        kubectl.run(&["wait", "crds", "--all", "--for=condition=Established", LONGEST])?;
        let gate = Gate::new(account(&cluster, &kubectl).await?, cluster.folder()).await?;
        let controller = start_controller(&cluster, &kubectl, &gate)?;
        Ok(Self { controller, gate, vcenter, hosts, kubectl, _cluster: cluster })
    }

    fn kubectl(&self, line: &str) -> Result<String> {
        self.kubectl.run(&line.split(' ').collect::<Vec<_>>())
    }

    fn create(&self, object: &Value) -> Result<()> {
        self.kubectl.run_with_input(&["create", "-f", "-"], &object.to_string()).map(drop)
    }

    /// Waits until a field of the status of a GPUInfo has a value.
    fn until(&self, name: &str, field: &str, value: &str) -> Result<()> {
        let wanted = format!("--for=jsonpath={{.status.{field}}}={value}");
        let told = self.kubectl.run(&["wait", "gpu", name, &wanted, LONGEST]);
        told.with_context(|| {
            let seen = self.kubectl(&format!("get gpu {name} -o yaml")).unwrap_or_default();
            format!("{seen}\n{}", self.controller.log_tail())
        })?;
        Ok(())
    }
}

fn populate(vcenter: &FakeVCenter) -> Vec<Reference> {
    let host = |(at, (name, gpus, demand)): (usize, &(&str, usize, i64))| {
        let host = vcenter.add_host(&HostShape::new(name).with_t4(*gpus));
        let card = Passthrough::Fixed("0000:3b:00.0".to_owned(), 0x10de, 0x1eb8);
        vcenter.add_vm(&VmShape {
            passthrough: (*gpus > 0).then_some(card).into_iter().collect(),
            cpu_demand_mhz: *demand,
            guest_memory_mib: 327,
            ..VmShape::new(&node_name(at), &uuid(at), &host)
        });
        host
    };
    HOSTS.iter().enumerate().map(host).collect()
}

fn nodes() -> Value {
    let node = |(at, (_, gpus, _)): (usize, &(&str, usize, i64))| {
        let mut capacity = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
        if *gpus > 0 {
            capacity["nvidia.com/gpu"] = gpus.to_string().into();
        }
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node_name(at), "labels": {"kubernetes.io/hostname": node_name(at)}},
            "spec": {"providerID": format!("vsphere://{}", uuid(at))},
            "status": {"capacity": capacity, "allocatable": capacity},
        })
    };
    json!({"apiVersion": "v1", "kind": "List", "items": HOSTS.iter().enumerate().map(node).collect::<Vec<_>>()})
}

/// Step 10 of the tutorial; the certificate is trusted by its thumbprint.
fn make_secret(kubectl: &Kubectl, vcenter: &FakeVCenter) -> Result<()> {
    kubectl.run(&["create", "ns", NAMESPACE])?;
    let literals = [
        "--from-literal=GOVMOMI_USERNAME=administrator@vsphere.local".to_owned(),
        format!("--from-literal=GOVMOMI_PASSWORD={PASSWORD}"),
        format!("--from-literal=GOVMOMI_URL={}", vcenter.address()),
        format!("--from-literal=GOVMOMI_THUMBPRINT={}", vcenter.thumbprint().unwrap_or_default()),
    ];
    let mut words = vec!["create", "secret", "generic", "vc-creds", "-n", NAMESPACE];
    words.extend(literals.iter().map(String::as_str));
    kubectl.run(&words).map(drop)
}

/// A client with the token of the Deployment's service account, and no other rights.
async fn account(cluster: &RealCluster, kubectl: &Kubectl) -> Result<Client> {
    let path = "jsonpath={.spec.template.spec.serviceAccountName}";
    let name = kubectl.run(&["get", "deploy", DEPLOYMENT, "-n", NAMESPACE, "-o", path])?;
    let token = kubectl.run(&["create", "token", &name, "-n", NAMESPACE, "--duration=4h"])?;
    let access = Access { token: Some(token.trim().to_owned()), ..cluster.access().clone() };
    let file = cluster.folder().join("account.kubeconfig");
    access.write(&file)?;
    let kubeconfig = Kubeconfig::read_from(&file)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The container of the Deployment as a process of this machine: its arguments, but for where it listens and writes, and
/// its environment, read from the Secret as a kubelet does.
fn start_controller(cluster: &RealCluster, kubectl: &Kubectl, gate: &Gate) -> Result<Process> {
    const OF_POD: [&str; 3] = ["--health-bind", "--metrics-bind", "--data-dir"];
    let text = kubectl.run(&["get", "deploy", DEPLOYMENT, "-n", NAMESPACE, "-o", "json"])?;
    let deployment: Value = serde_json::from_str(&text)?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    ensure!(container["name"] == "manager" && container["command"] == json!(["millpond", "controller"]), "{container}");
    let mut command = Command::new(binary());
    command.arg("controller").arg("--kubeconfig").arg(gate.kubeconfig());
    command
        .args(["--health-bind", "0", "--metrics-bind", "0"])
        .arg("--data-dir")
        .arg(cluster.folder().join("millpond"));
    let arguments = container["args"].as_array().context("arguments")?.iter().filter_map(Value::as_str);
    command.args(arguments.filter(|word| !OF_POD.iter().any(|flag| word.starts_with(flag))));
    for variable in container["env"].as_array().context("an environment")? {
        let reference = &variable["valueFrom"]["secretKeyRef"];
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a reference to a Secret");
        let (secret, key) = (text(&reference["name"])?, text(&reference["key"])?);
        let template = format!("go-template={{{{.data.{key} | base64decode}}}}");
        let value = kubectl.run(&["get", "secret", &secret, "-n", NAMESPACE, "-o", &template])?;
        command.env(text(&variable["name"])?, value);
    }
    Process::spawn("manager", &mut command, cluster.folder())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real cluster"]
async fn real_gpu_jobs_are_answered_as_the_tutorial_deploys_them() -> Result<()> {
    let mut site = Site::start().await?;
    is_deployed(&site).context("the Deployment")?;
    follows_the_hosts(&site).context("the tutorial's job")?;
    keeps_gpus_from_other_pods(&site).context("a reservation under kube-scheduler")?;
    outlives_its_definition(&mut site).context("the definition goes")?;
    site.kubectl(&format!("apply -f {}", example("window.yaml")))?;
    site.kubectl(&format!("wait mwin patch-tuesday --for=condition=Ready {LONGEST}"))?;
    site.kubectl(&format!("delete deploy {DEPLOYMENT} -n {NAMESPACE}"))?;
    site.gate.until_used(&RIGHTS, PATIENCE).await?;
    site.gate.ensure_nothing_was_forbidden()?;
    ensure!(site.vcenter.logins() == 1, "{} logins", site.vcenter.logins());
    shows_no_password(&site)
}

/// Steps 4 and 13.1 of the tutorial.
fn is_deployed(site: &Site) -> Result<()> {
    site.kubectl(&format!("rollout status deploy/{DEPLOYMENT} -n {NAMESPACE} {LONGEST}"))?;
    for kind in ["rs", "deploy", "pods"] {
        let shown = site.kubectl(&format!("get {kind} -n {NAMESPACE}"))?;
        ensure!(shown.contains(DEPLOYMENT), "{shown}");
    }
    let kinds = site.kubectl("api-resources --api-group=topology.corinternal.com --no-headers")?;
    let words: Vec<&str> = kinds.split_whitespace().collect();
    ensure!(words == ["gpuinfoes", "gpu", "topology.corinternal.com/v1", "true", "GPUInfo"], "{kinds}");
    Ok(())
}

/// Steps 5 and 13.4, and a host that goes into maintenance and comes back.
fn follows_the_hosts(site: &Site) -> Result<()> {
    let created = site.kubectl(&format!("create -f {}", example("topology_v1_gpuinfo.yaml")))?;
    ensure!(created.trim() == "gpuinfo.topology.corinternal.com/gpuinfo-sample created", "{created}");
    site.until("gpuinfo-sample", "suitableNodeName", "worker-3")?;
    let shown = site.kubectl("get gpu")?;
    let lines: Vec<String> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    ensure!(lines == ["NAME DESIRED ACCESS TIME (HRS) GPU REQUIRED", "gpuinfo-sample 100 true"], "{shown}");
    let path = "jsonpath={.status.suitableHostName} {.status.nodeCPUUsage} {.status.nodeMemoryUsage}";
    let answer = site.kubectl.run(&["get", "gpuinfo", "gpuinfo-sample", "-o", path])?;
    ensure!(answer == "esxi-3 500 327", "{answer}");
    site.vcenter.set_maintenance(&site.hosts[3], true);
    site.until("gpuinfo-sample", "suitableHostName", "esxi-2")?;
    site.vcenter.set_maintenance(&site.hosts[3], false);
    site.until("gpuinfo-sample", "suitableHostName", "esxi-3")
}

fn pod(name: &str, more: &Value) -> Value {
    let mut spec = json!({"terminationGracePeriodSeconds": 1, "containers": [{
        "name": "job", "image": "job", "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }]});
    crate::stack::merge(&mut spec, more);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// Another pod does not get the reserved GPU, although nothing runs there; the pod with the label does.
fn keeps_gpus_from_other_pods(site: &Site) -> Result<()> {
    site.create(&json!({
        "apiVersion": "topology.corinternal.com/v1", "kind": "GPUInfo", "metadata": {"name": "training"},
        "spec": {"desAccTime": 100, "gpuRequired": true, "reserve": {"gpus": 1, "ttl": "2h"}},
    }))?;
    site.until("training", "reservation.phase", "Waiting")?;
    let node = site.kubectl("get gpu training -o jsonpath={.status.reservation.node}")?;
    let uid = site.kubectl("get gpu training -o jsonpath={.metadata.uid}")?;
    for wanted in ["create", "condition=Ready"] {
        site.kubectl(&format!("wait pod/gpu-reservation-{uid} -n {NAMESPACE} --for={wanted} {LONGEST}"))?;
    }
    site.create(&pod("stranger", &json!({"nodeSelector": {"kubernetes.io/hostname": node}})))?;
    site.kubectl(&format!("wait pod/stranger --for=condition=PodScheduled=False {LONGEST}"))?;
    let mut job = pod("training", &json!({"schedulingGates": [{"name": "millpond.dev/gpuinfo"}]}));
    job["metadata"]["labels"] = json!({"millpond.dev/gpuinfo": "training"});
    site.create(&job)?;
    site.kubectl(&format!("wait pod/training --for=condition=Ready {LONGEST}"))?;
    let at = |pod: &str| site.kubectl(&format!("get pod {pod} -o jsonpath={{.spec.nodeName}}"));
    ensure!(at("training")? == node && at("stranger")?.is_empty(), "{} {}", at("training")?, at("stranger")?);
    site.until("training", "reservation.phase", "Claimed")?;
    site.kubectl("delete pod training")?;
    site.until("training", "reservation.phase", "Ended")?;
    // A GPU that was given back is for any pod.
    site.kubectl(&format!("wait pod/stranger --for=condition=Ready {LONGEST}"))?;
    site.kubectl("delete pod stranger")?;
    site.kubectl("delete gpuinfo training").map(drop)
}

/// The clean-up of the tutorial, and the kind alone again.
fn outlives_its_definition(site: &mut Site) -> Result<()> {
    let definition = "gpuinfoes.topology.corinternal.com";
    site.kubectl("delete gpuinfo gpuinfo-sample")?;
    site.kubectl(&format!("delete crd {definition}"))?;
    let kinds = printed(&["install", "crds", definition])?;
    site.kubectl.run_with_input(&["apply", "-f", "-"], &kinds)?;
    site.kubectl(&format!("wait crd {definition} --for=condition=Established {LONGEST}"))?;
    site.kubectl(&format!("create -f {}", example("topology_v1_gpuinfo.yaml")))?;
    site.until("gpuinfo-sample", "suitableNodeName", "worker-3")?;
    site.controller.ensure_running()
}

/// Neither objects nor the log show it; the log has the lines of step 13.3.
fn shows_no_password(site: &Site) -> Result<()> {
    let log = site.controller.printed();
    let objects = site.kubectl("get gpuinfoes,events,nodes,pods,deployments -A -o json")?;
    ensure!(!log.contains("VMware") && !objects.contains("VMware"), "the password is shown");
    for line in [
        "received reconcile request for \"gpuinfo-sample\" (namespace: \"default\")",
        "found 4 nodes in cluster",
        "Found a total of *** 2 *** suitable candidates for the long running job",
        "Node worker-2 is not the winning candidate",
    ] {
        ensure!(log.contains(line), "no `{line}`:\n{log}");
    }
    Ok(())
}
