//! The status of a MachineSet, and what it has in common with that of a MachineDeployment.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use millpond_api::capi;
use millpond_controllers::kinds::{Machine, MachineSet};
use serde_json::{Value, json};

use super::super::conditions::{self, Answer, Conditions, find, reason};
use super::super::{at, put};
use crate::clock::after_seconds;
use crate::meta::is_leaving;

/// How many Machines a message names.
const NAMED: usize = 3;

/// Templates that are not there, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingTemplates {
    /// The bootstrap template.
    pub bootstrap: Option<String>,
    /// The infrastructure template.
    pub infrastructure: Option<String>,
}

impl MissingTemplates {
    /// Whether one is missing.
    pub fn any(&self) -> bool {
        self.bootstrap.is_some() || self.infrastructure.is_some()
    }

    fn because(&self) -> String {
        let kinds: Vec<&str> =
            [&self.bootstrap, &self.infrastructure].into_iter().flatten().map(String::as_str).collect();
        match kinds.as_slice() {
            [] => String::new(),
            [one] => format!("because {one} does not exist"),
            several => format!("because {} do not exist", several.join(" and ")),
        }
    }
}

/// The inputs of a status.
pub struct Facts<'a> {
    /// The set.
    pub set: &'a MachineSet,
    /// Its Machines, each with its Node.
    pub machines: &'a [(Arc<Machine>, Option<Arc<Node>>)],
    /// Templates that are not there.
    pub missing: &'a MissingTemplates,
    /// The time.
    pub now: Time,
}

/// The status.
pub fn compute(facts: &Facts<'_>) -> Value {
    let (set, generation) = (facts.set, facts.set.metadata.generation);
    let view = capi::MachineSet::of(&set.spec);
    let machines: Vec<Arc<Machine>> = facts.machines.iter().map(|(machine, _)| Arc::clone(machine)).collect();
    let mut status = if set.status.is_object() { set.status.clone() } else { json!({}) };
    status["observedGeneration"] = json!(generation);
    status["selector"] = json!(selector_text(&set.spec["selector"]));
    let count = |kind: &str| machines.iter().filter(|machine| holds(machine, kind)).count();
    let actual = machines.len() as i64;
    status["replicas"] = json!(actual);
    status["readyReplicas"] = json!(count("Ready"));
    status["availableReplicas"] = json!(count("Available"));
    status["upToDateReplicas"] = json!(count("UpToDate"));
    put(&mut status, &["deprecated", "v1beta1"], older_counters(facts, view.template.min_ready_s));
    let mut conditions = Conditions::of(&status, generation, &facts.now);
    let deleting = is_leaving(set);
    conditions.set("Paused", Answer::False, "NotPaused", "");
    set_scaling(&mut conditions, view.replicas, actual, deleting, facts.missing);
    set_machines(&mut conditions, &machines);
    set_remediating(&mut conditions, &machines);
    set_deleting(&mut conditions, deleting, machines.len(), 0);
    status["conditions"] = conditions.into_value();
    status
}

/// Counters as v1beta1 has them: by nodes instead of by conditions of Machines.
fn older_counters(facts: &Facts<'_>, min_ready_s: i64) -> Value {
    let since = |node: &Option<Arc<Node>>| node.as_deref().and_then(ready_since);
    let ready = facts.machines.iter().filter(|(_, node)| since(node).is_some()).count();
    let is_available = |moment: Timestamp| min_ready_s == 0 || after_seconds(moment, min_ready_s) <= facts.now.0;
    let available = facts.machines.iter().filter(|(_, node)| since(node).is_some_and(is_available)).count();
    let labels: std::collections::BTreeMap<String, String> =
        serde_json::from_value(at(&facts.set.spec, &["template", "metadata", "labels"]).clone()).unwrap_or_default();
    let is_labelled = |machine: &Machine| labels.iter().all(|(key, value)| machine.labels().get(key) == Some(value));
    let labelled = facts.machines.iter().filter(|(machine, _)| is_labelled(machine)).count();
    json!({"fullyLabeledReplicas": labelled, "readyReplicas": ready, "availableReplicas": available})
}

