//! Pods that wait bring nodes: gather, plan, write claims, tell the scheduler.
//!
//! ```text
//! pods wait ─▶ window ─▶ snapshot ─▶ plan ─▶ limits ─▶ claims (intent, promised to pods) ─▶ nominations
//! ```
//!
//! A round decides for all pods at once. What it planned stands in the claims, and is told to the scheduler through
//! `status.nominatedNodeName` before the node takes pods, so that what was planned is what happens; a promise whose node
//! will not come is taken back, and the next round looks at the pod anew.

mod intent;
mod nominate;
mod probe;
mod roomy;
mod round;
mod turns;
mod waiting;
mod window;

use std::sync::Arc;
use std::time::Duration;

use millpond_plan::pack::Budget;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use intent::{ALTERNATIVES, Intent, Intents, counts_no_more};
pub use nominate::Nominations;
pub(crate) use nominate::nominate;
pub(crate) use turns::spreads;

use crate::context::Context;
use round::{Round, Unjudged};
use waiting::Waiting;
use window::{Announced, Window};

/// Pods without a place are planned for again this long after something changed, not sooner.
const SOONEST_AGAIN: Duration = Duration::from_secs(1);
/// Pods that the scheduler should bind to nodes that are there, and whose room others may have taken, are planned for again
/// this long after the last round: meanwhile it binds the rest.
const SOONEST_DISPLACED: Duration = Duration::from_millis(50);
/// How good a plan is, is found out when no other was made for this long.
const JUDGED_AFTER: Duration = Duration::from_secs(1);
/// While pods come without an end, those who come next wait for the plan that is being made, and fill what it leaves
/// empty: to search longer would cost more than it saves.
const IN_A_HURRY: Budget = Budget { evaluations: 500, threads: 1 };
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
    pub async fn run(&mut self, stop: CancellationToken) {
        // A round that was under way when this loop panicked did not act, or not on all of them.
        self.waiting.give_back();
        let mut unjudged = None;
        let mut announced = Announced::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.until_due() => {}
                () = tokio::time::sleep(JUDGED_AFTER), if unjudged.is_some() => {
                    unjudged.take().into_iter().for_each(|plan: Unjudged| plan.judge(&self.context));
                    continue;
                }
            }
            let budget = if self.gather(&mut announced, &stop).await { Budget::default() } else { IN_A_HURRY };
            match Round::new(&self.context, &self.waiting, budget).run().await {
                Ok(planned) => unjudged = planned.or(unjudged),
                Err(error) => {
                    tracing::warn!(%error, cause = error.cause(), "a round of planning failed, will try again");
                    self.waiting.failed(Instant::now() + RETRY);
                }
            }
        }
    }

    /// Waits until somebody waits who was not looked at, or until something changed that may help the others.
    async fn until_due(&self) {
        loop {
            let changed = self.waiting.changed();
            match self.waiting.due(&self.context.reopenings()) {
                Some(due) if due <= Instant::now() => return,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => return,
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    /// Keeps the window open while pods keep coming, but not for ever; says whether they have come to an end.
    async fn gather(&self, announced: &mut Announced, stop: &CancellationToken) -> bool {
        let Some(since) = self.waiting.fresh_since() else { return true };
        let cluster = &self.context.cluster;
        let mut window = Window::open(since, Instant::now(), announced.missing(cluster, Instant::now()));
        let mut seen = self.waiting.arrivals();
        loop {
            let changed = self.waiting.changed();
            let arrived = self.waiting.arrivals();
            let now = Instant::now();
            window.look(now, arrived - seen, announced.missing(cluster, now), &self.waiting.wave());
            seen = arrived;
            tokio::select! {
                biased;
                () = stop.cancelled() => return true,
                () = tokio::time::sleep_until(window.closes()) => return window.is_quiet(Instant::now()),
                () = changed => {}
            }
        }
    }
}
