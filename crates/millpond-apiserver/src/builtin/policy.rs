//! PodDisruptionBudget, PriorityClass, Lease and RuntimeClass.

use serde_json::Value;

use super::check::{self, Errors, ReportError};
use super::hooks::{self, CAUTIOUS, LEASE as LEASE_HOOKS, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::pod::{overhead, tolerations};
use crate::meta::validate_labels;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
/// Priorities above are the system's own.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
/// Priority classes that the system brings along.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// PodDisruptionBudget.
pub(super) const DISRUPTION_BUDGET: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: hooks::keep_status_and_count_spec,
    validate: validate_budget,
    validate_status: |new, _| {
        let mut errors = Errors::new();
        let status = Path::root("status");
        check::conditions(new.at("status"), status.child("conditions"), &mut errors);
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            errors.not_negative(status.child(field), new.at("status").number(field));
        }
        errors
    },
    ..CAUTIOUS
};

/// PriorityClass.
pub(super) const PRIORITY_CLASS: BuiltinKind = BuiltinKind {
    prepare_create: |class| {
        class.object("metadata").put("generation", 1.into());
    },
    validate: validate_priority_class,
    ..PLAIN
};

/// Lease.
pub(super) const LEASE: BuiltinKind = BuiltinKind {
    prepare_create: |lease| drop_election_fields(lease, None),
    prepare_update: |new, old| drop_election_fields(new, Some(old)),
    validate: |new, _| {
        let mut errors = Errors::new();
        let spec = new.at("spec");
        if let Some(seconds) = spec.number("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
            errors.invalid(SPEC.child("leaseDurationSeconds"), seconds, "must be greater than 0");
        }
        errors.not_negative(SPEC.child("leaseTransitions"), spec.number("leaseTransitions"));
        errors
    },
    ..LEASE_HOOKS
};

/// RuntimeClass.
pub(super) const RUNTIME_CLASS: BuiltinKind = BuiltinKind { validate: validate_runtime_class, ..LEASE_HOOKS };

/// Fields of a feature that is off by default.
fn drop_election_fields(lease: &mut Value, old: Option<&Value>) {
    for field in ["strategy", "preferredHolder"] {
        if old.is_none_or(|old| !old.at("spec").has(field)) {
            lease.object("spec").drop(field);
        }
    }
}

fn validate_budget(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        errors.invalid(SPEC, spec.clone(), "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"].into_iter().filter(|field| spec.has(field)) {
        check::positive_int_or_percent(spec.at(field), SPEC.child(field), &mut errors);
        check::not_more_than_100_percent(spec.at(field), SPEC.child(field), &mut errors);
    }
    check::label_selector(spec.at("selector"), SPEC.child("selector"), &mut errors);
    if spec.has("unhealthyPodEvictionPolicy") {
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        let path = SPEC.child("unhealthyPodEvictionPolicy");
        errors.one_of(path, spec.text("unhealthyPodEvictionPolicy"), &policies);
    }
    errors
}

fn validate_priority_class(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let value = new.number("value").unwrap_or_default();
    if let Some(old) = old {
        if old.number("value").unwrap_or_default() != value {
            errors.forbidden(Path::root("value"), "may not be changed in an update.");
        }
        let field = "preemptionPolicy";
        errors.immutable(Path::root(field), new.at(field), old.at(field));
        return errors;
    }
    let name = new.at("metadata").text("name");
    if name.starts_with("system-") {
        if let Some(problem) = system_class_problem(name, value, new.flag("globalDefault")) {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
            );
            errors.forbidden(Path::root("metadata").child("name"), detail);
        }
    } else if value > HIGHEST_USER_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        errors.forbidden(Path::root("value"), detail);
    }
    if new.has("preemptionPolicy") {
        let policies = ["PreemptLowerPriority", "Never"];
        errors.required_one_of(Path::root("preemptionPolicy"), new.text("preemptionPolicy"), &policies);
    }
    errors
}

fn system_class_problem(name: &str, value: i64, global: bool) -> Option<String> {
    match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, expected)) if *expected != value => Some(format!("value of {name} PriorityClass must be {expected}")),
        Some(_) if global => Some(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => None,
    }
}

fn validate_runtime_class(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let handler = new.text("handler");
    if let Some(old) = old {
        errors.immutable(Path::root("handler"), new.at("handler"), old.at("handler"));
        return errors;
    }
    if handler.is_empty() {
        errors.required(Path::root("handler"), "");
    } else {
        errors.each(Path::root("handler"), handler, names::label_problems(handler));
    }
    overhead(new.at("overhead").at("podFixed"), Path::root("overhead"), &mut errors);
    let scheduling = Path::root("scheduling");
    let rules = new.at("scheduling");
    validate_labels(rules.at("nodeSelector"), &scheduling.child("nodeSelector"), &mut errors);
    tolerations(rules.items("tolerations"), scheduling.child("tolerations"), &mut errors);
    errors
}
