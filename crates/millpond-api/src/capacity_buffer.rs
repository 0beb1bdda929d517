//! `autoscaling.x-k8s.io/v1beta1` CapacityBuffer: room that is kept free for pods that are still to come. Cluster
//! Autoscaler and Karpenter share the kind.

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::meta::{Condition, ObjectMeta, is_default, kind};

/// The API group.
pub const GROUP: &str = "autoscaling.x-k8s.io";
/// The strategy that keeps nodes running for the buffer; the only one.
pub const ACTIVE_STRATEGY: &str = "buffer.x-k8s.io/active-capacity";
/// Condition: size and shape are known, so that room can be made.
pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
/// Condition: capacity exists or is being provisioned.
pub const PROVISIONING: &str = "Provisioning";
/// Condition: the buffer is smaller than asked for, because of limits.
pub const LIMITED_BY_QUOTAS: &str = "LimitedByQuotas";

/// Capacity that is kept free.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct CapacityBuffer {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: CapacityBufferSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: CapacityBufferStatus,
}

kind!(CapacityBuffer, GROUP, "v1beta1", "CapacityBuffer", "capacitybuffers", namespaced: true);

/// The pods that capacity is kept for, and their number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferSpec {
    /// How the room is kept; [`ACTIVE_STRATEGY`] without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// PodTemplate of the namespace; the buffer's pods are made from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalRef>,
    /// The pods are like those of this object, which can be scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableRef>,
    /// A fixed number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// A percentage of the object's replicas, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentage: Option<i32>,
    /// Limits on the sum of the pods' requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Amounts>,
}

/// Names an object of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct LocalRef {
    /// Its name.
    pub name: String,
}

/// Names an object of the same namespace that can be scaled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalableRef {
    /// Its API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Observed state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferStatus {
    /// The template of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalRef>,
    /// Number of pods that capacity is kept for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The generation of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// The strategy that is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// Its conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
