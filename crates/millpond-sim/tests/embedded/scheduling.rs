//! The scheduler on a living cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, PatchParams};
use millpond_sim::cluster::Cluster;
use millpond_sim::meta::{Key, is_leaving, node_name, phase, pod_condition};
use serde_json::json;

use crate::pond::{Pond, available};

fn refusal(cluster: &Cluster, name: &str) -> Option<String> {
    let pod = cluster.pods.get(&Key::new("default", name))?;
    let condition = pod_condition(&pod, "PodScheduled")?;
    (condition.status == "False").then(|| condition.message.clone().unwrap_or_default())
}

fn asking(cpu: &str) -> serde_json::Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]})
}

fn is_running(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| phase(pod) == "Running")
}

#[tokio::test(start_paused = true)]
async fn refusals_are_reported_and_cured() {
    let pond = Pond::start().await;
    pond.pod("big", asking("6")).await;
    pond.until("no nodes", |cluster| refusal(cluster, "big").as_deref() == Some("no nodes available to schedule pods"))
        .await;
    pond.nodes(2).await;
    pond.until("too small", |cluster| {
        refusal(cluster, "big").as_deref()
            == Some(
                "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes \
                 are available: 2 Preemption is not helpful for scheduling.",
            )
    })
    .await;
    pond.until_quiet().await;
    pond.create(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "large"},
        "status": {"capacity": {"cpu": "32", "memory": "64Gi", "pods": "110"}},
    }))
    .await;
    pond.until("running", |_| is_running(pond.get_pod("big").as_deref())).await;
    assert_eq!(node_name(&pond.get_pod("big").expect("a pod")), Some("large"));
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_devices_that_no_stand_in_has() {
    let pond = Pond::start().await;
    pond.nodes(1).await;
    let mut spec = asking("1");
    spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]);
    pond.pod("device", spec).await;
    let told = |cluster: &Cluster| refusal(cluster, "device");
    pond.until("refused", |cluster| told(cluster).is_some_and(|why| why.contains("devices of claim \"gpu\""))).await;
    pond.until_quiet().await;
    assert_eq!(node_name(&pond.get_pod("device").expect("a pod")), None);
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn higher_priority_pushes_out_lower() {
    let pond = Pond::start().await;
    pond.nodes(2).await;
    for (name, value) in [("high", 1000), ("low", 10)] {
        pond.create(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        }))
        .await;
    }
    let with = |cpu: &str, class: &str| {
        let mut spec = asking(cpu);
        spec["priorityClassName"] = json!(class);
        spec
    };
    pond.pod("a", with("3", "low")).await;
    pond.until("a runs", |_| is_running(pond.get_pod("a").as_deref())).await;
    pond.pod("b", with("3", "high")).await;
    pond.until("b runs", |_| is_running(pond.get_pod("b").as_deref())).await;
    let lost = node_name(&pond.get_pod("a").expect("a pod")).map(str::to_owned);
    pond.pod("c", with("3", "high")).await;
    pond.until("c is promised the node of a", |_| {
        let c = pond.get_pod("c");
        c.is_some_and(|pod| pod.status.as_ref().and_then(|status| status.nominated_node_name.clone()) == lost)
    })
    .await;
    pond.until("c runs", |_| is_running(pond.get_pod("c").as_deref())).await;
    assert!(pond.get_pod("a").is_none(), "a had to go");
    assert_eq!(node_name(&pond.get_pod("c").expect("a pod")).map(str::to_owned), lost);
    assert!(is_running(pond.get_pod("b").as_deref()), "its equal stays");
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn victims_are_marked_and_have_their_grace() {
    let pond = Pond::start().await;
    pond.nodes(1).await;
    let mut slow = asking("3");
    slow["terminationGracePeriodSeconds"] = json!(45);
    pond.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "slow", "annotations": {"sim.millpond.dev/stop-after": "1h"}}, "spec": slow,
    }))
    .await;
    pond.until("slow runs", |_| is_running(pond.get_pod("slow").as_deref())).await;
    pond.create(json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5,
    }))
    .await;
    let mut urgent = asking("3");
    urgent["priorityClassName"] = json!("high");
    pond.pod("urgent", urgent).await;
    pond.until("slow is leaving", |_| pond.get_pod("slow").is_some_and(|pod| is_leaving(&*pod))).await;
    let marked = pond.get_pod("slow").expect("a pod");
    let condition = pod_condition(&marked, "DisruptionTarget").expect("a condition");
    assert_eq!(condition.reason.as_deref(), Some("PreemptionByScheduler"));
    pond.pass(Duration::from_secs(30)).await;
    assert!(pond.get_pod("slow").is_some(), "45 seconds have not passed");
    pond.until("urgent runs", |_| is_running(pond.get_pod("urgent").as_deref())).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nominated_nodes_are_honoured() {
    let pond = Pond::start().await;
    pond.nodes(3).await;
    let gated = json!({"schedulingGates": [{"name": "plan"}]});
    pond.pod("planned", gated).await;
    pond.pass(Duration::from_secs(5)).await;
    assert_eq!(node_name(&pond.get_pod("planned").expect("a pod")), None, "the gate is closed");
    let api: kube::Api<Pod> = kube::Api::default_namespaced(pond.client.clone());
    let nominate = json!({"status": {"nominatedNodeName": "node-0002"}});
    api.patch_status("planned", &PatchParams::default(), &kube::api::Patch::Merge(nominate)).await.expect("patched");
    pond.patch("v1", "Pod", "planned", json!({"spec": {"schedulingGates": null}})).await;
    pond.until("running", |_| is_running(pond.get_pod("planned").as_deref())).await;
    assert_eq!(node_name(&pond.get_pod("planned").expect("a pod")), Some("node-0002"));
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn volumes_are_made_where_the_pod_goes() {
    let pond = Pond::start().await;
    pond.nodes(3).await;
    pond.create(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "sim.millpond.dev", "volumeBindingMode": "WaitForFirstConsumer",
    }))
    .await;
    pond.create(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .await;
    let mounting = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    pond.pod("first", mounting.clone()).await;
    pond.until("first runs", |_| is_running(pond.get_pod("first").as_deref())).await;
    let home = node_name(&pond.get_pod("first").expect("a pod")).map(str::to_owned).expect("a node");
    assert_eq!(pond.cluster.volumes.len(), 1);
    // The volume stays in its zone, and so does the next pod that mounts it.
    for node in ["node-0000", "node-0001", "node-0002"] {
        if node == home {
            pond.patch("v1", "Node", node, json!({"spec": {"unschedulable": true}})).await;
        }
    }
    pond.until("the cordon is seen", |cluster| {
        cluster
            .nodes
            .get(&Key::new("", &home))
            .is_some_and(|node| node.spec.as_ref().is_some_and(|spec| spec.taints.is_some()))
    })
    .await;
    pond.pod("second", mounting).await;
    pond.until("second has no place", |cluster| {
        refusal(cluster, "second")
            .is_some_and(|why| why.contains("2 node(s) didn't match PersistentVolume's node affinity"))
    })
    .await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_nodes_that_vanish_are_collected_and_replaced() {
    let pond = Pond::start().await;
    pond.nodes(2).await;
    pond.deployment("web", 6, json!({})).await;
    pond.until("running", |cluster| available(cluster, "web") == 6).await;
    let node = Pond::create_ref("v1", "Node", "node-0001");
    pond.api(&node).delete("node-0001", &DeleteParams::default()).await.expect("deleted");
    pond.until("all on the other node", |_| {
        let spread = pond.spread();
        spread.len() == 1 && spread.get("node-0000") == Some(&6)
    })
    .await;
    pond.until("available again", |cluster| available(cluster, "web") == 6).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn taints_drive_pods_out_when_their_patience_ends() {
    let pond = Pond::start().await;
    pond.nodes(2).await;
    let patient =
        json!([{"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 120}]);
    pond.pod("patient", json!({"nodeName": "node-0000", "tolerations": patient})).await;
    pond.pod("touchy", json!({"nodeName": "node-0000"})).await;
    pond.until("both run", |_| ["patient", "touchy"].iter().all(|name| is_running(pond.get_pod(name).as_deref())))
        .await;
    let taint = json!([{"key": "maintenance", "effect": "NoExecute"}]);
    pond.patch("v1", "Node", "node-0000", json!({"spec": {"taints": taint}})).await;
    pond.until("touchy is gone", |_| pond.get_pod("touchy").is_none()).await;
    pond.pass(Duration::from_mins(1)).await;
    assert!(pond.get_pod("patient").is_some_and(|pod| !is_leaving(&*pod)));
    pond.until("patient is gone", |_| pond.get_pod("patient").is_none()).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_run() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let pond = Pond::start().await;
        pond.nodes(4).await;
        pond.deployment("web", 12, json!({})).await;
        pond.until("available", |cluster| available(cluster, "web") == 12).await;
        let mut placed: Vec<(String, Option<String>)> =
            pond.cluster.pods.list().iter().map(|pod| (pod.name_any(), node_name(pod).map(str::to_owned))).collect();
        placed.sort();
        runs.push(placed);
        pond.stop().await;
    }
    assert_eq!(runs[0], runs[1]);
}
