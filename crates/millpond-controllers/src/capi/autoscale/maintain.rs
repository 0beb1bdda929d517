//! Maintenance of node groups: failed machines, sizes below the minimum, invalid annotations, marks that were left
//! over, and the remembered capacity of nodes for groups that scale to zero.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::Key;
use millpond_state::groups::{GroupKind, GroupRef, REMEMBERED_ANNOTATION, Remembered, Trouble, TroubleKind, Use};
use millpond_state::{Group, State};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::log::Discovered;
use super::replicas::Resized;
use super::scale_down::{mark, marked_at};
use crate::context::Context;
use crate::turn::Turn;

/// Groups are looked at this often even when nothing changes: time passes for machines that are late.
const EVERY: Duration = Duration::from_secs(30);
/// The shortest time between two checks.
const SOONEST: Duration = Duration::from_secs(1);
/// A mark of ours that led to no removal for this long was left over by a controller that stopped in the middle.
const LEFT_OVER_AFTER: Duration = Duration::from_mins(1);

const BACKED_OFF: EventReason =
    EventReason { component: "millpond", action: "ScaleUp", reason: "BackedOff", warning: true };
const MISREAD: EventReason =
    EventReason { component: "millpond", action: "Plan", reason: "InvalidAnnotation", warning: true };
const REMOVED: EventReason =
    EventReason { component: "millpond", action: "ScaleDown", reason: "RemovedFailedMachine", warning: true };
const RAISED: EventReason =
    EventReason { component: "millpond", action: "ScaleUp", reason: "EnforcedMinSize", warning: false };

/// Checks node groups and their machines.
pub(crate) struct GroupMaintenance {
    context: Arc<Context>,
    changed: Arc<Notify>,
    /// Since when groups lack machines that Cluster API does not create.
    lacking: HashMap<GroupRef, Instant>,
}

/// The work that one group needs.
#[derive(Debug, Default)]
struct MaintenanceTasks {
    words: Vec<String>,
    /// Machines that will not become nodes.
    failed: Vec<(String, Trouble)>,
    /// Machines that Cluster API does not create, and for how long they may be waited for.
    lacking: Option<(u64, Duration)>,
    /// A machine became a node lately, and none is in trouble.
    well: bool,
    replicas: i64,
    min: i64,
    /// The bounds from its annotations.
    bounds: Option<(i64, i64)>,
    /// Whether it is below its minimum size.
    low: bool,
    /// Machines with a mark, without one being too many.
    marked: Vec<String>,
    remember: Option<Remembered>,
}

