//! Disruption: removes nodes that are empty, drifted, expired, or cost more than their pods need.
//!
//! ```text
//!  marks ── lastPodEventTime, Consolidatable, Drifted      hashes ── of pools, for drift
//!    │
//!    ▼ changes, times seen coming
//!  watch ─▶ think: snapshot ─▶ plan with consolidation ─▶ decide: commands
//!                                                            │ start
//!             replacements (claims that name what they replace) ─▶ taint, condition
//!                                                            │ advance
//!             all replacements ready ─▶ verify ─▶ delete the claims; their end drains the nodes
//!                          │ lost, late, or something is in the way
//!                          └─▶ undo: taint and condition come off, replacements become nodes like any other
//! ```
//!
//! **Replacements are written first, then the taint.** A tainted node counts as leaving, so the provisioner would buy
//! nodes for its pods as well. With the replacements written first, there is capacity. A crash between the two writes
//! leaves replacements that name their command, and the command continues.
//!
//! **All state is in objects**, see [`command`]. A command without replacements is a taint, and the deletion a moment
//! later; a taint that belongs to no command is taken off again.
//!
//! **Decisions take turns.** The provisioner and the disruptor act one after the other, and a command about nodes that
//! changed since its plan was begun is dropped: the next plan is due anyway.
//!
//! Nothing in this module decides which nodes are removed: the planner does.

mod advance_commands;
mod claim_conditions;
pub mod command;
mod decide;
mod drift;
mod evaluate;
mod events;
mod execute;
mod hash;
mod node_backoff;
mod pod_events;
mod start_commands;
mod verify;
mod watch;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use claim_conditions::ClaimConditions;
pub use hash::Hashes;

use crate::context::Context;
use advance_commands::RunningCommands;
use events::ReportedReasons;
use node_backoff::NodeBackoffs;
use watch::Watch;

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(10);
/// The shortest time between two plans.
const SOONEST_AGAIN: Duration = Duration::from_secs(1);
/// Planning takes at most one part in this many of the time.
const SHARE: u32 = 10;
/// Wait before a failed operation is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Pods that the scheduler should bind at any moment are waited for this long. Later, it knows a reason that the planner
/// does not, and nodes need not stay for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The controller that removes nodes.
pub struct Disruptor {
    context: Arc<Context>,
    watch: Arc<Watch>,
    /// Nodes that are marked and go a moment later, without replacements.
    going: Vec<RunningCommands>,
    /// Claims that go once their replacements are ready. A replacement that cannot be had may be gone before it is
    /// looked at.
    replaced: HashSet<String>,
    backoffs: NodeBackoffs,
    reported: ReportedReasons,
    /// When commands are looked at again without a change.
    commands_due: Option<Instant>,
    /// When the passing of time alone may change the decision.
    plan_due: Option<Instant>,
    /// The earliest time of the next plan.
    not_before: Instant,
    /// Since when pending pods wait only for kube-scheduler.
    binding: Option<Instant>,
}

impl Disruptor {
    /// Subscribes to a cluster whose watches have not started.
    pub fn new(context: Arc<Context>) -> Self {
        let watch = Watch::listen(&context.cluster);
        Self {
            context,
            watch,
            going: Vec::new(),
            replaced: HashSet::new(),
            backoffs: NodeBackoffs::default(),
            reported: ReportedReasons::default(),
            commands_due: Some(Instant::now()),
            plan_due: None,
            not_before: Instant::now(),
            binding: None,
        }
    }

    /// Works until the token is cancelled; a step that is under way is finished.
    pub async fn run(&mut self, stop: CancellationToken) {
        loop {
            self.step().await;
            let next = earlier(self.commands_due, self.decision_due());
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.watch.changed() => tokio::time::sleep(GATHER).await,
                () = until(next) => {}
            }
        }
    }

    async fn step(&mut self) {
        let _round = self.context.cluster.supervisor.begin("disruption");
        let now = Instant::now();
        if self.watch.take_commands() || self.commands_due.is_some_and(|due| due <= now) {
            self.commands_due = self.advance().await;
        }
        if self.decision_due().is_some_and(|due| due <= Instant::now()) {
            self.decide().await;
        }
    }

    fn decision_due(&self) -> Option<Instant> {
        earlier(self.watch.due(), self.plan_due).map(|due| due.max(self.not_before))
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
