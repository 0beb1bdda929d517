//! Nodes that pods were promised.
//!
//! A claim says for which pods it was made, in an annotation that is written with it. So the plan outlives a crash, costs
//! no write of its own, and is planned with from the moment on when the claim is there.
//!
//! The scheduler is told through `status.nominatedNodeName`, but not before the node can take the pod: kube-scheduler
//! takes a nomination off again with every attempt that fails, and tries while the node is still starting.

use std::collections::{BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use millpond_runtime::meta::{Key, is_leaving, node_name};
use parking_lot::{Mutex, RwLock};

use crate::kinds::NodeClaim;

/// Annotation of a claim: the pods that it was made for, `namespace/name` each, with spaces between.
pub const PROMISED_ANNOTATION: &str = "millpond.dev/promised-to";

/// A pod was promised the node of this claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Promise {
    claim: String,
    /// The name of the claim, until its node has one.
    node: String,
}

impl Promise {
    fn of(claim: &NodeClaim) -> Self {
        let named = Some(&claim.status.node_name).filter(|name| !name.is_empty());
        Self { claim: claim.name_any(), node: named.cloned().unwrap_or_else(|| claim.name_any()) }
    }
}

type Listener = Box<dyn Fn(&Key) + Send + Sync>;

/// Nodes that pods were promised.
#[derive(Default)]
pub struct Promises {
    known: Mutex<Known>,
    listeners: RwLock<Vec<Listener>>,
}

/// Promises by pod, and pods by node.
#[derive(Default)]
struct Known {
    by_pod: HashMap<Key, Promise>,
    by_node: HashMap<String, BTreeSet<Key>>,
}

impl Known {
    fn put(&mut self, pod: Key, promise: Promise) {
        self.remove(&pod);
        self.by_node.entry(promise.node.clone()).or_default().insert(pod.clone());
        self.by_pod.insert(pod, promise);
    }

    /// The pods that were promised the node of a claim.
    fn pods_of(&self, promise: &Promise) -> Vec<Key> {
        let on_node = self.by_node.get(&promise.node).into_iter().flatten();
        on_node.filter(|pod| self.by_pod.get(*pod).is_some_and(|known| known == promise)).cloned().collect()
    }

    fn remove(&mut self, pod: &Key) {
        let Some(promise) = self.by_pod.remove(pod) else { return };
        if let Some(pods) = self.by_node.get_mut(&promise.node) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_node.remove(&promise.node);
            }
        }
    }
}

impl Promises {
    /// Takes a change of a claim; the pods that are promised another node now, or none.
    pub(crate) fn take_claim(&self, before: Option<&NodeClaim>, after: Option<&NodeClaim>) -> Vec<Key> {
        let (was, is) = (before.map(Said::by), after.map(Said::by));
        if was == is {
            return Vec::new();
        }
        let was: HashSet<Key> = was.iter().flat_map(Said::pods).collect();
        let is: HashSet<Key> = is.iter().flat_map(Said::pods).collect();
        let stays = after.filter(|claim| !is_leaving(*claim)).map(Promise::of);
        let mut known = self.known.lock();
        let mut changed = Vec::new();
        if let Some(promise) = before.map(Promise::of) {
            // Also those who got their place by a trade, which no claim tells of.
            for pod in known.pods_of(&promise) {
                match &stays {
                    Some(stays) if is.contains(&pod) || !was.contains(&pod) => {
                        if *stays != promise {
                            known.put(pod.clone(), stays.clone());
                            changed.push(pod);
                        }
                    }
                    _ => {
                        known.remove(&pod);
                        changed.push(pod);
                    }
                }
            }
        }
        if let Some(promise) = stays {
            // One that was said before, and is not known any more, was kept or taken back meanwhile.
            for pod in is.difference(&was) {
                known.put(pod.clone(), promise.clone());
                changed.push(pod.clone());
            }
        }
        changed
    }

    /// A pod was bound elsewhere than it was promised: one of its kind that was promised a place there takes its place.
    /// Who is of its kind is asked for; tells who traded.
    pub(crate) fn trade(&self, bound: &Key, node: &str, is_like: impl Fn(&Key) -> bool) -> Option<Key> {
        self.known.lock().by_pod.get(bound).filter(|promise| promise.node != node)?;
        let other = self.pods_on(node).into_iter().find(is_like)?;
        let mut known = self.known.lock();
        let promise = known.by_pod.get(bound)?.clone();
        known.remove(bound);
        known.put(other.clone(), promise);
        Some(other)
    }

    /// Whether a pod was promised that node.
    pub(crate) fn is_kept_by(&self, pod: &Key, node: &str) -> bool {
        self.known.lock().by_pod.get(pod).is_some_and(|promise| promise.node == node)
    }

    /// Takes a promise back.
    pub(crate) fn take_back(&self, pod: &Key) {
        self.known.lock().remove(pod);
    }

