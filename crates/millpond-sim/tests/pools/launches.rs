//! Claims that fail before they are launched, whatever the cause: their pool backs off, so that ten minutes of it cost an API
//! server next to nothing, and pods and claims say why.

use std::time::Duration;

use serde_json::{Value, json};

use crate::basin::{Basin, key, running};
use crate::classes::{Count, TEN_MINUTES, running_after};
use crate::disruption::apart;
use crate::fuse::Fuse;

/// A class whose simulated cloud is faulty, a pool, and so many pods that may not share a node.
async fn faulty(script: Value, pods: i32) -> (Basin, Count) {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": script})).await;
    basin.pool("default", json!({})).await;
    basin.until_quiet().await;
    let count = Count::from_now_on(&basin);
    basin.deployment("web", pods, "1", apart("web")).await;
    (basin, count)
}

async fn change_class(basin: &Basin, spec: Value) {
    basin.patch("millpond.dev/v1alpha1", "NodeClass", "default", json!({"spec": spec})).await;
}

/// Calls that make machines and that are on their way for a while.
fn slow() -> Value {
    json!({"calls": [{"verbs": ["create"], "delay": "3s"}]})
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_deleted_while_claims_launch() {
    let (basin, count) = faulty(json!({"calls": [{"verbs": ["create"], "error": "other"}]}), 5).await;
    basin.pass(Duration::from_secs(1)).await;
    basin.delete("millpond.dev/v1alpha1", "NodeClass", "default").await;
    basin.pass(TEN_MINUTES).await;
    count.assert_at_most(&basin, 10, 250);
    basin.class("default", json!({})).await;
    let waited = running_after(&basin, 5).await;
    assert!(waited <= Duration::from_secs(15), "{waited:?} after the class came back");
}

#[tokio::test(start_paused = true)]
async fn a_class_that_becomes_unready_while_claims_launch() {
    let (basin, count) = faulty(slow(), 5).await;
    basin.pass(Duration::from_millis(500)).await;
    change_class(&basin, json!({"catalog": "nowhere"})).await;
    basin.pass(TEN_MINUTES).await;
    count.assert_at_most(&basin, 10, 300);
    change_class(&basin, json!({"catalog": "kwok"})).await;
    let waited = running_after(&basin, 5).await;
    assert!(waited <= Duration::from_secs(20), "{waited:?} after the class was put right");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_refuses_every_launch() {
    let (basin, count) = faulty(json!({"calls": [{"verbs": ["create"], "error": "denied"}]}), 10).await;
    basin.pass(TEN_MINUTES).await;
    count.assert_at_most(&basin, 12, 300);
    let told = basin.events("LaunchFailed").await;
    assert!(told.iter().any(|note| note.starts_with("nodeclaim/")), "on the pod: {told:?}");
    assert!(told.iter().any(|note| !note.starts_with("nodeclaim/")), "on the claim: {told:?}");
    let told = basin.events("FailedScheduling").await;
    assert!(told.iter().any(|note| note.contains("its last launch failed")), "{told:?}");
    change_class(&basin, json!({"sim": {"calls": null}})).await;
    let waited = running_after(&basin, 10).await;
    assert!(waited <= Duration::from_mins(2), "{waited:?} after it was allowed");
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_nothing() {
    let (basin, count) = faulty(json!({"quotas": [{"instances": 0}]}), 10).await;
    basin.pass(TEN_MINUTES).await;
    count.assert_at_most(&basin, 30, 600);
    let told = basin.events("InsufficientCapacityError").await;
    assert!(told.iter().any(|note| note.starts_with("nodeclaim/") && note.contains("quota")), "{told:?}");
    change_class(&basin, json!({"sim": {"quotas": null}})).await;
    basin.until_running("web", 10).await;
}

/// As where names clash, an admission webhook refuses, or rights are missing.
#[tokio::test(start_paused = true)]
async fn claims_that_cannot_be_written() {
    let mut basin = Basin::without_controllers().await;
    let fuse = Fuse::refuses_claims();
    basin.hire(fuse.clone());
    basin.class("default", json!({})).await;
    basin.pool("default", json!({})).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.pass(TEN_MINUTES).await;
    assert!((5..25).contains(&fuse.refused()), "{} tries in ten minutes", fuse.refused());
    basin.kill();
    basin.hire(Fuse::none());
    basin.until_running("web", 1).await;
}

/// Pods that may not share a node, on types that all fit into one call.
async fn out_of_stock(seconds: i64, backoff: Value) -> Basin {
    let basin = Basin::bare().await;
    let until = basin.now() + jiff::SignedDuration::from_secs(seconds);
    let out = json!({"stockOuts": [{"until": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}]});
    basin.class("default", json!({"backoff": backoff, "sim": out})).await;
    let sizes = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"]},
    ]);
    basin.pool("default", json!({"spec": {"template": {"spec": {"requirements": sizes}}}})).await;
    basin
}

#[tokio::test(start_paused = true)]
async fn one_probe_finds_out_for_ten_pods() {
    let basin = out_of_stock(600, json!({"initial": "1m", "max": "1m"})).await;
    let seen = basin.claims_from_now_on();
    basin.deployment("web", 10, "1", apart("web")).await;
    basin.pass(Duration::from_secs(40)).await;
    assert_eq!(seen.lock().len(), 1, "claims of the first round");
    basin.pass(Duration::from_mins(9)).await;
    let claims = seen.lock().len();
    assert!((5..=12).contains(&claims), "{claims} claims in ten minutes, one a minute");
    basin.until_running("web", 10).await;
    assert!(seen.lock().len() <= claims + 12, "{} claims in all", seen.lock().len());
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_stock_is_tried_again_when_it_is_said_to_be() {
    let basin = out_of_stock(15, json!({"initial": "20s", "max": "20s"})).await;
    basin.deployment("web", 10, "1", apart("web")).await;
    let begun = tokio::time::Instant::now();
    // Events of others do not make it forget.
    basin.pass(Duration::from_secs(21)).await;
    basin.deployment("other", 1, "100000", json!({})).await;
    basin.until_running("web", 10).await;
    assert!(begun.elapsed() < Duration::from_secs(35), "after {:?}", begun.elapsed());
    assert_eq!(running(basin.cluster(), "other"), 0);
    assert!(basin.cluster().pools.get(&key("default")).is_some());
}
