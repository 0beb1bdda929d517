//! Work queues: each key at most once, one worker at a time per key, with delays and back-off.
//!
//! A queue has two lanes with separate workers, so that urgent keys do not wait behind the others.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first wait after a failure; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(20);
/// The longest wait before a retry, so that a repaired fault is noticed soon.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Where a key waits for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// The lane of most keys.
    Usual,
    /// For few keys that another part of the program waits for.
    Urgent,
}

struct State<K> {
    /// Keys for a worker, one row for each lane. One that has changed lanes is left where it was, and skipped there.
    ready: [VecDeque<K>; 2],
    /// Keys in `ready`, or to be put there when their worker is done, with the lane that they are in.
    dirty: HashMap<K, Lane>,
    /// Keys with a worker, and since when.
    working: HashMap<K, Instant>,
    waiting: BTreeSet<(Instant, u64, K)>,
    /// The entry of each key in `waiting`.
    wake: HashMap<K, (Instant, u64)>,
    failures: HashMap<K, u32>,
    sequence: u64,
}

/// A queue of keys.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: [Notify; 2],
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            ready: [VecDeque::new(), VecDeque::new()],
            dirty: HashMap::new(),
            working: HashMap::new(),
            waiting: BTreeSet::new(),
            wake: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
        };
        Self { state: Mutex::new(state), changed: [Notify::new(), Notify::new()] }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for work on a key as soon as possible.
    pub fn add(&self, key: K) {
        self.add_to(Lane::Usual, key);
    }

    /// Asks for work on a key in a lane. One that waits in the usual lane can become urgent, but not the other way; for one
    /// that is being worked on, the last wish counts.
    pub fn add_to(&self, lane: Lane, key: K) {
        let mut state = self.state.lock();
        if state.make_dirty(key, lane) {
            drop(state);
            self.changed[lane as usize].notify_one();
        }
    }

    /// Asks for work on a key after a while; an earlier wish for the same key stands.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.state.lock();
        if state.dirty.contains_key(&key) {
            return;
        }
        let at = Instant::now() + delay;
        if let Some((known, sequence)) = state.wake.get(&key).copied() {
            if known <= at {
                return;
            }
            state.waiting.remove(&(known, sequence, key.clone()));
        }
        state.sequence += 1;
        let sequence = state.sequence;
        state.wake.insert(key.clone(), (at, sequence));
        state.waiting.insert((at, sequence, key));
        drop(state);
        self.changed[Lane::Usual as usize].notify_one();
    }

    /// Takes the next key, waiting for one; give it back with [`Self::done`].
    pub async fn next(&self) -> K {
        self.next_of(Lane::Usual).await
    }

    /// Takes the next key of a lane. Keys that were to wait come in the usual one.
    pub async fn next_of(&self, lane: Lane) -> K {
        let changed = &self.changed[lane as usize];
        loop {
            let wake = {
                let mut state = self.state.lock();
                if lane == Lane::Usual {
                    state.release_due(Instant::now());
                }
                if let Some(key) = state.take(lane) {
                    if !state.ready[lane as usize].is_empty() {
                        // Another worker may be waiting: wake-ups do not add up.
                        changed.notify_one();
                    }
                    return key;
                }
                state.waiting.first().map(|(at, ..)| *at).filter(|_| lane == Lane::Usual)
            };
            match wake {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = changed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.notified().await,
            }
        }
    }

    /// Ends the work on a key.
    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        state.working.remove(key);
        if let Some(lane) = state.dirty.get(key).copied() {
            state.ready[lane as usize].push_back(key.clone());
            drop(state);
            self.changed[lane as usize].notify_one();
        }
    }

    /// Asks for another try of a key that failed, later each time.
    pub fn retry(&self, key: K) {
        let delay = {
            let mut state = self.state.lock();
            let failures = state.failures.entry(key.clone()).or_default();
            *failures += 1;
            FIRST_RETRY.saturating_mul(1 << (*failures - 1).min(16)).min(LONGEST_RETRY)
        };
        self.add_after(key, delay);
    }

    /// How long the key whose work began first has been in work.
    pub fn oldest_work(&self, now: Instant) -> Option<Duration> {
        self.state.lock().working.values().map(|since| now.duration_since(*since)).max()
    }

    /// Forgets the failures of a key.
    pub fn succeeded(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    /// Says whether a worker can start on it now.
    fn make_dirty(&mut self, key: K, lane: Lane) -> bool {
        if let Some((at, sequence)) = self.wake.remove(&key) {
            self.waiting.remove(&(at, sequence, key.clone()));
        }
        let known = self.dirty.get(&key).copied();
        if self.working.contains_key(&key) {
            self.dirty.insert(key, lane);
            return false;
        }
        if known >= Some(lane) {
            return false;
        }
        self.dirty.insert(key.clone(), lane);
        self.ready[lane as usize].push_back(key);
        true
    }

    fn release_due(&mut self, now: Instant) {
        while self.waiting.first().is_some_and(|(at, ..)| *at <= now) {
            if let Some((_, _, key)) = self.waiting.pop_first() {
                self.wake.remove(&key);
                self.make_dirty(key, Lane::Usual);
            }
        }
    }

    fn take(&mut self, lane: Lane) -> Option<K> {
        let key = loop {
            let key = self.ready[lane as usize].pop_front()?;
            // One that is worked on comes back when that is done.
            if self.dirty.get(&key) == Some(&lane) && !self.working.contains_key(&key) {
                break key;
            }
        };
        self.dirty.remove(&key);
        self.working.insert(key.clone(), Instant::now());
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keys_come_once_and_in_order() {
        let queue = Queue::new();
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        assert_eq!(queue.next().await, "b", "a is being worked on");
        queue.done(&"a");
        assert_eq!(queue.next().await, "a", "it was asked for meanwhile");
        queue.done(&"a");
        queue.done(&"b");
        let idle = tokio::time::timeout(Duration::from_hours(1), queue.next()).await;
        assert!(idle.is_err(), "nothing is left");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_does_not_stand_behind_the_rest() {
        let queue = Queue::new();
        let idle = async |lane| tokio::time::timeout(Duration::from_hours(1), queue.next_of(lane)).await.is_err();
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
        queue.add_to(Lane::Urgent, "b");
        queue.add("b");
        assert_eq!(queue.next_of(Lane::Urgent).await, "b");
        assert_eq!(queue.next().await, "a");
        assert_eq!(queue.next().await, "c", "b has changed lanes");
        // A key is with one worker at a time, whichever lane it is asked for in.
        queue.add_to(Lane::Urgent, "b");
        assert!(idle(Lane::Urgent).await);
        queue.done(&"b");
        assert_eq!(queue.next_of(Lane::Urgent).await, "b");
        queue.add_to(Lane::Urgent, "b");
        queue.add("b");
        queue.done(&"b");
        assert!(idle(Lane::Urgent).await, "it is not urgent any more");
        assert_eq!(queue.next().await, "b");
        queue.add_after("d", Duration::from_secs(1));
        assert!(idle(Lane::Urgent).await, "what waits comes in the usual lane");
        assert_eq!(queue.next().await, "d");
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_wish_wins() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.add_after("slow", Duration::from_mins(1));
        queue.add_after("slow", Duration::from_secs(90));
        queue.add_after("fast", Duration::from_secs(30));
        queue.add_after("fast", Duration::from_secs(10));
        assert_eq!(queue.next().await, "fast");
        assert_eq!(start.elapsed(), Duration::from_secs(10));
        assert_eq!(queue.next().await, "slow");
        assert_eq!(start.elapsed(), Duration::from_mins(1));
        queue.add_after("late", Duration::from_mins(1));
        queue.add("late");
        assert_eq!(queue.next().await, "late");
        assert_eq!(start.elapsed(), Duration::from_mins(1));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time() {
        let queue = Queue::new();
        let mut waits = Vec::new();
        for _ in 0..12 {
            let start = Instant::now();
            queue.retry("k");
            queue.next().await;
            queue.done(&"k");
            waits.push(start.elapsed());
        }
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!((waits[0], waits[11]), (FIRST_RETRY, LONGEST_RETRY));
        queue.succeeded(&"k");
        let start = Instant::now();
        queue.retry("k");
        queue.next().await;
        assert_eq!(start.elapsed(), FIRST_RETRY);
    }
}
