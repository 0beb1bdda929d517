//! A plan as a Scaling Advisor's ScalingAdvice.

use std::collections::BTreeMap;

use millpond_plan::model::{NodeState, Snapshot};
use millpond_plan::plan::Outcome;
use serde_json::{Value, json};

/// Pool, type, zone: what the advice calls a placement.
type Placement = (String, String, String);

/// The advice; `constraintRef` names the plan's revision, which is the constraint it was made for.
pub(super) fn scaling_advice(snapshot: &Snapshot, outcome: &Outcome) -> Value {
    let mut bought: BTreeMap<Placement, u64> = BTreeMap::new();
    for node in &outcome.plan.new_nodes {
        let kind = &snapshot.types[node.instance_type.index()];
        let zone = snapshot.text(kind.offerings[node.offering as usize].zone).to_owned();
        let pool = snapshot.pools[node.pool.index()].name.clone();
        *bought.entry((pool, snapshot.text(kind.name).to_owned(), zone)).or_default() += 1;
    }
    let items: Vec<Value> = bought
        .into_iter()
        .map(|(placement, delta)| {
            let mut item = place(snapshot, &placement);
            item["currentReplicas"] = current(snapshot, &placement).into();
            item["delta"] = delta.into();
            item
        })
        .collect();
    let unsatisfied: Vec<String> = outcome.report.unplaced.iter().map(|(pod, _)| snapshot.pod_name(*pod)).collect();
    let gone: Vec<Value> = outcome
        .plan
        .removals
        .iter()
        .flat_map(|removal| &removal.nodes)
        .map(|id| {
            let mut item = place(snapshot, &placement_of(snapshot, id.index()));
            item["nodeName"] = snapshot.nodes[id.index()].name.clone().into();
            item
        })
        .collect();
    json!({
        "apiVersion": "sa.gardener.cloud/v1alpha1",
        "kind": "ScalingAdvice",
        "metadata": { "name": "millpond" },
        "spec": {
            "constraintRef": { "name": outcome.plan.revision },
            "scaleOutPlan": { "items": items, "unsatisfiedPodNames": unsatisfied },
            "scaleInPlan": { "items": gone },
        },
    })
}

fn placement_of(snapshot: &Snapshot, node: usize) -> Placement {
    let node = &snapshot.nodes[node];
    let pool = node.pool.map_or_else(String::new, |pool| snapshot.pools[pool.index()].name.clone());
    let text = |symbol: Option<millpond_plan::symbol::Symbol>| {
        symbol.map_or_else(String::new, |symbol| snapshot.text(symbol).to_owned())
    };
    (pool, text(node.instance_type), text(node.zone))
}

fn place(snapshot: &Snapshot, (pool, kind, zone): &Placement) -> Value {
    let region = region(snapshot, pool, kind);
    json!({
        "poolName": pool,
        "templateName": kind,
        "instanceType": kind,
        "region": region,
        "availabilityZone": zone,
    })
}

fn region(snapshot: &Snapshot, pool: &str, kind: &str) -> String {
    let pool = snapshot.find_pool(pool);
    let types = pool.map(|pool| &snapshot.pools[pool.index()].types).into_iter().flatten();
    let of_that_name = types.map(|id| &snapshot.types[id.index()]).find(|found| snapshot.text(found.name) == kind);
    let region = of_that_name.and_then(|found| found.labels.get(snapshot.names.region)?.only_value());
    region.map_or_else(String::new, |region| snapshot.text(region).to_owned())
}

fn current(snapshot: &Snapshot, placement: &Placement) -> usize {
    let there = |index: &usize| snapshot.nodes[*index].state != NodeState::Leaving;
    (0..snapshot.nodes.len()).filter(there).filter(|&index| placement_of(snapshot, index) == *placement).count()
}
