//! A plan as one JSON object: stable names for scripts. Its schema is in docs/reference/plan.md.

use std::collections::BTreeMap;

use millpond_plan::model::{PodId, Snapshot};
use millpond_plan::plan::{Outcome, Policy, Target};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    policy: &'static str,
    revision: String,
    summary: Summary,
    actions: Vec<Action>,
    placements: Vec<Placement>,
    unplaced: Vec<Unplaced>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    pods: usize,
    placed: usize,
    unplaced: usize,
    nodes_before: usize,
    nodes_after: usize,
    cost_per_hour_before: f64,
    cost_per_hour_after: f64,
    /// No plan by the same rules costs less.
    bound: f64,
    gap: f64,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Action {
    action: &'static str,
    node: String,
    pool: Option<String>,
    instance_type: Option<String>,
    zone: Option<String>,
    capacity_type: Option<&'static str>,
    price_per_hour: Option<f64>,
    /// Pods that come to a new node, or leave one that goes.
    pods: Vec<String>,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replacements: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    savings_per_hour: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disruption_cost: Option<f64>,
}

#[derive(Serialize)]
struct Placement {
    pod: String,
    node: String,
}

#[derive(Serialize)]
struct Unplaced {
    pod: String,
    reason: &'static str,
    message: String,
    pools: Vec<PoolReason>,
}

#[derive(Serialize)]
struct PoolReason {
    pool: String,
    rule: &'static str,
    message: String,
}

/// Dollars of nano-dollars.
pub(super) fn dollars(nanos: u128) -> f64 {
    nanos as f64 / 1e9
}

pub(super) fn view(snapshot: &Snapshot, outcome: &Outcome, policy: Policy) -> View {
    let report = &outcome.report;
    View {
        policy: policy.name(),
        revision: outcome.plan.revision.clone(),
        summary: Summary {
            pods: report.pods,
            placed: report.placed(),
            unplaced: report.unplaced.len(),
            nodes_before: report.nodes_before,
            nodes_after: report.nodes_after,
            cost_per_hour_before: dollars(report.cost_before),
            cost_per_hour_after: dollars(report.cost_after),
            bound: dollars(report.bound),
            gap: report.gap(),
        },
        actions: actions(snapshot, outcome),
        placements: placements(snapshot, outcome),
        unplaced: unplaced(snapshot, outcome),
    }
}

/// The name of a node of a plan.
pub(super) fn target_name(snapshot: &Snapshot, outcome: &Outcome, target: Target) -> String {
    match target {
        Target::Existing(node) => snapshot.nodes[node.index()].name.clone(),
        Target::New(index) => outcome.plan.node_name(snapshot, index as usize),
    }
}

/// Names of the pods that each new node gets.
pub(super) fn pods_by_target(snapshot: &Snapshot, outcome: &Outcome) -> BTreeMap<Target, Vec<String>> {
    let mut pods: BTreeMap<Target, Vec<String>> = BTreeMap::new();
    for &(pod, target) in &outcome.plan.placements {
        pods.entry(target).or_default().push(snapshot.pod_name(pod));
    }
    pods
}

fn actions(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Action> {
    let mut pods = pods_by_target(snapshot, outcome);
    let mut actions: Vec<Action> = Vec::new();
    for (index, node) in outcome.plan.new_nodes.iter().enumerate() {
        let kind = &snapshot.types[node.instance_type.index()];
        let offering = &kind.offerings[node.offering as usize];
        let pods = pods.remove(&Target::New(index as u32)).unwrap_or_default();
        let replaced = outcome.plan.removals.iter().find(|removal| removal.replacements.contains(&(index as u32)));
        let reason = match replaced {
            Some(removal) => {
                let names: Vec<&str> = removal.nodes.iter().map(|n| &*snapshot.nodes[n.index()].name).collect();
                format!("replaces {}", names.join(", "))
            }
            None if pods.is_empty() => "the pool's least number of nodes".to_owned(),
            None => "pods without a place".to_owned(),
        };
        actions.push(Action {
            action: "create",
            node: outcome.plan.node_name(snapshot, index),
            pool: Some(snapshot.pools[node.pool.index()].name.clone()),
            instance_type: Some(snapshot.text(kind.name).to_owned()),
            zone: Some(snapshot.text(offering.zone).to_owned()),
            capacity_type: Some(offering.capacity_type.name()),
            price_per_hour: Some(dollars(u128::from(node.price))),
            pods,
            reason,
            ..Action::default()
        });
    }
    for removal in &outcome.plan.removals {
        let replacements: Vec<String> =
            removal.replacements.iter().map(|&node| outcome.plan.node_name(snapshot, node as usize)).collect();
        for &id in &removal.nodes {
            let node = &snapshot.nodes[id.index()];
            let moved = outcome.plan.placements.iter().filter(|(pod, _)| snapshot.pods[pod.index()].node == Some(id));
            let share = removal.nodes.len() as f64;
            actions.push(Action {
                action: if replacements.is_empty() { "delete" } else { "replace" },
                node: node.name.clone(),
                pool: node.pool.map(|pool| snapshot.pools[pool.index()].name.clone()),
                instance_type: node.instance_type.map(|name| snapshot.text(name).to_owned()),
                zone: node.zone.map(|name| snapshot.text(name).to_owned()),
                capacity_type: node.capacity_type.map(millpond_plan::model::CapacityType::name),
                price_per_hour: node.price.map(|price| dollars(u128::from(price))),
                pods: moved.map(|(pod, _)| snapshot.pod_name(*pod)).collect(),
                reason: removal.reason.name().to_owned(),
                replacements: Some(replacements.clone()),
                savings_per_hour: Some(removal.savings as f64 / 1e9 / share),
                disruption_cost: Some(removal.disruption as f64 / 1e3 / share),
            });
        }
    }
    actions
}

fn placements(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Placement> {
    let new: Vec<String> =
        (0..outcome.plan.new_nodes.len()).map(|node| outcome.plan.node_name(snapshot, node)).collect();
    let name = |target| match target {
        Target::New(index) => new[index as usize].clone(),
        Target::Existing(_) => target_name(snapshot, outcome, target),
    };
    let each = outcome.plan.placements.iter();
    each.map(|&(pod, target)| Placement { pod: snapshot.pod_name(pod), node: name(target) }).collect()
}

fn unplaced(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Unplaced> {
    let one = |&(pod, verdict): &(PodId, u32)| {
        let verdict = &outcome.report.verdicts[verdict as usize];
        let pools = verdict.pools.iter().map(|pool| PoolReason {
            pool: snapshot.pools[pool.pool.index()].name.clone(),
            rule: pool.rule.name(),
            message: pool.message.clone(),
        });
        Unplaced {
            pod: snapshot.pod_name(pod),
            reason: verdict.rule.name(),
            message: verdict.message.clone(),
            pools: pools.collect(),
        }
    };
    outcome.report.unplaced.iter().map(one).collect()
}
