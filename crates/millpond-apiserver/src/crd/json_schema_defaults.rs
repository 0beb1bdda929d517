//! Validation of the defaults in a schema: each must be a value that the schema takes.

use crate::schema::custom::props::Props;
use crate::schema::custom::{Budget, Step, check_default, check_meta_default};
use crate::status::FieldError;

/// Problems of the defaults of a structural schema at a path.
pub(super) fn check(schema: &Props, path: &str) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new(), budget: Budget::default() };
    walk.schema(schema, path, &Surroundings::default(), true);
    walk.errors
}

/// How to build a whole object around a default inside of its `metadata`, `kind` or `apiVersion`.
#[derive(Clone, Default)]
struct Surroundings {
    /// Steps from the object to the value.
    steps: Vec<Step>,
    in_meta: bool,
}

struct Walk {
    errors: Vec<FieldError>,
    /// The cost limit of the rules of all defaults together.
    budget: Budget,
}

impl Walk {
    fn schema(&mut self, schema: &Props, path: &str, around: &Surroundings, is_root: bool) {
        let is_resource = is_root || schema.embedded_resource;
        let around = if is_resource { Surroundings::default() } else { around.clone() };
        if let Some(default) = &schema.default {
            let field = format!("{path}.default");
            let (budget, errors) = (&mut self.budget, &mut self.errors);
            if around.in_meta {
                check_meta_default(schema, default, &around.steps, &field, budget, errors);
            } else {
                check_default(schema, default, is_resource, &field, budget, errors);
            }
        }
        if let Some(items) = &schema.items {
            let mut below = around.clone();
            below.steps.push(Step::Item);
            self.schema(items, &format!("{path}.items"), &below, false);
        }
        for (name, property) in &schema.properties {
            let mut below = around.clone();
            below.in_meta |= is_resource && matches!(&**name, "metadata" | "apiVersion" | "kind");
            below.steps.push(Step::Key(name.clone()));
            self.schema(property, &format!("{path}.properties[{name}]"), &below, false);
        }
    }
}
