//! Loops that run for as long as their process: one that panics is started again, and one that panics again and again ends
//! the process in good order.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::panics;

/// The wait before a loop is started again; it doubles with each further panic.
const FIRST_RESTART: Duration = Duration::from_secs(1);
/// No wait is longer.
const LONGEST_RESTART: Duration = Duration::from_secs(30);
/// Panics of one loop within [`REMEMBERED`] after which it is not started again.
const TOO_MANY: usize = 5;
/// See [`TOO_MANY`]. A loop that panics once an hour does its work in between.
const REMEMBERED: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
struct State {
    /// The latest panics of each loop.
    panics: BTreeMap<&'static str, VecDeque<Instant>>,
    /// The loop that was given up, and its last panic.
    given_up: Option<(&'static str, String)>,
}

/// Supervises loops. Clones share what they know.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    state: Arc<Mutex<State>>,
    failed: CancellationToken,
}

impl Supervisor {
    /// Runs a loop until it ends by itself, or the token is cancelled while it waits to be started again.
    pub async fn run(
        &self,
        name: &'static str,
        stop: &CancellationToken,
        mut start: impl FnMut() -> BoxFuture<'static, ()> + Send,
    ) {
        loop {
            // What a panic leaves half done is state of the loop, which is made for being killed at any await point.
            let ended = AssertUnwindSafe(panics::handled(async { start().await })).catch_unwind().await;
            let Err(panic) = ended else { return };
            let message = panics::report(name, None, &*panic);
            let Some(wait) = self.panicked(name, message) else { return };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => tracing::warn!(controller = name, "starts again"),
            }
        }
    }

    /// Notes a panic; gives the wait before the next start, or none if there is no further one.
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
