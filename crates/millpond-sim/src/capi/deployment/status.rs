//! The status of a MachineDeployment.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use millpond_api::capi::{self, Phase};
use millpond_controllers::kinds::{Machine, MachineDeployment, MachineSet};
use serde_json::{Value, json};

use super::super::conditions::{Answer, Conditions, find};
use super::super::machine_set::status::{self as shared, MissingTemplates};
use super::super::{number, put};
use super::sets::limits;
use crate::meta::is_leaving;

/// The inputs of a status.
pub struct Facts<'a> {
    /// The deployment.
    pub deployment: &'a MachineDeployment,
    /// Its sets.
    pub sets: Vec<&'a MachineSet>,
    /// The one with the current template.
    pub new: Option<&'a MachineSet>,
    /// Its Machines.
    pub machines: &'a [Arc<Machine>],
    /// Templates that are not there.
    pub missing: &'a MissingTemplates,
    /// The time.
    pub now: Time,
}

/// The status.
pub fn compute(facts: &Facts<'_>) -> Value {
    let view = capi::Deployment::of(&facts.deployment.spec);
    let mut status = facts.deployment.status.clone();
    if !status.is_object() {
        status = json!({});
    }
    status["observedGeneration"] = json!(facts.deployment.metadata.generation);
    status["selector"] = json!(shared::selector_text(&facts.deployment.spec["selector"]));
    for counter in ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"] {
        if let Some(count) = sum(&facts.sets, &[counter]) {
            status[counter] = json!(count);
        }
    }
    let deleting = is_leaving(facts.deployment);
    let actual = sum(&facts.sets, &["replicas"]).unwrap_or_default();
    status["phase"] = json!(Phase::compute(view.replicas, actual, deleting).name());
    put(&mut status, &["deprecated", "v1beta1"], older_counters(facts));
    let mut conditions = Conditions::of(&status, facts.deployment.metadata.generation, &facts.now);
    conditions.set("Paused", Answer::False, "NotPaused", "");
    set_available(&mut conditions, &view, number(&status, &["availableReplicas"]), deleting);
    set_rolling_out(&mut conditions, facts.machines);
    shared::set_scaling(&mut conditions, view.replicas, actual, deleting, facts.missing);
    shared::set_machines(&mut conditions, facts.machines);
    shared::set_remediating(&mut conditions, facts.machines);
    shared::set_deleting(&mut conditions, deleting, facts.machines.len(), facts.sets.len());
    status["conditions"] = conditions.into_value();
    status
}

/// The sum of a counter over all sets; `None` if no set has it.
fn sum(sets: &[&MachineSet], path: &[&str]) -> Option<i64> {
    sets.iter().filter_map(|set| number(&set.status, path)).reduce(|a, b| a + b)
}

