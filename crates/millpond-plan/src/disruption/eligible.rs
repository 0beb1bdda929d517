//! Whether a node may be disrupted, judged before a place for its pods is looked for.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::budget::BudgetLedger;
use super::pdb::{EvictionLedger, EvictionRefusal, Evictions};
use super::residents::Residents;
use crate::model::{
    Consolidation, DisruptionReason, DoNotDisrupt, Node, NodeId, NodeState, PodId, PodKind, PodState, Pool, PoolId,
    Seconds, Snapshot,
};
use crate::plan::{Plan, Rule, Target};

/// Why a node cannot be disrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisruptionBlocker {
    /// The node belongs to no pool.
    Unmanaged,
    /// The node is being removed already.
    Leaving,
    /// It goes already, and this keeps a pod of it from being evicted.
    DrainBlocked(Box<DisruptionBlocker>),
    /// It is not there yet.
    Starting(NodeId),
    /// It never became ready for pods.
    NotInitialized,
    /// The node has the annotation `karpenter.sh/do-not-disrupt`.
    NodeDoNotDisrupt,
    /// A pod has the annotation `karpenter.sh/do-not-disrupt`; the time is when it stops to apply.
    PodDoNotDisrupt(PodId, Option<Seconds>),
    /// A pod without a controller runs on it.
    PodWithoutOwner(PodId),
    /// The node is nominated for a pod.
    RoomKept(PodId),
    /// The plan puts pending pods on it.
    Promised,
    /// The node is kept for the pods of capacity buffers only.
    Buffer,
    /// A pod that topology rules of other pods count is still terminating.
    PodEnding(PodId),
    /// A PodDisruptionBudget allows no eviction of a pod, or no further one.
    Evictions(PodId, EvictionRefusal),
    /// Emptiness does not apply: the node has pods.
    NotEmpty,
    /// Underutilization does not apply: the node has no pods.
    IsEmpty,
    /// Drift does not apply: the node is what its pool would launch.
    NotDrifted,
    /// The node drifted a moment ago and is left alone until this time.
    DriftedLately(Seconds),
    /// Expiry does not apply: the node reaches its pool's age limit at this time.
    NotExpired(Option<Seconds>),
    /// The pool has a fixed number of nodes.
    FixedSize,
    /// Consolidation is disabled for the pool.
    ConsolidationOff,
    /// Pods came or left recently; `consolidateAfter` protects the node until this time.
    Unsettled(Seconds),
    /// The pool's consolidation policy removes empty nodes only.
    OnlyWhenEmpty,
    /// The pool's disruption budgets are used up.
    Budget {
        /// The pool.
        pool: PoolId,
        /// How many nodes may be away at once.
        allowed: u64,
        /// Nodes that are being removed or are not ready.
        busy: u64,
        /// Index of the budget that sets the limit.
        budget: usize,
        /// When the next node may be disrupted; `None` means that no such time is in sight.
        opens: Option<Seconds>,
        /// Why the schedule of the budget is invalid, if it is.
        error: Option<String>,
        /// Whether the node would go if more nodes were allowed to go with it.
        together: bool,
    },
    /// The pool would fall below its minimum number of nodes.
    LeastNodes(u64),
    /// The price of the node is not known, so no saving can be computed.
    Unpriced,
    /// A pod cannot be scheduled anywhere else.
    NoPlace(PodId, Rule),
    /// No cheaper way to run its pods was found.
    NoSaving,
    /// The saving is not worth the disruption (policy `Balanced`).
    NotWorthwhile,
}

/// A number with its noun in the right form.
fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

