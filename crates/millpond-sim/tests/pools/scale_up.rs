//! Pods that wait bring nodes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use millpond_api::condition::is_true;
use serde_json::json;

use crate::basin::{Basin, key, label, pods_of, running};

#[tokio::test(start_paused = true)]
async fn pods_bring_nodes_and_run_on_them() {
    let basin = Basin::start().await;
    basin.deployment("web", 10, "1", json!({})).await;
    basin.until_running("web", 10).await;
    let claims = basin.claims();
    assert!(!claims.is_empty() && claims.iter().all(|claim| is_true(&claim.status.conditions, "Ready")));
    let nodes = basin.nodes();
    assert_eq!(nodes.len(), claims.len(), "one node for each claim");
    for node in &nodes {
        assert_eq!(label(node, "karpenter.sh/nodepool"), "default");
        assert_eq!(label(node, "karpenter.sh/initialized"), "true");
        assert_eq!(label(node, "karpenter.sh/capacity-type"), "on-demand");
    }
    basin.until_quiet().await;
    let before = basin.server.store().revision();
    basin.pass(Duration::from_mins(10)).await;
    assert_eq!(basin.server.store().revision(), before, "something was written on an idle cluster");
}

#[tokio::test(start_paused = true)]
async fn what_was_planned_is_what_happens() {
    let basin = Basin::start().await;
    for (name, replicas, cpu) in [("a", 30, "500m"), ("b", 20, "900m"), ("c", 10, "1700m")] {
        basin.deployment(name, replicas, cpu, json!({})).await;
    }
    basin
        .until("all run", |cluster| {
            cluster.pods.len() == 60 && ["a", "b", "c"].iter().map(|app| running(cluster, app)).sum::<usize>() == 60
        })
        .await;
    let made: Vec<_> = basin.claims().iter().filter_map(|claim| claim.metadata.creation_timestamp.clone()).collect();
    let (first, last) = (made.iter().min().unwrap(), made.iter().max().unwrap());
    assert!(last.0.as_second() - first.0.as_second() <= 1, "one round of nodes, not two: {made:?}");
}

#[tokio::test(start_paused = true)]
async fn who_loses_a_place_to_others_holds_up_nobody() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    let spec = json!({
        "requirements": [{"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"]}],
        "startupTaints": [{"key": "starting", "effect": "NoSchedule"}],
    });
    basin.pool("default", json!({"spec": {"template": {"spec": spec}}})).await;
    basin.deployment("web", 2, "700m", json!({})).await;
    let registered = |node: &Node| label(node, "karpenter.sh/registered") == "true";
    basin.until("a node is there", |cluster| cluster.nodes.list().iter().any(|node| registered(node))).await;
    // A pod is bound without the scheduler: there is capacity for either of the two, and not for both.
    let node = basin.claims()[0].metadata.name.clone().expect("a name");
    let requests = json!({"cpu": "700m"});
    basin
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": "default"},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "other", "resources": {"requests": requests}}],
            },
        }))
        .await;
    basin.until("it is there", |cluster| cluster.pods.len() == 3).await;
    let pods: Api<Pod> = Api::namespaced(basin.client.clone(), "default");
    let expected = Patch::Merge(json!({"status": {"nominatedNodeName": node}}));
    for pod in pods_of(basin.cluster(), "web") {
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &expected).await.expect("written");
    }
    let open = json!({"spec": {"taints": null}});
    basin.patch("v1", "Node", &node, open.clone()).await;
    let begun = basin.now();
    basin.until("one runs", |cluster| running(cluster, "web") == 1).await;
    let took = basin.now().duration_since(begun).as_secs();
    assert!(took < 5, "each kept the other away for {took} s");
    basin.until("there is another node", |cluster| cluster.nodes.len() == 2).await;
    for node in basin.nodes() {
        basin.patch("v1", "Node", &node.name_any(), open.clone()).await;
    }
    basin.until_running("web", 2).await;
}

#[tokio::test(start_paused = true)]
async fn weight_requirements_and_taints_choose_the_pool() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("plain", json!({})).await;
    basin.pool("first", json!({"spec": {"weight": 50}})).await;
    let mut template = json!({"spec": {"template": {"spec": {}}}});
    template["spec"]["weight"] = json!(100);
    template["spec"]["template"]["spec"]["taints"] =
        json!([{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]);
    basin.pool("batch", template).await;
    basin.deployment("web", 2, "1", json!({})).await;
    let tolerates = json!({
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "nodeSelector": {"karpenter.sh/nodepool": "batch"},
    });
    basin.deployment("job", 2, "1", tolerates).await;
    basin.deployment("old", 1, "1", json!({"nodeSelector": {"karpenter.sh/nodepool": "plain"}})).await;
    basin
        .until("all run", |cluster| ["web", "job", "old"].iter().map(|app| running(cluster, app)).sum::<usize>() == 5)
        .await;
    let pool_of = |app: &str| -> Vec<String> {
        let nodes = pods_of(basin.cluster(), app).into_iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
        let mut pools: Vec<String> = nodes
            .map(|node| label(&basin.cluster().nodes.get(&key(&node)).unwrap(), "karpenter.sh/nodepool").to_owned())
            .collect();
        pools.dedup();
        pools
    };
    assert_eq!(pool_of("web"), ["first"], "weight breaks the tie");
    assert_eq!(pool_of("job"), ["batch"]);
    assert_eq!(pool_of("old"), ["plain"]);
}

#[tokio::test(start_paused = true)]
async fn startup_taints_hold_pods_back_until_they_are_gone() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    let taints = json!([{"key": "example.com/cni", "effect": "NoSchedule"}]);
    basin.pool("default", json!({"spec": {"template": {"spec": {"startupTaints": taints}}}})).await;
    basin.deployment("web", 3, "1", json!({})).await;
    basin
        .until("a node registers", |cluster| {
            cluster.claims.list().iter().any(|claim| is_true(&claim.status.conditions, "Registered"))
        })
        .await;
    basin.pass(Duration::from_mins(2)).await;
    assert_eq!(running(basin.cluster(), "web"), 0);
    assert!(basin.claims().iter().all(|claim| !is_true(&claim.status.conditions, "Initialized")));
    assert_eq!(basin.nodes().len(), 1, "no second node is bought while the first starts");
    let name = basin.nodes()[0].metadata.name.clone().unwrap();
    basin.patch("v1", "Node", &name, json!({"spec": {"taints": null}})).await;
    basin.until_running("web", 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_says_why_and_holds_up_nobody() {
    let basin = Basin::start().await;
    basin.deployment("huge", 1, "1000", json!({})).await;
    basin.deployment("web", 2, "1", json!({})).await;
    basin.until_running("web", 2).await;
    assert_eq!(running(basin.cluster(), "huge"), 0);
    let events: Vec<String> = basin.events("FailedScheduling").await;
    assert!(events.iter().any(|note| note.contains("cpu")), "{events:?}");
    basin.until_quiet().await;
}
