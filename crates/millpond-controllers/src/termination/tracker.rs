//! In-memory state of terminating claims. It only saves calls and time: a new process works without it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use millpond_runtime::meta::Key;
use millpond_runtime::queue::Queue;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::evict::Answer;
use crate::kinds::NodeClaim;

/// The first wait after a pod could not be evicted; it doubles with each further try.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// No wait is longer: a budget that has room again is noticed soon, even if its news is missed.
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// A pod that was evicted should be seen leaving within this time; else it is evicted again.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// Evictions that are under way at a time, over all nodes.
const EVICTIONS_AT_A_TIME: usize = 32;

/// What is remembered of claims that are leaving.
pub struct TerminationTracker {
    /// No other process calls providers while this one does.
    is_exclusive: bool,
    /// Uids of claims that were there when this process began to act, after it was made sure that no other process can
    /// launch anything any more. Only these can have been launched by another one. None before they are known.
    inherited: OnceLock<HashSet<String>>,
    tracker: Mutex<Tracked>,
    queue: OnceLock<Arc<Queue<Key>>>,
    pub(super) evictions: Semaphore,
}

#[derive(Default)]
struct Tracked {
    /// By the name of the claim.
    claims: HashMap<String, TerminatingClaim>,
    /// The claim of each node that is being drained.
    nodes: HashMap<String, String>,
}

/// What is remembered of one claim.
#[derive(Debug, Default)]
pub(super) struct TerminatingClaim {
    /// Names of another claim's memory are not mixed up with this one's.
    uid: String,
    /// Whether the provider, asked by this process, may have made a machine for it.
    launched: Launched,
    /// When no list had its machine for the first time.
    pub(super) unlisted: Option<Instant>,
    /// When its node was tainted by this process.
    pub(super) tainted: Option<Instant>,
    /// When the provider did not know its machine for the first time.
    pub(super) unknown: Option<Instant>,
    /// When the provider was asked for its machine for the last time.
    pub(super) looked: Option<Instant>,
    /// The provider told that its machine is gone.
    pub(super) instance_gone: bool,
    /// How often the provider took the request to end its machine.
    pub(super) asked: usize,
    /// Calls of the provider that failed, in a row.
    pub(super) failures: u32,
    nodes: Vec<String>,
    tries: HashMap<String, Try>,
}

/// What is known of the launch of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Launched {
    /// This process did not ask for one.
    #[default]
    NotAsked,
    /// The provider said that there is none.
    Nothing,
    /// There is one, or may be.
    Perhaps,
}

/// What became of the eviction of a pod.
#[derive(Debug)]
struct Try {
    pod: Key,
    /// In a row.
    failures: u32,
    not_before: Instant,
    /// A budget was in the way.
    is_blocked: bool,
}

impl TerminationTracker {
    /// The memory of a process that begins now.
    pub(crate) fn new(is_exclusive: bool) -> Self {
        let evictions = Semaphore::new(EVICTIONS_AT_A_TIME);
        let (inherited, queue) = (OnceLock::new(), OnceLock::new());
        Self { is_exclusive, inherited, tracker: Mutex::default(), queue, evictions }
    }

