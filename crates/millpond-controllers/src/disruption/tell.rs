//! Events: why nodes stay, and that they go. Each is told once, until it changes.

use std::collections::HashMap;

use millpond_plan::disruption::Refusal;
use millpond_plan::model::{NodeState, Snapshot};
use millpond_runtime::events::Voice;
use millpond_runtime::meta::Key;

use crate::claims::{claim_of, node_of};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::kinds::NodeClaim;

const fn voice(reason: &'static str) -> Voice {
    Voice { component: "millpond", action: "Disrupt", reason, warning: false }
}

const BLOCKED: Voice = voice("DisruptionBlocked");
const UNCONSOLIDATABLE: Voice = voice("Unconsolidatable");
const LAUNCHING: Voice = voice("DisruptionLaunching");
const WAITING: Voice = voice("DisruptionWaitingReadiness");
const TERMINATING: Voice = voice("DisruptionTerminating");

/// What was told, of each node and pool.
#[derive(Default)]
pub(super) struct Told {
    nodes: HashMap<String, &'static str>,
    pools: HashMap<String, usize>,
}

impl Told {
    /// Tells of each node that stays why it does, where that is news.
    pub(super) fn refusals(
        &mut self,
        context: &Context,
        snapshot: &Snapshot,
        kept: &[Option<Refusal>],
        spared: &[bool],
    ) {
        let mut seen = HashMap::new();
        for ((node, refusal), spared) in snapshot.nodes.iter().zip(kept).zip(spared) {
            let Some(refusal) = refusal.as_ref().filter(|_| !spared && node.state == NodeState::Running) else {
                continue;
            };
            let Some(voice) = voice_of(refusal) else { continue };
            seen.insert(node.name.clone(), refusal.name());
            if self.nodes.get(&node.name) != Some(&refusal.name()) {
                about_node(context, &node.name, voice, &sentence(&refusal.sentence(snapshot)));
            }
        }
        self.nodes = seen;
        self.budgets(context, snapshot, kept);
    }

    /// Tells of each pool whose budgets allow nothing.
    fn budgets(&mut self, context: &Context, snapshot: &Snapshot, kept: &[Option<Refusal>]) {
        let mut seen = HashMap::new();
        for (node, refusal) in snapshot.nodes.iter().zip(kept) {
            let (Some(pool), Some(Refusal::Budget { allowed: 0, budget, .. })) = (node.pool, refusal) else { continue };
            let name = &snapshot.pools[pool.index()].name;
            if seen.insert(name.clone(), *budget).is_some() || self.pools.get(name) == Some(budget) {
                continue;
            }
            if let Some(pool) = context.pool(name) {
                let note = format!("No allowed disruptions due to blocking budget {}", budget + 1);
                context.news.tell(&*pool, BLOCKED, note);
            }
        }
        self.pools = seen;
    }
}

/// How a refusal is told; most pass by themselves, or are no news to anybody.
fn voice_of(refusal: &Refusal) -> Option<Voice> {
    match refusal {
        Refusal::NodeDoNotDisrupt
        | Refusal::PodDoNotDisrupt(..)
        | Refusal::PodWithoutOwner(_)
        | Refusal::Evictions(..)
        | Refusal::LeastNodes(_) => Some(BLOCKED),
        Refusal::ConsolidationOff
        | Refusal::OnlyWhenEmpty
        | Refusal::Unpriced
        | Refusal::NoPlace(..)
        | Refusal::NoSaving
        | Refusal::NotWorthwhile => Some(UNCONSOLIDATABLE),
        _ => None,
    }
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Tells it of a node, and of its claim.
fn about_node(context: &Context, name: &str, voice: Voice, note: &str) {
    let Some(node) = context.cluster.nodes.get(&Key::new("", name)) else { return };
    context.news.tell(&*node, voice, note);
    if let Some(claim) = claim_of(&context.cluster, &node) {
        context.news.tell(&*claim, voice, note);
    }
}

/// A command was undone.
pub(super) fn undone(cluster: &Cluster, claim: &NodeClaim, why: &str) {
    let note = sentence(why);
    if let Some(node) = node_of(cluster, claim) {
        cluster.recorder.tell(&*node, BLOCKED, note.as_str());
    }
    cluster.recorder.tell(claim, BLOCKED, note);
}

/// A replacement was written.
pub(super) fn launching(cluster: &Cluster, claim: &NodeClaim, reason: &str) {
    cluster.recorder.tell(claim, LAUNCHING, format!("Launching NodeClaim: {reason}"));
    cluster.recorder.tell(claim, WAITING, "Waiting on readiness to continue disruption");
}

/// A node goes.
pub(super) fn terminating(cluster: &Cluster, claim: &NodeClaim, reason: &str) {
    if let Some(node) = node_of(cluster, claim) {
        cluster.recorder.tell(&*node, TERMINATING, format!("Disrupting Node: {reason}"));
    }
    cluster.recorder.tell(claim, TERMINATING, format!("Disrupting NodeClaim: {reason}"));
}
