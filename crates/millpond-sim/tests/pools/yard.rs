//! Machines of Cluster API for tests: what its controllers and an infrastructure provider do, as far as an autoscaler can
//! tell. MachineDeployments get Machines at once, Machines become Nodes after a while; where there are too many, those
//! that are marked go first, drained.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use millpond_api::capi::names;
use millpond_controllers::kinds::{Machine, MachineDeployment};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

/// How machines of a group behave.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// What a node has.
    pub(crate) capacity: Value,
    /// Labels of nodes.
    pub(crate) labels: Value,
    /// How long a machine takes to become a node.
    pub(crate) boot: Duration,
    /// Machines fail with these words.
    pub(crate) fails: Option<String>,
    /// No machine is made at all.
    pub(crate) stalled: bool,
}

impl Kind {
    /// Nodes of a size, half a minute after they were asked for.
    pub(crate) fn new(cpu: &str, memory: &str) -> Self {
        Self {
            capacity: json!({"cpu": cpu, "memory": memory, "pods": "110"}),
            labels: json!({}),
            boot: Duration::from_secs(30),
            fails: None,
            stalled: false,
        }
    }
}

/// What is told about a yard.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Machines that were removed, in order.
    pub(crate) removed: Vec<String>,
    /// The most machines that a group had.
    pub(crate) most: BTreeMap<String, usize>,
}

/// Plays Cluster API.
pub(crate) struct Yard {
    client: Client,
    kinds: Mutex<BTreeMap<String, Kind>>,
    pub(crate) book: Mutex<Book>,
    made: Mutex<BTreeMap<String, (u64, tokio::time::Instant)>>,
    stop: CancellationToken,
}

impl Yard {
    /// Begins; ends with what is returned.
    pub(crate) fn open(client: &Client) -> Arc<Self> {
        let yard = Arc::new(Self {
            client: client.clone(),
            kinds: Mutex::default(),
            book: Mutex::default(),
            made: Mutex::default(),
            stop: CancellationToken::new(),
        });
        let (weak, stop) = (Arc::downgrade(&yard), yard.stop.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(EVERY) => {}
                }
                let Some(yard) = weak.upgrade() else { return };
                yard.look().await;
            }
        });
        yard
    }

    /// Says how machines of a group behave.
    pub(crate) fn set(&self, group: &str, kind: Kind) {
        self.kinds.lock().insert(group.to_owned(), kind);
    }

    async fn look(&self) {
        let groups: Api<MachineDeployment> = Api::default_namespaced(self.client.clone());
        let machines: Api<Machine> = Api::default_namespaced(self.client.clone());
        let groups = groups.list(&ListParams::default()).await.expect("groups");
        let all = machines.list(&ListParams::default()).await.expect("machines").items;
        for group in groups {
            let name = group.name_any();
            let Some(kind) = self.kinds.lock().get(&name).cloned() else { continue };
            let own = |machine: &&Machine| machine.labels().get(names::DEPLOYMENT_NAME) == Some(&name);
            let own: Vec<Machine> = all.iter().filter(own).cloned().collect();
            self.tend(&machines, &name, group.spec["replicas"].as_u64().unwrap_or(1) as usize, &kind, own).await;
        }
    }

    async fn tend(&self, api: &Api<Machine>, group: &str, wanted: usize, kind: &Kind, mut own: Vec<Machine>) {
        {
            let mut book = self.book.lock();
            let most = book.most.entry(group.to_owned()).or_default();
            *most = (*most).max(wanted);
        }
        for _ in own.len()..wanted {
            if !kind.stalled {
                self.make(api, group).await;
            }
        }
        own.sort_by_key(|machine| (!machine.annotations().contains_key(names::DELETE_MACHINE), machine.name_any()));
        let surplus: BTreeSet<String> =
            own.iter().take(own.len().saturating_sub(wanted)).map(ResourceExt::name_any).collect();
        for machine in &own {
            if surplus.contains(&machine.name_any()) {
                self.remove(api, machine).await;
            } else if machine.status["nodeRef"].is_null() && machine.status["failureMessage"].is_null() {
                self.advance(api, machine, group, kind).await;
            }
        }
    }

    async fn make(&self, api: &Api<Machine>, group: &str) {
        let number = self.made.lock().values().map(|(number, _)| number + 1).max().unwrap_or(0);
        let name = format!("{group}-{number:04}");
        self.made.lock().insert(name.clone(), (number, tokio::time::Instant::now()));
        let labels =
            json!({names::CLUSTER_NAME: "c", names::DEPLOYMENT_NAME: group, names::SET_NAME: format!("{group}-1")});
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "labels": labels},
            "spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "s"}},
        });
        api.create(&PostParams::default(), &serde_json::from_value(machine).expect("a machine"))
            .await
            .expect("a machine");
    }

    async fn advance(&self, api: &Api<Machine>, machine: &Machine, group: &str, kind: &Kind) {
        let name = machine.name_any();
        let since = self.made.lock().get(&name).map(|(_, since)| *since);
        if since.is_none_or(|since| since.elapsed() < kind.boot) {
            return;
        }
        let status = match &kind.fails {
            Some(words) => json!({"phase": "Failed", "failureReason": "CreateError", "failureMessage": words}),
            None => {
                self.register(&name, group, kind).await;
                json!({"phase": "Running", "nodeRef": {"name": format!("node-{name}")}})
            }
        };
        let patch = json!({"status": status});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a status");
    }

    async fn register(&self, machine: &str, group: &str, kind: &Kind) {
        let mut labels = kind.labels.clone();
        labels["kubernetes.io/os"] = "linux".into();
        labels["kubernetes.io/arch"] = "amd64".into();
        labels["kubernetes.io/hostname"] = format!("node-{machine}").into();
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{machine}"), "labels": labels, "annotations": {
                names::NODE_MACHINE: machine, names::NODE_CLUSTER_NAMESPACE: "default", "group": group}},
            "spec": {"providerID": format!("yard:///{machine}")},
            "status": {"capacity": kind.capacity, "allocatable": kind.capacity},
        });
        let api: Api<Node> = Api::all(self.client.clone());
        let node: Node = serde_json::from_value(node).expect("a node");
        api.create(&PostParams::default(), &node).await.expect("a node");
        let status = json!({"status": node.status});
        api.patch_status(&node.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await.expect("a node");
    }

    /// Drains a node pod by pod, as budgets allow, then removes node and machine.
    async fn remove(&self, api: &Api<Machine>, machine: &Machine) {
        let name = machine.name_any();
        let node = format!("node-{name}");
        let nodes: Api<Node> = Api::all(self.client.clone());
        if nodes.get_opt(&node).await.expect("a node or none").is_some() {
            let cordon = json!({"spec": {"unschedulable": true}});
            nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&cordon)).await.expect("cordoned");
            let pods: Api<Pod> = Api::all(self.client.clone());
            let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
            let left = pods.list(&here).await.expect("pods").items;
            if !left.is_empty() {
                let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
                for pod in left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                    let _ = pods.evict(&pod.name_any(), &EvictParams::default()).await;
                }
                return;
            }
            nodes.delete(&node, &DeleteParams::default()).await.expect("deleted");
        }
        api.delete(&name, &DeleteParams::default()).await.expect("deleted");
        self.book.lock().removed.push(name);
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
