//! One round: from all that is known now to claims and nominations.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::ResourceExt;
use millpond_plan::fallback_offers;
use millpond_plan::market::Market;
use millpond_plan::model::{NodeState, PodId, Snapshot};
use millpond_plan::pack::Budget;
use millpond_plan::plan::{Outcome, Settings, Target};
use millpond_runtime::error::Result;
use millpond_runtime::events::Voice;
use millpond_runtime::meta::Key;
use serde_json::json;
use tokio::time::Instant;

use super::Intents;
use super::probe;
use super::waiting::{Expected, Waiting};
use crate::buffers::Fill;
use crate::capi::autoscale::{Seen, grow, is_group};
use crate::claims::claim_of;
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::metrics::{PROVISIONER, created_for};
use crate::promises::{PROMISED_ANNOTATION, said};
use crate::thinking::{in_the_background, thinking};

const NOMINATED: Voice = Voice { component: "millpond", action: "Plan", reason: "Nominated", warning: false };
const FAILED: Voice = Voice { component: "millpond", action: "Plan", reason: "FailedScheduling", warning: true };

/// Promises that are written at a time; the cluster's own limit on writes holds as well.
const AT_A_TIME: usize = 64;
/// So many pods of a claim get an event; the claim itself names them all.
const TOLD_OF_A_CLAIM: usize = 10;

/// A round of planning.
pub(super) struct Round<'c> {
    context: &'c Context,
    waiting: &'c Waiting,
    budget: Budget,
}

impl<'c> Round<'c> {
    pub(super) fn new(context: &'c Context, waiting: &'c Waiting, budget: Budget) -> Self {
        Self { context, waiting, budget }
    }

    /// Plans and acts; gives what it planned for, to be judged when no pod waits. None if more pods of a wave came while it
    /// planned: nothing is done then, and all of them are planned for together.
    pub(super) async fn run(self) -> Result<Option<Unjudged>> {
        let turn = self.context.turns.take().await;
        self.waiting.begin();
        let cluster = &self.context.cluster;
        let metrics = &self.context.metrics;
        let begun = Instant::now();
        let sizes = Seen::now(&cluster.machines);
        let Draft { snapshot, market, outcome, promised, claims, taken, bought } = thinking(|| self.draft());
        let planned = begun.elapsed();
        metrics.planned(PROVISIONER, planned);
        if !outcome.plan.new_nodes.is_empty() && self.waiting.has_outrun(begun) {
            tracing::debug!(pods = outcome.report.pods, ?planned, "more pods came, will plan for all of them");
            self.waiting.give_back();
            return Ok(None);
        }
        metrics.plan_made(&outcome.report);
        let (created, promises) = futures::join!(
            probe::create(self.context, &turn, claims, created_for::PODS),
            self.promise_all(promised.starting)
        );
        let created = created?;
        cluster.machines.meant.remember(&snapshot, &outcome);
        let grown = grow(self.context, &turn, &sizes, &snapshot, &outcome, &promised.new).await;
        if !outcome.plan.new_nodes.is_empty() {
            tracing::info!(
                pods = outcome.report.pods,
                nodes = outcome.plan.new_nodes.len(),
                cost_micros_hour =
                    (outcome.report.cost_after - outcome.report.cost_before.min(outcome.report.cost_after)) / 1000,
                "planned"
            );
        }
        let of_claims = created.iter().zip(&outcome.plan.new_nodes).filter(|(_, node)| !is_group(&snapshot, node.pool));
        if grown.failed || of_claims.into_iter().any(|(claim, _)| claim.is_none()) {
            // A limit was reached meanwhile, a write failed, or the first of several like it could not be launched.
            self.waiting.not_written();
        } else {
            self.waiting.written();
        }
        let fills = Fill::of_plan(&snapshot, &outcome);
        let short = fills.values().any(|fill| fill.lacking > 0);
        self.context.fills.set(fills);
        let news = self.waiting.end(hopeless(&snapshot, &outcome), expected(&snapshot, &outcome), short);
        for (key, why) in news {
            if let Some(pod) = cluster.pods.get(&key) {
                cluster.recorder.tell(&*pod, FAILED, why);
            }
        }
        for (claim, pods) in created.iter().zip(&promised.new) {
            claim.iter().for_each(|claim| self.tell(claim, pods));
        }
        promises?;
        let all = begun.elapsed();
        let written = all.saturating_sub(planned);
        tracing::debug!(pods = outcome.report.pods, ?taken, ?bought, ?planned, ?written, "a round ended");
        Ok(Some(Unjudged { snapshot, market }))
    }

    /// Decides.
    fn draft(&self) -> Draft {
        let begun = Instant::now();
        let snapshot = self.context.snapshot_for_pods();
        let taken = begun.elapsed();
        let market = self.context.market(&snapshot);
        let outcome = super::roomy::plan(&snapshot, &market, self.budget);
        let bought = begun.elapsed();
        let promised = promised(&snapshot, &outcome);
        let claims = self.claims(&snapshot, &market, &outcome, &promised);
        Draft { snapshot, market, outcome, promised, claims, taken, bought }
    }

    /// A claim for each planned node, in the plan's order, promised to its pods.
    fn claims(
        &self,
        snapshot: &Snapshot,
        market: &Market,
        outcome: &Outcome,
        promised: &Promised,
    ) -> Vec<Option<NodeClaim>> {
        let contents = fallback_offers::contents(snapshot, &outcome.plan);
        let mut intents = Intents::new(self.context, snapshot, market);
        let nodes = outcome.plan.new_nodes.iter().zip(&contents).zip(&promised.new);
        let claims = nodes.map(|((node, contents), pods)| {
            let mut claim = intents.claim(node, contents, None)?;
            if !pods.is_empty() {
                claim.annotations_mut().insert(PROMISED_ANNOTATION.to_owned(), said(pods));
            }
            Some(claim)
        });
        claims.collect()
    }

