//! One of several controllers leads: elections, terms, clouds that a leader does not have.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use millpond_controllers::leader::{Candidate, Leadership};
use millpond_providers::sim::{Cloud, SimProvider};
use millpond_providers::{Provider as _, ProviderError};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::basin::Basin;
use crate::fuse::Fuse;

const LEASE: &str = "millpond-controller";

fn candidate(basin: &Basin, identity: &str, fuse: Fuse) -> Candidate {
    Candidate::new(basin.fused(fuse), "kube-system", LEASE, identity, basin.clock.clone())
}

/// Renews in the background; the candidate is given up with it.
fn keep(mut candidate: Candidate, leadership: &Leadership, stop: &CancellationToken) {
    let (leadership, stop) = (leadership.clone(), stop.clone());
    tokio::spawn(async move { candidate.lead(&leadership, &stop).await });
}

#[tokio::test(start_paused = true)]
async fn a_standby_leads_once_the_leader_is_gone_and_the_term_has_a_higher_number() {
    let basin = Basin::without_controllers().await;
    let stop = CancellationToken::new();
    let (line, started) = (Fuse::none(), Instant::now());
    let mut first = candidate(&basin, "first", line.clone());
    let old = first.elected(&stop).await.expect("no other candidate is there");
    assert_eq!(started.elapsed(), Duration::ZERO, "a fresh Lease is taken at once");
    keep(first, &old, &stop);
    let mut second = candidate(&basin, "second", Fuse::none());
    let waited = tokio::time::timeout(Duration::from_mins(2), second.elected(&stop)).await;
    assert!(waited.is_err(), "the leader renews");
    // The leader is cut off. It gives up before the standby takes over.
    line.blow();
    let cut = Instant::now();
    let new = second.elected(&stop).await.expect("the Lease lapses");
    assert!(cut.elapsed() >= Duration::from_secs(13) && !old.holds(), "after {:?}", cut.elapsed());
    assert!(new.holds() && new.term() > old.term());
}

