//! NodePools over own hosts: the promises of every provider, and pods that bring hosts in and let them go.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use millpond_api::amounts::Amounts;
use millpond_api::catalog::Catalog;
use millpond_api::node_class::NodeClass;
use millpond_hosts::provider::HostProvider;
use millpond_providers::conformance::{self, Outcome};
use millpond_providers::{Choice, OfferingKey, Provider, choices};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::agent::{Agent, Hardware};
use crate::stage::{BYOH, Crew, Stage};

const WORKER: &[(&str, &str)] = &[("purpose", "worker")];
const RACK: &[(&str, &str)] = &[("topology.kubernetes.io/zone", "rack-2")];
/// Hosts of each of the three offerings; no check launches more than all of them.
const HOSTS: usize = 2;

/// Own hosts as a stage for the suite: plain ones in two zones, and some with a GPU.
struct HostStage {
    stage: Stage,
    hired: Mutex<(Crew, Arc<HostProvider>)>,
    _agents: Vec<Agent>,
}

impl HostStage {
    async fn start() -> Self {
        let stage = Stage::start().await;
        let hired = stage.hire_with_provider();
        let name = |kind: &str, number: usize| -> &'static str { format!("{kind}-{number}").leak() };
        let mut agents = Vec::new();
        for number in 0..HOSTS {
            agents.push(stage.agent(Hardware::plain(name("plain", number), &[])));
            agents.push(stage.agent(Hardware::plain(name("rack", number), RACK)));
            agents.push(stage.agent(Hardware::gpu(name("gpu", number), &[])));
        }
        let found = Self { stage, hired: Mutex::new(hired), _agents: agents };
        for kind in ["plain", "rack", "gpu"] {
            for number in 0..HOSTS {
                found.stage.until_state(name(kind, number), "Available").await;
            }
        }
        found.until(|| found.left() == Some(vec![HOSTS as u32; 3])).await;
        found
    }

    /// How many hosts of each offering are left, in the order of the catalogue; `None` before the hosts were listed.
    fn left(&self) -> Option<Vec<u32>> {
        let catalog = conformance::Stage::provider(self).catalog(&class()).ok()?;
        let offerings = catalog.types.iter().flat_map(|of| &of.offerings);
        Some(offerings.map(|offering| offering.reservation_count.unwrap_or_default()).collect())
    }

    /// Waits until it is so.
    async fn until(&self, is: impl Fn() -> bool) {
        let give_up = tokio::time::Instant::now() + Duration::from_mins(30);
        while !is() {
            assert!(tokio::time::Instant::now() < give_up, "never; {:?} are left", self.left());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn class() -> NodeClass {
    let class = r#"{"metadata": {"name": "own"}, "spec": {"provider": "hosts", "catalog": "hosts", "hosts": {}}}"#;
    serde_json::from_str(class).expect("a class")
}

fn kind_of(offering: &OfferingKey) -> &'static str {
    match () {
        () if offering.zone == "rack-2" => "rack",
        () if offering.instance_type.contains("nvidia") => "gpu",
        () => "plain",
    }
}

impl conformance::Stage for HostStage {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.hired.lock().1) as Arc<dyn Provider>
    }

    fn class(&self) -> NodeClass {
        class()
    }

    fn choices(&self) -> Vec<Choice> {
        let catalog = self.provider().catalog(&class()).expect("a catalogue");
        choices(&catalog, &class(), &[], &Amounts::default())
    }

