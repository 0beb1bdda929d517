//! CustomResourceDefinitions: what makes one valid, which names it gets, and the resources that it defines.
//!
//! Everything here is a pure function over the JSON of `apiextensions.k8s.io/v1`. [`HOOKS`] are the CRD's own
//! defaulting and validation as a built-in kind, [`prepare`] decides its names and conditions, [`resources`] turns
//! it into descriptors. Conversion between versions is `None` only: there are no webhooks.
//!
//! The words of the errors are the real server's, down to its habit of speaking of `spec.validation` when all
//! versions share one schema.

mod json_schema;
mod json_schema_defaults;
mod names;
mod rules;
mod serve;
mod spec;
mod warnings;

use serde_json::{Value, json};

pub use names::prepare;
pub use serve::resources;
pub use warnings::warnings;

use crate::builtin::json::{Fields as _, Fill as _};
use crate::builtin::shape;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

/// The CRD as a built-in kind.
pub const HOOKS: BuiltinKind = BuiltinKind {
    default,
    prepare_create,
    prepare_update,
    prepare_status,
    validate,
    validate_status,
    conversion: None,
    create_on_update: false,
    unconditional_update: false,
};

/// Fills in names and conversion.
fn default(definition: &mut Value) {
    shape::default(definition);
    let Some(spec) = definition.object_if("spec") else { return };
    if let Some(names) = spec.object_if("names") {
        let kind = names.text("kind").to_owned();
        if names.text("singular").is_empty() {
            names.put("singular", json!(kind.to_lowercase()));
        }
        if names.text("listKind").is_empty() && !kind.is_empty() {
            names.put("listKind", json!(format!("{kind}List")));
        }
    }
    spec.default_to("conversion", json!({"strategy": "None"}));
}

/// Clients cannot set the status; the version in which objects will be stored is noted at once.
fn prepare_create(definition: &mut Value) {
    definition.put("status", json!({}));
    definition.object("metadata").put("generation", json!(1));
    note_storage_version(definition);
}

fn prepare_update(new: &mut Value, old: &Value) {
    new.put("status", old.at("status").clone());
    let changed = new.at("spec") != old.at("spec");
    let generation = old.at("metadata").number("generation").unwrap_or_default();
    new.object("metadata").put("generation", json!(generation + i64::from(changed)));
    note_storage_version(new);
}

fn prepare_status(new: &mut Value, old: &Value) {
    new.put("spec", old.at("spec").clone());
    let generation = old.at("metadata").at("generation").clone();
    new.object("metadata").put("generation", generation);
}

fn note_storage_version(definition: &mut Value) {
    let versions = definition.at("spec").items("versions");
    let Some(storage) = versions.iter().find(|version| version.flag("storage")) else { return };
    let name = json!(storage.text("name"));
    let status = definition.object("status");
    let mut stored = status.items("storedVersions").to_vec();
    if !stored.contains(&name) {
        stored.push(name);
        status.put("storedVersions", Value::Array(stored));
    }
}

/// Problems of a new definition, or of a change.
pub fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    spec::validate(new, old)
}

fn validate_status(new: &Value, _old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    spec::names(new.at("status").at("acceptedNames"), "status.acceptedNames", &mut errors);
    errors
}

#[cfg(test)]
mod tests;
