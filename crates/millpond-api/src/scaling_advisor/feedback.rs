//! ScalingFeedback: what the consumer of advice could not do.

use serde::{Deserialize, Serialize};

use super::{ConstraintRef, GROUP};
use crate::meta::{ObjectMeta, is_default, kind, null_as_default};

/// What could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ScalingFeedback {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The feedback.
    #[serde(default)]
    pub spec: ScalingFeedbackSpec,
}

kind!(ScalingFeedback, GROUP, "v1alpha1", "ScalingFeedback", "scalingfeedbacks", namespaced: true);

/// The feedback.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingFeedbackSpec {
    /// The constraint that it is about.
    #[serde(default)]
    pub constraint_ref: ConstraintRef,
    /// Nodes that did not come.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub scale_out_error_infos: Vec<ScaleOutErrorInfo>,
    /// Nodes that did not go.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scale_in_error_info: ScaleInErrorInfo,
}

/// Nodes of one type in one zone that did not come.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleOutErrorInfo {
    /// The zone.
    pub availability_zone: String,
    /// The instance type.
    pub instance_type: String,
    /// Why.
    pub error_type: ScalingErrorType,
    /// How many.
    #[serde(default)]
    pub fail_count: i32,
}

/// Why nodes did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum ScalingErrorType {
    /// There are no more of the type in the zone.
    #[serde(rename = "ResourceExhaustedError")]
    ResourceExhausted,
    /// They took too long.
    #[serde(rename = "CreationTimeoutError")]
    CreationTimeout,
}

/// Nodes that did not go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleInErrorInfo {
    /// Their names.
    #[serde(default, deserialize_with = "null_as_default")]
    pub node_names: Vec<String>,
}