    fn restarted(&self) -> BoxFuture<'_, Arc<dyn Provider>> {
        async {
            let hired = self.stage.hire_with_provider();
            let before = std::mem::replace(&mut *self.hired.lock(), hired);
            before.0.stop().await;
            self.until(|| self.left().is_some()).await;
            self.provider()
        }
        .boxed()
    }

    fn run_out<'a>(&'a self, offerings: &'a [OfferingKey]) -> BoxFuture<'a, bool> {
        async {
            for kind in offerings.iter().map(kind_of) {
                for number in 0..HOSTS {
                    let quarantine = json!({"spec": {"quarantine": {"reason": "test"}}});
                    self.stage.patch(BYOH, "ByoHost", &format!("{kind}-{number}"), quarantine).await;
                }
            }
            let is_out = |catalog: &Catalog, key: &OfferingKey| {
                let of = catalog.find(&key.instance_type);
                let offering = of.and_then(|of| of.offerings.iter().find(|it| *it.zone == *key.zone));
                offering.is_some_and(|offering| offering.reservation_count == Some(0))
            };
            self.until(|| {
                let catalog = self.provider().catalog(&class());
                catalog.is_ok_and(|catalog| offerings.iter().all(|key| is_out(&catalog, key)))
            })
            .await;
            true
        }
        .boxed()
    }

    fn drifted_class(&self) -> Option<NodeClass> {
        let mut class = class();
        class.spec.kubelet.max_pods = Some(20);
        Some(class)
    }
}

#[tokio::test(start_paused = true)]
async fn own_hosts_keep_the_promises_of_every_provider() {
    let checks = conformance::run(HostStage::start).await;
    assert!(conformance::all_kept(&checks), "{}", conformance::report(&checks));
    let skipped = checks.iter().filter(|check| matches!(check.outcome, Outcome::Skipped(_)));
    let skipped: Vec<&str> = skipped.map(|check| check.name).collect();
    assert_eq!(skipped, ["who led before is refused, also after a restart"]);
}

fn pool(name: &str, class: &str, weight: i64, requirements: Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "weight": weight,
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"},
            "template": {"spec": {
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": class},
                "requirements": requirements,
            }},
        },
    })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]},
    })
}

