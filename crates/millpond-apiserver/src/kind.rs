//! The rules that a kind applies to incoming objects, for built-ins and custom resources alike.

use serde_json::{Value, json};

use crate::resource::{Behaviour, Resource};
use crate::schema::custom;
use crate::status::FieldError;

/// Fills in defaults.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    match &resource.behaviour {
        Behaviour::Builtin(kind) => (kind.default)(object),
        Behaviour::Custom => custom::default(object, &resource.schema),
    }
}

/// Before create: what the server decides, not the client.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    match &resource.behaviour {
        Behaviour::Builtin(kind) => (kind.prepare_create)(object),
        Behaviour::Custom => {
            if resource.subresources.status {
                remove(object, "status");
            }
            object["metadata"]["generation"] = json!(1);
        }
    }
}

/// Before update of the object itself.
pub(crate) fn prepare_update(resource: &Resource, new: &mut Value, old: &Value) {
    match &resource.behaviour {
        Behaviour::Builtin(kind) => (kind.prepare_update)(new, old),
        Behaviour::Custom => {
            if resource.subresources.status {
                carry(new, old, "status");
            }
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            let changed = differs_beyond_metadata(new, old, resource.subresources.status);
            new["metadata"]["generation"] = json!(generation + i64::from(changed));
        }
    }
}

/// Before update of `/status`.
pub(crate) fn prepare_status(resource: &Resource, new: &mut Value, old: &Value) {
    match &resource.behaviour {
        Behaviour::Builtin(kind) => (kind.prepare_status)(new, old),
        Behaviour::Custom => {
            let status = new.get("status").cloned();
            let managed_fields = new["metadata"].get("managedFields").cloned();
            *new = old.clone();
            put(new, "status", status);
            put(&mut new["metadata"], "managedFields", managed_fields);
        }
    }
}

/// Checks an object, or a change of one; `status` says that the change comes through `/status`.
pub(crate) fn validate(resource: &Resource, new: &Value, old: Option<&Value>, status: bool) -> Vec<FieldError> {
    match (&resource.behaviour, old) {
        (Behaviour::Builtin(kind), Some(old)) if status => (kind.validate_status)(new, old),
        (Behaviour::Builtin(kind), old) => (kind.validate)(new, old),
        (Behaviour::Custom, Some(old)) if status => custom::validate_status(new, old, &resource.schema),
        (Behaviour::Custom, old) => custom::validate(new, old, &resource.schema),
    }
}

fn differs_beyond_metadata(new: &Value, old: &Value, ignore_status: bool) -> bool {
    let relevant = |key: &&String| *key != "metadata" && !(ignore_status && *key == "status");
    let (Value::Object(new), Value::Object(old)) = (new, old) else { return true };
    new.keys().filter(relevant).count() != old.keys().filter(relevant).count()
        || new.iter().filter(|(key, _)| relevant(key)).any(|(key, value)| old.get(key) != Some(value))
}

fn carry(new: &mut Value, old: &Value, key: &str) {
    put(new, key, old.get(key).cloned());
}

fn put(object: &mut Value, key: &str, value: Option<Value>) {
    match value {
        Some(value) => object[key] = value,
        None => remove(object, key),
    }
}

fn remove(object: &mut Value, key: &str) {
    if let Value::Object(fields) = object {
        fields.remove(key);
    }
}
