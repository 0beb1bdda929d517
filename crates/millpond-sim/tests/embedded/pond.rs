//! An embedded API with stand-ins on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{LifecycleOptions, Server, ServerOptions, lifecycle};
use millpond_sim::cluster::Cluster;
use millpond_sim::meta::{Key, node_name, phase};
use millpond_sim::{Nodes, Options, StandIns};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How long a test waits for something, in virtual time.
const PATIENCE: Duration = Duration::from_mins(10);
/// How often it looks, in virtual time.
const LOOK: Duration = Duration::from_millis(200);

/// An embedded API with stand-ins on it.
pub(crate) struct Pond {
    pub(crate) client: Client,
    pub(crate) server: Arc<Server>,
    pub(crate) cluster: Arc<Cluster>,
    token: CancellationToken,
    stand_ins: StandIns,
    options: Options,
}

/// The identity of the stand-ins: an ordinary user with the rights that they need.
fn stand_ins() -> Identity {
    Identity::new("stand-ins".to_owned(), Vec::new())
}

async fn give_rights(client: &Client) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "stand-ins"});
    let role = json!({"metadata": metadata, "rules": millpond_sim::rights::rules()});
    let binding = json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "stand-ins"},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "stand-ins"}],
    });
    for (kind, object) in [("ClusterRole", role), ("ClusterRoleBinding", binding)] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
        let object = serde_json::from_value(object).expect("an object");
        Api::<DynamicObject>::all_with(client.clone(), &resource)
            .create(&PostParams::default(), &object)
            .await
            .expect("created");
    }
}

