//! The scheduler: binds pods to nodes by kube-scheduler's rules.
//!
//! One task decides pod after pod on a snapshot that it updates with every change; binding and eviction run beside it.
//! A pod counts as placed once it is decided, and is released again if the binding fails.

pub mod fit;
pub mod pending_changes;
pub mod queue;
pub mod storage;

mod actions;
mod cache;
mod failure_events;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster::Cluster;
use crate::meta::{Key, node_name, pod_condition, version};
use actions::{Actions, Bound, Nominate};
use cache::{PodState, SchedulerCache};
use failure_events::FailureEvents;
use fit::preempt::{self, Budget};
use fit::reason::Preemption;
use fit::snapshot::{Interned, PodEntry, ShapeId, Slot};
use fit::volumes::VolumeDemands;
use fit::{Cycle, Decision, FitCache, FitError, PodKey, Reason};
use pending_changes::PendingChanges;
use queue::{Change, PodQueue, Refused};

/// The only scheduler name that is served.
pub const SCHEDULER_NAME: &str = "default-scheduler";
/// Bindings under way.
const BINDINGS_IN_FLIGHT: usize = 64;
/// A changed node waits no longer than this for earlier changes of pods. Usually it does not have to wait; where pods
/// do not change, this is the delay after which the node is used.
const PODS_TOLD_WITHIN: Duration = Duration::from_millis(50);
/// Decisions after which the task lets others run.
const DECISIONS_AT_A_TIME: usize = 16;

/// A failure that holds for every pod of this shape until the snapshot changes.
struct Remembered {
    generation: u64,
    error: FitError,
}

/// The scheduler.
pub struct Scheduler {
    cluster: Arc<Cluster>,
    actions: Arc<Actions>,
    pending_changes: Arc<PendingChanges>,
    cache: SchedulerCache,
    queue: PodQueue,
    fit_cache: FitCache,
    refusals: HashMap<ShapeId, Remembered>,
    failure_events: FailureEvents,
    /// Nodes that changed after the last known change of pods, and until when to wait for the pods.
    early_nodes: BTreeMap<String, Instant>,
    bindings: JoinSet<Bound>,
    /// Explanations and evictions under way; how many write at a time is bounded by the mirrors.
    tasks: TaskTracker,
}

