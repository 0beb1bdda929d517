//! Whether the removals are allowed: nodes, evictions, PodDisruptionBudgets, savings.
//!
//! All rules are checked independently of the planner but one: how many nodes a pool's disruption budgets allow now
//! depends on their schedules, and is taken from [`disruption`](crate::disruption).

use std::collections::{BTreeMap, BTreeSet};

use super::planned_cluster::PlannedCluster;
use super::violation::Violation;
use crate::disruption::BudgetLedger;
use crate::model::{
    ClassId, DRIFT_SETTLES, DisruptionReason, DoNotDisrupt, Expiry, NodeId, NodeState, Pod, PodDisruptionBudget,
    PodKind, PodState, Seconds, selects,
};
use crate::plan::Removal;

/// Checks every removal, then the sums over all of them.
pub(super) fn check(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    if cluster.plan.removals.is_empty() {
        return;
    }
    check_removals(cluster, found);
    pool_budgets(cluster, found);
    disruption_budgets(cluster, found);
    least_nodes(cluster, found);
}

fn check_removals(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let snapshot = cluster.snapshot;
    let used: BTreeSet<NodeId> = evicted(cluster).filter_map(|pod| pod.node).collect();
    let (mut removed, mut replacing) = (BTreeSet::new(), BTreeSet::new());
    for removal in &cluster.plan.removals {
        for &node in &removal.nodes {
            if !removed.insert(node) {
                found.push(Violation::RemovedTwice(snapshot.nodes[node.index()].name.clone()));
            }
            removable(cluster, node, removal.reason, !used.contains(&node), found);
        }
        for &new in &removal.replacements {
            if !replacing.insert(new) {
                found.push(Violation::ReplacesTwice(cluster.plan.node_name(snapshot, new as usize)));
            }
        }
        savings(cluster, removal, found);
    }
    let forced = forced(cluster);
    for pod in evicted(cluster) {
        let Some(node) = pod.node else { continue };
        if !forced.contains(&node) && cluster.class(pod.class).kind == PodKind::Bare {
            let node = snapshot.nodes[node.index()].name.clone();
            found.push(Violation::Lost { pod: pod_name(cluster, pod), node });
        }
        if !forced.contains(&node) && is_protected(cluster, pod) {
            let node = snapshot.nodes[node.index()].name.clone();
            found.push(Violation::DoNotDisrupt { pod: pod_name(cluster, pod), node });
        }
    }
}

fn pod_name(cluster: &PlannedCluster<'_>, pod: &Pod) -> String {
    let class = cluster.class(pod.class);
    format!("{}/{}", cluster.snapshot.text(class.namespace), pod.name)
}

/// Pods that run on a node that is taken away and must run elsewhere then.
fn evicted<'w>(cluster: &'w PlannedCluster<'_>) -> impl Iterator<Item = &'w Pod> {
    let taken: BTreeSet<NodeId> =
        cluster.plan.removals.iter().flat_map(|removal| removal.nodes.iter().copied()).collect();
    cluster.snapshot.pods.iter().filter(move |pod| {
        pod.state == PodState::Bound
            && !matches!(cluster.class(pod.class).kind, PodKind::Daemon | PodKind::Mirror)
            && pod.node.is_some_and(|node| taken.contains(&node))
    })
}

/// Nodes that are removed whatever runs on them, because they have a termination grace period and are drifted or
/// expired.
fn forced(cluster: &PlannedCluster<'_>) -> BTreeSet<NodeId> {
    let some_day = |removal: &&Removal| matches!(removal.reason, DisruptionReason::Drifted | DisruptionReason::Expired);
    let nodes = cluster.plan.removals.iter().filter(some_day).flat_map(|removal| removal.nodes.iter().copied());
    nodes.filter(|node| cluster.snapshot.nodes[node.index()].ends_in_time).collect()
}

fn is_protected(cluster: &PlannedCluster<'_>, pod: &Pod) -> bool {
    match cluster.class(pod.class).do_not_disrupt {
        DoNotDisrupt::No => false,
        DoNotDisrupt::Always => true,
        DoNotDisrupt::For(time) => {
            pod.started.is_none_or(|started| cluster.snapshot.now < started.saturating_add(time))
        }
    }
}

