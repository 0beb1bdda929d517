//! Pools whose node class is missing or not ready: the provisioner leaves them alone, and pods get their nodes soon after
//! the cause is gone.

use std::time::Duration;

use millpond_api::condition::find;
use serde_json::json;

use crate::basin::{Basin, key};
use crate::disruption::apart;

/// Claims and writes of all clients, events included, since a moment.
pub(crate) struct Count {
    claims: std::sync::Arc<parking_lot::Mutex<std::collections::HashSet<String>>>,
    revision: u64,
}

impl Count {
    pub(crate) fn from_now_on(basin: &Basin) -> Self {
        Self { claims: basin.claims_from_now_on(), revision: basin.server.store().revision() }
    }

    /// Asserts that there were not more.
    pub(crate) fn assert_at_most(&self, basin: &Basin, claims: usize, writes: u64) {
        let (written, all) = (self.claims.lock().len(), basin.server.store().revision() - self.revision);
        assert!(written <= claims && all <= writes, "{written} claims and {all} writes\n{}", basin.describe());
    }
}

/// Waits until all pods of `web` run; tells for how long.
pub(crate) async fn running_after(basin: &Basin, count: usize) -> Duration {
    let begun = tokio::time::Instant::now();
    basin.until_running("web", count).await;
    begun.elapsed()
}

pub(crate) const TEN_MINUTES: Duration = Duration::from_mins(10);

#[tokio::test(start_paused = true)]
async fn a_pool_without_its_class_is_not_planned_for() {
    let basin = Basin::bare().await;
    basin.pool("default", json!({})).await;
    let count = Count::from_now_on(&basin);
    basin.deployment("web", 1, "1", json!({})).await;
    basin.pass(TEN_MINUTES).await;
    count.assert_at_most(&basin, 0, 30);
    let told = basin.events("FailedScheduling").await;
    assert!(told.iter().any(|note| note.contains("there is no node class `default`")), "{told:?}");
    let pool = basin.cluster().pools.get(&key("default")).expect("the pool");
    let ready = find(&pool.status.conditions, "NodeClassReady").expect("a condition");
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "NodeClassNotFound"));
    basin.class("default", json!({})).await;
    let waited = running_after(&basin, 1).await;
    assert!(waited <= Duration::from_secs(10), "{waited:?} after the class came");
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_not_ready_is_not_planned_for() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"catalog": "nowhere"})).await;
    basin.pool("default", json!({})).await;
    let count = Count::from_now_on(&basin);
    basin.deployment("web", 3, "1", apart("web")).await;
    basin.pass(TEN_MINUTES).await;
    count.assert_at_most(&basin, 0, 50);
    basin.patch("millpond.dev/v1alpha1", "NodeClass", "default", json!({"spec": {"catalog": "kwok"}})).await;
    let waited = running_after(&basin, 3).await;
    assert!(waited <= Duration::from_secs(10), "{waited:?} after the class was put right");
}
