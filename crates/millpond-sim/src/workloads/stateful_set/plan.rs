//! The next steps for the pods of a StatefulSet.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::super::history::REVISION_LABEL;
use super::super::pods::{is_available, is_ready};
use super::POD_NAME_LABEL;
use crate::meta::{has_ended, is_leaving, phase};

/// The template of a new pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// The one before the update under way.
    Current,
    /// The newest.
    Update,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the pod of an ordinal.
    Create {
        /// The ordinal.
        ordinal: i32,
        /// The template.
        revision: Revision,
    },
    /// Make the claims of a pod that waits for them.
    EnsureClaims {
        /// The ordinal.
        ordinal: i32,
    },
    /// Remove a pod.
    Delete(Arc<Pod>),
    /// Put the labels of its identity on a pod.
    Identify(Arc<Pod>),
}

/// Splits `db-3` into `db` and `3`.
pub fn parse_name(name: &str) -> Option<(&str, i32)> {
    let (parent, ordinal) = name.rsplit_once('-')?;
    if ordinal.is_empty() || !ordinal.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((parent, ordinal.parse().ok()?))
}

/// The pods that a set should have.
pub fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Their ordinals.
pub fn ordinals(set: &StatefulSet) -> Range<i32> {
    let start =
        set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref()).and_then(|ordinals| ordinals.start).unwrap_or(0);
    start..start + replicas(set)
}

/// How long a pod must be ready before it counts.
pub fn min_ready_seconds(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// Whether updates roll out without a client deleting pods.
pub fn is_rolling(set: &StatefulSet) -> bool {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
}

fn is_parallel(set: &StatefulSet) -> bool {
    set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref()) == Some("Parallel")
}

/// The first ordinal that an update touches, counted from the start; `None` when nothing is said.
fn partition(set: &StatefulSet) -> Option<i32> {
    let strategy = set.spec.as_ref()?.update_strategy.as_ref()?;
    Some(strategy.rolling_update.as_ref()?.partition.unwrap_or_default())
}

/// The steps to take now; further steps follow when these have had effect.
pub fn plan(set: &StatefulSet, members: &[Arc<Pod>], update: &str, now: Timestamp) -> Vec<Action> {
    let min_ready = min_ready_seconds(set);
    let in_order = !is_parallel(set);
    let is_down = |pod: &Pod| !is_available(pod, min_ready, now) || is_leaving(pod);
    let range = ordinals(set);
    let by_ordinal: BTreeMap<i32, &Arc<Pod>> =
        members.iter().filter_map(|pod| Some((parse_name(&pod.name_any())?.1, pod))).collect();
    let mut actions = Vec::new();

    for ordinal in range.clone() {
        let step = match by_ordinal.get(&ordinal) {
            None => vec![Action::Create { ordinal, revision: revision_of(set, ordinal) }],
            Some(pod) => keep(pod, ordinal),
        };
        let waits = match by_ordinal.get(&ordinal) {
            None => true,
            Some(pod) => has_ended(pod) || phase(pod) != "Running" || is_down(pod),
        };
        actions.extend(step);
        if in_order && waits {
            return actions;
        }
    }

    let mut condemned: Vec<(i32, &Arc<Pod>)> =
        by_ordinal.iter().filter(|(ordinal, _)| !range.contains(*ordinal)).map(|(o, p)| (*o, *p)).collect();
    condemned.sort_by_key(|(ordinal, _)| Reverse(*ordinal));
    if !condemned.is_empty() {
        actions.extend(shrink(&condemned, in_order, &is_down));
        if in_order {
            return actions;
        }
    }
    if actions.is_empty() && is_rolling(set) {
        actions.extend(update_next(set, &by_ordinal, update, &is_down));
    }
    actions
}

/// The steps that an existing pod within the range needs.
fn keep(pod: &Arc<Pod>, ordinal: i32) -> Vec<Action> {
    if has_ended(pod) {
        return if is_leaving(&**pod) { Vec::new() } else { vec![Action::Delete(Arc::clone(pod))] };
    }
    let mut actions = Vec::new();
    if phase(pod) == "Pending" {
        actions.push(Action::EnsureClaims { ordinal });
    }
    if pod.labels().get(POD_NAME_LABEL) != Some(&pod.name_any()) {
        actions.push(Action::Identify(Arc::clone(pod)));
    }
    actions
}

/// Removes pods beyond the range: in order one at a time from the end, else all.
fn shrink(condemned: &[(i32, &Arc<Pod>)], in_order: bool, is_down: &dyn Fn(&Pod) -> bool) -> Vec<Action> {
    // The lowest pod that is down may go although it is down: waiting for it could take forever.
    let first_down = condemned.iter().rev().find(|(_, pod)| is_down(pod)).map(|(ordinal, _)| *ordinal);
    let mut actions = Vec::new();
    for (ordinal, pod) in condemned {
        if is_leaving(&***pod) {
            if in_order {
                break;
            }
            continue;
        }
        let is_healthy = phase(pod) == "Running" && is_ready(pod) && !is_down(pod);
        if in_order && !is_healthy && first_down != Some(*ordinal) {
            break;
        }
        actions.push(Action::Delete(Arc::clone(pod)));
        if in_order {
            break;
        }
    }
    actions
}