/// Whether the node may be taken away for the reason.
fn removable(
    cluster: &PlannedCluster<'_>,
    id: NodeId,
    reason: DisruptionReason,
    is_empty: bool,
    found: &mut Vec<Violation>,
) {
    let node = &cluster.snapshot.nodes[id.index()];
    let why = match (node.state, node.pool) {
        (NodeState::Leaving, _) => Some("it is leaving already"),
        (_, None) => Some("no pool manages it"),
        _ if node.do_not_disrupt => Some("it is to be left alone"),
        _ => None,
    };
    if let Some(why) = why {
        found.push(Violation::NotRemovable { node: node.name.clone(), why });
    }
    let Some(pool) = node.pool else { return };
    let holds = match reason {
        DisruptionReason::Empty => is_empty,
        DisruptionReason::Drifted => {
            let since = node.drifted.as_ref().map(|drift| drift.since.unwrap_or(Seconds::MIN));
            since.is_some_and(|since| since.saturating_add(DRIFT_SETTLES) <= cluster.snapshot.now)
        }
        DisruptionReason::Expired => {
            let of_pool = cluster.snapshot.pools[pool.index()].disruption.expire_after;
            let then = match node.expiry {
                Expiry::OfPool => of_pool.map(|after| node.created + after),
                Expiry::Never => None,
                Expiry::At(then) => Some(then),
            };
            then.is_some_and(|then| cluster.snapshot.now >= then)
        }
        DisruptionReason::Underutilized => true,
    };
    if !holds {
        found.push(Violation::Reason { node: node.name.clone(), reason: reason.name() });
    }
}

/// The savings are the difference of the prices, and positive if saving is the reason.
fn savings(cluster: &PlannedCluster<'_>, removal: &Removal, found: &mut Vec<Violation>) {
    let Some(first) = removal.nodes.first() else { return };
    let nodes = &cluster.snapshot.nodes;
    let before: i128 = removal.nodes.iter().map(|node| i128::from(nodes[node.index()].price.unwrap_or(0))).sum();
    let after: i128 =
        removal.replacements.iter().map(|new| i128::from(cluster.plan.new_nodes[*new as usize].price)).sum();
    let node = nodes[first.index()].name.clone();
    if removal.savings != before - after {
        found.push(Violation::Savings { node: node.clone(), planned: removal.savings, actual: before - after });
    }
    if removal.reason == DisruptionReason::Underutilized && !removal.replacements.is_empty() && after >= before {
        found.push(Violation::NoSaving(node));
    }
}

/// No pool loses more nodes at the same time than its budgets allow now.
fn pool_budgets(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let mut ledger = BudgetLedger::new(cluster.snapshot);
    for removal in &cluster.plan.removals {
        for node in &removal.nodes {
            let node = &cluster.snapshot.nodes[node.index()];
            let Some(pool) = node.pool else { continue };
            if !ledger.take(pool, removal.reason) {
                let (node, reason) = (node.name.clone(), removal.reason.name());
                found.push(Violation::PoolBudget { node, reason });
            }
        }
    }
}

/// Each PodDisruptionBudget still allows an eviction for every removed node that has pods of it, and no pod that
/// several budgets match is evicted, because the eviction API refuses that.
fn disruption_budgets(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let (snapshot, symbols) = (cluster.snapshot, &cluster.snapshot.symbols);
    let mut evictions: Vec<BTreeMap<NodeId, u64>> = vec![BTreeMap::new(); snapshot.disruption_budgets.len()];
    let forced = forced(cluster);
    let mut by_class: BTreeMap<ClassId, Vec<usize>> = BTreeMap::new();
    for pod in evicted(cluster) {
        let Some(node) = pod.node.filter(|node| !forced.contains(node)) else { continue };
        let budgets = by_class.entry(pod.class).or_insert_with_key(|class| {
            let class = cluster.class(*class);
            let selects = |budget: &PodDisruptionBudget| {
                class.namespace == budget.namespace
                    && budget.selector.as_ref().is_some_and(|selector| selects(selector, &class.labels, symbols))
            };
            (0..evictions.len()).filter(|budget| selects(&snapshot.disruption_budgets[*budget])).collect()
        });
        if budgets.len() > 1 {
            found.push(Violation::SeveralBudgets(pod_name(cluster, pod)));
        }
        for &budget in &*budgets {
            let free = snapshot.disruption_budgets[budget].unhealthy_always && pod.started.is_none();
            if !free {
                *evictions[budget].entry(node).or_default() += 1;
            }
        }
    }
    for (budget, evictions) in snapshot.disruption_budgets.iter().zip(evictions) {
        let Some(most) = evictions.values().max() else { continue };
        let evicted: u64 = evictions.values().sum();
        if evicted - most >= u64::from(budget.allowed) {
            let (budget, allowed) = (budget.name.clone(), budget.allowed);
            found.push(Violation::DisruptionBudget { budget, evicted, allowed });
        }
    }
}

/// No pool that loses nodes falls below its minimum number of nodes.
fn least_nodes(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let snapshot = cluster.snapshot;
    let taken = cluster.plan.removals.iter().flat_map(|removal| &removal.nodes);
    let losing: BTreeSet<_> = taken.filter_map(|node| snapshot.nodes[node.index()].pool).collect();
    for pool in losing {
        let (left, least) = (cluster.node_count_after(pool) as u64, snapshot.pools[pool.index()].min_nodes);
        if left < least {
            let pool = snapshot.pools[pool.index()].name.clone();
            found.push(Violation::MinNodes { pool, left, least });
        }
    }
}