/// Since when a Node is ready, if it is.
pub fn ready_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}

fn holds(machine: &Machine, kind: &str) -> bool {
    conditions::answer(&machine.status, kind) == Answer::True
}

/// A selector as the scale subresource wants it.
pub fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let mut parts: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    parts.sort();
    for rule in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = rule["key"].as_str().unwrap_or_default();
        let values = rule["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        parts.push(match rule["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}

/// Sets `ScalingUp` and `ScalingDown`.
pub fn set_scaling(
    conditions: &mut Conditions,
    wanted: Option<i64>,
    actual: i64,
    deleting: bool,
    missing: &MissingTemplates,
) {
    let Some(wanted) = wanted else {
        for kind in ["ScalingUp", "ScalingDown"] {
            conditions.set(kind, Answer::Unknown, "WaitingForReplicasSet", "Waiting for spec.replicas set");
        }
        return;
    };
    let wanted = if deleting { 0 } else { wanted };
    let because = missing.because();
    if actual >= wanted {
        let would = if deleting || because.is_empty() {
            String::new()
        } else {
            format!("Scaling up would be blocked {because}")
        };
        conditions.set("ScalingUp", Answer::False, "NotScalingUp", would);
    } else {
        let blocked = if because.is_empty() { String::new() } else { format!(" is blocked {because}") };
        let message = format!("Scaling up from {actual} to {wanted} replicas{blocked}");
        conditions.set("ScalingUp", Answer::True, "ScalingUp", message);
    }
    if actual > wanted {
        let message = format!("Scaling down from {actual} to {wanted} replicas");
        conditions.set("ScalingDown", Answer::True, "ScalingDown", message);
    } else {
        conditions.set("ScalingDown", Answer::False, "NotScalingDown", "");
    }
}

/// Sets `MachinesReady` and `MachinesUpToDate`, which sum up the Machines.
pub fn set_machines(conditions: &mut Conditions, machines: &[Arc<Machine>]) {
    sum_up(conditions, machines, "Ready", "MachinesReady", ["Ready", "NotReady", "ReadyUnknown"]);
    // A Machine that has just come has no answer yet, and is not waited for.
    let known: Vec<Arc<Machine>> =
        machines.iter().filter(|machine| find(&machine.status, "UpToDate").is_some()).cloned().collect();
    sum_up(conditions, &known, "UpToDate", "MachinesUpToDate", ["UpToDate", "NotUpToDate", "UpToDateUnknown"]);
}

