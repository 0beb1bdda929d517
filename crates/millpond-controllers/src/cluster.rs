//! What all controllers share: a mirror of each kind, the planner's index over them, clock, names and events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    ConfigMap, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition, PodStatus,
    PodTemplate,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use kube::Client;
use millpond_api::catalog::{Catalog, config_map};
use millpond_api::condition::find;
use millpond_api::karpenter::{NODE_CLASS_NOT_MANAGED, conditions};
use millpond_api::meta::Invalid;
use millpond_api::selector::LabelValues;
use millpond_api::time::Time;
use millpond_runtime::clock::Clock;
use millpond_runtime::events::{EventRecorder, Sender};
use millpond_runtime::history::History;
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::{Key, controller_uid, has_ended, node_name};
use millpond_runtime::mirror::{Mirror, Writer};
use millpond_runtime::name_generator::NameGenerator;
use millpond_runtime::supervise::Supervisor;
use millpond_state::groups::NodeGroups;
use millpond_state::objects::{ClassKind, Kind as StateKind, Object};
use millpond_state::{Group, Overlays, State, Taken, Unresolved};
use parking_lot::{Mutex, MutexGuard, RwLock};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::capi::autoscale::{GroupOptions, Machines};
use crate::context::api_claim;
use crate::kinds::{
    CapacityBuffer, ClusterLimits, NodeClaim, NodeClass, NodeOverlay, NodePool, ScalingAdvice, ScalingConstraint,
    ScalingFeedback,
};
use crate::leader::Leads;
use crate::nominations::{Nominations, nominated_node};

/// The name under which controllers own fields.
pub const FIELD_MANAGER: &str = "millpond";

/// Settings of the controllers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides names and jitter; the same seed gives the same run under virtual time.
    pub seed: u64,
    /// Under virtual time: what the clock shows at the start; it then follows `tokio::time`.
    pub virtual_start: Option<Timestamp>,
    /// Whether events are written.
    pub events: bool,
    /// Limit on concurrent writes.
    pub writes_in_flight: usize,
    /// Whether watches begin with a streamed list (`sendInitialEvents`).
    pub streaming_lists: bool,
    /// Options of snapshots.
    pub snapshot: millpond_state::Options,
    /// Give advice only, for NodePools too: nothing else is written.
    pub advise: bool,
    /// Settings of node groups of Cluster API.
    pub node_groups: GroupOptions,
    /// State of leader election. Providers have begun the term of a newly elected leader before any watch starts
    /// ([`millpond_providers::Provider::begin_term`]).
    pub leads: Leads,
    /// Runtime handle and client for latency-critical work (pod watch, planning, launches). Defaults to the main
    /// runtime.
    pub urgent: Option<Urgent>,
    /// Where decisions are written down.
    pub history: History,
}

/// A runtime handle, and a client whose own tasks run on it.
#[derive(Clone)]
pub struct Urgent {
    /// The threads.
    pub threads: Handle,
    /// The client.
    pub client: Client,
}

impl std::fmt::Debug for Urgent {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Urgent").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: Timestamp::now().as_nanosecond() as u64,
            virtual_start: None,
            events: true,
            writes_in_flight: 64,
            streaming_lists: false,
            snapshot: millpond_state::Options::default(),
            advise: false,
            node_groups: GroupOptions::default(),
            urgent: None,
            leads: Leads::default(),
            history: History::default(),
        }
    }
}

