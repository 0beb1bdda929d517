//! A controller that is killed at any of its writes: the next one ends where it would have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::basin::{Basin, label};
use crate::fuse::Fuse;

/// More writes than a small scale-up can need: the loop ends when one run needs no more.
const MOST_WRITES: i64 = 400;

/// What is there in the end: nodes by type, zone and pool, with their number of pods.
type Ending = BTreeMap<(String, usize), usize>;

async fn pods(basin: &Basin) {
    basin.class("default", json!({})).await;
    basin.pool("default", json!({"spec": {"limits": {"cpu": "100"}}})).await;
    basin.deployment("web", 5, "1500m", json!({})).await;
}

/// Waits for the controllers to die or to have nothing more to do; tells whether they died.
async fn until_dead_or_done(basin: &Basin) -> bool {
    loop {
        let before = basin.server.store().revision();
        basin.pass(Duration::from_secs(20)).await;
        if basin.is_dead() {
            return true;
        }
        if basin.server.store().revision() == before {
            return false;
        }
    }
}

async fn ending(basin: &Basin, pods: usize, what: &str) -> Ending {
    basin.until_running("web", pods).await;
    basin.until_quiet().await;
    let instances = basin.instances();
    let nodes = Api::<Node>::all(basin.client.clone()).list(&ListParams::default()).await.expect("nodes").items;
    assert_eq!(instances.len(), nodes.len(), "{what}: every machine is a node: {}", basin.describe());
    assert_eq!(basin.claims().len(), nodes.len(), "{what}: every node has a claim: {}", basin.describe());
    let spread = basin.spread();
    let mut ending = Ending::new();
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let pods = spread.get(name).copied().unwrap_or_default();
        *ending.entry((label(node, "node.kubernetes.io/instance-type").to_owned(), pods)).or_default() += 1;
    }
    ending
}

#[tokio::test(start_paused = true)]
async fn e2e_a_scale_up_survives_a_kill_at_every_write() {
    let mut undisturbed = Basin::without_controllers().await;
    undisturbed.hire(Fuse::none());
    pods(&undisturbed).await;
    let wanted = ending(&undisturbed, 5, "undisturbed").await;
    drop(undisturbed);
    for write in 0..MOST_WRITES {
        let mut basin = Basin::without_controllers().await;
        basin.hire(Fuse::after(write));
        pods(&basin).await;
        let died = until_dead_or_done(&basin).await;
        basin.kill();
        basin.hire(Fuse::none());
        assert_eq!(ending(&basin, 5, &format!("killed at write {write}")).await, wanted, "killed at write {write}");
        if !died {
            assert!(write > 15, "a scale-up has more than {write} writes");
            return;
        }
    }
    panic!("more than {MOST_WRITES} writes for five pods");
}

/// Three pods on a machine that is too large for them, of which one may be away.
async fn wasteful() -> Basin {
    let mut basin = Basin::without_controllers().await;
    basin.hire(Fuse::none());
    basin.class("default", json!({"sim": {"registrationDelay": "5s"}})).await;
    let pool = json!({"spec": {
        "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
        "template": {"spec": {"requirements": sizes(&["8"])}},
    }});
    basin.pool("default", pool).await;
    basin.deployment("web", 3, "1500m", json!({})).await;
    basin
        .create(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                       "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}))
        .await;
    basin.until_running("web", 3).await;
    basin.until_quiet().await;
    basin
}

fn sizes(cores: &[&str]) -> Value {
    json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": cores},
    ])
}

/// From now on smaller machines do as well.
async fn thrift(basin: &Basin) {
    let requirements = sizes(&["2", "8"]);
    let patch = json!({"spec": {"template": {"spec": {"requirements": requirements}}}});
    basin.patch("karpenter.sh/v1", "NodePool", "default", patch).await;
}

/// The fewest ready pods that there ever were.
fn watch_ready(basin: &Basin) -> Arc<Mutex<usize>> {
    let least: Arc<Mutex<usize>> = Arc::new(Mutex::new(usize::MAX));
    let seen = Arc::clone(&least);
    let pods: Api<Pod> = Api::default_namespaced(basin.client.clone());
    tokio::spawn(async move {
        let mut ready: BTreeMap<String, bool> = BTreeMap::new();
        let mut events = watcher(pods, watcher::Config::default()).boxed();
        while let Some(Ok(event)) = events.next().await {
            let (pod, gone) = match event {
                Event::Apply(pod) | Event::InitApply(pod) => (pod, false),
                Event::Delete(pod) => (pod, true),
                Event::Init | Event::InitDone => continue,
            };
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
            ready.insert(pod.name_any(), is_ready && !gone);
            let count = ready.values().filter(|ready| **ready).count();
            let mut least = seen.lock();
            *least = (*least).min(if ready.len() < 3 { usize::MAX } else { count });
        }
    });
    least
}

#[tokio::test(start_paused = true)]
async fn e2e_a_consolidation_survives_a_kill_at_every_write() {
    let undisturbed = wasteful().await;
    let before = ending(&undisturbed, 3, "before").await;
    thrift(&undisturbed).await;
    undisturbed.until("it is replaced", |cluster| cluster.claims.len() > 1).await;
    let wanted = ending(&undisturbed, 3, "undisturbed").await;
    assert_ne!(before, wanted, "there is something to save");
    drop(undisturbed);
    for write in 0..MOST_WRITES {
        let mut basin = wasteful().await;
        let least = watch_ready(&basin);
        basin.kill();
        basin.hire(Fuse::after(write));
        thrift(&basin).await;
        let died = until_dead_or_done(&basin).await;
        basin.kill();
        basin.hire(Fuse::none());
        assert_eq!(ending(&basin, 3, &format!("killed at write {write}")).await, wanted, "killed at write {write}");
        assert!(*least.lock() >= 2, "killed at write {write}: {} pods were ready", least.lock());
        if !died {
            assert!(write > 20, "a consolidation has more than {write} writes");
            return;
        }
    }
    panic!("more than {MOST_WRITES} writes to replace one node");
}
