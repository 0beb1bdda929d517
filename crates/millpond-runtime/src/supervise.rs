//! Loops that run as long as their process: one that panics is restarted, and one that panics repeatedly ends the
//! process in an orderly way. Liveness probes see which loops ended and which hang.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::panics;
use crate::queue::Queue;

/// The wait before a loop is started again; it doubles with each further panic.
const FIRST_RESTART: Duration = Duration::from_secs(1);
/// The longest wait before a restart.
const LONGEST_RESTART: Duration = Duration::from_secs(30);
/// Panics of one loop within [`REMEMBERED`] after which it is not started again.
const TOO_MANY: usize = 5;
/// See [`TOO_MANY`]. A loop that panics once an hour does its work in between.
const REMEMBERED: Duration = Duration::from_mins(10);

/// How long one round of a loop, or the work on one key, may take before the loop counts as hanging. Requests to an API
/// server are given up after 30 s, and a round makes many of them; a restart costs all that is under way.
const HANGS_AFTER: Duration = Duration::from_mins(15);

/// Tells for how long the oldest key of a queue has been worked on.
type Oldest = Box<dyn Fn(Instant) -> Option<Duration> + Send>;

#[derive(Default)]
struct State {
    /// The latest panics of each loop.
    panics: BTreeMap<&'static str, VecDeque<Instant>>,
    /// The loop that was given up, and its last panic.
    given_up: Option<(&'static str, String)>,
    /// Loops that returned although they were not stopped.
    ended: Vec<&'static str>,
    /// Rounds that are under way.
    rounds: BTreeMap<u64, (&'static str, Instant)>,
    /// The number of the next round.
    next: u64,
    queues: Vec<(&'static str, Oldest)>,
}

/// A round of a loop that is under way; it ends with this.
#[must_use]
pub struct Round {
    state: Arc<Mutex<State>>,
    number: u64,
}

impl Drop for Round {
    fn drop(&mut self) {
        self.state.lock().rounds.remove(&self.number);
    }
}

/// Supervises loops. Clones share what they know.
#[derive(Clone, Default)]
pub struct Supervisor {
    state: Arc<Mutex<State>>,
    failed: CancellationToken,
}

impl Supervisor {
    /// Runs a loop until it returns, or until the token is cancelled before a restart.
    pub async fn run(
        &self,
        name: &'static str,
        stop: &CancellationToken,
        mut start: impl FnMut() -> BoxFuture<'static, ()> + Send,
    ) {
        loop {
            // What a panic leaves half done is state of the loop, which is made for being killed at any await point.
            let ended = AssertUnwindSafe(panics::handled(async { start().await })).catch_unwind().await;
            let Err(panic) = ended else {
                if !stop.is_cancelled() {
                    self.ended(name);
                }
                return;
            };
            let message = panics::report(name, None, &*panic);
            let Some(wait) = self.panicked(name, message) else { return };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => tracing::warn!(controller = name, "starts again"),
            }
        }
    }

    /// Records a panic; returns the wait before the restart, or `None` if the loop is not restarted.
    fn panicked(&self, name: &'static str, message: String) -> Option<Duration> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let panics = state.panics.entry(name).or_default();
        panics.push_back(now);
        while panics.front().is_some_and(|at| now - *at >= REMEMBERED) {
            panics.pop_front();
        }
        let count = panics.len();
        if count < TOO_MANY {
            return Some(FIRST_RESTART.saturating_mul(1 << (count - 1)).min(LONGEST_RESTART));
        }
        tracing::error!(controller = name, panics = count, "given up: this process should end");
        state.given_up.get_or_insert((name, message));
        drop(state);
        self.failed.cancel();
        None
    }

    fn ended(&self, name: &'static str) {
        tracing::error!(controller = name, "ended although it was not stopped");
        self.state.lock().ended.push(name);
    }

    /// Notes that a loop begins a round, which ends when the answer is dropped.
    pub fn begin(&self, name: &'static str) -> Round {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.rounds.insert(number, (name, Instant::now()));
        Round { state: Arc::clone(&self.state), number }
    }

    /// Watches the keys of a queue while the queue exists.
    pub fn watch<K: Clone + Eq + Hash + Ord + Send + 'static>(&self, name: &'static str, queue: &Arc<Queue<K>>) {
        let queue = Arc::downgrade(queue);
        let oldest = move |now| queue.upgrade().and_then(|queue| queue.oldest_work(now));
        self.state.lock().queues.push((name, Box::new(oldest)));
    }

    /// Loops that ended although they were not stopped.
    pub fn stopped(&self) -> Vec<&'static str> {
        self.state.lock().ended.clone()
    }