/// What all controllers share.
pub struct Cluster {
    /// Starts loops again that panicked.
    pub supervisor: Supervisor,
    /// For requests outside the mirrors: evictions, consistent lists.
    pub client: Client,
    /// The client of [`Options::urgent`].
    pub urgent_client: Client,
    /// The settings.
    pub options: Options,
    /// The time.
    pub clock: Clock,
    /// Generates names and random numbers.
    pub names: NameGenerator,
    /// Events.
    pub recorder: EventRecorder,
    /// Pods, indexed by their node.
    pub pods: Arc<Mirror<Pod>>,
    /// Nodes, indexed by provider id.
    pub nodes: Arc<Mirror<Node>>,
    /// Pools.
    pub pools: Arc<Mirror<NodePool>>,
    /// NodeClaims, indexed by their pool.
    pub claims: Arc<Mirror<NodeClaim>>,
    /// Node classes.
    pub classes: Arc<Mirror<NodeClass>>,
    /// Cluster-wide limits.
    pub limits: Arc<Mirror<ClusterLimits>>,
    /// PodDisruptionBudgets.
    pub budgets: Arc<Mirror<PodDisruptionBudget>>,
    /// VolumeAttachments, indexed by node.
    pub attachments: Arc<Mirror<VolumeAttachment>>,
    /// Volumes.
    pub volumes: Arc<Mirror<PersistentVolume>>,
    /// Claims on volumes.
    pub volume_claims: Arc<Mirror<PersistentVolumeClaim>>,
    /// ReplicaSets, for the number of pods that are still missing.
    pub replica_sets: Arc<Mirror<ReplicaSet>>,
    /// StatefulSets, for the same.
    pub stateful_sets: Arc<Mirror<StatefulSet>>,
    /// Deployments, for the same.
    pub deployments: Arc<Mirror<Deployment>>,
    /// Capacity buffers.
    pub buffers: Arc<Mirror<CapacityBuffer>>,
    /// Pod templates of buffers.
    pub templates: Arc<Mirror<PodTemplate>>,
    /// Default requests of containers.
    pub limit_ranges: Arc<Mirror<LimitRange>>,
    /// NodeOverlays.
    pub overlays: Arc<Mirror<NodeOverlay>>,
    /// ScalingConstraints.
    pub constraints: Arc<Mirror<ScalingConstraint>>,
    /// ScalingAdvice.
    pub advices: Arc<Mirror<ScalingAdvice>>,
    /// Feedback of the consumers of advice.
    pub feedbacks: Arc<Mirror<ScalingFeedback>>,
    /// ConfigMaps with catalogues of instance types.
    pub catalogs: Arc<Mirror<ConfigMap>>,
    /// The nodes that pods are nominated to.
    pub nominations: Arc<Nominations>,
    /// Machines of Cluster API and their groups.
    pub machines: Arc<Machines>,
    daemon_sets: Arc<Mirror<DaemonSet>>,
    /// Namespaces.
    pub namespaces: Arc<Mirror<Namespace>>,
    storage_classes: Arc<Mirror<StorageClass>>,
    csi_nodes: Arc<Mirror<CSINode>>,
    priorities: Arc<Mirror<PriorityClass>>,
    state: Mutex<Index>,
    /// Changed nodes as JSON text, `None` for deleted ones. The next reader of the index applies them first.
    /// Low-priority watch threads only queue them here, so that they never hold the index lock that a plan waits for.
    queued_nodes: Mutex<HashMap<Key, Option<Box<RawValue>>>>,
    /// Called with the name of a NodeClass whose provider reports another catalogue.
    provided: RwLock<Vec<Box<dyn Fn(&str) + Send + Sync>>>,
    pod_order: Mutex<()>,
    changes: watch::Sender<u64>,
}

/// Whether a pod is pending: it has no node and no nominated node.
fn waits(pod: &Pod) -> bool {
    node_name(pod).is_none() && nominated_node(pod).is_none()
}

/// Whether planning can tell two states of a pod apart. What the scheduler says of its attempts changes most often, and
/// is none of it.
fn are_planned_alike(one: &Pod, other: &Pod) -> bool {
    let (meta, other_meta) = (&one.metadata, &other.metadata);
    meta.uid == other_meta.uid
        && meta.deletion_timestamp == other_meta.deletion_timestamp
        && are_alike(one.status.as_ref(), other.status.as_ref())
        && meta.labels == other_meta.labels
        && meta.annotations == other_meta.annotations
        && meta.owner_references == other_meta.owner_references
        && one.spec == other.spec
}

/// The same for the status of a pod, as far as the planner's index reads it.
fn are_alike(one: Option<&PodStatus>, other: Option<&PodStatus>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    one.phase == other.phase
        && one.nominated_node_name == other.nominated_node_name
        && one.start_time == other.start_time
        && told(one).eq(told(other))
        && one.container_statuses == other.container_statuses
        && one.init_container_statuses == other.init_container_statuses
        && one.resources == other.resources
        && one.allocated_resources == other.allocated_resources
}

