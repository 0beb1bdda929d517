//! HorizontalPodAutoscaler, in both of its versions.

use serde_json::Value;

use super::check::{Errors, NOT_NEGATIVE, ReportError, quantity};
use super::hooks::{self, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::pod::container_resource_name;
use super::{conversion, shape};
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
/// Longest window and period.
const MAX_WINDOW_S: i64 = 3600;
const MAX_PERIOD_S: i64 = 1800;
const ONLY_ONE: &str = "must populate the given metric source only";

/// HorizontalPodAutoscaler of `autoscaling/v2`.
pub(super) const V2: BuiltinKind = BuiltinKind {
    prepare_create: |autoscaler| {
        shape::preparing(autoscaler, |autoscaler| {
            autoscaler.drop("status");
        });
    },
    prepare_update: hooks::keep_status,
    validate: |new, _| validate(new),
    validate_status: |new, _| {
        let mut errors = Errors::new();
        let status = Path::root("status");
        for field in ["currentReplicas", "desiredReplicas"] {
            errors.not_negative(status.child(field), new.at("status").number(field));
        }
        errors
    },
    ..PLAIN
};

/// HorizontalPodAutoscaler of `autoscaling/v1`.
pub(super) const V1: BuiltinKind = BuiltinKind {
    conversion: Some(conversion::AUTOSCALER),
    prepare_create: |autoscaler| {
        (V2.prepare_create)(autoscaler);
        // The percentage that is assumed where nothing is said shows in this version, too.
        round_trip(autoscaler);
    },
    prepare_update: |new, old| {
        hooks::keep_status(new, old);
        round_trip(new);
    },
    validate: |new, _| {
        let mut as_v2 = new.clone();
        (conversion::AUTOSCALER.to_storage)(&mut as_v2);
        validate(&as_v2)
    },
    ..V2
};

fn round_trip(autoscaler: &mut Value) {
    (conversion::AUTOSCALER.to_storage)(autoscaler);
    (conversion::AUTOSCALER.from_storage)(autoscaler);
}

fn validate(autoscaler: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = autoscaler.at("spec");
    let min = spec.number("minReplicas");
    let max = spec.number("maxReplicas").unwrap_or_default();
    if let Some(min) = min.filter(|min| *min < 1) {
        errors.invalid(SPEC.child("minReplicas"), min, "must be greater than or equal to 1");
    }
    if max == 0 {
        errors.required(SPEC.child("maxReplicas"), "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(SPEC.child("maxReplicas"), max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(SPEC.child("maxReplicas"), max, "must be greater than or equal to `minReplicas`");
    }
    reference(spec.at("scaleTargetRef"), false, SPEC.child("scaleTargetRef"), &mut errors);
    let list = SPEC.child("metrics");
    let metrics = spec.items("metrics");
    for (index, metric) in metrics.iter().enumerate() {
        metric_spec(metric, list.index(index), &mut errors);
    }
    let from_outside = metrics.iter().any(|metric| matches!(metric.text("type"), "Object" | "External"));
    if min == Some(0) && !from_outside {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(list, detail);
    }
    let behavior = SPEC.child("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.at("behavior").at(direction);
        if rules.is_object() {
            scaling_rules(rules, behavior.child(direction), &mut errors);
        }
    }
    errors
}

fn reference(reference: &Value, in_metric: bool, path: Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        let text = reference.text(field);
        if text.is_empty() {
            errors.required(path.child(field), "");
        } else {
            errors.each(path.child(field), text, names::path_segment_problems(text));
        }
    }
    let api_version = reference.text("apiVersion");
    let of_core_kind = api_version.is_empty() || !api_version.contains('/');
    if api_version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        errors.invalid(path.child("apiVersion"), api_version, detail);
    } else if of_core_kind && !in_metric && reference.text("kind") != "ReplicationController" {
        errors.invalid(path.child("apiVersion"), api_version, "apiVersion must specify API group");
    }
}

const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn metric_spec(metric: &Value, path: Path<'_>, errors: &mut Errors) {
    let kind = metric.text("type");
    let kinds = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    if kind.is_empty() {
        errors.required(path.child("type"), "must specify a metric source type");
    }
    errors.one_of(path.child("type"), kind, &kinds);
    let present: Vec<&str> = SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.has(field)).collect();
    if let Some(first) = present.first() {
        source(first, metric.at(first), path.child(first), errors);
    }
    let expected = SOURCES.iter().find(|(known, _)| *known == kind).map(|(_, field)| *field);
    match expected {
        Some(field) if !metric.has(field) => {
            errors.required(path.child(field), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => errors.not_supported(path.child("type"), kind, &kinds),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.forbidden(path.child(field), ONLY_ONE);
        }
    }
}

