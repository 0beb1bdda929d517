//! Advances running commands: waits for replacements, verifies once more, deletes; or rolls back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use millpond_api::condition::find;
use millpond_api::karpenter::conditions;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving};
use tokio::time::Instant;

use super::command::{Candidate, CandidateState, Command, Failure, Next, Stage, commands, next, stage};
use super::execute::{forget, mark, node_name_of, sight, standing, unmark};
use super::node_backoff::After;
use super::verify::{Group, verify};
use super::{Disruptor, RETRY, earlier, events};
use crate::blocking::run_blocking;
use crate::claims::claim_of;
use crate::cluster::is_our_class;
use crate::decisions;
use crate::kinds::NodeClaim;
use crate::turn::Turn;

/// Within this time a bind that kube-scheduler had begun when the node was tainted becomes visible. Then nodes that are
/// removed without replacements are checked again.
const SETTLE: Duration = Duration::from_secs(1);
/// Nodes that are written at a time; the cluster's own limit on writes holds as well.
pub(super) const AT_A_TIME: usize = 32;

/// Commands that remove nodes without replacements.
pub(super) struct RunningCommands {
    pub(super) command: Command,
    /// When their nodes were marked.
    pub(super) since: Instant,
}

impl Disruptor {
    /// Brings every command on by a step; tells when to look again without a change.
    pub(super) async fn advance(&mut self) -> Option<Instant> {
        let mut due = None;
        let mut ready = Vec::new();
        let all = commands(&self.context.cluster.claims.list());
        let candidates = all.iter().flat_map(|command| &command.candidates);
        let mut known: HashSet<String> = candidates.map(|candidate| candidate.name.clone()).collect();
        for command in all {
            let done = match self.next(&command) {
                Next::Finish => self.forget_all(&command).await,
                Next::Undo(failure) => {
                    let after = if failure == Failure::Late { After::Timeout } else { After::Change };
                    self.undo(&command, failure.words(), after).await
                }
                Next::Mark => self.mark_all(&command).await,
                Next::Wait(left) => {
                    due = earlier(due, Some(Instant::now() + left));
                    Ok(())
                }
                Next::Verify => {
                    ready.push(command);
                    Ok(())
                }
            };
            due = earlier(due, again(done));
        }
        let now = Instant::now();
        let (settled, waiting): (Vec<RunningCommands>, Vec<RunningCommands>) =
            std::mem::take(&mut self.going).into_iter().partition(|going| going.since + SETTLE <= now);
        self.going = waiting;
        let unsettled = self.going.iter().flat_map(|going| &going.command.candidates);
        known.extend(unsettled.map(|candidate| candidate.name.clone()));
        due = earlier(due, self.going.iter().map(|going| going.since + SETTLE).min());
        ready.extend(settled.into_iter().map(|going| going.command));
        due = earlier(due, again(self.complete(ready).await));
        earlier(due, again(self.heal(&known).await))
    }

    fn next(&self, command: &Command) -> Next {
        let cluster = &self.context.cluster;
        let candidates: Vec<CandidateState> =
            command.candidates.iter().map(|candidate| sight(cluster, candidate)).collect();
        let replacements: Vec<Stage> = command.replacements.iter().map(|claim| stage(claim)).collect();
        let created = command.replacements.iter().filter_map(|claim| claim.metadata.creation_timestamp.as_ref());
        let age = created.map(|time| time.0).min().map_or(Duration::ZERO, |created| {
            Duration::try_from(cluster.clock.now().duration_since(created)).unwrap_or_default()
        });
        next(&candidates, &replacements, command.wanted, age)
    }

    /// Handles commands whose replacements are ready: removes the nodes that may still be removed, and undoes the other
    /// commands.
    async fn complete(&mut self, ready: Vec<Command>) -> Result<()> {
        if ready.is_empty() {
            return Ok(());
        }
        // The check stays valid until the claims are deleted, because other deciders wait for the lock.
        let context = Arc::clone(&self.context);
        let turn = context.turns.take().await;
        let verdicts = self.verify(&ready);
        let mut outcome = Ok(());
        let mut going: Vec<(Arc<NodeClaim>, String)> = Vec::new();
        for (command, verdict) in ready.iter().zip(verdicts) {
            match verdict {
                Ok(()) => going.extend(command.candidates.iter().filter_map(|candidate| {
                    Some((standing(&self.context.cluster, candidate)?, candidate.reason.clone()))
                })),
                Err(why) => outcome = outcome.and(self.undo(command, &why, After::Change).await),
            }
        }
        let deleted: Vec<Result<()>> = stream::iter(going)
            .map(|(claim, reason)| self.delete(&turn, claim, reason))
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        deleted.into_iter().fold(outcome, Result::and)
    }

