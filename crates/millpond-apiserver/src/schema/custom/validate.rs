//! Validation of values against a schema, with the words and the order of upstream's OpenAPI validator.
//!
//! Every check is one of the validators of kube-openapi. Branches of `anyOf` and `oneOf` are compared by how many
//! checks they passed ([`Outcome::matches`]), so that the errors of the closest branch are reported; that count follows
//! upstream's bookkeeping to the letter.

use serde_json::{Map, Value, json};

use super::correlate::Pair;
use super::formats::Format;
use super::numbers;
use super::props::{Additional, Props};
use crate::go::text::quote;
use crate::status::{FieldError, FieldProblem};

/// Errors that are collected before further ones are only counted as "invalid". The real server has no bound;
/// this keeps the answer to a hostile object readable and small.
pub(super) const MAX_ERRORS: usize = 1000;

/// Choices of an `enum` that an error lists, for the same reason.
const MAX_CHOICES: usize = 200;

/// Validates a value. `prefix` is the path of the value, `None` for a whole object. With `pair`, errors in unchanged
/// parts are ignored.
pub(crate) fn validate(schema: &Props, value: &Value, prefix: Option<&str>, pair: Option<Pair<'_>>) -> Vec<FieldError> {
    let mut path = String::new();
    let outcome = check(schema, value, &mut path, pair);
    outcome.failures.into_iter().map(|failure| failure.into_field_error(prefix)).collect()
}

/// The result of one schema for one value.
#[derive(Default)]
struct Outcome {
    failures: Vec<Failure>,
    /// How many checks passed.
    matches: usize,
}

/// An error that does not know yet where the checked value stands.
#[derive(Debug, PartialEq)]
struct Failure {
    /// Path below the checked value; `None` for errors that have no path upstream.
    name: Option<String>,
    problem: FieldProblem,
    detail: String,
}

impl Failure {
    fn into_field_error(self, prefix: Option<&str>) -> FieldError {
        let name =
            self.name.as_deref().map(|name| name.strip_prefix('.').unwrap_or(name)).filter(|name| !name.is_empty());
        let field = match (prefix, name) {
            (None, None) => "<nil>".to_owned(),
            (None, Some(name)) => name.to_owned(),
            (Some(prefix), None) => prefix.to_owned(),
            (Some(prefix), Some(name)) => format!("{prefix}.{name}"),
        };
        FieldError { field, problem: self.problem, detail: self.detail }
    }
}

impl Outcome {
    fn is_valid(&self) -> bool {
        self.failures.is_empty()
    }

