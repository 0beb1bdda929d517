//! Instances become Node objects on the embedded API, under virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use millpond_api::karpenter::{Taint, TaintEffect, UNREGISTERED_TAINT};
use millpond_api::node_class::NodeClass;
use millpond_api::time::Time;
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock as ServerClock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{Server, ServerOptions};
use millpond_providers::sim::{Cloud, SimProvider};
use millpond_providers::{Instance, InstanceEvent, LaunchRequest, Provider};
use millpond_runtime::clock::Clock;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::stage::{START, class, some_choices};

/// How long a test waits for something, in virtual time, and how often it looks.
const PATIENCE: Duration = Duration::from_mins(10);
const LOOK: Duration = Duration::from_millis(100);

/// An embedded API, a cloud, and a task that boots its instances.
struct World {
    server: Arc<Server>,
    nodes: Api<Node>,
    cloud: Arc<Cloud>,
    clock: Clock,
    provider: Arc<SimProvider>,
    stop: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let start: Timestamp = START.parse().expect("a time");
        let clock = ServerClock::virtual_from(start);
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).expect("a server");
        millpond_apiserver::bootstrap(&server, 443).await.expect("the first objects");
        let client = Client::new(server.service_for(Identity::administrator("test")), "default");
        let (cloud, clock) = (Arc::new(Cloud::in_memory()), Clock::virtual_from(start));
        let provider = Arc::new(SimProvider::new(Arc::clone(&cloud), client.clone(), clock.clone()));
        let world = Self { server, nodes: Api::all(client), cloud, clock, provider, stop: CancellationToken::new() };
        world.boot();
        world
    }

    fn client(&self) -> Client {
        Client::new(self.server.service_for(Identity::administrator("test")), "default")
    }

    fn boot(&self) {
        tokio::spawn(Arc::clone(&self.provider).run(self.stop.clone()));
    }

    /// The process dies and another one starts; the cloud and the API live on.
    fn restart(&mut self) {
        self.stop.cancel();
        self.stop = CancellationToken::new();
        let provider = SimProvider::new(Arc::clone(&self.cloud), self.client(), self.clock.clone());
        self.provider = Arc::new(provider);
        self.boot();
    }

    async fn launch(&self, class: &NodeClass, claim: &str) -> Instance {
        let request = LaunchRequest {
            token: format!("uid-of-{claim}"),
            claim: claim.to_owned(),
            class: class.clone(),
            choices: some_choices(&*self.provider, class),
            labels: [("team", "a"), ("topology.kubernetes.io/zone", "nowhere")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            annotations: [("note".to_owned(), "b".to_owned())].into(),
            taints: vec![
                Taint { key: UNREGISTERED_TAINT.to_owned(), value: String::new(), effect: TaintEffect::NoExecute },
                Taint { key: "dedicated".to_owned(), value: "a".to_owned(), effect: TaintEffect::NoSchedule },
            ],
        };
        self.provider.create(&request).await.expect("an instance").instance
    }

    async fn wait_for(&self, name: &str) -> Node {
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            if let Some(node) = self.nodes.get_opt(name).await.expect("an answer") {
                return node;
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("no node `{name}` after {PATIENCE:?}");
    }

    async fn names(&self) -> Vec<String> {
        let all = self.nodes.list(&Default::default()).await.expect("a list");
        all.iter().map(kube::ResourceExt::name_any).collect()
    }

    fn now(&self) -> Time {
        Time(self.clock.now().as_second())
    }
}

fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn an_instance_registers_after_its_delay_as_it_was_asked_for() {
    let world = World::start().await;
    let class = class("slow", "{provider: sim, catalog: aws, sim: {registrationDelay: 40s}}");
    let instance = world.launch(&class, "a-1").await;
    let node = world.wait_for("a-1").await;
    let created = node.creation_timestamp().expect("a time").0.as_second();
    assert_eq!(created, instance.created.0 + 40);
    assert_eq!(provider_id(&node), instance.id);
    assert!(instance.id.starts_with("sim://slow/i-"), "{}", instance.id);
    let labels = node.labels();
    for (key, value) in [
        ("team", "a"),
        ("kubernetes.io/hostname", "a-1"),
        // What was bought holds over what was asked for.
        ("topology.kubernetes.io/zone", &instance.offering.zone),
        ("node.kubernetes.io/instance-type", &instance.offering.instance_type),
        ("karpenter.sh/capacity-type", &instance.offering.capacity_type),
        ("kubernetes.io/os", "linux"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    let annotations: BTreeMap<&str, &str> =
        node.annotations().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(annotations.get("note"), Some(&"b"));
    assert_eq!(annotations.get("kwok.x-k8s.io/node"), Some(&"fake"));
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).expect("taints");
    let taints: Vec<String> = taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    assert!(taints.contains(&"karpenter.sh/unregistered:NoExecute".to_owned()), "{taints:?}");
    assert!(taints.contains(&"dedicated:NoSchedule".to_owned()), "{taints:?}");
    let status = node.status.expect("a status");
    assert_eq!(status.capacity.expect("capacity")["cpu"].0, "2");
    assert_eq!(status.allocatable.expect("allocatable")["cpu"].0, "1930m");
}

#[tokio::test(start_paused = true)]
async fn many_instances_register() {
    let world = World::start().await;
    let class = class("quick", "{provider: sim, catalog: aws, sim: {registrationJitter: 30s}}");
    for index in 0..200 {
        world.launch(&class, &format!("many-{index}")).await;
    }
    for index in 0..200 {
        world.wait_for(&format!("many-{index}")).await;
    }
    assert_eq!(world.names().await.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_there_already_is_fine_and_is_made_once() {
    let mut world = World::start().await;
    let class = class("slow", "{provider: sim, catalog: aws, sim: {registrationDelay: 30s}}");
    let instance = world.launch(&class, "a-1").await;
    let kubelet = Node {
        metadata: kube::api::ObjectMeta { name: Some("a-1".to_owned()), ..Default::default() },
        spec: Some(k8s_openapi::api::core::v1::NodeSpec {
            provider_id: Some(instance.id.clone()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let uid = world.nodes.create(&PostParams::default(), &kubelet).await.expect("a node").uid();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(world.wait_for("a-1").await.uid(), uid);
    // A controller takes it away: the cloud does not bring it back, nor does another process.
    world.nodes.delete("a-1", &DeleteParams::default()).await.expect("gone");
    tokio::time::sleep(Duration::from_mins(2)).await;
    world.restart();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(world.names().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_boots_what_has_not_registered_yet() {
    let mut world = World::start().await;
    let class = class("slow", "{provider: sim, catalog: aws, sim: {registrationDelay: 60s}}");
    let instance = world.launch(&class, "a-1").await;
    world.stop.cancel();
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(world.names().await, [""; 0]);
    world.restart();
    assert_eq!(provider_id(&world.wait_for("a-1").await), instance.id);
}

#[tokio::test(start_paused = true)]
async fn two_booting_processes_make_one_node() {
    let world = World::start().await;
    let other = SimProvider::new(Arc::clone(&world.cloud), world.client(), world.clock.clone());
    tokio::spawn(Arc::new(other).run(world.stop.clone()));
    let class = class("quick", "{provider: sim, catalog: aws}");
    for index in 0..20 {
        world.launch(&class, &format!("a-{index}")).await;
    }
    for index in 0..20 {
        world.wait_for(&format!("a-{index}")).await;
    }
    assert_eq!(world.names().await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_api_are_waited_out() {
    let world = World::start().await;
    world.stop.cancel();
    // Seven requests fail before one gets through.
    let left = Arc::new(AtomicUsize::new(7));
    let service = world.server.service_for(Identity::administrator("test"));
    let counted = Arc::clone(&left);
    let flaky = tower::service_fn(move |request: Request<Body>| {
        let (service, left) = (service.clone(), Arc::clone(&counted));
        async move {
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(std::io::Error::other("connection refused").into());
            }
            let response: Response<_> = service.oneshot(request).await.map_err(tower_error)?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
        }
    });
    let client = Client::new(flaky, "default");
    let provider = Arc::new(SimProvider::new(Arc::clone(&world.cloud), client, world.clock.clone()));
    tokio::spawn(provider.run(CancellationToken::new()));
    let instance = world.launch(&class("quick", "{provider: sim, catalog: aws}"), "a-1").await;
    assert_eq!(provider_id(&world.wait_for("a-1").await), instance.id);
    assert_eq!(left.load(Ordering::SeqCst), 0);
}

fn tower_error<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    error: E,
) -> Box<dyn std::error::Error + Send + Sync> {
    error.into()
}

#[tokio::test(start_paused = true)]
async fn the_node_of_another_instance_is_left_alone() {
    let world = World::start().await;
    let other = Node {
        metadata: kube::api::ObjectMeta { name: Some("a-1".to_owned()), ..Default::default() },
        ..Default::default()
    };
    world.nodes.create(&PostParams::default(), &other).await.expect("a node");
    let instance = world.launch(&class("quick", "{provider: sim, catalog: aws}"), "a-1").await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(provider_id(&world.wait_for("a-1").await), "");
    world.nodes.delete("a-1", &DeleteParams::default()).await.expect("gone");
    assert_eq!(provider_id(&world.wait_for("a-1").await), instance.id);
}

#[tokio::test(start_paused = true)]
async fn some_never_register_and_some_end_before() {
    let world = World::start().await;
    let silent = class("silent", "{provider: sim, catalog: aws, sim: {registrationFailures: 100%}}");
    world.launch(&silent, "silent").await;
    let slow = class("slow", "{provider: sim, catalog: aws, sim: {registrationDelay: 60s, shutdown: 10m}}");
    let ended = world.launch(&slow, "ended").await;
    world.provider.delete(&ended.id).await.expect("its end");
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(world.names().await, [""; 0]);
    assert_eq!(world.cloud.instances(world.clock.now()).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn interruptions_are_announced_and_happen() {
    let world = World::start().await;
    let mut events = world.provider.events().expect("events");
    let text = "{provider: sim, catalog: aws, sim: {interruptions: [{at: 10m, capacityType: '*', nodeGone: true}]}}";
    let class = class("spot", text);
    let begin = world.now();
    let instance = world.launch(&class, "a-1").await;
    world.wait_for("a-1").await;
    let told = events.recv().await.expect("an event");
    assert_eq!(told, InstanceEvent::Interrupted { id: instance.id.clone(), at: Time(begin.0 + 720) });
    assert_eq!(world.now(), Time(begin.0 + 600));
    assert_eq!(world.names().await, ["a-1"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let later = world.launch(&class, "a-2").await;
    assert_eq!(events.recv().await.expect("an event"), InstanceEvent::Gone { id: instance.id.clone() });
    assert_eq!(world.now(), Time(begin.0 + 720));
    // The node goes with it; an instance launched after the interruption stays.
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(world.names().await, ["a-2"]);
    let there: Vec<String> = world.cloud.instances(world.clock.now()).into_iter().map(|it| it.id).collect();
    assert_eq!(there, [later.id]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_ends_leaves_its_node_to_the_controllers() {
    let world = World::start().await;
    let mut events = world.provider.events().expect("events");
    let class = class("slow-end", "{provider: sim, catalog: aws, sim: {shutdown: 30s}}");
    let instance = world.launch(&class, "a-1").await;
    world.wait_for("a-1").await;
    world.provider.delete(&instance.id).await.expect("its end");
    assert_eq!(events.recv().await.expect("an event"), InstanceEvent::Gone { id: instance.id });
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(world.names().await, ["a-1"]);
}
