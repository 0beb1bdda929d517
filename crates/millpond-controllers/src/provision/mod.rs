//! Pods that wait bring nodes: gather, plan, write claims, tell the scheduler.
//!
//! ```text
//! pods wait ─▶ window ─▶ snapshot ─▶ plan ─▶ limits ─▶ claims (intent, promised to pods) ─▶ nominations
//! ```
//!
//! A round decides for all pods at once. What it planned stands in the claims, and is told to the scheduler through
//! `status.nominatedNodeName` before the node takes pods, so that what was planned is what happens; a promise whose node
//! will not come is taken back, and the next round looks at the pod anew.

mod batch_window;
mod new_claim;
mod nominate;
mod pending_pods;
mod probe;
mod round;
mod slack;
mod spread_order;

use std::sync::Arc;
use std::time::Duration;

use millpond_plan::pack::Budget;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use new_claim::{ALTERNATIVES, ClaimBuilder, NewClaim, counts_no_more};
pub use nominate::Nominations;
pub(crate) use nominate::nominate;
pub(crate) use spread_order::spreads;

use crate::context::Context;
use batch_window::{Announced, BatchWindow};
use pending_pods::PendingPods;
use round::{Round, UnverifiedPlan};

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
    pending: Arc<PendingPods>,
}

impl Provisioner {
    /// Listens to a cluster that is not watched yet.
    pub fn new(context: Arc<Context>) -> Self {
        let pending = PendingPods::listen(&context);
        Self { context, pending }
    }

    /// Plans until the token is cancelled; a round that is under way is finished.
    pub async fn run(&mut self, stop: CancellationToken) {
        // A round that was under way when this loop panicked did not act, or not on all of them.
        self.pending.requeue_round();
        let mut unjudged = None;
        let mut announced = Announced::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.until_due() => {}
                () = tokio::time::sleep(JUDGED_AFTER), if unjudged.is_some() => {
                    unjudged.take().into_iter().for_each(|plan: UnverifiedPlan| plan.verify(&self.context));
                    continue;
                }
            }
            let budget = if self.gather(&mut announced, &stop).await { Budget::default() } else { IN_A_HURRY };
            match Round::new(&self.context, &self.pending, budget).run().await {
                Ok(planned) => unjudged = planned.or(unjudged),
                Err(error) => {
                    tracing::warn!(%error, cause = error.cause(), "a round of planning failed, will try again");
                    self.pending.failed(Instant::now() + RETRY);
                }
            }
        }
    }

    /// Waits until a pending pod has not been planned for, or until a change may help the others.
    async fn until_due(&self) {
        loop {
            let changed = self.pending.changed();
            match self.pending.due(&self.context.reopenings()) {
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
        let Some(since) = self.pending.oldest_new_pod() else { return true };
        let cluster = &self.context.cluster;
        let mut window = BatchWindow::open(since, Instant::now(), announced.missing(cluster, Instant::now()));
        let mut seen = self.pending.arrivals();
        loop {
            let changed = self.pending.changed();
            let arrived = self.pending.arrivals();
            let now = Instant::now();
            window.look(now, arrived - seen, announced.missing(cluster, now), &self.pending.wave());
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
