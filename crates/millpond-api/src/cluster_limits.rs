//! `millpond.dev/v1alpha1` ClusterLimits: what all nodes of all pools may add up to, in resources, in number and in
//! dollars per hour. If there are several, all of them hold.
//!
//! ```yaml
//! apiVersion: millpond.dev/v1alpha1
//! kind: ClusterLimits
//! metadata: {name: cluster}
//! spec:
//!   limits: {nodes: 100, cpu: 2000, memory: 8Ti}
//!   dollarsPerHour: "120"
//! ```

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::meta::{Condition, ObjectMeta, is_default, kind};
use crate::money::Dollars;
use crate::node_class::GROUP;

/// Limits on the sum of all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ClusterLimits {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: ClusterLimitsSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ClusterLimitsStatus,
}

kind!(ClusterLimits, GROUP, "v1alpha1", "ClusterLimits", "clusterlimits", namespaced: false);

/// The limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLimitsSpec {
    /// Of resources; `nodes` counts nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Amounts>,
    /// Of money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dollars_per_hour: Option<Dollars>,
}

/// Usage of the limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLimitsStatus {
    /// The sum of all nodes, those that are asked for included; `nodes` counts them.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub used: Amounts,
    /// Cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dollars_per_hour: Option<Dollars>,
    /// `Ready` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
