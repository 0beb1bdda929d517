//! Starts commands: writes their replacements, then taints the nodes that will be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use millpond_plan::disruption::{BudgetLedger, REASONS};
use millpond_plan::fallback_offers;
use millpond_plan::model::{DisruptionReason, NodeId, PoolId, Snapshot};
use millpond_plan::plan::Settings;
use millpond_runtime::error::{Error, Result};
use millpond_runtime::history::Decision;
use millpond_runtime::meta::{Key, is_leaving};
use tokio::time::Instant;

use super::advance_commands::{AT_A_TIME, RunningCommands};
use super::command::{Candidate, Command, REPLACES_ANNOTATION, Replaces};
use super::decide::{CommandDraft, PendingPods, drafts, next_look, pending_pods, price_limit};
use super::evaluate::Evaluation;
use super::execute::mark;
use super::node_backoff::After;
use super::{Disruptor, PATIENCE, SHARE, SOONEST_AGAIN, earlier, events};
use crate::blocking::run_blocking;
use crate::claims::claim_of;
use crate::cluster::is_our_class;
use crate::decisions;
use crate::kinds::NodeClaim;
use crate::limits;
use crate::metrics::DISRUPTION;
use crate::provision::ClaimBuilder;
use crate::static_pools;
use crate::turn::Turn;

/// A command before anything is written.
struct Start {
    candidates: Vec<Candidate>,
    replacements: Vec<NodeClaim>,
    /// Nodes that it depends on.
    nodes: BTreeSet<String>,
    savings: i128,
    /// What the history is told once it is under way.
    decision: Decision,
}

impl Start {
    /// The reason in metrics and events: that of its first node.
    fn reason(&self) -> &str {
        self.candidates.first().map_or("", |candidate| &candidate.reason)
    }
}

impl Disruptor {
    /// Plans, and starts the commands that may start now.
    pub(super) async fn decide(&mut self) {
        self.watch.begin();
        let begun = Instant::now();
        let snapshot = self.context.snapshot();
        let held = self.backoffs.names();
        let steady = static_pools::steady(&self.context.cluster);
        let evaluation = run_blocking(|| Evaluation::new(snapshot, &held, &steady));
        let took = begun.elapsed();
        self.context.metrics.planned(DISRUPTION, took);
        self.not_before = Instant::now() + SOONEST_AGAIN.max(took * SHARE);
        self.plan_due = self.next_plan(&evaluation);
        self.note_budgets(&evaluation.snapshot);
        self.reported.blockers(&self.context, &evaluation.snapshot, &evaluation.kept, &evaluation.spared);
        if self.defer_to_pending_pods(&evaluation) {
            return;
        }
        let starts = self.starts(&evaluation);
        if !starts.is_empty() {
            let decided = self.start(starts).await;
            let settings = Settings { consolidate: true, ..Settings::default() };
            decisions::keep_snapshot(&self.context, decided, Arc::new(evaluation.snapshot), settings);
        }
    }

    /// When the passing of time alone may change the decision.
    fn next_plan(&self, evaluation: &Evaluation) -> Option<Instant> {
        let clock = &self.context.cluster.clock;
        let look =
            [next_look(&evaluation.snapshot, &evaluation.kept), evaluation.wave_ends].into_iter().flatten().min();
        let look = look.and_then(|then| jiff::Timestamp::from_second(then).ok());
        let look = look.map(|then| Instant::now() + clock.until(then));
        let stock = self.context.stock_outs.next_probe().map(|wait| Instant::now() + wait);
        earlier(earlier(look, stock), self.backoffs.next())
    }

    fn note_budgets(&self, snapshot: &Snapshot) {
        let ledger = BudgetLedger::new(snapshot);
        for (index, pool) in snapshot.pools.iter().enumerate() {
            let id = PoolId::from(index);
            let all = snapshot.nodes.iter().filter(|node| node.pool == Some(id)).count() as u64;
            for reason in REASONS {
                let nodes = ledger.allowance(id, reason).nodes.unwrap_or(all);
                self.context.metrics.allowed_disruptions(&pool.name, reason.name(), nodes);
            }
        }
    }

