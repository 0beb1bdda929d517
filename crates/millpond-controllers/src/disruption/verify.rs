//! Whether nodes that are marked to go may still go: asked again once their replacements are ready. Pure.
//!
//! Minutes may pass between a decision and the removal: a budget may close, a user may protect a pod, other pods may
//! take the capacity planned for the pods that move. The check applies the planner's own rules, and requires that every
//! pod that moves fits on a node that is ready.

use std::collections::BTreeSet;

use millpond_plan::disruption::{Accounts, DisruptionBlocker, Evictions};
use millpond_plan::market::Market;
use millpond_plan::model::{DisruptionReason, NodeId, NodeState, PodId, PodState, PoolId, Snapshot};
use millpond_plan::plan::{Settings, Target};

/// Nodes that are removed together, each with its reason.
pub(super) type Group = Vec<(NodeId, DisruptionReason)>;

/// For each group whether it may be removed, or why not. Earlier groups use budgets up first.
pub(super) fn verify(snapshot: &Snapshot, groups: &[Group]) -> Vec<Result<(), String>> {
    let mut verdicts = check_rules(snapshot, groups);
    let going: BTreeSet<NodeId> = groups
        .iter()
        .zip(&verdicts)
        .filter(|(_, verdict)| verdict.is_ok())
        .flat_map(|(group, _)| group.iter().map(|(node, _)| *node))
        .filter(|node| !has_fixed_size(snapshot, *node))
        .collect();
    let pods_without_node = pods_without_node(snapshot, &going);
    for (group, verdict) in groups.iter().zip(&mut verdicts) {
        let of_group = |pod: &&PodId| group.iter().any(|(node, _)| snapshot.pods[pod.index()].node == Some(*node));
        if let (Ok(()), Some(pod)) = (&verdict, pods_without_node.iter().find(of_group)) {
            *verdict = Err(format!("pod {} has no other place on a node that is ready", snapshot.pod_name(*pod)));
        }
    }
    verdicts
}

/// Whether budgets, PodDisruptionBudgets and wishes of nodes and pods let the groups go.
fn check_rules(snapshot: &Snapshot, groups: &[Group]) -> Vec<Result<(), String>> {
    // The nodes count as terminating already; the question is whether they could have been removed, so they are
    // restored in this copy.
    let mut before = snapshot.clone();
    for (node, _) in groups.iter().flatten() {
        before.nodes[node.index()].state = NodeState::Running;
    }
    let mut accounts = Accounts::new(&before);
    let verdict = |group: &Group| {
        let mut taken: Vec<(PoolId, Evictions)> = Vec::new();
        for &(node, reason) in group {
            match take(&before, &mut accounts, node, reason) {
                Ok(more) => taken.push(more),
                Err(blocker) => {
                    for (pool, evictions) in &taken {
                        accounts.budgets.give_back(*pool);
                        accounts.evictions.give_back(evictions);
                    }
                    return Err(blocker.sentence(&before));
                }
            }
        }
        Ok(())
    };
    groups.iter().map(verdict).collect()
}

fn take(
    snapshot: &Snapshot,
    accounts: &mut Accounts,
    node: NodeId,
    reason: DisruptionReason,
) -> Result<(PoolId, Evictions), DisruptionBlocker> {
    if reason == DisruptionReason::Empty && !accounts.is_empty(snapshot, node) {
        return Err(DisruptionBlocker::NotEmpty);
    }
    accounts.check_rules(snapshot, node, reason)?;
    let pool = snapshot.nodes[node.index()].pool.ok_or(DisruptionBlocker::Unmanaged)?;
    let evictions = accounts.evict(snapshot, node, reason)?;
    accounts.budgets.take(pool, reason);
    Ok((pool, evictions))
}

/// Nodes of a pool with a fixed size are replaced one by one, whatever runs on them.
fn has_fixed_size(snapshot: &Snapshot, node: NodeId) -> bool {
    snapshot.nodes[node.index()].pool.is_some_and(|pool| snapshot.pools[pool.index()].replicas.is_some())
}

/// Pods of these nodes that have no place on nodes that are ready.
fn pods_without_node(snapshot: &Snapshot, going: &BTreeSet<NodeId>) -> Vec<PodId> {
    let moves = |pod: &millpond_plan::model::Pod| {
        pod.state == PodState::Bound && pod.node.is_some_and(|node| going.contains(&node))
    };
    if !snapshot.pods.iter().any(moves) {
        return Vec::new();
    }
    let alone = only_leaving(snapshot, going);
    let outcome = millpond_plan::plan_on(&alone, &Market::new(&alone), &Settings::default());
    let movers = (0..alone.pods.len())
        .map(PodId::from)
        .filter(|pod| moves(&alone.pods[pod.index()]) && millpond_plan::cluster_state::needs_place(&alone, *pod));
    movers.filter(|pod| !matches!(outcome.plan.target(*pod), Some(Target::Existing(_)))).collect()
}

