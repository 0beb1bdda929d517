//! Objects that another server's looser schema let in: they are set aside, and stop nothing else.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use crate::basin::Basin;

const KARPENTER: &str = "karpenter.sh/v1";

/// Removes the schema of NodePools, as a definition from another installer may lack it.
async fn loosen(basin: &Basin) {
    let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = "nodepools.karpenter.sh";
    let before = basin.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition).await;
    let mut versions = before["spec"]["versions"].clone();
    versions[0]["schema"] = open;
    let patch = json!({"spec": {"versions": versions}});
    basin.patch("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition, patch).await;
}

fn heavy() -> serde_json::Value {
    json!({
        "apiVersion": KARPENTER, "kind": "NodePool", "metadata": {"name": "heavy"},
        "spec": {"weight": "very", "template": {"spec": {
            "requirements": [], "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"}}}},
    })
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_be_read_stops_no_other() {
    let basin = Basin::bare().await;
    loosen(&basin).await;
    basin.class("default", json!({})).await;
    basin.create(heavy()).await;
    basin.pool("default", json!({})).await;
    basin.deployment("web", 3, "900m", json!({})).await;
    basin.until_running("web", 3).await;
    // It is read as soon as it can be.
    basin.patch(KARPENTER, "NodePool", "heavy", json!({"spec": {"weight": 50}})).await;
    basin.until("it is known", |cluster| cluster.pools.list().iter().any(|pool| pool.name_any() == "heavy")).await;
    // And set aside when it no longer can be, with its nodes where they are.
    basin.patch(KARPENTER, "NodePool", "heavy", json!({"spec": {"weight": "most"}})).await;
    basin.until("it is set aside", |cluster| cluster.pools.len() == 1).await;
    let before = basin.instances().len();
    basin.pass(Duration::from_mins(10)).await;
    assert_eq!(basin.instances().len(), before, "{}", basin.describe());
    basin.deployment("more", 3, "900m", json!({})).await;
    basin.until_running("more", 3).await;
}
