//! Events: why nodes cannot be disrupted, and that they are disrupted. Each is recorded once, until it changes.

use std::collections::HashMap;

use millpond_plan::disruption::DisruptionBlocker;
use millpond_plan::model::{NodeState, Snapshot};
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::Key;

use crate::claims::{claim_of, node_of};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::kinds::NodeClaim;

const fn event_reason(reason: &'static str) -> EventReason {
    EventReason { component: "millpond", action: "Disrupt", reason, warning: false }
}

const BLOCKED: EventReason = event_reason("DisruptionBlocked");
const UNCONSOLIDATABLE: EventReason = event_reason("Unconsolidatable");
const LAUNCHING: EventReason = event_reason("DisruptionLaunching");
const WAITING: EventReason = event_reason("DisruptionWaitingReadiness");
const TERMINATING: EventReason = event_reason("DisruptionTerminating");

/// The last recorded reason of each node and pool.
#[derive(Default)]
pub(super) struct ReportedReasons {
    nodes: HashMap<String, String>,
    pools: HashMap<String, usize>,
}

impl ReportedReasons {
    /// Records for each node that stays why it does, if the reason is new.
    pub(super) fn blockers(
        &mut self,
        context: &Context,
        snapshot: &Snapshot,
        kept: &[Option<DisruptionBlocker>],
        spared: &[bool],
    ) {
        let mut seen = HashMap::new();
        for ((node, blocker), spared) in snapshot.nodes.iter().zip(kept).zip(spared) {
            let Some(blocker) = blocker.as_ref().filter(|_| !spared && node.state == NodeState::Running) else {
                continue;
            };
            let Some(event_reason) = event_reason_of(blocker) else { continue };
            let note = sentence(&blocker.sentence(snapshot));
            if self.nodes.get(&node.name) != Some(&note) {
                about_node(context, &node.name, event_reason, &note);
            }
            seen.insert(node.name.clone(), note);
        }
        self.nodes = seen;
        self.budgets(context, snapshot, kept);
    }

    /// Records an event for each pool whose budgets allow no disruption.
    fn budgets(&mut self, context: &Context, snapshot: &Snapshot, kept: &[Option<DisruptionBlocker>]) {
        let mut seen = HashMap::new();
        for (node, blocker) in snapshot.nodes.iter().zip(kept) {
            let (Some(pool), Some(DisruptionBlocker::Budget { allowed: 0, budget, .. })) = (node.pool, blocker) else {
                continue;
            };
            let name = &snapshot.pools[pool.index()].name;
            if seen.insert(name.clone(), *budget).is_some() || self.pools.get(name) == Some(budget) {
                continue;
            }
            if let Some(pool) = context.pool(name) {
                let note = format!("No allowed disruptions due to blocking budget {}", budget + 1);
                context.events.record(&*pool, BLOCKED, note);
            }
        }
        self.pools = seen;
    }
}

/// The event for a blocker; most blockers are temporary and get no event.
fn event_reason_of(blocker: &DisruptionBlocker) -> Option<EventReason> {
    match blocker {
        DisruptionBlocker::NodeDoNotDisrupt
        | DisruptionBlocker::PodDoNotDisrupt(..)
        | DisruptionBlocker::PodWithoutOwner(_)
        | DisruptionBlocker::Evictions(..)
        | DisruptionBlocker::LeastNodes(_) => Some(BLOCKED),
        DisruptionBlocker::ConsolidationOff
        | DisruptionBlocker::Budget { together: true, .. }
        | DisruptionBlocker::OnlyWhenEmpty
        | DisruptionBlocker::Unpriced
        | DisruptionBlocker::NoPlace(..)
        | DisruptionBlocker::NoSaving
        | DisruptionBlocker::NotWorthwhile => Some(UNCONSOLIDATABLE),
        _ => None,
    }
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Records an event on a node and on its claim.
fn about_node(context: &Context, name: &str, event_reason: EventReason, note: &str) {
    let Some(node) = context.cluster.nodes.get(&Key::new("", name)) else { return };
    context.events.record(&*node, event_reason, note);
    if let Some(claim) = claim_of(&context.cluster, &node) {
        context.events.record(&*claim, event_reason, note);
    }
}

/// Records that a command was undone.
pub(super) fn undone(cluster: &Cluster, claim: &NodeClaim, why: &str) {
    let note = sentence(why);
    if let Some(node) = node_of(cluster, claim) {
        cluster.recorder.record(&*node, BLOCKED, note.as_str());
    }
    cluster.recorder.record(claim, BLOCKED, note);
}

/// Records that a replacement was written.
pub(super) fn launching(cluster: &Cluster, claim: &NodeClaim, reason: &str) {
    cluster.recorder.record(claim, LAUNCHING, format!("Launching NodeClaim: {reason}"));
    cluster.recorder.record(claim, WAITING, "Waiting on readiness to continue disruption");
}

/// Records that a node is being removed.
pub(super) fn terminating(cluster: &Cluster, claim: &NodeClaim, reason: &str) {
    if let Some(node) = node_of(cluster, claim) {
        cluster.recorder.record(&*node, TERMINATING, format!("Disrupting Node: {reason}"));
    }
    cluster.recorder.record(claim, TERMINATING, format!("Disrupting NodeClaim: {reason}"));
}
