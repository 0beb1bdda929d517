//! The scheduler's cache: the snapshot, kept up to date from objects, and the reason for which it holds each pod.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Namespace, Node as NodeObject, Pod};
use kube::ResourceExt;

use super::fit::labels::Selector;
use super::fit::snapshot::{Interned, Slot};
use super::fit::{Node, PodKey, Shape, ShapeContext, Snapshot};
use super::{SCHEDULER_NAME, entry};
use crate::cluster::Cluster;
use crate::meta::{Key, controller_of, has_ended, is_leaving, node_name};

/// The state of a pod in the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    /// It is pending.
    Waiting,
    /// It counts as placed and is being bound.
    Assumed,
    /// Bound, ended, or of another scheduler.
    Settled,
    /// It no longer exists.
    Gone,
}

/// The effect of a changed pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodChange {
    pub(super) state: PodState,
    /// Room was made.
    pub(super) freed: bool,
    /// A pod was placed, or its labels changed.
    pub(super) placed: bool,
    /// A waiting pod asks for something else now.
    pub(super) respecified: bool,
    /// A waiting pod is expected on a node where it was not expected before.
    pub(super) nominated: bool,
}

#[derive(Default)]
struct CachedPod {
    uid: Option<PodKey>,
    generation: Option<i64>,
    gates: usize,
}

/// The snapshot with the book-keeping around it.
pub(super) struct SchedulerCache {
    pub(super) snapshot: Snapshot,
    known: HashMap<Key, CachedPod>,
    keys: HashMap<PodKey, Key>,
    /// Pods that count as placed though the API does not say so yet.
    assumed: HashMap<PodKey, String>,
}

impl Default for SchedulerCache {
    fn default() -> Self {
        Self { snapshot: Snapshot::new(), known: HashMap::new(), keys: HashMap::new(), assumed: HashMap::new() }
    }
}

impl SchedulerCache {
    /// Updates a namespace; returns whether that may make a pending pod schedulable.
    pub(super) fn update_namespace(&mut self, name: &str, namespace: Option<&Namespace>) -> bool {
        let Some(namespace) = namespace else {
            self.snapshot.remove_namespace(name);
            return false;
        };
        let changed = self.snapshot.namespace_labels(name) != namespace.labels();
        if changed {
            self.snapshot.set_namespace(name, namespace.labels().clone());
        }
        changed
    }

    /// Updates a node; returns whether that may make a pending pod schedulable.
    pub(super) fn update_node(&mut self, node: &NodeObject) -> bool {
        self.snapshot.set_node(Node::view(node))
    }

    /// Takes in a pod.
    pub(super) fn update_pod(&mut self, key: &Key, pod: Option<&Pod>) -> PodChange {
        let uid: Option<PodKey> = pod.and_then(ResourceExt::uid).map(Into::into);
        let mut change =
            PodChange { state: PodState::Gone, freed: false, placed: false, respecified: false, nominated: false };
        let before = self.known.remove(key).unwrap_or_default();
        if let Some(old) = before.uid.as_ref().filter(|old| uid.as_ref() != Some(*old)) {
            change.freed |= self.drop_pod(old);
        }
        let (Some(pod), Some(uid)) = (pod, uid) else {
            return change;
        };
        let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).map_or(0, Vec::len);
        let known = CachedPod { uid: Some(PodKey::clone(&uid)), generation: pod.metadata.generation, gates };
        change.respecified = before.uid.is_some() && (before.generation != known.generation || before.gates != gates);
        self.known.insert(key.clone(), known);
        self.keys.insert(PodKey::clone(&uid), key.clone());

