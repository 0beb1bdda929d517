//! An embedded API with GPU nodes, and the controller on it.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use millpond_api::condition;
use millpond_api::gpu_info::{GPUInfoStatus, NodeReservation, RESERVATIONS, read_reservations};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock as ServerClock;
use millpond_apiserver::http::ApiBody;
use millpond_apiserver::store::Store;
use millpond_apiserver::{ApiService, LifecycleOptions, Server, ServerOptions, lifecycle};
use millpond_gpu::controller::{self, Options};
use millpond_gpu::kinds::GPUInfo;
use millpond_runtime::clock::Clock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

/// A bound for a hanging test, not a measurement.
const PATIENCE: Duration = Duration::from_secs(300);
const START: &str = "2026-11-16T04:30:00Z";

pub(crate) struct Cluster {
    pub(crate) client: Client,
    server: Arc<Server>,
    clock: Clock,
    running: Option<(CancellationToken, TaskTracker)>,
}

impl Cluster {
    /// Under the machine's clock, for tests with sockets.
    pub(crate) async fn start() -> Self {
        Self::new(ServerClock::System, Clock::Machine).await
    }

    /// Under virtual time.
    pub(crate) async fn start_virtual() -> Self {
        let start = START.parse().expect("a time");
        Self::new(ServerClock::virtual_from(start), Clock::virtual_from(start)).await
    }

    async fn new(server_clock: ServerClock, clock: Clock) -> Self {
        let server =
            Server::new(Store::in_memory(server_clock), server_clock, ServerOptions::default()).expect("a server");
        millpond_apiserver::bootstrap(&server, 443).await.expect("the first objects");
        tokio::spawn(lifecycle::run(Arc::clone(&server), LifecycleOptions { controllers: true }));
        let client = Client::new(server.service_for(Identity::administrator("test")), "default");
        let cluster = Self { client, server, clock, running: None };
        cluster.define().await;
        cluster
    }

    /// Puts the definitions in place and waits until they are served.
    pub(crate) async fn define(&self) {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        for definition in millpond_api::crd::all() {
            let name = millpond_api::crd::name(&definition).to_owned();
            const KINDS: [&str; 5] = ["gpuinfoes", "maintenancewindows", "nodeclaims", "nodeclasses", "nodepools"];
            if !KINDS.iter().any(|kind| name.starts_with(kind)) {
                continue;
            }
            let params = PatchParams::apply("test").force();
            api.patch(&name, &params, &Patch::Apply(&definition)).await.expect("a definition");
            let established = kube::runtime::conditions::is_crd_established();
            await_condition(api.clone(), &name, established).await.expect("it is served");
        }
    }

    /// Starts the controller.
    pub(crate) fn run(&mut self, options: Options) {
        let client = Client::new(self.server.service_for(Identity::administrator("gpu")), "default");
        self.run_with(client, options);
    }

    /// Starts a controller whose process ends with its write of that number, counted from 0: the write is done, its answer
    /// lost.
    pub(crate) fn run_until_write(&mut self, writes: i64, options: Options) -> Fuse {
        let fuse = Fuse(Arc::new(AtomicI64::new(writes)));
        let service = self.server.service_for(Identity::administrator("gpu"));
        self.run_with(Client::new(Fused { service, fuse: fuse.clone() }, "default"), options);
        fuse
    }

    fn run_with(&mut self, client: Client, options: Options) {
        let stop = CancellationToken::new();
        let options = Options { clock: self.clock.clone(), ..options };
        let tasks = controller::start(&client, options, &stop);
        self.running = Some((stop, tasks));
    }

    /// Ends the controller.
    pub(crate) async fn halt(&mut self) {
        if let Some((stop, tasks)) = self.running.take() {
            stop.cancel();
            tasks.wait().await;
        }
    }

