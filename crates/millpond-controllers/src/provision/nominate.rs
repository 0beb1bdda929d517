//! Telling the scheduler what was planned, and taking it back.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::{Node, Pod};
use millpond_api::karpenter::INITIALIZED_LABEL;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving, node_name};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use serde_json::json;

use super::waiting::nominated;
use crate::claims::claim_of;
use crate::cluster::Cluster;
use crate::context::Context;

/// Nominations that are written at a time; the cluster's own limit on writes holds as well.
const AT_A_TIME: usize = 64;
/// A pod that is not bound this long after its node was ready has lost its place to others, or the scheduler knows a
/// reason that the planner does not: it is planned for anew.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Writes nominations; pods that are gone or bound meanwhile are nobody's loss. False when one should be tried again.
pub(super) async fn nominate(cluster: &Cluster, nominations: Vec<(Key, String)>) -> bool {
    let write = |(key, node): (Key, String)| async move {
        let wanted = cluster.pods.get(&key).is_some_and(|pod| {
            node_name(&pod).is_none() && !is_leaving(&*pod) && nominated(&pod) != Some(node.as_str())
        });
        if !wanted {
            return true;
        }
        let patch = json!({"status": {"nominatedNodeName": node}});
        match cluster.pods.patch_status(&key, &patch).await {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(pod = %key, %error, cause = error.cause(), "nomination not written");
                error.is_not_found()
            }
        }
    };
    let written: Vec<bool> = stream::iter(nominations).map(write).buffer_unordered(AT_A_TIME).collect().await;
    written.into_iter().all(|written| written)
}

/// Takes nominations back whose node will not come, or does not take the pod.
pub struct Nominations {
    context: Arc<Context>,
}

impl Nominations {
    /// Acts on this cluster.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Asks for work on nominated pods when they or their nodes change.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) {
        let pods = Arc::clone(queue);
        context.cluster.pods.on_change(move |_, after| {
            if let Some(pod) = after.filter(|pod| node_name(pod).is_none() && nominated(pod).is_some()) {
                pods.add(Key::of(&**pod));
            }
        });
        let all = |context: &Context, queue: &Queue<Key>, name: &str| {
            for pod in context.cluster.pods.list() {
                if nominated(&pod) == Some(name) && node_name(&pod).is_none() {
                    queue.add(Key::of(&*pod));
                }
            }
        };
        let (claims, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.claims.on_change(move |before, after| {
            let ends = after.is_none_or(|claim| is_leaving(&**claim));
            if let (true, Some(context), Some(claim)) = (ends, weak.upgrade(), after.or(before)) {
                all(&context, &claims, claim.name());
            }
        });
        let (nodes, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.nodes.on_change(move |before, after| {
            let ready = |node: Option<&Arc<Node>>| node.is_some_and(|node| is_initialized(node));
            let leaves = |node: Option<&Arc<Node>>| node.is_none_or(|node| is_leaving(&**node));
            let news = ready(before) != ready(after) || leaves(before) != leaves(after);
            if let (true, Some(context), Some(node)) = (news, weak.upgrade(), after.or(before)) {
                all(&context, &nodes, node.metadata.name.as_deref().unwrap_or_default());
            }
        });
    }

    /// How long a nomination may stand yet; none for as long as it takes.
    fn stands(&self, pod: &Pod, name: &str) -> Option<Duration> {
        let cluster = &self.context.cluster;
        let key = Key::new("", name);
        if let Some(node) = cluster.nodes.get(&key) {
            let leaves = is_leaving(&*node) || claim_of(cluster, &node).is_some_and(|claim| is_leaving(&*claim));
            if leaves {
                return Some(Duration::ZERO);
            }
            if claim_of(cluster, &node).is_none() || !is_initialized(&node) {
                // Nominated by the scheduler itself, or not ready yet.
                return None;
            }
            let since = [ready_since(&node), pod.metadata.creation_timestamp.as_ref().map(|time| time.0)];
            let since = since.into_iter().flatten().max()?;
            let elapsed = Duration::try_from(cluster.clock.now().duration_since(since)).unwrap_or_default();
            return Some(PATIENCE.saturating_sub(elapsed));
        }
        match cluster.claims.get(&key) {
            Some(claim) if !is_leaving(&*claim) => None,
            _ => Some(Duration::ZERO),
        }
    }
}

impl Reconcile for Nominations {
    const NAME: &'static str = "nominations";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(pod) = self.context.cluster.pods.get(key) else { return Ok(None) };
        let Some(name) = nominated(&pod).filter(|_| node_name(&pod).is_none() && !is_leaving(&*pod)) else {
            return Ok(None);
        };
        match self.stands(&pod, name) {
            None => Ok(None),
            Some(left) if !left.is_zero() => Ok(Some(left)),
            Some(_) => {
                tracing::info!(pod = %key, node = name, "nomination taken back");
                let patch = json!({"status": {"nominatedNodeName": null}});
                self.context.cluster.pods.patch_status(key, &patch).await?;
                Ok(None)
            }
        }
    }
}

fn is_initialized(node: &Node) -> bool {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(INITIALIZED_LABEL)).is_some_and(|value| value == "true")
}

/// Since when a node is ready.
fn ready_since(node: &Node) -> Option<jiff::Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}
