//! Runs a controller: takes keys from a queue, a bounded number at a time, until it is stopped. A key whose reconcile
//! panics is reported, counted ([`crate::panics`]) and retried like one that failed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::meta::Key;
use crate::panics;
use crate::queue::{Lane, Queue};

/// A key is not looked at again sooner than this without a change, so that a controller that
/// always wants to look again cannot stop the clock of a paused runtime.
const SOONEST_AGAIN: Duration = Duration::from_millis(1);

/// Brings one object, named by its key, to its desired state.
pub trait Reconcile: Send + Sync + 'static {
    /// The name in log lines.
    const NAME: &'static str;

    /// Does what is to be done now; the answer says when to look again without being asked.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Option<Duration>>> + Send;
}

/// Works off a queue until the token is cancelled; what is under way then is finished first.
pub fn run<R: Reconcile>(
    controller: Arc<R>,
    queue: Arc<Queue<Key>>,
    concurrency: usize,
    token: CancellationToken,
) -> BoxFuture<'static, ()> {
    run_lane(controller, queue, Lane::Usual, concurrency, token)
}

/// Works off one lane of a queue.
pub fn run_lane<R: Reconcile>(
    controller: Arc<R>,
    queue: Arc<Queue<Key>>,
    lane: Lane,
    concurrency: usize,
    token: CancellationToken,
) -> BoxFuture<'static, ()> {
    let step: Step = Box::new(move |queue, key| step(Arc::clone(&controller), queue, key).boxed());
    work_off(step, queue, lane, concurrency, token).boxed()
}

/// Looks at one key. Boxed, as tasks are, so that the loop below is made once for all controllers.
type Step = Box<dyn Fn(Arc<Queue<Key>>, Key) -> BoxFuture<'static, ()> + Send + Sync>;

async fn work_off(step: Step, queue: Arc<Queue<Key>>, lane: Lane, concurrency: usize, token: CancellationToken) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() >= concurrency.max(1) {
            ended(tasks.join_next().await);
        }
        let key = tokio::select! {
            biased;
            () = token.cancelled() => break,
            task = tasks.join_next(), if !tasks.is_empty() => {
                ended(task);
                continue;
            }
            key = queue.next_of(lane) => key,
        };
        tasks.spawn(step(Arc::clone(&queue), key));
    }
    while let Some(task) = tasks.join_next().await {
        ended(Some(task));
    }
}

/// Panics of a reconcile are caught where its key is known: what is left are faults of this module.
fn ended(task: Option<std::result::Result<(), JoinError>>) {
    if let Some(Err(error)) = task {
        tracing::error!(%error, "a task of a worker was lost");
    }
}

/// Gives a key back to its queue, also when the work on it panics.
struct Working {
    queue: Arc<Queue<Key>>,
    key: Key,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}

async fn step<R: Reconcile>(controller: Arc<R>, queue: Arc<Queue<Key>>, key: Key) {
    let working = Working { queue, key };
    let Working { queue, key } = &working;
    tracing::trace!(controller = R::NAME, %key, "looking");
    // What a panic leaves half done is no different from what a kill leaves half done.
    let work = panics::handled(async { controller.reconcile(key).await });
    let outcome = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => {
            panics::report(R::NAME, Some(key), &*panic);
            return queue.retry(key.clone());
        }
    };
    match outcome {
        Ok(again) => {
            queue.succeeded(key);
            if let Some(delay) = again {
                queue.add_after(key.clone(), delay.max(SOONEST_AGAIN));
            }
        }
        Err(error) => {
            if error.is_expected() {
                tracing::debug!(controller = R::NAME, %key, %error, "will try again");
            } else {
                let cause = error.cause();
                tracing::warn!(controller = R::NAME, %key, %error, cause, "failed, will try again");
            }
            queue.retry(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;

    /// Panics with one key, at first.
    #[derive(Default)]
    struct Shaky {
        tries: AtomicUsize,
        others: AtomicUsize,
    }

    impl Reconcile for Shaky {
        const NAME: &'static str = "shaky";

        async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
            if key.name == "bad" {
                assert!(self.tries.fetch_add(1, Ordering::Relaxed) >= 4, "on purpose");
            } else {
                self.others.fetch_add(1, Ordering::Relaxed);
            }
            Ok(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_panics_is_counted_and_tried_again_with_back_off() {
        let (controller, queue, stop) = (Arc::new(Shaky::default()), Arc::new(Queue::new()), CancellationToken::new());
        let running = tokio::spawn(run(Arc::clone(&controller), Arc::clone(&queue), 2, stop.clone()));
        let begun = Instant::now();
        queue.add(Key::new("", "bad"));
        while controller.tries.load(Ordering::Relaxed) < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let waits = Duration::from_millis(20 + 40 + 80 + 160);
        assert!(begun.elapsed() >= waits && begun.elapsed() < waits * 2, "{:?}", begun.elapsed());
        queue.add(Key::new("", "good"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(controller.others.load(Ordering::Relaxed), 1);
        assert_eq!(panics::counts()["shaky"], 4);
        stop.cancel();
        running.await.unwrap();
    }
}