        if has_ended(pod) {
            change.freed |= self.drop_pod(&uid);
            change.state = PodState::Settled;
        } else if let Some(node) = node_name(pod) {
            self.assumed.remove(&uid);
            self.snapshot.withdraw(&uid);
            change.placed = self.set_running(&uid, pod, node);
            change.state = PodState::Settled;
        } else {
            self.update_pending(&uid, pod, gates, &mut change);
        }
        change
    }

    fn update_pending(&mut self, uid: &PodKey, pod: &Pod, gates: usize, change: &mut PodChange) {
        let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        if scheduler.is_some_and(|name| name != SCHEDULER_NAME) || is_leaving(pod) {
            change.freed |= self.drop_pod(uid);
            change.state = PodState::Settled;
            return;
        }
        if self.assumed.contains_key(uid) {
            change.state = PodState::Assumed;
            return;
        }
        match pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()) {
            Some(node) if !node.is_empty() => {
                if self.snapshot.nomination(uid).is_none_or(|known| known.node != node) {
                    self.nominate(uid, pod, node);
                    change.nominated = true;
                }
            }
            _ => {
                if self.snapshot.nomination(uid).is_some() {
                    self.snapshot.withdraw(uid);
                    change.freed = true;
                }
            }
        }
        change.state = if gates > 0 { PodState::Settled } else { PodState::Waiting };
    }

    /// Puts a running pod into the snapshot; says whether something changed that others notice.
    fn set_running(&mut self, uid: &PodKey, pod: &Pod, node: &str) -> bool {
        let shape = self.snapshot.intern(Shape::of_running(pod));
        let fresh = entry(pod, node, shape);
        let known = self.snapshot.pod(uid);
        let is_same = known.is_some_and(|known| {
            known.node == fresh.node
                && known.shape.id == fresh.shape.id
                && known.leaving == fresh.leaving
                && known.preempted == fresh.preempted
                && known.started == fresh.started
        });
        let is_noticed = known.is_none_or(|known| known.shape.id != fresh.shape.id || known.leaving != fresh.leaving);
        if !is_same {
            self.snapshot.set_pod(uid, fresh);
        }
        is_noticed
    }

    /// Forgets a pod; says whether that made room.
    fn drop_pod(&mut self, uid: &PodKey) -> bool {
        self.assumed.remove(uid);
        self.keys.remove(uid);
        let was_expected = self.snapshot.nomination(uid).is_some();
        self.snapshot.withdraw(uid);
        self.snapshot.remove_pod(uid).is_some() || was_expected
    }

    /// Counts a pod as placed; the node where it was expected.
    pub(super) fn assume(&mut self, uid: &PodKey, pod: &Pod, node: &str) -> Option<String> {
        let expected = self.withdraw(pod);
        self.set_running(uid, pod, node);
        self.assumed.insert(PodKey::clone(uid), node.to_owned());
        expected
    }

    /// Whether a pod counts as placed though the API does not say so yet.
    pub(super) fn is_assumed(&self, uid: &str) -> bool {
        self.assumed.contains_key(uid)
    }

    /// Gives up the place of a pod.
    pub(super) fn forget(&mut self, uid: &PodKey) {
        if self.assumed.remove(uid).is_some() {
            self.snapshot.remove_pod(uid);
        }
    }

    /// Expects a pod on a node.
    pub(super) fn nominate(&mut self, uid: &PodKey, pod: &Pod, node: &str) {
        let shape = self.snapshot.intern(Shape::of_running(pod));
        self.snapshot.nominate(uid, entry(pod, node, shape));
    }

    /// Expects a pod nowhere any more; the node where it was expected.
    pub(super) fn withdraw(&mut self, pod: &Pod) -> Option<String> {
        let uid = pod.uid().unwrap_or_default();
        let expected = self.snapshot.nomination(&uid).map(|entry| entry.node.clone());
        self.snapshot.withdraw(&uid);
        expected
    }

    /// The node where a pod is expected, if it is there, and the uid of the pod.
    pub(super) fn expected_at(&self, key: &Key) -> Option<(&PodKey, Slot)> {
        let uid = self.known.get(key)?.uid.as_ref()?;
        Some((uid, self.snapshot.slot(&self.snapshot.nomination(uid)?.node)?))
    }

    /// Pods of lower priority that are expected on a node.
    pub(super) fn lesser_nominations(&self, pod: &Pod, node: &str) -> Vec<Key> {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default();
        let Some(slot) = self.snapshot.slot(node) else {
            return Vec::new();
        };
        let nominated = self.snapshot.state(slot).nominated.iter();
        nominated
            .filter(|uid| self.snapshot.nomination(uid).is_some_and(|entry| entry.shape.shape.priority < priority))
            .filter_map(|uid| self.keys.get(uid).cloned())
            .collect()
    }

    /// The key of a pod.
    pub(super) fn key_of(&self, uid: &str) -> Option<Key> {
        self.keys.get(uid).cloned()
    }

    /// The shape of a pod that waits.
    pub(super) fn intern_waiting(&mut self, cluster: &Cluster, pod: &Pod) -> Interned {
        let context =
            ShapeContext { class_priority: class_priority(cluster, pod), owner_selector: owner_selector(cluster, pod) };
        self.snapshot.intern(Shape::view(pod, &context))
    }
}

/// The priority of a pod.
pub(super) fn priority(cluster: &Cluster, pod: &Pod) -> i32 {
    let own = pod.spec.as_ref().and_then(|spec| spec.priority);
    own.or_else(|| class_priority(cluster, pod)).unwrap_or_default()
}

fn class_priority(cluster: &Cluster, pod: &Pod) -> Option<i32> {
    let name = pod.spec.as_ref()?.priority_class_name.as_deref()?;
    cluster.priority_classes.get(&Key::new("", name))?.value
}

/// The selectors of the services and the controller that a pod belongs to, taken together.
fn owner_selector(cluster: &Cluster, pod: &Pod) -> Option<Selector> {
    let namespace = pod.namespace()?;
    let mut requirements = Vec::new();
    for service in cluster.services.list_in(&namespace) {
        let Some(pairs) = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else {
            continue;
        };
        let selector = Selector::of_pairs(pairs);
        if !pairs.is_empty() && selector.matches(pod.labels()) {
            requirements.extend(selector.into_requirements());
        }
    }
    if let Some(owner) = controller_of(pod) {
        let key = Key::new(&namespace, &owner.name);
        let selector = match owner.kind.as_str() {
            "ReplicaSet" => cluster.replica_sets.get(&key).and_then(|set| set.spec.clone()).map(|spec| spec.selector),
            "StatefulSet" => cluster.stateful_sets.get(&key).and_then(|set| set.spec.clone()).map(|spec| spec.selector),
            _ => None,
        };
        requirements.extend(
            selector
                .map(|selector| Selector::compile(Some(&selector)))
                .into_iter()
                .flat_map(Selector::into_requirements),
        );
    }
    requirements.sort();
    requirements.dedup();
    (!requirements.is_empty()).then_some(Selector::All(requirements))
}
