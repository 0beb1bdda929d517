//! Which nodes are played, and what their kubelets write.

use std::time::Duration;

use kube::ResourceExt;
use millpond_sim::cluster::Cluster;
use millpond_sim::meta::{Key, phase};
use millpond_sim::{Nodes, Options};
use serde_json::json;

use crate::pond::{Pond, available, is_node_ready};

fn is_ready(cluster: &Cluster, name: &str) -> bool {
    cluster.nodes.get(&Key::new("", name)).is_some_and(|node| is_node_ready(&node))
}

#[tokio::test(start_paused = true)]
async fn only_marked_nodes_are_played_when_asked() {
    let pond = Pond::start_as(Options::default(), Nodes::Marked).await;
    pond.node("labelled", json!({"sim.millpond.dev/node": "true"}), json!({})).await;
    pond.node("plain", json!({}), json!({})).await;
    pond.create(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "kwok", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    }))
    .await;
    pond.until("both marked nodes are ready", |cluster| is_ready(cluster, "labelled") && is_ready(cluster, "kwok"))
        .await;
    pond.pod("somewhere", json!({"nodeName": "plain"})).await;
    pond.until_quiet().await;
    assert!(!is_ready(&pond.cluster, "plain"));
    assert_eq!(phase(&pond.get_pod("somewhere").expect("a pod")), "Pending", "its node has no kubelet");
    pond.patch("v1", "Node", "plain", json!({"metadata": {"labels": {"sim.millpond.dev/node": "true"}}})).await;
    pond.until("now it is played", |cluster| is_ready(cluster, "plain")).await;
    pond.until("and its pod runs", |_| pond.get_pod("somewhere").is_some_and(|pod| phase(&pod) == "Running")).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_on_request() {
    let options = Options { lease_interval: Some(Duration::from_secs(10)), events: false, ..Options::default() };
    let pond = Pond::start_with(options).await;
    pond.nodes(20).await;
    pond.until("a lease each", |_| pond.leases() == 20).await;
    pond.pass(Duration::from_secs(30)).await;
    let before = pond.server.store().revision();
    pond.pass(Duration::from_secs(100)).await;
    let writes = pond.server.store().revision() - before;
    assert!((180..=220).contains(&writes), "20 nodes renew every 10 s: {writes} writes in 100 s");
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn streamed_lists_do_as_well() {
    let pond = Pond::start_with(Options { streaming_lists: true, ..Options::default() }).await;
    pond.nodes(2).await;
    pond.deployment("web", 4, json!({})).await;
    pond.until("available", |cluster| available(cluster, "web") == 4).await;
    let names: Vec<String> = pond.pods_of("web").iter().map(|pod| pod.name_any()).collect();
    assert_eq!(names.len(), 4);
    pond.stop().await;
}