fn told(status: &PodStatus) -> impl Iterator<Item = &PodCondition> {
    status.conditions.iter().flatten().filter(|condition| condition.type_ != "PodScheduled")
}

/// The planner's index, and objects that it refused.
struct Index {
    state: State,
    refused: BTreeMap<(StateKind, Key), Invalid>,
}

impl Index {
    /// Applies an object; returns whether it was accepted.
    fn take<E: std::fmt::Display>(&mut self, kind: StateKind, key: Key, read: Result<Object<'_>, E>) -> bool {
        let (taken, object) = match read {
            Ok(object) => (self.state.apply(&object).map(drop), Some(object)),
            Err(error) => (Err(Invalid::new("", error.to_string())), None),
        };
        match taken {
            Ok(()) => {
                self.refused.remove(&(kind, key));
                true
            }
            Err(invalid) => {
                // The previous version of the object must not be planned with either.
                self.state.delete(kind, &key.namespace, &key.name);
                if let Some(Object::NodePool(pool)) = &object {
                    self.state.refuse_pool(pool, format!("it is not valid: {invalid}"));
                }
                self.refused.insert((kind, key), invalid);
                false
            }
        }
    }

    fn forget(&mut self, kind: StateKind, key: Key) {
        self.state.delete(kind, &key.namespace, &key.name);
        self.refused.remove(&(kind, key));
    }
}

impl Cluster {
    /// The shared parts, and the task that sends events. Nothing is watched yet.
    pub fn new(client: Client, options: Options) -> (Arc<Self>, Sender) {
        let writer = Writer::new(client.clone(), FIELD_MANAGER, options.writes_in_flight);
        // Nominations are many; a writer of their own keeps claims from waiting behind them.
        let of_pods = Writer::new(client.clone(), FIELD_MANAGER, options.writes_in_flight);
        // A node that was decided on comes before what is written of those that are on their way: a pod waits for it, and
        // so does the next round.
        let urgent_client = options.urgent.as_ref().map_or(&client, |urgent| &urgent.client).clone();
        let of_intents = Writer::new(urgent_client.clone(), FIELD_MANAGER, options.writes_in_flight);
        let clock = options.virtual_start.map_or(Clock::Machine, Clock::virtual_from);
        let (recorder, sender) = EventRecorder::new(options.events.then(|| client.clone()), clock.clone());
        let of_node = |pod: &Pod| node_name(pod).map(str::to_owned);
        let of_machine = |node: &Node| node.spec.as_ref()?.provider_id.clone();
        let of_pool = |claim: &NodeClaim| pool_name(claim).map(str::to_owned);
        let attached = |attachment: &VolumeAttachment| Some(attachment.spec.node_name.clone());
        let machines = Arc::new(Machines::new(&client, &options, &recorder, &clock));
        let cluster = Arc::new(Self {
            names: NameGenerator::new(options.seed),
            supervisor: Supervisor::default(),
            clock,
            recorder,
            pods: urgent(&options, Mirror::new(of_pods, Some(of_node)).urgent_through(of_intents.clone())),
            nodes: Arc::new(Mirror::new(writer.clone(), Some(of_machine))),
            pools: plain(&writer),
            claims: urgent(&options, Mirror::new(writer.clone(), Some(of_pool)).urgent_through(of_intents)),
            classes: plain(&writer),
            limits: plain(&writer),
            budgets: plain(&writer),
            attachments: Arc::new(Mirror::new(writer.clone(), Some(attached))),
            volumes: plain(&writer),
            volume_claims: plain(&writer),
            replica_sets: plain(&writer),
            stateful_sets: plain(&writer),
            deployments: plain(&writer),
            buffers: plain(&writer),
            templates: plain(&writer),
            limit_ranges: plain(&writer),
            overlays: plain(&writer),
            constraints: plain(&writer),
            advices: plain(&writer),
            feedbacks: plain(&writer),
            catalogs: Arc::new(Mirror::new(writer.clone(), None).labelled(config_map::LABEL)),
            nominations: Arc::default(),
            machines,
            daemon_sets: plain(&writer),
            namespaces: plain(&writer),
            storage_classes: plain(&writer),
            csi_nodes: plain(&writer),
            priorities: plain(&writer),
            state: Mutex::new(Index { state: State::new(), refused: BTreeMap::new() }),
            queued_nodes: Mutex::default(),
            provided: RwLock::default(),
            pod_order: Mutex::new(()),
            changes: watch::Sender::new(0),
            client,
            urgent_client,
            options,
        });
        cluster.feed_state();
        (cluster, sender)
    }

