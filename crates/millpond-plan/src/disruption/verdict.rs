//! Why a node stays or is removed.

use super::budget::REASONS;
use super::consolidate::{Consolidated, consolidate};
use super::eligible::{Accounts, DisruptionBlocker};
use crate::market::Market;
use crate::model::{DisruptionReason, NodeId, NodeState, PoolId, Seconds, Snapshot};
use crate::plan::{Outcome, Removal, Settings};
use crate::solve;

/// What a plan with consolidation does to a node, and why.
#[derive(Debug)]
pub struct NodeVerdict {
    /// The step that removes the node, with the nodes removed and bought together; `None` if it stays.
    pub removal: Option<Removal>,
    /// Why the node stays, if it does: the blocker that explains it best.
    pub blocker: Option<DisruptionBlocker>,
    /// For each reason, whether the node could be considered for it now, before its pods are looked at.
    pub reasons: [(DisruptionReason, Result<(), DisruptionBlocker>); 4],
    /// The whole plan, for the names of the replacements.
    pub outcome: Outcome,
}

/// What a plan with consolidation does to each node.
#[derive(Debug)]
pub struct NodeVerdicts {
    /// The whole plan.
    pub outcome: Outcome,
    kept: Vec<Option<DisruptionBlocker>>,
    /// The accounts before the plan.
    accounts: Accounts,
}

/// The verdict on one node: it is removed, or it stays for a reason.
#[derive(Debug, Clone, Copy)]
pub struct VerdictRef<'v> {
    /// The step that removes the node, with the nodes removed and bought together; `None` if it stays.
    pub removal: Option<&'v Removal>,
    /// Why the node stays, if it does: the blocker that explains it best.
    pub blocker: Option<&'v DisruptionBlocker>,
}

/// Plans with consolidation, once for all nodes.
pub fn node_verdicts(snapshot: &Snapshot, settings: &Settings) -> NodeVerdicts {
    let market = Market::new(snapshot);
    let waiting = solve::plan_on(snapshot, &market, &Settings { consolidate: false, ..*settings });
    let mut accounts = Accounts::new(snapshot);
    accounts.keep_buffers(snapshot, &waiting.plan);
    let mut consolidated = consolidate(snapshot, &market, waiting, settings);
    name_binding_budgets(snapshot, &market, settings, &mut consolidated);
    let Consolidated { outcome, mut kept } = consolidated;
    for (index, (node, kept)) in snapshot.nodes.iter().zip(&mut kept).enumerate() {
        // For a node that is leaving this is the only reason, whatever manages it.
        if node.state == NodeState::Leaving {
            let blocked = accounts.drain_blocker(snapshot, NodeId::from(index));
            let blocked = blocked.map(|why| DisruptionBlocker::DrainBlocked(Box::new(why)));
            *kept = Some(blocked.unwrap_or(DisruptionBlocker::Leaving));
        }
    }
    NodeVerdicts { outcome, kept, accounts }
}

/// Of larger clusters only nodes that a budget refuses by itself are told to stay for it: planning twice would take
/// too long.
const MOST_PLANNED_TWICE: usize = 500;

/// Nodes that seem to stay because nothing is saved, though together with others they would go, stay for the budgets
/// that do not let so many go at once. That is found by planning again without budgets.
pub fn name_binding_budgets(
    snapshot: &Snapshot,
    market: &Market,
    settings: &Settings,
    consolidated: &mut Consolidated,
) {
    let accounts = Accounts::new(snapshot);
    let reason = DisruptionReason::Underutilized;
    let pool_of = |node: usize| snapshot.nodes[node].pool;
    let is_limited = |pool: PoolId| {
        let nodes = snapshot.nodes.iter().filter(|node| node.pool == Some(pool)).count() as u64;
        accounts.budgets.left(pool, reason).is_some_and(|left| left < nodes)
    };
    let asks = |blocker: &Option<DisruptionBlocker>| {
        matches!(blocker, Some(DisruptionBlocker::NoSaving | DisruptionBlocker::NoPlace(..)))
    };
    let asking: Vec<(usize, PoolId)> = (0..snapshot.nodes.len())
        .filter(|&node| asks(&consolidated.kept[node]))
        .filter_map(|node| Some((node, pool_of(node).filter(|pool| is_limited(*pool))?)))
        .collect();
    if asking.is_empty() || snapshot.nodes.len() > MOST_PLANNED_TWICE {
        return;
    }
    let mut free = snapshot.clone();
    free.pools.iter_mut().for_each(|pool| pool.disruption.budgets.clear());
    let waiting = solve::plan_on(&free, market, &Settings { consolidate: false, ..*settings });
    let freely = consolidate(&free, market, waiting, settings).outcome;
    if freely.report.cost_after >= consolidated.outcome.report.cost_after {
        return;
    }
    let goes: Vec<NodeId> = freely.plan.removals.iter().flat_map(|removal| removal.nodes.iter().copied()).collect();
    for (node, pool) in asking.into_iter().filter(|(node, _)| goes.contains(&NodeId::from(*node))) {
        let opens = accounts.budgets.opens(pool, reason, snapshot.now);
        let mut blocker = accounts.used_up(pool, reason, opens);
        if let DisruptionBlocker::Budget { together, .. } = &mut blocker {
            *together = true;
        }
        consolidated.kept[node] = Some(blocker);
    }
}

