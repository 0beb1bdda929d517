//! The pods that the last plan put on the same node of a group.
//!
//! New machines of a group have no names yet, so pods cannot be nominated to them, and every round plans these pods
//! again. A plan at least cost fills nodes to the brim with pods that go well together; a plan that fills the same
//! nodes again, shape by shape, without that knowledge leaves pods over and buys more nodes, round after round. So the
//! planner starts from the placements of the last plan.
//!
//! Nodes of a group that run no pods are alike, so it makes no difference which of them gets which planned set of pods.
//! This memory only improves how well pods fit: a process that starts without it plans anew.

use std::collections::{BTreeMap, HashMap, HashSet};

use millpond_plan::model::{ClassId, NodeId, NodeState, Pod, PodKind, PodState, PoolId, Snapshot};
use millpond_plan::plan::{Outcome, Target};
use parking_lot::Mutex;

use super::scale_up::is_group;

/// More pods than this are not remembered: names of a million take a hundred megabytes.
const MOST_PODS: usize = 100_000;

/// Pods planned onto one node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pack {
    /// The node's name, if it existed.
    node: Option<String>,
    /// Namespace and name of each pod.
    pods: Vec<(Box<str>, Box<str>)>,
}

/// The placements of the last plan, by pool.
#[derive(Debug, Default)]
pub(crate) struct PlannedPlacements(Mutex<BTreeMap<String, Vec<Pack>>>);

impl PlannedPlacements {
    /// Remembers which pods a plan put on nodes of groups, in the place of what was remembered.
    pub(crate) fn remember(&self, snapshot: &Snapshot, outcome: &Outcome) {
        let mut by_node: BTreeMap<(PoolId, Target), Vec<(Box<str>, Box<str>)>> = BTreeMap::new();
        let mut most = MOST_PODS;
        for &(pod, target) in &outcome.plan.placements {
            let pool = match target {
                Target::Existing(node) => snapshot.nodes[node.index()].pool,
                Target::New(node) => Some(outcome.plan.new_nodes[node as usize].pool),
            };
            let Some(pool) = pool.filter(|pool| is_group(snapshot, *pool)) else { continue };
            if most == 0 {
                break;
            }
            most -= 1;
            let name =
                (snapshot.text(snapshot.class_of(pod).namespace).into(), snapshot.pods[pod.index()].name.clone());
            by_node.entry((pool, target)).or_default().push(name);
        }
        let mut packs: BTreeMap<String, Vec<Pack>> = BTreeMap::new();
        for ((pool, target), pods) in by_node {
            let node = match target {
                Target::Existing(node) => Some(snapshot.nodes[node.index()].name.clone()),
                Target::New(_) => None,
            };
            packs.entry(snapshot.pools[pool.index()].name.clone()).or_default().push(Pack { node, pods });
        }
        *self.0.lock() = packs;
    }

    /// Adds the placements to a snapshot, so that the planner keeps them.
    pub(crate) fn apply_to(&self, snapshot: &mut Snapshot) {
        let packs = self.0.lock();
        if packs.is_empty() {
            return;
        }
        let mut counts: BTreeMap<(NodeId, ClassId), u32> = BTreeMap::new();
        for (node, pack) in assigned(snapshot, &packs) {
            for class in pack.pods.iter().filter_map(|(namespace, name)| waiting_class(snapshot, namespace, name)) {
                *counts.entry((node, class)).or_default() += 1;
            }
        }
        snapshot.planned_placements = counts.into_iter().map(|((node, class), count)| (node, class, count)).collect();
    }
}

/// Assigns nodes to placements: by name first, then any empty node of the group.
fn assigned<'p>(snapshot: &Snapshot, packs: &'p BTreeMap<String, Vec<Pack>>) -> Vec<(NodeId, &'p Pack)> {
    let mut of_pool: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for (index, node) in snapshot.nodes.iter().enumerate().filter(|(_, node)| node.state != NodeState::Leaving) {
        if let Some(pool) = node.pool {
            of_pool.entry(&snapshot.pools[pool.index()].name).or_default().push(NodeId::from(index));
        }
    }
    let used = used(snapshot);
    let mut assigned = Vec::new();
    for (pool, packs) in packs {
        let Some(nodes) = of_pool.get(pool.as_str()) else { continue };
        let name = |node: &NodeId| snapshot.nodes[node.index()].name.as_str();
        let named: HashMap<&str, NodeId> = nodes.iter().map(|node| (name(node), *node)).collect();
        let known = |pack: &&Pack| pack.node.as_deref().and_then(|node| named.get(node).copied());
        let (by_name, others): (Vec<&Pack>, Vec<&Pack>) = packs.iter().partition(|pack| known(pack).is_some());
        let taken: HashSet<NodeId> = by_name.iter().filter_map(known).collect();
        assigned.extend(by_name.into_iter().filter_map(|pack| Some((known(&pack)?, pack))));
        let empty = nodes.iter().copied().filter(|node| !taken.contains(node) && !used.contains(node));
        assigned.extend(empty.zip(others));
    }
    assigned
}

/// Nodes that something runs on, or is kept for, beside daemons.
fn used(snapshot: &Snapshot) -> HashSet<NodeId> {
    let counts = |kind: PodKind| !matches!(kind, PodKind::Daemon | PodKind::Mirror);
    let pods = snapshot.pods.iter().filter(|pod| counts(snapshot.classes[pod.class.index()].kind));
    pods.filter_map(|pod| pod.node).collect()
}

/// The class of a pending pod without a node; `None` for any other pod.
fn waiting_class(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<ClassId> {
    let of = |pod: &Pod| snapshot.text(snapshot.classes[pod.class.index()].namespace);
    let at = snapshot.pods.binary_search_by(|pod| (of(pod), &*pod.name).cmp(&(namespace, name))).ok()?;
    let pod = &snapshot.pods[at];
    (pod.state == PodState::Pending && pod.node.is_none()).then_some(pod.class)
}