fn source(kind: &str, source: &Value, path: Path<'_>, errors: &mut Errors) {
    let target = source.at("target");
    let place = path.child("target");
    match kind {
        "object" => reference(source.at("describedObject"), true, path.child("describedObject"), errors),
        "containerResource" => {
            let name = source.text("name");
            if name.is_empty() {
                errors.required(path.child("name"), "must specify a resource name");
            } else {
                container_resource_name(name, path.child("name"), errors);
            }
            let container = source.text("container");
            if container.is_empty() {
                errors.required(path.child("container"), "must specify a container");
            } else {
                errors.each(path.child("container"), container, names::label_problems(container));
            }
        }
        "resource" if source.text("name").is_empty() => {
            errors.required(path.child("name"), "must specify a resource name");
        }
        _ => {}
    }
    if matches!(kind, "object" | "external" | "pods") {
        metric_name(source.at("metric"), path.child("metric"), errors);
    }
    metric_target(target, place, errors);
    let has = |field: &str| target.has(field);
    match kind {
        "object" if !has("value") && !has("averageValue") => {
            errors.required(place.child("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !has("value") && !has("averageValue") => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(place.child("averageValue"), detail);
        }
        "external" if has("value") && has("averageValue") => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(place.child("value"), detail);
        }
        "pods" if !has("averageValue") => {
            errors.required(place.child("averageValue"), "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(place.child("averageUtilization"), detail);
        }
        "resource" | "containerResource" if has("averageUtilization") && has("averageValue") => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(place.child("averageValue"), detail);
        }
        _ => {}
    }
}

fn metric_name(metric: &Value, path: Path<'_>, errors: &mut Errors) {
    let name = metric.text("name");
    if name.is_empty() {
        errors.required(path.child("name"), "must specify a metric name");
    } else {
        errors.each(path.child("name"), name, names::path_segment_problems(name));
    }
}

fn metric_target(target: &Value, path: Path<'_>, errors: &mut Errors) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.required(path.child("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(path.child("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        if let Some(amount) = quantity(target.at(field)).filter(|amount| amount.is_zero() || amount.is_negative()) {
            errors.invalid(path.child(field), amount.canonical(), "must be positive");
        }
    }
    if let Some(percent) = target.number("averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(path.child("averageUtilization"), percent, "must be greater than 0");
    }
}

fn scaling_rules(rules: &Value, path: Path<'_>, errors: &mut Errors) {
    let window = path.child("stabilizationWindowSeconds");
    match rules.number("stabilizationWindowSeconds") {
        Some(seconds) if seconds < 0 => errors.invalid(window, seconds, "must be greater than or equal to zero"),
        Some(seconds) if seconds > MAX_WINDOW_S => {
            errors.invalid(window, seconds, format!("must be less than or equal to {MAX_WINDOW_S}"));
        }
        _ => {}
    }
    if rules.has("selectPolicy") {
        errors.one_of(path.child("selectPolicy"), rules.text("selectPolicy"), &["Disabled", "Max", "Min"]);
    }
    let list = path.child("policies");
    let policies = rules.items("policies");
    if policies.is_empty() {
        errors.required(list, "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let place = list.index(index);
        errors.one_of(place.child("type"), policy.text("type"), &["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            let number = policy.number(field).unwrap_or_default();
            if number <= 0 {
                errors.invalid(place.child(field), number, "must be greater than zero");
            }
        }
        if let Some(seconds) = policy.number("periodSeconds").filter(|seconds| *seconds > MAX_PERIOD_S) {
            errors.invalid(
                place.child("periodSeconds"),
                seconds,
                format!("must be less than or equal to {MAX_PERIOD_S}"),
            );
        }
    }
    if let Some(tolerance) = quantity(rules.at("tolerance")).filter(crate::quantity::Quantity::is_negative) {
        errors.invalid(path.child("tolerance"), tolerance.canonical(), NOT_NEGATIVE);
    }
}
