//! The scheduling queue: pods that are ready to be tried, backing off, or parked until something changes.
//!
//! An unschedulable pod is parked until a change may help it; then it backs off for a time that grows with each
//! attempt. kube-scheduler's backoff is a second and more, but since 1.33 only while there are other pods to try. Here
//! an attempt is cheap, so all pods are tried soon, and the backoff only keeps one pod that is retried repeatedly from
//! starving the others. Pods whose binding failed wait as long as in kube-scheduler.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::fit::snapshot::Interned;
use crate::meta::Key;

/// The wait after the first failed try; it doubles with each further one.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest wait.
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// The first wait where something happened meanwhile that may help.
const FIRST_MOMENT: Duration = Duration::from_millis(20);
/// The longest of these. A pod that was tried a dozen times while nodes came one by one must not stay away from its own.
const LONGEST_MOMENT: Duration = Duration::from_millis(500);

/// The kind of change that may help a parked pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node was added or changed, or capacity was freed: any pod may fit now.
    Room,
    /// A pod was placed: helps those that wait for company.
    Company,
}

/// What the queue stores about a refusal.
#[derive(Clone, Debug, Default)]
pub struct Refused {
    /// Another pod may help.
    pub is_gated_by_other_pods: bool,
    /// Every node failed for lack of resources; the pod's message stays true when more nodes fail in the same way.
    pub lacks_only_room: bool,
    /// The pod's requirements on nodes, if only changes of nodes can help.
    pub asks: Option<Interned>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePosition {
    Ready {
        since: Instant,
        sequence: u64,
    },
    Backoff {
        until: Instant,
        sequence: u64,
    },
    Parked,
    /// Being tried or bound right now.
    Out,
}

#[derive(Clone, Debug)]
struct Waiting {
    priority: i32,
    attempts: u32,
    last_try: Option<Instant>,
    place: QueuePosition,
    /// Why it was refused the last time.
    refused: Refused,
    /// The pod is parked, but its reason may no longer hold: when to try it.
    look: Option<Instant>,
}

impl Waiting {
    /// When it is to be tried again, by the wait after its first try, and the longest one.
    fn waits_until(&self, first: Duration, longest: Duration) -> Option<Instant> {
        let doublings = self.attempts.checked_sub(1)?.min(9);
        Some(self.last_try? + first.saturating_mul(1 << doublings).min(longest))
    }
}

/// Pods that wait for a place.
#[derive(Debug, Default)]
pub struct PodQueue {
    pods: HashMap<Key, Waiting>,
    ready: BTreeSet<(Reverse<i32>, Instant, u64, Key)>,
    backoff: BTreeSet<(Instant, u64, Key)>,
    parked: BTreeSet<Key>,
    looks: BTreeSet<(Instant, Key)>,
    sequence: u64,
}

impl PodQueue {
    /// Adds a pod that is not known yet.
    pub fn add(&mut self, key: &Key, priority: i32, now: Instant) {
        if !self.pods.contains_key(key) {
            let waiting = Waiting {
                priority,
                attempts: 0,
                last_try: None,
                place: QueuePosition::Out,
                refused: Refused::default(),
                look: None,
            };
            self.pods.insert(key.clone(), waiting);
            self.make_ready(key, now);
        }
    }

    /// Whether no pod waits.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether the queue has the pod.
    pub fn contains(&self, key: &Key) -> bool {
        self.pods.contains_key(key)
    }

    /// Forgets a pod.
    pub fn remove(&mut self, key: &Key) {
        self.clear_position(key);
        self.pods.remove(key);
    }

    /// Takes the pod that is next: the highest priority, then the longest wait.
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        while let Some((_, _, key)) = self.backoff.first().filter(|(until, ..)| *until <= now).cloned() {
            self.make_ready(&key, now);
        }
        let (.., key) = self.ready.first()?.clone();
        self.clear_position(&key);
        let waiting = self.pods.get_mut(&key)?;
        waiting.attempts += 1;
        waiting.last_try = Some(now);
        Some(key)
    }

    /// Whether a pod can be tried right now.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next pod has waited long enough, or is to be looked at.
    pub fn next_wake(&self) -> Option<Instant> {
        let backoff = self.backoff.first().map(|(until, ..)| *until);
        backoff.into_iter().chain(self.looks.first().map(|(when, _)| *when)).min()
    }

    /// Looks at a parked pod again when its back-off is over: it is not helped, but may be refused for something else.
    pub fn look_later(&mut self, key: &Key, now: Instant) {
        let Some(waiting) = self.pods.get_mut(key).filter(|_| self.parked.contains(key)) else { return };
        if waiting.look.is_none() && !waiting.refused.lacks_only_room {
            let when = waiting.waits_until(FIRST_BACKOFF, LONGEST_BACKOFF).unwrap_or(now).max(now);
            waiting.look = Some(when);
            self.looks.insert((when, key.clone()));
        }
    }

