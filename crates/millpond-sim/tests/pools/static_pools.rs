//! Pools of a fixed size.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use millpond_api::condition::is_true;
use millpond_controllers::cluster::Cluster;
use millpond_controllers::kinds::NodePool;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::basin::{Basin, label};

async fn start(replicas: i64, more: Value) -> Basin {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "10s"}})).await;
    let mut pool = json!({"spec": {"replicas": replicas, "disruption": {"budgets": [{"nodes": "100%"}]}}});
    crate::basin::merge(&mut pool, &more);
    basin.pool("fixed", pool).await;
    basin
}

fn ready(cluster: &Cluster) -> usize {
    cluster.claims.list().iter().filter(|claim| is_true(&claim.status.conditions, "Ready")).count()
}

async fn until_nodes(basin: &Basin, count: usize) {
    let there =
        |cluster: &Cluster| ready(cluster) == count && cluster.nodes.len() == count && cluster.claims.len() == count;
    basin.until(&format!("there are {count} nodes"), there).await;
}

async fn scale(basin: &Basin, replicas: i64) {
    let api: kube::Api<NodePool> = kube::Api::all(basin.client.clone());
    let patch = json!({"spec": {"replicas": replicas}});
    api.patch_scale("fixed", &PatchParams::default(), &Patch::Merge(patch)).await.expect("scaled");
}

/// The most claims that there ever were.
fn watch_most(basin: &Basin) -> Arc<Mutex<usize>> {
    let most: Arc<Mutex<usize>> = Arc::default();
    let (seen, cluster) = (Arc::clone(&most), Arc::downgrade(basin.cluster()));
    basin.cluster().claims.on_change(move |_, _| {
        if let Some(cluster) = cluster.upgrade() {
            let mut most = seen.lock();
            *most = (*most).max(cluster.claims.len());
        }
    });
    most
}

#[tokio::test(start_paused = true)]
async fn a_pool_has_as_many_nodes_as_it_says() {
    let basin = start(3, json!({})).await;
    until_nodes(&basin, 3).await;
    let zones: BTreeSet<String> =
        basin.nodes().iter().map(|node| label(node, "topology.kubernetes.io/zone").to_owned()).collect();
    assert_eq!(zones.len(), 3, "spread over zones");
    basin.until_quiet().await;
    assert_eq!(basin.get("karpenter.sh/v1", "NodePool", "fixed").await["status"]["nodes"], 3);
    scale(&basin, 5).await;
    until_nodes(&basin, 5).await;
    // A deleted claim is replaced.
    let name = basin.claims()[0].name().to_owned();
    basin.delete("karpenter.sh/v1", "NodeClaim", &name).await;
    basin.until("it is gone", |cluster| cluster.claims.list().iter().all(|claim| claim.name() != name)).await;
    until_nodes(&basin, 5).await;
    scale(&basin, 0).await;
    until_nodes(&basin, 0).await;
    basin.until_quiet().await;
    assert_eq!(basin.instances().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_nodes_goes_before_replicas() {
    let basin = start(10, json!({"spec": {"limits": {"nodes": "4"}}})).await;
    let most = watch_most(&basin);
    until_nodes(&basin, 4).await;
    basin.pass(Duration::from_mins(5)).await;
    assert_eq!(*most.lock(), 4);
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn those_with_pods_go_last() {
    let basin = start(5, json!({})).await;
    until_nodes(&basin, 5).await;
    let nodes: Vec<String> = basin.nodes().iter().map(|node| node.name_any()).collect();
    let pod = |name: &str, node: &str, annotations: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "app:1"}]},
        })
    };
    basin.create(pod("pinned", &nodes[0], json!({"karpenter.sh/do-not-disrupt": "true"}))).await;
    basin.create(pod("one", &nodes[1], json!({}))).await;
    basin.create(pod("two", &nodes[2], json!({}))).await;
    basin.pass(Duration::from_secs(5)).await;
    scale(&basin, 3).await;
    until_nodes(&basin, 3).await;
    let left: BTreeSet<String> = basin.nodes().iter().map(|node| node.name_any()).collect();
    assert_eq!(left, nodes[..3].iter().cloned().collect());
    scale(&basin, 1).await;
    until_nodes(&basin, 1).await;
    assert_eq!(basin.nodes()[0].name_any(), nodes[0]);
}

#[tokio::test(start_paused = true)]
async fn drifted_nodes_are_replaced_one_by_one_within_the_limit() {
    let basin = start(4, json!({"spec": {"limits": {"nodes": "5"}}})).await;
    until_nodes(&basin, 4).await;
    let most = watch_most(&basin);
    let old: BTreeSet<String> = basin.claims().iter().map(|claim| claim.name().to_owned()).collect();
    let template = json!({"metadata": {"annotations": {"example.com/generation": "2"}}});
    basin.patch("karpenter.sh/v1", "NodePool", "fixed", json!({"spec": {"template": template}})).await;
    basin
        .until("all were replaced", |cluster| cluster.claims.list().iter().all(|claim| !old.contains(claim.name())))
        .await;
    until_nodes(&basin, 4).await;
    assert_eq!(*most.lock(), 5, "one more than there should be, at most");
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_drifts_and_grows_stays_within_its_limit() {
    let basin = start(3, json!({"spec": {"limits": {"nodes": "5"}}})).await;
    until_nodes(&basin, 3).await;
    let most = watch_most(&basin);
    let template = json!({"metadata": {"annotations": {"example.com/generation": "2"}}});
    basin.patch("karpenter.sh/v1", "NodePool", "fixed", json!({"spec": {"replicas": 4, "template": template}})).await;
    let current = |cluster: &Cluster| {
        let nodes = cluster.nodes.list();
        nodes.len() == 4 && nodes.iter().all(|node| node.annotations().contains_key("example.com/generation"))
    };
    basin.until("four new nodes", current).await;
    until_nodes(&basin, 4).await;
    assert!(*most.lock() <= 5, "{} claims", most.lock());
}