    /// Takes note of the claims that were there before anything was done. Only the first call counts.
    pub(crate) fn inherit<'c>(&self, claims: impl Iterator<Item = &'c NodeClaim>) {
        self.inherited.get_or_init(|| claims.filter_map(ResourceExt::uid).collect());
    }

    /// Claims are looked at again through this queue.
    pub(super) fn wakes(&self, queue: &Arc<Queue<Key>>) {
        // A second queue would be of a second set of controllers, which has its own memory.
        let _ = self.queue.set(Arc::clone(queue));
    }

    /// Asks for another look at a claim.
    pub(crate) fn wake(&self, claim: &str) {
        if let Some(queue) = self.queue.get() {
            queue.add(Key::new("", claim));
        }
    }

    /// A provider is asked for a machine for a claim.
    pub(crate) fn launch_started(&self, claim: &NodeClaim) {
        self.of(claim, |leaving| leaving.launched = Launched::Perhaps);
    }

    /// The provider said that there is no machine for a claim.
    pub(crate) fn launch_failed(&self, claim: &NodeClaim) {
        self.of(claim, |leaving| leaving.launched = Launched::Nothing);
    }

    /// Whether there is no machine for a claim, for sure. Where others may call providers at the same time, nothing
    /// follows from what this process did, or was told: another one may have launched the claim a moment later.
    pub(super) fn never_launched(&self, claim: &NodeClaim) -> bool {
        if !self.is_exclusive {
            return false;
        }
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        match self.of(claim, |leaving| leaving.launched) {
            Launched::NotAsked => self.inherited.get().is_some_and(|inherited| !inherited.contains(uid)),
            Launched::Nothing => true,
            Launched::Perhaps => false,
        }
    }

    /// The provider said that the machine of a claim is gone.
    pub(crate) fn instance_gone(&self, claim: &NodeClaim) {
        self.of(claim, |leaving| leaving.instance_gone = true);
        self.wake(claim.name());
    }

    /// Reads or changes what is remembered of a claim.
    pub(super) fn of<T>(&self, claim: &NodeClaim, change: impl FnOnce(&mut TerminatingClaim) -> T) -> T {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let mut tracker = self.tracker.lock();
        let leaving = tracker.claims.entry(claim.name().to_owned()).or_default();
        if leaving.uid != uid {
            *leaving = TerminatingClaim { uid: uid.to_owned(), ..TerminatingClaim::default() };
        }
        change(leaving)
    }

    /// Changes on these nodes concern a claim.
    pub(super) fn set_nodes(&self, claim: &NodeClaim, nodes: Vec<String>) {
        self.of(claim, |leaving| leaving.nodes.clone_from(&nodes));
        let mut tracker = self.tracker.lock();
        tracker.nodes.extend(nodes.into_iter().map(|node| (node, claim.name().to_owned())));
    }

    /// Something changed on a node.
    pub(super) fn changed_on(&self, node: &str) {
        let claim = self.tracker.lock().nodes.get(node).cloned();
        if let Some(claim) = claim {
            self.wake(&claim);
        }
    }

    /// A claim is gone.
    pub(super) fn forget(&self, claim: &str) {
        let mut tracker = self.tracker.lock();
        let nodes = tracker.claims.remove(claim).map(|leaving| leaving.nodes).unwrap_or_default();
        for node in nodes {
            if tracker.nodes.get(&node).is_some_and(|known| known == claim) {
                tracker.nodes.remove(&node);
            }
        }
    }

    // Evictions

    /// Of some pods those that are to be evicted now, and how long until the next one is.
    pub(super) fn due(&self, claim: &NodeClaim, pods: Vec<Arc<Pod>>) -> (Vec<Arc<Pod>>, Option<Duration>) {
        let now = Instant::now();
        self.of(claim, |leaving| {
            let there: HashSet<String> = pods.iter().filter_map(|pod| pod.uid()).collect();
            leaving.tries.retain(|uid, _| there.contains(uid));
            let not_before =
                |pod: &Pod| leaving.tries.get(&pod.uid().unwrap_or_default()).map_or(now, |one| one.not_before);
            let wait = pods.iter().map(|pod| not_before(pod)).filter(|at| *at > now).min().map(|at| at - now);
            (pods.into_iter().filter(|pod| not_before(pod) <= now).collect(), wait)
        })
    }

    /// What the API server said to an eviction.
    pub(super) fn answered(&self, claim: &NodeClaim, pod: &Pod, answer: &Answer) {
        let now = Instant::now();
        self.of(claim, |leaving| {
            let new = || Try { pod: Key::of(pod), failures: 0, not_before: now, is_blocked: false };
            let known = leaving.tries.entry(pod.uid().unwrap_or_default()).or_insert_with(new);
            known.is_blocked = matches!(answer, Answer::Blocked(_));
            if matches!(answer, Answer::Leaves) {
                known.failures = 0;
                known.not_before = now + SEEN_WITHIN;
            } else {
                known.not_before = now + FIRST_RETRY.saturating_mul(1 << known.failures.min(16)).min(LONGEST_RETRY);
                known.failures += 1;
            }
        });
    }

    /// A budget has room: as many of the pods that it held up are tried at once, those first that have tried most.
    pub(super) fn unblock(&self, room: usize, is_covered: impl Fn(&Key) -> bool) {
        let mut tracker = self.tracker.lock();
        let mut blocked: Vec<(&String, &mut Try)> = Vec::new();
        for (claim, leaving) in &mut tracker.claims {
            blocked.extend(leaving.tries.values_mut().filter(|one| one.is_blocked).map(|one| (claim, one)));
        }
        blocked.retain(|(_, one)| is_covered(&one.pod));
        blocked.sort_by(|(_, a), (_, b)| b.failures.cmp(&a.failures).then_with(|| a.pod.cmp(&b.pod)));
        let mut claims: Vec<String> = Vec::new();
        for (claim, one) in blocked.into_iter().take(room) {
            one.not_before = Instant::now();
            claims.push(claim.clone());
        }
        drop(tracker);
        claims.iter().for_each(|claim| self.wake(claim));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str, uid: &str) -> NodeClaim {
        let spec = json!({"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}});
        serde_json::from_value(json!({"metadata": {"name": name, "uid": uid}, "spec": spec})).unwrap()
    }

    fn pods(names: &[&str]) -> Vec<Arc<Pod>> {
        let pod = |name: &&str| json!({"metadata": {"name": name, "namespace": "ns", "uid": name}});
        names.iter().map(|name| Arc::new(serde_json::from_value(pod(name)).unwrap())).collect()
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<String> {
        pods.iter().map(|pod| pod.name_any()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn evictions_back_off_and_are_not_repeated() {
        let (tracker, claim) = (TerminationTracker::new(true), claim("c", "1"));
        let both = pods(&["a", "b"]);
        assert_eq!(names(&tracker.due(&claim, both.clone()).0), ["a", "b"]);
        tracker.answered(&claim, &both[0], &Answer::Blocked(String::new()));
        tracker.answered(&claim, &both[1], &Answer::Leaves);
        assert_eq!(tracker.due(&claim, both.clone()), (vec![], Some(FIRST_RETRY)));
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = tracker.due(&claim, both[..1].to_vec()).1.unwrap();
            waits.push(wait.as_millis());
            tokio::time::advance(wait).await;
            assert_eq!(names(&tracker.due(&claim, both[..1].to_vec()).0), ["a"]);
            tracker.answered(&claim, &both[0], &Answer::Failed(String::new()));
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
        assert_eq!(names(&tracker.due(&claim, both).0), ["b"], "b was never seen leaving");
    }

    #[tokio::test(start_paused = true)]
    async fn room_in_a_budget_wakes_as_many_as_fit() {
        let (tracker, queue) = (TerminationTracker::new(true), Arc::new(Queue::new()));
        tracker.wakes(&queue);
        let (first, second) = (claim("first", "1"), claim("second", "2"));
        for (claim, pod) in [(&first, "a"), (&second, "b"), (&second, "free")] {
            let pod = &pods(&[pod])[0];
            let answer = if pod.name_any() == "free" { Answer::Leaves } else { Answer::Blocked(String::new()) };
            tracker.answered(claim, pod, &answer);
        }
        tracker.unblock(1, |_| true);
        assert_eq!(queue.next().await, Key::new("", "first"));
        assert_eq!(names(&tracker.due(&first, pods(&["a"])).0), ["a"]);
        assert!(tracker.due(&second, pods(&["b"])).0.is_empty());
        tracker.unblock(5, |pod| pod.name == "b");
        assert_eq!(queue.next().await, Key::new("", "second"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_claim_of_an_old_name_starts_afresh() {
        let tracker = TerminationTracker::new(true);
        tracker.launch_failed(&claim("c", "1"));
        assert!(tracker.never_launched(&claim("c", "1")));
        assert!(!tracker.never_launched(&claim("c", "2")));
        tracker.set_nodes(&claim("c", "2"), vec!["node".to_owned()]);
        tracker.forget("c");
        assert!(tracker.tracker.lock().nodes.is_empty() && tracker.tracker.lock().claims.is_empty());
    }

    #[test]
    fn what_was_never_asked_for_is_not_there() {
        let (tracker, old, new) = (TerminationTracker::new(true), claim("old", "1"), claim("new", "2"));
        assert!(!tracker.never_launched(&new), "it is not known yet what was there before");
        tracker.inherit([&old].into_iter());
        tracker.inherit([&old, &new].into_iter());
        assert!(!tracker.never_launched(&old), "another process may have asked");
        assert!(tracker.never_launched(&new));
        tracker.launch_started(&new);
        assert!(!tracker.never_launched(&new), "the answer is not there yet, or lost");
        tracker.launch_failed(&new);
        assert!(tracker.never_launched(&new));
    }

    #[test]
    fn where_others_act_nothing_follows_from_what_this_process_did() {
        let (tracker, claim) = (TerminationTracker::new(false), claim("c", "1"));
        tracker.inherit([].into_iter());
        assert!(!tracker.never_launched(&claim));
        tracker.launch_failed(&claim);
        assert!(!tracker.never_launched(&claim));
    }
}
