//! The real cluster, and what a scenario needs of it.
//!
//! Nothing here sleeps: a watch on all pods tells what kube-scheduler did. Pods are made with a scheduling gate, so
//! that kube-scheduler sees a pod only once its node is written down.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt as _};
use millpond_testkit::RealCluster;
use serde_json::{Value, json};

use crate::scenario::{Plan, Scenario, has_node, pod_name};

/// How long anything may take; only what never happens takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests under way at once.
const CONCURRENCY: usize = 16;

/// Holds pods back until they are let in.
const GATE: &str = "millpond.dev/not-yet";

/// Sees whether kube-scheduler knows all nodes.
const SCOUT: &str = "kube-system/scout";

/// What a cluster has beside pods and nodes. Without the namespace, whose objects are in any.
const CLUSTER_WIDE: [&str; 7] =
    ["Namespace", "PersistentVolume", "StorageClass", "PriorityClass", "RuntimeClass", "Node", "CSINode"];

pub(crate) struct Cluster {
    client: Client,
    events: Pin<Box<dyn Stream<Item = watcher::Result<Event<Pod>>> + Send>>,
    /// All pods, as the watch tells, by `namespace/name`.
    pods: BTreeMap<String, Pod>,
    /// Ends with the cluster.
    _real: RealCluster,
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let real = RealCluster::builder()
            .scheduler()
            .controller_manager("daemonset-controller")
            // No controller is there to report nodes ready, or to end the protection of a volume that is deleted.
            .apiserver_arg("--disable-admission-plugins=TaintNodesByCondition,StorageObjectInUseProtection")
            .start()?;
        let client = real.client().await?;
        let events = Box::pin(watcher::watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()));
        Ok(Self { client, events, pods: BTreeMap::new(), _real: real })
    }

    /// Makes everything of a scenario and its plan; pods that are to be scheduled wait behind a gate.
    pub(crate) async fn make(&mut self, scenario: &Scenario, plan: &Plan) -> Result<()> {
        for object in &scenario.objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            let ours = object["apiVersion"].as_str().is_some_and(|version| version.starts_with("karpenter."));
            if !ours && !["Pod", "Node", "DaemonSet"].contains(&kind) {
                self.create(object).await?;
            }
        }
        let nodes: Vec<&Value> = scenario.of_kind("Node").chain(&plan.nodes).collect();
        self.create_all(nodes.iter().map(|node| (*node).clone()).collect()).await?;
        // Of its own, so that it is the last.
        if let Some(last) = nodes.last() {
            self.scout(last).await?;
        }
        self.create_all(scenario.of_kind("Pod").filter(|pod| has_node(pod)).cloned().collect()).await?;
        self.create_all(scenario.of_kind("DaemonSet").cloned().collect()).await?;
        let pods: Vec<Value> = scenario.of_kind("Pod").filter(|pod| !has_node(pod)).map(gated).collect();
        let names: Vec<String> = pods.iter().map(pod_name).collect();
        self.create_all(pods).await?;
        self.wait("pods to be made", |pods| names.iter().all(|name| pods.contains_key(name))).await
    }

    /// Makes sure that kube-scheduler has seen all nodes come and those of the last scenario go: events of nodes arrive
    /// in order, so a pod that is bound to the newest one proves it.
    async fn scout(&mut self, node: &Value) -> Result<()> {
        let (namespace, name) = SCOUT.split_once('/').context("a namespace")?;
        let term =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node["metadata"]["name"]]}]});
        self.create(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "containers": [{"name": "scout", "image": "scout"}],
                "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
            },
        }))
        .await?;
        self.bound(SCOUT).await?;
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        Api::<Pod>::namespaced(self.client.clone(), namespace).delete(name, &at_once).await?;
        self.wait("the scout to leave", |pods| !pods.contains_key(SCOUT)).await
    }

    /// Takes the gate away, having told the node if there is one, and waits until kube-scheduler has tried.
    pub(crate) async fn let_in(&mut self, pod: &str, node: Option<&String>) -> Result<()> {
        let (namespace, name) = pod.split_once('/').context("a namespace")?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        if let Some(node) = node {
            let told = Patch::Merge(json!({"status": {"nominatedNodeName": node}}));
            api.patch_status(name, &PatchParams::default(), &told)
                .await
                .with_context(|| format!("tell {pod} its node"))?;
        }
        let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
        api.patch(name, &PatchParams::default(), &open).await.with_context(|| format!("let {pod} in"))?;
        self.wait(&format!("kube-scheduler to try {pod}"), |pods| {
            pods.get(pod).is_some_and(|pod| node_name(pod).is_some() || is_refused(pod))
        })
        .await
    }

    /// The node that a pod is bound to, sooner or later.
    pub(crate) async fn bound(&mut self, pod: &str) -> Result<String> {
        let what = format!("{pod} to be bound");
        let waited = self.wait(&what, |pods| pods.get(pod).is_some_and(|pod| node_name(pod).is_some()));
        if let Err(error) = waited.await {
            bail!("{error}; kube-scheduler says: {}", self.refusal(pod).unwrap_or("nothing"));
        }
        self.node_of(pod).context("a pod that is bound has a node")
    }

    /// The node that a pod is bound to.
    pub(crate) fn node_of(&self, pod: &str) -> Option<String> {
        node_name(self.pods.get(pod)?).map(str::to_owned)
    }

    fn refusal(&self, pod: &str) -> Option<&str> {
        scheduled(self.pods.get(pod)?)?.message.as_deref()
    }

    /// Daemons that did not find their place: each belongs on every node that its selector chooses.
    pub(crate) async fn missing_daemons(&mut self, scenario: &Scenario, plan: &Plan) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for set in scenario.of_kind("DaemonSet") {
            let name = set["metadata"]["name"].as_str().context("a DaemonSet without a name")?;
            let wanted = set["spec"]["template"]["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
            let chosen = |node: &&Value| wanted.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value);
            let expected = scenario.of_kind("Node").chain(&plan.nodes).filter(chosen).count();
            let what = format!("{expected} pods of DaemonSet {name}");
            let waited = self.wait(&what, |pods| {
                let daemons = pods.values().filter(|pod| pod.owner_references().iter().any(|owner| owner.name == name));
                daemons.filter(|pod| node_name(pod).is_some()).count() == expected
            });
            if let Err(error) = waited.await {
                missing.push(format!("{error:#}"));
            }
        }
        Ok(missing)
    }

    /// Takes away what the next scenario must not meet.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        let daemons = DeleteParams::background();
        let everything = ListParams::default();
        self.api("apps/v1", "DaemonSet", Some("default")).delete_collection(&daemons, &everything).await?;
        self.api("v1", "Node", None).delete_collection(&at_once, &everything).await?;
        // In rounds: the controller of daemons may make one more before it learns that its set is gone.
        while !self.pods.is_empty() {
            let seen: BTreeMap<String, Option<String>> =
                self.pods.iter().map(|(name, pod)| (name.clone(), pod.uid())).collect();
            let namespaces: BTreeSet<&str> = seen.keys().filter_map(|pod| Some(pod.split_once('/')?.0)).collect();
            for namespace in namespaces {
                self.api("v1", "Pod", Some(namespace)).delete_collection(&at_once, &everything).await?;
            }
            self.wait("pods to go", |pods| pods.iter().all(|(name, pod)| seen.get(name) != Some(&pod.uid()))).await?;
        }
        Ok(())
    }

    async fn create_all(&self, objects: Vec<Value>) -> Result<()> {
        let created = futures::stream::iter(&objects).map(|object| self.create(object)).buffered(CONCURRENCY);
        created.try_collect::<()>().await
    }

    async fn create(&self, object: &Value) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let namespace = (!CLUSTER_WIDE.contains(&kind.as_str()))
            .then(|| object["metadata"]["namespace"].as_str().unwrap_or("default"));
        let typed: DynamicObject = serde_json::from_value(object.clone())?;
        match self.api(&version, &kind, namespace).create(&PostParams::default(), &typed).await {
            // Of an earlier scenario.
            Err(kube::Error::Api(status)) if status.is_already_exists() && kind == "Namespace" => Ok(()),
            other => other.map(|_| ()).with_context(|| format!("create {kind} {}", object["metadata"]["name"])),
        }
    }

    fn api(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Follows the watch until the pods are as wanted.
    async fn wait(&mut self, what: &str, wanted: impl Fn(&BTreeMap<String, Pod>) -> bool) -> Result<()> {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !wanted(&self.pods) {
                let event = self.events.next().await.context("the watch ended")??;
                self.follow(event);
            }
            Ok(())
        });
        waited.await.unwrap_or_else(|_| Err(anyhow!("waited in vain for {what}")))
    }

    fn follow(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.pods.clear(),
            Event::InitApply(pod) | Event::Apply(pod) => {
                self.pods.insert(key(&pod), pod);
            }
            Event::Delete(pod) => {
                self.pods.remove(&key(&pod));
            }
            Event::InitDone => {}
        }
    }
}

fn key(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn scheduled(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "PodScheduled")
}

/// Tried and found impossible; a pod behind a gate has another reason.
fn is_refused(pod: &Pod) -> bool {
    scheduled(pod)
        .is_some_and(|condition| condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable"))
}

fn gated(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    pod
}
