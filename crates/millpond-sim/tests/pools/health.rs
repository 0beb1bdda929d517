//! Pools say whether what they launch becomes nodes.

use std::time::Duration;

use millpond_api::condition::find;
use millpond_api::meta::Condition;
use millpond_controllers::cluster::Cluster;
use serde_json::json;

use crate::basin::{Basin, key};
use crate::disruption::apart;
use crate::fuse::Fuse;

const CLASS: (&str, &str) = ("millpond.dev/v1alpha1", "NodeClass");
const POOL: (&str, &str) = ("karpenter.sh/v1", "NodePool");

/// What the pool `default` says of the nodes that it launches.
fn said(cluster: &Cluster) -> Option<Condition> {
    let pool = cluster.pools.get(&key("default"))?;
    find(&pool.status.conditions, "NodeRegistrationHealthy").cloned()
}

async fn until_said(basin: &Basin, status: &str) {
    let what = format!("registration is healthy: {status}");
    basin.until(&what, |cluster| said(cluster).is_some_and(|said| said.status == status)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_up_is_a_good_sign_until_the_pool_changes() {
    let basin = Basin::start().await;
    until_said(&basin, "Unknown").await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    until_said(&basin, "True").await;
    basin.patch(POOL.0, POOL.1, "default", json!({"spec": {"weight": 7}})).await;
    until_said(&basin, "Unknown").await;
    basin.until_quiet().await;
    assert_eq!(said(basin.cluster()).map(|said| said.status).as_deref(), Some("Unknown"), "no node has come since");
    basin.deployment("more", 1, "30", json!({})).await;
    basin.until_running("more", 1).await;
    until_said(&basin, "True").await;
}

#[tokio::test(start_paused = true)]
async fn machines_that_never_become_nodes_are_reported_also_after_a_restart() {
    let mut basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "12h"}})).await;
    basin.pool("default", json!({})).await;
    basin.deployment("web", 2, "1", apart("web")).await;
    basin.pass(Duration::from_mins(14)).await;
    assert_eq!(said(basin.cluster()).map(|said| said.status).as_deref(), Some("Unknown"), "it is too early to tell");
    until_said(&basin, "False").await;
    let told = said(basin.cluster()).expect("told");
    assert_eq!(told.reason, "RegistrationFailed");
    assert_eq!(told.message, "the machine did not become a node in 15 minutes");
    basin.kill();
    basin.hire(Fuse::none());
    basin.pass(Duration::from_mins(1)).await;
    assert_eq!(said(basin.cluster()), Some(told));
    basin.patch(CLASS.0, CLASS.1, "default", json!({"spec": {"sim": {"registrationDelay": "5s"}}})).await;
    until_said(&basin, "Unknown").await;
    // The machines that were launched before that fail as well: with them, two of the latest four.
    basin.until_running("web", 2).await;
    basin.until_quiet().await;
    assert_eq!(said(basin.cluster()).map(|said| said.status).as_deref(), Some("False"));
    basin.scale("web", 3).await;
    basin.until_running("web", 3).await;
    until_said(&basin, "True").await;
}

#[tokio::test(start_paused = true)]
async fn a_stock_out_says_nothing_of_the_pool() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"stockOuts": [{"until": "2026-01-01T00:20:00Z"}]}})).await;
    basin.pool("default", json!({})).await;
    basin.deployment("web", 2, "1", apart("web")).await;
    basin.pass(Duration::from_mins(18)).await;
    assert_eq!(said(basin.cluster()).map(|said| said.status).as_deref(), Some("Unknown"));
    basin.until_running("web", 2).await;
    until_said(&basin, "True").await;
}
