//! Event, in both of its groups.

use serde_json::Value;

use super::check::{Errors, ReportError};
use super::conversion;
use super::hooks::UPSERTED;
use super::json::Fields;
use super::path::Path;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

/// Event of the core group.
pub(super) const CORE: BuiltinKind = BuiltinKind {
    validate: |new, _| {
        let mut errors = Errors::new();
        common(new, "involvedObject", "reportingComponent", "message", &mut errors);
        errors
    },
    ..UPSERTED
};

/// Event of `events.k8s.io`, which is stricter.
pub(super) const NEW: BuiltinKind =
    BuiltinKind { conversion: Some(conversion::EVENT), validate: validate_new, ..UPSERTED };

/// Longest texts.
const MAX_SHORT: usize = 128;
const MAX_NOTE: usize = 1024;

fn common(event: &Value, object: &str, controller: &str, note: &str, errors: &mut Errors) {
    let namespace = event.at("metadata").text("namespace");
    let about = event.at(object).text("namespace");
    let path = Path::root("involvedObject");
    let mismatch = "does not match event.namespace";
    if event.at("eventTime").is_null() {
        let agrees = if about.is_empty() { matches!(namespace, "" | "default") } else { namespace == about };
        if !agrees {
            errors.invalid(path.child("namespace"), about, mismatch);
        }
    } else {
        if about.is_empty() && !matches!(namespace, "default" | "kube-system") {
            errors.invalid(path.child("namespace"), about, mismatch);
        }
        reporter(event, controller, note, errors);
    }
    errors.each(Path::root("namespace"), namespace, names::subdomain_problems(namespace));
}

fn reporter(event: &Value, controller: &str, note: &str, errors: &mut Errors) {
    let name = event.text(controller);
    if name.is_empty() {
        errors.required(Path::root(controller), "");
    }
    errors.each(Path::root(controller), name, names::label_key_problems(name));
    for field in ["reportingInstance", "action", "reason"] {
        if event.text(field).is_empty() {
            errors.required(Path::root(field), "");
        }
        if event.text(field).len() > MAX_SHORT {
            errors.invalid(Path::root(field), "", format!("can have at most {MAX_SHORT} characters"));
        }
    }
    if event.text(note).len() > MAX_NOTE {
        errors.invalid(Path::root("message"), "", format!("can have at most {MAX_NOTE} characters"));
    }
}

fn validate_new(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    common(new, "regarding", "reportingController", "note", &mut errors);
    if old.is_none_or(|old| old.at("series") != new.at("series")) {
        series(new, &mut errors);
    }
    match old {
        Some(old) => unchanged(new, old, &mut errors),
        None => fresh(new, &mut errors),
    }
    errors
}

fn series(event: &Value, errors: &mut Errors) {
    let series = event.at("series");
    if !series.is_object() {
        return;
    }
    if series.number("count").unwrap_or_default() < 2 {
        errors.invalid(Path::root("series.count"), "", "should be at least 2");
    }
    if series.at("lastObservedTime").is_null() {
        errors.required(Path::root("series.lastObservedTime"), "");
    }
}

fn fresh(event: &Value, errors: &mut Errors) {
    if event.at("eventTime").is_null() {
        errors.required(Path::root("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(Path::root("type"), "", format!("has invalid value: {kind}"));
    }
    for (field, shown) in [("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp")]
    {
        if event.has(field) {
            errors.invalid(Path::root(shown), "", "needs to be unset");
        }
    }
    if event.number("deprecatedCount").unwrap_or_default() != 0 {
        errors.invalid(Path::root("count"), "", "needs to be unset");
    }
    let source = event.at("deprecatedSource");
    if !source.text("component").is_empty() || !source.text("host").is_empty() {
        errors.invalid(Path::root("source"), "", "needs to be unset");
    }
}

/// Once told, an event only counts how often it happens again.
fn unchanged(new: &Value, old: &Value, errors: &mut Errors) {
    for (field, shown) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        errors.immutable(Path::root(shown), new.at(field), old.at(field));
    }
}
