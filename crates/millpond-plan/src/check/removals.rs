//! Whether what is taken away may be: nodes, evictions, PodDisruptionBudgets, savings.
//!
//! How many nodes a pool may lose at once is asked of the budgets of its disruption policy, elsewhere.

use std::collections::BTreeSet;

use super::violation::Violation;
use super::world::World;
use crate::model::{DisruptionReason, DoNotDisrupt, NodeId, NodeState, Pod, PodKind, PodState, selects};
use crate::plan::Removal;

/// Looks at every removal, then at their sums.
pub(super) fn check(world: &World<'_>, found: &mut Vec<Violation>) {
    check_removals(world, found);
    disruption_budgets(world, found);
    least_nodes(world, found);
}

fn check_removals(world: &World<'_>, found: &mut Vec<Violation>) {
    let snapshot = world.snapshot;
    let (mut removed, mut replacing) = (BTreeSet::new(), BTreeSet::new());
    for removal in &world.plan.removals {
        for &node in &removal.nodes {
            if !removed.insert(node) {
                found.push(Violation::RemovedTwice(snapshot.nodes[node.index()].name.clone()));
            }
            removable(world, node, removal.reason, found);
        }
        for &new in &removal.replacements {
            if !replacing.insert(new) {
                found.push(Violation::ReplacesTwice(world.plan.node_name(snapshot, new as usize)));
            }
        }
        savings(world, removal, found);
    }
    let removed_for = |node: NodeId| world.plan.removals.iter().find(|removal| removal.nodes.contains(&node));
    for pod in evicted(world) {
        let Some(node) = pod.node else { continue };
        // A node that has reached its age goes, whoever is on it; its pods are asked to leave, not its node.
        let forced = removed_for(node).is_some_and(|removal| removal.reason == DisruptionReason::Expired);
        if !forced && is_protected(world, pod) {
            let node = snapshot.nodes[node.index()].name.clone();
            found.push(Violation::DoNotDisrupt { pod: pod_name(world, pod), node });
        }
    }
}

fn pod_name(world: &World<'_>, pod: &Pod) -> String {
    let class = world.class(pod.class);
    format!("{}/{}", world.snapshot.text(class.namespace), pod.name)
}

/// Pods that run on a node that is taken away and must run elsewhere then.
fn evicted<'w>(world: &'w World<'_>) -> impl Iterator<Item = &'w Pod> {
    let taken: BTreeSet<NodeId> =
        world.plan.removals.iter().flat_map(|removal| removal.nodes.iter().copied()).collect();
    world.snapshot.pods.iter().filter(move |pod| {
        pod.state == PodState::Bound
            && !matches!(world.class(pod.class).kind, PodKind::Daemon | PodKind::Mirror)
            && pod.node.is_some_and(|node| taken.contains(&node))
    })
}

fn is_protected(world: &World<'_>, pod: &Pod) -> bool {
    match world.class(pod.class).do_not_disrupt {
        DoNotDisrupt::No => false,
        DoNotDisrupt::Always => true,
        DoNotDisrupt::For(time) => pod.started.is_none_or(|started| world.snapshot.now < started.saturating_add(time)),
    }
}

/// Whether the node may be taken away for the reason.
fn removable(world: &World<'_>, id: NodeId, reason: DisruptionReason, found: &mut Vec<Violation>) {
    let node = &world.snapshot.nodes[id.index()];
    let why = match (node.state, node.pool) {
        (NodeState::Leaving, _) => Some("it is leaving already"),
        (_, None) => Some("nobody here manages it"),
        _ if node.do_not_disrupt && reason != DisruptionReason::Expired => Some("it is to be left alone"),
        _ => None,
    };
    if let Some(why) = why {
        found.push(Violation::NotRemovable { node: node.name.clone(), why });
    }
    let Some(pool) = node.pool else { return };
    let age = world.snapshot.now - node.created;
    let holds = match reason {
        DisruptionReason::Empty => !evicted(world).any(|pod| pod.node == Some(id)),
        DisruptionReason::Drifted => node.drifted.is_some(),
        DisruptionReason::Expired => {
            world.snapshot.pools[pool.index()].disruption.expire_after.is_some_and(|limit| age >= limit)
        }
        DisruptionReason::Underutilized => true,
    };
    if !holds {
        found.push(Violation::Reason { node: node.name.clone(), reason: reason.name() });
    }
}

/// What is saved is the difference of the prices, and something where saving is the reason.
fn savings(world: &World<'_>, removal: &Removal, found: &mut Vec<Violation>) {
    let Some(first) = removal.nodes.first() else { return };
    let nodes = &world.snapshot.nodes;
    let before: i128 = removal.nodes.iter().map(|node| i128::from(nodes[node.index()].price.unwrap_or(0))).sum();
    let after: i128 =
        removal.replacements.iter().map(|new| i128::from(world.plan.new_nodes[*new as usize].price)).sum();
    let node = nodes[first.index()].name.clone();
    if removal.savings != before - after {
        found.push(Violation::Savings { node: node.clone(), planned: removal.savings, actual: before - after });
    }
    if removal.reason == DisruptionReason::Underutilized && !removal.replacements.is_empty() && after >= before {
        found.push(Violation::NoSaving(node));
    }
}

/// No PodDisruptionBudget loses more pods than it allows.
fn disruption_budgets(world: &World<'_>, found: &mut Vec<Violation>) {
    let symbols = &world.snapshot.symbols;
    for budget in &world.snapshot.disruption_budgets {
        let counts = |pod: &&Pod| {
            let class = world.class(pod.class);
            class.namespace == budget.namespace
                && budget.selector.as_ref().is_some_and(|selector| selects(selector, &class.labels, symbols))
                && !(budget.unhealthy_always && pod.started.is_none())
        };
        let evicted = evicted(world).filter(counts).count() as u64;
        if evicted > u64::from(budget.allowed) {
            let (budget, allowed) = (budget.name.clone(), budget.allowed);
            found.push(Violation::DisruptionBudget { budget, evicted, allowed });
        }
    }
}

/// No pool that loses nodes goes below its least.
fn least_nodes(world: &World<'_>, found: &mut Vec<Violation>) {
    let snapshot = world.snapshot;
    let taken = world.plan.removals.iter().flat_map(|removal| &removal.nodes);
    let losing: BTreeSet<_> = taken.filter_map(|node| snapshot.nodes[node.index()].pool).collect();
    for pool in losing {
        let (left, least) = (world.nodes_in_the_end(pool) as u64, snapshot.pools[pool.index()].min_nodes);
        if left < least {
            let pool = snapshot.pools[pool.index()].name.clone();
            found.push(Violation::MinNodes { pool, left, least });
        }
    }
}
