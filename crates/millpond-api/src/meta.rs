//! Metadata of objects, reduced to the fields that Millpond reads.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::time::Time;

/// A kind of the API: where its objects live, and what they say about themselves.
pub trait Kind: Serialize + DeserializeOwned {
    /// The API group.
    const GROUP: &'static str;
    /// The version that the Rust type is of.
    const VERSION: &'static str;
    /// The name of the kind.
    const KIND: &'static str;
    /// The name in addresses.
    const PLURAL: &'static str;
    /// Whether its objects live in namespaces.
    const NAMESPACED: bool;

    /// Name, labels and so on.
    fn metadata(&self) -> &ObjectMeta;

    /// Group and version, as objects write them.
    fn api_version() -> String {
        format!("{}/{}", Self::GROUP, Self::VERSION)
    }

    /// The object as the API takes it, with `apiVersion` and `kind`.
    fn to_object(&self) -> Value {
        let mut object = serde_json::to_value(self).expect("kinds have texts for keys");
        object["apiVersion"] = Self::api_version().into();
        object["kind"] = Self::KIND.into();
        object
    }
}

/// Says where the objects of a Rust type live.
macro_rules! kind {
    ($type:ty, $group:expr, $version:literal, $kind:literal, $plural:literal, namespaced: $namespaced:literal) => {
        impl $crate::meta::Kind for $type {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;
            const NAMESPACED: bool = $namespaced;

            fn metadata(&self) -> &$crate::meta::ObjectMeta {
                &self.metadata
            }
        }
    };
}
pub(crate) use kind;

/// Whether a value is the default, which is not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads `null` as nothing: Go writes its empty lists that way.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// `metadata` of an object, as far as Millpond looks at it: enough to make an object or to say what it wants of one
/// (server-side apply), not to write one back whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Prefix of a name that the server generates.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Its namespace; empty for kinds of the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its identity; empty in files that people write.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Changes with every write.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Changes with every write of what is asked for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub generation: i64,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    /// When it was asked to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    /// Finalizers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Its owners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    /// Whether it was asked to go.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether that finalizer is on it.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }

    /// The owner that controls it.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }
}

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// Group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Whether it is the one that controls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether it waits for this one to go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// An entry of `status.conditions`; [`crate::condition`] writes them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// In one word.
    #[serde(default)]
    pub reason: String,
    /// In words.
    #[serde(default)]
    pub message: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The generation of the object that it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The condition of that type, if it is true.
pub fn true_condition<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.kind == kind && condition.status == "True")
}

/// An error in an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// Where: `spec.template.spec.requirements[2].operator`.
    pub field: String,
    /// The problem.
    pub problem: String,
}

impl Invalid {
    /// Names a field and what is wrong with it.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}
