//! A plan as Scaling Advisor's advice: how many nodes of which template should come in which zone, which nodes should
//! go, and which pods have no place even so.
//!
//! A type without a template, as in a NodePool, serves as its own template.

use std::collections::BTreeMap;

use millpond_api::scaling_advisor::{
    ConstraintRef, Diagnostic, NodePlacement, ScaleInItem, ScaleInPlan, ScaleOutItem, ScaleOutPlan, ScalingAdviceSpec,
    SimRunResult, TEMPLATE_LABEL,
};
use millpond_plan::model::{CPU, InstanceType, MEMORY, Node, NodeState, PodId, Snapshot};
use millpond_plan::plan::{Outcome, Target};
use millpond_plan::symbol::Symbol;

/// Where to read more.
const EXPLAIN: &str = "millpond explain pod/NAME";

/// The advice. Deterministic: equal plans give equal advice.
pub fn spec(snapshot: &Snapshot, outcome: &Outcome, constraint: ConstraintRef) -> ScalingAdviceSpec {
    let mut deltas: BTreeMap<NodePlacement, i32> = BTreeMap::new();
    for node in 0..outcome.plan.new_nodes.len() {
        *deltas.entry(of_new(snapshot, outcome, node)).or_default() += 1;
    }
    let there = current(snapshot);
    let item = |(placement, delta): (NodePlacement, i32)| {
        let current_replicas = there.get(&placement).copied().unwrap_or(0);
        ScaleOutItem { placement, current_replicas, delta }
    };
    let mut unsatisfied_pod_names: Vec<String> =
        unplaced(snapshot, outcome).map(|pod| snapshot.pod_name(pod)).collect();
    unsatisfied_pod_names.sort();
    let out = ScaleOutPlan { items: deltas.into_iter().map(item).collect(), unsatisfied_pod_names };
    let mut leaving: Vec<ScaleInItem> = outcome
        .plan
        .removals
        .iter()
        .flat_map(|removal| &removal.nodes)
        .map(|id| &snapshot.nodes[id.index()])
        .map(|node| ScaleInItem { placement: of_node(snapshot, node), node_name: node.name.clone() })
        .collect();
    leaving.sort_by(|a, b| a.node_name.cmp(&b.node_name));
    ScalingAdviceSpec {
        constraint_ref: constraint,
        scale_out_plan: Some(out),
        scale_in_plan: Some(ScaleInPlan { items: leaving }),
    }
}

/// The result for every template in every zone. A score is the share, in percent, of the cores or of the memory bought
/// there that pods use, whichever is higher.
pub fn diagnostic(snapshot: &Snapshot, outcome: &Outcome) -> Diagnostic {
    let mut bought: BTreeMap<NodePlacement, Vec<usize>> = BTreeMap::new();
    for pool in &snapshot.pools {
        for of in pool.types.iter().map(|id| &snapshot.types[id.index()]) {
            for offering in &of.offerings {
                bought.entry(placement(snapshot, &pool.name, of, offering.zone)).or_default();
            }
        }
    }
    for node in 0..outcome.plan.new_nodes.len() {
        bought.entry(of_new(snapshot, outcome, node)).or_default().push(node);
    }
    let mut pods: BTreeMap<usize, Vec<PodId>> = BTreeMap::new();
    for (pod, target) in &outcome.plan.placements {
        if let Target::New(node) = target {
            pods.entry(*node as usize).or_default().push(*pod);
        }
    }
    let waiting = outcome.plan.placements.len() + outcome.report.unplaced.len();
    let result = |(placement, nodes): (NodePlacement, Vec<usize>)| {
        let inside: Vec<PodId> = nodes.iter().flat_map(|node| pods.get(node).into_iter().flatten().copied()).collect();
        let mut scheduled_pod_names: Vec<String> = inside.iter().map(|pod| snapshot.pod_name(*pod)).collect();
        scheduled_pod_names.sort();
        SimRunResult {
            node_pool_name: placement.pool_name,
            node_template_name: placement.template_name,
            availability_zone: placement.availability_zone,
            num_unscheduled_pods: i32::try_from(waiting - inside.len()).unwrap_or(i32::MAX),
            node_score: share(snapshot, outcome, &nodes, &inside),
            scheduled_pod_names,
        }
    };
    Diagnostic { trace_log_name: EXPLAIN.to_owned(), sim_run_results: bought.into_iter().map(result).collect() }
}