    /// Loops that have been at one round or one key for too long, with how long.
    pub fn hanging(&self) -> Vec<(&'static str, Duration)> {
        let now = Instant::now();
        let state = self.state.lock();
        let rounds = state.rounds.values().map(|(name, since)| (*name, now.duration_since(*since)));
        let keys = state.queues.iter().filter_map(|(name, oldest)| Some((*name, oldest(now)?)));
        rounds.chain(keys).filter(|(_, time)| *time >= HANGS_AFTER).collect()
    }

    /// Ends when a loop was given up; gives its name and its last panic.
    pub async fn failed(&self) -> (&'static str, String) {
        self.failed.cancelled().await;
        self.given_up().unwrap_or_default()
    }

    /// The loop that was given up, and its last panic.
    pub fn given_up(&self) -> Option<(&'static str, String)> {
        self.state.lock().given_up.clone()
    }

    /// Loops that panicked within the last ten minutes, with how often.
    pub fn restarts(&self) -> Vec<(&'static str, usize)> {
        let now = Instant::now();
        let state = self.state.lock();
        let lately =
            |panics: &VecDeque<Instant>| panics.iter().filter(|at| now.duration_since(**at) < REMEMBERED).count();
        let all = state.panics.iter().map(|(name, panics)| (*name, lately(panics)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Runs a loop that panics at its first starts, some time after each; how often it was started, and the supervisor.
    async fn starts(panics: usize, every: Duration) -> (usize, Supervisor) {
        let (supervisor, stop) = (Supervisor::default(), CancellationToken::new());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let start = move || {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(every).await;
                assert!(number >= panics, "on purpose");
            }
            .boxed()
        };
        supervisor.run("test loop", &stop, start).await;
        (count.load(Ordering::Relaxed), supervisor)
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_ends_by_itself_is_named_and_one_that_was_stopped_is_not() {
        let (_, supervisor) = starts(0, Duration::ZERO).await;
        assert_eq!(supervisor.stopped(), ["test loop"]);
        let (supervisor, stop) = (Supervisor::default(), CancellationToken::new());
        stop.cancel();
        supervisor.run("test loop", &stop, || async {}.boxed()).await;
        assert!(supervisor.stopped().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_or_a_key_that_takes_too_long_hangs_until_it_ends() {
        let (supervisor, queue) = (Supervisor::default(), Arc::new(Queue::new()));
        supervisor.watch("keys", &queue);
        let short = Duration::from_secs(1);
        let round = supervisor.begin("rounds");
        tokio::time::advance(short).await;
        queue.add("key");
        let key = queue.next().await;
        tokio::time::advance(HANGS_AFTER - short).await;
        assert_eq!(supervisor.hanging(), [("rounds", HANGS_AFTER)]);
        drop(round);
        tokio::time::advance(short).await;
        assert_eq!(supervisor.hanging(), [("keys", HANGS_AFTER)]);
        queue.done(&key);
        assert!(supervisor.hanging().is_empty());
        // A key that waits does not hang, however long it waits.
        queue.add("key");
        tokio::time::advance(HANGS_AFTER * 2).await;
        assert!(supervisor.hanging().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_is_started_again() {
        let begun = Instant::now();
        let (starts, supervisor) = starts(3, Duration::ZERO).await;
        assert_eq!((starts, begun.elapsed().as_secs()), (4, 1 + 2 + 4));
        assert_eq!((supervisor.given_up(), supervisor.restarts()), (None, vec![("test loop", 3)]));
        assert!(panics::counts()["test loop"] >= 3);
        tokio::time::advance(REMEMBERED).await;
        assert!(supervisor.restarts().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_again_and_again_is_given_up() {
        let (count, supervisor) = starts(usize::MAX, Duration::ZERO).await;
        assert_eq!(count, TOO_MANY);
        assert_eq!(supervisor.failed().await, ("test loop", "on purpose".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_seldom_goes_on() {
        let (count, supervisor) = starts(20, Duration::from_mins(5)).await;
        assert_eq!((count, supervisor.given_up()), (21, None));
    }
}
