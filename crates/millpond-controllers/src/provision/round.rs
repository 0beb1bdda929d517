//! One round of the provisioner: from a snapshot to claims and nominations.

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
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::Key;
use serde_json::json;
use tokio::time::Instant;

use super::ClaimBuilder;
use super::pending_pods::{Expected, PendingPods};
use super::probe;
use crate::blocking::{run_blocking, spawn_blocking};
use crate::buffers::Fill;
use crate::capi::autoscale::{ObservedSizes, is_group, scale_up};
use crate::claims::claim_of;
use crate::context::Context;
use crate::decisions;
use crate::kinds::NodeClaim;
use crate::metrics::{PROVISIONER, created_for};
use crate::nominations::{NOMINATED_PODS_ANNOTATION, annotation_value};

const NOMINATED: EventReason =
    EventReason { component: "millpond", action: "Plan", reason: "Nominated", warning: false };
const FAILED: EventReason =
    EventReason { component: "millpond", action: "Plan", reason: "FailedScheduling", warning: true };

/// Annotations that are written at a time; the cluster's own limit on writes holds as well.
const AT_A_TIME: usize = 64;
/// Limit on the pods of a claim that get an event; the claim's annotation lists all of them.
const MAX_EVENTS_PER_CLAIM: usize = 10;

/// A round of planning.
pub(super) struct Round<'c> {
    context: &'c Context,
    pending: &'c PendingPods,
    budget: Budget,
}

impl<'c> Round<'c> {
    pub(super) fn new(context: &'c Context, pending: &'c PendingPods, budget: Budget) -> Self {
        Self { context, pending, budget }
    }

    /// Plans and acts. Returns the plan, whose bound is proved later, when no pod waits; `None` if more pods of a wave
    /// came during planning: then nothing is written, and all of them are planned for together.
    pub(super) async fn run(self) -> Result<Option<UnprovedPlan>> {
        let turn = self.context.turns.take().await;
        self.pending.begin();
        let cluster = &self.context.cluster;
        let metrics = &self.context.metrics;
        let begun = Instant::now();
        let sizes = ObservedSizes::now(&cluster.machines);
        let RoundPlan { snapshot, market, outcome, settings, planned_pods, claims, taken, bought } =
            run_blocking(|| self.plan());
        let planned = begun.elapsed();
        metrics.planned(PROVISIONER, planned);
        if !outcome.plan.new_nodes.is_empty() && self.pending.has_outrun(begun) {
            tracing::debug!(pods = outcome.report.pods, ?planned, "more pods came, will plan for all of them");
            self.pending.requeue_round();
            return Ok(None);
        }
        metrics.plan_made(&outcome.report);
        let (created, nominations) = futures::join!(
            probe::create(self.context, &turn, claims, created_for::PODS),
            self.annotate_claims(planned_pods.starting)
        );
        let created = created?;
        cluster.machines.planned_placements.remember(&snapshot, &outcome);
        let mut decisions = Vec::new();
        decisions.extend(decisions::provisioned(self.context, &snapshot, &outcome, &created, &planned_pods.new));
        let scaled_up = scale_up(self.context, &turn, &sizes, &snapshot, &outcome, &planned_pods.new).await;
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
        if scaled_up.failed || of_claims.into_iter().any(|(claim, _)| claim.is_none()) {
            // A limit was reached meanwhile, a write failed, or the first of several like it could not be launched.
            self.pending.not_written();
        } else {
            self.pending.written();
        }
        let fills = Fill::of_plan(&snapshot, &outcome);
        let short = fills.values().any(|fill| fill.lacking > 0);
        self.context.fills.set(fills);
        let changed = self.pending.end(unschedulable(&snapshot, &outcome), expected(&snapshot, &outcome), short);
        decisions.extend(decisions::refused(self.context, &snapshot, &outcome, &changed));
        for (key, why) in changed {
            if let Some(pod) = cluster.pods.get(&key) {
                cluster.recorder.record(&*pod, FAILED, why);
            }
        }
        for (claim, pods) in created.iter().zip(&planned_pods.new) {
            claim.iter().for_each(|claim| self.record_nominations(claim, pods));
        }
        nominations?;
        let all = begun.elapsed();
        let written = all.saturating_sub(planned);
        tracing::debug!(pods = outcome.report.pods, ?taken, ?bought, ?planned, ?written, "a round ended");
        let snapshot = Arc::new(snapshot);
        let decided = decisions.first().copied();
        decisions::keep_snapshot(self.context, decisions, Arc::clone(&snapshot), settings);
        Ok(Some(UnprovedPlan { snapshot, market, decided }))
    }

    /// Makes the plan and its claims. No I/O.
    fn plan(&self) -> RoundPlan {
        let begun = Instant::now();
        let snapshot = self.context.snapshot_for_pods();
        let taken = begun.elapsed();
        let market = self.context.market(&snapshot);
        let (outcome, settings) = super::slack::plan(&snapshot, &market, self.budget);
        let bought = begun.elapsed();
        let planned_pods = planned_pods(&snapshot, &outcome);
        let claims = self.claims(&snapshot, &market, &outcome, &planned_pods);
        RoundPlan { snapshot, market, outcome, settings, planned_pods, claims, taken, bought }
    }

