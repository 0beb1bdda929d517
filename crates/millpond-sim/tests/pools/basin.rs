//! An embedded API with stand-ins, a simulated cloud and Millpond's controllers on it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{LifecycleOptions, Server, ServerOptions, lifecycle};
use millpond_controllers::cluster::{Cluster, Options as ControllerOptions};
use millpond_controllers::context::Context;
use millpond_controllers::kinds::NodeClaim;
use millpond_controllers::leader::{Leadership, Leads};
use millpond_controllers::run::Controllers;
use millpond_providers::Provider;
use millpond_providers::sim::{Cloud, SimProvider};
use millpond_runtime::history::History;
use millpond_sim::meta::{Key, node_name, phase};
use millpond_sim::{Nodes, Options, StandIns};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fuse::{Fuse, Fused};

/// How long a test waits for something, in virtual time.
const PATIENCE: Duration = Duration::from_mins(20);
/// How often it looks, in virtual time.
const LOOK: Duration = Duration::from_millis(200);
const START: &str = "2026-01-01T00:00:00Z";

/// Everything together.
pub(crate) struct Basin {
    pub(crate) client: Client,
    pub(crate) server: Arc<Server>,
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) clock: millpond_runtime::clock::Clock,
    stand_ins_stop: CancellationToken,
    crew: Option<Crew>,
    rivals: Vec<Crew>,
    /// Where controllers that are hired write down what they decide.
    pub(crate) history: History,
    /// Controllers that are hired know nothing of each other.
    contested: bool,
    /// The term of the controllers that were hired last.
    term: u64,
    /// What controllers that are hired have instead of the provider of the simulated cloud.
    provider: fn(Arc<dyn Provider>) -> Arc<dyn Provider>,
}

/// Controllers and their provider: what dies with a process.
struct Crew {
    controllers: Controllers,
    stop: CancellationToken,
    booting: tokio::task::JoinHandle<()>,
    fuse: Fuse,
}

impl Basin {
    /// Everything, with a class and a pool `default` over the catalogue of kwok.
    pub(crate) async fn start() -> Self {
        let basin = Self::bare().await;
        basin.class("default", json!({})).await;
        basin.pool("default", json!({})).await;
        basin
    }

    /// Everything, without any pool.
    pub(crate) async fn bare() -> Self {
        let mut basin = Self::without_controllers().await;
        basin.hire(Fuse::none());
        basin
    }

    /// The same for controllers that act at once, neither asking who leads.
    pub(crate) async fn contested() -> Self {
        let mut basin = Self::without_controllers().await;
        basin.contested = true;
        basin.hire(Fuse::none());
        basin
    }

    /// Everything, without any pool; what the stand-ins write goes through a fuse of their own.
    pub(crate) async fn bare_with_stand_ins(fuse: Fuse) -> Self {
        let mut basin = Self::with_stand_ins(fuse).await;
        basin.hire(Fuse::none());
        basin
    }

    /// The cluster alone; controllers come with [`Self::hire`].
    pub(crate) async fn without_controllers() -> Self {
        Self::with_stand_ins(Fuse::none()).await
    }

