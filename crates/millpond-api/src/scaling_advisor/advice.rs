//! ScalingAdvice: which nodes should come and which should go.

use serde::{Deserialize, Serialize};

use super::{ConstraintRef, GROUP};
use crate::meta::{Condition, ObjectMeta, is_default, kind, null_as_default};

/// Advice for the consumer of a constraint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ScalingAdvice {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The advice.
    #[serde(default)]
    pub spec: ScalingAdviceSpec,
    /// How it was found.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ScalingAdviceStatus,
}

kind!(ScalingAdvice, GROUP, "v1alpha1", "ScalingAdvice", "scalingadvices", namespaced: true);

/// The advice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingAdviceSpec {
    /// The constraint that it follows.
    #[serde(default)]
    pub constraint_ref: ConstraintRef,
    /// Nodes to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_out_plan: Option<ScaleOutPlan>,
    /// Nodes to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_in_plan: Option<ScaleInPlan>,
}

/// Nodes to add.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleOutPlan {
    /// Nodes by where they are.
    #[serde(default, deserialize_with = "null_as_default")]
    pub items: Vec<ScaleOutItem>,
    /// Pods (`namespace/name`) that have no place even so.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub unsatisfied_pod_names: Vec<String>,
}

/// Nodes of one template in one zone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleOutItem {
    /// Where they are.
    #[serde(flatten)]
    pub placement: NodePlacement,
    /// Number of replicas.
    #[serde(default)]
    pub current_replicas: i32,
    /// How many should come.
    #[serde(default)]
    pub delta: i32,
}

/// Nodes to remove.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ScaleInPlan {
    /// Nodes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub items: Vec<ScaleInItem>,
}

/// A node that should go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleInItem {
    /// Where it is.
    #[serde(flatten)]
    pub placement: NodePlacement,
    /// Its name.
    pub node_name: String,
}

/// A template in a zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacement {
    /// The pool.
    pub pool_name: String,
    /// The template.
    pub template_name: String,
    /// The instance type.
    pub instance_type: String,
    /// The region.
    pub region: String,
    /// The zone.
    pub availability_zone: String,
}

/// How the advice was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ScalingAdviceStatus {
    /// In full, if the constraint asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<Diagnostic>,
    /// Whether it still holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The alternatives that were tried.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// Where to read more.
    #[serde(default)]
    pub trace_log_name: String,
    /// Each template in each zone.
    #[serde(default, deserialize_with = "null_as_default")]
    pub sim_run_results: Vec<SimRunResult>,
}

/// The result for a template in a zone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SimRunResult {
    /// The pool.
    pub node_pool_name: String,
    /// The template.
    pub node_template_name: String,
    /// The zone.
    pub availability_zone: String,
    /// Pods that have a place there.
    #[serde(default, deserialize_with = "null_as_default")]
    pub scheduled_pod_names: Vec<String>,
    /// How good it is; the greater the better.
    #[serde(default)]
    pub node_score: i64,
    /// Pods that have no place there.
    #[serde(default)]
    pub num_unscheduled_pods: i32,
}
