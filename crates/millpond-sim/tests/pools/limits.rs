//! Limits hold at every instant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::basin::{Basin, running};

/// The most cores and nodes that were ever intended or running in a pool.
fn watch_most(basin: &Basin, pool: &str) -> Arc<Mutex<(i64, usize)>> {
    let most: Arc<Mutex<(i64, usize)>> = Arc::default();
    let (seen, pool) = (Arc::clone(&most), pool.to_owned());
    let all: Mutex<BTreeMap<String, i64>> = Mutex::default();
    basin.cluster().claims.on_change(move |before, after| {
        let mut all = all.lock();
        let Some(claim) = after.or(before) else { return };
        if claim.metadata.labels.as_ref().and_then(|labels| labels.get("karpenter.sh/nodepool")) != Some(&pool) {
            return;
        }
        match after {
            Some(claim) => {
                let reserved: Value = claim
                    .metadata
                    .annotations
                    .as_ref()
                    .and_then(|annotations| annotations.get("millpond.dev/reserved"))
                    .and_then(|text| serde_json::from_str(text).ok())
                    .unwrap_or_default();
                let planned = reserved["resources"]["cpu"]
                    .as_str()
                    .map_or(0, |cpu| millpond_api::amounts::parse("cpu", cpu).expect("a quantity"));
                let cpu = claim.status.capacity.get("cpu").unwrap_or(planned);
                all.insert(claim.name().to_owned(), cpu);
            }
            None => drop(all.remove(claim.name())),
        }
        let mut most = seen.lock();
        most.0 = most.0.max(all.values().sum());
        most.1 = most.1.max(all.len());
    });
    most
}

#[tokio::test(start_paused = true)]
async fn bursts_in_batches_never_overrun_a_limit() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "20s"}})).await;
    basin.pool("default", json!({"spec": {"limits": {"cpu": "32"}}})).await;
    let most = watch_most(&basin, "default");
    for index in 0..12 {
        basin.deployment(&format!("app-{index}"), 8, "900m", json!({})).await;
        basin.pass(Duration::from_millis(700)).await;
    }
    basin.pass(Duration::from_mins(5)).await;
    let (cores, _) = *most.lock();
    assert!(cores <= 32_000, "{cores} thousandths of cores were intended");
    let run: usize = (0..12).map(|index| running(basin.cluster(), &format!("app-{index}"))).sum();
    assert!(run >= 28, "only {run} pods run within 32 cores");
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_nodes_holds() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("default", json!({"spec": {"limits": {"nodes": "3"}}})).await;
    let most = watch_most(&basin, "default");
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}});
    basin.deployment("web", 6, "1", apart).await;
    basin.until_running("web", 3).await;
    basin.pass(Duration::from_mins(2)).await;
    assert_eq!(most.lock().1, 3);
    assert_eq!(running(basin.cluster(), "web"), 3);
}

#[tokio::test(start_paused = true)]
async fn limits_of_the_cluster_hold_over_all_pools() {
    let basin = Basin::bare().await;
    basin
        .create(json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "ClusterLimits", "metadata": {"name": "all"},
            "spec": {"limits": {"nodes": "2"}},
        }))
        .await;
    basin.class("default", json!({})).await;
    for pool in ["a", "b"] {
        basin.pool(pool, json!({})).await;
        basin.deployment(pool, 1, "1", json!({"nodeSelector": {"karpenter.sh/nodepool": pool}})).await;
    }
    basin.until("both run", |cluster| running(cluster, "a") + running(cluster, "b") == 2).await;
    basin.deployment("c", 1, "120", json!({})).await;
    basin.pass(Duration::from_mins(2)).await;
    assert_eq!(basin.claims().len(), 2);
    assert_eq!(running(basin.cluster(), "c"), 0);
}
