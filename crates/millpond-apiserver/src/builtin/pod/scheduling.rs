//! Validates the scheduling constraints of a pod: affinity, spread, tolerations, gates.

use std::collections::HashSet;

use serde_json::Value;

use crate::builtin::check::{self, Errors, ReportError};
use crate::builtin::json::Fields;
use crate::builtin::path::Path;
use crate::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Node affinity, pod affinity and pod anti-affinity.
pub(super) fn affinity(affinity: &Value, path: Path<'_>, errors: &mut Errors) {
    let node = affinity.at("nodeAffinity");
    let node_path = path.child("nodeAffinity");
    if node.has(REQUIRED) {
        node_selector(node.at(REQUIRED), node_path.child(REQUIRED), errors);
    }
    for (index, term) in node.items(PREFERRED).iter().enumerate() {
        let list = node_path.child(PREFERRED);
        let place = list.index(index);
        weight(term, place, errors);
        node_selector_term(term.at("preference"), false, place.child("preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let rules = affinity.at(kind);
        let rules_path = path.child(kind);
        for (index, term) in rules.items(REQUIRED).iter().enumerate() {
            pod_term(term, rules_path.child(REQUIRED).index(index), errors);
        }
        for (index, weighted) in rules.items(PREFERRED).iter().enumerate() {
            let list = rules_path.child(PREFERRED);
            let place = list.index(index);
            weight(weighted, place, errors);
            pod_term(weighted.at("podAffinityTerm"), place.child("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Value, path: Path<'_>, errors: &mut Errors) {
    let weight = term.number("weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.invalid(path.child("weight"), weight, "must be in the range 1-100");
    }
}

/// Terms of which a node must fulfil one.
pub(in crate::builtin) fn node_selector(selector: &Value, path: Path<'_>, errors: &mut Errors) {
    let list = path.child("nodeSelectorTerms");
    let terms = selector.items("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(list, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_selector_term(term, true, list.index(index), errors);
    }
}

fn node_selector_term(term: &Value, strict_values: bool, path: Path<'_>, errors: &mut Errors) {
    for (index, requirement) in term.items("matchExpressions").iter().enumerate() {
        node_requirement(requirement, strict_values, path.child("matchExpressions").index(index), errors);
    }
    for (index, requirement) in term.items("matchFields").iter().enumerate() {
        node_field_requirement(requirement, path.child("matchFields").index(index), errors);
    }
}

fn node_requirement(requirement: &Value, strict_values: bool, path: Path<'_>, errors: &mut Errors) {
    let values = requirement.items("values");
    let place = path.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(place, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(place, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(place, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
    }
    let key = requirement.text("key");
    errors.each(path.child("key"), key, names::label_key_problems(key));
    if strict_values {
        for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
            errors.each(place.index(index), value, names::label_value_problems(value));
        }
    }
}

fn node_field_requirement(requirement: &Value, path: Path<'_>, errors: &mut Errors) {
    let values = requirement.items("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => errors.required(
            path.child("values"),
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
    }
    let key = requirement.text("key");
    if key != "metadata.name" {
        errors.invalid(path.child("key"), key, "not a valid field selector key");
        return;
    }
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        errors.each(path.child("values").index(index), value, names::subdomain_problems(value));
    }
}

fn pod_term(term: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in ["labelSelector", "namespaceSelector"] {
        check::label_selector(term.at(field), path.child(field), errors);
    }
    for namespace in term.items("namespaces").iter().filter_map(Value::as_str) {
        errors.each(path.child("namespace"), namespace, names::label_problems(namespace));
    }
    label_keys(term, path, errors);
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(path.child("topologyKey"), "can not be empty");
    }
    errors.each(path.child("topologyKey"), key, names::label_key_problems(key));
}

/// `matchLabelKeys` and `mismatchLabelKeys`, whose requirements are already merged into the selector.
fn label_keys(term: &Value, path: Path<'_>, errors: &mut Errors) {
    let keys = |field: &str| -> Vec<String> {
        term.items(field).iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let (matching, mismatching) = (keys("matchLabelKeys"), keys("mismatchLabelKeys"));
    for (field, list) in [("matchLabelKeys", &matching), ("mismatchLabelKeys", &mismatching)] {
        if !list.is_empty() && !term.has("labelSelector") {
            errors.forbidden(path.child(field), "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in list.iter().enumerate() {
            errors.each(path.child(field).index(index), key, names::label_key_problems(key));
        }
    }
    let selector = term.at("labelSelector");
    let mut selected: HashSet<&str> = selector.entries("matchLabels").map(|(key, _)| key).collect();
    for requirement in selector.items("matchExpressions") {
        let key = requirement.text("key");
        if let Some(index) = matching.iter().rposition(|other| other == key)
            && selected.contains(key)
        {
            errors.invalid(path.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
        selected.insert(key);
    }
    for (index, key) in matching.iter().enumerate().filter(|(_, key)| mismatching.contains(key)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.invalid(path.child("matchLabelKeys").index(index), key.as_str(), detail);
    }
}

/// Gates that hold a pod back.
pub(super) fn gates(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, gate) in spec.items("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        errors.each(path.index(index), name, names::label_key_problems(name));
        if !seen.insert(name) {
            errors.duplicate(path.index(index), name);
        }
    }
}

/// How evenly pods are spread.
pub(super) fn spread(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let constraints = spec.items("topologySpreadConstraints");
    for (index, constraint) in constraints.iter().enumerate() {
        let place = path.index(index);
        let skew = constraint.number("maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.invalid(place.child("maxSkew"), skew, "must be greater than zero");
        }
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(place.child("topologyKey"), "can not be empty");
        }
        errors.one_of(place.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        let repeated = |other: &Value| other.text("topologyKey") == key && other.text("whenUnsatisfiable") == action;
        if constraints[index + 1..].iter().any(repeated) {
            errors.duplicate(place.child("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint.number("minDomains") {
            if domains <= 0 {
                errors.invalid(place.child("minDomains"), domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(place.child("minDomains"), domains, detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"].into_iter().filter(|field| constraint.has(field)) {
            errors.one_of(place.child(field), constraint.text(field), &["Honor", "Ignore"]);
        }
        label_keys(constraint, place, errors);
        check::label_selector(constraint.at("labelSelector"), place.child("labelSelector"), errors);
    }
}

/// Taints that a pod bears.
pub(in crate::builtin) fn tolerations(tolerations: &[Value], path: Path<'_>, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let place = path.index(index);
        let (key, operator, effect) = (toleration.text("key"), toleration.text("operator"), toleration.text("effect"));
        if key.is_empty() {
            if operator != "Exists" {
                let detail =
                    "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
                errors.invalid(place.child("operator"), operator, detail);
            }
        } else {
            errors.each(place.child("key"), key, names::label_key_problems(key));
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(place.child("effect"), effect, detail);
        }
        let value = toleration.text("value");
        match operator {
            "Equal" | "" => {
                let problems = names::label_value_problems(value);
                if !problems.is_empty() {
                    errors.invalid(place.child("operator"), value, problems.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(place.child("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => errors.not_supported(place.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]),
            other => errors.not_supported(place.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            taint_effect(effect, place.child("effect"), errors);
        }
    }
}

/// Checks the effect of a taint.
pub(in crate::builtin) fn taint_effect(effect: &str, path: Path<'_>, errors: &mut Errors) {
    errors.one_of(path, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
}
