//! LimitRange and ResourceQuota.

use std::collections::BTreeSet;

use serde_json::Value;

use super::check::{Errors, ReportError, quantity};
use super::hooks::{self, PLAIN, UPSERTED};
use super::json::{Fields, Fill};
use super::path::Path;
use super::pod::{amount_value, container_resource_name, may_overcommit, resource_name};
use super::shape;
use crate::names;
use crate::quantity::Quantity;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");

/// LimitRange.
pub(super) const LIMIT_RANGE: BuiltinKind = BuiltinKind { validate: validate_limit_range, ..UPSERTED };

/// ResourceQuota.
pub(super) const RESOURCE_QUOTA: BuiltinKind = BuiltinKind {
    prepare_create: |quota| {
        shape::preparing(quota, |quota| {
            quota.drop("status");
        });
    },
    prepare_update: hooks::keep_status,
    validate: validate_quota,
    validate_status: |new, _| {
        let mut errors = Errors::new();
        let status = Path::root("status");
        for field in ["hard", "used"] {
            quota_amounts(new.at("status"), field, status.child(field), &mut errors);
        }
        errors
    },
    ..PLAIN
};

fn validate_limit_range(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = SPEC.child("limits");
    let mut kinds = BTreeSet::new();
    for (index, limit) in new.at("spec").items("limits").iter().enumerate() {
        let place = path.index(index);
        let kind = limit.text("type");
        limit_type(kind, place.child("type"), &mut errors);
        if !kinds.insert(kind) {
            errors.duplicate(place.child("type"), kind);
        }
        limit_names(limit, place, &mut errors);
        for name in limited_names(limit) {
            limit_amounts(limit, &name, place, &mut errors);
        }
    }
    errors
}

fn limit_type(kind: &str, path: Path<'_>, errors: &mut Errors) {
    let problems = names::label_key_problems(kind);
    if problems.is_empty() && !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
        errors.invalid(path, kind, "must be a standard limit type or fully qualified");
    }
    errors.each(path, kind, problems);
}

/// Sides of a limit that count for its type.
fn sides(limit: &Value) -> &'static [&'static str] {
    if limit.text("type") == "Pod" {
        &["max", "min", "maxLimitRequestRatio"]
    } else {
        &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    }
}

fn limited_names(limit: &Value) -> BTreeSet<String> {
    sides(limit).iter().flat_map(|side| limit.entries(side)).map(|(name, _)| name.to_owned()).collect()
}

fn limit_names(limit: &Value, path: Path<'_>, errors: &mut Errors) {
    let of_containers = matches!(limit.text("type"), "Pod" | "Container");
    for side in sides(limit) {
        for (name, _) in limit.entries(side) {
            let place = path.child(side);
            if of_containers {
                container_resource_name(name, place.key(name), errors);
            } else {
                resource_name(name, place.key(name), errors);
            }
        }
    }
    for side in ["default", "defaultRequest"] {
        if limit.text("type") == "Pod" && limit.entries(side).next().is_some() {
            errors.forbidden(path.child(side), "may not be specified when `type` is 'Pod'");
        }
    }
    let has_storage = ["min", "max"].iter().any(|side| limit.at(side).has("storage"));
    if limit.text("type") == "PersistentVolumeClaim" && !has_storage {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(path.child("limits"), detail);
    }
}