/// The nodes of pods, once all of them run.
async fn nodes_of(stage: &Stage, pods: &[&str]) -> Vec<String> {
    stage
        .until("the pods run", async || {
            let mut nodes = Vec::new();
            for name in pods {
                let pod = stage.get("v1", "Pod", name).await;
                if pod["status"]["phase"] != "Running" {
                    let claims = stage.list("karpenter.sh/v1", "NodeClaim", "").await;
                    let claims: Vec<String> = claims.iter().map(|claim| claim["status"].to_string()).collect();
                    return Err(format!("{name}: {} {claims:?}", pod["status"]));
                }
                nodes.push(pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned());
            }
            nodes.sort();
            Ok(nodes)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_pending_pod_makes_a_free_host_join_and_the_cloud_comes_when_hosts_are_used_up() {
    let stage = Stage::start().await;
    let (_crew, provider) = stage.hire_with_provider();
    let _controllers = stage.hire_controllers(vec![provider as Arc<dyn Provider>, stage.cloud()]).await;
    let _agents = [
        stage.agent(Hardware::plain("node10", WORKER)),
        stage.agent(Hardware::plain("node11", &[("purpose", "other")])),
        stage.agent(Hardware::plain("node12", WORKER)),
    ];
    let hosts = json!({"selector": {"matchLabels": {"purpose": "worker"}}, "pricePerHour": "0.10"});
    let class = |name: &str, spec: Value| json!({"apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": name}, "spec": spec});
    stage.create(class("own", json!({"provider": "hosts", "hosts": hosts}))).await;
    stage.create(class("cloud", json!({"provider": "sim", "catalog": "aws"}))).await;
    let linux = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]);
    let large = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]}]);
    stage.create(pool("own", "own", 10, linux)).await;
    stage.create(pool("cloud", "cloud", 1, large)).await;
    stage.until_state("node10", "Available").await;
    stage.until_state("node12", "Available").await;
    stage
        .until("the class is ready", async || {
            let class = stage.get("millpond.dev/v1alpha1", "NodeClass", "own").await;
            if class["status"]["instanceTypes"] == 1 { Ok(()) } else { Err(class["status"].to_string()) }
        })
        .await;

    // Hosts are cheaper and come first; there are two.
    stage.create(pod("web-0")).await;
    stage.create(pod("web-1")).await;
    assert_eq!(nodes_of(&stage, &["web-0", "web-1"]).await, ["node10", "node12"]);
    let host = stage.until_state("node10", "InUse").await;
    assert_eq!(host["status"]["machineRef"]["kind"], "NodeClaim");
    assert_eq!((&host["spec"]["claim"]["epoch"], &host["status"]["pool"]), (&json!(1), &json!("own")));
    let node = stage.get("v1", "Node", "node10").await;
    assert_eq!(node["spec"]["providerID"], "byoh://node10");
    let label = |key: &str| node["metadata"]["labels"][key].clone();
    assert_eq!((label("purpose"), label("karpenter.sh/nodepool")), (json!("worker"), json!("own")));
    assert_eq!(label("karpenter.sh/capacity-type"), "reserved");
    // Nothing is left of the credentials that they joined with.
    let secrets = stage.list("v1", "Secret", "").await;
    let names: Vec<&str> = secrets.iter().filter_map(|secret| secret["metadata"]["name"].as_str()).collect();
    assert!(!names.iter().any(|name| name.ends_with("-tls-bootstrap")), "{names:?}");
    // The third does not wait for a host: none is left, and the cloud is next.
    stage.create(pod("web-2")).await;
    let nodes = nodes_of(&stage, &["web-2"]).await;
    let node = stage.get("v1", "Node", &nodes[0]).await;
    assert_eq!(node["metadata"]["labels"]["karpenter.sh/nodepool"], "cloud");
    let claims = stage.list("karpenter.sh/v1", "NodeClaim", "karpenter.sh/nodepool=own").await;
    assert_eq!(claims.len(), 2, "no claim was made for a host that is not there");

    // A relabelled host stays with its claim.
    stage.label("node12", json!({"purpose": "other"})).await;
    // No pod, no node: the hosts are reset and free.
    for name in ["web-0", "web-1", "web-2"] {
        stage.delete("v1", "Pod", name).await;
    }
    for name in ["node10", "node12"] {
        let host = stage.until_state(name, "Available").await;
        assert_eq!(host["status"]["plan"]["phase"], "Reset");
        assert_eq!(host["metadata"]["annotations"]["millpond.dev/instance"], Value::Null);
        assert_eq!(host["metadata"]["labels"]["millpond.dev/nodeclaim"], Value::Null);
        assert_eq!(stage.get("v1", "Node", name).await, Value::Null);
    }
    stage
        .until("the claims are gone", async || {
            let claims = stage.list("karpenter.sh/v1", "NodeClaim", "").await;
            if claims.is_empty() { Ok(()) } else { Err(format!("{}", claims.len())) }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_dies_is_let_go_and_reset_before_it_serves_again() {
    let stage = Stage::start().await;
    let (_crew, provider) = stage.hire_with_provider();
    let agent = stage.agent(Hardware::plain("node10", &[]));
    stage.until_state("node10", "Available").await;
    let catalog = stage
        .until("the host is on sale", async || {
            let catalog = provider.catalog(&class()).map_err(|error| error.to_string())?;
            let left = catalog.types.first().and_then(|of| of.offerings[0].reservation_count);
            if left == Some(1) { Ok(catalog) } else { Err(format!("{left:?}")) }
        })
        .await;
    let request = |token: &str| millpond_providers::LaunchRequest {
        token: token.to_owned(),
        claim: format!("claim-{token}"),
        class: class(),
        choices: choices(&catalog, &class(), &[], &Amounts::default()),
        labels: Default::default(),
        annotations: Default::default(),
        taints: Vec::new(),
    };
    let instance = provider.create(&request("one")).await.expect("a host").instance;
    stage.until_state("node10", "InUse").await;
    agent.faults.silent.store(true, std::sync::atomic::Ordering::SeqCst);
    stage.until_state("node10", "Offline").await;
    stage
        .until("it is gone", async || match provider.delete(&instance.id).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    assert!(provider.create(&request("two")).await.is_err(), "nothing uses it before it is reset");
    agent.faults.silent.store(false, std::sync::atomic::Ordering::SeqCst);
    let host = stage.until_state("node10", "Available").await;
    assert_eq!(host["status"]["plan"]["phase"], "Reset");
}