impl DisruptionBlocker {
    /// The variant's name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unmanaged => "Unmanaged",
            Self::Leaving => "Leaving",
            Self::DrainBlocked(_) => "DrainBlocked",
            Self::Starting(_) => "Starting",
            Self::NotInitialized => "NotInitialized",
            Self::NodeDoNotDisrupt => "NodeDoNotDisrupt",
            Self::PodDoNotDisrupt(..) => "PodDoNotDisrupt",
            Self::PodWithoutOwner(_) => "PodWithoutOwner",
            Self::RoomKept(_) => "RoomKept",
            Self::Promised => "Promised",
            Self::Buffer => "Buffer",
            Self::PodEnding(_) => "PodEnding",
            Self::Evictions(..) => "PodDisruptionBudget",
            Self::NotEmpty => "NotEmpty",
            Self::IsEmpty => "IsEmpty",
            Self::NotDrifted => "NotDrifted",
            Self::DriftedLately(_) => "DriftedLately",
            Self::NotExpired(_) => "NotExpired",
            Self::FixedSize => "FixedSize",
            Self::ConsolidationOff => "ConsolidationOff",
            Self::Unsettled(_) => "Unsettled",
            Self::OnlyWhenEmpty => "OnlyWhenEmpty",
            Self::Budget { .. } => "Budget",
            Self::LeastNodes(_) => "LeastNodes",
            Self::Unpriced => "Unpriced",
            Self::NoPlace(..) => "NoPlace",
            Self::NoSaving => "NoSaving",
            Self::NotWorthwhile => "NotWorthwhile",
        }
    }

    /// Whether the blocker only says that a reason does not apply to the node.
    pub fn is_inapplicable(&self) -> bool {
        matches!(self, Self::NotEmpty | Self::IsEmpty | Self::NotDrifted | Self::NotExpired(_))
    }

    /// The blocker as one sentence, without a final period.
    pub fn sentence(&self, snapshot: &Snapshot) -> String {
        let pod = |pod: &PodId| snapshot.pod_name(*pod);
        let budget_name = |index: u32| snapshot.disruption_budgets[index as usize].name.as_str();
        match self {
            Self::Unmanaged => "no pool manages it".to_owned(),
            Self::Leaving => "it is being removed already".to_owned(),
            Self::DrainBlocked(why) => format!("it is being removed and waits: {}", why.sentence(snapshot)),
            Self::Starting(node) => match &snapshot.nodes[node.index()].waits_for {
                Some(what) => format!("it is still starting: {what}"),
                None => "it is still starting".to_owned(),
            },
            Self::NotInitialized => "it has not become ready for pods yet".to_owned(),
            Self::NodeDoNotDisrupt => "it is annotated `karpenter.sh/do-not-disrupt`".to_owned(),
            Self::PodDoNotDisrupt(one, None) => format!("pod {} is annotated `karpenter.sh/do-not-disrupt`", pod(one)),
            Self::PodDoNotDisrupt(one, Some(until)) => {
                format!("pod {} asked not to be disrupted until {}", pod(one), time(*until))
            }
            Self::PodWithoutOwner(one) => format!("pod {} has no controller and would be lost", pod(one)),
            Self::RoomKept(one) => format!("room is kept on it for pod {}", pod(one)),
            Self::Promised => "pods that wait are planned on it".to_owned(),
            Self::Buffer => "room is kept on it for a capacity buffer".to_owned(),
            Self::PodEnding(one) => format!("pod {} is still going away", pod(one)),
            Self::Evictions(one, EvictionRefusal::UsedUp(budget)) => {
                let (one, name) = (pod(one), budget_name(*budget));
                let allowed = snapshot.disruption_budgets[*budget as usize].allowed;
                match allowed {
                    0 => format!("PodDisruptionBudget {name} allows no eviction of pod {one} now"),
                    _ => format!(
                        "PodDisruptionBudget {name} allows {} at once, pod {one} needs one more",
                        count(allowed.into(), "eviction")
                    ),
                }
            }
            Self::Evictions(one, EvictionRefusal::Several(first, second)) => format!(
                "pod {} is covered by the PodDisruptionBudgets {} and {}, and a pod of several cannot be evicted",
                pod(one),
                budget_name(*first),
                budget_name(*second)
            ),
            Self::NotEmpty => "it has pods that need another place".to_owned(),
            Self::IsEmpty => "it has no pods that need another place".to_owned(),
            Self::NotDrifted => "it is what its pool asks for".to_owned(),
            Self::DriftedLately(until) => format!("it drifted a moment ago and is left alone until {}", time(*until)),
            Self::NotExpired(None) => "its pool's nodes do not expire".to_owned(),
            Self::NotExpired(Some(then)) => format!("it expires at {}", time(*then)),
            Self::FixedSize => "its pool has a fixed number of nodes".to_owned(),
            Self::ConsolidationOff => "its pool has `consolidateAfter: Never`".to_owned(),
            Self::Unsettled(until) => {
                format!("pods came or went lately, `consolidateAfter` leaves it alone until {}", time(*until))
            }
            Self::OnlyWhenEmpty => "its pool has `consolidationPolicy: WhenEmpty`, and it has pods".to_owned(),
            Self::Budget { error: Some(error), budget, .. } => {
                format!(
                    "budget {} of its pool allows nothing while its schedule cannot be understood: {error}",
                    budget + 1
                )
            }
            Self::Budget { pool, allowed, busy, budget, opens, error: None, together } => {
                let when = match opens {
                    Some(opens) if *opens > snapshot.now => format!("; the next chance is at {}", time(*opens)),
                    _ => String::new(),
                };
                let with = if *together { "; with others at once it would go, as that costs less" } else { "" };
                let field = snapshot.pools[pool.index()].disruption.budgets.get(*budget);
                let field = field.map_or_else(String::new, |budget| format!(" (`nodes: {}`)", budget.nodes));
                let budget = budget + 1;
                let (nodes, are) = (count(*allowed, "node"), if *busy == 1 { "is" } else { "are" });
                format!(
                    "budget {budget}{field} of its pool allows {nodes} to be away at once, {busy} {are}{when}{with}"
                )
            }
            Self::LeastNodes(nodes) => format!("its pool keeps at least {}", count(*nodes, "node")),
            Self::Unpriced => "its price is not known, so savings are unknown".to_owned(),
            Self::NoPlace(one, rule) => format!("pod {} has no other place ({rule})", pod(one)),
            Self::NoSaving => "no other way to run its pods costs less".to_owned(),
            Self::NotWorthwhile => {
                "its pool has `consolidationPolicy: Balanced`, and the saving is small for the disruption".to_owned()
            }
        }
    }
}

