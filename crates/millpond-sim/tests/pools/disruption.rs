//! Nodes that go: empty, drifted, expired, or dearer than what their pods need.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millpond_api::condition::{find, is_true};
use millpond_controllers::kinds::NodeClaim;
use millpond_sim::meta::node_name;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::basin::{Basin, key, label, pods_of, running};

const POOL: (&str, &str) = ("karpenter.sh/v1", "NodePool");

/// A pool whose nodes may go, and so many at once.
fn disruption(after: &str, nodes: &str) -> Value {
    json!({"spec": {"disruption": {"consolidateAfter": after, "budgets": [{"nodes": nodes}]}}})
}

/// Pods that do not share a node.
pub(crate) fn apart(app: &str) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}},
    ]}}})
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == "karpenter.sh/disrupted")
}

/// The most nodes that were ever about to go at once, as taints on nodes tell.
fn watch_tainted(basin: &Basin) -> Arc<Mutex<usize>> {
    let most: Arc<Mutex<usize>> = Arc::default();
    let (seen, now): (_, Mutex<BTreeSet<String>>) = (Arc::clone(&most), Mutex::default());
    basin.cluster().nodes.on_change(move |before, after| {
        let Some(node) = after.or(before) else { return };
        let mut now = now.lock();
        if after.is_some_and(|node| is_tainted(node)) {
            now.insert(node.name_any());
        } else {
            now.remove(&node.name_any());
        }
        let mut most = seen.lock();
        *most = (*most).max(now.len());
    });
    most
}

/// Changes the template of the pool, so that its nodes have drifted.
async fn drift(basin: &Basin, pool: &str) {
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"example.com/generation": "2"}}}}});
    basin.patch(POOL.0, POOL.1, pool, patch).await;
}

fn is_drifted(claim: &NodeClaim) -> bool {
    is_true(&claim.status.conditions, "Drifted")
}

fn names(claims: &[Arc<NodeClaim>]) -> BTreeSet<String> {
    claims.iter().map(|claim| claim.name().to_owned()).collect()
}

/// Cores of all nodes.
fn cores(basin: &Basin) -> i64 {
    let capacity = |claim: &Arc<NodeClaim>| claim.status.capacity.get("cpu").unwrap_or(0);
    basin.claims().iter().map(capacity).sum::<i64>() / 1000
}

async fn is_quiet(basin: &Basin) {
    basin.until_quiet().await;
    let before = basin.server.store().revision();
    basin.pass(Duration::from_mins(10)).await;
    assert_eq!(basin.server.store().revision(), before, "something was written on an idle cluster");
}

#[tokio::test(start_paused = true)]
async fn empty_nodes_leave_once_they_were_quiet() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("default", disruption("30s", "100%")).await;
    basin.deployment("web", 4, "1", apart("web")).await;
    basin.until_running("web", 4).await;
    assert!(basin.claims().iter().all(|claim| find(&claim.status.conditions, "Consolidatable").is_none()));
    basin.scale("web", 0).await;
    basin.until("pods are gone", |cluster| pods_of(cluster, "web").is_empty()).await;
    basin.pass(Duration::from_secs(20)).await;
    assert_eq!(basin.claims().len(), 4, "they wait to be quiet");
    basin.until("nodes are gone", |cluster| cluster.nodes.is_empty() && cluster.claims.is_empty()).await;
    assert_eq!(basin.instances().len(), 0);
    let told = basin.events("DisruptionTerminating").await;
    assert_eq!(told.iter().filter(|note| *note == "Disrupting NodeClaim: Empty").count(), 4);
    is_quiet(&basin).await;
}

