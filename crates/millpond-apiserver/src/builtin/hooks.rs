//! Hooks that many kinds share.

use serde_json::Value;

use super::json::{Fields, Fill};
use super::shape;
use crate::resource::BuiltinKind;

/// A kind without rules of its own.
pub(super) const PLAIN: BuiltinKind = BuiltinKind {
    default: shape::default,
    prepare_create: |_| {},
    prepare_update: |_, _| {},
    prepare_status: keep_all_but_status,
    validate: |_, _| Vec::new(),
    validate_status: |_, _| Vec::new(),
    conversion: None,
    unconditional_update: true,
    create_on_update: false,
};

/// Like [`PLAIN`], but an update must name the version that it replaces.
pub(super) const CAUTIOUS: BuiltinKind = BuiltinKind { unconditional_update: false, ..PLAIN };

/// Like [`PLAIN`], but an update may create the object.
pub(super) const UPSERTED: BuiltinKind = BuiltinKind { create_on_update: true, ..PLAIN };

/// Lease and RuntimeClass: an update may create, and must name the version that it replaces.
pub(super) const LEASE: BuiltinKind = BuiltinKind { unconditional_update: false, ..UPSERTED };

/// A write to `/status` changes only `status` (and metadata, whose rules the caller applies).
pub(super) fn keep_all_but_status(new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    let own = |key: &str| matches!(key, "apiVersion" | "kind" | "metadata" | "status");
    new.retain(|key, _| own(key));
    for (key, value) in old.iter().filter(|(key, _)| !own(key)) {
        new.insert(key.clone(), value.clone());
    }
}

/// `/status` changes nothing but `status`; not even labels, annotations, finalizers and owners.
pub(super) fn keep_all_but_status_and_metadata(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        new.object("metadata").put(field, old.at("metadata").at(field).clone());
    }
}

/// Before create, for kinds with a status and a generation: both start anew.
pub(super) fn start_anew(object: &mut Value) {
    shape::preparing(object, |object| {
        object.drop("status");
        object.object("metadata").put("generation", 1.into());
    });
}

/// Before update: status stays as it was.
pub(super) fn keep_status(new: &mut Value, old: &Value) {
    new.put("status", old.at("status").clone());
}

/// Sets the generation: one more than before if `changed`.
pub(super) fn set_generation(new: &mut Value, old: &Value, changed: bool) {
    let before = old.at("metadata").number("generation").unwrap_or_default();
    let now = if changed { before + 1 } else { before };
    new.object("metadata").put("generation", if now == 0 { Value::Null } else { now.into() });
}

/// Before update, for kinds with a status and a generation that follows the spec.
pub(super) fn keep_status_and_count_spec(new: &mut Value, old: &Value) {
    keep_status(new, old);
    set_generation(new, old, new.at("spec") != old.at("spec"));
}
