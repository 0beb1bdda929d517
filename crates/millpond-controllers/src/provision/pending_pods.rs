//! Pending pods, and whether a round has planned for them.
//!
//! Capacity buffers are always pending: while there are any, a round runs again whenever capacity is taken or freed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::{Key, has_ended, is_leaving, node_name};
use millpond_runtime::mirror::Mirror;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::batch_window::Wave;
use super::nominate::PATIENCE;
use super::spread_order::spreads;
use super::{RETRY, SOONEST_AGAIN, SOONEST_DISPLACED};
use crate::cluster::Cluster;
use crate::context::{Context, Reopening};
use crate::kinds::CapacityBuffer;
use crate::metrics::Metrics;
use crate::nominations::Nominations;

/// The longest wait before a round repeats writes that failed.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// Pods that the scheduler should bind by itself, with their planned node. A node of a node group has no name yet; its
/// name is empty here.
#[derive(Default)]
pub(super) struct Expected {
    by_pod: HashMap<Key, String>,
    by_node: HashMap<String, HashSet<Key>>,
}

impl Expected {
    fn remove(&mut self, pod: &Key) -> Option<String> {
        let node = self.by_pod.remove(pod)?;
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(node)
    }
}

impl FromIterator<(Key, String)> for Expected {
    fn from_iter<I: IntoIterator<Item = (Key, String)>>(pods: I) -> Self {
        let by_pod: HashMap<Key, String> = pods.into_iter().collect();
        let mut by_node: HashMap<String, HashSet<Key>> = HashMap::new();
        for (pod, node) in &by_pod {
            by_node.entry(node.clone()).or_default().insert(pod.clone());
        }
        Self { by_pod, by_node }
    }
}

#[derive(Default)]
struct State {
    /// Pods that no round has planned for.
    fresh: HashSet<Key>,
    /// Pods that the current round plans for the first time, and since when the first of them waits.
    looked_at: (HashSet<Key>, Option<Instant>),
    /// Pods of workloads that were created closely one after the other.
    wave: Wave,
    /// Whether some of them were created after the last round began. Pods that lost their place do not wait for the
    /// rest of a wave.
    in_wave: bool,
    /// When the oldest of them became pending.
    since: Option<Instant>,
    /// Unschedulable pods of the last round, with the reason.
    unschedulable: HashMap<Key, String>,
    /// Pods that the scheduler should bind by itself to existing nodes; planned for again if it does not.
    expected: Expected,
    /// Another pod was bound where one of them was expected, and there is not enough capacity left for it.
    displaced: bool,
    /// Active buffers.
    buffers: HashSet<Key>,
    /// Whether a buffer is new or changed.
    buffers_changed: bool,
    /// Whether a round found no capacity for some pods of buffers.
    short: bool,
    /// Whether a change since the last round may help pods without a place, or leaves a buffer without capacity.
    retry: bool,
    /// When the last round began.
    begun: Option<Instant>,
    /// When the last round ended.
    ended: Option<Instant>,
    /// After a failed round, the earliest time of the next one.
    again: Option<Instant>,
    /// When to repeat writes of a round that failed. Other pods need not wait for that.
    unwritten: Option<Instant>,
    /// Rounds in a row in which something was not written.
    unwritten_rounds: u32,
    arrivals: u64,
}

/// The pending pods.
pub(super) struct PendingPods {
    state: Mutex<State>,
    changed: Notify,
    metrics: Arc<Metrics>,
    nominations: Arc<Nominations>,
    cluster: Weak<Cluster>,
}