    /// A ready node.
    pub(crate) async fn node(&self, name: &str, gpus: u64, more: Value) {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "Tesla-T4"}},
            "spec": {},
        });
        merge(&mut node, more);
        let mut capacity = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
        if gpus > 0 {
            capacity["nvidia.com/gpu"] = gpus.to_string().into();
        }
        let status = json!({"status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "",
                            "lastTransitionTime": START, "lastHeartbeatTime": START}],
        }});
        let api = Api::<Node>::all(self.client.clone());
        let node: Node = serde_json::from_value(node).expect("a node");
        api.create(&PostParams::default(), &node).await.expect("create a node");
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("its status");
    }

    /// A pod; with a node it is bound.
    pub(crate) async fn pod(&self, name: &str, node: Option<&str>, gpus: u64, labels: Value) {
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"nodeName": node, "containers": [{
                "name": "main", "image": "job", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}},
            }]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("create a pod");
    }

    /// An object of the cluster of any kind.
    pub(crate) async fn create(&self, object: Value) {
        let object: kube::api::DynamicObject = serde_json::from_value(object).expect("an object");
        let types = object.types.clone().expect("a kind");
        let kind = kube::core::GroupVersionKind::try_from(&types).expect("a kind");
        let api = Api::all_with(self.client.clone(), &kube::core::ApiResource::from_gvk(&kind));
        let _: kube::api::DynamicObject = api.create(&PostParams::default(), &object).await.expect("create an object");
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn holders(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "kube-system")
    }

    pub(crate) fn infos(&self) -> Api<GPUInfo> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Asks a question.
    pub(crate) async fn ask(&self, name: &str, spec: Value) {
        self.try_ask(name, spec).await.expect("create a GPUInfo");
    }

    pub(crate) async fn try_ask(&self, name: &str, spec: Value) -> kube::Result<GPUInfo> {
        let api = Api::<kube::api::DynamicObject>::namespaced_with(
            self.client.clone(),
            "default",
            &kube::core::ApiResource::erase::<GPUInfo>(&()),
        );
        let object = json!({
            "apiVersion": "topology.corinternal.com/v1", "kind": "GPUInfo", "metadata": {"name": name}, "spec": spec,
        });
        let object = serde_json::from_value(object).expect("an object");
        let created = api.create(&PostParams::default(), &object).await?;
        Ok(serde_json::from_value(serde_json::to_value(created).expect("JSON")).expect("a GPUInfo"))
    }

    /// Waits for a status.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&GPUInfoStatus) -> bool) -> GPUInfoStatus {
        let condition = |info: Option<&GPUInfo>| info.and_then(|info| info.status.as_ref()).is_some_and(&holds);
        let waiting = await_condition(self.infos(), name, condition);
        let Ok(found) = tokio::time::timeout(PATIENCE, waiting).await else {
            panic!("waited for {what}: {:#?}", self.infos().get(name).await.expect("it is there").status);
        };
        found.expect("watch").and_then(|info| info.status).expect("a status")
    }

    /// Waits until the node of an answer is this one.
    pub(crate) async fn until_node(&self, name: &str, node: &str) -> GPUInfoStatus {
        self.until(name, node, |status| status.suitable_node_name == node).await
    }

    /// Waits for a condition with a reason.
    pub(crate) async fn until_reason(&self, name: &str, kind: &str, reason: &str) -> GPUInfoStatus {
        let holds = |status: &GPUInfoStatus| {
            condition::find(&status.conditions, kind).is_some_and(|condition| condition.reason == reason)
        };
        self.until(name, reason, holds).await
    }

    /// All reservations of all nodes.
    pub(crate) async fn reservations(&self) -> Vec<(String, NodeReservation)> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&Default::default()).await.expect("nodes");
        let of = |node: Node| {
            let text = node.metadata.annotations.unwrap_or_default().remove(RESERVATIONS);
            let name = node.metadata.name.unwrap_or_default();
            read_reservations(text.as_deref()).into_iter().map(move |entry| (name.clone(), entry))
        };
        nodes.items.into_iter().flat_map(of).collect()
    }

    /// Waits until what is looked at now and then is so; every look is a request, which takes its time.
    pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(&self, what: &str, look: impl Fn() -> F) -> T {
        let looking = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("waited for {what}"))
    }
}

fn merge(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Object(value), Value::Object(more)) => {
            more.into_iter().for_each(|(key, more)| merge(value.entry(key).or_insert(Value::Null), more));
        }
        (value, more) => *value = more,
    }
}

/// How many writes get through yet.
#[derive(Clone)]
pub(crate) struct Fuse(Arc<AtomicI64>);

impl Fuse {
    pub(crate) fn is_blown(&self) -> bool {
        self.0.load(Ordering::SeqCst) < 0
    }
}

#[derive(Clone)]
struct Fused {
    service: ApiService,
    fuse: Fuse,
}

impl Service<Request<Body>> for Fused {
    type Response = Response<ApiBody>;
    type Error = <ApiService as Service<Request<Body>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Body>>::poll_ready(&mut self.service, context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_write = request.method() != Method::GET;
        let left =
            if is_write { self.fuse.0.fetch_sub(1, Ordering::SeqCst) } else { self.fuse.0.load(Ordering::SeqCst) };
        if left < 0 {
            return Box::pin(pending());
        }
        let (answer, fuse) = (self.service.call(request), self.fuse.clone());
        Box::pin(async move {
            let answer = answer.await;
            if is_write && left == 0 {
                fuse.0.store(-1, Ordering::SeqCst);
                return pending().await;
            }
            answer
        })
    }
}
