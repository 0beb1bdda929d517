//! `millpond.dev/v1alpha1` NodeRequest: a CI job asks for nodes by label.
//!
//! ```yaml
//! apiVersion: millpond.dev/v1alpha1
//! kind: NodeRequest
//! metadata: {generateName: build-, namespace: ci}
//! spec:
//!   labels: [fedora]
//!   count: 2
//! ```
//!
//! `status.state` goes from `requested` over `pending` to `fulfilled` or `failed`. To delete the object is to give its
//! nodes back.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::{Condition, ObjectMeta, is_default, kind};
use crate::node_class::GROUP;
use crate::time::Time;

/// A request for nodes.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct NodeRequest {
    /// Name, namespace and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: NodeRequestSpec,
    /// Result.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: NodeRequestStatus,
}

kind!(NodeRequest, GROUP, "v1alpha1", "NodeRequest", "noderequests", namespaced: true);

/// Desired state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRequestSpec {
    /// A label for each node. Order and repetitions count: nodes come in this order.
    #[serde(default)]
    pub labels: Vec<String>,
    /// How often the list of labels is repeated; once if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Of requests with the same precedence, lower numbers come first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i64,
    /// Precedence of the request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub precedence: Precedence,
    /// The tenant whose limits its nodes count against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The requestor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requestor: Option<String>,
    /// The provider that nodes should come from, if it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Whether nodes that are ready already may be used; they may if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<bool>,
    /// The event that caused it, for logs.
    #[serde(default, rename = "eventID", skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
}

impl NodeRequestSpec {
    /// A label for each node. More than `limit + 1` are not listed.
    pub fn node_types(&self, limit: usize) -> Vec<String> {
        let count = self.count.unwrap_or(1) as usize;
        let all = std::iter::repeat_n(&self.labels, count).flatten();
        all.take(limit.saturating_add(1)).cloned().collect()
    }
}

/// Precedence of a request, with Zuul's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precedence {
    /// Before all others.
    High,
    /// The usual.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Precedence {
    /// Every value, as objects write it.
    pub const NAMES: [&'static str; 3] = ["high", "normal", "low"];

    /// The number that Zuul puts before the id of a request.
    pub fn prefix(self) -> u32 {
        match self {
            Self::High => 100,
            Self::Normal => 200,
            Self::Low => 300,
        }
    }
}

/// The phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestPhase {
    /// It waits.
    #[default]
    Requested,
    /// Its nodes are being launched.
    Pending,
    /// Its nodes are ready.
    Fulfilled,
    /// No pool can provide its nodes.
    Failed,
}

impl RequestPhase {
    /// Every value, as objects write it.
    pub const NAMES: [&'static str; 4] = ["requested", "pending", "fulfilled", "failed"];
}

impl fmt::Display for RequestPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[*self as usize])
    }
}

/// The status of a request.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRequestStatus {
    /// Its phase; absent until a launcher has seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RequestPhase>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Its nodes, in the order of its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ConnectedNode>,
    /// Pools that cannot provide it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declined_by: Vec<String>,
    /// The answer of each pool to a request that waits or has failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<PoolReason>,
    /// `Fulfilled` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The answer of a pool to a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct PoolReason {
    /// The pool.
    pub pool: String,
    /// In one word.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// A node and how to reach it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectedNode {
    /// The name of its CINode.
    pub id: String,
    /// The label that it was asked for as.
    #[serde(default)]
    pub label: String,
    /// Its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Its pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The address to connect to; the name of the pod for `kubectl`.
    #[serde(default, rename = "interfaceIP", skip_serializing_if = "Option::is_none")]
    pub interface_ip: Option<String>,
    /// Public IPv4 address.
    #[serde(default, rename = "publicIPv4", skip_serializing_if = "Option::is_none")]
    pub public_ipv4: Option<String>,
    /// Private IPv4 address.
    #[serde(default, rename = "privateIPv4", skip_serializing_if = "Option::is_none")]
    pub private_ipv4: Option<String>,
    /// Public IPv6 address.
    #[serde(default, rename = "publicIPv6", skip_serializing_if = "Option::is_none")]
    pub public_ipv6: Option<String>,
    /// Region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Availability zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub az: Option<String>,
    /// `ssh`, `winrm`, `kubectl`, `namespace` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_type: Option<String>,
    /// The port, where the connection has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_port: Option<i64>,
    /// The user to log in as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// SSH host keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
    /// Its Python.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_path: Option<String>,
    /// Its shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_type: Option<String>,
    /// The namespace of a pod, or the namespace that the node is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The Secret beside the request with the credentials: the keys `token` and `kubeconfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Attributes of its pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_labels_is_repeated_as_a_whole() {
        let spec: NodeRequestSpec =
            serde_json::from_value(serde_json::json!({"labels": ["a", "b"], "count": 2})).unwrap();
        assert_eq!(spec.node_types(10), ["a", "b", "a", "b"]);
        // One more than the limit is enough to see that it is exceeded.
        let spec = NodeRequestSpec { count: Some(u32::MAX), ..spec };
        assert_eq!(spec.node_types(10).len(), 11);
        assert_eq!(NodeRequestSpec::default().node_types(10), Vec::<String>::new());
    }

    #[test]
    fn states_are_written_as_zuul_writes_them() {
        let states = [RequestPhase::Requested, RequestPhase::Pending, RequestPhase::Fulfilled, RequestPhase::Failed];
        for (state, name) in states.into_iter().zip(RequestPhase::NAMES) {
            assert_eq!((state.to_string().as_str(), serde_json::to_value(state).unwrap()), (name, name.into()));
        }
    }
}
