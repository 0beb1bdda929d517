//! The annotation of client-side apply, where `kubectl` applies an object on the server.
//!
//! An object that was applied by the client carries its configuration in an annotation, and its fields are
//! owned by an updater. When the same person goes on with `kubectl apply --server-side`, fields that still
//! have the value of the annotation are theirs, so they are not in conflict; and the annotation is kept up to
//! date, so that the way back is open.

use serde_json::{Map, Value};

use super::conflict::Conflict;
use super::fields::FieldSet;
use super::typed::FieldType;
use super::update::Version;
use super::walk::{Duplicates, check, fields_at};
use crate::go::text;

/// The annotation.
pub const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager that kubectl names when it applies on the server; others opt out.
pub(super) const KUBECTL: &str = "kubectl";

/// Limit on the size of all annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Leaves only the conflicts about fields that the annotation does not already account for.
pub(super) fn remaining(
    conflicts: Vec<Conflict>,
    live: &Value,
    version: Version<'_>,
    api_version: &str,
) -> Vec<Conflict> {
    let Some(config) = last_config(live, version, api_version) else { return conflicts };
    let allowed = unchanged_fields(&config, live, version);
    conflicts.into_iter().filter(|conflict| !allowed.has(&conflict.path)).collect()
}

/// The last configuration, if it exists, has the same version and fits the schema.
fn last_config(live: &Value, version: Version<'_>, api_version: &str) -> Option<Value> {
    let text = annotations(live)?.get(ANNOTATION)?.as_str()?;
    let config: Value = serde_json::from_str(text).ok()?;
    let same_version = config.get("apiVersion").and_then(Value::as_str) == Some(api_version);
    let fits = |object: &Value| check(object, version.schema, Duplicates::Refused).is_ok();
    (same_version && config.get("kind").is_some() && fits(&config) && fits(live)).then_some(config)
}

/// The fields of a configuration that have the same value in the live object.
fn unchanged_fields<'a>(config: &'a Value, live: &'a Value, version: Version<'a>) -> FieldSet<'a> {
    let place = FieldType::object(version.schema);
    let mut fields = fields_at(config, place);
    let comparison = super::compare::compare(config, live, place);
    fields.subtract(&comparison.modified);
    fields.subtract(&comparison.added);
    fields.subtract(&comparison.removed);
    fields
}

/// Writes the applied configuration into the annotation, if the object has it.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    annotations.insert(ANNOTATION.to_owned(), Value::String(config_text(config)));
    let size = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(size).sum::<usize>() > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

/// The configuration as one line of JSON, without the annotation itself.
fn config_text(config: &Value) -> String {
    let mut config = config.clone();
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        match metadata.get_mut("annotations") {
            Some(Value::Object(annotations)) => _ = annotations.remove(ANNOTATION),
            Some(_) => _ = metadata.remove("annotations"),
            None => {}
        }
    }
    let mut line = text::json(&config);
    line.push('\n');
    line
}

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.pointer("/metadata/annotations")?.as_object()
}