/// A time in RFC 3339, as Kubernetes writes it.
fn time(seconds: Seconds) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "the end of time".to_owned(), |moment| moment.to_string())
}

/// The accounts that are consulted and charged while a plan removes nodes.
#[derive(Debug)]
pub struct Accounts {
    /// Pods by node.
    pub residents: Residents,
    /// What disruption budgets of pools still allow.
    pub budgets: BudgetLedger,
    /// What PodDisruptionBudgets still allow.
    pub evictions: EvictionLedger,
    /// Nodes that each pool would have under the plan so far.
    pub nodes: Vec<u64>,
    /// Nodes on which the plan places pods of capacity buffers.
    buffered: BTreeSet<NodeId>,
}

impl Accounts {
    /// The accounts at the start of a plan.
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut nodes = vec![0; snapshot.pools.len()];
        for node in &snapshot.nodes {
            if let (Some(pool), true) = (node.pool, node.state != NodeState::Leaving) {
                nodes[pool.index()] += 1;
            }
        }
        Self {
            residents: Residents::new(snapshot),
            budgets: BudgetLedger::new(snapshot),
            evictions: EvictionLedger::new(snapshot),
            nodes,
            buffered: BTreeSet::new(),
        }
    }

    /// Records the nodes on which a plan places pods of capacity buffers. While it does, they do not count as empty.
    pub fn keep_buffers(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let kept = plan.placements.iter().filter(|(pod, _)| snapshot.class_of(*pod).is_buffer());
        self.buffered.extend(kept.filter_map(|(_, target)| match target {
            Target::Existing(node) => Some(*node),
            Target::New(_) => None,
        }));
    }

    /// The first reason that applies and that nothing blocks.
    pub fn reason(&self, snapshot: &Snapshot, node: NodeId) -> Result<DisruptionReason, DisruptionBlocker> {
        let mut first = None;
        for reason in ORDER {
            match self.eligible(snapshot, node, reason) {
                Ok(_) => return Ok(reason),
                // Report the blocker of the first reason that applies.
                Err(blocker) if first.is_none() && !blocker.is_inapplicable() => first = Some(blocker),
                Err(_) => {}
            }
        }
        Err(first.unwrap_or(DisruptionBlocker::NoSaving))
    }

    /// Whether a node may be considered for a reason; returns its pool if so.
    pub fn eligible(
        &self,
        snapshot: &Snapshot,
        node: NodeId,
        reason: DisruptionReason,
    ) -> Result<PoolId, DisruptionBlocker> {
        let pool = self.eligible_but_for_budgets(snapshot, node, reason)?;
        self.within_budget(snapshot, pool, reason)?;
        self.above_least(snapshot, pool, reason)?;
        Ok(pool)
    }

    /// The same, whatever the pool's budgets and its least number of nodes say.
    pub(super) fn eligible_but_for_budgets(
        &self,
        snapshot: &Snapshot,
        node: NodeId,
        reason: DisruptionReason,
    ) -> Result<PoolId, DisruptionBlocker> {
        let of = &snapshot.nodes[node.index()];
        let pool = alive(of, node)?;
        applies(snapshot, of, &snapshot.pools[pool.index()], reason, self.is_empty(snapshot, node))?;
        self.check_holders(snapshot, node, reason)?;
        Ok(pool)
    }

    /// Whether nothing blocks the disruption: neither the node nor its pods opt out, and budgets allow one more. Does
    /// not check whether the reason applies.
    pub fn check_rules(
        &self,
        snapshot: &Snapshot,
        node: NodeId,
        reason: DisruptionReason,
    ) -> Result<(), DisruptionBlocker> {
        let pool = snapshot.nodes[node.index()].pool.ok_or(DisruptionBlocker::Unmanaged)?;
        self.check_holders(snapshot, node, reason)?;
        self.within_budget(snapshot, pool, reason)?;
        self.above_least(snapshot, pool, reason)
    }

    /// Whether neither the node nor its pods opt out.
    fn check_holders(
        &self,
        snapshot: &Snapshot,
        node: NodeId,
        reason: DisruptionReason,
    ) -> Result<(), DisruptionBlocker> {
        let of = &snapshot.nodes[node.index()];
        if of.do_not_disrupt {
            return Err(DisruptionBlocker::NodeDoNotDisrupt);
        }
        let forced = is_forced(of, reason);
        for &pod in self.residents.of(node) {
            match undisturbed(snapshot, pod) {
                Err(DisruptionBlocker::PodDoNotDisrupt(..) | DisruptionBlocker::PodWithoutOwner(_)) if forced => {}
                other => other?,
            }
        }
        for pod in self.residents.movers(snapshot, node).filter(|_| !forced) {
            self.evictions.check(snapshot, pod).map_err(|blocker| DisruptionBlocker::Evictions(pod, blocker))?;
        }
        Ok(())
    }

    /// Charges the evictions of a node's pods to their PodDisruptionBudgets.
    pub fn evict(
        &mut self,
        snapshot: &Snapshot,
        node: NodeId,
        reason: DisruptionReason,
    ) -> Result<Evictions, DisruptionBlocker> {
        let movers = self.residents.movers(snapshot, node);
        if is_forced(&snapshot.nodes[node.index()], reason) {
            return Ok(self.evictions.take_what_is_allowed(snapshot, movers));
        }
        self.evictions.take(snapshot, movers).map_err(|(pod, blocker)| DisruptionBlocker::Evictions(pod, blocker))
    }

    /// What keeps a pod of a node that goes already from being evicted, if something does.
    pub(super) fn drain_blocker(&self, snapshot: &Snapshot, node: NodeId) -> Option<DisruptionBlocker> {
        if snapshot.nodes[node.index()].ends_in_time {
            return None;
        }
        let mut movers = self.residents.movers(snapshot, node);
        movers.find_map(|pod| {
            let held = undisturbed(snapshot, pod).err();
            held.filter(|held| matches!(held, DisruptionBlocker::PodDoNotDisrupt(..))).or_else(|| {
                let refused = self.evictions.check(snapshot, pod).err();
                refused.map(|refused| DisruptionBlocker::Evictions(pod, refused))
            })
        })
    }

    /// Whether no pod of a node needs another place, and no buffer its room.
    pub fn is_empty(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        self.residents.movers(snapshot, node).next().is_none() && !self.buffered.contains(&node)
    }

    /// Whether the node holds nothing but capacity for buffers.
    pub(super) fn is_buffer_only(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        self.buffered.contains(&node) && self.residents.movers(snapshot, node).next().is_none()
    }

    /// Whether the pool's budgets allow one more node to be disrupted.
    pub fn within_budget(
        &self,
        snapshot: &Snapshot,
        pool: PoolId,
        reason: DisruptionReason,
    ) -> Result<(), DisruptionBlocker> {
        if self.budgets.left(pool, reason) != Some(0) {
            return Ok(());
        }
        Err(self.used_up(pool, reason, self.budgets.opens(pool, reason, snapshot.now)))
    }

    /// The blocker for a pool whose budgets are used up.
    pub(super) fn used_up(&self, pool: PoolId, reason: DisruptionReason, opens: Option<Seconds>) -> DisruptionBlocker {
        let allowance = self.budgets.allowance(pool, reason);
        DisruptionBlocker::Budget {
            pool,
            allowed: allowance.nodes.unwrap_or(0),
            busy: self.budgets.busy(pool),
            budget: allowance.budget.unwrap_or(0),
            opens,
            error: allowance.error.as_ref().map(ToString::to_string),
            together: false,
        }
    }

    /// Whether the pool can lose a node for good. A drifted or expired one that is replaced does not count.
    pub(super) fn above_least(
        &self,
        snapshot: &Snapshot,
        pool: PoolId,
        reason: DisruptionReason,
    ) -> Result<(), DisruptionBlocker> {
        let least = snapshot.pools[pool.index()].min_nodes;
        let by_choice = matches!(reason, DisruptionReason::Empty);
        if by_choice && self.nodes[pool.index()] <= least { Err(DisruptionBlocker::LeastNodes(least)) } else { Ok(()) }
    }
}