#[tokio::test(start_paused = true)]
async fn a_dead_predecessor_is_not_waited_for() {
    let basin = Basin::without_controllers().await;
    let stop = CancellationToken::new();
    let old = candidate(&basin, "up_1", Fuse::none()).elected(&stop).await.expect("no other candidate is there");
    let killed = Instant::now();
    let new = candidate(&basin, "up_2", Fuse::none()).succeeds("up_").elected(&stop).await.expect("it is dead");
    assert_eq!((killed.elapsed(), new.term()), (Duration::ZERO, old.term() + 1));
    let other = candidate(&basin, "controller_1", Fuse::none()).elected(&stop).await.expect("the Lease lapses");
    assert!(killed.elapsed() >= Duration::from_secs(15) && other.term() == new.term() + 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_slept_launches_nothing() {
    let basin = Basin::without_controllers().await;
    let stop = CancellationToken::new();
    basin.class("default", json!({})).await;
    basin.pool("default", json!({})).await;
    let leadership =
        candidate(&basin, "first", Fuse::none()).elected(&stop).await.expect("no other candidate is there");
    basin.lead(&leadership, &basin.cloud, Fuse::none(), &stop).await;
    basin.deployment("early", 1, "1", json!({})).await;
    basin.pass(Duration::from_secs(3)).await;
    assert_eq!(basin.instances().len(), 1);
    // The Lease is not renewed: the process was stopped for longer than it can be trusted, and no other one leads yet.
    basin.pass(Duration::from_secs(10)).await;
    basin.deployment("late", 3, "3500m", json!({})).await;
    basin.pass(Duration::from_secs(20)).await;
    assert_eq!(basin.instances().len(), 1, "it called the provider");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_refuses_the_former_leader() {
    let basin = Basin::without_controllers().await;
    let provider = || SimProvider::new(Arc::clone(&basin.cloud), basin.client.clone(), basin.clock.clone());
    let (old, new) = (provider(), provider());
    old.begin_term(4).await.expect("the first");
    new.begin_term(5).await.expect("the next");
    let refused = old.delete("sim://default/i-1").await;
    assert!(matches!(refused, Err(ProviderError::Fenced { seen: Some(5), .. })), "{refused:?}");
    assert!(matches!(new.delete("sim://default/i-1").await, Err(ProviderError::NotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_does_not_lock_leaders_out_of_their_cloud() {
    let basin = Basin::without_controllers().await;
    let stop = CancellationToken::new();
    let provider = SimProvider::new(Arc::clone(&basin.cloud), basin.client.clone(), basin.clock.clone());
    provider.begin_term(7).await.expect("the first");
    let leases: Api<Lease> = Api::namespaced(basin.client.clone(), "kube-system");
    let _ = leases.delete(LEASE, &DeleteParams::default()).await;
    let mut first = candidate(&basin, "first", Fuse::none());
    let leadership = first.elected(&stop).await.expect("no other candidate is there");
    assert_eq!(leadership.term(), 0);
    keep(first, &leadership, &stop);
    let Err(ProviderError::Fenced { seen: Some(seen), .. }) = provider.begin_term(leadership.term()).await else {
        panic!("the number is lower than the last one");
    };
    assert!(leadership.exceed(seen).await);
    provider.begin_term(leadership.term()).await.expect("a higher number");
    let lease = leases.get(LEASE).await.expect("it is there");
    assert_eq!(lease.spec.expect("a spec").lease_transitions, Some(8));
}

async fn claims(basin: &Basin) -> Vec<Value> {
    let api: Api<millpond_controllers::kinds::NodeClaim> = Api::all(basin.client.clone());
    let list = api.list(&kube::api::ListParams::default()).await.expect("claims");
    list.items.into_iter().map(|claim| serde_json::to_value(claim).expect("an object")).collect()
}

fn said<'c>(claim: &'c Value, kind: &str) -> Option<&'c str> {
    let conditions = claim["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|one| one["type"] == kind).find_map(|one| one["reason"].as_str())
}

/// Leads with a cloud until the token is cancelled.
async fn lead_with(basin: &Basin, identity: &str, cloud: &Arc<Cloud>) -> CancellationToken {
    let (stop, term) = (CancellationToken::new(), CancellationToken::new());
    let mut candidate = candidate(basin, identity, Fuse::none());
    let leadership = candidate.elected(&stop).await.expect("it is elected");
    basin.lead(&leadership, cloud, Fuse::none(), &term).await;
    let ends = term.clone();
    tokio::spawn(async move {
        candidate.lead(&leadership, &ends).await;
        candidate.resign().await;
    });
    term
}

#[tokio::test(start_paused = true)]
async fn claims_of_an_unknown_cloud_are_left_alone_and_reported() {
    let basin = Basin::without_controllers().await;
    basin.class("default", json!({})).await;
    basin.pool("default", json!({"spec": {"disruption": {"consolidateAfter": "0s"}}})).await;
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &str| Arc::new(Cloud::open(folder.path().join(name)).expect("a cloud"));
    let (first, second) = (open("first"), open("second"));
    let term = lead_with(&basin, "one", &first).await;
    basin.deployment("web", 2, "1", json!({})).await;
    basin.pass(Duration::from_mins(1)).await;
    let before = claims(&basin).await;
    assert!(!before.is_empty() && said(&before[0], "Initialized").is_some(), "{before:?}");
    term.cancel();
    basin.pass(Duration::from_secs(1)).await;
    // The next leader has a data directory of its own. Nothing is needed any more, and one claim is deleted besides.
    let term = lead_with(&basin, "two", &second).await;
    basin.scale("web", 0).await;
    let name = before[0]["metadata"]["name"].as_str().expect("a name");
    basin.delete("karpenter.sh/v1", "NodeClaim", name).await;
    basin.pass(Duration::from_mins(20)).await;
    let after = claims(&basin).await;
    assert_eq!(after.len(), before.len());
    assert!(after.iter().all(|claim| said(claim, "CloudKnown") == Some("UnknownCloud")), "{after:?}");
    assert_eq!(first.instances(basin.now()).len(), before.len());
    assert!(!basin.events("UnknownCloud").await.is_empty());
    term.cancel();
    basin.pass(Duration::from_secs(1)).await;
    // Who has the cloud goes on where it ended.
    let term = lead_with(&basin, "three", &first).await;
    basin.pass(Duration::from_mins(5)).await;
    assert!(claims(&basin).await.is_empty() && first.instances(basin.now()).is_empty());
    term.cancel();
}