impl Scheduler {
    /// A scheduler that watches from now on.
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self {
            pending_changes: PendingChanges::listening(&cluster),
            actions: Arc::new(Actions::new(Arc::clone(&cluster))),
            cache: SchedulerCache::default(),
            queue: PodQueue::default(),
            fit_cache: FitCache::default(),
            refusals: HashMap::new(),
            failure_events: FailureEvents::default(),
            early_nodes: BTreeMap::new(),
            bindings: JoinSet::new(),
            tasks: TaskTracker::new(),
            cluster,
        }
    }

    /// Schedules until the token is cancelled; what is under way then is finished first.
    pub async fn run(mut self, token: CancellationToken) {
        while !token.is_cancelled() {
            self.catch_up();
            self.tell_late();
            self.look_again();
            for _ in 0..DECISIONS_AT_A_TIME {
                if self.bindings.len() >= BINDINGS_IN_FLIGHT {
                    break;
                }
                let Some(key) = self.queue.pop(Instant::now()) else {
                    break;
                };
                self.schedule(&key);
            }
            self.rest(&token).await;
        }
        while self.bindings.join_next().await.is_some() {}
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits until there is something to do.
    async fn rest(&mut self, token: &CancellationToken) {
        let is_full = self.bindings.len() >= BINDINGS_IN_FLIGHT;
        if !is_full && self.queue.has_ready() {
            tokio::task::yield_now().await;
            while let Some(bound) = self.bindings.try_join_next() {
                self.take_bound(bound.ok());
            }
            return;
        }
        let early = self.early_nodes.values().min().copied();
        let wake = self.queue.next_wake().into_iter().chain(self.failure_events.next()).chain(early).min();
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            Some(bound) = self.bindings.join_next(), if !self.bindings.is_empty() => self.take_bound(bound.ok()),
            () = self.pending_changes.wait() => {}
            () = sleep_until(wake), if wake.is_some() => {}
        }
    }

    /// Brings snapshot and queue up to date with the mirrors.
    fn catch_up(&mut self) {
        let now = Instant::now();
        let changed = self.pending_changes.take();
        let mut room = changed.volumes;
        for name in &changed.namespaces {
            room |= self.cache.update_namespace(name, self.cluster.namespaces.get(&Key::new("", name)).as_deref());
        }
        let mut changed_nodes: Vec<&str> = Vec::new();
        let nodes = self.nodes_to_take(changed.nodes, now);
        for name in &nodes {
            match self.cluster.nodes.get(&Key::new("", name)) {
                Some(node) => changed_nodes.extend(self.cache.update_node(&node).then_some(name.as_str())),
                None => {
                    self.cache.snapshot.remove_node(name);
                    // Spread constraints may hold with one domain less.
                    room = true;
                }
            }
        }
        let mut company = false;
        for key in &changed.pods {
            let pod = self.cluster.pods.get(key);
            let change = self.cache.update_pod(key, pod.as_deref());
            room |= change.freed;
            company |= change.placed;
            match (pod, change.state) {
                (Some(pod), PodState::Waiting) => {
                    self.queue.add(key, cache::priority(&self.cluster, &pod), now);
                    if change.respecified || (change.nominated && self.is_due(key, &pod)) {
                        self.queue.wake_one(key, now);
                    }
                }
                (_, PodState::Assumed) => {}
                _ => {
                    self.queue.remove(key);
                    self.failure_events.forget(key);
                }
            }
        }
        if room {
            return self.queue.wake(Change::Room, now);
        }
        if company {
            self.queue.wake(Change::Company, now);
        }
        self.wake_for(&changed_nodes, now);
    }

    /// The changed nodes that may be processed now. Changes of pods from before a node's change, above all nominations
    /// to it, may arrive later than the node, since there are more of them: as long as pods wait, the node waits for
    /// them.
    fn nodes_to_take(&mut self, changed: BTreeSet<String>, now: Instant) -> BTreeSet<String> {
        let told = self.cluster.pods.observed_version();
        let waits = !self.queue.is_empty();
        let mut known = std::mem::take(&mut self.early_nodes);
        for name in changed {
            known.entry(name).or_insert(now + PODS_TOLD_WITHIN);
        }
        let is_early = |name: &String, until: &mut Instant| {
            let node = self.cluster.nodes.get(&Key::new("", name));
            waits && now < *until && node.is_some_and(|node| version(&node.metadata) > told)
        };
        self.early_nodes = known.extract_if(.., is_early).collect();
        known.into_keys().collect()
    }

    /// Retries the pods that changed nodes may make schedulable: pods nominated to one of the nodes that now fit, and
    /// pods without a nomination that fit beside those. A failed attempt clears a nomination, so a nominated pod waits
    /// for its own node, also while that node is starting and changes all the time.
    fn wake_for(&mut self, nodes: &[&str], now: Instant) {
        let slots: Vec<_> = nodes.iter().filter_map(|name| self.cache.snapshot.slot(name)).collect();
        if slots.is_empty() {
            return;
        }
        let (cache, mut known) = (&self.cache, HashMap::<ShapeId, bool>::new());
        let mut not_helped = Vec::new();
        self.queue.wake_where(now, |key, asks| match cache.expected_at(key) {
            Some((uid, slot)) => slots.contains(&slot) && is_welcome(&cache.snapshot, uid, asks, slot),
            None => {
                let may_help = || slots.iter().any(|slot| fit::queueing_hint(&cache.snapshot, *slot, &asks.shape));
                let helped = *known.entry(asks.id).or_insert_with(may_help);
                if !helped {
                    not_helped.push(key.clone());
                }
                helped
            }
        });
        // When a taint is removed from a node that is too small, the pod's message should name the size.
        not_helped.iter().for_each(|key| self.queue.look_later(key, now));
    }

    /// Retries pods without a nomination whose reason may no longer hold.
    fn look_again(&mut self) {
        let now = Instant::now();
        for key in self.queue.take_looks(now) {
            if self.cache.expected_at(&key).is_none() {
                self.queue.wake_one(&key, now);
            }
        }
    }

    /// Whether a pod is expected on a node that would take it now.
    fn is_due(&mut self, key: &Key, pod: &Pod) -> bool {
        let shape = self.cache.intern_waiting(&self.cluster, pod);
        let expected = self.cache.expected_at(key);
        expected.is_some_and(|(uid, slot)| is_welcome(&self.cache.snapshot, uid, &shape, slot))
    }

    fn schedule(&mut self, key: &Key) {
        let Some(pod) = self.cluster.pods.get(key) else {
            return self.queue.remove(key);
        };
        let uid: PodKey = pod.uid().unwrap_or_default().into();
        if node_name(&pod).is_some() || self.cache.is_assumed(&uid) {
            return;
        }
        let shape = self.cache.intern_waiting(&self.cluster, &pod);
        let volumes = storage::demands(&self.cluster, &pod, &shape.shape.claims);
        let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
        let generation = self.cache.snapshot.generation();
        if nominated.is_none()
            && volumes.is_idle()
            && let Some(known) = self.refusals.get(&shape.id).filter(|known| known.generation == generation)
        {
            let error = known.error.clone();
            return self.refuse(key, &pod, &error, Nominate::Keep, Some(shape));
        }
        // Volumes change without a node's doing.
        let asks = volumes.is_idle().then(|| shape.clone());
        let cycle = Cycle::prepare(&self.cache.snapshot, &uid, &shape, &volumes);
        match fit::decide(&cycle, &mut self.fit_cache, nominated) {
            Decision::Place(slot) => {
                let node = self.cache.snapshot.node(slot).name.clone();
                self.place(key, &pod, &uid, &shape.shape.claims, &node);
            }
            Decision::Refused { mut error, resolvable } => {
                if error.nodes == 0 {
                    // No filter failed, so any changed node may help.
                    return self.refuse(key, &pod, &error, Nominate::Nowhere, None);
                }
                if error.before_nodes.is_some() {
                    error.preemption = Some(Preemption::NotTried);
                    return self.refuse(key, &pod, &error, Nominate::Keep, asks);
                }
                let offset = self.cluster.names.below(resolvable.len());
                match preempt::find(&cycle, &resolvable, nominated, &budgets(&self.cluster), offset) {
                    Ok(candidate) => {
                        error.preemption = Some(Preemption::Found);
                        let node = self.cache.snapshot.node(candidate.slot).name.clone();
                        self.preempt(key, &pod, &uid, &node, &candidate.victims, &error);
                    }
                    Err(why) => {
                        let nominate =
                            if matches!(why, Preemption::Futile(..)) { Nominate::Nowhere } else { Nominate::Keep };
                        error.preemption = Some(why);
                        if nominated.is_none() && volumes.is_idle() {
                            self.refusals.insert(shape.id, Remembered { generation, error: error.clone() });
                            self.refusals.retain(|_, known| known.generation == generation);
                        }
                        self.refuse(key, &pod, &error, nominate, asks);
                    }
                }
            }
        }
    }

    /// Counts a pod as placed and binds it.
    fn place(&mut self, key: &Key, pod: &Arc<Pod>, uid: &PodKey, claims: &[String], node: &str) {
        self.failure_events.forget(key);
        let expected = self.cache.assume(uid, pod, node);
        let waiting = storage::waiting_claims(&self.cluster, pod, claims);
        let place = node.to_owned();
        let (actions, pod, node) = (Arc::clone(&self.actions), Arc::clone(pod), node.to_owned());
        let key = key.clone();
        self.bindings.spawn(async move {
            let outcome = actions.bind(&pod, &node, &waiting).await;
            Bound { key, uid: pod.uid().unwrap_or_default().into(), outcome }
        });
        let now = Instant::now();
        self.queue.wake(Change::Company, now);
        if let Some(other) = expected.filter(|other| *other != place) {
            self.wake_for(&[&other], now);
        }
    }

    /// Gives up the place of a pod that could not be bound.
    fn take_bound(&mut self, bound: Option<Bound>) {
        let Some(bound) = bound else {
            return;
        };
        let Err(error) = bound.outcome else {
            return;
        };
        tracing::debug!(pod = %bound.key, %error, "binding failed");
        let is_bound = self.cluster.pods.get(&bound.key).is_some_and(|pod| node_name(&pod).is_some());
        if !is_bound {
            self.cache.forget(&bound.uid);
            let now = Instant::now();
            self.queue.retry(&bound.key, now);
            self.queue.wake(Change::Room, now);
        }
    }

    /// Parks a pod and says why. `nominate` says what becomes of its nomination, `asks` what would help it.
    fn refuse(&mut self, key: &Key, pod: &Arc<Pod>, error: &FitError, nominate: Nominate, asks: Option<Interned>) {
        if nominate == Nominate::Nowhere
            && let Some(node) = self.cache.withdraw(pod)
        {
            // Room that was kept for it is everybody's.
            self.wake_for(&[&node], Instant::now());
        }
        // If it was refused for reasons beyond single nodes, any change may help.
        let asks = asks.filter(|_| error.is_local());
        let lacks_only_room = error.lacks_only_room();
        self.queue.park(key, Refused { is_gated_by_other_pods: is_gated_by_other_pods(error), lacks_only_room, asks });
        let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
        let changes = match &nominate {
            Nominate::Keep => false,
            Nominate::Nowhere => nominated.is_some(),
            Nominate::To(node) => nominated != Some(node),
        };
        let (message, now) = (error.to_string(), Instant::now());
        let uid: PodKey = pod.uid().unwrap_or_default().into();
        let known = pod_condition(pod, "PodScheduled").and_then(|condition| condition.message.as_deref());
        if changes {
            self.failure_events.note(key, &uid, now);
        }
        // Pods that wait for other pods are reported each time: with reports held back for them as well, pods of a
        // spread came up with eleven nodes where six are enough (`zones.rs` of the tests); the reason is not known.
        if changes || !error.is_local() || self.failure_events.refused(key, &uid, &message, known, now) {
            self.report_unschedulable(Arc::clone(pod), message, nominate);
        }
    }

    fn report_unschedulable(&self, pod: Arc<Pod>, message: String, nominate: Nominate) {
        let actions = Arc::clone(&self.actions);
        self.tasks.spawn(async move { actions.record_failure(&pod, &message, &nominate).await });
    }

    /// Tells what could wait until now.
    fn tell_late(&mut self) {
        for (key, message) in self.failure_events.take_due(Instant::now()) {
            if let Some(pod) = self.cluster.pods.get(&key).filter(|pod| node_name(pod).is_none()) {
                self.report_unschedulable(pod, message, Nominate::Keep);
            }
        }
    }

    /// Clears a node for a pod.
    fn preempt(&mut self, key: &Key, pod: &Arc<Pod>, uid: &PodKey, node: &str, victims: &[PodKey], error: &FitError) {
        self.cache.nominate(uid, pod, node);
        let lesser = self.cache.lesser_nominations(pod, node);
        self.refuse(key, pod, error, Nominate::To(node.to_owned()), None);
        let victims: Vec<Key> = victims.iter().filter_map(|victim| self.cache.key_of(victim)).collect();
        let (actions, pod, node) = (Arc::clone(&self.actions), Arc::clone(pod), node.to_owned());
        for key in &lesser {
            if let Some(lesser) = self.cluster.pods.get(key) {
                let _ = self.cache.withdraw(&lesser);
            }
        }
        self.tasks.spawn(async move { actions.evict(&pod, &node, &victims, &lesser).await });
    }
}

