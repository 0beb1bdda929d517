//! Names, owners, conditions and patches: the small change of every controller.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// A key of these parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The key of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::of_meta(object.meta())
    }

    pub(crate) fn of_meta(meta: &ObjectMeta) -> Self {
        Self { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            out.write_str(&self.name)
        } else {
            write!(out, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The version of an object. Versions are ordered numbers (guaranteed since Kubernetes 1.35).
pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The owner that controls an object.
pub fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    controller_in(object.meta())
}

pub(crate) fn controller_in(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Its uid.
pub fn controller_uid<K: Resource>(object: &K) -> Option<&str> {
    controller_of(object).map(|owner| owner.uid.as_str())
}

/// The reference that makes `owner` the controller of something.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whether an object is being deleted.
pub fn is_leaving<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// A patch of the status subresource with the changes from `old` to `new`; `None` when there are none. It carries the
/// resource version: lists are replaced as a whole, and another writer's condition must not be lost.
///
/// A merge patch is used because it is the cheapest write on either server: no schema walk as
/// for a strategic patch, no field ownership to compute as for an apply, and a body that holds
/// the changed fields only.
pub fn status_patch<K: Resource, S: Serialize + PartialEq>(object: &K, old: Option<&S>, new: &S) -> Option<Value> {
    if old == Some(new) {
        return None;
    }
    let old = old.map_or(Value::Null, |old| serde_json::to_value(old).unwrap_or_default());
    let changes = merge_diff(&old, &serde_json::to_value(new).unwrap_or_default())?;
    Some(json!({
        "metadata": {"resourceVersion": object.meta().resource_version},
        "status": changes,
    }))
}

/// The merge patch from one value to another; `None` when they are equal.
pub fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut patch = Map::new();
            for (key, value) in new {
                match old.get(key) {
                    Some(before) => {
                        if let Some(change) = merge_diff(before, value) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None => {
                        patch.insert(key.clone(), value.clone());
                    }
                }
            }
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (old, new) if old == new => None,
        (_, new) => Some(new.clone()),
    }
}

/// The condition of a pod under a type.
pub fn pod_condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// The phase of a pod, `Pending` when none is written yet.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether a pod has ended.
pub fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// The node that a pod is bound to.
pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// An annotation of an object.
pub fn annotation<'a, K: Resource>(object: &'a K, name: &str) -> Option<&'a str> {
    object.annotations().get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diffs_hold_changes_only() {
        let old = json!({"a": 1, "b": {"c": [1, 2], "d": true}, "gone": "x"});
        assert_eq!(merge_diff(&old, &old), None);
        assert_eq!(
            merge_diff(&old, &json!({"a": 1, "b": {"c": [1, 3], "d": true}, "new": {}})),
            Some(json!({"b": {"c": [1, 3]}, "gone": null, "new": {}}))
        );
        assert_eq!(merge_diff(&Value::Null, &json!({"a": 1})), Some(json!({"a": 1})));
    }
}