fn limit_amounts(limit: &Value, name: &str, path: Path<'_>, errors: &mut Errors) {
    let of_pod = limit.text("type") == "Pod";
    let get = |side: &str| quantity(limit.at(side).at(name));
    let given = |side: &str| if of_pod { None } else { get(side) };
    let (min, max, ratio) = (get("min"), get("max"), get("maxLimitRequestRatio"));
    let (default, request) = (given("default"), given("defaultRequest"));
    let mut ordered =
        |low: &Option<Quantity>, high: &Option<Quantity>, side: &str, shown: &Option<Quantity>, words: [&str; 2]| {
            if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
                && low > high
                && !low.same_amount(high)
            {
                let detail = format!("{} value {low} is greater than {} value {high}", words[0], words[1]);
                errors.invalid(path.child(side).key(name), shown.canonical(), detail);
            }
        };
    ordered(&min, &max, "min", &min, ["min", "max"]);
    ordered(&min, &request, "defaultRequest", &request, ["min", "default request"]);
    ordered(&request, &max, "defaultRequest", &request, ["default request", "max"]);
    ordered(&request, &default, "defaultRequest", &request, ["default request", "default limit"]);
    ordered(&min, &default, "default", &min, ["min", "default"]);
    ordered(&default, &max, "default", &max, ["default", "max"]);
    if let Some(ratio) = ratio {
        limit_ratio(&ratio, min.as_ref(), max.as_ref(), path.child("maxLimitRequestRatio").key(name), errors);
    }
    if let (Some(default), Some(request)) = (&default, &request)
        && !may_overcommit(name)
        && !default.same_amount(request)
    {
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        errors.invalid(path.child("defaultRequest").key(name), request.canonical(), detail);
    }
}

fn limit_ratio(ratio: &Quantity, min: Option<&Quantity>, max: Option<&Quantity>, path: Path<'_>, errors: &mut Errors) {
    if ratio.milli() < 1000 {
        errors.invalid(path, ratio.canonical(), format!("ratio {ratio} is less than 1"));
    }
    if let (Some(min), Some(max)) = (min, max) {
        let limit = max.milli() as f64 / min.milli() as f64;
        if ratio.milli() as f64 / 1000.0 > limit {
            let detail = format!("ratio {ratio} is greater than max/min = {limit:.6}");
            errors.invalid(path, ratio.canonical(), detail);
        }
    }
}

/// Resources without a domain that a quota can count.
const QUOTA_RESOURCES: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
    "storage",
];

fn quota_amounts(owner: &Value, field: &str, path: Path<'_>, errors: &mut Errors) {
    for (name, amount) in owner.entries(field) {
        let place = path.key(name);
        resource_name(name, place, errors);
        let counted = QUOTA_RESOURCES[..19].contains(&name)
            || name.starts_with("requests.hugepages-")
            || name.starts_with("hugepages-");
        if !name.contains('/') && !counted {
            errors.invalid(place, name, "must be a standard resource for quota");
        }
        amount_value(name, amount, place, errors);
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

fn validate_quota(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    quota_amounts(spec, "hard", SPEC.child("hard"), &mut errors);
    let scopes: BTreeSet<&str> = spec.items("scopes").iter().filter_map(Value::as_str).collect();
    let path = SPEC.child("scopes");
    for _ in scopes.iter().filter(|scope| !SCOPES.contains(scope)) {
        errors.invalid(path, spec.at("scopes").clone(), "unsupported scope");
    }
    let counts_pods_only = scopes.contains("BestEffort");
    let others = |(name, _): &(&str, &Value)| *name != "pods" && QUOTA_RESOURCES.contains(name);
    for _ in spec.entries("hard").filter(|entry| counts_pods_only && others(entry)) {
        errors.invalid(path, spec.at("scopes").clone(), "unsupported scope applied to resource");
    }
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(path, spec.at("scopes").clone(), "conflicting scopes");
        }
    }
    scope_selector(spec, &mut errors);
    if let Some(old) = old {
        let before: BTreeSet<&str> = old.at("spec").items("scopes").iter().filter_map(Value::as_str).collect();
        if before != scopes {
            errors.invalid(path, spec.at("scopes").clone(), super::check::IMMUTABLE);
        }
    }
    errors
}

fn scope_selector(spec: &Value, errors: &mut Errors) {
    let selector = SPEC.child("scopeSelector");
    let path = selector.child("matchExpressions");
    for requirement in spec.at("scopeSelector").items("matchExpressions") {
        let (scope, operator) = (requirement.text("scopeName"), requirement.text("operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(path.child("scopeName"), scope, "unsupported scope");
        }
        let fixed = ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"]
            .contains(&scope);
        if fixed && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(path.child("operator"), operator, detail);
        }
        let values = requirement.items("values");
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.required(
                path.child("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.invalid(
                path.child("values"),
                requirement.at("values").clone(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
    }
}
