//! The order in which surplus pods are deleted.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::pods::{is_active, ready_since};
use crate::meta::{annotation, node_name, phase};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Takes the `excess` pods that are missed least.
///
/// `related` are the pods of all sets of the same owner: of two pods, the one whose node has more of them is deleted
/// first.
pub fn choose_excess(pods: &[Arc<Pod>], related: &[Arc<Pod>], excess: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut bench_objects: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *bench_objects.entry(node_name(pod).unwrap_or_default()).or_default() += 1;
    }
    let crowd_of = |pod: &Pod| bench_objects.get(node_name(pod).unwrap_or_default()).copied().unwrap_or_default();
    let mut sorted = pods.to_vec();
    sorted.sort_by_cached_key(|pod| rank(pod, crowd_of(pod), now));
    sorted.truncate(excess);
    sorted
}

type Rank = (bool, u8, bool, i32, Reverse<usize>, i64, Reverse<i32>, i64, String);

/// Smaller goes first: unbound, not running, not ready, cheap to delete, crowded, young, often
/// restarted. Ages are compared by powers of two, so that no one node loses all its pods, and
/// what is equal then is decided by the uid, which is random.
fn rank(pod: &Pod, bench_objects: usize, now: Timestamp) -> Rank {
    let ready = ready_since(pod);
    let created = pod.creation_timestamp().map_or(Timestamp::MIN, |time| time.0);
    (
        node_name(pod).is_some(),
        phase_rank(pod),
        ready.is_some(),
        deletion_cost(pod),
        Reverse(bench_objects),
        ready.map_or(0, |since| age_step(since, now)),
        Reverse(restarts(pod)),
        age_step(created, now),
        pod.uid().unwrap_or_default(),
    )
}

/// The age in steps that double.
fn age_step(moment: Timestamp, now: Timestamp) -> i64 {
    let nanos = now.duration_since(moment).as_nanos();
    if nanos <= 0 { -1 } else { i64::from(nanos.ilog2()) }
}

fn phase_rank(pod: &Pod) -> u8 {
    match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    annotation(pod, DELETION_COST).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The most restarts of any container.
fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let inits = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    containers.iter().chain(inits).map(|container| container.restart_count).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T00:00:00Z".parse().expect("a time")
    }

    fn pod(name: &str, node: Option<&str>, phase: &str, ready: Option<&str>, more: Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": phase, "conditions": []},
        });
        if let Some(since) = ready {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
        }
        json_patch(&mut pod, &more);
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn json_patch(target: &mut Value, patch: &Value) {
        for (key, value) in patch.as_object().into_iter().flatten() {
            if value.is_object() && target[key].is_object() {
                json_patch(&mut target[key], value);
            } else {
                target[key] = value.clone();
            }
        }
    }

    fn order(pods: &[Arc<Pod>], related: &[Arc<Pod>]) -> Vec<String> {
        choose_excess(pods, related, pods.len(), now()).iter().map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn classes_come_before_age() {
        let day = Some("2026-01-01T00:00:00Z");
        let pods = [
            pod("ready", Some("n"), "Running", day, json!({})),
            pod("cheap", Some("n"), "Running", day, json!({"metadata": {"annotations": {DELETION_COST: "-1"}}})),
            pod("unready", Some("n"), "Running", None, json!({})),
            pod("pending", Some("n"), "Pending", None, json!({})),
            pod("unbound", None, "Pending", None, json!({})),
        ];
        assert_eq!(order(&pods, &pods), ["unbound", "pending", "unready", "cheap", "ready"]);
    }

    #[test]
    fn crowded_nodes_lose_first_then_the_younger_by_powers_of_two() {
        let related = [
            pod("a", Some("n1"), "Running", None, json!({})),
            pod("b", Some("n1"), "Running", None, json!({})),
            pod("c", Some("n2"), "Running", None, json!({})),
        ];
        let lone = pod("lone", Some("n2"), "Running", Some("2026-01-01T23:59:00Z"), json!({}));
        let crowded = pod("crowded", Some("n1"), "Running", Some("2025-01-01T00:00:00Z"), json!({}));
        assert_eq!(order(&[lone.clone(), crowded.clone()], &related), ["crowded", "lone"]);

        let since = |name: &str, time: &str| pod(name, Some("n"), "Running", Some(time), json!({}));
        let (old, new) = (since("a-old", "2026-01-01T00:00:00Z"), since("b-new", "2026-01-01T23:00:00Z"));
        assert_eq!(order(&[old.clone(), new], &[]), ["b-new", "a-old"]);
        let nearly = since("b-nearly", "2026-01-01T01:00:00Z");
        assert_eq!(order(&[nearly, old], &[]), ["a-old", "b-nearly"], "of like age the uid decides");
    }

    #[test]
    fn restarts_break_ties() {
        let calm = pod("a-calm", Some("n"), "Running", None, json!({}));
        let jumpy = pod(
            "b-jumpy",
            Some("n"),
            "Running",
            None,
            json!({"status": {"containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 3}]}}),
        );
        assert_eq!(order(&[calm, jumpy], &[]), ["b-jumpy", "a-calm"]);
    }
}