/// Whether a node would take a pod that is expected there, as far as that does not depend on volumes.
fn is_welcome(snapshot: &fit::Snapshot, uid: &PodKey, shape: &Interned, slot: Slot) -> bool {
    Cycle::prepare(snapshot, uid, shape, &VolumeDemands::default()).check(slot).is_ok()
}

/// Pods that were refused because of other pods may fit when another one comes.
fn is_gated_by_other_pods(error: &FitError) -> bool {
    error.reasons.keys().any(|reason| matches!(reason, Reason::PodAffinity | Reason::Spread))
}

fn budgets(cluster: &Cluster) -> Vec<Budget> {
    cluster
        .budgets
        .list()
        .iter()
        .map(|budget| {
            let status = budget.status.clone().unwrap_or_default();
            Budget {
                namespace: budget.namespace().unwrap_or_default(),
                selector: fit::labels::Selector::compile(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
                allowed: status.disruptions_allowed.unwrap_or_default(),
                disrupted: status.disrupted_pods.into_iter().flatten().map(|(name, _)| name).collect(),
            }
        })
        .collect()
}

async fn sleep_until(wake: Option<Instant>) {
    if let Some(wake) = wake {
        tokio::time::sleep_until(wake).await;
    }
}

/// A pod as the snapshot holds it.
fn entry(pod: &Pod, node: &str, shape: fit::snapshot::Interned) -> PodEntry {
    let preempted = crate::meta::pod_condition(pod, "DisruptionTarget")
        .is_some_and(|condition| condition.reason.as_deref() == Some("PreemptionByScheduler"));
    PodEntry {
        name: pod.name_any(),
        shape,
        node: node.to_owned(),
        leaving: crate::meta::is_leaving(pod),
        preempted,
        started: pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use millpond_apiserver::auth::Identity;
    use millpond_apiserver::clock::Clock;
    use millpond_apiserver::store::Store;
    use millpond_apiserver::{Server, ServerOptions};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_node_waits_for_older_changes_of_pods_while_pods_wait() {
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().expect("a time"));
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).expect("an API");
        millpond_apiserver::bootstrap(&server, 443).await.expect("the first objects");
        let client = kube::Client::new(server.service_for(Identity::administrator("test")), "default");
        let (cluster, _events) = Cluster::new(client, crate::Options::default());
        let mut scheduler = Scheduler::new(Arc::clone(&cluster));
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a node");
        // The answer to the write updates the mirror of nodes; the mirror of pods has observed nothing.
        cluster.nodes.create(&node).await.expect("written");
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let now = Instant::now();
        assert_eq!(scheduler.nodes_to_take(named(&["a"]), now), named(&["a"]), "no pod waits");

        scheduler.queue.add(&Key::new("default", "web"), 0, now);
        assert_eq!(scheduler.nodes_to_take(named(&["a", "gone"]), now), named(&["gone"]));
        let later = now + PODS_TOLD_WITHIN / 2;
        assert_eq!(scheduler.nodes_to_take(named(&["a"]), later), named(&[]), "it changed again");
        let end = now + PODS_TOLD_WITHIN;
        assert_eq!(scheduler.nodes_to_take(named(&[]), end), named(&["a"]), "and does not begin to wait anew");

        let stop = CancellationToken::new();
        let watch = tokio::spawn(Arc::clone(&cluster.pods).run(false, stop.clone()));
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}),
        )
        .expect("a pod");
        let pod = cluster.pods.create(&pod).await.expect("written");
        cluster.pods.wait_until_observed(&*pod).await;
        assert_eq!(scheduler.nodes_to_take(named(&["a"]), now), named(&["a"]), "newer news of pods are there");
        stop.cancel();
        watch.await.expect("ended");
    }
}
