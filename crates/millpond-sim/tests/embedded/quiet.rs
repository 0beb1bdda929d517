//! Quiet when converged: a large cluster at rest writes nothing.

use std::time::Duration;

use millpond_sim::Options;
use serde_json::json;

use crate::pond::{Pond, available, merge, template};

const NODES: usize = 2_000;
const DEPLOYMENTS: usize = 20;
const PODS_EACH: i32 = 500;

#[tokio::test(start_paused = true)]
async fn e2e_two_thousand_nodes_and_ten_thousand_pods_come_to_rest() {
    let pond = Pond::start_with(Options { events: false, ..Options::default() }).await;
    pond.nodes(NODES).await;
    for index in 0..DEPLOYMENTS {
        pond.deployment(&format!("app-{index}"), PODS_EACH, json!({})).await;
    }
    pond.until("all available", |cluster| {
        (0..DEPLOYMENTS).all(|index| available(cluster, &format!("app-{index}")) == PODS_EACH)
    })
    .await;
    let spread = pond.spread();
    assert_eq!(spread.values().sum::<usize>(), DEPLOYMENTS * PODS_EACH as usize);
    assert!(spread.values().all(|pods| (1..=10).contains(pods)), "spread over all nodes");
    pond.until_quiet().await;
    let before = pond.server.store().revision();
    pond.pass(Duration::from_mins(10)).await;
    assert_eq!(pond.server.store().revision(), before, "something was written on an idle cluster");
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_finds_everything_in_its_place() {
    let mut pond = Pond::start().await;
    pond.nodes(4).await;
    pond.deployment("web", 20, json!({})).await;
    for (kind, name) in [("StatefulSet", "db"), ("DaemonSet", "agent")] {
        let mut spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template(name, "10m")});
        if kind == "StatefulSet" {
            merge(&mut spec, &json!({"replicas": 2, "serviceName": "db"}));
        }
        pond.create(json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})).await;
    }
    pond.create(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    }))
    .await;
    pond.pod("huge", json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "99"}}}]}))
        .await;
    pond.until("all available", |cluster| available(cluster, "web") == 20 && cluster.pods.len() == 20 + 2 + 4 + 1 + 1)
        .await;
    pond.until_quiet().await;
    let before = pond.server.store().revision();
    pond = pond.restart().await;
    pond.until("known again", |cluster| cluster.pods.len() == 28).await;
    pond.pass(Duration::from_mins(5)).await;
    assert_eq!(pond.server.store().revision(), before, "a restart wrote something");
    pond.deployment("late", 3, json!({})).await;
    pond.until("it still works", |cluster| available(cluster, "late") == 3).await;
    pond.stop().await;
}
