//! Taints that follow a node's conditions and its cordon.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::Key;
use crate::queue::Queue;
use crate::worker::Reconcile;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Taints that keep new pods away, by the condition that brings them.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Keeps taints in step with conditions.
pub struct NodeTaints {
    cluster: Arc<Cluster>,
}

impl NodeTaints {
    /// The controller, and the work queue that watches of nodes fill.
    pub fn new(cluster: &Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        cluster.nodes.on_change(move |_, new| {
            if let Some(node) = new {
                own.add(Key::of(&**node));
            }
        });
        (Arc::new(Self { cluster: Arc::clone(cluster) }), queue)
    }
}

impl Reconcile for NodeTaints {
    const NAME: &'static str = "node-taints";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(node) = self.cluster.nodes.get(key) else {
            return Ok(None);
        };
        if let Some(taints) = changed_taints(&node, &self.cluster.clock.time()) {
            let taints = (!taints.is_empty()).then_some(taints);
            let patch = json!({
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "spec": {"taints": taints},
            });
            self.cluster.nodes.patch(key, &patch).await?;
        }
        Ok(None)
    }
}

/// The taints that a node should have, when they are not those it has.
fn changed_taints(node: &Node, now: &Time) -> Option<Vec<Taint>> {
    let known = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let wanted = wanted(node)?;
    let is_managed = |taint: &Taint| {
        taint.key == UNSCHEDULABLE && taint.effect == "NoSchedule"
            || BY_CONDITION.iter().any(|(_, _, key)| taint.key == *key && taint.effect == "NoSchedule")
            || [NOT_READY, UNREACHABLE].contains(&taint.key.as_str()) && taint.effect == "NoExecute"
    };
    let mut taints: Vec<Taint> = known
        .iter()
        .filter(|taint| !is_managed(taint) || wanted.contains(&(taint.key.as_str(), taint.effect.as_str())))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(now.clone()),
                value: None,
            });
        }
    }
    (taints != known).then_some(taints)
}

/// Keys and effects of the taints that follow from conditions and cordon. `None` before the node reports anything: then
/// the taint of the API server stays.
fn wanted(node: &Node) -> Option<Vec<(&'static str, &'static str)>> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let mut wanted = Vec::new();
    match ready.map(|condition| condition.status.as_str()) {
        None => return None,
        Some("True") => {}
        Some("False") => wanted.push((NOT_READY, "NoExecute")),
        Some(_) => wanted.push((UNREACHABLE, "NoExecute")),
    }
    for (type_, status, key) in BY_CONDITION {
        if conditions.iter().any(|condition| condition.type_ == type_ && condition.status == status) {
            wanted.push((key, "NoSchedule"));
        }
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn check(spec: Value, conditions: Value, expected: Option<&[&str]>) {
        let node: Node =
            serde_json::from_value(json!({"spec": spec, "status": {"conditions": conditions}})).expect("a node");
        let now = Time("2026-01-01T00:00:00Z".parse().expect("a time"));
        let got = changed_taints(&node, &now);
        let got: Option<Vec<String>> =
            got.map(|taints| taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect());
        let expected = expected.map(|list| list.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(got, expected);
    }

    #[test]
    fn taints_follow_conditions() {
        let not_ready = json!({"taints": [
            {"key": NOT_READY, "effect": "NoSchedule"}, {"key": NOT_READY, "effect": "NoExecute"}, {"key": "own", "effect": "NoSchedule"}]});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        check(not_ready, ready.clone(), Some(&["own:NoSchedule"]));
        check(json!({}), ready.clone(), None);
        check(json!({}), json!([]), None);
        check(
            json!({}),
            json!([{"type": "Ready", "status": "False"}]),
            Some(&["node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/not-ready:NoSchedule"]),
        );
        check(json!({"unschedulable": true}), ready.clone(), Some(&["node.kubernetes.io/unschedulable:NoSchedule"]));
        check(json!({"taints": [{"key": UNSCHEDULABLE, "effect": "NoSchedule"}]}), ready, Some(&[]));
    }
}