fn share(snapshot: &Snapshot, outcome: &Outcome, nodes: &[usize], pods: &[PodId]) -> i64 {
    let of_resource = |resource| {
        let has = |node: &usize| {
            let of = &snapshot.types[outcome.plan.new_nodes[*node].instance_type.index()];
            i128::from(of.allocatable.get(resource))
        };
        let all: i128 = nodes.iter().map(has).sum();
        let used: i128 = pods.iter().map(|pod| i128::from(snapshot.class_of(*pod).requests.get(resource))).sum();
        if all > 0 { used * 100 / all } else { 0 }
    };
    i64::try_from(of_resource(CPU).max(of_resource(MEMORY))).unwrap_or(i64::MAX)
}

/// Pods without a place; placeholder pods of buffers are left out.
fn unplaced<'s>(snapshot: &'s Snapshot, outcome: &'s Outcome) -> impl Iterator<Item = PodId> + 's {
    let pods = outcome.report.unplaced.iter().map(|(pod, _)| *pod);
    pods.filter(|pod| !snapshot.class_of(*pod).is_buffer())
}

/// Existing nodes that are not being removed, counted by placement.
fn current(snapshot: &Snapshot) -> BTreeMap<NodePlacement, i32> {
    let mut counts = BTreeMap::new();
    for node in snapshot.nodes.iter().filter(|node| node.state != NodeState::Leaving) {
        *counts.entry(of_node(snapshot, node)).or_default() += 1;
    }
    counts
}

fn of_new(snapshot: &Snapshot, outcome: &Outcome, node: usize) -> NodePlacement {
    let node = &outcome.plan.new_nodes[node];
    let of = &snapshot.types[node.instance_type.index()];
    let zone = of.offerings[node.offering as usize].zone;
    placement(snapshot, &snapshot.pools[node.pool.index()].name, of, zone)
}

fn placement(snapshot: &Snapshot, pool: &str, of: &InstanceType, zone: Symbol) -> NodePlacement {
    let instance_type = snapshot.text(of.name).to_owned();
    let only = |key: Option<Symbol>| Some(snapshot.text(of.labels.get(key?)?.only_value()?).to_owned());
    NodePlacement {
        pool_name: pool.to_owned(),
        template_name: only(snapshot.symbols.find(TEMPLATE_LABEL)).unwrap_or_else(|| instance_type.clone()),
        instance_type,
        region: only(Some(snapshot.names.region)).unwrap_or_default(),
        availability_zone: snapshot.text(zone).to_owned(),
    }
}

fn of_node(snapshot: &Snapshot, node: &Node) -> NodePlacement {
    let text = |symbol: Option<Symbol>| symbol.map_or_else(String::new, |symbol| snapshot.text(symbol).to_owned());
    let label = |key: Option<Symbol>| node.labels.get(key?);
    let instance_type = text(node.instance_type);
    let template = text(label(snapshot.symbols.find(TEMPLATE_LABEL)));
    NodePlacement {
        pool_name: node.pool.map_or_else(String::new, |pool| snapshot.pools[pool.index()].name.clone()),
        template_name: if template.is_empty() { template_of(snapshot, node, &instance_type) } else { template },
        instance_type,
        region: text(label(Some(snapshot.names.region))),
        availability_zone: text(node.zone),
    }
}

/// The template of a node that does not name it: the first of its pool with its type.
fn template_of(snapshot: &Snapshot, node: &Node, instance_type: &str) -> String {
    let types = node.pool.iter().flat_map(|pool| &snapshot.pools[pool.index()].types);
    let mut types = types.map(|id| &snapshot.types[id.index()]);
    let of = types.find(|of| Some(of.name) == node.instance_type);
    let key = snapshot.symbols.find(TEMPLATE_LABEL);
    let named = of.and_then(|of| Some(snapshot.text(of.labels.get(key?)?.only_value()?).to_owned()));
    named.unwrap_or_else(|| instance_type.to_owned())
}
