//! One round: from all that is known now to claims and nominations.

use std::collections::{HashMap, HashSet};

use millpond_plan::alternatives;
use millpond_plan::market::Market;
use millpond_plan::model::{NodeState, PodId, Snapshot};
use millpond_plan::plan::{Outcome, Settings, Target};
use millpond_runtime::error::Result;
use millpond_runtime::events::Voice;
use millpond_runtime::meta::Key;
use tokio::time::Instant;

use super::Intents;
use super::nominate::nominate;
use super::waiting::Waiting;
use crate::buffers::Fill;
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::limits;
use crate::metrics::{PROVISIONER, created_for};

const NOMINATED: Voice = Voice { component: "millpond", action: "Plan", reason: "Nominated", warning: false };
const FAILED: Voice = Voice { component: "millpond", action: "Plan", reason: "FailedScheduling", warning: true };

/// A round of planning.
pub struct Round<'c> {
    context: &'c Context,
    waiting: &'c Waiting,
}

impl<'c> Round<'c> {
    pub(super) fn new(context: &'c Context, waiting: &'c Waiting) -> Self {
        Self { context, waiting }
    }

    /// Plans and acts.
    pub async fn run(self) -> Result<()> {
        let _turn = self.context.turn.lock().await;
        self.waiting.begin();
        let cluster = &self.context.cluster;
        let metrics = &self.context.metrics;
        let begun = Instant::now();
        let snapshot = self.context.snapshot();
        let market = Market::new(&snapshot);
        let outcome = millpond_plan::plan_on(&snapshot, &market, &Settings::default());
        let claims = self.claims(&snapshot, &market, &outcome);
        metrics.planned(PROVISIONER, begun.elapsed());
        metrics.plan_made(&outcome.report);
        let created = limits::create(self.context, claims, created_for::PODS).await?;
        let nominations = self.nominations(&snapshot, &outcome, &created);
        if !outcome.plan.new_nodes.is_empty() {
            tracing::info!(
                pods = outcome.report.pods,
                nodes = outcome.plan.new_nodes.len(),
                cost_micros_hour =
                    (outcome.report.cost_after - outcome.report.cost_before.min(outcome.report.cost_after)) / 1000,
                gap = outcome.report.gap(),
                "planned"
            );
        }
        if created.iter().any(Option::is_none) {
            // A limit was reached meanwhile, or a write failed.
            self.waiting.look_again(Instant::now() + super::RETRY);
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
        for (key, node) in &nominations {
            if let Some(pod) = cluster.pods.get(key) {
                cluster.recorder.tell(&*pod, NOMINATED, format!("Pod should schedule on: nodeclaim/{node}"));
            }
        }
        if !nominate(cluster, nominations).await {
            self.waiting.look_again(Instant::now() + super::RETRY);
        }
        Ok(())
    }

    /// A claim for each planned node, in the plan's order.
    fn claims(&self, snapshot: &Snapshot, market: &Market, outcome: &Outcome) -> Vec<Option<NodeClaim>> {
        let contents = alternatives::contents(snapshot, &outcome.plan);
        let mut intents = Intents::new(self.context, snapshot, market);
        let nodes = outcome.plan.new_nodes.iter().zip(&contents);
        nodes.map(|(node, contents)| intents.claim(node, contents, None)).collect()
    }

    /// Which pod was promised which node: those that are yet to come. Others the scheduler finds by itself.
    fn nominations(&self, snapshot: &Snapshot, outcome: &Outcome, created: &[Option<String>]) -> Vec<(Key, String)> {
        let mut nominations = Vec::new();
        for &(pod, target) in real(snapshot, outcome) {
            let node = match target {
                Target::New(node) => created.get(node as usize).cloned().flatten(),
                Target::Existing(node) => {
                    let node = &snapshot.nodes[node.index()];
                    (node.state == NodeState::Starting).then(|| node.name.clone())
                }
            };
            if let Some(node) = node {
                nominations.push((key(snapshot, pod), node));
            }
        }
        nominations
    }
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

/// Pods that the scheduler should bind by itself.
fn expected(snapshot: &Snapshot, outcome: &Outcome) -> HashSet<Key> {
    let is_running = |target: Target| match target {
        Target::Existing(node) => snapshot.nodes[node.index()].state == NodeState::Running,
        Target::New(_) => false,
    };
    let placements = real(snapshot, outcome).filter(|(_, target)| is_running(*target));
    placements.map(|(pod, _)| key(snapshot, *pod)).collect()
}

fn key(snapshot: &Snapshot, pod: PodId) -> Key {
    Key::new(snapshot.text(snapshot.class_of(pod).namespace), &snapshot.pods[pod.index()].name)
}
