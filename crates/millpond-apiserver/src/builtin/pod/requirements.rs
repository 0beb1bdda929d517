//! Requests and limits.

use std::collections::HashSet;

use serde_json::Value;

use crate::builtin::check::{Errors, NOT_NEGATIVE, ReportError, quantity};
use crate::builtin::json::Fields;
use crate::builtin::path::Path;
use crate::builtin::resources;
use crate::names;
use crate::quantity::Quantity;

/// Resources without a domain that mean something to Kubernetes.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Requests and limits of a container.
pub(super) fn of_container(resources: &Value, claims: &HashSet<String>, path: Path<'_>, errors: &mut Errors) {
    amounts(resources, container_resource_name, path, errors);
    claim_names(resources, claims, path.child("claims"), errors);
}

/// Overhead of a pod, checked as limits are.
pub(in crate::builtin) fn overhead(overhead: &Value, path: Path<'_>, errors: &mut Errors) {
    let as_limits = serde_json::json!({"limits": overhead});
    amounts(&as_limits, container_resource_name, path, errors);
}

/// Requests and limits of a pod as a whole.
pub(super) fn whole_pod(spec: &Value, spec_path: Path<'_>, errors: &mut Errors) {
    let own = spec.at("resources");
    if !own.is_object() {
        return;
    }
    let path = spec_path.child("resources");
    if spec.at("os").text("name") == "windows" {
        errors.forbidden(path, "may not be set for a windows pod");
        return;
    }
    if own.has("claims") {
        errors.forbidden(path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    amounts(own, pod_resource_name, path, errors);
    fits_containers(spec, path, errors);
}

fn fits_containers(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let own = spec.at("resources");
    for (side, only_huge_pages) in [("requests", false), ("limits", true)] {
        for (name, sum) in resources::aggregate(spec, side) {
            if only_huge_pages && !is_huge_page(&name) {
                continue;
            }
            let (Some(sum), Some(given)) = (quantity(&sum), quantity(own.at(side).at(&name))) else { continue };
            if sum > given && !sum.same_amount(&given) {
                let detail = format!("must be greater than or equal to aggregate container {side} of {sum}");
                errors.invalid(path.child(side).key(&name), given.canonical(), detail);
            }
        }
    }
    for (index, container) in spec.items("containers").iter().enumerate() {
        for (name, limit) in container.at("resources").entries("limits") {
            let (Some(limit), Some(given)) = (quantity(limit), quantity(own.at("limits").at(name))) else { continue };
            if limit > given && !limit.same_amount(&given) {
                let list = path.child("containers");
                let detail = format!("must be less than or equal to pod limits of {given}");
                errors.invalid(list.index(index).key(name).child("limits"), limit.canonical(), detail);
            }
        }
    }
}

type NameCheck = fn(&str, Path<'_>, &mut Errors);

fn amounts(resources: &Value, name_check: NameCheck, path: Path<'_>, errors: &mut Errors) {
    let limits_path = path.child("limits");
    let requests_path = path.child("requests");
    for (name, amount) in resources.entries("limits") {
        amount_of(name, amount, name_check, limits_path.key(name), errors);
    }
    for (name, amount) in resources.entries("requests") {
        let place = requests_path.key(name);
        name_check(name, place, errors);
        amount_value(name, amount, place, errors);
        let limit = resources.at("limits").at(name);
        compare(name, amount, limit, &limits_path, &requests_path, errors);
        huge_pages(name, amount, place, errors);
    }
    let has = |test: fn(&str) -> bool| {
        ["limits", "requests"].into_iter().any(|side| resources.entries(side).any(|(name, _)| test(name)))
    };
    if has(is_huge_page) && !has(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn amount_of(name: &str, amount: &Value, name_check: NameCheck, path: Path<'_>, errors: &mut Errors) {
    name_check(name, path, errors);
    amount_value(name, amount, path, errors);
    huge_pages(name, amount, path, errors);
}

/// An amount that is not negative, and whole for resources that cannot be divided.
pub(in crate::builtin) fn amount_value(name: &str, amount: &Value, path: Path<'_>, errors: &mut Errors) {
    let Some(amount) = quantity(amount) else { return };
    if amount.is_negative() {
        errors.invalid(path, amount.canonical(), NOT_NEGATIVE);
    }
    if is_integer(name) && amount.milli() % 1000 != 0 {
        errors.invalid(path, amount.canonical(), "must be an integer");
    }
}

fn compare(
    name: &str,
    request: &Value,
    limit: &Value,
    limits_path: &Path<'_>,
    requests_path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(request) = quantity(request) else { return };
    let Some(limit) = quantity(limit) else {
        if !may_overcommit(name) {
            errors.required(*limits_path, "Limit must be set for non overcommitable resources");
        }
        return;
    };
    if !request.same_amount(&limit) && !may_overcommit(name) {
        let detail = format!("must be equal to {name} limit of {limit}");
        errors.invalid(*requests_path, request.canonical(), detail);
    } else if request > limit && !request.same_amount(&limit) {
        let detail = format!("must be less than or equal to {name} limit of {limit}");
        errors.invalid(*requests_path, request.canonical(), detail);
    }
}

fn huge_pages(name: &str, amount: &Value, path: Path<'_>, errors: &mut Errors) {
    let Some(size) = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok()) else { return };
    let Some(amount) = quantity(amount) else { return };
    let (size, whole) = (size.whole(), amount.whole());
    if size <= 0 || whole % size != 0 {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        errors.invalid(path, amount.canonical(), detail);
    }
}

/// The name of a resource as such.
pub(in crate::builtin) fn resource_name(name: &str, path: Path<'_>, errors: &mut Errors) -> bool {
    let problems = names::label_key_problems(name);
    if !problems.is_empty() {
        errors.each(path, name, problems);
        return false;
    }
    if !name.contains('/') && !STANDARD.contains(&name) && !is_huge_page(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// The name of a resource that a container asks for.
pub(in crate::builtin) fn container_resource_name(name: &str, path: Path<'_>, errors: &mut Errors) {
    resource_name(name, path, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn pod_resource_name(name: &str, path: Path<'_>, errors: &mut Errors) {
    if resource_name(name, path, errors) && !resources::is_pod_level(name) {
        errors.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::label_key_problems(&format!("requests.{name}")).is_empty()
}

/// Whether more may be limited than requested.
pub(in crate::builtin) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Things that are counted, not measured.
fn is_integer(name: &str) -> bool {
    const COUNTED: [&str; 9] = [
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    COUNTED.contains(&name) || is_extended(name)
}

fn claim_names(resources: &Value, known: &HashSet<String>, path: Path<'_>, errors: &mut Errors) {
    let mut seen: HashSet<String> = HashSet::new();
    for (index, claim) in resources.items("claims").iter().enumerate() {
        let place = path.index(index);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(place, "");
            continue;
        }
        let request = claim.text("request");
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
        let parts_seen = || seen.iter().any(|other| other.split('/').next() == Some(name) && other.contains('/'));
        if seen.contains(name) {
            errors.duplicate(place, name);
        } else {
            if !request.is_empty() {
                errors.each(place.child("request"), request, names::label_problems(request));
            }
            if seen.contains(&key) {
                errors.duplicate(place, key.as_str());
            } else if request.is_empty() && parts_seen() {
                errors.duplicate(place, name);
            }
            seen.insert(key);
        }
        if !known.contains(name) {
            let mut list: Vec<&str> = known.iter().map(String::as_str).collect();
            list.sort_unstable();
            let rest = if list.is_empty() { " which is empty".to_owned() } else { format!(": {}", list.join(", ")) };
            errors.not_found(place, name, &format!("must be one of the names in pod.spec.resourceClaims{rest}"));
        }
    }
}