#[tokio::test(start_paused = true)]
async fn budgets_hold_at_every_instant() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "15s"}})).await;
    basin.pool("default", disruption("0s", "2")).await;
    basin.deployment("web", 7, "1", apart("web")).await;
    basin.until_running("web", 7).await;
    let most = watch_tainted(&basin);
    let before = names(&basin.claims());
    drift(&basin, "default").await;
    basin.until("all were replaced", |cluster| before.is_disjoint(&names(&cluster.claims.list()))).await;
    basin.until_running("web", 7).await;
    assert_eq!(*most.lock(), 2);
    basin.scale("web", 0).await;
    basin.until("nodes are gone", |cluster| cluster.nodes.is_empty()).await;
    assert_eq!(*most.lock(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_nothing_keeps_everything() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("default", disruption("0s", "0")).await;
    basin.deployment("web", 2, "1", apart("web")).await;
    basin.until_running("web", 2).await;
    let most = watch_tainted(&basin);
    drift(&basin, "default").await;
    basin.until("they have drifted", |cluster| cluster.claims.list().iter().all(|claim| is_drifted(claim))).await;
    basin.scale("web", 0).await;
    is_quiet(&basin).await;
    assert_eq!((basin.claims().len(), *most.lock()), (2, 0));
    assert_eq!(basin.events("DisruptionBlocked").await, ["No allowed disruptions due to blocking budget 1"]);
}

#[tokio::test(start_paused = true)]
async fn windows_open_in_their_time_zone() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    // It is midnight in UTC, one o'clock in Berlin: nothing goes there between one and two.
    let window = json!({"nodes": "0", "schedule": "0 1 * * *", "duration": "1h", "timeZone": "Europe/Berlin"});
    let pool = json!({"spec": {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}, window]}}});
    basin.pool("default", pool).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    basin.scale("web", 0).await;
    basin.pass(Duration::from_mins(50)).await;
    assert_eq!(basin.claims().len(), 1);
    basin.pass(Duration::from_mins(12)).await;
    assert_eq!(basin.claims().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drifted_node_goes_when_its_replacement_is_ready() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "40s"}})).await;
    basin.pool("default", disruption("Never", "100%")).await;
    basin.deployment("web", 3, "1", json!({})).await;
    basin.until_running("web", 3).await;
    let old = names(&basin.claims());
    let least: Arc<Mutex<usize>> = Arc::new(Mutex::new(usize::MAX));
    let (seen, gone) = (Arc::clone(&least), old.clone());
    let cluster = Arc::downgrade(basin.cluster());
    basin.cluster().claims.on_change(move |before, after| {
        let leaves =
            |claim: Option<&Arc<NodeClaim>>| claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_some());
        let Some(cluster) = cluster.upgrade().filter(|_| !leaves(before) && leaves(after)) else { return };
        let others = cluster.claims.list();
        let ready =
            |claim: &&Arc<NodeClaim>| !gone.contains(claim.name()) && is_true(&claim.status.conditions, "Ready");
        *seen.lock() = others.iter().filter(ready).count();
    });
    drift(&basin, "default").await;
    basin.until("it was replaced", |cluster| old.is_disjoint(&names(&cluster.claims.list()))).await;
    assert!(*least.lock() >= 1, "a node went before its replacement was ready");
    basin.until_running("web", 3).await;
    for node in basin.nodes() {
        assert_eq!(node.annotations().get("example.com/generation").map(String::as_str), Some("2"));
        assert!(!node.annotations().contains_key("millpond.dev/replaces"));
    }
    let told = basin.events("DisruptionLaunching").await;
    assert!(told.iter().all(|note| note == "Launching NodeClaim: Drifted") && !told.is_empty());
    is_quiet(&basin).await;
    assert!(basin.claims().iter().all(|claim| !claim.annotations().contains_key("millpond.dev/replaces")));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_a_pool_no_longer_allows_are_replaced() {
    let basin = Basin::start().await;
    basin.deployment("web", 2, "1", json!({})).await;
    basin.until_running("web", 2).await;
    let spot = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
    ]);
    basin.patch(POOL.0, POOL.1, "default", json!({"spec": {"template": {"spec": {"requirements": spot}}}})).await;
    let all_spot = |cluster: &millpond_controllers::cluster::Cluster| {
        let nodes = cluster.nodes.list();
        !nodes.is_empty() && nodes.iter().all(|node| label(node, "karpenter.sh/capacity-type") == "spot")
    };
    basin.until("all nodes are spot", all_spot).await;
    basin.until_running("web", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_changes_makes_drift() {
    let basin = Basin::start().await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    let old = names(&basin.claims());
    basin.patch("millpond.dev/v1alpha1", "NodeClass", "default", json!({"spec": {"kubelet": {"maxPods": 20}}})).await;
    basin.until("it was replaced", |cluster| old.is_disjoint(&names(&cluster.claims.list()))).await;
    basin.until_running("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_to_be_left_alone_keep_their_node() {
    let basin = Basin::start().await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    let pod = pods_of(basin.cluster(), "web")[0].name_any();
    let guard = |value: Value| json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}});
    basin.patch("v1", "Pod", &pod, guard(json!("true"))).await;
    drift(&basin, "default").await;
    let before = names(&basin.claims());
    is_quiet(&basin).await;
    assert_eq!(names(&basin.claims()), before);
    let told = basin.events("DisruptionBlocked").await;
    assert!(told.iter().any(|note| note.contains("karpenter.sh/do-not-disrupt")), "{told:?}");
    basin.patch("v1", "Pod", &pod, guard(Value::Null)).await;
    basin.until("it was replaced", |cluster| before.is_disjoint(&names(&cluster.claims.list()))).await;
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_ends_every_delay() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("default", json!({"spec": {"template": {"spec": {"terminationGracePeriod": "10m"}}}})).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    let pod = pods_of(basin.cluster(), "web")[0].name_any();
    let guard = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    basin.patch("v1", "Pod", &pod, guard).await;
    let before = names(&basin.claims());
    drift(&basin, "default").await;
    basin
        .until("it goes", |cluster| {
            let old = cluster.claims.list().into_iter().find(|claim| before.contains(claim.name()));
            old.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
        })
        .await;
    basin.until("it is gone", |cluster| before.is_disjoint(&names(&cluster.claims.list()))).await;
    basin.until_running("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_disruption_budget_slows_and_stops() {
    let basin = Basin::start().await;
    basin.deployment("web", 5, "200m", json!({})).await;
    let budget = |least: i32| {
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
               "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}}})
    };
    basin.create(budget(5)).await;
    basin.until_running("web", 5).await;
    let before = names(&basin.claims());
    assert_eq!(before.len(), 1);
    drift(&basin, "default").await;
    is_quiet(&basin).await;
    assert_eq!(names(&basin.claims()), before, "no eviction is allowed");
    // One at a time: the node goes, its pods leave one after the other.
    let least: Arc<Mutex<usize>> = Arc::new(Mutex::new(usize::MAX));
    let (seen, cluster) = (Arc::clone(&least), Arc::downgrade(basin.cluster()));
    basin.cluster().pods.on_change(move |_, _| {
        if let Some(cluster) = cluster.upgrade() {
            let mut least = seen.lock();
            *least = (*least).min(running(&cluster, "web"));
        }
    });
    basin.patch("policy/v1", "PodDisruptionBudget", "web", json!({"spec": {"minAvailable": 4}})).await;
    basin.until("it was replaced", |cluster| before.is_disjoint(&names(&cluster.claims.list()))).await;
    basin.until_running("web", 5).await;
    assert_eq!(*least.lock(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_never_comes_is_not_waited_for() {
    let basin = Basin::start().await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    let old = basin.claims()[0].name().to_owned();
    // From now on nothing becomes a node.
    basin
        .patch("millpond.dev/v1alpha1", "NodeClass", "default", json!({"spec": {"sim": {"registrationDelay": "12h"}}}))
        .await;
    drift(&basin, "default").await;
    basin.until("it is about to go", |cluster| cluster.nodes.list().iter().any(|node| is_tainted(node))).await;
    basin.pass(Duration::from_mins(9)).await;
    let reason = |basin: &Basin| {
        let claim = basin.cluster().claims.get(&key(&old)).expect("it is there");
        find(&claim.status.conditions, "DisruptionReason").map(|condition| condition.reason.clone())
    };
    assert_eq!(reason(&basin).as_deref(), Some("Drifted"));
    basin.until("it stays after all", |cluster| !cluster.nodes.list().iter().any(|node| is_tainted(node))).await;
    assert_eq!(reason(&basin), None);
    assert_eq!(basin.claims().len(), 2, "the replacement is a claim like any other");
    assert!(basin.claims().iter().all(|claim| !claim.annotations().contains_key("millpond.dev/replaces")));
    let told = basin.events("DisruptionBlocked").await;
    assert!(told.iter().any(|note| note == "A replacement was not ready in 10 minutes"), "{told:?}");
    assert_eq!(running(basin.cluster(), "web"), 1);
}

#[tokio::test(start_paused = true)]
async fn expired_nodes_are_replaced_within_budgets() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "20s"}})).await;
    let pool = json!({"spec": {
        "template": {"spec": {"expireAfter": "10m"}},
        "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]},
    }});
    basin.pool("default", pool).await;
    basin.deployment("web", 3, "1", apart("web")).await;
    basin.until_running("web", 3).await;
    // What comes later lives on: what was agreed for the first ones holds.
    basin.patch(POOL.0, POOL.1, "default", json!({"spec": {"template": {"spec": {"expireAfter": "Never"}}}})).await;
    let none_for_drift = json!([{"nodes": "1"}, {"nodes": "0", "reasons": ["Drifted"]}]);
    basin.patch(POOL.0, POOL.1, "default", json!({"spec": {"disruption": {"budgets": none_for_drift}}})).await;
    let most = watch_tainted(&basin);
    let old = names(&basin.claims());
    basin.pass(Duration::from_mins(8)).await;
    assert_eq!(names(&basin.claims()), old);
    basin.until("all were replaced", |cluster| old.is_disjoint(&names(&cluster.claims.list()))).await;
    basin.until_running("web", 3).await;
    assert_eq!(*most.lock(), 1);
    is_quiet(&basin).await;
}