    /// Promises nodes that are starting to more pods.
    async fn promise_all(&self, pods_of: BTreeMap<String, Vec<Key>>) -> Result<()> {
        let promise = |(node, pods): (String, Vec<Key>)| async move { self.promise(&node, &pods).await };
        let promises = stream::iter(pods_of).map(promise);
        let written: Vec<Result<()>> = promises.buffer_unordered(AT_A_TIME).collect().await;
        written.into_iter().collect()
    }

    /// Promises a node that is starting to more pods.
    async fn promise(&self, node: &str, pods: &[Key]) -> Result<()> {
        let cluster = &self.context.cluster;
        let of_node = || cluster.nodes.get(&Key::new("", node)).and_then(|node| claim_of(cluster, &node));
        let Some(claim) = cluster.claims.get(&Key::new("", node)).or_else(of_node) else { return Ok(()) };
        let mut all = cluster.promises.pods_of(&claim);
        all.extend(pods.iter().filter(|pod| !all.contains(pod)).cloned().collect::<Vec<_>>());
        let patch = json!({"metadata": {"annotations": {PROMISED_ANNOTATION: said(&all)}}});
        match cluster.claims.patch_urgently(&Key::of(&*claim), &patch).await {
            Ok(_) => self.tell(claim.name(), pods),
            // The next round knows that it is gone.
            Err(error) if error.is_not_found() => self.waiting.not_written(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn tell(&self, claim: &str, pods: &[Key]) {
        let cluster = &self.context.cluster;
        for pod in pods.iter().take(TOLD_OF_A_CLAIM).filter_map(|pod| cluster.pods.get(pod)) {
            cluster.recorder.tell(&*pod, NOMINATED, format!("Pod should schedule on: nodeclaim/{claim}"));
        }
    }
}

/// What a plan was made for.
pub(super) struct Unjudged {
    snapshot: Snapshot,
    market: Arc<Market>,
}

impl Unjudged {
    /// Finds out how good the plan is, for the metrics. That takes longer than the plan, and all threads.
    pub(super) fn judge(self, context: &Context) {
        let metrics = Arc::clone(&context.metrics);
        in_the_background(move || {
            metrics.plan_judged(&millpond_plan::plan_on(&self.snapshot, &self.market, &Settings::default()).report);
        });
    }
}

/// What a round is about to do, and until when each step of deciding it took.
struct Draft {
    snapshot: Snapshot,
    market: Arc<Market>,
    outcome: Outcome,
    promised: Promised,
    claims: Vec<Option<NodeClaim>>,
    taken: Duration,
    bought: Duration,
}

/// Which nodes that are yet to come are for which pods. On others the scheduler puts pods by itself.
struct Promised {
    /// For each new node of the plan.
    new: Vec<Vec<Key>>,
    /// For nodes that are starting, by name.
    starting: BTreeMap<String, Vec<Key>>,
}

fn promised(snapshot: &Snapshot, outcome: &Outcome) -> Promised {
    let mut promised = Promised { new: vec![Vec::new(); outcome.plan.new_nodes.len()], starting: BTreeMap::new() };
    for &(pod, target) in real(snapshot, outcome) {
        match target {
            Target::New(node) => promised.new[node as usize].push(key(snapshot, pod)),
            Target::Existing(node) => {
                let node = &snapshot.nodes[node.index()];
                if node.state == NodeState::Starting {
                    promised.starting.entry(node.name.clone()).or_default().push(key(snapshot, pod));
                }
            }
        }
    }
    promised
}

/// Where pods go, but for those of buffers: nobody is told about them.
fn real<'o>(snapshot: &'o Snapshot, outcome: &'o Outcome) -> impl Iterator<Item = &'o (PodId, Target)> {
    outcome.plan.placements.iter().filter(|(pod, _)| !snapshot.class_of(*pod).is_buffer())
}

/// Pods without a place, and why.
fn hopeless(snapshot: &Snapshot, outcome: &Outcome) -> HashMap<Key, String> {
    let report = &outcome.report;
    let unplaced = report.unplaced.iter().filter(|(pod, _)| !snapshot.class_of(*pod).is_buffer());
    let verdicts =
        unplaced.map(|&(pod, verdict)| (key(snapshot, pod), report.verdicts[verdict as usize].message.clone()));
    verdicts.collect()
}

/// Pods that the scheduler should bind by itself, and where: also to nodes of node groups, whose names nobody knows
/// beforehand.
fn expected(snapshot: &Snapshot, outcome: &Outcome) -> Expected {
    let node_of = |target: Target| match target {
        Target::Existing(node) => {
            let node = &snapshot.nodes[node.index()];
            let is_free = node.state == NodeState::Running || node.pool.is_some_and(|pool| is_group(snapshot, pool));
            is_free.then(|| node.name.clone())
        }
        Target::New(node) => is_group(snapshot, outcome.plan.new_nodes[node as usize].pool).then(String::new),
    };
    let placements = real(snapshot, outcome);
    placements.filter_map(|&(pod, target)| Some((key(snapshot, pod), node_of(target)?))).collect()
}

fn key(snapshot: &Snapshot, pod: PodId) -> Key {
    Key::new(snapshot.text(snapshot.class_of(pod).namespace), &snapshot.pods[pod.index()].name)
}
