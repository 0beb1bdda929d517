//! Evaluates all nodes: which of them the planner would disrupt. Pure.

use std::collections::{BTreeSet, HashMap};

use millpond_plan::disruption::{Accounts, DisruptionBlocker, consolidate, name_binding_budgets};
use millpond_plan::market::Market;
use millpond_plan::model::{
    DisruptionReason, Node, NodeId, NodeState, Pod, PodId, PodKind, PodState, Seconds, Snapshot,
};
use millpond_plan::plan::{Plan, Settings, Target};

/// Reasons for which nodes of a pool of fixed size are replaced.
const REPLACED_FOR: [DisruptionReason; 2] = [DisruptionReason::Drifted, DisruptionReason::Expired];

/// Nodes are kept for a pod that waits for its own node no longer than this after it was made: a machine that never becomes
/// a node would keep others for fifteen minutes.
const LONGEST_WAVE: Seconds = 5 * 60;

/// The result of an evaluation, with its snapshot.
pub(super) struct Evaluation {
    pub(super) snapshot: Snapshot,
    pub(super) market: Market,
    pub(super) plan: Plan,
    /// Why each node stays.
    pub(super) kept: Vec<Option<DisruptionBlocker>>,
    /// Nodes on which room is kept for pods of buffers, as long as these stay where they are.
    pub(super) buffers: HashMap<PodId, NodeId>,
    /// Nodes that the planner must leave alone: of pools of fixed size, those of commands that failed lately, and those
    /// that were bought together with nodes that pods still wait for.
    pub(super) spared: Vec<bool>,
    /// When nodes that were bought together are judged at the latest.
    pub(super) wave_ends: Option<Seconds>,
    /// Nodes of pools of fixed size that are to be replaced one by one.
    pub(super) fixed: Vec<(NodeId, DisruptionReason)>,
    /// Nodes that never took pods and have reached their age.
    pub(super) never_initialized: Vec<NodeId>,
}

impl Evaluation {
    /// Thinks. `held` names nodes that are left alone for a while, `steady` pools that have as many nodes as they should.
    pub(super) fn new(mut snapshot: Snapshot, held: &BTreeSet<String>, steady: &BTreeSet<String>) -> Self {
        let fixed = outdated(&snapshot, held, steady);
        let never_initialized = never_initialized(&snapshot, held);
        let of_fixed_size = |pool: millpond_plan::model::PoolId| snapshot.pools[pool.index()].replicas.is_some();
        let wave = wave(&snapshot);
        let spared: Vec<bool> = snapshot
            .nodes
            .iter()
            .map(|node| {
                let is_of_wave = node.pool.is_some() && wave.is_some_and(|began| node.created >= began);
                is_of_wave || held.contains(&node.name) || node.pool.is_some_and(of_fixed_size)
            })
            .collect();
        for (node, spared) in snapshot.nodes.iter_mut().zip(&spared) {
            node.do_not_disrupt |= spared;
        }
        let market = Market::new(&snapshot);
        let settings = Settings { consolidate: true, ..Settings::default() };
        let waiting = millpond_plan::plan_on(&snapshot, &market, &Settings { consolidate: false, ..settings });
        let buffers = buffers(&snapshot, &waiting.plan);
        let mut consolidated = consolidate(&snapshot, &market, waiting, &settings);
        name_binding_budgets(&snapshot, &market, &settings, &mut consolidated);
        let (plan, kept) = (consolidated.outcome.plan, consolidated.kept);
        let wave_ends = wave.map(|began| began + LONGEST_WAVE);
        Self { snapshot, market, plan, kept, buffers, spared, wave_ends, fixed, never_initialized }
    }
}

