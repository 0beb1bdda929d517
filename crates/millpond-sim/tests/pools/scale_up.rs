//! Pods that wait bring nodes.

use std::time::Duration;

use millpond_api::condition::is_true;
use serde_json::json;

use crate::basin::{Basin, label};

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
