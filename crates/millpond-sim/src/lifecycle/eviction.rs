//! Eviction of pods from nodes with `NoExecute` taints that they do not tolerate, or not for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use parking_lot::Mutex;

use super::mark_disrupted;
use crate::clock::after_seconds;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::events::EventReason;
use crate::meta::{Key, has_ended, is_leaving, node_name};
use crate::queue::Queue;
use crate::scheduler::fit::taints::{Effect, Taint, Toleration};
use crate::worker::Reconcile;

/// Evicts pods by taints.
pub struct TaintEviction {
    cluster: Arc<Cluster>,
    /// By pod: its uid, and since when a taint that it tolerates for a limited time applies.
    since: Mutex<HashMap<Key, (String, Timestamp)>>,
}

impl TaintEviction {
    /// The controller, and the work queue that watches of nodes and pods fill.
    pub fn new(cluster: &Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let (own, pods) = (Arc::clone(&queue), Arc::clone(&cluster.pods));
        cluster.nodes.on_change(move |old, new| {
            let Some(node) = new else {
                return;
            };
            if old.map(|old| driving_out(old)).unwrap_or_default() != driving_out(node) {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                pods.indexed(name).iter().for_each(|pod| own.add(Key::of(&**pod)));
            }
        });
        let (own, nodes) = (Arc::clone(&queue), Arc::clone(&cluster.nodes));
        cluster.pods.on_change(move |old, new| {
            let Some(pod) = new else {
                // Looking at a pod that is gone forgets it.
                if let Some(gone) = old {
                    own.add(Key::of(&**gone));
                }
                return;
            };
            let tolerations = |pod: &Arc<Pod>| pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
            let is_news =
                old.is_none_or(|old| node_name(old) != node_name(pod) || tolerations(old) != tolerations(pod));
            if is_news
                && let Some(name) = node_name(pod)
                && nodes.get(&Key::new("", name)).is_some_and(|node| !driving_out(&node).is_empty())
            {
                own.add(Key::of(&**pod));
            }
        });
        (Arc::new(Self { cluster: Arc::clone(cluster), since: Mutex::default() }), queue)
    }
}

impl Reconcile for TaintEviction {
    const NAME: &'static str = "taint-eviction";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(pod) = self.cluster.pods.get(key).filter(|pod| !is_leaving(&**pod) && !has_ended(pod)) else {
            self.since.lock().remove(key);
            return Ok(None);
        };
        let uid = pod.uid().unwrap_or_default();
        let taints = node_name(&pod)
            .and_then(|name| self.cluster.nodes.get(&Key::new("", name)))
            .map(|node| driving_out(&node))
            .unwrap_or_default();
        let now = self.cluster.clock.now();
        let Some(seconds) = patience(&pod, &taints) else {
            self.since.lock().remove(key);
            return Ok(None);
        };
        let since = {
            let mut known = self.since.lock();
            let entry = known.entry(key.clone()).or_insert_with(|| (uid.clone(), now));
            if entry.0 != uid {
                *entry = (uid, now);
            }
            entry.1
        };
        let left = self.cluster.clock.until(after_seconds(since, seconds));
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let event_reason = EventReason {
            component: "taint-eviction-controller",
            action: "Evicting",
            reason: "TaintManagerEviction",
            warning: false,
        };
        self.cluster.recorder.record(&*pod, event_reason, format!("Marking for deletion Pod {key}"));
        let message = "Taint manager: deleting due to NoExecute taint";
        mark_disrupted(&self.cluster, &pod, "DeletionByTaintManager", message, false).await?;
        self.cluster.pods.delete(&pod, None).await?;
        self.since.lock().remove(key);
        Ok(None)
    }
}

/// The taints of a node that drive pods out.
fn driving_out(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().filter_map(Taint::view).filter(|taint| taint.effect == Effect::NoExecute).collect()
}

/// For how many seconds a pod tolerates these taints; `None` means without limit.
fn patience(pod: &Pod, taints: &[Taint]) -> Option<i64> {
    let tolerations: Vec<Toleration> =
        pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten()).map(Toleration::view).collect();
    taints
        .iter()
        .filter_map(|taint| {
            let matching = || tolerations.iter().filter(|one| one.tolerates(taint));
            if matching().next().is_none() {
                return Some(0);
            }
            // Of several matching tolerations with a limit, the shortest counts.
            matching().filter_map(|one| one.seconds).map(|seconds| seconds.max(0)).min()
        })
        .min()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(tolerations: Value, expected: Option<i64>) {
        let pod: Pod =
            serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}})).expect("a pod");
        let taints = [Taint { key: "down".into(), value: String::new(), effect: Effect::NoExecute }];
        assert_eq!(patience(&pod, &taints), expected);
    }

    #[test]
    fn patience_has_limits() {
        check(json!([]), Some(0));
        check(json!([{"key": "down", "operator": "Exists"}]), None);
        check(json!([{"key": "down", "operator": "Exists", "tolerationSeconds": 300}]), Some(300));
        check(
            json!([{"operator": "Exists"}, {"key": "down", "operator": "Exists", "tolerationSeconds": 20}]),
            Some(20),
        );
        check(json!([{"key": "down", "operator": "Exists", "tolerationSeconds": -5}]), Some(0));
    }
}