/// The creation time of the oldest pod that waits for the node it is nominated to. Nodes bought since then were bought
/// for the same wave of pods. Where those pods end up is open until the last of them is bound, so none of these nodes
/// is evaluated before.
fn wave(snapshot: &Snapshot) -> Option<Seconds> {
    let waits = |pod: &&Pod| {
        let is_young = snapshot.now - pod.created < LONGEST_WAVE;
        let is_buffer = snapshot.classes[pod.class.index()].kind == PodKind::Buffer;
        pod.state == PodState::Pending && pod.node.is_some() && is_young && !is_buffer
    };
    snapshot.pods.iter().filter(waits).map(|pod| pod.created).min()
}

/// Existing nodes on which a plan places pods of buffers.
fn buffers(snapshot: &Snapshot, plan: &Plan) -> HashMap<PodId, NodeId> {
    let placements = plan.placements.iter().filter(|(pod, _)| snapshot.class_of(*pod).is_buffer());
    let there = placements.filter_map(|&(pod, target)| match target {
        Target::Existing(node) => Some((pod, node)),
        Target::New(_) => None,
    });
    there.collect()
}

/// Nodes that never became ready and are too old by now: nothing is lost with them.
fn never_initialized(snapshot: &Snapshot, held: &BTreeSet<String>) -> Vec<NodeId> {
    let over = |node: &Node| {
        let expire_after = node.pool.and_then(|pool| snapshot.pools[pool.index()].disruption.expire_after);
        let expired = node.pool.is_some() && node.expires(expire_after).is_some_and(|then| then <= snapshot.now);
        expired && node.state == NodeState::Starting && !held.contains(&node.name)
    };
    let nodes = snapshot.nodes.iter().enumerate().filter(|(_, node)| over(node));
    nodes.map(|(index, _)| NodeId::from(index)).collect()
}

