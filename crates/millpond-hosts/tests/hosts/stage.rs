//! The embedded API under virtual time, with Cluster API's core played, and controllers that can be killed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{LifecycleOptions, Server, ServerOptions, lifecycle};
use millpond_controllers::cluster::Options as ControllerOptions;
use millpond_controllers::run::Controllers;
use millpond_hosts::provider::HostProvider;
use millpond_hosts::run::Prepared;
use millpond_hosts::stock::{ApiServer, Options as HostOptions};
use millpond_providers::Provider;
use millpond_providers::sim::{Cloud, SimProvider};
use millpond_sim::options::Providers;
use millpond_sim::{Options, Part, StandIns};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{self, Agent, Hardware};

pub(crate) const CORE: &str = "cluster.x-k8s.io/v1beta2";
pub(crate) const BYOH: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const START: &str = "2026-01-01T00:00:00Z";
/// How long a test waits for something, in virtual time.
const PATIENCE: Duration = Duration::from_mins(30);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(100);
/// Kinds that belong to no namespace.
const CLUSTER_SCOPED: [&str; 6] =
    ["Node", "Namespace", "CustomResourceDefinition", "NodePool", "NodeClass", "NodeClaim"];

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) server: Arc<Server>,
    clock: millpond_sim::clock::Clock,
    token: CancellationToken,
    _stand_ins: StandIns,
}

/// Controllers of own hosts at work.
pub(crate) struct Crew {
    token: CancellationToken,
    pub(crate) tasks: TaskTracker,
    writes: Arc<AtomicI64>,
}

impl Crew {
    /// Whether nothing gets through any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.writes.load(Ordering::SeqCst) < 0
    }

    pub(crate) async fn stop(self) {
        self.token.cancel();
        self.tasks.wait().await;
    }
}