fn sum_up(conditions: &mut Conditions, machines: &[Arc<Machine>], of: &str, kind: &str, reasons: [&'static str; 3]) {
    if machines.is_empty() {
        return conditions.set(kind, Answer::True, "NoReplicas", "");
    }
    let answer = conditions::all(machines.iter().map(|machine| conditions::answer(&machine.status, of)));
    let troubled = |machine: &&Arc<Machine>| conditions::answer(&machine.status, of) != Answer::True;
    let mut lines: Vec<String> = machines.iter().filter(troubled).take(NAMED).map(|one| trouble(one, of)).collect();
    let others = machines.iter().filter(troubled).count() - lines.len();
    if others > 0 {
        lines.push(format!("And {others} Machines with other issues"));
    }
    let [holds, fails, unknown] = reasons;
    conditions.set(kind, answer, reason(answer, holds, fails, unknown), lines.join("\n"));
}

fn trouble(machine: &Machine, of: &str) -> String {
    let message = find(&machine.status, of).map(|condition| condition.message).unwrap_or_default();
    let message = if message.is_empty() { format!("Condition {of} not yet reported") } else { message };
    let indented = message.replace('\n', "\n  ");
    let break_or_space = if indented.starts_with('*') { "\n  " } else { " " };
    format!("* Machine {}:{break_or_space}{indented}", machine.name_any())
}

/// Sets `Remediating`.
pub fn set_remediating(conditions: &mut Conditions, machines: &[Arc<Machine>]) {
    let is_marked = |machine: &&Arc<Machine>| {
        find(&machine.status, "OwnerRemediated").is_some_and(|condition| condition.status == "False")
    };
    let marked: Vec<String> = machines.iter().filter(is_marked).map(|one| trouble(one, "OwnerRemediated")).collect();
    if marked.is_empty() {
        conditions.set("Remediating", Answer::False, "NotRemediating", "");
    } else {
        conditions.set("Remediating", Answer::True, "Remediating", marked.join("\n"));
    }
}

/// Sets `Deleting`.
pub fn set_deleting(conditions: &mut Conditions, deleting: bool, machines: usize, sets: usize) {
    if !deleting {
        return conditions.set("Deleting", Answer::False, "NotDeleting", "");
    }
    let message = match (machines, sets) {
        (0, 0) => "Deletion completed".to_owned(),
        (0, sets) => format!("Deleting {sets} MachineSets"),
        (1, _) => "Deleting 1 Machine".to_owned(),
        (machines, _) => format!("Deleting {machines} Machines"),
    };
    conditions.set("Deleting", Answer::True, "Deleting", message);
}

/// The status of an object that is to be left alone: nothing else of it changes.
pub fn paused(status: &Value, generation: Option<i64>, now: &Time) -> Value {
    let mut paused = if status.is_object() { status.clone() } else { json!({}) };
    let mut conditions = Conditions::of(status, generation, now);
    conditions.set("Paused", Answer::True, "Paused", "");
    paused["conditions"] = conditions.into_value();
    paused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, ready: &str) -> (Arc<Machine>, Option<Arc<Node>>) {
        let condition = |kind: &str| {
            json!({"type": kind, "status": ready, "reason": "R", "message": "broken",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let machine = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"a": "b"}}, "spec": {},
            "status": {"conditions": [condition("Ready"), condition("Available"), condition("UpToDate")]},
        }));
        let node = serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}}));
        (Arc::new(machine.expect("a machine")), Some(Arc::new(node.expect("a node"))))
    }

    #[test]
    fn the_status_counts_machines_and_nodes() {
        let set: MachineSet = serde_json::from_value(json!({
            "metadata": {"name": "s", "generation": 2},
            "spec": {"clusterName": "c", "replicas": 4, "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"minReadySeconds": 30}}},
        }))
        .expect("a set");
        let machines = [machine("m1", "True"), machine("m2", "False"), machine("m3", "True")];
        let now = Time("2026-01-01T00:00:10Z".parse().expect("a time"));
        let missing =
            MissingTemplates { infrastructure: Some("FakeMachineTemplate".to_owned()), ..MissingTemplates::default() };
        let got = compute(&Facts { set: &set, machines: &machines, missing: &missing, now });
        assert_eq!(
            got["deprecated"]["v1beta1"],
            json!({"fullyLabeledReplicas": 3, "readyReplicas": 2, "availableReplicas": 0})
        );
        assert_eq!((&got["replicas"], &got["readyReplicas"], &got["selector"]), (&json!(3), &json!(2), &json!("a=b")));
        let told = |kind: &str| {
            let condition = find(&got, kind).expect("a condition");
            (condition.status, condition.reason, condition.message)
        };
        let (status, reason, message) = told("ScalingUp");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "ScalingUp"));
        assert_eq!(message, "Scaling up from 3 to 4 replicas is blocked because FakeMachineTemplate does not exist");
        let (status, reason, message) = told("MachinesReady");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NotReady"));
        assert_eq!(message, "* Machine m2: broken");
    }

    #[test]
    fn selectors_in_words() {
        let selector = json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["x", "y"]}, {"key": "n", "operator": "DoesNotExist"},
        ]});
        assert_eq!(selector_text(&selector), "a=1,b=2,k in (x,y),!n");
    }
}
