//! An agent, played: it keeps to the contract between controllers and agent, on a host that is a value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const GROUP: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
/// How often an agent looks at its host.
const LOOK: Duration = Duration::from_millis(200);
/// How often it renews its Lease.
const RENEW: Duration = Duration::from_secs(10);

/// What goes wrong on a host.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The bootstrap fails.
    pub(crate) bootstrap: AtomicBool,
    /// The reset fails.
    pub(crate) reset: AtomicBool,
    /// The host is cut off.
    pub(crate) silent: AtomicBool,
}

/// A host with an agent on it.
pub(crate) struct Agent {
    pub(crate) faults: Arc<Faults>,
    task: JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a host is.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    pub(crate) name: &'static str,
    pub(crate) labels: &'static [(&'static str, &'static str)],
    pub(crate) cpus: i64,
    pub(crate) memory_gib: i64,
    pub(crate) gpus: i64,
}

impl Hardware {
    pub(crate) fn plain(name: &'static str, labels: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, labels, cpus: 4, memory_gib: 16, gpus: 0 }
    }

    pub(crate) fn gpu(name: &'static str, labels: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, labels, cpus: 8, memory_gib: 32, gpus: 1 }
    }

    fn capacity(&self) -> Value {
        let mut capacity = json!({"cpu": self.cpus.to_string(), "memory": format!("{}Gi", self.memory_gib)});
        if self.gpus > 0 {
            capacity["nvidia.com/gpu"] = json!(self.gpus.to_string());
        }
        capacity
    }
}

struct Host {
    client: Client,
    hardware: Hardware,
    faults: Arc<Faults>,
    /// Epoch of the plan whose traces are on the host.
    applied: Option<i64>,
    /// Greatest epoch that was begun.
    begun: i64,
}

/// Starts an agent.
pub(crate) fn start(client: &Client, hardware: Hardware) -> Agent {
    let faults = Arc::new(Faults::default());
    let host = Host { client: client.clone(), hardware, faults: Arc::clone(&faults), applied: None, begun: 0 };
    Agent { faults, task: tokio::spawn(host.run()) }
}