/// Reasons in the order in which they are considered, the least disruptive first.
const ORDER: [DisruptionReason; 4] =
    [DisruptionReason::Empty, DisruptionReason::Drifted, DisruptionReason::Expired, DisruptionReason::Underutilized];

/// Whether a node is one of ours, and at work.
fn alive(node: &Node, id: NodeId) -> Result<PoolId, DisruptionBlocker> {
    let pool = node.pool.ok_or(DisruptionBlocker::Unmanaged)?;
    match node.state {
        NodeState::Leaving => Err(DisruptionBlocker::Leaving),
        NodeState::Starting => Err(DisruptionBlocker::Starting(id)),
        NodeState::Running if node.initialized.is_none() => Err(DisruptionBlocker::NotInitialized),
        NodeState::Running => Ok(pool),
    }
}

/// Whether a reason applies to a node.
fn applies(
    snapshot: &Snapshot,
    node: &Node,
    pool: &Pool,
    reason: DisruptionReason,
    empty: bool,
) -> Result<(), DisruptionBlocker> {
    match reason {
        DisruptionReason::Drifted => {
            let settles = node.drifted.as_ref().ok_or(DisruptionBlocker::NotDrifted)?.settles();
            settles
                .filter(|then| *then > snapshot.now)
                .map_or(Ok(()), |then| Err(DisruptionBlocker::DriftedLately(then)))
        }
        DisruptionReason::Expired => {
            let then = node.expires(pool.disruption.expire_after);
            let over = then.is_some_and(|then| then <= snapshot.now);
            if over { Ok(()) } else { Err(DisruptionBlocker::NotExpired(then)) }
        }
        DisruptionReason::Empty if !empty => Err(DisruptionBlocker::NotEmpty),
        DisruptionReason::Underutilized if empty => Err(DisruptionBlocker::IsEmpty),
        DisruptionReason::Empty | DisruptionReason::Underutilized => consolidatable(snapshot, node, pool, empty),
    }
}

