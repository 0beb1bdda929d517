//! `karpenter.sh/v1` NodeClaim: one node that was asked for, and what became of it. What is asked for never changes.

use serde::{Deserialize, Serialize};

use super::{GROUP, NodeClassRef, PoolRequirement, Taint};
use crate::amounts::Amounts;
use crate::duration::{Duration, NillableDuration};
use crate::meta::{Condition, ObjectMeta, is_default, kind};
use crate::time::Time;

/// A node that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodeClaim {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: NodeClaimSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: NodeClaimStatus,
}

/// Desired state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSpec {
    /// Requirements on its labels.
    #[serde(default)]
    pub requirements: Vec<PoolRequirement>,
    /// Taints for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that another component removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Resources that the node must have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: NodeClaimResources,
    /// The class of its node, which names the provider.
    #[serde(default)]
    pub node_class_ref: NodeClassRef,
    /// Age at which it is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<NillableDuration>,
    /// The longest that draining may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<Duration>,
}

/// Resources that the node of a claim must have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeClaimResources {
    /// The sum of what its pods ask for.
    #[serde(default)]
    pub requests: Amounts,
}

/// Observed state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// The node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The machine.
    #[serde(default, rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// The image that the machine runs.
    #[serde(default, rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// Capacity of the node.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub capacity: Amounts,
    /// Allocatable resources.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub allocatable: Amounts,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Time of the last pod event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pod_event_time: Option<Time>,
}

kind!(NodeClaim, GROUP, "v1", "NodeClaim", "nodeclaims", namespaced: false);
