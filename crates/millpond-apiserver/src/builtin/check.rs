//! Checks that many kinds share, with the words of the real API server.

use serde_json::Value;

use super::json::Fields;
use super::path::Path;
use crate::meta::{validate_annotations, validate_labels};
use crate::names;
use crate::quantity::Quantity;
use crate::status::{FieldError, FieldProblem};

/// The errors of an object.
pub(super) type Errors = Vec<FieldError>;

/// Values that may not change once they are set.
pub(super) const IMMUTABLE: &str = "field is immutable";
/// Numbers that count something.
pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Reports validation errors in few words.
pub(super) trait ReportError {
    fn report(&mut self, error: FieldError);

    fn required(&mut self, path: Path<'_>, detail: &str) {
        self.report(FieldError::required(path, detail));
    }

    fn invalid(&mut self, path: Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.report(FieldError::invalid(path, value, detail));
    }

    fn forbidden(&mut self, path: Path<'_>, detail: impl Into<String>) {
        self.report(FieldError::forbidden(path, detail));
    }

    fn not_supported(&mut self, path: Path<'_>, value: &str, supported: &[&str]) {
        self.report(FieldError::not_supported(path, value, supported));
    }

    fn duplicate(&mut self, path: Path<'_>, value: impl Into<Value>) {
        self.report(FieldError::duplicate(path, value));
    }

    fn not_found(&mut self, path: Path<'_>, value: &str, detail: &str) {
        self.report(FieldError {
            field: path.to_string(),
            problem: FieldProblem::NotFound(value.into()),
            detail: detail.to_owned(),
        });
    }

    /// Adds an error for each problem of a value.
    fn each(&mut self, path: Path<'_>, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(path, value, problem);
        }
    }

    /// A value that must be one of a few; the list is reported in the order given.
    fn one_of(&mut self, path: Path<'_>, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    /// A value that must be there and be one of a few.
    fn required_one_of(&mut self, path: Path<'_>, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else {
            self.one_of(path, value, supported);
        }
    }

    /// A number that must not be negative, where it is there.
    fn not_negative(&mut self, path: Path<'_>, value: Option<i64>) {
        if let Some(value) = value.filter(|value| *value < 0) {
            self.invalid(path, value, NOT_NEGATIVE);
        }
    }

    /// A number within bounds, where it is there.
    fn within(&mut self, path: Path<'_>, value: Option<i64>, low: i64, high: i64) {
        if let Some(value) = value.filter(|value| !(low..=high).contains(value)) {
            self.invalid(path, value, format!("must be between {low} and {high}, inclusive"));
        }
    }

    /// A value that must stay what it was.
    fn immutable(&mut self, path: Path<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new.clone(), IMMUTABLE);
        }
    }
}

impl ReportError for Errors {
    fn report(&mut self, error: FieldError) {
        self.push(error);
    }
}

/// Problems of a label selector.
pub(super) fn label_selector(selector: &Value, path: Path<'_>, errors: &mut Errors) {
    validate_labels(selector.at("matchLabels"), &path.child("matchLabels"), errors);
    for (index, requirement) in selector.items("matchExpressions").iter().enumerate() {
        let list = path.child("matchExpressions");
        selector_requirement(requirement, list.index(index), errors);
    }
}

fn selector_requirement(requirement: &Value, path: Path<'_>, errors: &mut Errors) {
    let values = requirement.items("values");
    let operator = requirement.text("operator");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors
                .forbidden(path.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.invalid(path.child("operator"), operator, "not a valid selector operator"),
    }
    let key = requirement.text("key");
    errors.each(path.child("key"), key, names::label_key_problems(key));
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        errors.each(path.child("values").index(index), value, names::label_value_problems(value));
    }
}

/// Whether a label selector selects a set of labels; an invalid one selects nothing.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector.entries("matchLabels").all(|(key, value)| label(key) == value.as_str());
    equal
        && selector.items("matchExpressions").iter().all(|requirement| {
            let has = label(requirement.text("key"));
            let listed = || has.is_some_and(|value| requirement.items("values").iter().any(|item| item == value));
            match requirement.text("operator") {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => has.is_some(),
                "DoesNotExist" => has.is_none(),
                _ => false,
            }
        })
}

/// Whether a label selector selects everything.
pub(super) fn is_empty_selector(selector: &Value) -> bool {
    selector.entries("matchLabels").next().is_none() && selector.items("matchExpressions").is_empty()
}

/// Problems of a number or percentage that must not be negative.
pub(super) fn positive_int_or_percent(value: &Value, path: Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(text) => errors.each(path, text, percent_problems(text)),
        other => errors.not_negative(path, other.as_i64()),
    }
}

/// Problems of a text that must be a percentage.
pub(super) fn percent_problems(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    vec![
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used \
         for validation is '[0-9]+%')"
            .to_owned(),
    ]
}

