//! A plan as one JSON object: stable names for scripts. The types make its schema, docs/reference/plan.schema.json, too;
//! their comments are its descriptions.

use std::collections::BTreeMap;

use millpond_plan::model::{CapacityType, PodId, Snapshot};
use millpond_plan::plan::{Outcome, Policy, Rule, Target};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

/// What `millpond plan -o json` prints. Fields are only ever added.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Plan")]
pub struct View {
    /// By whose rules the plan was made.
    #[schemars(extend("enum" = Policy::ALL.map(Policy::name)))]
    policy: &'static str,
    /// What the plan was made from.
    revision: String,
    /// Numbers of the whole plan.
    summary: Summary,
    /// What to do: nodes to buy, then nodes to take away.
    actions: Vec<Action>,
    /// Where each pod goes that needed a place and has one.
    placements: Vec<Placement>,
    /// Pods that have no place.
    unplaced: Vec<Unplaced>,
}

/// Numbers of the whole plan.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Summary {
    /// Pods that needed a place.
    pods: usize,
    /// Those that have one.
    placed: usize,
    /// Those that have none.
    unplaced: usize,
    /// Nodes that are there.
    nodes_before: usize,
    /// Nodes when the plan is done.
    nodes_after: usize,
    /// Dollars per hour of the nodes that are there.
    cost_per_hour_before: f64,
    /// Dollars per hour when the plan is done.
    cost_per_hour_after: f64,
    /// Dollars per hour that any plan by the same rules costs at least; 0 where nothing is known.
    bound: f64,
    /// Cost / bound − 1; null where nothing is known.
    gap: Option<f64>,
}

/// A node to buy or to take away.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Action {
    /// What is done.
    action: Verb,
    /// The node; a new one has the name of its pool and a number.
    node: String,
    /// The pool that the node belongs to.
    pool: Option<String>,
    /// Its instance type.
    instance_type: Option<String>,
    /// Its zone.
    zone: Option<String>,
    /// How it is bought.
    #[schemars(extend("enum" = capacity_types()))]
    capacity_type: Option<&'static str>,
    /// Dollars per hour of the node; null where its price is not known.
    price_per_hour: Option<f64>,
    /// Pods that come to a new node, or leave one that goes, as `namespace/name`.
    pods: Vec<String>,
    /// Why: a sentence for a new node; Empty, Drifted, Expired or Underutilized for one that goes.
    reason: String,
    /// Of `delete` and `replace`: new nodes that must be ready first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    replacements: Option<Vec<String>>,
    /// Of `delete` and `replace`: dollars per hour, this node's share of what the step saves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    savings_per_hour: Option<f64>,
    /// Of `delete` and `replace`: this node's share of what the step disturbs; an ordinary pod that moves counts 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    disruption_cost: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum Verb {
    Create,
    Delete,
    Replace,
}

/// Where a pod goes.
#[derive(Serialize, JsonSchema)]
struct Placement {
    /// The pod, as `namespace/name`.
    pod: String,
    /// A node that is there, or one of those to buy.
    node: String,
}

/// A pod that has no place.
#[derive(Serialize, JsonSchema)]
struct Unplaced {
    /// The pod, as `namespace/name`.
    pod: String,
    /// The rule that says most: of the pool that came nearest.
    #[schemars(extend("enum" = Rule::ALL.map(Rule::name)))]
    reason: &'static str,
    /// The same as a sentence.
    message: String,
    /// Why each pool does not take it.
    pools: Vec<PoolReason>,
}

/// Why a pool does not take a pod.
#[derive(Serialize, JsonSchema)]
struct PoolReason {
    /// The pool.
    pool: String,
    /// The first rule that leaves nothing to buy.
    #[schemars(extend("enum" = Rule::ALL.map(Rule::name)))]
    rule: &'static str,
    /// The same as a sentence.
    message: String,
}

/// Names of capacity types, or null.
fn capacity_types() -> Vec<Option<&'static str>> {
    CapacityType::ALL.into_iter().map(|of| Some(of.name())).chain([None]).collect()
}

/// The JSON Schema of the object.
pub fn schema() -> Schema {
    // Of what is written, not of what could be read: fields that may be null are always there.
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<View>()
}

/// Dollars of nano-dollars.
pub fn dollars(nanos: u128) -> f64 {
    nanos as f64 / 1e9
}

/// A plan as the object.
pub fn view(snapshot: &Snapshot, outcome: &Outcome, policy: Policy) -> View {
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
            gap: Some(report.gap()).filter(|gap| gap.is_finite()),
        },
        actions: actions(snapshot, outcome),
        placements: placements(snapshot, outcome),
        unplaced: unplaced(snapshot, outcome),
    }
}

/// The name of a node of a plan.
pub fn target_name(snapshot: &Snapshot, outcome: &Outcome, target: Target) -> String {
    match target {
        Target::Existing(node) => snapshot.nodes[node.index()].name.clone(),
        Target::New(index) => outcome.plan.node_name(snapshot, index as usize),
    }
}

/// Names of the pods that each new node gets.
pub fn pods_by_target(snapshot: &Snapshot, outcome: &Outcome) -> BTreeMap<Target, Vec<String>> {
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
            action: Verb::Create,
            node: outcome.plan.node_name(snapshot, index),
            pool: Some(snapshot.pools[node.pool.index()].name.clone()),
            instance_type: Some(snapshot.text(kind.name).to_owned()),
            zone: Some(snapshot.text(offering.zone).to_owned()),
            capacity_type: Some(offering.capacity_type.name()),
            price_per_hour: Some(dollars(u128::from(node.price))),
            pods,
            reason,
            replacements: None,
            savings_per_hour: None,
            disruption_cost: None,
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
                action: if replacements.is_empty() { Verb::Delete } else { Verb::Replace },
                node: node.name.clone(),
                pool: node.pool.map(|pool| snapshot.pools[pool.index()].name.clone()),
                instance_type: node.instance_type.map(|name| snapshot.text(name).to_owned()),
                zone: node.zone.map(|name| snapshot.text(name).to_owned()),
                capacity_type: node.capacity_type.map(CapacityType::name),
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