#[tokio::test(start_paused = true)]
async fn underused_nodes_make_way_for_cheaper_ones() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "30s"}})).await;
    basin.pool("default", disruption("20s", "100%")).await;
    basin.deployment("web", 40, "900m", json!({})).await;
    basin.until_running("web", 40).await;
    let before = cores(&basin);
    basin.scale("web", 3).await;
    basin.until("fewer pods", |cluster| pods_of(cluster, "web").len() == 3).await;
    is_quiet(&basin).await;
    basin.until_running("web", 3).await;
    let after = cores(&basin);
    assert!(before >= 36 && after <= 4, "{before} cores became {after} for three pods of 0.9 cores");
    assert!(basin.events("Unconsolidatable").await.len() >= 2 * basin.nodes().len(), "each node says why it stays");
}

#[tokio::test(start_paused = true)]
async fn only_empty_nodes_go_where_the_policy_says_so() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    let policy = json!({"spec": {"disruption": {
        "consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}],
    }}});
    basin.pool("default", policy).await;
    basin.deployment("web", 2, "1500m", apart("web")).await;
    basin.deployment("tiny", 1, "100m", json!({})).await;
    basin.until_running("web", 2).await;
    basin.until_running("tiny", 1).await;
    basin.scale("web", 0).await;
    is_quiet(&basin).await;
    let home = node_name(&pods_of(basin.cluster(), "tiny")[0]).map(str::to_owned);
    let left: Vec<String> = basin.nodes().iter().map(|node| node.name_any()).collect();
    assert_eq!(left, home.into_iter().collect::<Vec<_>>(), "its node is far too large, and stays");
}

