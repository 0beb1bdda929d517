//! Life cycles run as long as their server: one that panics is reported and restarted, whatever object caused the
//! panic. None is given up: the server keeps responding, and the other life cycles keep working.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The wait before a life cycle is started again; it doubles with each further panic.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a restart.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// A life cycle that has worked for so long starts with the first wait again.
const CALM: Duration = Duration::from_mins(10);

/// Waits that grow from panic to panic.
pub(super) struct Backoff {
    next: Duration,
    last: Option<Instant>,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST_WAIT, last: None }
    }

    /// How long to wait after a panic that happened now.
    pub(super) fn wait(&mut self) -> Duration {
        if self.last.replace(Instant::now()).is_some_and(|last| last.elapsed() >= CALM) {
            self.next = FIRST_WAIT;
        }
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST_WAIT);
        wait
    }
}

/// Runs a life cycle until it returns, or until the server shuts down before a restart.
pub(super) async fn keep_running<F>(name: &'static str, shutdown: &CancellationToken, mut start: impl FnMut() -> F)
where
    F: Future<Output = ()>,
{
    let mut backoff = Backoff::new();
    // A panic can leave only the state of the life cycle half done, and that state is created anew.
    while let Err(panic) = AssertUnwindSafe(async { start().await }).catch_unwind().await {
        let wait = backoff.wait();
        tracing::error!(life_cycle = name, panic = message(&*panic), ?wait, "a life cycle panicked, will start again");
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Reports a job that panicked; false if it ended as it should, or was aborted.
pub(super) fn has_panicked(job: Result<(), JoinError>) -> bool {
    let Some(panic) = job.err().and_then(|error| error.try_into_panic().ok()) else { return false };
    tracing::error!(panic = message(&*panic), "a job of a life cycle panicked, will look at everything again");
    true
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_life_cycle_that_panics_is_started_again_and_never_given_up() {
        let (begun, starts, shutdown) = (Instant::now(), AtomicUsize::new(0), CancellationToken::new());
        keep_running("test", &shutdown, || async {
            assert!(starts.fetch_add(1, Ordering::Relaxed) >= 20, "on purpose");
        })
        .await;
        assert_eq!(starts.load(Ordering::Relaxed), 21);
        assert_eq!(begun.elapsed().as_secs(), 1 + 2 + 4 + 8 + 16 + 32 + 14 * 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_life_cycle_is_not_started_again_once_the_server_ends() {
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        keep_running("test", &shutdown, || async { panic!("on purpose") }).await;
    }

    #[tokio::test]
    async fn only_a_panic_of_a_job_is_one() {
        assert!(!has_panicked(Ok(())));
        assert!(has_panicked(tokio::spawn(async { panic!("on purpose") }).await));
        let aborted = tokio::spawn(std::future::pending::<()>());
        aborted.abort();
        assert!(!has_panicked(aborted.await));
    }
}