impl Pond {
    /// Starts both with options for tests.
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        Self::start_as(options, Nodes::All).await
    }

    pub(crate) async fn start_as(options: Options, nodes: Nodes) -> Self {
        // Silent unless `RUST_LOG` says otherwise.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let clock = Clock::virtual_from(start);
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).expect("a server");
        millpond_apiserver::bootstrap(&server, 443).await.expect("the first objects");
        tokio::spawn(lifecycle::run(Arc::clone(&server), LifecycleOptions { controllers: true }));
        let client = Client::new(server.service_for(Identity::administrator("test")), "default");
        give_rights(&client).await;
        let options = Options { seed: 1, virtual_start: Some(start), nodes, ..options };
        Self::on(server, client, options)
    }

    fn on(server: Arc<Server>, client: Client, options: Options) -> Self {
        let token = CancellationToken::new();
        let theirs = Client::new(server.service_for(stand_ins()), "default");
        let stand_ins = StandIns::builder(theirs).options(options.clone()).spawn(token.clone());
        let cluster = Arc::clone(stand_ins.cluster());
        Self { client, server, cluster, token, stand_ins, options }
    }

    /// Ends the stand-ins and starts new ones on the same API.
    pub(crate) async fn restart(self) -> Self {
        let (server, client, options) = (Arc::clone(&self.server), self.client.clone(), self.options.clone());
        // The new ones go on where the clock stands now.
        let options = Options { virtual_start: Some(self.cluster.clock.now()), ..options };
        self.stop().await;
        Self::on(server, client, options)
    }

    /// Stops the stand-ins and waits for them.
    pub(crate) async fn stop(self) {
        self.token.cancel();
        self.stand_ins.ended().await;
    }

    /// Creates an object of any kind.
    pub(crate) async fn create(&self, object: Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let api = self.api(&object);
        api.create(&PostParams::default(), &object).await.expect("created")
    }

    /// Merges a patch into an object.
    pub(crate) async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let api = self.api(&Self::create_ref(api_version, kind, name));
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    pub(crate) fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.clone().expect("a kind");
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let cluster_scoped = ["Node", "Namespace", "PriorityClass", "StorageClass", "PersistentVolume"];
        if cluster_scoped.contains(&types.kind.as_str()) {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::default_namespaced_with(self.client.clone(), &resource)
        }
    }

    /// A name for an object of any kind, to be given to [`Self::api`].
    pub(crate) fn create_ref(api_version: &str, kind: &str, name: &str) -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}))
            .expect("an object")
    }

    /// Creates one more node of this name.
    pub(crate) async fn nodes_more(&self, name: &str) {
        self.node(name, json!({}), json!({})).await;
    }

    /// Creates nodes of 4 cores, 16 GiB and 110 pods, spread over three zones.
    pub(crate) async fn nodes(&self, count: usize) {
        for index in 0..count {
            let name = format!("node-{index:04}");
            let zone = format!("zone-{}", index % 3);
            self.node(&name, json!({"topology.kubernetes.io/zone": zone}), json!({})).await;
        }
    }

    pub(crate) async fn node(&self, name: &str, labels: Value, spec: Value) {
        let mut labels = labels;
        labels["kubernetes.io/hostname"] = json!(name);
        let resources = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
        self.create(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"capacity": resources, "allocatable": resources},
        }))
        .await;
    }

    /// Creates a Deployment of pods that ask for some cpu.
    pub(crate) async fn deployment(&self, name: &str, replicas: i32, more: Value) {
        let mut spec = json!({
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, "100m"),
        });
        merge(&mut spec, &more);
        self.create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec,
        }))
        .await;
    }

    /// Creates a bare pod.
    pub(crate) async fn pod(&self, name: &str, spec: Value) {
        let mut base = json!({"containers": [{"name": "c", "image": "i"}]});
        merge(&mut base, &spec);
        self.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": base,
        }))
        .await;
    }

    /// Waits until something holds; `describe` says what is there when it never does.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        while !holds(&self.cluster) {
            assert!(tokio::time::Instant::now() < give_up, "never: {what}\n{}", self.describe());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until nothing has been written for a while.
    pub(crate) async fn until_quiet(&self) {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        loop {
            let before = self.server.store().revision();
            tokio::time::sleep(Duration::from_secs(15)).await;
            if self.server.store().revision() == before {
                return;
            }
            assert!(tokio::time::Instant::now() < give_up, "never quiet\n{}", self.describe());
        }
    }

    pub(crate) fn pods_of(&self, app: &str) -> Vec<Arc<Pod>> {
        let pods = self.cluster.pods.list();
        pods.into_iter().filter(|pod| pod.labels().get("app").map(String::as_str) == Some(app)).collect()
    }

    pub(crate) fn get_pod(&self, name: &str) -> Option<Arc<Pod>> {
        self.cluster.pods.get(&Key::new("default", name))
    }

    /// How many pods each node has.
    pub(crate) fn spread(&self) -> BTreeMap<String, usize> {
        let mut spread = BTreeMap::new();
        for pod in self.cluster.pods.list() {
            *spread.entry(node_name(&pod).unwrap_or("-").to_owned()).or_default() += 1;
        }
        spread
    }

    /// How many leases nodes have.
    pub(crate) fn leases(&self) -> usize {
        self.server.store().sizes().get("leases.coordination.k8s.io").copied().unwrap_or_default()
    }

    fn describe(&self) -> String {
        let mut lines = vec![format!("revision {}", self.server.store().revision())];
        for pod in self.cluster.pods.list().iter().take(20) {
            let why = pod
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .find_map(|condition| condition.message.as_deref())
                .unwrap_or_default()
                .to_owned();
            lines.push(format!("pod {} {} on {:?}: {why}", pod.name_any(), phase(pod), node_name(pod)));
        }
        for set in self.cluster.replica_sets.list() {
            lines.push(format!("set {} {:?}", set.name_any(), set.status));
        }
        for deployment in self.cluster.deployments.list() {
            lines.push(format!("deployment {} {:?}", deployment.name_any(), deployment.status));
        }
        lines.join("\n")
    }
}

/// The template of a pod that asks for some cpu.
pub(crate) fn template(app: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

/// Merges objects, the second into the first.
pub(crate) fn merge(target: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        if value.is_object() && target[key].is_object() {
            merge(&mut target[key], value);
        } else {
            target[key] = value.clone();
        }
    }
}

pub(crate) fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn available(cluster: &Cluster, name: &str) -> i32 {
    let deployment = cluster.deployments.get(&Key::new("default", name));
    deployment.and_then(|deployment| deployment.status.as_ref()?.available_replicas).unwrap_or_default()
}