#[tokio::test(start_paused = true)]
async fn a_taint_without_a_command_is_removed() {
    let mut basin = Basin::start().await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    basin.until_quiet().await;
    basin.kill();
    let nodes: kube::Api<Node> = kube::Api::all(basin.client.clone());
    let name = nodes.list(&kube::api::ListParams::default()).await.expect("nodes").items[0].name_any();
    let taint = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
    basin.patch("v1", "Node", &name, taint).await;
    basin.hire(crate::fuse::Fuse::none());
    basin
        .until("it is taken off", |cluster| cluster.nodes.get(&key(&name)).is_some_and(|node| !is_tainted(&node)))
        .await;
}

#[tokio::test(start_paused = true)]
async fn hashes_are_written_and_carried_over() {
    let basin = Basin::start().await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    let claim = basin.claims()[0].name().to_owned();
    let hash = |object: Value| object["metadata"]["annotations"]["karpenter.sh/nodepool-hash"].clone();
    let version = |object: Value| object["metadata"]["annotations"]["karpenter.sh/nodepool-hash-version"].clone();
    basin.until_quiet().await;
    let pool = basin.get(POOL.0, POOL.1, "default").await;
    assert_eq!(version(pool.clone()), "v3");
    assert_eq!(hash(pool), hash(basin.get("karpenter.sh/v1", "NodeClaim", &claim).await));
    let old = |more: Value| {
        let mut patch = json!({"metadata": {"annotations": {
            "karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v1",
        }}});
        crate::basin::merge(&mut patch, &more);
        patch
    };
    basin.patch("karpenter.sh/v1", "NodeClaim", &claim, old(json!({}))).await;
    let template = json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}});
    basin.patch(POOL.0, POOL.1, "default", old(template)).await;
    basin.until_quiet().await;
    let pool = basin.get(POOL.0, POOL.1, "default").await;
    let carried = basin.get("karpenter.sh/v1", "NodeClaim", &claim).await;
    assert_eq!((version(pool.clone()), version(carried.clone())), (json!("v3"), json!("v3")));
    assert_eq!(hash(pool), hash(carried), "hashes of two versions make no drift");
}
