//! Scale-down: a node that was unneeded for long enough has its Machine marked for deletion, then the group's replicas
//! are reduced by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::capi::names;
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::Key;
use millpond_state::PoolsOf;
use millpond_state::groups::{GroupKind, GroupRef, Timing, Use};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::replicas::Resized;
use super::scale_up::ObservedSizes;
use super::unneeded::{self, Unneeded, UnneededSince};
use crate::context::Context;
use crate::decisions;
use crate::kinds::Machine;
use crate::turn::Turn;

/// Nodes are looked at this often; the cluster-autoscaler's.
const EVERY: Duration = Duration::from_secs(10);
/// Machines that leave at a time, of all groups together; the cluster-autoscaler's.
const AT_A_TIME: usize = 10;
/// How long to wait until the mark is observed by the watch. The Cluster API controllers have most likely seen it by
/// then.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Prefix of deletion marks that Millpond writes; a time follows.
pub(super) const MARK: &str = "millpond ";

const SCALED_DOWN: EventReason =
    EventReason { component: "millpond", action: "ScaleDown", reason: "ScaledDownGroup", warning: false };
const SCALE_DOWN: EventReason =
    EventReason { component: "millpond", action: "ScaleDown", reason: "ScaleDown", warning: false };

/// Removes unneeded nodes of node groups.
pub(crate) struct ScaleDown {
    context: Arc<Context>,
    list: UnneededSince,
}

/// A group that may be scaled down.
struct Shrinkable {
    of: GroupRef,
    timing: Timing,
    min: i64,
    replicas: i64,
    /// Machines by node name.
    machines: BTreeMap<String, String>,
    /// Machines that are being deleted.
    leaving: usize,
}

impl ScaleDown {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, list: UnneededSince::default() }
    }

    /// Checks nodes until the token is cancelled.
    pub(crate) async fn run(&mut self, stop: CancellationToken) {
        let machines = Arc::clone(&self.context.cluster.machines);
        tokio::select! {
            () = stop.cancelled() => return,
            () = machines.wait_until_present() => {}
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            if let Err(error) = self.look().await {
                tracing::warn!(%error, cause = error.cause(), "nodes could not be taken away, will look again");
            }
        }
    }

    async fn look(&mut self) -> Result<()> {
        let context = Arc::clone(&self.context);
        let _round = context.cluster.supervisor.begin("node groups: scale down");
        let turn = context.turns.take().await;
        let machines = &context.cluster.machines;
        let seen = ObservedSizes::now(machines);
        let groups = shrinkable(&context);
        if groups.is_empty() {
            self.list = UnneededSince::default();
            return Ok(());
        }
        let timings = groups.iter().map(|(pool, group)| (pool.clone(), group.timing)).collect();
        let unneeded = unneeded::unneeded(context.snapshot_of(PoolsOf::NodePools), &timings);
        let due = self.list.look(unneeded, context.cluster.now().0);
        machines.unneeded.store(self.list.len(), Ordering::Relaxed);
        let leaving: usize = groups.values().map(|group| group.leaving).sum();
        for (pool, nodes) in chosen(due, &groups, AT_A_TIME.saturating_sub(leaving)) {
            self.remove(&turn, &groups[&pool], &seen, &nodes).await?;
        }
        Ok(())
    }

    /// Marks the machines of nodes, then lets their group have fewer; a mark that led to nothing is taken off.
    async fn remove(
        &self,
        turn: &Turn<'_>,
        group: &Shrinkable,
        seen: &ObservedSizes,
        nodes: &[Unneeded],
    ) -> Result<()> {
        let machines = &self.context.cluster.machines;
        let of = &group.of;
        let mut marked: Vec<Key> = Vec::new();
        let mut failed = None;
        for node in nodes {
            let key = Key::new(&of.namespace, &group.machines[&node.node]);
            match self.mark(&key).await {
                Ok(()) => marked.push(key),
                Err(error) => failed = Some(error),
            }
        }
        if marked.is_empty() {
            return failed.map_or(Ok(()), Err);
        }
        let from = seen.0.get(of).copied().flatten();
        let to = from.unwrap_or(0) - marked.len() as i64;
        let resized = machines.resize(turn, of, from, to).await;
        if resized.as_ref().ok() != Some(&Resized::Done) {
            for key in &marked {
                let _ = machines.machines.patch(key, &mark(Value::Null)).await;
            }
            tracing::info!(group = %of, "the size of a node group changed meanwhile, none of its nodes is removed");
            return resized.map(drop);
        }
        self.record_event(group, from.unwrap_or(0), to, nodes);
        Ok(())
    }

    async fn mark(&self, key: &Key) -> Result<()> {
        let cluster = &self.context.cluster;
        let value = format!("{MARK}{}", cluster.clock.now());
        let written: Arc<Machine> = cluster.machines.machines.patch(key, &mark(value.into())).await?;
        let _ = tokio::time::timeout(HEARD_WITHIN, cluster.machines.machines.wait_until_observed(&written)).await;
        Ok(())
    }

    fn record_event(&self, group: &Shrinkable, from: i64, to: i64, nodes: &[Unneeded]) {
        let (cluster, of) = (&self.context.cluster, &group.of);
        let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        let pods: usize = nodes.iter().map(|node| node.pods).sum();
        self.context.metrics.group_scaled_down(of, from - to, "unneeded");
        tracing::info!(group = %of, from, to, nodes = ?names, pods, "a node group shrinks");
        let machines = names.iter().filter_map(|node| Some((group.machines.get(*node)?.as_str(), *node)));
        decisions::group_shrinks(cluster, of, from, to, machines);
        let note = format!("replicas {from} → {to}: {} unneeded", names.join(", "));
        cluster.machines.record_event(of, SCALED_DOWN, &note, false);
        for node in nodes {
            let Some(object) = cluster.nodes.get(&Key::new("", &node.node)) else { continue };
            let used = node.used_milli as f64 / 10.0;
            let note = format!("unneeded for {} s: {used:.1}% requested, pods to move: {}", node.after_s, node.pods);
            cluster.recorder.record(&*object, SCALE_DOWN, note);
        }
    }
}

