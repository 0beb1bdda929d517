//! The nodes that pods are nominated to: planned for them, from the claim on.
//!
//! An annotation of a claim, written together with it, lists the pods that it was made for. So the plan survives a
//! crash, costs no extra write, and later plans include it as soon as the claim exists.
//!
//! `status.nominatedNodeName` is set for the scheduler only once the node can take the pod: kube-scheduler clears a
//! nomination with every attempt that fails, and it retries while the node is still starting.

use std::collections::{BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use millpond_runtime::meta::{Key, is_leaving, node_name};
use parking_lot::{Mutex, RwLock};

use crate::kinds::NodeClaim;

/// Annotation of a claim: the pods that it was made for, `namespace/name` each, with spaces between.
pub const NOMINATED_PODS_ANNOTATION: &str = "millpond.dev/promised-to";

/// The claim, and the node, that a pod is nominated to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nomination {
    claim: String,
    /// The name of the claim until its node has registered.
    node: String,
}

impl Nomination {
    fn of(claim: &NodeClaim) -> Self {
        let named = Some(&claim.status.node_name).filter(|name| !name.is_empty());
        Self { claim: claim.name_any(), node: named.cloned().unwrap_or_else(|| claim.name_any()) }
    }
}

type Listener = Box<dyn Fn(&Key) + Send + Sync>;

/// The nominations of all pods, indexed by pod and by node.
#[derive(Default)]
pub struct Nominations {
    index: Mutex<Index>,
    listeners: RwLock<Vec<Listener>>,
}

/// Nominations by pod, and pods by node.
#[derive(Default)]
struct Index {
    by_pod: HashMap<Key, Nomination>,
    by_node: HashMap<String, BTreeSet<Key>>,
}

impl Index {
    fn put(&mut self, pod: Key, nomination: Nomination) {
        self.remove(&pod);
        self.by_node.entry(nomination.node.clone()).or_default().insert(pod.clone());
        self.by_pod.insert(pod, nomination);
    }

    /// The pods nominated to the node of a claim.
    fn pods_of(&self, nomination: &Nomination) -> Vec<Key> {
        let on_node = self.by_node.get(&nomination.node).into_iter().flatten();
        on_node.filter(|pod| self.by_pod.get(*pod).is_some_and(|index| index == nomination)).cloned().collect()
    }

    fn remove(&mut self, pod: &Key) {
        let Some(nomination) = self.by_pod.remove(pod) else { return };
        if let Some(pods) = self.by_node.get_mut(&nomination.node) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_node.remove(&nomination.node);
            }
        }
    }
}

impl Nominations {
    /// Applies a change of a claim; returns the pods whose nomination changed or was removed.
    pub(crate) fn claim_changed(&self, before: Option<&NodeClaim>, after: Option<&NodeClaim>) -> Vec<Key> {
        let (was, is) = (before.map(ClaimAnnotation::of), after.map(ClaimAnnotation::of));
        if was == is {
            return Vec::new();
        }
        let was: HashSet<Key> = was.iter().flat_map(ClaimAnnotation::pods).collect();
        let is: HashSet<Key> = is.iter().flat_map(ClaimAnnotation::pods).collect();
        let stays = after.filter(|claim| !is_leaving(*claim)).map(Nomination::of);
        let mut index = self.index.lock();
        let mut changed = Vec::new();
        if let Some(nomination) = before.map(Nomination::of) {
            // Includes pods that got their nomination by a trade, which no claim lists.
            for pod in index.pods_of(&nomination) {
                match &stays {
                    Some(stays) if is.contains(&pod) || !was.contains(&pod) => {
                        if *stays != nomination {
                            index.put(pod.clone(), stays.clone());
                            changed.push(pod);
                        }
                    }
                    _ => {
                        index.remove(&pod);
                        changed.push(pod);
                    }
                }
            }
        }
        if let Some(nomination) = stays {
            // A pod that was listed before and has no nomination now was bound or withdrawn meanwhile.
            for pod in is.difference(&was) {
                index.put(pod.clone(), nomination.clone());
                changed.push(pod.clone());
            }
        }
        changed
    }