/// The same with only these nodes leaving. What others wait for is not given to them, nor taken from them: nodes that
/// start are closed, as are other nodes that leave. Nothing is for sale: a zone that only could have nodes is none that
/// pods spread over.
fn only_leaving(snapshot: &Snapshot, going: &BTreeSet<NodeId>) -> Snapshot {
    let mut alone = snapshot.clone();
    alone.pools.iter_mut().for_each(|pool| pool.types.clear());
    for (index, node) in alone.nodes.iter_mut().enumerate() {
        if going.contains(&NodeId::from(index)) {
            node.state = NodeState::Leaving;
        } else if node.state != NodeState::Running {
            node.state = NodeState::Running;
            node.schedulable = false;
        }
    }
    for pod in &mut alone.pods {
        let node = pod.node.map(|node| &snapshot.nodes[node.index()]);
        if pod.state == PodState::Pending && node.is_some_and(|node| node.state != NodeState::Running) {
            (pod.state, pod.node) = (PodState::Gated, None);
        }
    }
    alone
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_plan::model::Nodes;
    use millpond_plan::testing::{Cluster, PodSpec};

    use DisruptionReason::{Drifted, Empty, Underutilized};

    /// A node with three pods that goes, one without, and room for three pods of that size elsewhere.
    fn cluster(change: impl Fn(Cluster) -> Cluster) -> Snapshot {
        let cluster = Cluster::new()
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
            .pool("general", |pool| pool.edit(|pool| pool.disruption.budgets[0].nodes = Nodes::Count(2)))
            .node("goes", "small", |node| node.pool("general").leaving())
            .node("idle", "small", |node| node.pool("general").leaving())
            .node("new", "small", |node| node.pool("general"))
            .node("soon", "small", |node| node.pool("general").starting())
            .pods(3, "web", "cpu=500m", |pod| pod.on("goes"));
        change(cluster).snapshot()
    }

    fn verdicts(snapshot: &Snapshot, groups: &[&[(&str, DisruptionReason)]]) -> Vec<String> {
        let group = |group: &&[(&str, DisruptionReason)]| {
            let named = |(name, reason): &(&str, DisruptionReason)| (snapshot.find_node(name).unwrap(), *reason);
            group.iter().map(named).collect()
        };
        let groups: Vec<Group> = groups.iter().map(group).collect();
        let words = |verdict: Result<(), String>| verdict.err().unwrap_or_else(|| "goes".to_owned());
        verify(snapshot, &groups).into_iter().map(words).collect()
    }

    #[test]
    fn nodes_go_whose_pods_have_a_place_that_is_ready() {
        let all: &[&[_]] = &[&[("goes", Underutilized)], &[("idle", Empty)]];
        assert_eq!(verdicts(&cluster(|cluster| cluster), all), ["goes", "goes"]);
        let taken = cluster(|cluster| cluster.pod("other", "cpu=1", |pod| pod.on("new")));
        // The node that starts is for others.
        let nowhere = "pod default/web-2 has no other place on a node that is ready";
        assert_eq!(verdicts(&taken, all), [nowhere, "goes"]);
        assert_eq!(verdicts(&taken, &[&[("goes", Underutilized), ("idle", Empty)]]), [nowhere]);
    }

    #[test]
    fn what_came_in_the_way_meanwhile_keeps_them() {
        let bound = cluster(|cluster| cluster.pod("late", "cpu=100m", |pod| pod.on("idle")));
        assert_eq!(verdicts(&bound, &[&[("idle", Empty)]]), ["it has pods that need another place"]);
        let mut closed = cluster(|cluster| cluster);
        closed.pools[0].disruption.budgets[0].nodes = Nodes::Count(1);
        let used = "budget 1 (`nodes: 1`) of its pool allows 1 node to be away at once, 1 is";
        let both: &[&[_]] = &[&[("goes", Drifted)], &[("idle", Empty)]];
        assert_eq!(verdicts(&closed, both), ["goes", used]);
        // One that goes for another reason uses it up as well.
        assert_eq!(verdicts(&closed, &[&[("goes", Drifted)]]), [used]);
        // What a group took is free again when it stays.
        assert_eq!(verdicts(&closed, &[&[("goes", Drifted), ("idle", Empty)], &[("idle", Empty)]]), [used, "goes"]);
        let guarded = cluster(|cluster| cluster.budget("web", "app in web", 0));
        assert_eq!(
            verdicts(&guarded, both),
            ["PodDisruptionBudget default/web allows no eviction of pod default/web-0 now", "goes"]
        );
        let mut pinned = cluster(|cluster| cluster);
        let goes = pinned.find_node("goes").unwrap();
        pinned.nodes[goes.index()].do_not_disrupt = true;
        assert_eq!(verdicts(&pinned, both), ["it is annotated `karpenter.sh/do-not-disrupt`", "goes"]);
    }

    #[test]
    fn pods_spread_over_zones_that_have_nodes() {
        fn web(pod: PodSpec<'_>) -> PodSpec<'_> {
            pod.label("app=web").spread("zone", 1)
        }
        let snapshot = Cluster::new()
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50).zones("a b c"))
            .pool("general", |pool| pool)
            .node("goes", "small", |node| node.pool("general").zone("a").leaving())
            .node("new", "small", |node| node.pool("general").zone("a"))
            .node("other", "small", |node| node.pool("general").zone("b"))
            .pod("here", "cpu=500m", |pod| web(pod.on("new")))
            .pod("there", "cpu=500m", |pod| web(pod.on("other")))
            .pods(2, "moves", "cpu=500m", |pod| web(pod.on("goes")))
            .snapshot();
        // Zone c is for sale, and empty. If it counted, neither a nor b could take another pod.
        assert_eq!(verdicts(&snapshot, &[&[("goes", Drifted)]]), ["goes"]);
    }

    #[test]
    fn nodes_of_a_fixed_number_do_not_ask_for_room() {
        let mut fixed = cluster(|cluster| cluster.pod("other", "cpu=1", |pod| pod.on("new")));
        fixed.pools[0].replicas = Some(3);
        assert_eq!(verdicts(&fixed, &[&[("goes", Drifted)]]), ["goes"]);
    }
}