/// The number before the percent sign.
pub(super) fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

/// A percentage beyond all.
pub(super) fn not_more_than_100_percent(value: &Value, path: Path<'_>, errors: &mut Errors) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// Problems of the name of a port.
pub(super) fn port_name_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen");
    }
    problems.into_iter().map(ToOwned::to_owned).collect()
}

/// A port number or the name of a port.
pub(super) fn port_or_name(port: &Value, path: Path<'_>, errors: &mut Errors) {
    match port {
        Value::String(name) => errors.each(path, name, port_name_problems(name)),
        number => errors.within(path, Some(number.as_i64().unwrap_or_default()), 1, 65535),
    }
}

/// Problems of a key of a ConfigMap or Secret.
pub(super) fn config_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters");
    }
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        );
    }
    match key {
        "." => problems.push("must not be '.'"),
        ".." => problems.push("must not be '..'"),
        _ if key.starts_with("..") => problems.push("must not start with '..'"),
        _ => {}
    }
    problems.into_iter().map(ToOwned::to_owned).collect()
}

/// A path that stays below the place where it is put.
pub(super) fn local_path(text: &str, path: Path<'_>, errors: &mut Errors) {
    descending_path(text, path, errors);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.invalid(path, text, "must not start with '..'");
    }
}

/// A relative path without steps back.
pub(super) fn descending_path(text: &str, path: Path<'_>, errors: &mut Errors) {
    if text.starts_with('/') {
        errors.invalid(path, text, "must be a relative path");
    }
    no_backsteps(text, path, errors);
}

/// A path without steps back.
pub(super) fn no_backsteps(text: &str, path: Path<'_>, errors: &mut Errors) {
    if has_backsteps(text) {
        errors.invalid(path, text, "must not contain '..'");
    }
}

/// Whether a path leads back somewhere.
pub(super) fn has_backsteps(text: &str) -> bool {
    text.split('/').any(|part| part == "..")
}

/// Metadata of a template: labels, annotations and finalizers.
pub(super) fn template_meta(meta: &Value, path: Path<'_>, errors: &mut Errors) {
    validate_annotations(meta.at("annotations"), &path.child("annotations"), errors);
    validate_labels(meta.at("labels"), &path.child("labels"), errors);
}

/// An amount, where the text is one; decoding has refused all others.
pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::parse(value.as_str()?).ok()
}

/// A name like `example.com/foo/bar`: a domain and a path.
pub(super) fn domain_prefixed_path(name: &str, path: Path<'_>, errors: &mut Errors) {
    match name.split_once('/') {
        _ if name.is_empty() => errors.required(path, ""),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            errors.each(path, domain, names::subdomain_problems(domain));
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !rest.bytes().all(allowed) {
                let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.invalid(path, rest, detail);
            }
        }
        _ => errors.invalid(path, name, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

/// A domain name with at least two labels.
pub(super) fn fully_qualified(name: &str, path: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = names::subdomain_problems(name);
    if !problems.is_empty() {
        errors.invalid(path, name, problems.join(","));
    } else if !name.contains('.') {
        errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    } else if let Some(label) = name.split('.').find(|label| !names::label_problems(label).is_empty()) {
        errors.invalid(path, label, names::label_problems(label).join(","));
    }
}

/// Conditions as newer kinds have them.
pub(super) fn conditions(status: &Value, path: Path<'_>, errors: &mut Errors) {
    let mut seen = std::collections::HashSet::new();
    for (index, condition) in status.items("conditions").iter().enumerate() {
        let place = path.index(index);
        let kind = condition.text("type");
        if !seen.insert(kind) {
            errors.duplicate(place.child("type"), kind);
        }
        errors.each(place.child("type"), kind, names::label_key_problems(kind));
        errors.one_of(place.child("status"), condition.text("status"), &["False", "True", "Unknown"]);
        if let Some(generation) = condition.number("observedGeneration").filter(|generation| *generation < 0) {
            errors.invalid(place.child("observedGeneration"), generation, "must be greater than or equal to zero");
        }
        if condition.at("lastTransitionTime").is_null() {
            errors.required(place.child("lastTransitionTime"), "");
        }
        let reason = condition.text("reason");
        if reason.is_empty() {
            errors.required(place.child("reason"), "");
        } else {
            errors.each(place.child("reason"), reason, reason_problems(reason));
        }
        if condition.text("message").len() > 32 * 1024 {
            errors.report(FieldError::too_long(place.child("message"), 32 * 1024));
        }
    }
}

fn reason_problems(reason: &str) -> Vec<String> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = reason.as_bytes();
    let good = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| word(*byte))
        && bytes.iter().all(|byte| word(*byte) || matches!(byte, b',' | b':'));
    if good {
        return Vec::new();
    }
    vec![
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
         characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
         'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
         '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
            .to_owned(),
    ]
}