    /// Parked pods that are to be looked at by now.
    pub fn take_looks(&mut self, now: Instant) -> Vec<Key> {
        let mut all = Vec::new();
        while self.looks.first().is_some_and(|(when, _)| *when <= now) {
            let Some((_, key)) = self.looks.pop_first() else { break };
            if let Some(waiting) = self.pods.get_mut(&key) {
                waiting.look = None;
            }
            all.push(key);
        }
        all
    }

    /// Parks a pod that was tried and has no place.
    pub fn park(&mut self, key: &Key, refused: Refused) {
        self.clear_position(key);
        if let Some(waiting) = self.pods.get_mut(key) {
            waiting.place = QueuePosition::Parked;
            waiting.refused = refused;
            self.parked.insert(key.clone());
        }
    }

    /// Schedules a retry after the pod's back-off, whatever changes in between.
    pub fn retry(&mut self, key: &Key, now: Instant) {
        self.clear_position(key);
        self.back_off(key, now, FIRST_BACKOFF, LONGEST_BACKOFF);
    }

    /// Tries a parked pod again since it changed itself.
    pub fn wake_one(&mut self, key: &Key, now: Instant) {
        if self.parked.contains(key) {
            self.wake_up(key, now);
        }
    }

    fn wake_up(&mut self, key: &Key, now: Instant) {
        self.clear_position(key);
        self.back_off(key, now, FIRST_MOMENT, LONGEST_MOMENT);
    }

    /// Tries parked pods again that a change might help.
    pub fn wake(&mut self, change: Change, now: Instant) {
        let helped: Vec<Key> = match change {
            Change::Room => self.parked.iter().cloned().collect(),
            Change::Company => self.parked.iter().filter(|key| self.is_gated_by_other_pods(key)).cloned().collect(),
        };
        for key in helped {
            self.wake_up(&key, now);
        }
    }

    /// Tries parked pods again that changed nodes might help, by what they ask for; as kube-scheduler's hints do.
    pub fn wake_where(&mut self, now: Instant, mut helps: impl FnMut(&Key, &Interned) -> bool) {
        let asks = |key: &Key| self.pods.get(key).and_then(|waiting| waiting.refused.asks.as_ref());
        let helped = self.parked.iter().filter(|key| asks(key).is_none_or(|asks| helps(key, asks)));
        for key in helped.cloned().collect::<Vec<_>>() {
            self.wake_up(&key, now);
        }
    }

    fn is_gated_by_other_pods(&self, key: &Key) -> bool {
        self.pods.get(key).is_some_and(|waiting| waiting.refused.is_gated_by_other_pods)
    }

    fn back_off(&mut self, key: &Key, now: Instant, first: Duration, longest: Duration) {
        let Some(waiting) = self.pods.get(key) else {
            return;
        };
        match waiting.waits_until(first, longest).filter(|until| *until > now) {
            Some(until) => {
                self.sequence += 1;
                let sequence = self.sequence;
                self.backoff.insert((until, sequence, key.clone()));
                self.set_position(key, QueuePosition::Backoff { until, sequence });
            }
            None => self.make_ready(key, now),
        }
    }

    fn make_ready(&mut self, key: &Key, now: Instant) {
        self.clear_position(key);
        let Some(priority) = self.pods.get(key).map(|waiting| waiting.priority) else {
            return;
        };
        self.sequence += 1;
        let sequence = self.sequence;
        self.ready.insert((Reverse(priority), now, sequence, key.clone()));
        self.set_position(key, QueuePosition::Ready { since: now, sequence });
    }

    fn set_position(&mut self, key: &Key, place: QueuePosition) {
        if let Some(waiting) = self.pods.get_mut(key) {
            waiting.place = place;
        }
    }