impl GroupMaintenance {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let changed = Arc::new(Notify::new());
        let news = Arc::clone(&changed);
        context.cluster.machines.on_change(move || news.notify_one());
        Self { context, changed, lacking: HashMap::new() }
    }

    /// Looks after groups until the token is cancelled.
    pub(crate) async fn run(&mut self, stop: CancellationToken) {
        let machines = Arc::clone(&self.context.cluster.machines);
        tokio::select! {
            () = stop.cancelled() => return,
            () = machines.wait_until_present() => {}
        }
        loop {
            if let Err(error) = self.look().await {
                tracing::warn!(%error, cause = error.cause(), "node groups could not be looked after, will try again");
            }
            let again = async {
                tokio::time::sleep(SOONEST).await;
                let _ = tokio::time::timeout(EVERY.saturating_sub(SOONEST), self.changed.notified()).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = again => {}
            }
        }
    }

    async fn look(&mut self) -> Result<()> {
        let _round = self.context.cluster.supervisor.begin("node groups: scale up");
        let tasks = self.tasks();
        let machines = &self.context.cluster.machines;
        let known = tasks.iter().filter_map(|(of, tasks)| {
            let (min, max) = tasks.bounds?;
            Some(Discovered { group: of.to_string_with_kind(), min, max, replicas: tasks.replicas })
        });
        machines.log.discovered(known.collect(), self.context.cluster.clock.now());
        self.lacking.retain(|of, _| tasks.contains_key(of));
        self.context.cluster.machines.health.retain(|of| tasks.contains_key(of));
        for (of, tasks) in tasks {
            self.maintain_group(&of, tasks).await?;
        }
        Ok(())
    }

    fn tasks(&self) -> BTreeMap<GroupRef, MaintenanceTasks> {
        let cluster = &self.context.cluster;
        let options = cluster.machines.as_pools(Use::Closed);
        let now = cluster.now().0;
        cluster.with_node_groups(&options, |groups, state| {
            groups.iter().map(|group| (group.of.clone(), MaintenanceTasks::of(group, state, now))).collect()
        })
    }

    async fn maintain_group(&mut self, of: &GroupRef, tasks: MaintenanceTasks) -> Result<()> {
        let context = Arc::clone(&self.context);
        let machines = &context.cluster.machines;
        for word in &tasks.words {
            machines.record_event(of, MISREAD, word, true);
        }
        self.take_note(of, &tasks);
        let late = self.lacks_for_too_long(of, &tasks);
        let surplus = self.worth_removing(of, &tasks);
        if !surplus.is_empty() || late > 0 {
            let turn = context.turns.take().await;
            self.give_up(&turn, of, &tasks, &surplus, late).await?;
        } else if tasks.low && context.cluster.machines.options.enforce_min {
            let turn = context.turns.take().await;
            if machines.resize(&turn, of, Some(tasks.replicas), tasks.min).await? == Resized::Done {
                let note = format!("replicas {} → {}: the least that the group has", tasks.replicas, tasks.min);
                tracing::info!(group = %of, from = tasks.replicas, to = tasks.min, "a node group gets its least size");
                machines.record_event(of, RAISED, &note, false);
            }
        }
        self.take_off_marks(of, &tasks.marked).await;
        if let Some(remember) = &tasks.remember {
            let text = serde_json::to_string(remember).unwrap_or_default();
            machines.annotate(of, &json!({REMEMBERED_ANNOTATION: text})).await?;
        }
        Ok(())
    }

    /// Starts the backoff of a group whose machines fail.
    fn take_note(&self, of: &GroupRef, tasks: &MaintenanceTasks) {
        let machines = &self.context.cluster.machines;
        for (machine, trouble) in &tasks.failed {
            if !machines.health.knows(of, machine) {
                self.context.metrics.machine_failed(of, trouble.kind.name());
            }
            let wait = machines.health.failed(of, machine, trouble);
            if let Some(wait) = wait {
                self.backed_off(of, machine, trouble, wait);
            }
        }
        if tasks.well && machines.health.is_troubled(of) && !machines.health.held().contains_key(of) {
            machines.health.recovered(of);
        }
    }

    fn backed_off(&self, of: &GroupRef, machine: &str, trouble: &Trouble, wait: Duration) {
        let (kind, message, wait_s) = (trouble.kind.name(), &trouble.message, wait.as_secs());
        tracing::info!(group = %of, machine, reason = kind, message, wait_s, "a node group is left out for a while");
        let note = format!("{kind}: machine {machine}: {message}; nothing is asked of the group for {wait_s} s");
        self.context.cluster.machines.record_event(of, BACKED_OFF, &note, false);
        // Pods that were planned onto the group are planned again.
        self.context.cluster.machines.notify();
    }

    /// How many of the machines that a group lacks are given up.
    fn lacks_for_too_long(&mut self, of: &GroupRef, tasks: &MaintenanceTasks) -> i64 {
        let Some((count, patience)) = tasks.lacking else {
            self.lacking.remove(of);
            return 0;
        };
        let since = *self.lacking.entry(of.clone()).or_insert_with(Instant::now);
        if since.elapsed() < patience {
            return 0;
        }
        self.lacking.remove(of);
        let message = format!("{count} of its machines were not created within {} s", patience.as_secs());
        let trouble = Trouble { kind: TroubleKind::Late, message };
        if let Some(wait) = self.context.cluster.machines.health.stalled(of, &trouble) {
            self.backed_off(of, "", &trouble, wait);
        }
        i64::try_from(count).unwrap_or(0).min(tasks.replicas - tasks.min).max(0)
    }

    /// Failed machines that can be given up without going below the least size. Machines of a pool have no marks.
    fn worth_removing(&self, of: &GroupRef, tasks: &MaintenanceTasks) -> Vec<(String, Trouble)> {
        let most = usize::try_from(tasks.replicas - tasks.min).unwrap_or(0);
        let removable = of.kind != GroupKind::MachinePool;
        tasks.failed.iter().filter(|_| removable).take(most).cloned().collect()
    }

    /// Marks machines that failed and lets their group have fewer.
    async fn give_up(
        &self,
        turn: &Turn<'_>,
        of: &GroupRef,
        tasks: &MaintenanceTasks,
        failed: &[(String, Trouble)],
        late: i64,
    ) -> Result<()> {
        let (cluster, machines) = (&self.context.cluster, &self.context.cluster.machines);
        let value: Value = format!("{}{}", super::scale_down::MARK, cluster.clock.now()).into();
        let mut marked = Vec::new();
        for (machine, _) in failed {
            let key = Key::new(&of.namespace, machine);
            if machines.machines.patch(&key, &mark(value.clone())).await.is_ok() {
                marked.push(key);
            }
        }
        let room = tasks.replicas - tasks.min;
        let fewer = (marked.len() as i64 + late).min(room);
        if fewer <= 0 {
            return Ok(());
        }
        let (from, to) = (tasks.replicas, tasks.replicas - fewer);
        let resized = machines.resize(turn, of, Some(from), to).await;
        if resized.as_ref().ok() != Some(&Resized::Done) {
            for key in &marked {
                let _ = machines.machines.patch(key, &mark(Value::Null)).await;
            }
            return resized.map(drop);
        }
        self.context.metrics.group_scaled_down(of, fewer, "failed");
        tracing::info!(group = %of, from, to, failed = marked.len(), "machines that failed are given up");
        let why =
            failed.first().map_or("they are not created".to_owned(), |(name, it)| format!("{name}: {}", it.message));
        machines.record_event(of, REMOVED, &format!("replicas {from} → {to}: {why}"), false);
        Ok(())
    }

    /// Removes marks that an earlier controller process left over.
    async fn take_off_marks(&self, of: &GroupRef, marked: &[String]) {
        let cluster = &self.context.cluster;
        for name in marked {
            let key = Key::new(&of.namespace, name);
            let at = cluster.machines.machines.get(&key).and_then(|machine| marked_at(&machine));
            let age = at.and_then(|at| Duration::try_from(cluster.clock.now().duration_since(at)).ok());
            if age.is_some_and(|age| age >= LEFT_OVER_AFTER) {
                tracing::info!(group = %of, machine = name, "a mark that led to nothing is taken off");
                let _ = cluster.machines.machines.patch(&key, &mark(Value::Null)).await;
            }
        }
    }
}