    /// Every change of a mirror goes into the planner's index.
    fn feed_state(self: &Arc<Self>) {
        self.feed_pods();
        self.feed_nodes();
        self.feed_pools();
        self.feed_claims();
        self.feed_nominations();
        self.feed(&self.classes, StateKind::NodeClass(ClassKind::Millpond), |_| true);
        self.feed(&self.budgets, StateKind::PodDisruptionBudget, |_| true);
        self.feed(&self.volumes, StateKind::PersistentVolume, |_| true);
        self.feed(&self.volume_claims, StateKind::PersistentVolumeClaim, |_| true);
        self.feed(&self.replica_sets, StateKind::ReplicaSet, |_| true);
        self.feed(&self.stateful_sets, StateKind::StatefulSet, |_| true);
        self.feed(&self.deployments, StateKind::Deployment, |_| true);
        self.feed(&self.buffers, StateKind::CapacityBuffer, |_| true);
        self.feed(&self.templates, StateKind::PodTemplate, |_| true);
        self.feed(&self.limit_ranges, StateKind::LimitRange, |_| true);
        self.feed(&self.overlays, StateKind::NodeOverlay, |_| true);
        self.feed(&self.constraints, StateKind::ScalingConstraint, |_| true);
        self.feed(&self.limits, StateKind::ClusterLimits, |_| true);
        self.feed(&self.catalogs, StateKind::ConfigMap, |_| true);
        self.feed(&self.daemon_sets, StateKind::DaemonSet, |_| true);
        self.feed(&self.namespaces, StateKind::Namespace, |_| true);
        self.feed(&self.storage_classes, StateKind::StorageClass, |_| true);
        self.feed(&self.csi_nodes, StateKind::CsiNode, |_| true);
        self.feed(&self.priorities, StateKind::PriorityClass, |_| true);
        self.machines.feed(self);
    }

    /// Feeds pods to the index. A pod that a claim was made for is planned as if it were nominated to the claim's node.
    fn feed_pods(self: &Arc<Self>) {
        let cluster = Arc::downgrade(self);
        self.pods.on_change(move |before, after| {
            let (Some(cluster), Some(pod)) = (cluster.upgrade(), after.or(before)) else { return };
            let key = Key::of(&**pod);
            if before.is_some_and(|pod| node_name(pod).is_none())
                && let Some(node) = after.and_then(|pod| node_name(pod))
            {
                cluster.pod_bound(&key, pod, node);
            }
            if after.is_none_or(|pod| node_name(pod).is_some() || has_ended(pod)) {
                cluster.nominations.remove(&key);
            }
            if before.zip(after).is_none_or(|(before, after)| !are_planned_alike(before, after)) {
                cluster.apply_pod(&key);
            }
        });
    }

    /// Pools of other providers are left to their controllers; of those that have none, pods are told.
    fn feed_pools(self: &Arc<Self>) {
        self.feed(&self.pools, StateKind::NodePool, is_ours);
        let cluster = Arc::downgrade(self);
        self.pools.on_change(move |_, after| {
            let unmanaged = after.filter(|pool| !is_ours(pool) && is_unmanaged(pool));
            let (Some(cluster), Some(pool)) = (cluster.upgrade(), unmanaged) else { return };
            let pool = crate::pools::api_pool(pool);
            let why = pool.unmanaged_class();
            cluster.state.lock().state.refuse_pool(&pool, why);
            cluster.changes.send_modify(|count| *count += 1);
        });
    }

