//! The disruption conditions of claims: the time of the last pod event, whether consolidation may consider the node,
//! and whether it has drifted.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use millpond_api::condition::{Conditions, find, is_true};
use millpond_api::duration::NillableDuration;
use millpond_api::karpenter::conditions;
use millpond_api::meta::Condition;
use millpond_api::time::Time;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;

use super::drift::{ASK_AGAIN, Drift, ProviderDrifts};
use super::pod_events::{PodEvents, SELDOM};
use crate::cluster::{is_our_class, is_ours, pool_name};
use crate::context::Context;
use crate::kinds::{NodeClaim, NodePool};

/// Writes the disruption conditions of claims.
pub struct ClaimConditions {
    context: Arc<Context>,
    events: Arc<PodEvents>,
    opinions: ProviderDrifts,
}

impl ClaimConditions {
    /// Asks for work on a claim when it, its pool, its class or its pods change.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) -> Self {
        let claims = Arc::clone(queue);
        context.cluster.claims.on_change(move |before, after| {
            if let Some(claim) = after.or(before) {
                claims.add(Key::of(&**claim));
            }
        });
        let (pools, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.pools.on_change(move |before, after| {
            let (Some(context), Some(pool)) = (weak.upgrade(), after) else { return };
            if before.map(|pool| pool.metadata.generation) != Some(pool.metadata.generation) {
                let claims = context.cluster.claims.indexed(pool.name());
                claims.iter().for_each(|claim| pools.add(Key::of(&**claim)));
            }
        });
        let (classes, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.classes.on_change(move |before, after| {
            let (Some(context), Some(class)) = (weak.upgrade(), after) else { return };
            if before.map(|class| class.metadata.generation) != Some(class.metadata.generation) {
                let of_class = |claim: &&Arc<NodeClaim>| claim.spec.node_class_ref.name == class.name();
                context.cluster.claims.list().iter().filter(of_class).for_each(|claim| classes.add(Key::of(&**claim)));
            }
        });
        let events = PodEvents::listen(context, queue);
        Self { context: Arc::clone(context), events, opinions: ProviderDrifts::default() }
    }

    /// The drift of a claim; a claim that was never launched has none.
    async fn drift(&self, pool: &NodePool, claim: &NodeClaim) -> Drift {
        if is_true(&claim.status.conditions, conditions::LAUNCHED) {
            self.opinions.of(&self.context, pool, claim).await
        } else {
            Drift::None
        }
    }
}

impl Reconcile for ClaimConditions {
    const NAME: &'static str = "marks";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(claim) = cluster.claims.get(key).filter(|claim| !is_leaving(&**claim)) else {
            self.opinions.forget(key);
            self.events.forget(key);
            return Ok(None);
        };
        let pool = pool_name(&claim).and_then(|name| self.context.pool(name));
        let Some(pool) = pool.filter(|pool| is_ours(pool) && is_our_class(&claim.spec.node_class_ref)) else {
            return Ok(None);
        };
        let drift = self.drift(&pool, &claim).await;
        let now = cluster.clock.now();
        let written = claim.status.last_pod_event_time;
        let (event, again) = pod_event(written, self.events.since(key, written), now);
        let (quiet, consolidatable_at) = quiet(&pool, &claim, event, now);
        let mut status = claim.status.clone();
        status.last_pod_event_time = event;
        let generation = claim.metadata.generation.unwrap_or_default();
        let mut known = Conditions::new(&mut status.conditions, conditions::OF_CLAIM, generation, cluster.now());
        if quiet {
            known.set(Condition::holds(conditions::CONSOLIDATABLE));
        } else {
            known.clear(conditions::CONSOLIDATABLE);
        }
        match &drift {
            Drift::Reason(reason) => {
                known.set(Condition::new(conditions::DRIFTED, "True", reason, reason.as_str()));
            }
            Drift::None => drop(known.clear(conditions::DRIFTED)),
            Drift::Unknown => {}
        }
        if let Some(patch) = status_patch(&*claim, Some(&claim.status), &status) {
            if let (Drift::Reason(reason), false) = (&drift, is_true(&claim.status.conditions, conditions::DRIFTED)) {
                tracing::info!(claim = claim.name(), reason, "drifted");
            }
            cluster.claims.patch_status(key, &patch).await?;
        }
        Ok([Some(ASK_AGAIN), again, consolidatable_at].into_iter().flatten().min())
    }
}

