//! Validation of the defaults in a schema: each must be a value that the schema takes.

use crate::schema::custom::props::Props;
use crate::schema::custom::{Step, check_default, check_meta_default};
use crate::status::FieldError;

/// Problems of the defaults of a structural schema at a path.
pub(super) fn check(schema: &Props, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, path, &Surroundings::default(), true, &mut errors);
    errors
}

/// How to build a whole object around a default inside of its `metadata`, `kind` or `apiVersion`.
#[derive(Clone, Default)]
struct Surroundings {
    /// Steps from the object to the value.
    steps: Vec<Step>,
    in_meta: bool,
}

fn walk(schema: &Props, path: &str, around: &Surroundings, is_root: bool, errors: &mut Vec<FieldError>) {
    let is_resource = is_root || schema.embedded_resource;
    let around = if is_resource { Surroundings::default() } else { around.clone() };
    if let Some(default) = &schema.default {
        let field = format!("{path}.default");
        if around.in_meta {
            check_meta_default(schema, default, &around.steps, &field, errors);
        } else {
            check_default(schema, default, is_resource, &field, errors);
        }
    }
    if let Some(items) = &schema.items {
        let mut below = around.clone();
        below.steps.push(Step::Item);
        walk(items, &format!("{path}.items"), &below, false, errors);
    }
    for (name, property) in &schema.properties {
        let mut below = around.clone();
        below.in_meta |= is_resource && matches!(&**name, "metadata" | "apiVersion" | "kind");
        below.steps.push(Step::Key(name.clone()));
        walk(property, &format!("{path}.properties[{name}]"), &below, false, errors);
    }
}