    /// Claims change often, and are read in the planner's own words already: they need not become text first.
    fn feed_claims(self: &Arc<Self>) {
        let cluster = Arc::downgrade(self);
        self.claims.on_change(move |before, after| {
            let (Some(cluster), Some(claim)) = (cluster.upgrade(), after.or(before)) else { return };
            let key = Key::of(&**claim);
            if after.is_none() {
                return cluster.forget(StateKind::NodeClaim, &key);
            }
            let mut index = cluster.state.lock();
            index.refused.remove(&(StateKind::NodeClaim, key));
            index.state.apply_claim(api_claim(claim));
            drop(index);
            cluster.changes.send_modify(|count| *count += 1);
        });
    }

    /// Queues changed nodes until the index is read.
    fn feed_nodes(self: &Arc<Self>) {
        let cluster = Arc::downgrade(self);
        self.nodes.on_change(move |before, after| {
            let (Some(cluster), Some(node)) = (cluster.upgrade(), after.or(before)) else { return };
            // A node can always be written; and if not, it is not planned with.
            let text = after.and_then(|node| node.write().ok());
            cluster.queued_nodes.lock().insert(Key::of(&**node), text);
            cluster.changes.send_modify(|count| *count += 1);
        });
    }

    /// Handles a bound pod. If it was bound elsewhere than it was nominated, the pods nominated for that node may have
    /// lost their place.
    fn pod_bound(&self, key: &Key, pod: &Pod, node: &str) {
        if self.nominations.is_for(key, node) {
            return;
        }
        // The scheduler cannot tell pods of one controller apart, and a pod with a nominated node keeps it.
        let kind = controller_uid(pod);
        let is_like = |other: &Key| {
            let other = self.pods.get(other).filter(|other| nominated_node(other).is_none());
            kind.is_some() && other.is_some_and(|other| controller_uid(&*other) == kind)
        };
        match self.nominations.swap(key, node, is_like) {
            Some(other) => self.nomination_changed(&other),
            None => self.nominations.pods_on(node).iter().for_each(|pod| self.nominations.notify(pod)),
        }
    }

    /// Feeds the nominations of claims to the index.
    fn feed_nominations(self: &Arc<Self>) {
        let cluster = Arc::downgrade(self);
        self.claims.on_change(move |before, after| {
            let Some(cluster) = cluster.upgrade() else { return };
            let changed = cluster.nominations.claim_changed(before.map(|claim| &**claim), after.map(|claim| &**claim));
            changed.iter().for_each(|pod| cluster.nomination_changed(pod));
        });
    }

    fn nomination_changed(&self, key: &Key) {
        self.apply_nomination(key);
        self.nominations.notify(key);
    }

    /// Updates the index with a pod and its nomination. Pods and claims change at the same time: the later of the two
    /// updates has to see what the earlier one saw.
    fn apply_pod(&self, key: &Key) {
        loop {
            // Read before it is this one's turn: others do not wait for that.
            let known = self.pods.get(key);
            let Ok(text) = known.as_ref().map(|pod| pod.write()).transpose() else { return };
            let read = text.as_ref().map(|text| Object::from_json(StateKind::Pod, text.get()));
            let _turn = self.pod_order.lock();
            let pod = self.pods.get(key);
            if pod.as_ref().map(Arc::as_ptr) != known.as_ref().map(Arc::as_ptr) {
                continue;
            }
            let (Some(pod), Some(read)) = (pod, read) else { return self.forget(StateKind::Pod, key) };
            let promised = waits(&pod).then(|| self.nominations.of(&pod));
            return self.apply_and(StateKind::Pod, key.clone(), read, |state| {
                if let Some(promised) = promised {
                    state.nominate(&key.namespace, &key.name, promised.as_deref());
                }
            });
        }
    }

    /// Updates the index with the nomination of a pod.
    fn apply_nomination(&self, key: &Key) {
        let _turn = self.pod_order.lock();
        let Some(pod) = self.pods.get(key).filter(|pod| waits(pod)) else { return };
        let promised = self.nominations.of(&pod);
        self.state.lock().state.nominate(&key.namespace, &key.name, promised.as_deref());
        self.changes.send_modify(|count| *count += 1);
    }

    /// Withdraws a nomination: the pod is planned for anew.
    pub(crate) fn withdraw_nomination(&self, pod: &Key) {
        self.nominations.remove(pod);
        self.nomination_changed(pod);
    }

