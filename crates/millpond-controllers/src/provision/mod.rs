//! Pods that wait bring nodes: gather, plan, write claims, tell the scheduler.
//!
//! ```text
//! pods wait ─▶ window ─▶ snapshot ─▶ plan ─▶ limits ─▶ claims (intent) ─▶ nominations
//! ```
//!
//! A round decides for all pods at once. What it planned is told to the scheduler through
//! `status.nominatedNodeName`, so that what was planned is what happens; a nomination whose node will not come is taken
//! back, and the next round looks at the pod anew.

mod intent;
mod nominate;
mod round;
mod waiting;
mod window;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use intent::{ALTERNATIVES, Intent, Intents, counts_no_more};
pub use nominate::Nominations;
pub use round::Round;

use crate::context::Context;
use waiting::Waiting;
use window::Window;

/// Pods without a place are planned for again this long after something changed, not sooner.
const SOONEST_AGAIN: Duration = Duration::from_secs(1);
/// Offerings that were out of stock are not probed more often than this: each probe is a claim that may fail.
const SOONEST_PROBE: Duration = Duration::from_mins(1);
/// A failed round is tried again after this.
const RETRY: Duration = Duration::from_secs(1);

/// Plans for pods that wait.
pub struct Provisioner {
    context: Arc<Context>,
    waiting: Arc<Waiting>,
}

impl Provisioner {
    /// Listens to a cluster that is not watched yet.
    pub fn new(context: Arc<Context>) -> Self {
        let waiting = Waiting::listen(&context);
        Self { context, waiting }
    }

    /// Plans until the token is cancelled; a round that is under way is finished.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.until_due() => {}
            }
            self.gather(&stop).await;
            let round = Round::new(&self.context, &self.waiting).run().await;
            if let Err(error) = round {
                tracing::warn!(%error, cause = error.cause(), "a round of planning failed, will try again");
                self.waiting.look_again(Instant::now() + RETRY);
            }
        }
    }

    /// Waits until somebody waits who was not looked at, or until something changed that may help the others.
    async fn until_due(&self) {
        loop {
            let changed = self.waiting.changed();
            match self.waiting.due(self.context.stock.next_probe()) {
                Some(due) if due <= Instant::now() => return,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => return,
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    /// Keeps the window open while pods keep coming.
    async fn gather(&self, stop: &CancellationToken) {
        if !self.waiting.has_fresh() {
            return;
        }
        let mut window = Window::open(Instant::now());
        let mut seen = self.waiting.arrivals();
        loop {
            let closes = window.closes(window::more_announced(&self.context.cluster));
            let changed = self.waiting.changed();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(closes) => return,
                () = changed => {}
            }
            let arrived = self.waiting.arrivals();
            if arrived != seen {
                seen = arrived;
                window.arrived(Instant::now());
            }
        }
    }
}