    /// Whether pods wait for which something is about to happen: then all looks different in a moment.
    fn defer_to_pending_pods(&mut self, evaluation: &Evaluation) -> bool {
        let now = Instant::now();
        match pending_pods(&evaluation.snapshot, &evaluation.plan) {
            PendingPods::None => {
                self.binding = None;
                false
            }
            PendingPods::Binding => {
                let since = *self.binding.get_or_insert(now);
                let patient = since + PATIENCE > now;
                if patient {
                    self.plan_due = earlier(self.plan_due, Some(since + PATIENCE));
                }
                patient
            }
            // If they are not bought, the claims change, and that triggers the next decision.
            PendingPods::Buying => {
                self.plan_due = earlier(self.plan_due, Some(now + PATIENCE));
                true
            }
        }
    }

    /// The commands of a thought, with all that is to be written for them.
    fn starts(&self, evaluation: &Evaluation) -> Vec<Start> {
        let (snapshot, market) = (&evaluation.snapshot, &evaluation.market);
        let contents = fallback_offers::contents(snapshot, &evaluation.plan);
        let mut claims_to_write = ClaimBuilder::new(&self.context, snapshot, market);
        let mut starts = Vec::new();
        for draft in drafts(snapshot, &evaluation.plan, &evaluation.buffers) {
            let replacement = |&index: &u32| {
                let node = &evaluation.plan.new_nodes[index as usize];
                let most = price_limit(&draft, node.price);
                claims_to_write.claim(node, &contents[index as usize], most)
            };
            let replacements: Option<Vec<NodeClaim>> = draft.new_nodes.iter().map(replacement).collect();
            starts.extend(replacements.and_then(|claims| self.start_of(snapshot, &draft, claims)));
        }
        let mut zones = static_pools::Zones::new(snapshot);
        for &(node, reason) in &evaluation.fixed {
            let draft = CommandDraft { nodes: vec![(node, reason)], ..CommandDraft::default() };
            let claim =
                snapshot.nodes[node.index()].pool.and_then(|pool| zones.claim(&self.context, snapshot, market, pool));
            starts.extend(claim.and_then(|claim| self.start_of(snapshot, &draft, vec![claim])));
        }
        for &node in &evaluation.never_initialized {
            let draft = CommandDraft { nodes: vec![(node, DisruptionReason::Expired)], ..CommandDraft::default() };
            starts.extend(self.start_of(snapshot, &draft, Vec::new()));
        }
        starts
    }

    fn start_of(&self, snapshot: &Snapshot, draft: &CommandDraft, mut replacements: Vec<NodeClaim>) -> Option<Start> {
        let candidate = |&(node, reason): &(NodeId, DisruptionReason)| self.candidate(snapshot, node, reason);
        let candidates: Vec<Candidate> = draft.nodes.iter().map(candidate).collect::<Option<_>>()?;
        let replaces = Replaces { claims: candidates.clone(), replacements: replacements.len() };
        let text = serde_json::to_string(&replaces).ok()?;
        for claim in &mut replacements {
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(REPLACES_ANNOTATION.to_owned(), text.clone());
        }
        let nodes = draft.nodes.iter().map(|(node, _)| node).chain(&draft.receivers);
        let nodes = nodes.map(|node| snapshot.nodes[node.index()].name.clone()).collect();
        let going = draft.nodes.iter().zip(&candidates).map(|(&(node, reason), claim)| (node, reason, &*claim.name));
        let coming = replacements.len();
        let decision = decisions::disrupted(&self.context.cluster, snapshot, going, coming, draft.savings);
        Some(Start { candidates, replacements, nodes, savings: draft.savings, decision })
    }

    /// The claim behind a node that goes; `None` if the node belongs to another controller's claim.
    fn candidate(&self, snapshot: &Snapshot, node: NodeId, reason: DisruptionReason) -> Option<Candidate> {
        let cluster = &self.context.cluster;
        let node = cluster.nodes.get(&Key::new("", &snapshot.nodes[node.index()].name))?;
        let claim = claim_of(cluster, &node)?;
        let is_known = self.context.clouds.unknown(&*claim).is_none();
        let ours = is_our_class(&claim.spec.node_class_ref) && !is_leaving(&*claim) && is_known;
        let uid = claim.metadata.uid.clone().filter(|_| ours)?;
        Some(Candidate { name: claim.name().to_owned(), uid, reason: reason.name().to_owned() })
    }