    fn clear_position(&mut self, key: &Key) {
        let Some(waiting) = self.pods.get_mut(key) else {
            return;
        };
        match std::mem::replace(&mut waiting.place, QueuePosition::Out) {
            QueuePosition::Ready { since, sequence } => {
                self.ready.remove(&(Reverse(waiting.priority), since, sequence, key.clone()));
            }
            QueuePosition::Backoff { until, sequence } => {
                self.backoff.remove(&(until, sequence, key.clone()));
            }
            QueuePosition::Parked => {
                self.parked.remove(key);
                if let Some(when) = waiting.look.take() {
                    self.looks.remove(&(when, key.clone()));
                }
            }
            QueuePosition::Out => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    #[tokio::test(start_paused = true)]
    async fn priority_then_age() {
        let now = Instant::now();
        let mut queue = PodQueue::default();
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
            queue.add(&key(name), priority, now);
        }
        let soon = now + FIRST_MOMENT;
        let order: Vec<String> = std::iter::from_fn(|| queue.pop(soon)).map(|key| key.name).collect();
        assert_eq!(order, ["b", "d", "a", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn parked_pods_come_back_after_a_change_and_block_no_others() {
        let start = Instant::now();
        let mut queue = PodQueue::default();
        queue.add(&key("a"), 0, start);
        queue.add(&key("b"), 0, start);
        for (name, is_gated_by_other_pods) in [("a", false), ("b", true)] {
            assert_eq!(queue.pop(start), Some(key(name)));
            queue.park(&key(name), Refused { is_gated_by_other_pods, ..Refused::default() });
        }
        assert_eq!((queue.pop(start), queue.next_wake()), (None, None));
        queue.wake(Change::Company, start);
        queue.add(&key("new"), 0, start);
        assert_eq!((queue.pop(start), queue.pop(start)), (Some(key("new")), None), "who was just tried waits");
        assert_eq!(queue.next_wake(), Some(start + FIRST_MOMENT));
        assert_eq!(queue.pop(start + FIRST_MOMENT), Some(key("b")));
        let later = start + Duration::from_mins(1);
        queue.wake(Change::Room, later);
        assert_eq!(queue.pop(later), Some(key("a")), "its back-off has long passed");
        queue.remove(&key("a"));
        assert!(!queue.contains(&key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_failed_for_long_is_still_retried_soon() {
        let mut now = Instant::now();
        let mut queue = PodQueue::default();
        queue.add(&key("a"), 0, now);
        for _ in 0..20 {
            assert_eq!(queue.pop(now), Some(key("a")));
            queue.park(&key("a"), Refused::default());
            queue.wake(Change::Room, now);
            let due = queue.next_wake().expect("it is tried again");
            assert!(due - now <= LONGEST_MOMENT);
            now = due;
        }
        assert_eq!(queue.pop(now), Some(key("a")));
        queue.retry(&key("a"), now);
        assert_eq!(queue.next_wake(), Some(now + LONGEST_BACKOFF), "but not if it could not be bound");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_wakes_those_that_it_may_help() {
        let now = Instant::now();
        let mut queue = PodQueue::default();
        let asks = |name: &str| Interned {
            id: name.len() as u64,
            shape: std::sync::Arc::new(crate::scheduler::fit::Shape::of_running(
                &k8s_openapi::api::core::v1::Pod::default(),
            )),
        };
        for name in ["a", "bb", "ccc"] {
            queue.add(&key(name), 0, now);
            queue.pop(now);
            let asks = (name != "ccc").then(|| asks(name));
            queue.park(&key(name), Refused { asks, ..Refused::default() });
        }
        queue.wake_where(now, |_, asks| asks.id == 2);
        let soon = now + FIRST_MOMENT;
        let order: Vec<String> = std::iter::from_fn(|| queue.pop(soon)).map(|key| key.name).collect();
        assert_eq!(order, ["bb", "ccc"], "what would help the last one is not known");
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_pod_can_still_be_woken_at_once() {
        let start = Instant::now();
        let mut queue = PodQueue::default();
        for name in ["a", "b", "c"] {
            queue.add(&key(name), 0, start);
            queue.pop(start);
            queue.park(&key(name), Refused { lacks_only_room: name == "c", ..Refused::default() });
            queue.look_later(&key(name), start);
            queue.look_later(&key(name), start + FIRST_MOMENT);
        }
        assert_eq!((queue.take_looks(start), queue.next_wake()), (Vec::new(), Some(start + FIRST_BACKOFF)));
        queue.wake_one(&key("b"), start);
        assert_eq!(queue.pop(start + FIRST_MOMENT), Some(key("b")));
        assert_eq!(queue.take_looks(start + FIRST_BACKOFF), [key("a")], "the other one was tried since");
        assert_eq!(queue.next_wake(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_whose_binding_failed_waits_to_the_end() {
        let start = Instant::now();
        let mut queue = PodQueue::default();
        queue.add(&key("a"), 0, start);
        queue.pop(start);
        queue.retry(&key("a"), start);
        assert_eq!((queue.pop(start), queue.has_ready()), (None, false));
        assert_eq!(queue.next_wake(), Some(start + FIRST_BACKOFF));
        assert_eq!(queue.pop(start + FIRST_BACKOFF), Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_backoff_grows_to_its_bound() {
        let mut now = Instant::now();
        let mut queue = PodQueue::default();
        queue.add(&key("a"), 0, now);
        let mut waits = Vec::new();
        for _ in 0..6 {
            assert_eq!(queue.pop(now), Some(key("a")));
            queue.retry(&key("a"), now);
            let wake = queue.next_wake().expect("a time");
            waits.push((wake - now).as_secs());
            now = wake;
        }
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }
}
