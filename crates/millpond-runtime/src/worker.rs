//! Running a controller: keys from a queue, a bounded number at a time, until told to stop.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::meta::Key;
use crate::queue::{Lane, Queue};

/// A key is not looked at again sooner than this without a change, so that a controller that
/// always wants to look again cannot stop the clock of a paused runtime.
const SOONEST_AGAIN: Duration = Duration::from_millis(1);

/// Something that brings one object, named by its key, to where it should be.
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
            tasks.join_next().await;
        }
        let key = tokio::select! {
            biased;
            () = token.cancelled() => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            key = queue.next_of(lane) => key,
        };
        tasks.spawn(step(Arc::clone(&queue), key));
    }
    while tasks.join_next().await.is_some() {}
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
    match controller.reconcile(key).await {
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