    /// A pod was bound to another node than its own: a pod like it that was nominated to that node takes its nomination
    /// over. `is_like` decides which pods are alike; returns the pod that took over.
    pub(crate) fn swap(&self, bound: &Key, node: &str, is_like: impl Fn(&Key) -> bool) -> Option<Key> {
        self.index.lock().by_pod.get(bound).filter(|nomination| nomination.node != node)?;
        let other = self.pods_on(node).into_iter().find(is_like)?;
        let mut index = self.index.lock();
        let nomination = index.by_pod.get(bound)?.clone();
        index.remove(bound);
        index.put(other.clone(), nomination);
        Some(other)
    }

    /// Whether a pod is nominated to that node.
    pub(crate) fn is_for(&self, pod: &Key, node: &str) -> bool {
        self.index.lock().by_pod.get(pod).is_some_and(|nomination| nomination.node == node)
    }

    /// Removes a nomination.
    pub(crate) fn remove(&self, pod: &Key) {
        self.index.lock().remove(pod);
    }

    /// Calls `listener` with every pod whose nomination changed or was removed.
    pub(crate) fn on_change(&self, listener: impl Fn(&Key) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Calls the listeners.
    pub(crate) fn notify(&self, pod: &Key) {
        self.listeners.read().iter().for_each(|listener| listener(pod));
    }

    /// The node that a pod waits for: its `status.nominatedNodeName`, else that of a claim's annotation.
    pub(crate) fn of(&self, pod: &Pod) -> Option<String> {
        if node_name(pod).is_some() {
            return None;
        }
        if let Some(node) = nominated_node(pod) {
            return Some(node.to_owned());
        }
        self.index.lock().by_pod.get(&Key::of(pod)).map(|nomination| nomination.node.clone())
    }

    /// The pods that wait for a claim, in order.
    pub(crate) fn pods_of(&self, claim: &NodeClaim) -> Vec<Key> {
        self.index.lock().pods_of(&Nomination::of(claim))
    }

    /// The pods that wait for each claim.
    pub(crate) fn by_claim(&self) -> HashMap<String, Vec<Key>> {
        let mut all: HashMap<String, Vec<Key>> = HashMap::new();
        for (pod, nomination) in &self.index.lock().by_pod {
            all.entry(nomination.claim.clone()).or_default().push(pod.clone());
        }
        all
    }

    /// The pods that wait for a node.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<Key> {
        self.index.lock().by_node.get(node).into_iter().flatten().cloned().collect()
    }
}

/// The parsed annotation of a claim: the pods, and the name of its node. A claim that is being deleted has no pods.
#[derive(PartialEq, Eq)]
struct ClaimAnnotation<'c> {
    pods: &'c str,
    node: &'c str,
}

impl<'c> ClaimAnnotation<'c> {
    fn of(claim: &'c NodeClaim) -> Self {
        let annotation = claim.annotations().get(NOMINATED_PODS_ANNOTATION).filter(|_| !is_leaving(claim));
        Self { pods: annotation.map_or("", String::as_str), node: &claim.status.node_name }
    }

    fn pods(&self) -> impl Iterator<Item = Key> + use<'c> {
        let pods = self.pods.split_ascii_whitespace();
        pods.filter_map(|pod| pod.split_once('/')).map(|(namespace, name)| Key::new(namespace, name))
    }
}

/// The pods in the annotation of a claim.
pub(crate) fn nominated_pods(claim: &NodeClaim) -> impl Iterator<Item = Key> {
    ClaimAnnotation::of(claim).pods()
}

/// The annotation's value for these pods.
pub(crate) fn annotation_value(pods: &[Key]) -> String {
    let pods: Vec<String> = pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    pods.join(" ")
}