/// Nodes of pools of fixed size that are outdated and may go, the oldest first, within budgets and the pool's limit.
fn outdated(
    snapshot: &Snapshot,
    held: &BTreeSet<String>,
    steady: &BTreeSet<String>,
) -> Vec<(NodeId, DisruptionReason)> {
    let mut accounts = Accounts::new(snapshot);
    let mut room: Vec<u64> = snapshot.pools.iter().map(|pool| pool.limits.nodes.unwrap_or(u64::MAX)).collect();
    for node in &snapshot.nodes {
        if let Some(pool) = node.pool {
            room[pool.index()] = room[pool.index()].saturating_sub(1);
        }
    }
    let mut nodes: Vec<NodeId> = (0..snapshot.nodes.len()).map(NodeId::from).collect();
    nodes.sort_by_key(|node| (snapshot.nodes[node.index()].created, &snapshot.nodes[node.index()].name));
    let mut found = Vec::new();
    for node in nodes {
        let of = &snapshot.nodes[node.index()];
        let Some(pool) = of.pool.filter(|_| of.state == NodeState::Running) else { continue };
        let of_pool = &snapshot.pools[pool.index()];
        let open = of_pool.replicas.is_some() && of_pool.not_ready.is_none() && steady.contains(&of_pool.name);
        if !open || room[pool.index()] == 0 || held.contains(&of.name) {
            continue;
        }
        let Some(reason) = REPLACED_FOR.into_iter().find(|reason| accounts.eligible(snapshot, node, *reason).is_ok())
        else {
            continue;
        };
        if accounts.evict(snapshot, node, reason).is_ok() && accounts.budgets.take(pool, reason) {
            room[pool.index()] -= 1;
            found.push((node, reason));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_plan::model::Nodes;
    use millpond_plan::testing::Cluster;

    fn names(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn cluster(limit: Option<u64>, budget: u64) -> Snapshot {
        let mut cluster =
            Cluster::new().machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50)).pool("fixed", |pool| {
                pool.edit(|pool| {
                    pool.replicas = Some(4);
                    pool.limits.nodes = limit;
                    pool.disruption.budgets[0].nodes = Nodes::Count(budget);
                })
            });
        for (name, hours) in [("young", 1), ("old", 4), ("older", 8), ("fine", 9)] {
            cluster = cluster.node(name, "small", |node| {
                let node = node.pool("fixed").age(hours * 3600);
                if name == "fine" { node } else { node.drifted("its template changed") }
            });
        }
        cluster.snapshot()
    }

    #[test]
    fn outdated_nodes_of_a_fixed_number_are_replaced_the_oldest_first() {
        let found = |limit, budget, held: &[&str], steady: &[&str]| -> Vec<String> {
            let snapshot = cluster(limit, budget);
            let found = outdated(&snapshot, &names(held), &names(steady));
            found.into_iter().map(|(node, _)| snapshot.nodes[node.index()].name.clone()).collect()
        };
        assert_eq!(found(None, 9, &[], &["fixed"]), ["older", "old", "young"]);
        assert_eq!(found(None, 9, &["old"], &["fixed"]), ["older", "young"]);
        assert_eq!(found(None, 2, &[], &["fixed"]), ["older", "old"]);
        assert_eq!(found(Some(5), 9, &[], &["fixed"]), ["older"], "there is room for one more node");
        assert_eq!(found(Some(4), 9, &[], &["fixed"]), Vec::<String>::new());
        assert_eq!(found(None, 9, &[], &[]), Vec::<String>::new(), "the pool is about to grow or shrink");
    }

    #[test]
    fn nodes_that_never_became_ready_go_when_their_time_is_over() {
        let mut snapshot = cluster(None, 9);
        let young = snapshot.find_node("young").unwrap();
        snapshot.nodes[young.index()].state = NodeState::Starting;
        assert_eq!(never_initialized(&snapshot, &BTreeSet::new()), []);
        snapshot.nodes[young.index()].expiry = millpond_plan::model::Expiry::At(snapshot.now);
        assert_eq!(never_initialized(&snapshot, &BTreeSet::new()), [young]);
        assert_eq!(never_initialized(&snapshot, &names(&["young"])), []);
    }

    #[test]
    fn nodes_of_a_wave_stay_while_pods_of_it_wait() {
        let removed = |pod_age: i64| -> Vec<String> {
            let mut snapshot = Cluster::new()
                .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
                .pool("general", |pool| pool.edit(|pool| pool.disruption.budgets[0].nodes = Nodes::Count(9)))
                .node("old", "small", |node| node.pool("general").age(3600))
                .node("bought", "small", |node| node.pool("general").age(20))
                .node("starts", "small", |node| node.pool("general").age(20).starting())
                .pod("waits", "cpu=1500m", |pod| pod.on("starts"))
                .snapshot();
            let waits = snapshot.pods.iter_mut().find(|pod| &*pod.name == "waits").unwrap();
            (waits.state, waits.created) = (PodState::Pending, snapshot.now - pod_age);
            let now = snapshot.now;
            let evaluation = Evaluation::new(snapshot, &BTreeSet::new(), &BTreeSet::new());
            let ends = (pod_age < LONGEST_WAVE).then_some(now - pod_age + LONGEST_WAVE);
            assert_eq!(evaluation.wave_ends, ends, "when they are judged whatever happens");
            let removed = evaluation.plan.removals.iter().flat_map(|removal| &removal.nodes);
            removed.map(|node| evaluation.snapshot.nodes[node.index()].name.clone()).collect()
        };
        assert_eq!(removed(30), ["old"], "the pod came before the other two were bought");
        assert_eq!(removed(10), ["bought", "old"], "it is of a later wave");
        assert_eq!(removed(LONGEST_WAVE), ["bought", "old"], "it is not waited for any longer");
    }

    #[test]
    fn the_planner_leaves_them_alone() {
        let evaluation = Evaluation::new(cluster(None, 9), &BTreeSet::new(), &names(&["fixed"]));
        assert!(evaluation.plan.removals.is_empty() && evaluation.plan.new_nodes.is_empty());
        assert_eq!((evaluation.fixed.len(), evaluation.spared), (3, vec![true; 4]));
    }
}