/// The patch that marks a machine, or takes the mark off.
pub(super) fn mark(value: Value) -> Value {
    json!({"metadata": {"annotations": {names::DELETE_MACHINE: value}}})
}

/// Groups that may shrink, by pool. One that is rolled out has machines of several sets: which of them go then is not
/// for a mark to say.
fn shrinkable(context: &Context) -> BTreeMap<String, Shrinkable> {
    let options = context.cluster.machines.as_pools(Use::Closed);
    context.cluster.with_node_groups(&options, |groups, _| {
        let may = groups.iter().filter(|group| {
            group.resting().is_none() && !group.is_rolling() && group.of.kind != GroupKind::MachinePool
        });
        let found = may.filter_map(|group| {
            let scaled = group.scaled.as_ref()?;
            let live = group.machines.iter().filter(|machine| !machine.leaving);
            let machines = live.filter_map(|machine| Some((machine.node_name()?.to_owned(), machine.name.to_owned())));
            let shrinkable = Shrinkable {
                of: group.of.clone(),
                timing: group.timing,
                min: scaled.min,
                replicas: i64::try_from(group.replicas).unwrap_or(i64::MAX),
                machines: machines.collect(),
                leaving: group.machines.iter().filter(|machine| machine.leaving).count(),
            };
            Some((group.of.to_string(), shrinkable))
        });
        found.collect()
    })
}

/// Nodes to remove now, by pool: empty ones first, within the budget and the minimum sizes.
fn chosen(
    mut due: Vec<Unneeded>,
    groups: &BTreeMap<String, Shrinkable>,
    budget: usize,
) -> BTreeMap<String, Vec<Unneeded>> {
    due.sort_by(|a, b| (a.pods > 0, a.used_milli, &a.node).cmp(&(b.pods > 0, b.used_milli, &b.node)));
    let mut chosen: BTreeMap<String, Vec<Unneeded>> = BTreeMap::new();
    let mut left = budget;
    for node in due {
        let Some(group) = groups.get(&node.pool).filter(|group| group.machines.contains_key(&node.node)) else {
            continue;
        };
        let of_pool = chosen.entry(node.pool.clone()).or_default();
        if left == 0 || group.replicas - (of_pool.len() as i64) <= group.min {
            continue;
        }
        of_pool.push(node);
        left -= 1;
    }
    chosen.retain(|_, nodes| !nodes.is_empty());
    chosen
}

/// When Millpond marked the machine for deletion; `None` for marks of other clients.
pub(super) fn marked_at(machine: &Machine) -> Option<jiff::Timestamp> {
    machine.annotations().get(names::DELETE_MACHINE)?.strip_prefix(MARK)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, pods: usize) -> Unneeded {
        Unneeded { node: name.to_owned(), pool: "default/w".to_owned(), after_s: 600, used_milli: 0, pods }
    }

    fn groups(min: i64, replicas: i64) -> BTreeMap<String, Shrinkable> {
        let machines = (0..replicas).map(|number| (format!("n{number}"), format!("m{number}"))).collect();
        let of = GroupRef::new(GroupKind::MachineDeployment, "default", "w");
        let group = Shrinkable { of, timing: Timing::default(), min, replicas, machines, leaving: 0 };
        BTreeMap::from([("default/w".to_owned(), group)])
    }

    #[test]
    fn the_least_size_and_the_budget_hold() {
        let due = || vec![node("n0", 3), node("n1", 0), node("n2", 0), node("gone", 0)];
        let names = |min, replicas, budget| -> Vec<String> {
            let chosen = chosen(due(), &groups(min, replicas), budget);
            chosen.into_values().flatten().map(|node| node.node).collect()
        };
        assert_eq!(names(0, 3, 10), ["n1", "n2", "n0"], "those without pods first");
        assert_eq!(names(2, 3, 10), ["n1"]);
        assert_eq!(names(3, 3, 10), [""; 0]);
        assert_eq!(names(0, 3, 2), ["n1", "n2"]);
    }
}