    async fn with_stand_ins(fuse: Fuse) -> Self {
        // Silent unless `RUST_LOG` says otherwise.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let start = START.parse().expect("a time");
        let clock = Clock::virtual_from(start);
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).expect("a server");
        millpond_apiserver::bootstrap(&server, 443).await.expect("the first objects");
        tokio::spawn(lifecycle::run(Arc::clone(&server), LifecycleOptions { controllers: true }));
        let client = Client::new(server.service_for(Identity::administrator("test")), "default");
        let stand_ins_stop = CancellationToken::new();
        let options = Options { seed: 1, virtual_start: Some(start), nodes: Nodes::All, ..Options::default() };
        let own = Fused::new(server.service_for(Identity::administrator("stand-ins")), fuse);
        let stand_ins = StandIns::builder(Client::new(own, "default")).options(options).spawn(stand_ins_stop.clone());
        drop(stand_ins);
        let clock = millpond_runtime::clock::Clock::virtual_from(start);
        let cloud = Arc::new(Cloud::in_memory());
        let basin = Self {
            client,
            server,
            cloud,
            clock,
            stand_ins_stop,
            crew: None,
            rivals: Vec::new(),
            history: History::default(),
            contested: false,
            term: 0,
            provider: |provider| provider,
        };
        for definition in millpond_api::crd::all() {
            basin.create(definition).await;
        }
        basin
    }

    /// Starts controllers behind a fuse.
    pub(crate) fn hire(&mut self, fuse: Fuse) {
        self.crew = Some(self.next_crew(7, fuse, false));
    }

    /// Starts controllers with a provider of the test's own, which stands on that of the simulated cloud.
    pub(crate) fn hire_with(&mut self, provider: fn(Arc<dyn Provider>) -> Arc<dyn Provider>) {
        self.provider = provider;
        self.hire(Fuse::none());
    }

    /// Ends when the controllers have given one of their loops up; gives its name and its last panic.
    pub(crate) async fn failed(&self) -> (&'static str, String) {
        self.crew.as_ref().expect("controllers run").controllers.failed().await
    }

    /// Starts controllers behind a fuse that choose other names than those before.
    pub(crate) fn hire_another(&mut self, fuse: Fuse) {
        self.crew = Some(self.next_crew(8, fuse, false));
    }

    /// Starts controllers that give advice only.
    pub(crate) fn hire_advisor(&mut self) {
        self.crew = Some(self.next_crew(7, Fuse::none(), true));
    }

    /// Starts further controllers beside those that are there, without leader election.
    pub(crate) fn hire_rival(&mut self, fuse: Fuse) {
        let seed = 100 + self.rivals.len() as u64;
        let rival = self.crew(seed, fuse, false, Leads::Unknown, None);
        self.rivals.push(rival);
    }

    /// Controllers of the next term, unless they do not know of each other.
    fn next_crew(&mut self, seed: u64, fuse: Fuse, advise: bool) -> Crew {
        if self.contested {
            return self.crew(seed, fuse, advise, Leads::Unknown, None);
        }
        self.term += 1;
        self.crew(seed, fuse, advise, Leads::Alone, Some(self.term))
    }

    /// Starts controllers behind a fuse that were elected, on a cloud of theirs. They are not the basin's own: give the
    /// token that ends them.
    pub(crate) async fn lead(&self, leadership: &Leadership, cloud: &Arc<Cloud>, fuse: Fuse, stop: &CancellationToken) {
        let client = self.fused(fuse);
        let options = ControllerOptions {
            seed: 1000 + leadership.term(),
            virtual_start: Some(self.clock.now()),
            leads: Leads::Elected(leadership.clone()),
            ..ControllerOptions::default()
        };
        let provider = Arc::new(SimProvider::new(Arc::clone(cloud), client.clone(), self.clock.clone()));
        provider.begin_term(leadership.term()).await.expect("it leads");
        tokio::spawn(Arc::clone(&provider).run(stop.clone()));
        Controllers::start(client, options, [provider as Arc<dyn Provider>], stop);
    }

    /// The API behind a fuse.
    pub(crate) fn fused(&self, fuse: Fuse) -> Client {
        Client::new(Fused::new(self.server.service_for(Identity::administrator("millpond")), fuse), "default")
    }

    fn crew(&self, seed: u64, fuse: Fuse, advise: bool, leads: Leads, term: Option<u64>) -> Crew {
        let client = self.fused(fuse.clone());
        let stop = CancellationToken::new();
        let virtual_start = Some(self.clock.now());
        let history = self.history.clone();
        let options = ControllerOptions { seed, virtual_start, advise, leads, history, ..ControllerOptions::default() };
        let provider = Arc::new(SimProvider::new(Arc::clone(&self.cloud), client.clone(), self.clock.clone()));
        if let Some(term) = term {
            provider.begin_term(term).now_or_never().expect("in memory").expect("the latest term");
        }
        let booting = tokio::spawn(Arc::clone(&provider).run(stop.clone()));
        let controllers = Controllers::start(client, options, [(self.provider)(provider)], &stop);
        Crew { controllers, stop, booting, fuse }
    }

    /// Ends the controllers as a kill does: what they were about to write is never written.
    pub(crate) fn kill(&mut self) {
        if let Some(crew) = self.crew.take() {
            crew.fuse.blow();
            crew.stop.cancel();
            crew.booting.abort();
        }
    }

    /// Whether the controllers' fuse has blown.
    pub(crate) fn is_dead(&self) -> bool {
        self.crew.as_ref().is_none_or(|crew| crew.fuse.is_blown())
    }

    /// What the controllers act with.
    pub(crate) fn context(&self) -> &Arc<Context> {
        self.crew.as_ref().expect("controllers run").controllers.context()
    }

    /// What the controllers know.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.crew.as_ref().expect("controllers run").controllers.context().cluster
    }

    /// Creates an object of any kind.
    pub(crate) async fn create(&self, object: Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let api = self.api(&object);
        api.create(&PostParams::default(), &object).await.unwrap_or_else(|error| panic!("{error}: {object:?}"))
    }

    /// Merges a patch into an object.
    pub(crate) async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let api = self.api(&reference(api_version, kind, name));
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, api_version: &str, kind: &str, name: &str) {
        let api = self.api(&reference(api_version, kind, name));
        api.delete(name, &kube::api::DeleteParams::default()).await.expect("deleted");
    }

    /// Reads an object as it is now.
    pub(crate) async fn get(&self, api_version: &str, kind: &str, name: &str) -> Value {
        let api = self.api(&reference(api_version, kind, name));
        serde_json::to_value(api.get(name).await.expect("there")).expect("an object")
    }

    fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.clone().expect("a kind");
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let kind = GroupVersionKind::gvk(group, version, &types.kind);
        let resource = match types.kind.as_str() {
            "ClusterLimits" => ApiResource::from_gvk_with_plural(&kind, "clusterlimits"),
            _ => ApiResource::from_gvk(&kind),
        };
        let namespaced = [
            "Pod",
            "Deployment",
            "ReplicaSet",
            "StatefulSet",
            "DaemonSet",
            "Job",
            "PodDisruptionBudget",
            "ConfigMap",
            "PersistentVolumeClaim",
            "CapacityBuffer",
            "PodTemplate",
            "ScalingConstraint",
            "ScalingAdvice",
            "ScalingFeedback",
            "LimitRange",
            "MachineDeployment",
        ];
        if namespaced.contains(&types.kind.as_str()) {
            Api::default_namespaced_with(self.client.clone(), &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    /// A class of the simulated cloud with the catalogue of kwok, and more.
    pub(crate) async fn class(&self, name: &str, more: Value) {
        let mut spec = json!({"provider": "sim", "catalog": "kwok"});
        merge(&mut spec, &more);
        let class = json!({"apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": name}, "spec": spec});
        self.create(class).await;
    }

    /// A pool of linux nodes of the class `default`, and more.
    pub(crate) async fn pool(&self, name: &str, more: Value) {
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                    "requirements": [
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    ],
                }},
                "disruption": {"consolidateAfter": "Never"},
            },
        });
        merge(&mut pool, &more);
        self.create(pool).await;
    }

    /// A Deployment of pods that ask for cores.
    pub(crate) async fn deployment(&self, name: &str, replicas: i32, cpu: &str, more: Value) {
        let mut pod = json!({
            "containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}],
        });
        merge(&mut pod, &more);
        self.create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        }))
        .await;
    }

    pub(crate) async fn scale(&self, name: &str, replicas: i32) {
        self.patch("apps/v1", "Deployment", name, json!({"spec": {"replicas": replicas}})).await;
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        while !holds(self.cluster()) {
            assert!(tokio::time::Instant::now() < give_up, "never: {what}\n{}", self.describe());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many pods of a Deployment run.
    pub(crate) async fn until_running(&self, app: &str, count: usize) {
        self.until(&format!("{count} pods of {app} run"), |cluster| running(cluster, app) == count).await;
    }

    /// Waits until nothing has been written for a while.
    pub(crate) async fn until_quiet(&self) {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        loop {
            let before = self.server.store().revision();
            tokio::time::sleep(Duration::from_secs(30)).await;
            if self.server.store().revision() == before {
                return;
            }
            assert!(tokio::time::Instant::now() < give_up, "never quiet\n{}", self.describe());
        }
    }

    /// Notes of all events of a reason.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let api: Api<k8s_openapi::api::events::v1::Event> = Api::all(self.client.clone());
        let events = api.list(&kube::api::ListParams::default()).await.expect("events");
        let of_reason = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        of_reason.filter_map(|event| event.note).collect()
    }

    /// The time of the cloud and its cluster.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Pods of each node.
    pub(crate) fn spread(&self) -> BTreeMap<String, usize> {
        let mut spread = BTreeMap::new();
        for pod in self.cluster().pods.list() {
            *spread.entry(node_name(&pod).unwrap_or("-").to_owned()).or_default() += 1;
        }
        spread
    }

    /// Machines that the cloud has.
    pub(crate) fn instances(&self) -> Vec<millpond_providers::Instance> {
        self.cloud.instances(self.clock.now())
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.cluster().nodes.list()
    }

    pub(crate) fn claims(&self) -> Vec<Arc<NodeClaim>> {
        self.cluster().claims.list()
    }

    /// The names of all claims that are written from now on.
    pub(crate) fn claims_from_now_on(&self) -> Arc<Mutex<HashSet<String>>> {
        let seen: Arc<Mutex<HashSet<String>>> = Arc::default();
        let all = Arc::clone(&seen);
        self.cluster().claims.on_change(move |_, after| {
            if let Some(claim) = after {
                all.lock().insert(claim.name().to_owned());
            }
        });
        seen
    }

    pub(crate) fn describe(&self) -> String {
        let cluster = self.cluster();
        let mut lines = vec![format!("revision {}", self.server.store().revision())];
        for pool in cluster.pools.list() {
            lines.push(format!("pool {} {:?}", pool.name(), pool.status));
        }
        for claim in cluster.claims.list().iter().take(20) {
            let conditions = claim.status.conditions.iter();
            let conditions: Vec<String> =
                conditions.map(|one| format!("{}={} {}", one.kind, one.status, one.message)).collect();
            let leaving = claim.metadata.deletion_timestamp.is_some();
            lines.push(format!("claim {} leaving={leaving} {}", claim.name(), conditions.join("; ")));
        }
        for node in cluster.nodes.list().iter().take(20) {
            lines.push(format!("node {} {:?}", node.name_any(), node.spec));
        }
        for pod in cluster.pods.list().iter().take(20) {
            let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
            lines.push(format!(
                "pod {} {} on {:?}, nominated {nominated:?}",
                pod.name_any(),
                phase(pod),
                node_name(pod)
            ));
        }
        lines.join("\n")
    }
}

impl Drop for Basin {
    fn drop(&mut self) {
        self.stand_ins_stop.cancel();
        for crew in self.crew.iter().chain(&self.rivals) {
            crew.stop.cancel();
        }
    }
}

pub(crate) fn pods_of(cluster: &Cluster, app: &str) -> Vec<Arc<Pod>> {
    let pods = cluster.pods.list();
    pods.into_iter().filter(|pod| pod.labels().get("app").map(String::as_str) == Some(app)).collect()
}

pub(crate) fn running(cluster: &Cluster, app: &str) -> usize {
    let is_running = |pod: &&Arc<Pod>| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none();
    pods_of(cluster, app).iter().filter(is_running).count()
}

/// The label of a node.
pub(crate) fn label<'n>(node: &'n Node, key: &str) -> &'n str {
    node.labels().get(key).map_or("", String::as_str)
}

pub(crate) fn key(name: &str) -> Key {
    Key::new("", name)
}

fn reference(api_version: &str, kind: &str, name: &str) -> DynamicObject {
    serde_json::from_value(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}))
        .expect("an object")
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
