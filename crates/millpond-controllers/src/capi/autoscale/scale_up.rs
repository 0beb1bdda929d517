//! Scale-up: the new nodes of a plan that belong to node groups become replicas of these groups.

use std::collections::BTreeMap;

use futures::future::join_all;
use millpond_plan::model::{PoolId, Snapshot};
use millpond_plan::plan::Outcome;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::Key;
use millpond_state::groups::GroupRef;

use super::Machines;
use super::replicas::Resized;
use crate::context::Context;
use crate::decisions;
use crate::turn::Turn;

const SCALED_UP: EventReason =
    EventReason { component: "millpond", action: "ScaleUp", reason: "ScaledUpGroup", warning: false };
const TRIGGERED: EventReason =
    EventReason { component: "millpond", action: "Plan", reason: "TriggeredScaleUp", warning: false };

/// Limit on the pods of a group that get an event.
const MAX_EVENTS_PER_GROUP: usize = 10;

/// The sizes of groups before a snapshot was taken. A scale-up is written only if the size is still the same.
pub(crate) struct ObservedSizes(pub(super) BTreeMap<GroupRef, Option<i64>>);

impl ObservedSizes {
    /// The present sizes.
    pub(crate) fn now(machines: &Machines) -> Self {
        Self(if machines.is_present() { machines.sizes() } else { BTreeMap::new() })
    }
}

/// The result of writing a plan's new nodes of node groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ScaledUp {
    /// A group could not be written: the pods planned onto its nodes must be planned again.
    pub(crate) failed: bool,
}

/// More nodes for a group, and the pods that they are for.
#[derive(Debug, PartialEq, Eq)]
struct GroupScaleUp<'p> {
    of: GroupRef,
    nodes: i64,
    pods: Vec<&'p Key>,
}

/// Whether a pool is a node group.
pub(crate) fn is_group(snapshot: &Snapshot, pool: PoolId) -> bool {
    GroupRef::of_pool(&snapshot.pools[pool.index()].name).is_some()
}

/// Writes the new sizes of all groups that a plan grows, as many at a time as the limit on writes allows.
pub(crate) async fn scale_up(
    context: &Context,
    turn: &Turn<'_>,
    seen: &ObservedSizes,
    snapshot: &Snapshot,
    outcome: &Outcome,
    pods: &[Vec<Key>],
) -> ScaledUp {
    let scale_ups = scale_ups(snapshot, outcome, pods);
    let written = join_all(scale_ups.into_iter().map(|growth| scale_up_group(context, turn, seen, growth))).await;
    ScaledUp { failed: written.contains(&false) }
}

fn scale_ups<'p>(snapshot: &Snapshot, outcome: &Outcome, pods: &'p [Vec<Key>]) -> Vec<GroupScaleUp<'p>> {
    let mut by_pool: BTreeMap<PoolId, GroupScaleUp<'p>> = BTreeMap::new();
    for (node, pods) in outcome.plan.new_nodes.iter().zip(pods) {
        let Some(of) = GroupRef::of_pool(&snapshot.pools[node.pool.index()].name) else { continue };
        let growth = by_pool.entry(node.pool).or_insert_with(|| GroupScaleUp { of, nodes: 0, pods: Vec::new() });
        growth.nodes += 1;
        growth.pods.extend(pods);
    }
    by_pool.into_values().collect()
}

async fn scale_up_group(context: &Context, turn: &Turn<'_>, seen: &ObservedSizes, growth: GroupScaleUp<'_>) -> bool {
    let (cluster, machines) = (&context.cluster, &context.cluster.machines);
    let GroupScaleUp { of, nodes, pods } = growth;
    let from = seen.0.get(&of).copied().flatten();
    let to = from.unwrap_or(0) + nodes;
    match machines.resize(turn, &of, from, to).await {
        Ok(Resized::Done) => {}
        Ok(Resized::Changed) => {
            tracing::info!(group = %of, "the size of a node group changed meanwhile, its pods are planned for again");
            return false;
        }
        Err(error) => {
            tracing::warn!(group = %of, %error, cause = error.cause(), "a node group could not be grown");
            return false;
        }
    }
    let from = from.unwrap_or(0);
    context.metrics.group_scaled_up(&of, nodes);
    decisions::group_grows(cluster, &of, from, to, &pods);
    tracing::info!(group = %of, from, to, pods = pods.len(), "a node group grows");
    machines.record_event(&of, SCALED_UP, &format!("replicas {from} → {to}, pending pods: {}", pods.len()), false);
    for pod in pods.iter().take(MAX_EVENTS_PER_GROUP).filter_map(|pod| cluster.pods.get(pod)) {
        let note = format!("pod waits for a machine of node group {of}: replicas {from} → {to}");
        cluster.recorder.record(&*pod, TRIGGERED, note);
    }
    true
}

#[cfg(test)]
mod tests {
    use millpond_plan::model::Pool;
    use millpond_plan::plan::{NewNode, Plan};

    use super::*;

    #[test]
    fn new_nodes_of_groups_are_counted_by_group() {
        let mut snapshot = Snapshot::new(0);
        let pools = ["general", "default/a", "MachineSet/default/b"].map(|name| snapshot.add_pool(Pool::new(name)));
        let node = |pool: PoolId| NewNode {
            pool,
            instance_type: millpond_plan::model::TypeId(0),
            offering: 0,
            price: 1,
            labels: std::sync::Arc::default(),
        };
        let new_nodes = vec![node(pools[1]), node(pools[0]), node(pools[2]), node(pools[1])];
        let outcome = Outcome { plan: Plan { new_nodes, ..Plan::default() }, ..Outcome::default() };
        let pods: Vec<Vec<Key>> = (0..4).map(|number| vec![Key::new("default", &format!("p{number}"))]).collect();
        let told: Vec<(String, i64, usize)> = scale_ups(&snapshot, &outcome, &pods)
            .into_iter()
            .map(|growth| (growth.of.to_string(), growth.nodes, growth.pods.len()))
            .collect();
        assert_eq!(told, [("default/a".to_owned(), 2, 2), ("MachineSet/default/b".to_owned(), 1, 1)]);
        assert_eq!(pools.map(|pool| is_group(&snapshot, pool)), [false, true, true]);
    }
}
