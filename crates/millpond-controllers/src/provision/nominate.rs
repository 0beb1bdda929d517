//! Nominates pods for the scheduler, and withdraws nominations.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use millpond_api::condition::find;
use millpond_api::karpenter::{INITIALIZED_LABEL, conditions};
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving, node_name};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use parking_lot::Mutex;
use serde_json::json;

use super::spread_order::{SpreadOrder, spreads};
use crate::claims::claim_of;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::nominations::nominated_node;

/// Nominations that are written at a time; the cluster's own limit on writes holds as well.
const AT_A_TIME: usize = 64;
/// How long a ready node waits for its pod to be bound, while no other pod is bound as planned either. After that the
/// pod lost its place to others, or the scheduler knows a reason that the planner does not: it is planned for anew.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The same, while a busy scheduler keeps binding others: a thousand pods on a small control plane take half of it.
const LONGEST_PATIENCE: Duration = Duration::from_mins(1);

/// How often nominations are written before a node takes pods, if the scheduler clears them each time.
const MAX_ATTEMPTS: usize = 3;
/// How long to wait until the watch has delivered the nominations.
const OBSERVED_WITHIN: Duration = Duration::from_secs(1);
/// A nomination that the scheduler cleared is written again this often, once the node is there.
const RENOMINATE_EVERY: Duration = Duration::from_secs(2);

/// Nominates the node for these pods, and waits until the scheduler has most likely observed it. Pods that are gone or
/// bound meanwhile are skipped.
pub(crate) async fn nominate(cluster: &Cluster, pods: &[Key], node: &str) {
    let pods = independent_of_order(cluster, pods, node);
    // Repeated, in case the scheduler cleared the nomination with an attempt in between.
    for _ in 0..MAX_ATTEMPTS {
        let write = |key: &Key| {
            let key = key.clone();
            async move {
                let waits = |pod: &Pod| node_name(pod).is_none() && !is_leaving(pod) && nominated_node(pod).is_none();
                if cluster.pods.get(&key).is_none_or(|pod| !waits(&pod)) {
                    return None;
                }
                write_nomination(cluster, &key, Some(node)).await.unwrap_or_else(|error| {
                    tracing::debug!(pod = %key, %error, cause = error.cause(), "nomination not written");
                    None
                })
            }
        };
        let written = stream::iter(pods.iter().map(write)).buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await;
        let written: Vec<Arc<Pod>> = written.into_iter().flatten().collect();
        if written.is_empty() {
            return;
        }
        let all = cluster.pods.wait_until_all_observed(&written);
        if tokio::time::timeout(OBSERVED_WITHIN, all).await.is_err() {
            tracing::debug!(node, "nominations were not heard of in time");
        }
    }
}

/// The pods that can be nominated together.
fn independent_of_order(cluster: &Cluster, pods: &[Key], node: &str) -> Vec<Key> {
    let mut spread_order = SpreadOrder::new(cluster, pods);
    let need_not_wait = |key: &&Key| cluster.pods.get(key).is_some_and(|pod| spread_order.may_nominate(&pod, node));
    pods.iter().filter(need_not_wait).cloned().collect()
}

