//! Quiet when converged: a large cluster at rest writes nothing.

use std::time::Duration;

use millpond_sim::Options;
use serde_json::json;

use crate::pond::{Pond, available};

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
    pond.pass(Duration::from_secs(600)).await;
    assert_eq!(pond.server.store().revision(), before, "something was written on an idle cluster");
    pond.stop().await;
}
