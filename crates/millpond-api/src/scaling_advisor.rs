//! Gardener Scaling Advisor's kinds, `sa.gardener.cloud/v1alpha1`: the ScalingConstraint says what may be chosen, the
//! ScalingAdvice what was, and the ScalingFeedback what could not be done.

mod advice;
mod constraint;
mod feedback;

use serde::{Deserialize, Serialize};

pub use self::advice::{
    Diagnostic, NodePlacement, ScaleInItem, ScaleInPlan, ScaleOutItem, ScaleOutPlan, ScalingAdvice, ScalingAdviceSpec,
    ScalingAdviceStatus, SimRunResult,
};
pub use self::constraint::{
    BackoffPolicy, NodePool, NodeTemplate, ScaleInPolicy, ScalingConstraint, ScalingConstraintSpec,
    ScalingConstraintStatus,
};
pub use self::feedback::{ScaleInErrorInfo, ScaleOutErrorInfo, ScalingErrorType, ScalingFeedback, ScalingFeedbackSpec};

/// The API group.
pub const GROUP: &str = "sa.gardener.cloud";
/// Label of a node: its pool.
pub const POOL_LABEL: &str = "sa.gardener.cloud/node-pool-name";
/// Label of a node: the template that it was made from.
pub const TEMPLATE_LABEL: &str = "sa.gardener.cloud/node-template-name";
/// Annotation of a constraint: its advice contains diagnostics.
pub const DIAGNOSTICS_ANNOTATION: &str = "sa.gardener.cloud/enable-scaling-diagnostics";
/// Label of advice: its consumer, as in the constraint; an annotation if the value cannot be a label.
pub const CONSUMER_LABEL: &str = "sa.gardener.cloud/consumer-id";
/// Label of advice: how long the plan took.
pub const PLAN_DURATION_LABEL: &str = "sa.gardener.cloud/plan-generate-duration";
/// Label of advice: how many pools there were to choose from.
pub const POOLS_LABEL: &str = "sa.gardener.cloud/constraint-num-pools";
/// Label of advice: how many pods had no place.
pub const UNSCHEDULED_PODS_LABEL: &str = "sa.gardener.cloud/snapshot-num-unscheduled-pods";

/// Names the constraint that advice or feedback is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
pub struct ConstraintRef {
    /// Its namespace; that of the object without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}
