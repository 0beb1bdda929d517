//! What protects a decision from what changes meanwhile (ADR 17): decisions of different controllers follow one another, each on
//! what the one before it wrote; writes of lists and deletions name what they were decided on.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::basin::{Basin, merge};
use crate::disruption::apart;
use crate::fuse::Fuse;
use crate::write_log::{Write, WriteLog};

/// How long the API server takes for a new claim: longer than a batch window.
const CLAIMS_TAKE: Duration = Duration::from_secs(3);
const NODES: i32 = 4;

/// A pool of a fixed size that has no nodes yet, and one that grows for pods; new claims take long to be written.
async fn two_pools() -> (Basin, WriteLog) {
    let mut basin = Basin::without_controllers().await;
    let fuse = Fuse::slow_claims(CLAIMS_TAKE).with_log();
    let log = fuse.log();
    basin.hire(fuse);
    basin.class("default", json!({})).await;
    basin.pool("fixed", json!({"spec": {"replicas": 0}})).await;
    basin.pool("default", json!({})).await;
    basin.until_quiet().await;
    (basin, log)
}

/// At once, the pool of fixed size asks for nodes, and pods that do not share one wait for as many.
async fn both_want_nodes(basin: &Basin, pods: Value) {
    basin.patch("karpenter.sh/v1", "NodePool", "fixed", json!({"spec": {"replicas": NODES}})).await;
    let mut pod = apart("web");
    merge(&mut pod, &pods);
    basin.deployment("web", NODES, "100m", pod).await;
    basin.until_running("web", 4).await;
}

/// The claims of a pool as they were written.
fn claims_of(log: &WriteLog, pool: &str) -> Vec<Write> {
    let mut writes = log.all();
    writes.retain(|write| {
        let is_claim = write.method == Method::POST && write.path.ends_with("/nodeclaims");
        is_claim && write.body["metadata"]["labels"]["karpenter.sh/nodepool"] == pool
    });
    writes
}

/// When the first of these was sent, and when the last was answered.
fn span(writes: &[Write]) -> (Instant, Instant) {
    let sent = writes.iter().map(|write| write.sent).min().expect("claims were written");
    let answered = writes.iter().map(|write| write.answered.expect("it was answered")).max();
    (sent, answered.expect("claims were written"))
}

#[tokio::test(start_paused = true)]
async fn decisions_of_two_controllers_follow_one_another() {
    let (basin, log) = two_pools().await;
    both_want_nodes(&basin, json!({"nodeSelector": {"karpenter.sh/nodepool": "default"}})).await;
    let (fixed, grown) = (claims_of(&log, "fixed"), claims_of(&log, "default"));
    assert_eq!((fixed.len(), grown.len()), (4, 4), "each pool has nodes of its own");
    let mut spans = [span(&fixed), span(&grown)];
    spans.sort();
    let [(_, first_ends), (second_begins, _)] = spans;
    assert!(first_ends <= second_begins, "the second decision began before the first was written: {spans:?}");
    // It was due before: nothing but the first decision kept it waiting.
    assert!(second_begins - first_ends < Duration::from_secs(1), "they did not compete: {spans:?}");
}

#[tokio::test(start_paused = true)]
async fn a_decision_sees_what_the_one_before_it_wrote() {
    let (basin, log) = two_pools().await;
    both_want_nodes(&basin, json!({})).await;
    basin.until_quiet().await;
    assert_eq!(claims_of(&log, "fixed").len(), 4);
    assert_eq!(claims_of(&log, "default").len(), 0, "nodes were bought for pods that had a place");
}

fn is_of(write: &Write, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| write.path.contains(&format!("/{kind}/")))
}

/// Nodes come, are drained, replaced and deleted, by every controller that does such things.
async fn lives_of_nodes() -> WriteLog {
    let mut basin = Basin::without_controllers().await;
    let fuse = Fuse::none().with_log();
    let log = fuse.log();
    basin.hire(fuse);
    basin.class("default", json!({"sim": {"registrationDelay": "2s"}})).await;
    let eager = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    basin.pool("default", json!({"spec": {"disruption": eager}})).await;
    basin.pool("fixed", json!({"spec": {"replicas": 2, "disruption": eager}})).await;
    basin.deployment("web", 12, "900m", json!({"nodeSelector": {"karpenter.sh/nodepool": "default"}})).await;
    basin.deployment("apart", 3, "100m", apart("apart")).await;
    basin.until_running("web", 12).await;
    basin.until_running("apart", 3).await;
    // Consolidation, drift, fewer replicas, and a user who deletes a claim.
    basin.scale("web", 3).await;
    basin.until_quiet().await;
    let template = json!({"metadata": {"annotations": {"example.com/generation": "2"}}});
    for pool in ["default", "fixed"] {
        basin.patch("karpenter.sh/v1", "NodePool", pool, json!({"spec": {"template": template}})).await;
    }
    basin.until_quiet().await;
    basin.patch("karpenter.sh/v1", "NodePool", "fixed", json!({"spec": {"replicas": 1}})).await;
    let claim = basin.claims()[0].name().to_owned();
    basin.delete("karpenter.sh/v1", "NodeClaim", &claim).await;
    basin.until_running("web", 3).await;
    basin.until_quiet().await;
    log
}

#[tokio::test(start_paused = true)]
async fn lists_are_written_at_the_version_that_was_read_and_deletions_name_the_object() {
    let log = lives_of_nodes().await;
    let kinds = ["nodes", "nodeclaims"];
    for list in ["/spec/taints", "/metadata/finalizers"] {
        let writes: Vec<Write> = log.all().into_iter().filter(|write| write.method == Method::PATCH).collect();
        let writes = writes.iter().filter(|write| is_of(write, &kinds) && write.body.pointer(list).is_some());
        let mut count = 0;
        for write in writes {
            let version = &write.body["metadata"]["resourceVersion"];
            assert!(version.is_string(), "{list} of {} is written over: {}", write.path, write.body);
            count += 1;
        }
        assert!(count >= 5, "{count} writes of {list}");
    }
    let mut deletions = log.all();
    deletions.retain(|write| write.method == Method::DELETE && is_of(write, &kinds));
    for write in &deletions {
        let uid = &write.body["preconditions"]["uid"];
        assert!(uid.is_string(), "whatever is called {} is deleted: {}", write.path, write.body);
    }
    assert!(deletions.len() >= 5, "{} deletions", deletions.len());
}
