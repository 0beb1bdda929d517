//! The provisioner: gathers pending pods, plans, writes claims, nominates pods.
//!
//! ```text
//! pods wait ─▶ window ─▶ snapshot ─▶ plan ─▶ limits ─▶ claims (with their pods) ─▶ nominations
//! ```
//!
//! A round plans for all pods at once. The plan is stored in the claims, and passed to the scheduler through
//! `status.nominatedNodeName` before the node takes pods, so that the scheduler follows the plan. A nomination whose
//! node will not come is withdrawn, and the next round plans for the pod anew.

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
pub use nominate::Nominator;
pub(crate) use nominate::nominate;
pub(crate) use spread_order::spreads;

use crate::context::Context;
use batch_window::{Announced, BatchWindow};
use pending_pods::PendingPods;
use round::{Round, UnprovedPlan};

/// Pods without a place are planned for again this long after something changed, not sooner.
const SOONEST_AGAIN: Duration = Duration::from_secs(1);
/// If other pods may have taken the capacity of pods that kube-scheduler should bind to existing nodes, a new round
/// plans for them this long after the last one: meanwhile kube-scheduler binds the rest.
const SOONEST_DISPLACED: Duration = Duration::from_millis(50);
/// The bound of a plan is proved when no other plan was made for this long.
const PROVE_AFTER: Duration = Duration::from_secs(1);
/// Budget of a plan while pods keep coming: new pods wait for the plan that is being made, and fill what it leaves
/// empty, so a longer search would cost more than it saves.
const IN_A_HURRY: Budget = Budget { evaluations: 500, threads: 1 };
/// Wait before a failed round is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// Plans for pending pods.
pub struct Provisioner {
    context: Arc<Context>,
    pending: Arc<PendingPods>,
}

impl Provisioner {
    /// Registers its listeners; the watches must not have started yet.
    pub fn new(context: Arc<Context>) -> Self {
        let pending = PendingPods::listen(&context);
        Self { context, pending }
    }

    /// Plans until the token is cancelled; a round that is under way is finished.
    pub async fn run(&mut self, stop: CancellationToken) {
        // A round that was running when this loop panicked did not act, or not on all of its pods.
        self.pending.requeue_round();
        let mut unproved = None;
        let mut announced = Announced::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.until_due() => {}
                () = tokio::time::sleep(PROVE_AFTER), if unproved.is_some() => {
                    unproved.take().into_iter().for_each(|plan: UnprovedPlan| plan.prove_bound(&self.context));
                    continue;
                }
            }
            let budget = if self.gather(&mut announced, &stop).await { Budget::default() } else { IN_A_HURRY };
            let _round = self.context.cluster.supervisor.begin("provisioner");
            match Round::new(&self.context, &self.pending, budget).run().await {
                Ok(planned) => unproved = planned.or(unproved),
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

    /// Keeps the window open while pods keep coming, up to a limit; returns whether they have stopped coming.
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
