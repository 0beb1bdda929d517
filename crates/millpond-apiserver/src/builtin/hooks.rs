//! Hooks that many kinds share.

use serde_json::Value;

use super::conversion;
use crate::resource::BuiltinKind;

/// A kind without rules of its own: stored as it comes.
pub(super) const PLAIN: BuiltinKind = BuiltinKind {
    default: |_| {},
    prepare_create: |_| {},
    prepare_update: |_, _| {},
    prepare_status: keep_all_but_status,
    validate: |_, _| Vec::new(),
    validate_status: |_, _| Vec::new(),
    conversion: None,
};

/// `/status` changes nothing but `status` (and metadata, whose rules are the caller's).
pub(super) fn keep_all_but_status(new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    new.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    for (key, value) in old {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
            new.insert(key.clone(), value.clone());
        }
    }
}

/// Event in `events.k8s.io` form.
pub(super) const NEW_EVENT: BuiltinKind = BuiltinKind { conversion: Some(conversion::EVENT), ..PLAIN };

/// HorizontalPodAutoscaler in `autoscaling/v1` form.
pub(super) const AUTOSCALER_V1: BuiltinKind = BuiltinKind { conversion: Some(conversion::AUTOSCALER), ..PLAIN };