    /// A claim for each planned node, in the plan's order, with its pods in the annotation.
    fn claims(
        &self,
        snapshot: &Snapshot,
        market: &Market,
        outcome: &Outcome,
        planned_pods: &PlannedPods,
    ) -> Vec<Option<NodeClaim>> {
        let contents = fallback_offers::contents(snapshot, &outcome.plan);
        let mut builder = ClaimBuilder::new(self.context, snapshot, market);
        let nodes = outcome.plan.new_nodes.iter().zip(&contents).zip(&planned_pods.new);
        let claims = nodes.map(|((node, contents), pods)| {
            let mut claim = builder.claim(node, contents, None)?;
            if !pods.is_empty() {
                claim.annotations_mut().insert(NOMINATED_PODS_ANNOTATION.to_owned(), annotation_value(pods));
            }
            Some(claim)
        });
        claims.collect()
    }

    /// Adds more pods to the annotations of nodes that are starting.
    async fn annotate_claims(&self, pods_of: BTreeMap<String, Vec<Key>>) -> Result<()> {
        let annotate = |(node, pods): (String, Vec<Key>)| async move { self.annotate_claim(&node, &pods).await };
        let nominations = stream::iter(pods_of).map(annotate);
        let written: Vec<Result<()>> = nominations.buffer_unordered(AT_A_TIME).collect().await;
        written.into_iter().collect()
    }

    /// Adds more pods to the annotation of a node that is starting.
    async fn annotate_claim(&self, node: &str, pods: &[Key]) -> Result<()> {
        let cluster = &self.context.cluster;
        let of_node = || cluster.nodes.get(&Key::new("", node)).and_then(|node| claim_of(cluster, &node));
        let Some(claim) = cluster.claims.get(&Key::new("", node)).or_else(of_node) else { return Ok(()) };
        let mut all = cluster.nominations.pods_of(&claim);
        all.extend(pods.iter().filter(|pod| !all.contains(pod)).cloned().collect::<Vec<_>>());
        let patch = json!({"metadata": {"annotations": {NOMINATED_PODS_ANNOTATION: annotation_value(&all)}}});
        match cluster.claims.patch_urgently(&Key::of(&*claim), &patch).await {
            Ok(_) => self.record_nominations(claim.name(), pods),
            // The claim is gone, and the next round plans for its pods.
            Err(error) if error.is_not_found() => self.pending.not_written(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn record_nominations(&self, claim: &str, pods: &[Key]) {
        let cluster = &self.context.cluster;
        for pod in pods.iter().take(MAX_EVENTS_PER_CLAIM).filter_map(|pod| cluster.pods.get(pod)) {
            cluster.recorder.record(&*pod, NOMINATED, format!("Pod should schedule on: nodeclaim/{claim}"));
        }
    }
}

/// A plan whose bound is not proved yet.
pub(super) struct UnprovedPlan {
    snapshot: Arc<Snapshot>,
    market: Arc<Market>,
    /// The decision that was made by it, in the history.
    decided: Option<u64>,
}

impl UnprovedPlan {
    /// Proves the plan's lower bound, for the metrics. That takes longer than the plan, and uses all threads.
    pub(super) fn prove_bound(self, context: &Context) {
        let metrics = Arc::clone(&context.metrics);
        let history = context.cluster.options.history.clone();
        spawn_blocking(move || {
            let proved = millpond_plan::plan_on(&self.snapshot, &self.market, &Settings::default()).report;
            metrics.plan_proved(&proved);
            if let Some(number) = self.decided {
                history.set_bound(number, i64::try_from(proved.bound).unwrap_or(i64::MAX));
            }
        });
    }
}

/// The result of planning, with the times of its steps.
struct RoundPlan {
    snapshot: Snapshot,
    market: Arc<Market>,
    outcome: Outcome,
    settings: Settings,
    planned_pods: PlannedPods,
    claims: Vec<Option<NodeClaim>>,
    taken: Duration,
    bought: Duration,
}

/// Which nodes that are yet to come are for which pods. On others the scheduler puts pods by itself.
struct PlannedPods {
    /// For each new node of the plan.
    new: Vec<Vec<Key>>,
    /// For nodes that are starting, by name.
    starting: BTreeMap<String, Vec<Key>>,
}

fn planned_pods(snapshot: &Snapshot, outcome: &Outcome) -> PlannedPods {
    let mut planned_pods =
        PlannedPods { new: vec![Vec::new(); outcome.plan.new_nodes.len()], starting: BTreeMap::new() };
    for &(pod, target) in real(snapshot, outcome) {
        match target {
            Target::New(node) => planned_pods.new[node as usize].push(key(snapshot, pod)),
            Target::Existing(node) => {
                let node = &snapshot.nodes[node.index()];
                if node.state == NodeState::Starting {
                    planned_pods.starting.entry(node.name.clone()).or_default().push(key(snapshot, pod));
                }
            }
        }
    }
    planned_pods
}

/// Placements of real pods. Pods of buffers are left out: they get no events and no nominations.
fn real<'o>(snapshot: &'o Snapshot, outcome: &'o Outcome) -> impl Iterator<Item = &'o (PodId, Target)> {
    outcome.plan.placements.iter().filter(|(pod, _)| !snapshot.class_of(*pod).is_buffer())
}

/// Pods without a place, and why.
fn unschedulable(snapshot: &Snapshot, outcome: &Outcome) -> HashMap<Key, String> {
    let report = &outcome.report;
    let unplaced = report.unplaced.iter().filter(|(pod, _)| !snapshot.class_of(*pod).is_buffer());
    let verdicts =
        unplaced.map(|&(pod, verdict)| (key(snapshot, pod), report.verdicts[verdict as usize].message.clone()));
    verdicts.collect()
}

/// Pods that the scheduler should bind by itself, with their node; the nodes of node groups have no names yet.
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