impl NodeVerdicts {
    /// The verdict on a node.
    pub fn of(&self, node: NodeId) -> VerdictRef<'_> {
        let removals = &self.outcome.plan.removals;
        let removal = removals.iter().find(|removal| removal.nodes.contains(&node));
        VerdictRef { removal, blocker: self.kept[node.index()].as_ref() }
    }
}

/// Plans with consolidation and returns the verdict on a node.
pub fn node_verdict(snapshot: &Snapshot, node: NodeId, settings: &Settings) -> NodeVerdict {
    let verdicts = node_verdicts(snapshot, settings);
    let VerdictRef { removal, blocker } = verdicts.of(node);
    let (removal, blocker) = (removal.cloned(), blocker.cloned());
    let reasons = REASONS.map(|reason| (reason, verdicts.accounts.eligible(snapshot, node, reason).map(|_| ())));
    NodeVerdict { removal, blocker, reasons, outcome: verdicts.outcome }
}

impl NodeVerdict {
    /// The earliest time at which the node may be considered, if only the passing of time blocks it.
    pub fn not_before(&self) -> Option<Seconds> {
        match self.blocker.as_ref()? {
            DisruptionBlocker::PodDoNotDisrupt(_, until) => *until,
            DisruptionBlocker::Unsettled(until) | DisruptionBlocker::DriftedLately(until) => Some(*until),
            DisruptionBlocker::Budget { opens, .. } => *opens,
            _ => None,
        }
    }

    /// The verdict on the node.
    pub fn verdict(&self) -> VerdictRef<'_> {
        VerdictRef { removal: self.removal.as_ref(), blocker: self.blocker.as_ref() }
    }

    /// Whether the node is removed by this plan or is being removed already.
    pub fn is_disruptable(&self) -> bool {
        self.verdict().is_disruptable()
    }

    /// The verdict as one sentence, without a final period.
    pub fn sentence(&self, snapshot: &Snapshot) -> String {
        format!("it {}: {}", if self.is_disruptable() { "goes" } else { "stays" }, self.why(snapshot))
    }

    /// Why the node is removed or stays: the part of the sentence after the colon.
    pub fn why(&self, snapshot: &Snapshot) -> String {
        self.verdict().why(snapshot)
    }
}

impl VerdictRef<'_> {
    /// Whether the node is removed by this plan or is being removed already.
    pub fn is_disruptable(&self) -> bool {
        let goes = matches!(self.blocker, Some(DisruptionBlocker::Leaving | DisruptionBlocker::DrainBlocked(_)));
        self.removal.is_some() || goes
    }

    /// Why the node is removed or stays, in words.
    pub fn why(&self, snapshot: &Snapshot) -> String {
        let Some(removal) = self.removal else {
            return self.blocker.unwrap_or(&DisruptionBlocker::NoSaving).sentence(snapshot);
        };
        let why = match removal.reason {
            DisruptionReason::Empty => "it has no pods",
            DisruptionReason::Drifted => "it is no longer what its pool asks for",
            DisruptionReason::Expired => "it is older than its pool allows",
            DisruptionReason::Underutilized => "its pods cost less elsewhere",
        };
        let others = match removal.nodes.len() - 1 {
            0 => String::new(),
            1 => ", together with another node".to_owned(),
            more => format!(", together with {more} other nodes"),
        };
        let instead = match removal.replacements.len() {
            0 => String::new(),
            1 => ", and a new node comes in its place".to_owned(),
            new => format!(", and {new} new nodes come in its place"),
        };
        format!("{why}{others}{instead}")
    }
}