/// The pod's `status.nominatedNodeName`.
pub(crate) fn nominated_node(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str, pods: &str) -> NodeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {NOMINATED_PODS_ANNOTATION: pods}},
            "spec": {
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                "requirements": [],
            },
        }))
        .unwrap()
    }

    fn pod(name: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name}})).unwrap()
    }

    fn names(mut keys: Vec<Key>) -> Vec<String> {
        keys.sort();
        keys.into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn nominations_follow_the_annotation_until_the_claim_leaves() {
        let nominations = Nominations::default();
        let text = annotation_value(&[Key::new("default", "a"), Key::new("default", "b")]);
        let web = claim("web-1", &text);
        assert_eq!(names(nominations.claim_changed(None, Some(&web))), ["a", "b"]);
        assert_eq!(nominations.of(&pod("a")).as_deref(), Some("web-1"));
        assert_eq!(nominations.of(&pod("c")), None);
        assert_eq!(names(nominations.pods_of(&web)), ["a", "b"]);

        let mut named = web.clone();
        named.status.node_name = "host-7".to_owned();
        nominations.remove(&Key::new("default", "b"));
        assert_eq!(names(nominations.claim_changed(Some(&web), Some(&named))), ["a"], "what was taken back stays so");
        assert_eq!(nominations.of(&pod("a")).as_deref(), Some("host-7"));
        assert_eq!(names(nominations.pods_on("host-7")), ["a"]);

        let mut leaving = named.clone();
        leaving.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-11-16T12:00:00Z")).unwrap());
        assert_eq!(names(nominations.claim_changed(Some(&named), Some(&leaving))), ["a"]);
        assert_eq!(nominations.of(&pod("a")), None);
        assert!(nominations.claim_changed(Some(&leaving), None).is_empty());
    }

    #[test]
    fn a_deleted_claim_removes_no_nomination_of_another() {
        let nominations = Nominations::default();
        let (old, new) = (claim("web-1", "default/a"), claim("web-2", "default/a"));
        nominations.claim_changed(None, Some(&old));
        nominations.claim_changed(None, Some(&new));
        assert!(nominations.claim_changed(Some(&old), None).is_empty());
        assert_eq!(nominations.of(&pod("a")).as_deref(), Some("web-2"));
    }

    #[test]
    fn a_swap_moves_the_nomination() {
        let nominations = Nominations::default();
        let (first, second) = (claim("web-1", "default/a default/x"), claim("web-2", "default/b default/y"));
        nominations.claim_changed(None, Some(&first));
        nominations.claim_changed(None, Some(&second));
        let like = |key: &Key| key.name == "b";
        let a = Key::new("default", "a");
        assert_eq!(nominations.swap(&a, "web-1", like), None, "as promised");
        assert_eq!(nominations.swap(&a, "web-2", |_| false), None, "no pod is like it");
        assert_eq!(nominations.swap(&a, "web-2", like), Some(Key::new("default", "b")));
        assert_eq!(nominations.of(&pod("b")).as_deref(), Some("web-1"));
        assert_eq!(names(nominations.pods_of(&first)), ["b", "x"]);
        assert_eq!(names(nominations.pods_of(&second)), ["y"]);

        let mut named = first.clone();
        named.status.node_name = "host-7".to_owned();
        assert_eq!(
            names(nominations.claim_changed(Some(&first), Some(&named))),
            ["b", "x"],
            "a trade follows the node"
        );
        assert!(nominations.is_for(&Key::new("default", "b"), "host-7"));
        assert_eq!(names(nominations.claim_changed(Some(&named), None)), ["b", "x"]);
        assert_eq!(nominations.of(&pod("b")), None);
    }

    #[test]
    fn the_nominated_node_has_precedence() {
        let nominations = Nominations::default();
        nominations.claim_changed(None, Some(&claim("web-1", "default/a")));
        let mut nominated = pod("a");
        nominated.status.get_or_insert_default().nominated_node_name = Some("other".to_owned());
        assert_eq!(nominations.of(&nominated).as_deref(), Some("other"));
    }
}