    fn push(&mut self, failure: Failure) {
        if self.failures.len() < MAX_ERRORS && !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    fn fail(&mut self, path: &str, problem: FieldProblem, detail: impl Into<String>) {
        self.push(Failure { name: Some(path.to_owned()), problem, detail: detail.into() });
    }

    /// An error that upstream reports without a path.
    fn fail_nowhere(&mut self, detail: String) {
        self.push(Failure { name: None, problem: FieldProblem::Invalid(json!("")), detail });
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        if self.failures.is_empty() {
            self.failures = other.failures;
        } else {
            other.failures.into_iter().for_each(|failure| self.push(failure));
        }
    }
}

/// Checks a value and forgives its errors when it is what it was.
fn check(schema: &Props, value: &Value, path: &mut String, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = check_all(schema, value, path, pair);
    if !outcome.is_valid() && pair.is_some_and(Pair::unchanged) {
        outcome.failures.clear();
    }
    outcome
}

fn check_all(schema: &Props, value: &Value, path: &mut String, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if value.is_null() {
        check_null(schema, path, &mut outcome);
        check_enumeration(schema, value, path, &mut outcome);
        return outcome;
    }
    let has_type = !schema.ty.is_empty() || schema.int_or_string;
    if has_type || schema.checked_format.is_some() {
        check_type(schema, value, path, &mut outcome);
        outcome.matches += 1;
    }
    outcome.merge(check_branches(schema, value, path));
    outcome.matches += 1;
    match value {
        Value::String(text) => {
            check_string(schema, text, path, &mut outcome);
            outcome.matches += 1;
            if let Some(Format::Text(is_valid)) = schema.checked_format {
                check_format(schema, is_valid, text, path, &mut outcome);
                outcome.matches += 1;
            }
        }
        Value::Number(number) => {
            outcome.matches += 2;
            numbers::check(schema, number, path, &mut |failure| outcome.push_number(path, failure));
        }
        Value::Array(items) => {
            outcome.merge(check_items(schema, items, path, pair));
            outcome.matches += 1;
        }
        _ => {}
    }
    check_enumeration(schema, value, path, &mut outcome);
    outcome.matches += 1;
    if let Value::Object(fields) = value {
        outcome.merge(check_fields(schema, fields, path, pair));
        outcome.matches += 1;
    }
    outcome.matches += 1;
    outcome
}

impl Outcome {
    fn push_number(&mut self, path: &str, failure: numbers::Failure) {
        match failure {
            numbers::Failure::Range(detail) => self.fail_nowhere(detail),
            numbers::Failure::Bound { value, detail } => self.fail(path, FieldProblem::Invalid(value), detail),
        }
    }
}

/// Types as the schema names them, joined.
fn type_names(schema: &Props) -> &str {
    if schema.int_or_string { "integer,string" } else { &schema.ty }
}

fn has_type(schema: &Props, name: &str) -> bool {
    if schema.int_or_string { matches!(name, "integer" | "string") } else { &*schema.ty == name }
}

fn check_null(schema: &Props, path: &str, outcome: &mut Outcome) {
    let names = type_names(schema);
    if !names.is_empty() && names != "null" && !schema.nullable {
        wrong_type(names, "null", path, outcome);
    } else {
        outcome.matches += 1;
    }
}

fn wrong_type(wanted: &str, found: &str, path: &str, outcome: &mut Outcome) {
    let detail = format!("{path} in body must be of type {wanted}: {}", quote(found));
    outcome.fail(path, FieldProblem::TypeInvalid(json!(found)), detail);
}

fn check_type(schema: &Props, value: &Value, path: &str, outcome: &mut Outcome) {
    let (found, found_format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let whole = matches!(value, Value::Number(number) if number.as_f64().is_some_and(numbers::is_whole));
    let float_as_integer = found == "number" && whole && has_type(schema, "integer");
    let integer_as_float = found == "integer" && has_type(schema, "number");
    let fits = has_type(schema, found) || float_as_integer || integer_as_float;
    let format = if schema.checked_format.is_some() { &*schema.format } else { "" };
    let has_own_format_check = matches!(value, Value::String(_) | Value::Array(_));
    if !format.is_empty() && !has_own_format_check && !fits && found_format != format {
        return wrong_type(format, found_format, path, outcome);
    }
    let numeric = has_type(schema, "number") || has_type(schema, "integer");
    if fits || (!format.is_empty() && has_own_format_check && !numeric) {
        outcome.matches += 1;
    } else {
        wrong_type(type_names(schema), found, path, outcome);
    }
}

fn check_string(schema: &Props, text: &str, path: &str, outcome: &mut Outcome) {
    let length = text.chars().count() as i64;
    let invalid = || FieldProblem::Invalid(json!(text));
    if let Some(max) = schema.max_length.filter(|max| length > *max) {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        let detail =
            if max < 0 { "value is too long".to_owned() } else { format!("may not be more than {max} {bytes}") };
        outcome.fail(path, FieldProblem::TooLong, detail);
    } else if let Some(min) = schema.min_length.filter(|min| length < *min) {
        outcome.fail(path, invalid(), format!("{path} in body should be at least {min} chars long"));
    } else if let Some(pattern) = &schema.pattern {
        match pattern.regex() {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => outcome.fail(path, invalid(), format!("{path} in body should match '{}'", pattern.source)),
            Err(error) => {
                let shown = format!("{}, but pattern is invalid: {error}", pattern.source);
                outcome.fail(path, invalid(), format!("{path} in body should match '{shown}'"));
            }
        }
    }
}

fn check_format(schema: &Props, is_valid: fn(&str) -> bool, text: &str, path: &str, outcome: &mut Outcome) {
    if !is_valid(text) {
        wrong_type(&schema.format, text, path, outcome);
    }
}

fn check_enumeration(schema: &Props, value: &Value, path: &str, outcome: &mut Outcome) {
    if schema.enumeration.is_empty() || schema.enumeration.allow(value) || outcome.failures.len() >= MAX_ERRORS {
        return;
    }
    let values: Vec<String> = schema.enumeration.iter().take(MAX_CHOICES).map(shown_choice).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut error = FieldError::not_supported("", value.clone(), &values);
    if schema.enumeration.len() > MAX_CHOICES {
        error.detail.push_str(&format!(" and {} more", schema.enumeration.len() - MAX_CHOICES));
    }
    outcome.fail(path, error.problem, error.detail);
}

fn shown_choice(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => crate::go::text::json(other),
    }
}

fn check_items(schema: &Props, items: &[Value], path: &mut String, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(item_schema) = &schema.items {
        let pairs = pair.map(Pair::items).unwrap_or_default();
        let length = path.len();
        for (index, item) in items.iter().enumerate() {
            path.push_str(&format!("[{index}]"));
            outcome.merge(check(item_schema, item, path, pairs.get(index).copied().flatten()));
            path.truncate(length);
        }
    }
    let size = items.len() as i64;
    if let Some(min) = schema.min_items.filter(|min| size < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        outcome.fail(path, FieldProblem::Invalid(json!(size)), detail);
    }
    if let Some(max) = schema.max_items.filter(|max| size > *max) {
        too_many(size, max, path, &mut outcome);
    }
    outcome.matches += 1;
    outcome
}

fn too_many(size: i64, max: i64, path: &str, outcome: &mut Outcome) {
    let items = if max == 1 { "item" } else { "items" };
    let detail = if max < 0 { "has too many items".to_owned() } else { format!("must have at most {max} {items}") };
    outcome.fail(path, FieldProblem::TooMany(size as usize), detail);
}

fn check_fields(schema: &Props, fields: &Map<String, Value>, path: &mut String, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    let size = fields.len() as i64;
    if let Some(min) = schema.min_properties.filter(|min| size < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        outcome.fail(path, FieldProblem::Invalid(json!(size)), detail);
    }
    if let Some(max) = schema.max_properties.filter(|max| size > *max) {
        too_many(size, max, path, &mut outcome);
    }
    check_additional(schema, fields, path, pair, &mut outcome);
    for (name, property) in &schema.properties {
        let Some(value) = fields.get(&**name) else { continue };
        let separator = if path.is_empty() { "" } else { "." };
        check_field(property, name, value, separator, path, pair, &mut outcome);
    }
    for name in &schema.required {
        if !fields.contains_key(&**name) {
            outcome.fail(&format!("{path}.{name}"), FieldProblem::Required, "");
        }
    }
    outcome
}

fn check_additional(
    schema: &Props,
    fields: &Map<String, Value>,
    path: &mut String,
    pair: Option<Pair<'_>>,
    outcome: &mut Outcome,
) {
    let unknown = fields.iter().filter(|(name, _)| !schema.properties.contains_key(name.as_str()));
    match &schema.additional {
        Some(Additional::Allowed(false)) => {
            for (name, _) in unknown {
                let detail = format!("{path}.{name} in body is a forbidden property");
                outcome.fail(path, FieldProblem::Invalid(json!(name)), detail);
            }
        }
        Some(Additional::Schema(additional)) => {
            for (name, value) in unknown {
                check_field(additional, name, value, ".", path, pair, outcome);
            }
        }
        Some(Additional::Allowed(true)) | None => {}
    }
}

fn check_field(
    schema: &Props,
    name: &str,
    value: &Value,
    separator: &str,
    path: &mut String,
    pair: Option<Pair<'_>>,
    outcome: &mut Outcome,
) {
    let length = path.len();
    // Changes of apiVersion and kind cannot be seen: both objects have been converted.
    let is_type_meta = path.is_empty() && matches!(name, "apiVersion" | "kind");
    let child = pair.filter(|_| !is_type_meta).and_then(|pair| pair.child(name));
    path.push_str(separator);
    path.push_str(name);
    outcome.merge(check(schema, value, path, child));
    path.truncate(length);
}

/// `anyOf`, `oneOf`, `allOf` and `not`. What is wrong inside of branches is never forgiven for being old.
fn check_branches(schema: &Props, value: &Value, path: &mut String) -> Outcome {
    let mut outcome = Outcome::default();
    if !schema.any_of.is_empty() {
        check_any_of(schema, value, path, &mut outcome);
    }
    if !schema.one_of.is_empty() {
        check_one_of(schema, value, path, &mut outcome);
    }
    if !schema.all_of.is_empty() {
        check_all_of(schema, value, path, &mut outcome);
    }
    if let Some(not) = &schema.not
        && check_all(not, value, path, None).is_valid()
    {
        outcome.fail_nowhere(format!("{} must not validate the schema (not)", quote(path)));
    }
    outcome.matches += 1;
    outcome
}

/// Keeps the failed branch that passed most checks.
fn keep_best(best: &mut Option<Outcome>, candidate: Outcome) {
    if best.as_ref().is_none_or(|best| candidate.matches > best.matches) {
        *best = Some(candidate);
    }
}

fn check_any_of(schema: &Props, value: &Value, path: &mut String, outcome: &mut Outcome) {
    let mut best = None;
    for branch in &schema.any_of {
        let result = check_all(branch, value, path, None);
        if result.is_valid() {
            return outcome.merge(result);
        }
        keep_best(&mut best, result);
    }
    outcome.fail_nowhere(format!("{} must validate at least one schema (anyOf)", quote(path)));
    outcome.merge(best.unwrap_or_default());
}

fn check_one_of(schema: &Props, value: &Value, path: &mut String, outcome: &mut Outcome) {
    let mut best = None;
    let mut first = None;
    let mut valid = 0;
    for branch in &schema.one_of {
        let result = check_all(branch, value, path, None);
        if result.is_valid() {
            valid += 1;
            best = None;
            first.get_or_insert(result);
        } else if valid == 0 {
            keep_best(&mut best, result);
        }
    }
    if valid == 1 {
        return outcome.merge(first.unwrap_or_default());
    }
    let found = if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
    outcome.fail_nowhere(format!("{} must validate one and only one schema (oneOf). {found}", quote(path)));
    outcome.merge(best.unwrap_or_default());
}

fn check_all_of(schema: &Props, value: &Value, path: &mut String, outcome: &mut Outcome) {
    let mut valid = 0;
    for branch in &schema.all_of {
        let result = check_all(branch, value, path, None);
        valid += usize::from(result.is_valid());
        outcome.merge(result);
    }
    if valid != schema.all_of.len() {
        let note = if valid == 0 { ". None validated" } else { "" };
        outcome.fail_nowhere(format!("{} must validate all the schemas (allOf){note}", quote(path)));
    }
}