    fn verify(&self, commands: &[Command]) -> Vec<Result<(), String>> {
        let cluster = &self.context.cluster;
        let snapshot = self.context.snapshot();
        let ids: HashMap<&str, usize> =
            snapshot.nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
        let group = |command: &Command| -> Group {
            let node = |candidate: &Candidate| {
                let name = node_name_of(cluster, &*standing(cluster, candidate)?)?;
                ids.get(name.as_str()).map(|&index| (index.into(), candidate.reason()))
            };
            command.candidates.iter().filter_map(node).collect()
        };
        let groups: Vec<Group> = commands.iter().map(group).collect();
        run_blocking(|| verify(&snapshot, &groups))
    }

    async fn delete(&self, turn: &Turn<'_>, claim: Arc<NodeClaim>, reason: String) -> Result<()> {
        let cluster = &self.context.cluster;
        turn.delete(cluster, &claim).await?;
        tracing::info!(claim = claim.name(), reason, "node goes");
        events::terminating(cluster, &claim, &reason);
        self.context.metrics.claim_disrupted(&claim, &reason);
        Ok(())
    }

    async fn mark_all(&self, command: &Command) -> Result<()> {
        for candidate in &command.candidates {
            mark(&self.context.cluster, candidate).await?;
        }
        Ok(())
    }

    /// Lets the nodes of a command stay, and its replacements be nodes like any other.
    pub(super) async fn undo(&mut self, command: &Command, why: &str, after: After) -> Result<()> {
        let cluster = Arc::clone(&self.context.cluster);
        for claim in command.candidates.iter().filter_map(|candidate| standing(&cluster, candidate)) {
            tracing::info!(claim = claim.name(), why, "command undone, node stays");
            events::undone(&cluster, &claim, why);
            decisions::undone(&cluster, &claim, why);
            if let Some(node) = node_name_of(&cluster, &claim) {
                self.backoffs.add(&node, after);
            }
            unmark(&cluster, &claim).await?;
        }
        self.plan_due = earlier(self.plan_due, self.backoffs.next());
        // Last: as long as replacements name the command, it is found again after a crash.
        self.forget_all(command).await
    }

    async fn forget_all(&self, command: &Command) -> Result<()> {
        for replacement in command.replacements.iter().filter(|claim| !is_leaving(&***claim)) {
            forget(&self.context.cluster, replacement).await?;
        }
        Ok(())
    }

    /// Removes taints and conditions that belong to no command: the controller that wrote them is gone.
    async fn heal(&mut self, known: &HashSet<String>) -> Result<()> {
        let cluster = Arc::clone(&self.context.cluster);
        let lost: HashSet<String> = self.replaced.extract_if(|name| !known.contains(name)).collect();
        let tainted = self.watch.tainted().into_iter().filter_map(|name| {
            let node = cluster.nodes.get(&Key::new("", &name)).filter(|node| !is_leaving(&**node))?;
            claim_of(&cluster, &node)
        });
        let marked = |claim: &Arc<NodeClaim>| find(&claim.status.conditions, conditions::DISRUPTION_REASON).is_some();
        let marked = cluster.claims.list().into_iter().filter(marked);
        let orphans = tainted.chain(marked).filter(|claim| {
            !is_leaving(&**claim) && is_our_class(&claim.spec.node_class_ref) && !known.contains(claim.name())
        });
        for claim in orphans.collect::<Vec<_>>() {
            tracing::info!(claim = claim.name(), "it was marked to go by a command that is no more");
            if lost.contains(claim.name()) {
                events::undone(&cluster, &claim, Failure::Lost.words());
                if let Some(node) = node_name_of(&cluster, &claim) {
                    self.backoffs.add(&node, After::Change);
                    self.plan_due = earlier(self.plan_due, self.backoffs.next());
                }
            }
            unmark(&cluster, &claim).await?;
        }
        Ok(())
    }
}

/// When to retry, if something failed.
fn again(outcome: Result<()>) -> Option<Instant> {
    let error = outcome.err()?;
    if error.is_expected() {
        tracing::debug!(%error, "will try again");
    } else {
        tracing::warn!(%error, cause = error.cause(), "a command could not be brought on, will try again");
    }
    Some(Instant::now() + RETRY)
}