impl MaintenanceTasks {
    fn of(group: &Group<'_>, state: &State, now: i64) -> Self {
        let mut tasks = Self { words: group.warnings.clone(), ..Self::default() };
        tasks.words.extend(group.problem.clone());
        tasks.bounds = group.scaled.as_ref().map(|scaled| (scaled.min, scaled.asked_max));
        tasks.replicas = i64::try_from(group.replicas).unwrap_or(i64::MAX);
        let Some(scaled) = group.scaled.as_ref().filter(|_| group.resting().is_none()) else { return tasks };
        tasks.min = scaled.min;
        tasks.low = tasks.replicas < tasks.min;
        let staying = || group.machines.iter().filter(|machine| !machine.leaving);
        let failed = staying().filter_map(|it| Some((it.name.to_owned(), it.trouble_at(now, &group.timing)?)));
        tasks.failed = failed.collect();
        tasks.well = tasks.failed.is_empty() && staying().any(|machine| machine.node_name().is_some());
        let patience = Duration::from_secs(u64::try_from(group.timing.provision_s).unwrap_or(0));
        tasks.lacking = Some((group.lacking(), patience)).filter(|(count, _)| *count > 0);
        tasks.marked = staying().filter(|machine| machine.is_marked()).map(|it| it.name.to_owned()).collect();
        tasks.remember = group.worth_remembering(state);
        tasks
    }
}
