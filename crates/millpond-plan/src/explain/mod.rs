//! Why a pod has no place, or has the one that it has.
//!
//! ```text
//! verdict      for each pool the first rule that leaves nothing to buy, in one sentence: every plan carries it
//! explain_pool why a pool can make no node, whatever pods ask for
//! explain_pod  the whole story: what each rule took out, the nearest miss, and one edit that was tried out
//! ```
//!
//! Rules are checked in the order of [`Rule`]. Everything here is data with sentences in it; the command lays it out.
//! Why a node is kept or removed is explained by `disruption`.

mod after;
mod edit;
mod funnel;
mod miss;
mod pool;
mod reason;
mod suggest;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

pub use edit::{Edit, LimitOf};
pub use funnel::Subject;
pub use miss::{Miss, NearMiss};
pub use pool::{PoolStanding, explain_pool, explain_pools};
pub use suggest::Suggestion;
pub use verdict::verdict;

use std::collections::BTreeMap;

use crate::cluster_state::{NodeSlotId, needs_place};
use crate::market::{Market, usable};
use crate::model::{NodeId, NodeState, PodId, PodKind, PodState, PoolId, Snapshot};
use crate::plan::{Outcome, PoolVerdict, Rule, Settings, Target, Verdict};
use after::After;
use funnel::{Inquiry, Step};

/// Why a pod is on its node, or has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodExplanation {
    /// The pod.
    pub pod: PodId,
    /// Its present or planned place.
    pub standing: Standing,
    /// `standing` as one sentence.
    pub message: String,
    /// Why the pod has no place; `None` if it has one or needs none.
    pub verdict: Option<Verdict>,
    /// What every pool could offer, in the order of the snapshot.
    pub pools: Vec<PoolExplanation>,
    /// Existing nodes that would not take the pod, counted by the first rule that they fail; empty if the pod needs no
    /// place.
    pub nodes: Vec<(Rule, usize)>,
    /// Existing nodes that take no pods.
    pub closed_nodes: usize,
    /// The offering that came closest, if the pod has no place.
    pub nearest: Option<NearMiss>,
    /// One edit with which the pod would have a place, if one was found.
    pub suggestion: Option<Suggestion>,
}

/// The present or planned place of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It runs.
    Running(NodeId),
    /// It is nominated for a node.
    Expected(NodeId),
    /// It is terminating.
    Leaving,
    /// It waits behind a scheduling gate.
    Gated,
    /// It belongs to a DaemonSet whose node has no capacity for it yet.
    Daemon,
    /// A plan places it.
    Planned(Target),
    /// No node can take it.
    Unplaced,
}

/// What a pool could offer to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolExplanation {
    /// The pool.
    pub pool: PoolId,
    /// Number of the provider's types.
    pub types: usize,
    /// What each rule excluded, in the order of the checks, up to the first that left nothing.
    pub steps: Vec<StepExplanation>,
    /// Why no offering is left; `None` if one is.
    pub verdict: Option<PoolVerdict>,
}

/// What one rule excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepExplanation {
    /// The rule.
    pub rule: Rule,
    /// The label, taint or resource that it concerns.
    pub subject: Subject,
    /// Types that it excluded.
    pub types_removed: usize,
    /// Types that are left.
    pub types_left: usize,
    /// Offers (type, zone, capacity type) that are left.
    pub offers_left: usize,
}

/// Plans the snapshot and explains what becomes of a pod.
pub fn explain_pod(snapshot: &Snapshot, pod: PodId) -> PodExplanation {
    explain_in(snapshot, &plan(snapshot), pod)
}

/// Explains a pod's place in a plan.
pub fn explain_in(snapshot: &Snapshot, outcome: &Outcome, pod: PodId) -> PodExplanation {
    let market = Market::new(snapshot);
    let mut after = After::new(snapshot, &market, outcome);
    let class = snapshot.pods[pod.index()].class;
    let standing = standing(snapshot, outcome, pod);
    let looks = matches!(standing, Standing::Unplaced | Standing::Planned(Target::New(_)));
    let nodes = if looks { refusing_nodes(snapshot, &mut after, pod) } else { Vec::new() };
    let closed_nodes = (0..snapshot.nodes.len()).filter(|node| !usable(snapshot, *node)).count();
    let inquiry = Inquiry::new(snapshot, &market, &after.cluster, &after.usage, class);
    let funnels: Vec<Vec<Step>> = (0..snapshot.pools.len()).map(|pool| inquiry.funnel(PoolId::from(pool))).collect();
    let pools = funnels.iter().enumerate().map(|(pool, steps)| of_pool(&inquiry, PoolId::from(pool), steps)).collect();
    let unplaced = standing == Standing::Unplaced;
    let verdict = unplaced.then(|| verdict::of_funnels(&inquiry, &funnels));
    let nearest = if unplaced { miss::nearest(&inquiry) } else { None };
    let suggestion = if unplaced { suggest::suggest(&inquiry, outcome, &funnels, pod) } else { None };
    let message = match &verdict {
        Some(verdict) => verdict.message.clone(),
        None => placed_message(&inquiry, outcome, &funnels, &standing),
    };
    PodExplanation { pod, standing, message, verdict, pools, nodes, closed_nodes, nearest, suggestion }
}

