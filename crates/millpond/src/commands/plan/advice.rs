//! A plan as a Scaling Advisor's ScalingAdvice.

use millpond_api::scaling_advisor::ConstraintRef;
use millpond_plan::model::Snapshot;
use millpond_plan::plan::Outcome;
use serde_json::{Value, json};

/// The advice; `constraintRef` names the plan's revision, which is the constraint it was made for.
pub(super) fn scaling_advice(snapshot: &Snapshot, outcome: &Outcome) -> Value {
    let constraint = ConstraintRef { namespace: String::new(), name: outcome.plan.revision.clone() };
    json!({
        "apiVersion": "sa.gardener.cloud/v1alpha1",
        "kind": "ScalingAdvice",
        "metadata": { "name": "millpond" },
        "spec": millpond_state::advice::spec(snapshot, outcome, constraint),
    })
}
