//! Nodes go while other things happen: pods come, machines are out of stock, some pods can't be helped.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::ResourceExt;
use millpond_sim::meta::node_name;
use serde_json::{Value, json};

use crate::basin::{Basin, pods_of, running};

fn eager(more: Value) -> Value {
    let mut pool = json!({"spec": {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}});
    crate::basin::merge(&mut pool, &more);
    pool
}

fn sizes(cores: &[&str]) -> Value {
    json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": cores},
    ])
}

async fn allow(basin: &Basin, cores: &[&str]) {
    let patch = json!({"spec": {"template": {"spec": {"requirements": sizes(cores)}}}});
    basin.patch("karpenter.sh/v1", "NodePool", "default", patch).await;
}

fn pod_names(basin: &Basin) -> BTreeSet<String> {
    pods_of(basin.cluster(), "web").iter().map(|pod| pod.name_any()).collect()
}

#[tokio::test(start_paused = true)]
async fn growth_and_savings_do_not_fight() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "20s"}})).await;
    basin.pool("default", eager(json!({}))).await;
    let seen = basin.claims_from_now_on();
    basin.deployment("web", 10, "900m", json!({})).await;
    for replicas in [30, 5, 25, 12, 40, 8, 20] {
        basin.pass(Duration::from_secs(37)).await;
        basin.scale("web", replicas).await;
    }
    basin.until_running("web", 20).await;
    basin.until_quiet().await;
    assert_eq!(running(basin.cluster(), "web"), 20);
    let (nodes, written) = (basin.nodes().len(), seen.lock().len());
    assert!(nodes <= 20 && written <= 130, "{written} claims were written for the {nodes} that are left");
    let before = basin.server.store().revision();
    basin.pass(Duration::from_mins(10)).await;
    assert_eq!(basin.server.store().revision(), before, "nodes are moved to and fro");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_is_out_of_stock_disturbs_no_pods() {
    let basin = Basin::bare().await;
    let out = json!([{"instanceType": "*-2x-*", "until": "2026-01-01T00:20:00Z"}]);
    basin.class("default", json!({"sim": {"stockOuts": out}})).await;
    basin.pool("default", eager(json!({"spec": {"template": {"spec": {"requirements": sizes(&["8"])}}}}))).await;
    basin.deployment("web", 1, "1500m", json!({})).await;
    basin.until_running("web", 1).await;
    basin.until_quiet().await;
    let (node, pods) = (basin.nodes()[0].name_any(), pod_names(&basin));
    let seen = basin.claims_from_now_on();
    allow(&basin, &["2", "8"]).await;
    basin.until("a replacement was tried", |_| seen.lock().len() > 1).await;
    basin.pass(Duration::from_mins(10)).await;
    assert_eq!(
        (pod_names(&basin), basin.nodes().iter().map(|node| node.name_any()).collect()),
        (pods, vec![node.clone()])
    );
    let told = basin.events("DisruptionBlocked").await;
    assert!(told.iter().any(|note| note == "A replacement could not be had"), "{told:?}");
    // When there is stock again, it is found: a node is left alone for at most half an hour.
    basin.pass(Duration::from_mins(30)).await;
    basin
        .until("a small one came", |cluster| {
            cluster.nodes.len() == 1 && cluster.nodes.list().iter().all(|one| one.name_any() != node)
        })
        .await;
    basin.until_running("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_helped_hold_nothing_up() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("default", eager(json!({}))).await;
    basin.deployment("giant", 1, "100000", json!({})).await;
    basin.deployment("web", 3, "1", json!({})).await;
    basin.until_running("web", 3).await;
    basin.scale("web", 0).await;
    basin.until("empty nodes are gone", |cluster| cluster.nodes.is_empty()).await;
    assert_eq!(pods_of(basin.cluster(), "giant").iter().filter(|pod| node_name(pod).is_none()).count(), 1);
}