/// Counters as v1beta1 has them: by nodes instead of by conditions of Machines.
fn older_counters(facts: &Facts<'_>) -> Value {
    let of_sets = |counter: &str| sum(&facts.sets, &["deprecated", "v1beta1", counter]).unwrap_or_default();
    let wanted: i64 = facts.sets.iter().filter_map(|set| number(&set.spec, &["replicas"])).sum();
    let updated = facts.new.and_then(|set| number(&set.status, &["replicas"])).unwrap_or_default();
    let available = of_sets("availableReplicas");
    json!({
        "updatedReplicas": updated,
        "readyReplicas": of_sets("readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": (wanted - available).max(0),
    })
}

fn set_available(conditions: &mut Conditions, view: &capi::Deployment, available: Option<i64>, deleting: bool) {
    let (Some(replicas), Some(available)) = (view.replicas, available) else {
        let message = "Waiting for status.availableReplicas set";
        return conditions.set("Available", Answer::Unknown, "WaitingForAvailableReplicasSet", message);
    };
    let limits = limits(view);
    let least = replicas - limits.max_unavailable();
    if available >= least {
        return conditions.set("Available", Answer::True, "Available", "");
    }
    let mut message = format!("{available} available replicas, at least {least} required");
    if let capi::Strategy::RollingUpdate { max_unavailable, .. } = view.strategy {
        let written = match max_unavailable {
            capi::IntOrPercent::Count(count) => count.to_string(),
            capi::IntOrPercent::Percent(percent) => format!("{percent}%"),
        };
        message += &format!(" (spec.strategy.rollout.maxUnavailable is {written}, spec.replicas is {replicas})");
    }
    if deleting {
        "Deletion in progress".clone_into(&mut message);
    }
    conditions.set("Available", Answer::False, "NotAvailable", message);
}

fn set_rolling_out(conditions: &mut Conditions, machines: &[Arc<Machine>]) {
    let outdated: Vec<_> = machines
        .iter()
        .filter_map(|machine| find(&machine.status, "UpToDate"))
        .filter(|condition| condition.status == "False")
        .collect();
    if outdated.is_empty() {
        return conditions.set("RollingOut", Answer::False, "NotRollingOut", "");
    }
    let reasons: BTreeSet<&str> = outdated.iter().flat_map(|condition| condition.message.lines()).collect();
    let mut lines = vec![format!("Rolling out {} not up-to-date replicas", outdated.len())];
    lines.extend(reasons.into_iter().map(str::to_owned));
    conditions.set("RollingOut", Answer::True, "RollingOut", lines.join("\n"));
}

/// Whether every Machine that is wanted is there, up to date and available, and no other.
pub fn is_complete(deployment: &MachineDeployment, status: &Value) -> bool {
    let wanted = number(&deployment.spec, &["replicas"]);
    let generation = deployment.metadata.generation.unwrap_or_default();
    number(status, &["observedGeneration"]).unwrap_or_default() >= generation
        && ["replicas", "upToDateReplicas", "availableReplicas"]
            .into_iter()
            .all(|counter| wanted == Some(number(status, &[counter]).unwrap_or_default()))
}

/// The status of a deployment that is to be left alone.
pub fn paused(deployment: &MachineDeployment, now: &Time) -> Value {
    shared::paused(&deployment.status, deployment.metadata.generation, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: i64, status: &Value) -> MachineSet {
        serde_json::from_value(json!({
            "metadata": {"name": "s"}, "spec": {"replicas": replicas}, "status": status,
        }))
        .expect("a set")
    }

    fn deployment(replicas: i64) -> MachineDeployment {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "generation": 4},
            "spec": {"clusterName": "c", "replicas": replicas, "selector": {"matchLabels": {"b": "2", "a": "1"}}},
        }))
        .expect("a deployment")
    }

    fn check(replicas: i64, sets: &[MachineSet]) -> Value {
        let deployment = deployment(replicas);
        let facts = Facts {
            deployment: &deployment,
            sets: sets.iter().collect(),
            new: sets.last(),
            machines: &[],
            missing: &MissingTemplates::default(),
            now: Time("2026-01-01T00:00:00Z".parse().expect("a time")),
        };
        compute(&facts)
    }

    fn answers(status: &Value, kind: &str) -> (String, String) {
        let condition = find(status, kind).expect("a condition");
        (condition.status, condition.reason)
    }

    #[test]
    fn counters_are_sums_and_the_phase_compares_counts() {
        let status = |replicas: i64, ready: i64| {
            json!({"replicas": replicas, "readyReplicas": ready, "availableReplicas": ready, "upToDateReplicas": ready,
                "deprecated": {"v1beta1": {"readyReplicas": ready, "availableReplicas": ready}}})
        };
        let got = check(3, &[set(2, &status(2, 2)), set(1, &status(1, 0))]);
        assert_eq!(got["selector"], "a=1,b=2");
        assert_eq!((&got["replicas"], &got["readyReplicas"], &got["phase"]), (&json!(3), &json!(2), &json!("Running")));
        assert_eq!(
            got["deprecated"]["v1beta1"],
            json!({"updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 2, "unavailableReplicas": 1})
        );
        assert_eq!(answers(&got, "Available"), ("False".to_owned(), "NotAvailable".to_owned()));
        for (wanted, phase, up, down) in
            [(5, "ScalingUp", "True", "False"), (2, "ScalingDown", "False", "True"), (3, "Running", "False", "False")]
        {
            let got = check(wanted, &[set(3, &status(3, 3))]);
            assert_eq!(got["phase"], phase);
            assert_eq!((answers(&got, "ScalingUp").0.as_str(), answers(&got, "ScalingDown").0.as_str()), (up, down));
        }
    }

    #[test]
    fn complete_means_all_of_them() {
        let done = json!({"observedGeneration": 4, "replicas": 2, "upToDateReplicas": 2, "availableReplicas": 2});
        assert!(is_complete(&deployment(2), &done));
        assert!(!is_complete(&deployment(3), &done));
        for (key, value) in [("observedGeneration", 3), ("replicas", 3), ("upToDateReplicas", 1)] {
            let mut other = done.clone();
            other[key] = json!(value);
            assert!(!is_complete(&deployment(2), &other), "{key}");
        }
    }
}