impl PendingPods {
    pub(super) fn listen(context: &Context) -> Arc<Self> {
        let metrics = Arc::clone(&context.metrics);
        let cluster = &context.cluster;
        let nominations = Arc::clone(&cluster.nominations);
        let (state, changed, weak) = (Mutex::default(), Notify::new(), Arc::downgrade(cluster));
        let pending = Arc::new(Self { state, changed, metrics, nominations, cluster: weak.clone() });
        let promised = Arc::clone(&pending);
        cluster.nominations.on_change(move |key| {
            let pod = weak.upgrade().and_then(|cluster| cluster.pods.get(key));
            if pod.is_some_and(|pod| promised.needs_node(&pod)) {
                promised.insert(key.clone());
            } else {
                promised.remove(key);
            }
        });
        let pods = Arc::clone(&pending);
        cluster.pods.on_change(move |before, after| pods.pod_changed(before, after));
        pending.retry_on(&cluster.pools, |pool| pool.metadata.generation);
        pending.retry_on(&cluster.claims, |claim| {
            (claim.metadata.deletion_timestamp.is_some(), claim.status.conditions.len())
        });
        pending.retry_on(&cluster.classes, |class| (class.metadata.generation, class.status.conditions.clone()));
        pending.retry_on(&cluster.volumes, |volume| volume.metadata.generation);
        pending.retry_on(&cluster.volume_claims, |claim| claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()));
        pending.retry_on(&cluster.nodes, |node| (node.spec.clone(), node.metadata.labels.clone()));
        let catalogs = Arc::clone(&pending);
        cluster.on_provided(move |_| catalogs.retry());
        let groups = Arc::clone(&pending);
        cluster.machines.on_change(move || groups.retry());
        // The pod templates of buffers.
        pending.retry_on(&cluster.templates, |template| template.metadata.generation);
        pending.retry_on(&cluster.deployments, |deployment| deployment.metadata.generation);
        pending.retry_on(&cluster.replica_sets, |set| set.metadata.generation);
        pending.retry_on(&cluster.stateful_sets, |set| set.metadata.generation);
        pending.retry_on(&cluster.limit_ranges, |range| range.spec.clone());
        let pools = Arc::clone(&pending);
        context.launch_backoff.on_change(move |_| {
            pools.retry();
            pools.plan_again_now();
        });
        let buffers = Arc::clone(&pending);
        cluster.buffers.on_change(move |before, after| buffers.buffer_changed(before, after));
        pending
    }

    /// Retries unschedulable pods when the relevant part of an object changes.
    fn retry_on<K: Kind + Resource, C: PartialEq + 'static>(
        self: &Arc<Self>,
        mirror: &Mirror<K>,
        what_counts: fn(&K) -> C,
    ) {
        let pending = Arc::clone(self);
        mirror.on_change(move |before, after| {
            let of = |object: Option<&Arc<K>>| object.map(|object| what_counts(object));
            if of(before) != of(after) {
                pending.retry();
            }
        });
    }

    fn retry(&self) {
        let mut state = self.state.lock();
        let any = !state.unschedulable.is_empty() || !state.buffers.is_empty();
        if any && !state.retry {
            state.retry = true;
            drop(state);
            self.changed.notify_waiters();
        }
    }

    fn pod_changed(&self, before: Option<&Arc<Pod>>, after: Option<&Arc<Pod>>) {
        let Some(pod) = after.or(before) else { return };
        let key = Key::of(&**pod);
        let waits = after.is_some_and(|pod| self.needs_node(pod));
        let waited = before.is_some_and(|pod| self.needs_node(pod));
        let home = |pod: Option<&Arc<Pod>>| {
            pod.filter(|pod| !has_ended(pod)).and_then(|pod| node_name(pod).map(str::to_owned))
        };
        let (was_on, is_on) = (home(before), home(after));
        if let Some(node) = is_on.as_ref().filter(|_| was_on != is_on) {
            self.bound(&key, node);
        }
        if waits != waited {
            if waits {
                if before.is_none() && is_of_workload(pod) {
                    let mut state = self.state.lock();
                    state.wave.arrived(Instant::now());
                    state.in_wave = true;
                }
                self.insert(key);
            } else {
                self.remove(&key);
            }
        }
        // A pod that leaves frees capacity; a bound pod may take that of a buffer.
        if !waits && (after.is_none() || was_on != is_on) {
            self.retry();
        }
    }

    /// A pod was bound. Pods that were expected on that node and no longer fit need not wait for the scheduler. Pods
    /// with a topology spread do: the scheduler places them by itself, and while it does, they swap places all the
    /// time.
    fn bound(&self, pod: &Key, node: &str) {
        let mut state = self.state.lock();
        let expected = state.expected.remove(pod);
        if expected.as_deref() == Some(node) || state.displaced {
            return;
        }
        let others: Vec<Key> = state.expected.by_node.get(node).into_iter().flatten().cloned().collect();
        drop(state);
        let Some(cluster) = self.cluster.upgrade().filter(|_| !others.is_empty()) else { return };
        let has_lost = |other: &Key| {
            let other = cluster.pods.get(other).filter(|other| !spreads(other));
            other.is_some_and(|other| !cluster.has_enough(node, &other))
        };
        if others.iter().any(has_lost) {
            self.state.lock().displaced = true;
            self.changed.notify_waiters();
        }
    }

    /// A pod no longer waits.
    fn remove(&self, key: &Key) {
        let mut state = self.state.lock();
        state.fresh.remove(key);
        state.looked_at.0.remove(key);
        state.unschedulable.remove(key);
        state.expected.remove(key);
        self.count(&state);
    }

    /// Adds a pod that no round has planned for.
    fn insert(&self, key: Key) {
        let mut state = self.state.lock();
        if state.fresh.is_empty() {
            state.since = Some(Instant::now());
        }
        state.fresh.insert(key);
        state.arrivals += 1;
        self.count(&state);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether a pod needs a node, and is not nominated to one.
    fn needs_node(&self, pod: &Pod) -> bool {
        let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
        let gated = gates.is_some_and(|gates| !gates.is_empty());
        node_name(pod).is_none() && !has_ended(pod) && !is_leaving(pod) && !gated && self.nominations.of(pod).is_none()
    }

    fn buffer_changed(&self, before: Option<&Arc<CapacityBuffer>>, after: Option<&Arc<CapacityBuffer>>) {
        let Some(buffer) = after.or(before) else { return };
        let key = Key::of(&**buffer);
        let there = after.filter(|buffer| !is_leaving(&***buffer));
        let generation = |buffer: Option<&Arc<CapacityBuffer>>| buffer.map(|buffer| buffer.metadata.generation);
        let mut state = self.state.lock();
        if there.is_none() {
            state.buffers.remove(&key);
            return;
        }
        state.buffers.insert(key);
        if generation(before) != generation(there) {
            state.buffers_changed = true;
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// Completes with the next change.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }

    /// Since when the oldest pod waits that no round has planned for.
    pub(super) fn oldest_new_pod(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.since.filter(|_| !state.fresh.is_empty())
    }

    /// The number of pods that began to wait.
    pub(super) fn arrivals(&self) -> u64 {
        self.state.lock().arrivals
    }

    /// Pods of workloads that were created closely one after the other, some of them since the last round.
    pub(super) fn wave(&self) -> Wave {
        let state = self.state.lock();
        if state.in_wave { state.wave } else { Wave::default() }
    }

    /// When the next round is due; `None` while there is nothing to do.
    pub(super) fn due(&self, reopenings: &[Reopening]) -> Option<Instant> {
        let state = self.state.lock();
        if let Some(again) = state.again {
            return Some(again);
        }
        if !state.fresh.is_empty() || state.buffers_changed {
            return Some(Instant::now());
        }
        let after = |wait: Duration| state.ended.map_or_else(Instant::now, |ended| ended + wait);
        if state.displaced {
            return Some(after(SOONEST_DISPLACED));
        }
        let retry = state.retry && !(state.unschedulable.is_empty() && state.buffers.is_empty());
        let retry = retry.then(|| after(SOONEST_AGAIN));
        let short = !state.unschedulable.is_empty() || state.short;
        // The last round's plan included what reopened before it began.
        let unseen = reopenings.iter().filter(|one| short && state.begun.is_none_or(|begun| one.at > begun));
        let probe = unseen.map(|one| one.at.max(after(one.spacing))).min();
        let unbound = (!state.expected.by_pod.is_empty()).then(|| after(PATIENCE));
        [state.unwritten, retry, probe, unbound].into_iter().flatten().min()
    }

    /// A round begins: it plans for all pods that wait now.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.looked_at = (std::mem::take(&mut state.fresh), state.since);
        state.in_wave = false;
        state.buffers_changed = false;
        state.retry = false;
        state.displaced = false;
        state.again = None;
        state.unwritten = None;
        state.begun = Some(Instant::now());
        self.count(&state);
    }

    /// Whether so many pods of the wave came since `plan` that the plan of the round should be dropped: its nodes are
    /// then planned again, together with those for the new pods.
    pub(super) fn has_outrun(&self, plan: Instant) -> bool {
        let state = self.state.lock();
        let opened = state.looked_at.1.unwrap_or(plan);
        state.wave.has_outrun(plan, opened, Instant::now())
    }

    /// The current round does not act: its pods wait as before.
    pub(super) fn requeue_round(&self) {
        let mut state = self.state.lock();
        let (pods, since) = std::mem::take(&mut state.looked_at);
        state.fresh.extend(pods);
        state.since = since.or(state.since);
        // Pods that were unschedulable may fit now.
        state.retry = true;
        self.count(&state);
    }

    /// A round ended with these pods unschedulable, and these for the scheduler to bind by itself; returns the
    /// unschedulable pods with a new reason. `short` if some pods of buffers have no place.
    pub(super) fn end(
        &self,
        unschedulable: HashMap<Key, String>,
        expected: Expected,
        short: bool,
    ) -> Vec<(Key, String)> {
        let mut state = self.state.lock();
        let changed = unschedulable.iter().filter(|(key, why)| state.unschedulable.get(*key) != Some(*why));
        let changed = changed.map(|(key, why)| (key.clone(), why.clone())).collect();
        state.unschedulable = unschedulable;
        state.expected = expected;
        state.short = short;
        state.ended = Some(Instant::now());
        self.count(&state);
        changed
    }

    fn count(&self, state: &State) {
        self.metrics.pending_pods(state.fresh.len(), state.unschedulable.len());
    }

    /// A round failed.
    pub(super) fn failed(&self, again: Instant) {
        self.state.lock().again = Some(again);
    }

    /// Some writes of a round failed: it is planned again, later each time in a row.
    pub(super) fn not_written(&self) {
        let mut state = self.state.lock();
        let wait = RETRY.saturating_mul(1 << state.unwritten_rounds.min(16)).min(LONGEST_RETRY);
        state.unwritten_rounds += 1;
        state.unwritten = Some(Instant::now() + wait);
    }

    /// All writes of a round succeeded.
    pub(super) fn written(&self) {
        self.state.lock().unwritten_rounds = 0;
    }

    /// Plans at once for what a round had postponed.
    pub(super) fn plan_again_now(&self) {
        let mut state = self.state.lock();
        if state.unwritten.is_some() {
            state.unwritten = Some(Instant::now());
            drop(state);
            self.changed.notify_waiters();
        }
    }
}

/// Whether a pod was made by one of the workloads that make many at once.
fn is_of_workload(pod: &Pod) -> bool {
    pod.owner_references()
        .iter()
        .any(|owner| owner.controller == Some(true) && ["ReplicaSet", "StatefulSet"].contains(&owner.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_expected_to_take_pods_until_the_last_of_them_is_gone() {
        let pod = |name: &str| Key::new("default", name);
        let places = [("a", "small"), ("b", "small"), ("c", "large")];
        let mut expected: Expected = places.map(|(name, node)| (pod(name), node.to_owned())).into_iter().collect();
        assert_eq!(expected.remove(&pod("a")).as_deref(), Some("small"));
        assert_eq!(expected.remove(&pod("a")), None);
        assert!(expected.by_node.contains_key("small"));
        expected.remove(&pod("b"));
        assert!(!expected.by_node.contains_key("small") && expected.by_node.contains_key("large"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_does_not_act_gives_its_pods_back() {
        let pending = PendingPods {
            state: Mutex::default(),
            changed: Notify::new(),
            metrics: Arc::default(),
            nominations: Arc::default(),
            cluster: Weak::new(),
        };
        let pod = |name: &str| Key::new("default", name);
        let start = Instant::now();
        pending.insert(pod("a"));
        pending.insert(pod("gone"));
        tokio::time::advance(Duration::from_millis(50)).await;
        pending.begin();
        pending.insert(pod("b"));
        pending.remove(&pod("gone"));
        pending.requeue_round();
        let state = pending.state.lock();
        assert_eq!(state.fresh, HashSet::from([pod("a"), pod("b")]));
        assert_eq!(state.since, Some(start), "the window goes on");
    }
}