/// The plan that explanations are based on.
fn plan(snapshot: &Snapshot) -> Outcome {
    crate::solve::plan(snapshot, &Settings::default())
}

fn standing(snapshot: &Snapshot, outcome: &Outcome, pod: PodId) -> Standing {
    let of = &snapshot.pods[pod.index()];
    if let Some(target) = outcome.plan.target(pod) {
        return Standing::Planned(target);
    }
    match (of.state, of.node) {
        (PodState::Gated, _) => Standing::Gated,
        (PodState::Terminating, _) => Standing::Leaving,
        _ if needs_place(snapshot, pod) => Standing::Unplaced,
        (PodState::Bound, Some(node)) => Standing::Running(node),
        (PodState::Pending, Some(node)) => Standing::Expected(node),
        _ if snapshot.class_of(pod).kind == PodKind::Daemon => Standing::Daemon,
        _ => Standing::Unplaced,
    }
}

/// Existing nodes that would not take the pod, counted by the first rule that they fail.
fn refusing_nodes(snapshot: &Snapshot, after: &mut After<'_>, pod: PodId) -> Vec<(Rule, usize)> {
    let class = snapshot.pods[pod.index()].class;
    let mut counted: BTreeMap<Rule, usize> = BTreeMap::new();
    for node in (0..snapshot.nodes.len() as u32).filter(|node| usable(snapshot, *node as usize)) {
        if let Err(rule) = after.cluster.check(class, NodeSlotId(node)) {
            *counted.entry(rule).or_default() += 1;
        }
    }
    counted.into_iter().collect()
}

fn of_pool(inquiry: &Inquiry<'_>, pool: PoolId, steps: &[Step]) -> PoolExplanation {
    let types = inquiry.snapshot.pools[pool.index()].types.len();
    let mut before = types;
    let step = |step: &Step| {
        let left = inquiry.types(&step.left).len();
        let removed = before.saturating_sub(left);
        before = left;
        StepExplanation {
            rule: step.rule,
            subject: step.subject,
            types_removed: removed,
            types_left: left,
            offers_left: step.left.len(),
        }
    };
    let failed = steps.last().is_none_or(|step| step.left.is_empty());
    PoolExplanation {
        pool,
        types,
        steps: steps.iter().map(step).collect(),
        verdict: failed.then(|| verdict::of_pool(inquiry, pool, steps)),
    }
}

fn placed_message(inquiry: &Inquiry<'_>, outcome: &Outcome, funnels: &[Vec<Step>], standing: &Standing) -> String {
    let snapshot = inquiry.snapshot;
    let name = |node: &NodeId| &snapshot.nodes[node.index()].name;
    match standing {
        Standing::Running(node) => format!("it runs on node {}", name(node)),
        Standing::Expected(node) => format!("room is kept for it on node {}{}", name(node), starting(snapshot, *node)),
        Standing::Leaving => "it is going away and needs no new place".to_owned(),
        Standing::Gated => {
            "it waits behind a scheduling gate: nothing is planned for it until the gate is gone".to_owned()
        }
        Standing::Daemon => "it is of a DaemonSet and comes with its node".to_owned(),
        Standing::Planned(Target::Existing(node)) => match starting(snapshot, *node) {
            starts if starts.is_empty() => format!("node {} has room for it, and costs nothing more", name(node)),
            starts => format!("it is planned on node {}{starts}", name(node)),
        },
        Standing::Planned(Target::New(number)) => new_node_message(inquiry, outcome, funnels, *number),
        Standing::Unplaced => "there is no place for it".to_owned(),
    }
}

/// What is to be said of a node that is not there yet, and nothing of any other.
fn starting(snapshot: &Snapshot, node: NodeId) -> String {
    let of = &snapshot.nodes[node.index()];
    match (&of.waits_for, of.state) {
        (Some(what), NodeState::Starting) => format!(", which is still starting: {what}"),
        (None, NodeState::Starting) => ", which is still starting".to_owned(),
        _ => String::new(),
    }
}

fn new_node_message(inquiry: &Inquiry<'_>, outcome: &Outcome, funnels: &[Vec<Step>], number: u32) -> String {
    let snapshot = inquiry.snapshot;
    let node = &outcome.plan.new_nodes[number as usize];
    let kind = &snapshot.types[node.instance_type.index()];
    let offering = &kind.offerings[node.offering as usize];
    let shared = outcome.plan.placements.iter().filter(|(_, target)| *target == Target::New(number)).count() - 1;
    let taking = funnels.iter().filter_map(|steps| steps.last()).flat_map(|step| step.left.iter());
    let cheapest = taking.map(|offer| inquiry.market.offer(offer).price).min();
    let with = match shared {
        0 if cheapest.is_some_and(|price| node.price <= price) => "the cheapest that takes it".to_owned(),
        0 => "by itself".to_owned(),
        others => format!("together with {}", words::count(others, "other pod")),
    };
    let there = if snapshot.nodes.is_empty() { "" } else { "no node that is there takes it; " };
    format!(
        "{there}it goes to {}, a new {} {} in {} for {}, {with}",
        outcome.plan.node_name(snapshot, number as usize),
        offering.capacity_type.name(),
        snapshot.text(kind.name),
        snapshot.text(offering.zone),
        words::node_price(node.price),
    )
}