impl Stage {
    pub(crate) async fn start() -> Self {
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
        for definition in [millpond_api::crd::all(), millpond_api::crd::cluster_api()].concat() {
            install(&client, &definition).await;
        }
        let token = CancellationToken::new();
        let kinds = ["ByoMachine", "ByoCluster", "BootstrapKubeconfig"].map(str::to_owned).to_vec();
        let options =
            Options { seed: 1, virtual_start: Some(start), providers: Providers::AllBut(kinds), ..Options::default() };
        let parts = StandIns::builder(client.clone()).with_all(Part::CLUSTER_API);
        let stand_ins = parts.options(options).spawn(token.clone());
        let clock = millpond_sim::clock::Clock::virtual_from(start);
        let stage = Self { client, server, clock, token, _stand_ins: stand_ins };
        stage.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "millpond-hosts"}})).await;
        stage
    }

    /// Starts the controllers of own hosts.
    pub(crate) fn hire(&self) -> Crew {
        self.hire_until(i64::MAX)
    }

    /// The same, killed with the write of that number: it is done, but its answer never arrives, and nothing after it.
    pub(crate) fn hire_until(&self, writes: i64) -> Crew {
        let left = Arc::new(AtomicI64::new(writes));
        let (service, counter) = (self.server.service_for(Identity::administrator("hosts")), Arc::clone(&left));
        let fused = tower::service_fn(move |request: http::Request<Body>| {
            let is_write = request.method() != http::Method::GET && !request.uri().path().contains("/events");
            let before = if is_write { counter.fetch_sub(1, Ordering::SeqCst) } else { counter.load(Ordering::SeqCst) };
            let mut service = service.clone();
            async move {
                if before < 0 {
                    std::future::pending::<()>().await;
                }
                let answer = tower::Service::call(&mut service, request).await;
                if is_write && before == 0 {
                    std::future::pending::<()>().await;
                }
                answer.map_err(|never| -> Infallible { match never {} })
            }
        });
        let client = Client::new(fused, "default");
        let token = self.token.child_token();
        let tasks = millpond_hosts::run::start(&client, &self.host_options(), &token);
        Crew { token, tasks, writes: left }
    }

    /// The controllers of own hosts, and own hosts as a provider of NodeClaims.
    pub(crate) fn hire_with_provider(&self) -> (Crew, Arc<HostProvider>) {
        let prepared = Prepared::new(&self.client, &self.host_options());
        let (provider, token) = (prepared.provider(), self.token.child_token());
        let tasks = prepared.start(&token);
        (Crew { token, tasks, writes: Arc::new(AtomicI64::new(i64::MAX)) }, provider)
    }

    fn host_options(&self) -> HostOptions {
        let api_server = ApiServer { url: "https://127.0.0.1:6443".to_owned(), ca: b"PEM".to_vec() };
        HostOptions { clock: self.clock.clone(), api_server: Some(api_server), ..HostOptions::default() }
    }

    /// A simulated cloud.
    pub(crate) fn cloud(&self) -> Arc<dyn Provider> {
        let cloud = Arc::new(Cloud::in_memory());
        let provider = Arc::new(SimProvider::new(cloud, self.client.clone(), self.clock.clone()));
        tokio::spawn(Arc::clone(&provider).run(self.token.clone()));
        provider
    }

    /// Starts the controllers that scale node groups by pending pods.
    pub(crate) async fn hire_autoscaler(&self) -> Controllers {
        self.hire_controllers(Vec::new()).await
    }

    /// Starts the controllers of pools with these providers.
    pub(crate) async fn hire_controllers(&self, providers: Vec<Arc<dyn Provider>>) -> Controllers {
        let options =
            ControllerOptions { seed: 7, virtual_start: Some(self.clock.now()), ..ControllerOptions::default() };
        let controllers = Controllers::start(self.client.clone(), options, providers, &self.token);
        controllers.context().cluster.wait_until_ready().await;
        controllers
    }

    pub(crate) fn agent(&self, hardware: Hardware) -> Agent {
        agent::start(&self.client, hardware)
    }

    pub(crate) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let namespace = (!CLUSTER_SCOPED.contains(&kind)).then_some("default");
        agent::api(&self.client, api_version, kind, namespace)
    }

    pub(crate) async fn create(&self, object: Value) -> Value {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let types = object.types.clone().expect("a kind");
        let created = self.api(&types.api_version, &types.kind).create(&PostParams::default(), &object).await;
        serde_json::to_value(created.unwrap_or_else(|error| panic!("cannot create {object:?}: {error}"))).expect("json")
    }

    pub(crate) async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let patched = self.api(api_version, kind).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.unwrap_or_else(|error| panic!("cannot patch {kind} {name} with {patch}: {error}"));
    }

    pub(crate) async fn delete(&self, api_version: &str, kind: &str, name: &str) {
        self.api(api_version, kind).delete(name, &DeleteParams::background()).await.expect("deleted");
    }

    /// `kubectl label byohost`.
    pub(crate) async fn label(&self, host: &str, labels: Value) {
        self.patch(BYOH, "ByoHost", host, json!({"metadata": {"labels": labels}})).await;
    }

    pub(crate) async fn get(&self, api_version: &str, kind: &str, name: &str) -> Value {
        let found = self.api(api_version, kind).get_opt(name).await.expect("an answer");
        serde_json::to_value(found).expect("json")
    }

    pub(crate) async fn host(&self, name: &str) -> Value {
        self.get(BYOH, "ByoHost", name).await
    }

    pub(crate) async fn list(&self, api_version: &str, kind: &str, labels: &str) -> Vec<Value> {
        let found = self.api(api_version, kind).list(&ListParams::default().labels(labels)).await.expect("a list");
        let mut found: Vec<DynamicObject> = found.items;
        found.sort_by_key(ResourceExt::name_any);
        found.into_iter().map(|object| serde_json::to_value(object).expect("json")).collect()
    }

    pub(crate) async fn until<T>(&self, what: &str, check: impl AsyncFn() -> Result<T, String>) -> T {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        loop {
            match check().await {
                Ok(found) => return found,
                Err(instead) => {
                    assert!(tokio::time::Instant::now() < give_up, "never: {what}; instead {instead}");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// Waits until a host is in a state.
    pub(crate) async fn until_state(&self, host: &str, state: &str) -> Value {
        self.until(&format!("{host} is {state}"), async || {
            let found = self.host(host).await;
            if found["status"]["state"] == state { Ok(found) } else { Err(found["status"].to_string()) }
        })
        .await
    }

    /// Hosts that machines of a pool have, once so many of them are Nodes.
    pub(crate) async fn until_hosts(&self, pool: &str, count: usize) -> Vec<String> {
        self.until(&format!("{pool} has {count} hosts"), async || {
            let machines = self.machines(pool).await;
            let hosts: Vec<String> = machines
                .iter()
                .filter(|machine| machine["status"]["initialization"]["provisioned"] == true)
                .filter_map(|machine| Some(machine["status"]["host"].as_str()?.to_owned()))
                .collect();
            let mut hosts = if hosts.len() == count && machines.len() == count {
                hosts
            } else {
                let shown: Vec<String> = machines.iter().map(|machine| machine["status"].to_string()).collect();
                return Err(format!("{} machines: {}", machines.len(), shown.join("\n")));
            };
            hosts.sort();
            Ok(hosts)
        })
        .await
    }

    pub(crate) async fn machines(&self, pool: &str) -> Vec<Value> {
        self.list(BYOH, "ByoMachine", &format!("cluster.x-k8s.io/deployment-name={pool}")).await
    }

    /// The Cluster of the document, with what its pools refer to.
    pub(crate) async fn cluster(&self) {
        let named = |name: &str| json!({"name": name, "namespace": "default"});
        self.create(json!({"apiVersion": BYOH, "kind": "ByoCluster", "metadata": named("my-cluster"), "spec": {}}))
            .await;
        let infrastructure =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ByoCluster", "name": "my-cluster"});
        self.create(json!({
            "apiVersion": CORE, "kind": "Cluster", "metadata": named("my-cluster"),
            "spec": {"infrastructureRef": infrastructure},
        }))
        .await;
        self.create(json!({
            "apiVersion": BYOH, "kind": "BootstrapKubeconfig",
            "metadata": named("my-cluster-workers-bootstrap-kubeconfig"), "spec": {},
        }))
        .await;
        self.create(json!({
            "apiVersion": BYOH, "kind": "K8sInstallerConfigTemplate",
            "metadata": named("my-cluster-worker-installer"),
            "spec": {"template": {"spec": {"bundleRepo": "", "bundleType": "k8s"}}},
        }))
        .await;
    }

    /// A template and a pool as the document writes them.
    pub(crate) async fn pool(&self, name: &str, replicas: i64, selector: Value, labels: &[(&str, &str)]) {
        let template = format!("{name}-template");
        let versioned = |kind: &str, name: &str| json!({"apiGroup": BYOH, "kind": kind, "name": name});
        let bootstrap = versioned("BootstrapKubeconfig", "my-cluster-workers-bootstrap-kubeconfig");
        self.create(json!({
            "apiVersion": BYOH, "kind": "ByoMachineTemplate", "metadata": {"name": template, "namespace": "default"},
            "spec": {"template": {"spec": {
                "selector": selector,
                "bootstrapConfigRef": bootstrap,
                "installerRef": versioned("K8sInstallerConfigTemplate", "my-cluster-worker-installer"),
                "joinMode": "tlsBootstrap",
            }}},
        }))
        .await;
        let mut all: BTreeMap<&str, &str> = labels.iter().copied().collect();
        all.insert("cluster.x-k8s.io/cluster-name", "my-cluster");
        self.create(json!({
            "apiVersion": CORE, "kind": "MachineDeployment",
            "metadata": {"name": name, "namespace": "default", "labels": {"cluster-autoscaler-enabled": "true"}},
            "spec": {
                "clusterName": "my-cluster", "replicas": replicas,
                "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "my-cluster"}},
                "template": {"metadata": {"labels": all}, "spec": {
                    "clusterName": "my-cluster", "version": "v1.34.1",
                    "bootstrap": {"configRef": bootstrap},
                    "infrastructureRef": versioned("ByoMachineTemplate", &template),
                }},
            },
        }))
        .await;
    }

    pub(crate) async fn scale(&self, pool: &str, replicas: i64) {
        self.patch(CORE, "MachineDeployment", pool, json!({"spec": {"replicas": replicas}})).await;
    }
}

async fn install(client: &Client, definition: &Value) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition["metadata"]["name"].as_str().expect("a name");
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(definition)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    await_condition(api, name, conditions::is_crd_established()).await.expect("served");
}

/// A condition of an object; null when it is not there.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> &'v Value {
    static NOTHING: Value = Value::Null;
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&NOTHING)
}
