//! Work queues: each key at most once, one worker at a time per key, with delays and back-off.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first wait after a failure; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(20);
/// No key waits longer than this for its next try, so that a cured fault is noticed soon.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

struct State<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, or to be put there when their worker is done.
    dirty: HashSet<K>,
    working: HashSet<K>,
    waiting: BTreeSet<(Instant, u64, K)>,
    /// The entry of each key in `waiting`.
    wake: HashMap<K, (Instant, u64)>,
    failures: HashMap<K, u32>,
    sequence: u64,
}

/// A queue of keys.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            working: HashSet::new(),
            waiting: BTreeSet::new(),
            wake: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for work on a key as soon as possible.
    pub fn add(&self, key: K) {
        let mut state = self.state.lock();
        if state.make_dirty(key) {
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Asks for work on a key after a while; an earlier wish for the same key stands.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.state.lock();
        if state.dirty.contains(&key) {
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
        self.changed.notify_one();
    }

    /// Takes the next key, waiting for one; give it back with [`Self::done`].
    pub async fn next(&self) -> K {
        loop {
            let wake = {
                let mut state = self.state.lock();
                state.release_due(Instant::now());
                if let Some(key) = state.take() {
                    if !state.ready.is_empty() {
                        // Another worker may be waiting: wake-ups do not add up.
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.waiting.first().map(|(at, ..)| *at)
            };
            match wake {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Ends the work on a key.
    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        state.working.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.changed.notify_one();
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

    /// Forgets the failures of a key.
    pub fn succeeded(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    /// Says whether a worker can start on it now.
    fn make_dirty(&mut self, key: K) -> bool {
        if let Some((at, sequence)) = self.wake.remove(&key) {
            self.waiting.remove(&(at, sequence, key.clone()));
        }
        if !self.dirty.insert(key.clone()) || self.working.contains(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn release_due(&mut self, now: Instant) {
        while self.waiting.first().is_some_and(|(at, ..)| *at <= now) {
            if let Some((_, _, key)) = self.waiting.pop_first() {
                self.wake.remove(&key);
                self.make_dirty(key);
            }
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.working.insert(key.clone());
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