    pub(crate) fn feed<K: Kind>(self: &Arc<Self>, mirror: &Mirror<K>, kind: StateKind, takes: fn(&K) -> bool) {
        let cluster = Arc::downgrade(self);
        mirror.on_change(move |before, after| {
            let Some(cluster) = cluster.upgrade() else { return };
            let gone = |object: &Arc<K>| cluster.forget(kind, &Key::of(&**object));
            match (before, after) {
                (_, Some(object)) if takes(object) => cluster.take(kind, &**object),
                (Some(object), None) | (_, Some(object)) => gone(object),
                (None, None) => {}
            }
        });
    }

    fn take<K: Kind>(&self, kind: StateKind, object: &K) {
        let Ok(text) = object.write() else { return };
        self.apply_text(kind, Key::of(object), text.get());
    }

    /// Feeds an object of a kind without a mirror to the planner's index.
    pub(crate) fn apply_raw(&self, kind: StateKind, key: &Key, object: &impl serde::Serialize) {
        let Ok(text) = serde_json::to_string(object) else { return };
        self.apply_text(kind, key.clone(), &text);
    }

    fn apply_text(&self, kind: StateKind, key: Key, text: &str) {
        self.apply_and(kind, key, Object::from_json(kind, text), |_| {});
    }

    /// Applies an object, and runs `rest` before the index is unlocked.
    fn apply_and<E: std::fmt::Display>(
        &self,
        kind: StateKind,
        key: Key,
        read: Result<Object<'_>, E>,
        rest: impl FnOnce(&mut State),
    ) {
        let mut index = self.state.lock();
        if index.take(kind, key, read) {
            rest(&mut index.state);
        }
        drop(index);
        self.changes.send_modify(|count| *count += 1);
    }

    fn forget(&self, kind: StateKind, key: &Key) {
        self.state.lock().forget(kind, key.clone());
        self.changes.send_modify(|count| *count += 1);
    }

