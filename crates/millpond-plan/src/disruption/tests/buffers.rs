//! Room for capacity buffers is no emptiness: nodes that hold it go only where it is kept at less cost.

use super::fixture::{Cluster, NOON, carried_out};
use crate::check::check;
use crate::disruption::{DisruptionBlocker, node_verdict};
use crate::model::{ClassId, Consolidation, DisruptionReason, Drift, NodeId, PodState, PoolId, Snapshot};
use crate::plan::{Outcome, Settings, Target};
use crate::solve;

const POOL: PoolId = PoolId(0);
const SETTINGS: fn() -> Settings = || Settings { consolidate: true, ..Settings::default() };

/// Two nodes of two cores, and so many pods of a buffer that need more than half a node each.
fn cluster(buffers: usize) -> (Cluster, ClassId) {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    cluster.node(POOL, small, "a");
    cluster.node(POOL, small, "b");
    let buffer = buffer(&mut cluster, "buffer", 1200, buffers);
    (cluster, buffer)
}

fn buffer(cluster: &mut Cluster, app: &str, milli: i64, count: usize) -> ClassId {
    let class = cluster.class(app, milli, 100);
    let of = cluster.class_mut(class);
    *of = of.clone().into_buffer();
    for _ in 0..count {
        cluster.pod_in(class, None, PodState::Pending, None);
    }
    class
}

fn plan(snapshot: &Snapshot) -> Outcome {
    let outcome = solve::plan(snapshot, &SETTINGS());
    let found = check(snapshot, &outcome);
    assert!(found.is_empty(), "{found:?}");
    outcome
}

fn removals(snapshot: &Snapshot) -> Vec<(DisruptionReason, Vec<NodeId>, usize)> {
    let outcome = plan(snapshot);
    let again = plan(&carried_out(snapshot, &outcome.plan));
    assert!(again.plan.removals.is_empty() && again.plan.new_nodes.is_empty(), "the second plan finds something");
    let each = outcome.plan.removals.into_iter();
    each.map(|removal| (removal.reason, removal.nodes, removal.replacements.len())).collect()
}

#[test]
fn nodes_with_room_for_buffers_are_not_empty() {
    let (cluster, _) = cluster(2);
    assert_eq!(removals(&cluster.snapshot), []);
    for node in [NodeId(0), NodeId(1)] {
        let verdict = node_verdict(&cluster.snapshot, node, &SETTINGS());
        assert_eq!(verdict.blocker, Some(DisruptionBlocker::Buffer));
        assert_eq!(verdict.reasons[0], (DisruptionReason::Empty, Err(DisruptionBlocker::NotEmpty)));
    }
}

#[test]
fn nodes_go_with_their_buffer() {
    let empty = |nodes: &[u32]| nodes.iter().map(|node| (DisruptionReason::Empty, vec![NodeId(*node)], 0)).collect();
    let gone: Vec<_> = empty(&[0, 1]);
    assert_eq!(removals(&cluster(0).0.snapshot), gone);
    let one: Vec<_> = empty(&[1]);
    assert_eq!(removals(&cluster(1).0.snapshot), one);
}

#[test]
fn pods_take_the_room_and_buffers_get_new() {
    let (mut cluster, _) = cluster(2);
    let web = cluster.class("web", 1200, 100);
    let pod = cluster.pod_in(web, None, PodState::Pending, None);
    let outcome = plan(&cluster.snapshot);
    assert!(matches!(outcome.plan.target(pod), Some(Target::Existing(_))), "the pod has a node at once");
    assert_eq!((outcome.plan.new_nodes.len(), outcome.plan.removals.len()), (1, 0), "and the buffer gets another");
}

#[test]
fn outdated_nodes_are_replaced_for_buffers_too() {
    let (mut drifted, _) = cluster(2);
    drifted.snapshot.nodes[0].drifted = Some(Drift::settled("its template changed"));
    assert_eq!(removals(&drifted.snapshot), [(DisruptionReason::Drifted, vec![NodeId(0)], 1)]);
    let (mut old, _) = cluster(2);
    old.first_pool().disruption.expire_after = Some(3600);
    old.snapshot.nodes[1].created = NOON;
    let outcome = plan(&old.snapshot);
    assert_eq!(outcome.plan.removals.len(), 1);
    assert_eq!(outcome.plan.removals[0].reason, DisruptionReason::Expired);
    assert_eq!(outcome.plan.new_nodes.len(), 1);
}

#[test]
fn room_for_buffers_may_move_to_where_it_costs_less() {
    let (mut cluster, _) = cluster(2);
    let tiny = cluster.instance_type("tiny", 2, 4, 40);
    let cheaper = removals(&cluster.snapshot);
    assert_eq!(cheaper, [(DisruptionReason::Underutilized, vec![NodeId(0), NodeId(1)], 2)]);
    // One that is there and has room will do.
    let large = cluster.instance_type("large", 8, 32, 400);
    let busy = cluster.node(POOL, large, "c");
    let web = cluster.class("web", 4000, 100);
    cluster.pod(web, busy);
    cluster.snapshot.types[tiny.index()].offerings.clear();
    let into_room: Vec<NodeId> = removals(&cluster.snapshot).into_iter().flat_map(|(_, nodes, _)| nodes).collect();
    assert_eq!(into_room, [NodeId(0), NodeId(1)]);
}

#[test]
fn pools_that_give_up_empty_nodes_only_keep_those_with_buffers() {
    let (mut cluster, _) = cluster(2);
    cluster.instance_type("tiny", 2, 4, 40);
    cluster.first_pool().disruption.policy = Consolidation::WhenEmpty;
    assert_eq!(removals(&cluster.snapshot), []);
    let verdict = node_verdict(&cluster.snapshot, NodeId(0), &SETTINGS());
    assert_eq!(verdict.sentence(&cluster.snapshot), "it stays: room is kept on it for a capacity buffer");
}

#[test]
fn limits_hold_for_buffers_and_pods_come_first() {
    let (mut cluster, _) = cluster(5);
    cluster.first_pool().limits.nodes = Some(3);
    let web = cluster.class("web", 1900, 100);
    let pods: Vec<_> = (0..3).map(|_| cluster.pod_in(web, None, PodState::Pending, None)).collect();
    let outcome = plan(&cluster.snapshot);
    assert_eq!((outcome.plan.new_nodes.len(), outcome.report.unplaced.len()), (1, 5));
    assert!(pods.iter().all(|pod| outcome.plan.target(*pod).is_some()), "buffers wait, pods do not");
}
