//! Offerings that are not to be had.

use millpond_api::condition::is_true;
use millpond_api::node_class::UnavailableOffering;
use millpond_controllers::cluster::Cluster;
use millpond_controllers::metrics;
use serde_json::json;

use crate::basin::{Basin, key};
use crate::fuse::Fuse;

#[tokio::test(start_paused = true)]
async fn the_next_best_is_bought_when_the_cheapest_are_out_of_stock() {
    let basin = Basin::bare().await;
    // All but the types of 16 cores and more, in all zones: far more than forty offerings.
    let out: Vec<_> =
        ["1x", "2x", "4x", "8x"].iter().map(|size| json!({"instanceType": format!("*-{size}-*")})).collect();
    basin.class("default", json!({"sim": {"stockOuts": out}})).await;
    basin.pool("default", json!({})).await;
    let seen = basin.claims_from_now_on();
    basin.deployment("web", 6, "900m", json!({})).await;
    basin.until_running("web", 6).await;
    let came = basin.claims().iter().filter(|claim| is_true(&claim.status.conditions, "Ready")).count();
    let written = seen.lock().len();
    assert!(written <= 2 * came, "{written} claims for {came} nodes");
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn when_nothing_is_to_be_had_it_is_probed_now_and_then() {
    let basin = Basin::bare().await;
    let backoff = json!({"initial": "1m", "max": "5m"});
    let script = json!({"stockOuts": [{"until": "2026-01-01T00:30:00Z"}]});
    basin.class("default", json!({"backoff": backoff, "sim": script})).await;
    basin.pool("default", json!({})).await;
    let seen = basin.claims_from_now_on();
    basin.deployment("web", 4, "1", json!({})).await;
    basin.pass(std::time::Duration::from_mins(25)).await;
    let written = seen.lock().len();
    assert!((1..60).contains(&written), "{written} claims in 25 minutes without stock");
    basin.until_running("web", 4).await;
}

/// What the class `default` says is out of stock.
fn told(cluster: &Cluster) -> Vec<UnavailableOffering> {
    cluster.classes.get(&key("default")).map(|class| class.status.unavailable.clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_stock_is_told_and_remembered() {
    let mut basin = Basin::bare().await;
    basin
        .class("default", json!({"sim": {"stockOuts": [{"instanceType": "*-2x-*"}, {"instanceType": "*-1x-*"}]}}))
        .await;
    basin.pool("default", json!({})).await;
    basin.deployment("web", 1, "900m", json!({})).await;
    basin.until_running("web", 1).await;
    basin.until("the class tells", |cluster| !told(cluster).is_empty()).await;
    basin.until_quiet().await;
    let before = told(basin.cluster());
    let scraped = metrics::text(basin.context());
    let one = &before[0];
    let line = format!(
        "karpenter_cloudprovider_instance_type_offering_available{{instance_type=\"{}\",zone=\"{}\",capacity_type=\"{}\"}} 0",
        one.instance_type, one.zone, one.capacity_type
    );
    assert!(scraped.contains(&line), "{scraped}");
    for name in ["karpenter_nodeclaims_created_total{", "karpenter_nodes_created_total{", "karpenter_nodepools_usage{"]
    {
        assert!(scraped.contains(name), "no {name} in\n{scraped}");
    }

    basin.kill();
    basin.hire(Fuse::none());
    basin.until("they know the class again", |cluster| cluster.is_ready() && !told(cluster).is_empty()).await;
    let version = |cluster: &Cluster| cluster.classes.get(&key("default")).unwrap().metadata.resource_version.clone();
    let written = version(basin.cluster());
    let known: Vec<_> =
        basin.context().stock_outs.list().iter().map(millpond_controllers::stock_outs::StockOut::to_status).collect();
    assert_eq!(known, before);
    basin.until_quiet().await;
    assert_eq!(version(basin.cluster()), written, "a restart writes nothing anew");
    assert_eq!(told(basin.cluster()), before);
}
