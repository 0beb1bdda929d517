//! Draining nodes through the Eviction API, with budgets.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::EvictParams;
use kube::{Api, ResourceExt};
use millpond_sim::cluster::Cluster;
use millpond_sim::meta::{Key, is_leaving, node_name};
use millpond_sim::workloads::pods::is_ready;
use serde_json::json;

use crate::pond::{Pond, available};

fn allowed(cluster: &Cluster, name: &str) -> Option<i32> {
    cluster.budgets.get(&Key::new("default", name))?.status.as_ref()?.disruptions_allowed
}

#[tokio::test(start_paused = true)]
async fn budgets_count_what_may_go() {
    let pond = Pond::start().await;
    pond.nodes(3).await;
    pond.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}},
    }))
    .await;
    pond.deployment("web", 8, json!({})).await;
    pond.until("two may go", |cluster| allowed(cluster, "web") == Some(2)).await;
    let status = pond.cluster.budgets.get(&Key::new("default", "web")).and_then(|budget| budget.status.clone());
    let status = status.expect("a status");
    assert_eq!((status.expected_pods, status.desired_healthy, status.current_healthy), (Some(8), Some(6), Some(8)));
    pond.patch("apps/v1", "Deployment", "web", json!({"spec": {"replicas": 4}})).await;
    pond.until("one may go", |cluster| allowed(cluster, "web") == Some(1) && cluster.pods.len() == 4).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_respects_the_budget_at_every_moment() {
    let pond = Pond::start().await;
    pond.nodes(3).await;
    pond.deployment("web", 9, json!({})).await;
    pond.until("available", |cluster| available(cluster, "web") == 9).await;
    pond.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 8, "selector": {"matchLabels": {"app": "web"}}},
    }))
    .await;
    pond.until("one may go", |cluster| allowed(cluster, "web") == Some(1)).await;
    pond.patch("v1", "Node", "node-0000", json!({"spec": {"unschedulable": true}})).await;

    let api: Api<Pod> = Api::default_namespaced(pond.client.clone());
    let (mut let_go, mut refused) = (0, 0);
    loop {
        let here = pond.cluster.pods.indexed("node-0000");
        if here.is_empty() {
            break;
        }
        for pod in here.iter().filter(|pod| !is_leaving(&***pod)) {
            match api.evict(&pod.name_any(), &EvictParams::default()).await {
                Ok(_) => let_go += 1,
                Err(kube::Error::Api(status)) if status.code == 429 => refused += 1,
                Err(error) => panic!("{error}"),
            }
            let pods = pond.cluster.pods.list();
            let up = pods.iter().filter(|pod| is_ready(pod) && !is_leaving(&***pod)).count();
            assert!(up >= 8 - 1, "{up} up: the mirror may lag by the one that was just let go");
        }
        pond.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(let_go, 3, "each pod of the node once");
    assert!(refused > 0, "the budget said no at least once");
    pond.until("available elsewhere", |cluster| available(cluster, "web") == 9).await;
    assert!(pond.pods_of("web").iter().all(|pod| node_name(pod) != Some("node-0000")));
    pond.stop().await;
}
