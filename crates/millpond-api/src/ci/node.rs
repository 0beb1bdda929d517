//! `millpond.dev/v1alpha1` CINode: the launcher's record of a CI node. Its name is the node's id, ten digits.
//!
//! The launcher writes both halves in one step, so the record has no status subresource. Credentials are never in it:
//! they are in the Secret that `status.secretName` names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::meta::{ObjectMeta, is_default, kind};
use crate::node_class::GROUP;

/// The record of a CI node.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct CINode {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Where it comes from.
    #[serde(default)]
    pub spec: CINodeSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: CINodeStatus,
}

kind!(CINode, GROUP, "v1alpha1", "CINode", "cinodes", namespaced: false);

/// Where a node comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CINodeSpec {
    /// Its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The slot of a static host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Usage that counts against the limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u64>,
}

/// The request that a node is for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct RequestReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, to tell it from a later request of the same name.
    pub uid: String,
}

/// The record of a node.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CINodeStatus {
    /// `init`, `building`, `ready`, `in-use`, `used`, `hold`, `deleting`, `failed` …
    #[serde(default)]
    pub state: String,
    /// Since when, in seconds since 1970.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state_time: f64,
    /// When it was made, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_time: Option<f64>,
    /// The request that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestReference>,
    /// The tenant whose limits it counts against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Requestor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requestor: Option<String>,
    /// The launcher that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<String>,
    /// The provider's id of it.
    #[serde(default, rename = "externalID", skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The address to connect to.
    #[serde(default, rename = "interfaceIP", skip_serializing_if = "Option::is_none")]
    pub interface_ip: Option<String>,
    /// `ssh`, `winrm`, `kubectl`, `namespace` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_type: Option<String>,
    /// A port, or an object without its credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_port: Option<Value>,
    /// The Secret with the credentials, as `NAMESPACE/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// The user to log in as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// A remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// All other facts, under the keys of Nodepool's records.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}