pub(crate) fn api(client: &Client, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

impl Host {
    async fn run(mut self) {
        self.register().await;
        let mut renew = tokio::time::interval(RENEW);
        let mut look = tokio::time::interval(LOOK);
        let mut renewals = 0;
        loop {
            tokio::select! {
                _ = renew.tick() => {
                    renewals += 1;
                    if !self.faults.silent.load(Ordering::SeqCst) {
                        self.renew(renewals).await;
                    }
                }
                _ = look.tick() => {
                    if !self.faults.silent.load(Ordering::SeqCst) {
                        self.look().await;
                    }
                }
            }
        }
    }

    async fn register(&self) {
        let labels: BTreeMap<&str, &str> = self.hardware.labels.iter().copied().collect();
        let host = json!({
            "apiVersion": GROUP, "kind": "ByoHost",
            "metadata": {"name": self.hardware.name, "namespace": "default", "labels": labels}, "spec": {},
        });
        let host: DynamicObject = serde_json::from_value(host).expect("an object");
        self.hosts().create(&PostParams::default(), &host).await.expect("registered");
        let gpu = |number: i64| {
            json!({
                "address": format!("0000:3b:00.{number}"), "vendorID": "10de", "deviceID": "1eb8", "name": "Tesla T4",
                "resource": "nvidia.com/gpu",
            })
        };
        let Hardware { cpus, memory_gib, gpus, .. } = self.hardware;
        self.report(json!({
            "facts": {
                "cpu": {"architecture": "amd64", "sockets": 1, "cores": cpus, "threads": cpus},
                "memory": {"totalBytes": memory_gib << 30},
                "gpus": (0..gpus).map(gpu).collect::<Vec<_>>(),
                "os": {"name": "linux", "image": "Debian GNU/Linux 12", "cgroupVersion": 2},
            },
            "hostinfo": {"osname": "linux", "osimage": "Debian GNU/Linux 12", "architecture": "amd64"},
            "network": [{"connected": true, "ipAddrs": ["10.0.0.7"], "isDefault": true, "networkInterfaceName": "eth0"}],
            "capacity": self.hardware.capacity(), "gpus": gpus, "agentVersion": "test",
        }))
        .await;
    }

    fn hosts(&self) -> Api<DynamicObject> {
        api(&self.client, GROUP, "ByoHost", Some("default"))
    }

    /// Writes status as the agent does: server-side apply of everything that it knows would do; a merge of what is new
    /// is shorter here. Conditions go by a condition on the version.
    async fn report(&self, status: Value) {
        let patched = self
            .hosts()
            .patch_status(self.hardware.name, &PatchParams::default(), &Patch::Merge(&json!({"status": status})))
            .await;
        patched.expect("reported");
    }

    async fn condition(&self, kind: &str, status: &str, reason: &str, message: &str) {
        loop {
            let host = self.hosts().get(self.hardware.name).await.expect("the host");
            let mut conditions = host.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.retain(|condition| condition["type"] != kind);
            conditions.push(json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }));
            let patch = json!({
                "metadata": {"resourceVersion": host.metadata.resource_version}, "status": {"conditions": conditions},
            });
            let done =
                self.hosts().patch_status(self.hardware.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            match done {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn plan(&self, epoch: i64, phase: &str, message: &str) {
        let plan = json!({"hash": "h", "epoch": epoch, "steps": 1, "done": 1, "phase": phase, "message": message});
        self.report(json!({"epoch": self.begun, "plan": plan})).await;
    }

    async fn renew(&self, renewals: u64) {
        let leases = api(&self.client, "coordination.k8s.io/v1", "Lease", Some("millpond-hosts"));
        // The clock of the host is off.
        let time = format!("1999-01-01T{:02}:{:02}:{:02}.000000Z", renewals / 3600, renewals / 60 % 60, renewals % 60);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.hardware.name, "namespace": "millpond-hosts"},
            "spec": {
                "holderIdentity": format!("{}/boot", self.hardware.name), "leaseDurationSeconds": 40, "renewTime": time,
            },
        });
        let params = PatchParams::apply("millpond-agent").force();
        leases.patch(self.hardware.name, &params, &Patch::Apply(&lease)).await.expect("renewed");
    }

    async fn look(&mut self) {
        let Some(host) = self.hosts().get_opt(self.hardware.name).await.expect("an answer") else { return };
        let claim = &host.data["spec"]["claim"];
        let epoch = claim["epoch"].as_i64();
        if let Some(applied) = self.applied.filter(|applied| Some(*applied) != epoch) {
            self.reset(applied, "").await;
            return;
        }
        match epoch {
            Some(epoch) if self.applied.is_none() && epoch > self.begun => self.bootstrap(&host, epoch).await,
            _ => {}
        }
    }

    async fn bootstrap(&mut self, host: &DynamicObject, epoch: i64) {
        let spec = &host.data["spec"];
        let (namespace, name) = (&spec["bootstrapSecret"]["namespace"], &spec["bootstrapSecret"]["name"]);
        let secrets = api(&self.client, "v1", "Secret", Some(namespace.as_str().expect("a namespace")));
        let secret = secrets.get_opt(name.as_str().expect("a name")).await.expect("an answer").expect("bootstrap data");
        if spec["joinMode"] == "tlsBootstrap" {
            for key in ["ca.crt", "bootstrap-kubeconfig", "kubelet-config.yaml"] {
                assert!(secret.data["data"][key].is_string(), "{key} is missing");
            }
        } else {
            assert!(secret.data["data"]["value"].is_string(), "no bootstrap data");
        }
        (self.begun, self.applied) = (epoch, Some(epoch));
        self.plan(epoch, "Applying", "").await;
        if self.faults.bootstrap.load(Ordering::SeqCst) {
            let message = "run `kubeadm join`: exit code 1: error execution phase preflight";
            self.plan(epoch, "Failed", message).await;
            self.condition("K8sNodeBootstrapSucceeded", "False", "CloudInitExecutionFailed", message).await;
            self.reset(epoch, message).await;
            return;
        }
        self.become_node(spec).await;
        self.condition("K8sNodeBootstrapSucceeded", "True", "K8sNodeBootstrapSucceeded", "").await;
        self.plan(epoch, "Applied", "").await;
    }

    async fn become_node(&self, spec: &Value) {
        let kubeadm = spec["joinMode"] != "tlsBootstrap";
        let name = self.hardware.name;
        let mut capacity = self.hardware.capacity();
        capacity["pods"] = json!("110");
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "labels": spec["labels"],
                // The stand-in of kubelet plays it.
                "annotations": {"sim.millpond.dev/node": "host"},
            },
            // kubeadm's kubelet knows no provider ID.
            "spec": if kubeadm { json!({}) } else { json!({"providerID": format!("byoh://{name}")}) },
            "status": {"capacity": capacity, "allocatable": capacity},
        });
        let node: DynamicObject = serde_json::from_value(node).expect("a node");
        let made = api(&self.client, "v1", "Node", None).create(&PostParams::default(), &node).await;
        match made {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error}"),
        }
    }

    async fn reset(&mut self, epoch: i64, message: &str) {
        self.plan(epoch, "Resetting", message).await;
        if self.faults.reset.load(Ordering::SeqCst) {
            self.plan(epoch, "ResetFailed", "mounts are left below /var/lib/kubelet").await;
        } else {
            self.plan(epoch, "Reset", message).await;
        }
        self.applied = None;
    }
}