/// Writes or removes a nomination. The server refuses it for a pod that was bound meanwhile, or is gone: both are fine.
async fn write_nomination(cluster: &Cluster, pod: &Key, node: Option<&str>) -> Result<Option<Arc<Pod>>> {
    match cluster.pods.patch_status(pod, &json!({"status": {"nominatedNodeName": node}})).await {
        Err(error) if error.is_refusal() || error.is_not_found() => {
            tracing::debug!(pod = %pod, %error, cause = error.cause(), "nomination refused");
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}

/// Renews nominations that the scheduler cleared, and withdraws those that will not come true.
pub struct Nominator {
    context: Arc<Context>,
    /// When the scheduler last bound a pod to its nominated node.
    kept: Arc<Mutex<Option<Timestamp>>>,
}

impl Nominator {
    /// Enqueues nominated pods when they or their nodes change.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) -> Self {
        let kept: Arc<Mutex<Option<Timestamp>>> = Arc::default();
        let (pods, known, clock) = (Arc::clone(queue), Arc::clone(&kept), context.cluster.clock.clone());
        let nominations = Arc::clone(&context.cluster.nominations);
        context.cluster.pods.on_change(move |before, after| match after {
            Some(pod) if nominations.of(pod).is_some() => pods.add(Key::of(&**pod)),
            Some(pod) if node_name(pod).is_some() && before.is_some_and(|pod| node_name(pod).is_none()) => {
                *known.lock() = Some(clock.now());
            }
            _ => {}
        });
        let promised = Arc::clone(queue);
        context.cluster.nominations.on_change(move |pod| promised.add(pod.clone()));
        let (nodes, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.nodes.on_change(move |before, after| {
            let ready = |node: Option<&Arc<Node>>| node.is_some_and(|node| is_initialized(node));
            let leaves = |node: Option<&Arc<Node>>| node.is_none_or(|node| is_leaving(&**node));
            let Some((context, node)) = weak.upgrade().zip(after.or(before)) else { return };
            let name = node.metadata.name.as_deref().unwrap_or_default();
            if leaves(after) && !leaves(before) {
                nominated_on(&context.cluster, name).into_iter().for_each(|pod| nodes.add(pod));
            }
            if ready(before) != ready(after) || leaves(before) != leaves(after) {
                context.cluster.nominations.pods_on(name).into_iter().for_each(|pod| nodes.add(pod));
            }
        });
        let (claims, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.claims.on_change(move |before, after| {
            let leaves = |claim: Option<&Arc<NodeClaim>>| claim.is_none_or(|claim| is_leaving(&**claim));
            let Some((context, claim)) = weak.upgrade().zip(after.or(before)) else { return };
            if leaves(after) && !leaves(before) {
                let node = &claim.status.node_name;
                nominated_on(&context.cluster, node).into_iter().for_each(|pod| claims.add(pod));
            }
        });
        Self { context: Arc::clone(context), kept }
    }

    /// Time left before this nomination expires; `None` means it never expires.
    async fn stands(&self, pod: &Arc<Pod>, name: &str) -> Option<Duration> {
        let cluster = &self.context.cluster;
        let key = Key::new("", name);
        if let Some(node) = cluster.nodes.get(&key) {
            let leaves = is_leaving(&*node) || claim_of(cluster, &node).is_some_and(|claim| is_leaving(&*claim));
            if leaves {
                return Some(Duration::ZERO);
            }
            let Some(claim) = claim_of(cluster, &node).filter(|_| is_initialized(&node)) else {
                // Nominated by the scheduler itself, or not ready yet.
                return None;
            };
            if !cluster.has_enough_background(name, pod).await {
                // Another writer was faster.
                return Some(Duration::ZERO);
            }
            let ready = find(&claim.status.conditions, conditions::INITIALIZED)?.last_transition_time?;
            let ready = Timestamp::from_second(ready.0).ok()?;
            let created = pod.metadata.creation_timestamp.as_ref().map_or(ready, |time| time.0);
            return Some(patience_left(cluster.clock.now(), ready, created, *self.kept.lock()));
        }
        match cluster.claims.get(&key) {
            Some(claim) if !is_leaving(&*claim) => None,
            _ => Some(Duration::ZERO),
        }
    }
}

impl Reconcile for Nominator {
    const NAME: &'static str = "nominations";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(pod) = cluster.pods.get(key).filter(|pod| !is_leaving(&**pod)) else { return Ok(None) };
        let Some(name) = cluster.nominations.of(&pod) else { return Ok(None) };
        match self.stands(&pod, &name).await {
            None => Ok(None),
            Some(left) if !left.is_zero() => {
                let siblings = || cluster.nominations.pods_on(&name);
                let may_be_told = || !spreads(&pod) || SpreadOrder::new(cluster, &siblings()).may_nominate(&pod, &name);
                if nominated_node(&pod).is_none() && may_be_told() {
                    // The scheduler tried before the node was there, and forgot.
                    write_nomination(cluster, key, Some(&name)).await?;
                }
                Ok(Some(left.min(RENOMINATE_EVERY)))
            }
            Some(_) => {
                tracing::info!(pod = %key, node = name, "promise taken back");
                cluster.withdraw_nomination(key);
                if nominated_node(&pod).is_some() {
                    write_nomination(cluster, key, None).await?;
                }
                Ok(None)
            }
        }
    }
}

/// Pods with this node in `status.nominatedNodeName`.
fn nominated_on(cluster: &Cluster, node: &str) -> Vec<Key> {
    let pods = cluster.pods.list().into_iter();
    pods.filter(|pod| node_name(pod).is_none() && nominated_node(pod) == Some(node)).map(|pod| Key::of(&*pod)).collect()
}

/// How long a pod may still wait for a node that is ready since `ready`, if another pod was bound as planned at `kept`.
/// A pod created long after its nomination is another one under the same name.
fn patience_left(now: Timestamp, ready: Timestamp, created: Timestamp, kept: Option<Timestamp>) -> Duration {
    let left = |patience: Duration, since: Timestamp| {
        patience.saturating_sub(Duration::try_from(now.duration_since(since)).unwrap_or_default())
    };
    if Duration::try_from(created.duration_since(ready)).is_ok_and(|later| later > PATIENCE) {
        return Duration::ZERO;
    }
    let since = ready.max(created);
    left(PATIENCE, kept.map_or(since, |kept| kept.max(since))).min(left(LONGEST_PATIENCE, since))
}

fn is_initialized(node: &Node) -> bool {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(INITIALIZED_LABEL)).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_scheduler_is_waited_for_longer_but_not_for_ever() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let left = |now: i64, kept: Option<i64>| patience_left(at(now), at(0), at(-5), kept.map(at)).as_secs();
        assert_eq!(left(4, None), 6);
        assert_eq!(left(12, None), 0);
        assert_eq!(left(12, Some(-30)), 0, "what happened before the node was there says nothing");
        assert_eq!(left(12, Some(11)), 9);
        assert_eq!(left(55, Some(54)), 5);
        assert_eq!(left(61, Some(60)), 0);
    }

    #[test]
    fn a_pod_that_came_with_the_node_is_waited_for_but_not_one_that_came_long_after() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        assert_eq!(patience_left(at(4), at(0), at(2), None).as_secs(), 8);
        assert_eq!(patience_left(at(100), at(0), at(99), None), Duration::ZERO);
    }
}