/// The time of the last event as it is to be written, and when to look again for one that may not be written yet.
fn pod_event(written: Option<Time>, last: Option<Time>, now: Timestamp) -> (Option<Time>, Option<Duration>) {
    let (Some(last), Some(before)) = (last, written) else { return (last.or(written), None) };
    match left(before, SELDOM, now) {
        Some(wait) => (written, Some(wait)),
        None => (Some(last), None),
    }
}

/// Whether consolidation may look at a claim, and if not, when it may as far as time decides.
fn quiet(pool: &NodePool, claim: &NodeClaim, event: Option<Time>, now: Timestamp) -> (bool, Option<Duration>) {
    // Pools of a fixed size are not consolidated.
    if pool.spec.replicas.is_some() {
        return (false, None);
    }
    let after = match pool.spec.disruption.consolidate_after {
        None => 0,
        Some(NillableDuration::Seconds(after)) => after,
        Some(NillableDuration::Never) => return (false, None),
    };
    let initialized = find(&claim.status.conditions, conditions::INITIALIZED).filter(|condition| condition.is_true());
    let Some(initialized) = initialized else { return (false, None) };
    let Some(since) = event.max(initialized.last_transition_time) else { return (false, None) };
    let wait = left(since, Duration::from_secs(u64::try_from(after).unwrap_or(0)), now);
    (wait.is_none(), wait)
}

/// The remainder of a time that began at `since`; `None` if it has passed.
fn left(since: Time, time: Duration, now: Timestamp) -> Option<Duration> {
    let elapsed = Duration::from_millis(u64::try_from(now.as_millisecond() - since.0 * 1000).unwrap_or(0));
    time.checked_sub(elapsed).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn the_time_of_pod_events_is_seldom_written() {
        let second = Duration::from_secs;
        assert_eq!(pod_event(None, None, at(0)), (None, None));
        assert_eq!(pod_event(None, Some(Time(7)), at(7000)), (Some(Time(7)), None));
        assert_eq!(pod_event(Some(Time(7)), None, at(9000)), (Some(Time(7)), None));
        assert_eq!(pod_event(Some(Time(7)), Some(Time(9)), at(9000)), (Some(Time(7)), Some(second(3))));
        assert_eq!(pod_event(Some(Time(7)), Some(Time(9)), at(12_000)), (Some(Time(9)), None));
    }

    #[test]
    fn a_node_is_consolidatable_once_it_was_quiet() {
        let pool = |after: Option<&str>, replicas: Option<i64>| -> NodePool {
            serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
                "replicas": replicas,
                "disruption": {"consolidateAfter": after},
                "template": {"spec": {"requirements": [], "nodeClassRef": {}}},
            }}))
            .unwrap()
        };
        let claim = |initialized: &str| -> NodeClaim {
            let condition =
                json!({"type": "Initialized", "status": initialized, "lastTransitionTime": "1970-01-01T00:01:40Z"});
            serde_json::from_value(json!({
                "metadata": {"name": "web-1"}, "spec": {"requirements": [], "nodeClassRef": {}},
                "status": {"conditions": [condition]},
            }))
            .unwrap()
        };
        let ready = claim("True");
        let left = |seconds| (false, Some(Duration::from_secs(seconds)));
        let minute = pool(Some("60s"), None);
        assert_eq!(quiet(&minute, &ready, None, at(130_000)), left(30));
        assert_eq!(quiet(&minute, &ready, None, at(160_000)), (true, None));
        assert_eq!(quiet(&minute, &ready, Some(Time(150)), at(160_000)), left(50));
        assert_eq!(quiet(&minute, &ready, Some(Time(90)), at(160_000)), (true, None));
        assert_eq!(quiet(&minute, &claim("False"), None, at(160_000)), (false, None));
        assert_eq!(quiet(&pool(None, None), &ready, Some(Time(160)), at(160_000)), (true, None));
        assert_eq!(quiet(&pool(Some("Never"), None), &ready, None, at(160_000)), (false, None));
        assert_eq!(quiet(&pool(Some("0s"), Some(3)), &ready, None, at(160_000)), (false, None));
    }
}
