//! What every object says about itself, as far as Millpond looks at it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// `metadata` of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its namespace; empty for kinds of the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its identity; empty in files that people write.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Changes with every write.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
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
}

/// An entry of `status.conditions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
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
}

/// The condition of that type, if it is true.
pub fn true_condition<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.kind == kind && condition.status == "True")
}

/// Something in an object that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// Where: `spec.template.spec.requirements[2].operator`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Invalid {
    /// Names a field and what is wrong with it.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}