    /// Writes replacements and marks, for what has not changed since it was planned.
    /// Gives back the numbers of what was decided.
    async fn start(&mut self, mut starts: Vec<Start>) -> Vec<u64> {
        let mut decided = Vec::new();
        let context = Arc::clone(&self.context);
        let turn = context.turns.take().await;
        starts.retain(|start| !self.watch.is_stale(start.nodes.iter().map(String::as_str)));
        let mut by_reason: BTreeMap<String, Vec<Start>> = BTreeMap::new();
        for start in starts {
            by_reason.entry(start.reason().to_owned()).or_default().push(start);
        }
        for (reason, starts) in by_reason {
            match self.replace(&turn, &reason, starts).await {
                Ok(started) => decided.extend(self.mark_started(started).await),
                Err(error) => {
                    tracing::warn!(%error, cause = error.cause(), "replacements not written, will plan again");
                    self.plan_due = earlier(self.plan_due, Some(Instant::now() + super::RETRY));
                }
            }
        }
        // The watch will report what was written; then the commands advance.
        self.commands_due = Some(Instant::now());
        decided
    }

    /// Writes the replacements of commands; gives back those commands that have all of theirs.
    async fn replace(&mut self, turn: &Turn<'_>, reason: &str, starts: Vec<Start>) -> Result<Vec<Start>> {
        let wanted = starts.iter().flat_map(|start| start.replacements.iter().cloned().map(Some));
        let wanted: Vec<Option<NodeClaim>> = wanted.collect();
        if wanted.is_empty() {
            return Ok(starts);
        }
        let mut created = limits::create(&self.context, turn, wanted, reason).await?.into_iter();
        let mut complete = Vec::new();
        for start in starts {
            let names: Vec<Option<String>> = created.by_ref().take(start.replacements.len()).collect();
            if names.iter().all(Option::is_some) {
                complete.push(start);
            } else {
                tracing::info!(claims = ?names_of(&start), "a limit leaves no room for all replacements");
                self.give_up(turn, &start, names.into_iter().flatten()).await?;
            }
        }
        Ok(complete)
    }

    /// Some of a command's replacements were not written: the others are not needed.
    async fn give_up(&mut self, turn: &Turn<'_>, start: &Start, written: impl Iterator<Item = String>) -> Result<()> {
        start.nodes.iter().for_each(|node| self.backoffs.add(node, After::Change));
        self.plan_due = earlier(self.plan_due, self.backoffs.next());
        let cluster = &self.context.cluster;
        for claim in written.filter_map(|name| cluster.claims.get(&Key::new("", &name))) {
            turn.delete(cluster, &claim).await?;
        }
        Ok(())
    }

    /// Marks the nodes of commands whose replacements were written, or that need none.
    async fn mark_started(&mut self, started: Vec<Start>) -> Vec<u64> {
        let cluster = Arc::clone(&self.context.cluster);
        let mut decided = Vec::new();
        for start in &started {
            self.report(start);
            decided.push(decisions::started(&cluster, start.decision.clone(), &start.replacements));
            if !start.replacements.is_empty() {
                self.replaced.extend(start.candidates.iter().map(|candidate| candidate.name.clone()));
            }
        }
        let write = |candidate: Candidate| {
            let cluster = Arc::clone(&cluster);
            async move { mark(&cluster, &candidate).await.map_err(|error| (candidate.name, error)) }
        };
        let candidates = started.iter().flat_map(|start| start.candidates.iter().cloned());
        let marked: Vec<Result<(), (String, Error)>> =
            stream::iter(candidates.collect::<Vec<_>>()).map(write).buffer_unordered(AT_A_TIME).collect().await;
        let mut failed = BTreeSet::new();
        for (claim, error) in marked.into_iter().filter_map(Result::err) {
            tracing::warn!(claim, %error, cause = error.cause(), "not marked");
            failed.insert(claim);
        }
        for mut start in started.into_iter().filter(|start| start.replacements.is_empty()) {
            start.candidates.retain(|candidate| !failed.contains(&candidate.name));
            let command = Command { candidates: start.candidates, replacements: Vec::new(), wanted: 0 };
            self.going.push(RunningCommands { command, since: Instant::now() });
        }
        decided
    }

    fn report(&self, start: &Start) {
        let cluster = &self.context.cluster;
        let (reason, nodes, replacements) = (start.reason(), start.candidates.len(), start.replacements.len());
        tracing::info!(
            reason,
            claims = ?names_of(start),
            replacements,
            savings_micros_hour = (start.savings / 1000) as i64,
            "command started"
        );
        self.context.metrics.disruption_decided(reason, nodes, replacements);
        for claim in &start.replacements {
            if let Some(claim) = cluster.claims.get(&Key::of(claim)) {
                events::launching(cluster, &claim, reason);
            }
        }
    }
}

fn names_of(start: &Start) -> Vec<&str> {
    start.candidates.iter().map(|candidate| candidate.name.as_str()).collect()
}