    /// The index, with all queued changes of nodes applied.
    fn index(&self) -> MutexGuard<'_, Index> {
        let mut index = self.state.lock();
        let late = std::mem::take(&mut *self.queued_nodes.lock());
        for (key, text) in late {
            match text {
                Some(text) => drop(index.take(StateKind::Node, key, Object::from_json(StateKind::Node, text.get()))),
                None => index.forget(StateKind::Node, key),
            }
        }
        index
    }

    /// Takes a snapshot of all known objects.
    pub fn snapshot(&self, options: &millpond_state::Options) -> Taken {
        let mut index = self.index();
        index.state.prepare(options);
        index.state.snapshot(self.now().0, options)
    }

    /// Gives access to all node groups as they are now.
    pub(crate) fn with_node_groups<T>(&self, options: &NodeGroups, look: impl FnOnce(&[Group<'_>], &State) -> T) -> T {
        let index = self.index();
        look(&index.state.node_groups(options), &index.state)
    }

    /// Whether a node has enough resources for a pod, beside the node's pods and the nominated pods that come first;
    /// `true` if that is not known. The scheduler reserves capacity for all nominated pods: of two that would each fit,
    /// but not both, it binds neither.
    pub(crate) fn has_enough(&self, node: &str, pod: &Pod) -> bool {
        let key = Key::of(pod);
        let there = self.pods.indexed(node).into_iter().filter(|pod| !has_ended(pod)).map(|pod| Key::of(&*pod));
        let before = self.nominations.pods_on(node).into_iter().filter(|other| *other < key);
        let others: BTreeSet<Key> = there.chain(before).collect();
        let others = others.iter().map(|key| (key.namespace.as_str(), key.name.as_str()));
        self.index().state.has_enough(node, (&key.namespace, &key.name), others).unwrap_or(true)
    }

    /// [`Self::has_enough`] for low-priority threads: it runs on the urgent threads, since readers of the index wait
    /// for each other.
    pub(crate) async fn has_enough_background(self: &Arc<Self>, node: &str, pod: &Arc<Pod>) -> bool {
        let Some(urgent) = &self.options.urgent else { return self.has_enough(node, pod) };
        let (cluster, node, pod) = (Arc::clone(self), node.to_owned(), Arc::clone(pod));
        // The spawn fails only when the urgent runtime has shut down; then the answer does not matter.
        let asked = millpond_runtime::panics::handled(async move { cluster.has_enough(&node, &pod) });
        urgent.threads.spawn(asked).await.unwrap_or(true)
    }

    /// How many pods a buffer reserves capacity for; `None` if it no longer exists or is not Millpond's.
    pub fn buffer(&self, key: &Key) -> Option<Result<u32, Unresolved>> {
        self.index().state.buffer(&key.namespace, &key.name)
    }

    /// Overlays with the verdict on each: applied or rejected.
    pub fn judged_overlays(&self) -> Arc<Overlays> {
        self.index().state.overlays(&self.options.snapshot)
    }

    /// A catalogue with overlays on top, as nodes with these labels are priced; the catalogue itself if there are none.
    pub fn overlaid(&self, catalog: &Arc<Catalog>, labels: &LabelValues, class: &NodeClass) -> Arc<Catalog> {
        let only = Some(class.spec.overlays.as_slice()).filter(|names| !names.is_empty());
        let index = self.index();
        let overlaid = index.state.overlaid(catalog, labels, only, &self.options.snapshot);
        overlaid.unwrap_or_else(|| Arc::clone(catalog))
    }

    /// Calls `listener` with the name of a class whenever its provider reports another catalogue.
    pub(crate) fn on_provided(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.provided.write().push(Box::new(listener));
    }

    /// The provider of a class reports its catalogue, or that it has none.
    pub(crate) fn provide(&self, class: &str, catalog: Option<Arc<Catalog>>) {
        if self.state.lock().state.provide(class, catalog) {
            self.changes.send_modify(|count| *count += 1);
            self.provided.read().iter().for_each(|listener| listener(class));
        }
    }

    /// Own catalogues of instance types that can be read.
    pub fn own_catalogs(&self) -> Vec<Arc<Catalog>> {
        self.index().state.catalogs().cloned().collect()
    }

    /// Why the planner's index rejects an object; `None` if it does not.
    pub fn refused(&self, kind: StateKind, key: &Key) -> Option<Invalid> {
        self.index().refused.get(&(kind, key.clone())).cloned()
    }

    /// Counts changes of anything that planning looks at.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The time in whole seconds.
    pub fn now(&self) -> Time {
        Time(self.clock.now().as_second())
    }

    /// How long ago a moment was; zero if it is yet to come.
    pub fn since(&self, moment: Time) -> Duration {
        let elapsed = self.clock.now().as_millisecond() - moment.0 * 1000;
        Duration::from_millis(u64::try_from(elapsed).unwrap_or(0))
    }

    /// Watches everything until the token is cancelled.
    pub fn watch(self: &Arc<Self>, tracker: &TaskTracker, stop: &CancellationToken) {
        let streaming = self.options.streaming_lists;
        macro_rules! run {
            ($($mirror:ident),+) => {$(
                let (mirror, supervisor, token) = (Arc::clone(&self.$mirror), self.supervisor.clone(), stop.clone());
                tracker.spawn(async move {
                    let start = || Arc::clone(&mirror).run(streaming, token.clone());
                    supervisor.run(concat!("watch of ", stringify!($mirror)), &token, start).await;
                });
            )+};
        }
        run!(
            pods,
            nodes,
            pools,
            claims,
            classes,
            limits,
            budgets,
            attachments,
            volumes,
            volume_claims,
            replica_sets,
            stateful_sets,
            deployments,
            buffers,
            templates,
            limit_ranges,
            overlays,
            constraints,
            advices,
            feedbacks,
            catalogs,
            daemon_sets,
            namespaces,
            storage_classes,
            csi_nodes,
            priorities
        );
        self.machines.watch(self, tracker, stop);
    }

    /// A name for a claim of a pool that no claim and no node has. Of a thousand names, two are alike every thirty times.
    pub(crate) fn claim_name(&self, pool: &str) -> String {
        let prefix = format!("{pool}-");
        loop {
            let name = self.names.generate(&prefix);
            let key = Key::new("", &name);
            if self.claims.get(&key).is_none() && self.nodes.get(&key).is_none() {
                return name;
            }
        }
    }

    /// The runtime handle for latency-critical work.
    pub(crate) fn urgent_threads(&self) -> Handle {
        self.options.urgent.as_ref().map_or_else(Handle::current, |urgent| urgent.threads.clone())
    }

    /// Whether every kind was listed at least once.
    pub fn is_ready(&self) -> bool {
        self.wait_until_ready().now_or_never().is_some()
    }

    /// Waits until every kind was listed at least once.
    pub async fn wait_until_ready(&self) {
        macro_rules! ready {
            ($($mirror:ident),+) => { vec![$(Box::pin(self.$mirror.wait_until_ready()) as futures::future::BoxFuture<'_, ()>),+] };
        }
        join_all(ready!(
            pods,
            nodes,
            pools,
            claims,
            classes,
            limits,
            budgets,
            attachments,
            volumes,
            volume_claims,
            replica_sets,
            stateful_sets,
            deployments,
            buffers,
            templates,
            limit_ranges,
            overlays,
            constraints,
            advices,
            feedbacks,
            catalogs,
            daemon_sets,
            namespaces,
            storage_classes,
            csi_nodes,
            priorities
        ))
        .await;
        self.machines.wait_until_settled().await;
    }
}

/// Runs a mirror's watch on the runtime for latency-critical work.
fn urgent<K: Kind>(options: &Options, mirror: Mirror<K>) -> Arc<Mirror<K>> {
    Arc::new(match &options.urgent {
        Some(urgent) => mirror.handle_writes_on(urgent.threads.clone()),
        None => mirror,
    })
}

fn plain<K: Kind>(writer: &Writer) -> Arc<Mirror<K>> {
    Arc::new(Mirror::new(writer.clone(), None))
}

/// The pool that a claim belongs to.
pub fn pool_name(claim: &NodeClaim) -> Option<&str> {
    claim.metadata.labels.as_ref()?.get(millpond_api::labels::NODE_POOL).map(String::as_str)
}

/// Whether it was found that no controller makes nodes of a pool.
fn is_unmanaged(pool: &NodePool) -> bool {
    let class = find(&pool.status.conditions, conditions::NODE_CLASS_READY);
    class.is_some_and(|class| class.is_false() && class.reason == NODE_CLASS_NOT_MANAGED)
}

/// Whether the nodes of a pool are Millpond's to make.
pub fn is_ours(pool: &NodePool) -> bool {
    is_our_class(&pool.spec.template.spec.node_class_ref)
}

/// Whether a class reference names a NodeClass of Millpond.
pub fn is_our_class(class: &millpond_api::karpenter::NodeClassRef) -> bool {
    class.group == millpond_api::node_class::GROUP && class.kind == "NodeClass"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_what_planning_looks_at_tells_states_of_a_pod_apart() {
        let pod = |change: fn(&mut Value)| -> Pod {
            let mut pod = json!({
                "metadata": {"name": "web", "uid": "u", "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main"}]},
                "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]},
            });
            change(&mut pod);
            serde_json::from_value(pod).unwrap()
        };
        let known = pod(|_| {});
        let alike: [fn(&mut Value); 4] = [
            |_| {},
            |pod| pod["metadata"]["resourceVersion"] = json!("7"),
            |pod| pod["status"]["podIP"] = json!("10.0.0.1"),
            |pod| {
                let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
                conditions.insert(0, json!({"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}));
            },
        ];
        assert!(alike.into_iter().all(|change| are_planned_alike(&known, &pod(change))));
        let others: [fn(&mut Value); 8] = [
            |pod| pod["metadata"]["uid"] = json!("v"),
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            |pod| pod["metadata"]["labels"]["tier"] = json!("front"),
            |pod| pod["spec"]["nodeName"] = json!("a"),
            |pod| pod["status"]["nominatedNodeName"] = json!("a"),
            |pod| pod["status"]["phase"] = json!("Running"),
            |pod| pod["status"]["conditions"][0]["status"] = json!("True"),
            |pod| drop(pod.as_object_mut().unwrap().remove("status")),
        ];
        for (number, change) in others.into_iter().enumerate() {
            assert!(!are_planned_alike(&known, &pod(change)), "change {number}");
        }
    }
}