/// Whether pods that block disruption only delay the removal, because the node has a termination grace period. Holds
/// for drift and expiry, which are not optional, and not for consolidation.
fn is_forced(node: &Node, reason: DisruptionReason) -> bool {
    node.ends_in_time && matches!(reason, DisruptionReason::Drifted | DisruptionReason::Expired)
}

fn consolidatable(snapshot: &Snapshot, node: &Node, pool: &Pool, empty: bool) -> Result<(), DisruptionBlocker> {
    if pool.replicas.is_some() {
        return Err(DisruptionBlocker::FixedSize);
    }
    if !empty && pool.disruption.policy == Consolidation::WhenEmpty {
        return Err(DisruptionBlocker::OnlyWhenEmpty);
    }
    settled(snapshot, node, pool)?;
    if !empty && node.price.is_none() { Err(DisruptionBlocker::Unpriced) } else { Ok(()) }
}

/// Whether no pod came or left for `consolidateAfter`. Pods are not moved onto unsettled nodes either: that would
/// restart their wait.
pub(super) fn settled(snapshot: &Snapshot, node: &Node, pool: &Pool) -> Result<(), DisruptionBlocker> {
    let after = pool.disruption.consolidate_after.ok_or(DisruptionBlocker::ConsolidationOff)?;
    let since = node.last_pod_event.max(node.initialized).unwrap_or(node.created);
    let quiet = since.saturating_add(after);
    if quiet > snapshot.now { Err(DisruptionBlocker::Unsettled(quiet)) } else { Ok(()) }
}

/// Whether a pod allows its node to be removed. A pod without a controller does not, because nothing would recreate it;
/// its owner can delete it.
fn undisturbed(snapshot: &Snapshot, pod: PodId) -> Result<(), DisruptionBlocker> {
    let of = &snapshot.pods[pod.index()];
    match of.state {
        PodState::Pending => return Err(DisruptionBlocker::RoomKept(pod)),
        PodState::Terminating | PodState::Gated => return Ok(()),
        PodState::Bound => {}
    }
    let class = snapshot.class_of(pod);
    let owned = if class.kind == PodKind::Bare { Err(DisruptionBlocker::PodWithoutOwner(pod)) } else { Ok(()) };
    match class.do_not_disrupt {
        DoNotDisrupt::No => owned,
        DoNotDisrupt::Always => Err(DisruptionBlocker::PodDoNotDisrupt(pod, None)),
        DoNotDisrupt::For(after) => {
            let until = of.started.unwrap_or(snapshot.now).saturating_add(after);
            if until > snapshot.now { Err(DisruptionBlocker::PodDoNotDisrupt(pod, Some(until))) } else { owned }
        }
    }
}
