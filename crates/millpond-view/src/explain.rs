//! Why a pod has no place, for scripts and pages.

use millpond_plan::explain::{PodExplanation, Standing, StepExplanation, Subject};
use millpond_plan::model::Snapshot;
use serde_json::{Value, json};

/// What a step of a funnel is about.
pub fn about(snapshot: &Snapshot, step: &StepExplanation) -> String {
    match step.subject {
        Subject::Whole => String::new(),
        Subject::Taint(taint) => snapshot.text(taint.key).to_owned(),
        Subject::Label(key) => snapshot.text(key).to_owned(),
        Subject::Alternatives => "alternatives".to_owned(),
        Subject::Volume(number) => format!("volume {}", number + 1),
        Subject::Resource(resource) => snapshot.resources.name(resource).to_owned(),
        Subject::Nodes => "nodes".to_owned(),
        Subject::Price => "dollars per hour".to_owned(),
    }
}

/// The whole explanation.
pub fn view(snapshot: &Snapshot, explained: &PodExplanation) -> Value {
    let pools: Vec<Value> = explained
        .pools
        .iter()
        .map(|pool| {
            let steps: Vec<Value> = pool
                .steps
                .iter()
                .map(|step| {
                    json!({
                        "rule": step.rule.name(),
                        "about": about(snapshot, step),
                        "typesRemoved": step.types_removed,
                        "typesLeft": step.types_left,
                        "offersLeft": step.offers_left,
                    })
                })
                .collect();
            json!({
                "pool": snapshot.pools[pool.pool.index()].name,
                "types": pool.types,
                "rule": pool.verdict.as_ref().map(|verdict| verdict.rule.name()),
                "message": pool.verdict.as_ref().map(|verdict| verdict.message.clone()),
                "steps": steps,
            })
        })
        .collect();
    let nodes: Vec<Value> =
        explained.nodes.iter().map(|(rule, nodes)| json!({ "rule": rule.name(), "nodes": nodes })).collect();
    json!({
        "pod": snapshot.pod_name(explained.pod),
        "placed": explained.standing != Standing::Unplaced,
        "message": explained.message,
        "rule": explained.verdict.as_ref().map(|verdict| verdict.rule.name()),
        "pools": pools,
        "nodes": nodes,
        "nearestMiss": explained.nearest.as_ref().map(|nearest| nearest.message.clone()),
        "suggestion": explained.suggestion.as_ref().map(|suggestion| suggestion.message.clone()),
    })
}