    /// Calls `listener` with every pod that is promised another node, or none any more.
    pub(crate) fn on_change(&self, listener: impl Fn(&Key) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Tells those who listen.
    pub(crate) fn tell(&self, pod: &Key) {
        self.listeners.read().iter().for_each(|listener| listener(pod));
    }

    /// The node that a pod waits for: the one that it is nominated for, or was promised.
    pub(crate) fn of(&self, pod: &Pod) -> Option<String> {
        if node_name(pod).is_some() {
            return None;
        }
        if let Some(node) = nominated(pod) {
            return Some(node.to_owned());
        }
        self.known.lock().by_pod.get(&Key::of(pod)).map(|promise| promise.node.clone())
    }

    /// The pods that wait for a claim, in order.
    pub(crate) fn pods_of(&self, claim: &NodeClaim) -> Vec<Key> {
        self.known.lock().pods_of(&Promise::of(claim))
    }

    /// The pods that wait for each claim.
    pub(crate) fn by_claim(&self) -> HashMap<String, Vec<Key>> {
        let mut all: HashMap<String, Vec<Key>> = HashMap::new();
        for (pod, promise) in &self.known.lock().by_pod {
            all.entry(promise.claim.clone()).or_default().push(pod.clone());
        }
        all
    }

    /// The pods that wait for a node.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<Key> {
        self.known.lock().by_node.get(node).into_iter().flatten().cloned().collect()
    }
}

/// What a claim says: to which pods it is promised, and under which name. One that leaves is promised to nobody.
#[derive(PartialEq, Eq)]
struct Said<'c> {
    pods: &'c str,
    node: &'c str,
}

impl<'c> Said<'c> {
    fn by(claim: &'c NodeClaim) -> Self {
        let annotation = claim.annotations().get(PROMISED_ANNOTATION).filter(|_| !is_leaving(claim));
        Self { pods: annotation.map_or("", String::as_str), node: &claim.status.node_name }
    }

    fn pods(&self) -> impl Iterator<Item = Key> + use<'c> {
        let pods = self.pods.split_ascii_whitespace();
        pods.filter_map(|pod| pod.split_once('/')).map(|(namespace, name)| Key::new(namespace, name))
    }
}

/// The pods that a claim is promised to, by its own words.
pub(crate) fn promised_to(claim: &NodeClaim) -> impl Iterator<Item = Key> {
    Said::by(claim).pods()
}

/// What a claim says that is promised to these pods.
pub(crate) fn said(pods: &[Key]) -> String {
    let pods: Vec<String> = pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    pods.join(" ")
}

/// The node that the scheduler knows a pod to be promised.
pub(crate) fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str, pods: &str) -> NodeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {PROMISED_ANNOTATION: pods}},
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
    fn what_a_claim_says_is_promised_until_it_leaves() {
        let promises = Promises::default();
        let text = said(&[Key::new("default", "a"), Key::new("default", "b")]);
        let web = claim("web-1", &text);
        assert_eq!(names(promises.take_claim(None, Some(&web))), ["a", "b"]);
        assert_eq!(promises.of(&pod("a")).as_deref(), Some("web-1"));
        assert_eq!(promises.of(&pod("c")), None);
        assert_eq!(names(promises.pods_of(&web)), ["a", "b"]);

        let mut named = web.clone();
        named.status.node_name = "host-7".to_owned();
        promises.take_back(&Key::new("default", "b"));
        assert_eq!(names(promises.take_claim(Some(&web), Some(&named))), ["a"], "what was taken back stays so");
        assert_eq!(promises.of(&pod("a")).as_deref(), Some("host-7"));
        assert_eq!(names(promises.pods_on("host-7")), ["a"]);

        let mut leaving = named.clone();
        leaving.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-11-16T12:00:00Z")).unwrap());
        assert_eq!(names(promises.take_claim(Some(&named), Some(&leaving))), ["a"]);
        assert_eq!(promises.of(&pod("a")), None);
        assert!(promises.take_claim(Some(&leaving), None).is_empty());
    }

    #[test]
    fn a_claim_that_goes_takes_no_promise_of_another() {
        let promises = Promises::default();
        let (old, new) = (claim("web-1", "default/a"), claim("web-2", "default/a"));
        promises.take_claim(None, Some(&old));
        promises.take_claim(None, Some(&new));
        assert!(promises.take_claim(Some(&old), None).is_empty());
        assert_eq!(promises.of(&pod("a")).as_deref(), Some("web-2"));
    }

    #[test]
    fn who_takes_the_place_of_another_leaves_its_own() {
        let promises = Promises::default();
        let (first, second) = (claim("web-1", "default/a default/x"), claim("web-2", "default/b default/y"));
        promises.take_claim(None, Some(&first));
        promises.take_claim(None, Some(&second));
        let like = |key: &Key| key.name == "b";
        let a = Key::new("default", "a");
        assert_eq!(promises.trade(&a, "web-1", like), None, "as promised");
        assert_eq!(promises.trade(&a, "web-2", |_| false), None, "nobody is like it");
        assert_eq!(promises.trade(&a, "web-2", like), Some(Key::new("default", "b")));
        assert_eq!(promises.of(&pod("b")).as_deref(), Some("web-1"));
        assert_eq!(names(promises.pods_of(&first)), ["b", "x"]);
        assert_eq!(names(promises.pods_of(&second)), ["y"]);

        let mut named = first.clone();
        named.status.node_name = "host-7".to_owned();
        assert_eq!(names(promises.take_claim(Some(&first), Some(&named))), ["b", "x"], "a trade follows the node");
        assert!(promises.is_kept_by(&Key::new("default", "b"), "host-7"));
        assert_eq!(names(promises.take_claim(Some(&named), None)), ["b", "x"]);
        assert_eq!(promises.of(&pod("b")), None);
    }

    #[test]
    fn a_nomination_goes_before_a_promise() {
        let promises = Promises::default();
        promises.take_claim(None, Some(&claim("web-1", "default/a")));
        let mut nominated = pod("a");
        nominated.status.get_or_insert_default().nominated_node_name = Some("other".to_owned());
        assert_eq!(promises.of(&nominated).as_deref(), Some("other"));
    }
}
