//! Drains the Node of a Machine that is being deleted: which pods are evicted, which are waited for, and what the
//! condition says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use crate::meta::{annotation, controller_of, has_ended, is_leaving};

/// How a pod takes part in a drain (label, on a pod).
const DRAIN_LABEL: &str = "cluster.x-k8s.io/drain";
/// Annotation of the pods that a kubelet has from its own files.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// How many pods a message names.
const NAMED: usize = 3;
/// An eviction that has no answer after this long counts as refused for now.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);
/// Pods of an unreachable node that should have been gone for this long are not waited for.
const UNREACHABLE_PATIENCE_S: i64 = 1;

/// How a drain treats a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainAction {
    /// The pod stays.
    Skip,
    /// It is evicted.
    Evict,
    /// The pod is terminating; the drain waits for it.
    Leaving,
    /// The drain waits until the pod completes.
    WaitCompleted,
}

/// How a drain treats a pod.
pub fn way(pod: &Pod, unreachable: bool, now: Timestamp) -> DrainAction {
    let owner = controller_of(pod).map(|owner| owner.kind.as_str());
    let label = pod.labels().get(DRAIN_LABEL).map(|value| value.to_ascii_lowercase());
    let end = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    if annotation(pod, MIRROR_ANNOTATION).is_some() || (owner == Some("DaemonSet") && !has_ended(pod)) {
        return DrainAction::Skip;
    }
    if unreachable && end.is_some_and(|end| now.duration_since(end).as_secs() > UNREACHABLE_PATIENCE_S) {
        return DrainAction::Skip;
    }
    match label.as_deref() {
        Some("skip") => DrainAction::Skip,
        Some("wait-completed" | "waitcompleted") if !has_ended(pod) => DrainAction::WaitCompleted,
        _ if is_leaving(pod) => DrainAction::Leaving,
        _ => DrainAction::Evict,
    }
}

/// Whether the node's kubelet no longer reports.
pub fn is_unreachable(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

/// The result of one pass of a drain.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Pods that are leaving.
    pub leaving: Vec<String>,
    /// Pods that could not be evicted, by what the server said.
    pub refused: BTreeMap<String, Vec<String>>,
    /// Pods that are waited for until they end.
    pub waiting: Vec<String>,
}

impl Outcome {
    /// Whether no pod is left.
    pub fn is_done(&self) -> bool {
        self.leaving.is_empty() && self.refused.is_empty() && self.waiting.is_empty()
    }

    /// The result as a message.
    pub fn message(&self, since: &str) -> String {
        let mut lines = vec![format!("Drain not completed yet (started at {since}):")];
        if !self.leaving.is_empty() {
            let pods = listed(&self.leaving);
            lines.push(format!("* {pods}: deletionTimestamp set, but still not removed from the Node"));
        }
        for (problem, pods) in &self.refused {
            let problem = match problem.strip_prefix("Cannot evict pod as") {
                Some(rest) => format!("cannot evict pod as{rest}"),
                None => format!("failed to evict Pod, {problem}"),
            };
            lines.push(format!("* {}: {problem}", listed(pods)));
        }
        if !self.waiting.is_empty() {
            lines.push(format!("* {}: waiting for completion", listed(&self.waiting)));
        }
        lines.join("\n")
    }
}

fn listed(pods: &[String]) -> String {
    let kind = if pods.len() > 1 { "Pods" } else { "Pod" };
    let named = pods.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match pods.len().saturating_sub(NAMED) {
        0 => format!("{kind} {named}"),
        more => format!("{kind} {named}, ... ({more} more)"),
    }
}

/// Asks all pods that should leave to do so.
pub async fn drain(client: &Client, pods: &[Arc<Pod>], unreachable: bool, now: Timestamp) -> Outcome {
    let mut outcome = Outcome::default();
    for pod in pods {
        let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        match way(pod, unreachable, now) {
            DrainAction::Skip => {}
            DrainAction::Leaving => outcome.leaving.push(name),
            DrainAction::WaitCompleted => outcome.waiting.push(name),
            DrainAction::Evict => match evict(client, pod, unreachable).await {
                Ok(true) => outcome.leaving.push(name),
                Ok(false) => {}
                Err(problem) => outcome.refused.entry(problem).or_default().push(name),
            },
        }
    }
    outcome
}

/// Asks one pod, this one and no other of its name; says whether it is (still) there.
async fn evict(client: &Client, pod: &Pod, unreachable: bool) -> Result<bool, String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let params = EvictParams {
        delete_options: Some(DeleteParams {
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            grace_period_seconds: unreachable.then_some(1),
            ..DeleteParams::default()
        }),
        post_options: PostParams::default(),
    };
    match tokio::time::timeout(ANSWERED_WITHIN, api.evict(&pod.name_any(), &params)).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(false),
        Ok(Err(kube::Error::Api(status))) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let causes = causes.map(|cause| cause.message.as_str()).collect::<Vec<_>>().join(",");
            Err(format!("{} {causes}", status.message).trim_end().to_owned())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("not answered within {} s", ANSWERED_WITHIN.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: &Value, phase: &str) -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).expect("a pod")
    }

    #[test]
    fn pods_that_leave_and_pods_that_stay() {
        let owner =
            |kind: &str| json!([{"kind": kind, "name": "o", "uid": "u", "apiVersion": "apps/v1", "controller": true}]);
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        let cases = [
            ("bare", json!({}), "Running", DrainAction::Evict),
            ("of a set", json!({"ownerReferences": owner("ReplicaSet")}), "Running", DrainAction::Evict),
            ("of a daemon", json!({"ownerReferences": owner("DaemonSet")}), "Running", DrainAction::Skip),
            ("an ended daemon", json!({"ownerReferences": owner("DaemonSet")}), "Failed", DrainAction::Evict),
            ("static", json!({"annotations": {MIRROR_ANNOTATION: "x"}}), "Running", DrainAction::Skip),
            ("asked to stay", json!({"labels": {DRAIN_LABEL: "Skip"}}), "Running", DrainAction::Skip),
            (
                "works to its end",
                json!({"labels": {DRAIN_LABEL: "wait-completed"}}),
                "Running",
                DrainAction::WaitCompleted,
            ),
            ("has ended", json!({"labels": {DRAIN_LABEL: "wait-completed"}}), "Succeeded", DrainAction::Evict),
            ("leaving", json!({"deletionTimestamp": "2026-01-01T00:59:00Z"}), "Running", DrainAction::Leaving),
        ];
        for (name, metadata, phase, expected) in cases {
            assert_eq!(way(&pod(&metadata, phase), false, now), expected, "{name}");
        }
        let stuck = pod(&json!({"deletionTimestamp": "2026-01-01T00:59:00Z"}), "Running");
        assert_eq!(way(&stuck, true, now), DrainAction::Skip, "no kubelet is there to stop it");
    }

    #[test]
    fn a_drain_in_words() {
        let mut outcome =
            Outcome { leaving: ["a/1", "a/2", "a/3", "a/4"].map(str::to_owned).into(), ..Outcome::default() };
        outcome
            .refused
            .insert("Cannot evict pod as it would violate the pod's disruption budget.".into(), vec!["b/1".into()]);
        assert_eq!(
            outcome.message("now"),
            "Drain not completed yet (started at now):\n\
             * Pods a/1, a/2, a/3, ... (1 more): deletionTimestamp set, but still not removed from the Node\n\
             * Pod b/1: cannot evict pod as it would violate the pod's disruption budget."
        );
        assert!(Outcome::default().is_done() && !outcome.is_done());
    }
}