/// Replaces the last pod that is out of date, once those after it are up.
fn update_next(
    set: &StatefulSet,
    by_ordinal: &BTreeMap<i32, &Arc<Pod>>,
    update: &str,
    is_down: &dyn Fn(&Pod) -> bool,
) -> Option<Action> {
    let range = ordinals(set);
    let first = range.start + partition(set).unwrap_or_default();
    for ordinal in (first.max(range.start)..range.end).rev() {
        let pod = by_ordinal.get(&ordinal)?;
        if pod.labels().get(REVISION_LABEL).map(String::as_str) != Some(update) && !is_leaving(&***pod) {
            return Some(Action::Delete(Arc::clone(pod)));
        }
        if is_down(pod) {
            return None;
        }
    }
    None
}

/// A missing pod below the partition comes back as it was.
fn revision_of(set: &StatefulSet, ordinal: i32) -> Revision {
    let start = ordinals(set).start;
    let current = set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default();
    let kept = match partition(set) {
        Some(partition) => partition,
        None if is_rolling(set) => current,
        None => 0,
    };
    if ordinal < start + kept { Revision::Current } else { Revision::Update }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(spec: Value) -> StatefulSet {
        let mut value = json!({
            "metadata": {"name": "db", "namespace": "ns"},
            "spec": {"replicas": 3, "serviceName": "db", "selector": {}, "template": {},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
        });
        for (key, field) in spec.as_object().expect("an object") {
            value["spec"][key] = field.clone();
        }
        serde_json::from_value(value).expect("a set")
    }

    /// `0 ready new`, `1 pending old`, `2 leaving new`, `3 failed old`.
    fn pods(lines: &[&str]) -> Vec<Arc<Pod>> {
        lines
            .iter()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let name = format!("db-{}", words[0]);
                let ready = matches!(words[1], "ready" | "leaving");
                let phase = match words[1] {
                    "pending" => "Pending",
                    "failed" => "Failed",
                    _ => "Running",
                };
                let mut pod = json!({
                    "metadata": {"name": name, "labels": {POD_NAME_LABEL: name, REVISION_LABEL: words[2]}},
                    "status": {"phase": phase, "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
                });
                if words[1] == "leaving" {
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
                Arc::new(serde_json::from_value(pod).expect("a pod"))
            })
            .collect()
    }

    fn check(spec: Value, members: &[&str], expected: &[&str]) {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let got: Vec<String> = plan(&set(spec.clone()), &pods(members), "new", now)
            .iter()
            .map(|action| match action {
                Action::Create { ordinal, revision } => format!("create {ordinal} {revision:?}"),
                Action::EnsureClaims { ordinal } => format!("claims {ordinal}"),
                Action::Delete(pod) => format!("delete {}", pod.name_any()),
                Action::Identify(pod) => format!("identify {}", pod.name_any()),
            })
            .collect();
        assert_eq!(got, expected, "{spec} {members:?}");
    }

    #[test]
    fn names_have_ordinals() {
        assert_eq!(parse_name("db-10"), Some(("db", 10)));
        assert_eq!(parse_name("my-db-0"), Some(("my-db", 0)));
        assert_eq!(parse_name("db-x1"), None);
        assert_eq!(parse_name("db"), None);
    }

    #[test]
    fn in_order_means_one_after_the_other() {
        let ordered = json!({});
        check(ordered.clone(), &[], &["create 0 Update"]);
        check(ordered.clone(), &["0 pending new"], &["claims 0"]);
        check(ordered.clone(), &["0 starting new"], &[]);
        check(ordered.clone(), &["0 ready new"], &["create 1 Update"]);
        check(ordered.clone(), &["0 ready new", "1 ready new", "2 ready new"], &[]);
        check(ordered.clone(), &["0 starting new", "1 ready new"], &[]);
        check(ordered, &["0 ready new", "1 failed new", "2 ready new"], &["delete db-1"]);
    }

    #[test]
    fn parallel_means_all_at_once() {
        let parallel = json!({"podManagementPolicy": "Parallel"});
        check(parallel.clone(), &[], &["create 0 Update", "create 1 Update", "create 2 Update"]);
        check(
            parallel,
            &["0 ready new", "1 starting new", "2 ready new", "3 ready new", "4 leaving new", "5 ready new"],
            &["delete db-5", "delete db-3"],
        );
    }

    #[test]
    fn scaling_down_starts_at_the_end_and_waits() {
        let one = json!({"replicas": 1});
        check(one.clone(), &["0 ready new", "1 ready new", "2 ready new"], &["delete db-2"]);
        check(one.clone(), &["0 ready new", "1 ready new", "2 leaving new"], &[]);
        check(one.clone(), &["0 ready new", "1 starting new", "2 ready new"], &["delete db-2"]);
        check(one.clone(), &["0 ready new", "1 starting new"], &["delete db-1"]);
        check(one, &["0 starting new", "1 ready new"], &[]);
    }

    #[test]
    fn updates_roll_from_the_end_down_to_the_partition() {
        let all = ["0 ready old", "1 ready old", "2 ready old"];
        check(json!({}), &all, &["delete db-2"]);
        check(json!({}), &["0 ready old", "1 ready old", "2 starting new"], &[]);
        check(json!({}), &["0 ready old", "1 ready old", "2 ready new"], &["delete db-1"]);
        check(json!({"updateStrategy": {"type": "OnDelete"}}), &all, &[]);
        let partition = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
        check(partition.clone(), &all, &["delete db-2"]);
        check(partition.clone(), &["0 ready old", "1 ready old", "2 ready new"], &[]);
        check(partition, &["0 ready old", "2 ready new"], &["create 1 Current"]);
    }

    #[test]
    fn ordinals_may_start_later() {
        let shifted = json!({"ordinals": {"start": 5}, "replicas": 2});
        check(shifted.clone(), &["5 ready new"], &["create 6 Update"]);
        check(shifted, &["4 ready new", "5 ready new", "6 ready new"], &["delete db-4"]);
    }
}
