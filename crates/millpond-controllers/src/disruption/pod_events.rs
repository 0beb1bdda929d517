//! The time of the last pod event of a node, for `status.lastPodEventTime`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use millpond_api::time::Time;
use millpond_runtime::meta::{Key, controller_of, has_ended, is_leaving, node_name};
use millpond_runtime::queue::Queue;
use parking_lot::Mutex;

use crate::claims::claim_of;
use crate::context::Context;

/// The time is not written more often than this: pods come and go in crowds.
pub(super) const SELDOM: Duration = Duration::from_secs(5);

/// The last event of each claim that is not written yet.
#[derive(Default)]
pub(super) struct PodEvents(Mutex<HashMap<Key, Time>>);

impl PodEvents {
    /// Notes events of a cluster that is not watched yet, and asks for work on their claims.
    pub(super) fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) -> Arc<Self> {
        let events = Arc::new(Self::default());
        let (noted, queue, weak) = (Arc::clone(&events), Arc::clone(queue), Arc::downgrade(context));
        context.cluster.pods.on_change(move |before, after| {
            let Some(name) = event(before.map(|pod| &**pod), after.map(|pod| &**pod)) else { return };
            let Some(context) = weak.upgrade() else { return };
            let node = context.cluster.nodes.get(&Key::new("", name));
            if let Some(claim) = node.and_then(|node| claim_of(&context.cluster, &node)) {
                noted.0.lock().insert(Key::of(&*claim), context.cluster.now());
                queue.add(Key::of(&*claim));
            }
        });
        events
    }

    /// The last event of a claim since the one that is written.
    pub(super) fn since(&self, claim: &Key, written: Option<Time>) -> Option<Time> {
        let mut events = self.0.lock();
        let last = events.get(claim).copied();
        match last.filter(|last| written.is_none_or(|written| *last > written)) {
            Some(last) => Some(last),
            None => {
                events.remove(claim);
                None
            }
        }
    }

    pub(super) fn forget(&self, claim: &Key) {
        self.0.lock().remove(claim);
    }
}

/// The node that a pod came to or goes from, if it just does. Pods of DaemonSets belong to the node.
fn event<'p>(before: Option<&'p Pod>, after: Option<&'p Pod>) -> Option<&'p str> {
    // A pod that is seen for the first time was not bound just now.
    let before = before?;
    let pod = after.unwrap_or(before);
    if controller_of(pod).is_some_and(|owner| owner.kind == "DaemonSet") {
        return None;
    }
    let node = node_name(pod)?;
    let over = |pod: &Pod| has_ended(pod) || is_leaving(pod);
    let came = node_name(before).is_none() && after.is_some();
    let went = !over(before) && after.is_none_or(over);
    (came || went).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(node: Option<&str>, phase: &str, more: Value) -> Pod {
        let mut metadata = json!({"name": "web-1", "namespace": "default"});
        for (key, value) in more.as_object().unwrap() {
            metadata[key] = value.clone();
        }
        serde_json::from_value(
            json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}}),
        )
        .unwrap()
    }

    #[test]
    fn pods_come_and_go() {
        let waiting = pod(None, "Pending", json!({}));
        let bound = pod(Some("n"), "Pending", json!({}));
        let running = pod(Some("n"), "Running", json!({}));
        let leaving = pod(Some("n"), "Running", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let ended = pod(Some("n"), "Succeeded", json!({}));
        let daemon = |node| {
            let owner =
                json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true}]);
            pod(node, "Pending", json!({"ownerReferences": owner}))
        };
        for (before, after, expected) in [
            (None, Some(&running), None),
            (Some(&waiting), Some(&bound), Some("n")),
            (Some(&bound), Some(&running), None),
            (Some(&running), Some(&leaving), Some("n")),
            (Some(&running), Some(&ended), Some("n")),
            (Some(&leaving), None, None),
            (Some(&ended), None, None),
            (Some(&running), None, Some("n")),
            (Some(&waiting), None, None),
            (Some(&daemon(None)), Some(&daemon(Some("n"))), None),
        ] {
            assert_eq!(event(before, after), expected, "{before:?} {after:?}");
        }
    }
}
