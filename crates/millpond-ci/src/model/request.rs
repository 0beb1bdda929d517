//! A request for nodes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Json, or_default};

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestState {
    /// No launcher has taken it.
    Requested,
    /// A launcher works on it.
    Pending,
    /// Its nodes are ready.
    Fulfilled,
    /// No launcher can provide its nodes.
    Failed,
}

impl fmt::Display for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "requested",
            Self::Pending => "pending",
            Self::Fulfilled => "fulfilled",
            Self::Failed => "failed",
        })
    }
}

/// A request. Its id is the name of its znode: `PPP-SSSSSSSSSS`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRequest {
    /// Where it stands.
    pub state: RequestState,
    /// Since when, in seconds since 1970.
    #[serde(default, deserialize_with = "or_default")]
    pub state_time: f64,
    /// Ids of the pools that cannot provide it.
    #[serde(default, deserialize_with = "or_default")]
    pub declined_by: Vec<String>,
    /// A label for each node, in order.
    #[serde(default, deserialize_with = "or_default")]
    pub node_types: Vec<String>,
    /// Ids of the nodes, in the same order.
    #[serde(default, deserialize_with = "or_default")]
    pub nodes: Vec<String>,
    /// Whether nodes that are ready already may be used.
    #[serde(default = "yes")]
    pub reuse: bool,
    /// The requestor.
    #[serde(default)]
    pub requestor: Option<String>,
    /// Data of the requestor's own.
    #[serde(default)]
    pub requestor_data: Option<Json>,
    /// The provider that nodes should come from, if it has them.
    #[serde(default)]
    pub provider: Option<String>,
    /// Of requests with the same precedence, lower numbers come first.
    #[serde(default, deserialize_with = "or_default")]
    pub relative_priority: i64,
    /// The event that caused it, for logs.
    #[serde(default)]
    pub event_id: Option<String>,
    /// When it was made.
    #[serde(default)]
    pub created_time: Option<f64>,
    /// The tenant whose limits it counts against.
    #[serde(default)]
    pub tenant_name: Option<String>,
    /// Keys that are not known here.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

fn yes() -> bool {
    true
}

impl NodeRequest {
    /// A new request for these labels.
    pub fn new(labels: Vec<String>, now: f64) -> Self {
        Self {
            state: RequestState::Requested,
            state_time: now,
            declined_by: Vec::new(),
            node_types: labels,
            nodes: Vec::new(),
            reuse: true,
            requestor: None,
            requestor_data: None,
            provider: None,
            relative_priority: 0,
            event_id: None,
            created_time: Some(now),
            tenant_name: None,
            others: BTreeMap::new(),
        }
    }

    /// Sets the state and its time.
    pub fn set_state(&mut self, state: RequestState, now: f64) {
        self.state = state;
        self.state_time = now;
    }
}
