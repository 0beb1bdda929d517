//! Planned nodes as v1 Nodes, to try a plan on a real scheduler.

use millpond_plan::model::{ResourceId, Resources, Snapshot};
use millpond_plan::plan::Outcome;
use millpond_plan::taint::Effect;
use serde_json::{Map, Value, json};

/// All of them in one List.
pub(super) fn list(snapshot: &Snapshot, outcome: &Outcome) -> Value {
    let nodes: Vec<Value> = (0..outcome.plan.new_nodes.len()).map(|index| node(snapshot, outcome, index)).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": nodes })
}

fn node(snapshot: &Snapshot, outcome: &Outcome, index: usize) -> Value {
    let planned = &outcome.plan.new_nodes[index];
    let kind = &snapshot.types[planned.instance_type.index()];
    let name = outcome.plan.node_name(snapshot, index);
    let mut labels: Map<String, Value> = planned
        .labels
        .iter()
        .map(|(key, value)| (snapshot.text(key).to_owned(), snapshot.text(value).into()))
        .collect();
    labels.insert("kubernetes.io/hostname".to_owned(), name.clone().into());
    let taints: Vec<Value> = snapshot.pools[planned.pool.index()]
        .taints
        .iter()
        .map(|taint| {
            let effect = match taint.effect {
                Effect::NoSchedule => "NoSchedule",
                Effect::PreferNoSchedule => "PreferNoSchedule",
                Effect::NoExecute => "NoExecute",
            };
            json!({ "key": snapshot.text(taint.key), "value": snapshot.text(taint.value), "effect": effect })
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": labels },
        "spec": { "taints": taints },
        "status": {
            "capacity": amounts(snapshot, &kind.capacity),
            "allocatable": amounts(snapshot, &kind.allocatable),
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Planned" }],
        },
    })
}

fn amounts(snapshot: &Snapshot, resources: &Resources) -> Map<String, Value> {
    resources.iter().map(|(id, amount)| (snapshot.resources.name(id).to_owned(), quantity(id, amount).into())).collect()
}

fn quantity(resource: ResourceId, amount: i64) -> String {
    if resource == millpond_plan::model::CPU && amount % 1000 != 0 {
        return format!("{amount}m");
    }
    if resource == millpond_plan::model::CPU { (amount / 1000).to_string() } else { amount.to_string() }
}
