//! Whether a node may be taken away at all, before anything is known about where its pods would go.

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

/// Why a node stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisruptionBlocker {
    /// No pool bought it.
    Unmanaged,
    /// It goes already.
    Leaving,
    /// It is not there yet.
    Starting,
    /// It never became ready for pods.
    NotInitialized,
    /// The node has the annotation `karpenter.sh/do-not-disrupt`.
    NodeDoNotDisrupt,
    /// A pod has the annotation `karpenter.sh/do-not-disrupt`, until then.
    PodDoNotDisrupt(PodId, Option<Seconds>),
    /// A pod without a controller runs on it.
    PodWithoutOwner(PodId),
    /// Room is kept on it for a pod.
    RoomKept(PodId),
    /// The plan itself puts pods that wait on it.
    Promised,
    /// Room is kept on it for capacity buffers only.
    Buffer,
    /// A pod that rules of others look at is still going away.
    PodEnding(PodId),
    /// A pod is covered by a PodDisruptionBudget that allows no eviction, or no more.
    Evictions(PodId, EvictionRefusal),
    /// The reason does not apply: it has pods.
    NotEmpty,
    /// The reason does not apply: it has no pods.
    IsEmpty,
    /// The reason does not apply: it is what its pool asks for.
    NotDrifted,
    /// It has drifted a moment ago; it is left alone until then.
    DriftedLately(Seconds),
    /// The reason does not apply: its age is below the pool's limit, reached then.
    NotExpired(Option<Seconds>),
    /// The pool has a fixed number of nodes.
    FixedSize,
    /// The pool's nodes are not consolidated.
    ConsolidationOff,
    /// Pods came or went lately; it is left alone until then.
    Unsettled(Seconds),
    /// The pool gives up empty nodes only.
    OnlyWhenEmpty,
    /// The pool's budgets are used up, until then as far as can be seen.
    Budget {
        /// How many nodes may be away at once.
        allowed: u64,
        /// How many are, or are not ready.
        busy: u64,
        /// Which of the pool's budgets.
        budget: usize,
        /// When another one may go.
        opens: Option<Seconds>,
        /// Why the budget cannot be understood, if so.
        error: Option<String>,
    },
    /// The pool would go below its least number of nodes.
    LeastNodes(u64),
    /// Its price is not known, nor so whether anything would be saved.
    Unpriced,
    /// A pod has no other place.
    NoPlace(PodId, Rule),
    /// No other way to run its pods costs less.
    NoSaving,
    /// What would be saved is not worth the disruption (policy `Balanced`).
    NotWorthwhile,
}

/// A number and what it counts.
fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

impl DisruptionBlocker {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unmanaged => "Unmanaged",
            Self::Leaving => "Leaving",
            Self::Starting => "Starting",
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

    /// Whether it says only that a reason has nothing to do with the node.
    pub fn beside_the_point(&self) -> bool {
        matches!(self, Self::NotEmpty | Self::IsEmpty | Self::NotDrifted | Self::NotExpired(_))
    }

    /// One sentence, without its final period.
    pub fn sentence(&self, snapshot: &Snapshot) -> String {
        let pod = |pod: &PodId| snapshot.pod_name(*pod);
        let budget_name = |index: u32| snapshot.disruption_budgets[index as usize].name.as_str();
        match self {
            Self::Unmanaged => "no pool manages it".to_owned(),
            Self::Leaving => "it is being removed already".to_owned(),
            Self::Starting => "it is still starting".to_owned(),
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
            Self::Budget { allowed, busy, budget, opens, error: None } => {
                let when = match opens {
                    Some(opens) if *opens > snapshot.now => format!("; the next chance is at {}", time(*opens)),
                    _ => String::new(),
                };
                let budget = budget + 1;
                let (nodes, are) = (count(*allowed, "node"), if *busy == 1 { "is" } else { "are" });
                format!("budget {budget} of its pool allows {nodes} to be away at once, {busy} {are}{when}")
            }
            Self::LeastNodes(nodes) => format!("its pool keeps at least {}", count(*nodes, "node")),
            Self::Unpriced => "its price is not known, so a saving cannot be told".to_owned(),
            Self::NoPlace(one, rule) => format!("pod {} has no other place ({rule})", pod(one)),
            Self::NoSaving => "no other way to run its pods costs less".to_owned(),
            Self::NotWorthwhile => {
                "its pool has `consolidationPolicy: Balanced`, and the saving is small for the disruption".to_owned()
            }
        }
    }
}

/// A moment as people and Kubernetes write it.
fn time(seconds: Seconds) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "the end of time".to_owned(), |moment| moment.to_string())
}

/// What is asked about nodes while a plan is made.
#[derive(Debug)]
pub struct Accounts {
    /// Pods by node.
    pub residents: Residents,
    /// What pools' budgets still allow.
    pub budgets: BudgetLedger,
    /// What PodDisruptionBudgets still allow.
    pub evictions: EvictionLedger,
    /// Nodes that each pool would have.
    pub nodes: Vec<u64>,
    /// Nodes on which a plan keeps room for buffers.
    buffered: BTreeSet<NodeId>,
}

impl Accounts {
    /// At the start of a plan.
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

    /// Takes note of the nodes on which a plan keeps room for buffers: as long as it does, they are not empty.
    pub fn keep_buffers(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let kept = plan.placements.iter().filter(|(pod, _)| snapshot.class_of(*pod).is_buffer());
        self.buffered.extend(kept.filter_map(|(_, target)| match target {
            Target::Existing(node) => Some(*node),
            Target::New(_) => None,
        }));
    }

    /// The reason for which a node may be considered: the first that applies and that nothing forbids.
    pub fn reason(&self, snapshot: &Snapshot, node: NodeId) -> Result<DisruptionReason, DisruptionBlocker> {
        let mut first = None;
        for reason in ORDER {
            match self.eligible(snapshot, node, reason) {
                Ok(_) => return Ok(reason),
                // The most telling refusal is of a reason that applies.
                Err(blocker) if first.is_none() && !blocker.beside_the_point() => first = Some(blocker),
                Err(_) => {}
            }
        }
        Err(first.unwrap_or(DisruptionBlocker::NoSaving))
    }

    /// Whether a node may be considered for a reason; its pool if so.
    pub fn eligible(
        &self,
        snapshot: &Snapshot,
        node: NodeId,
        reason: DisruptionReason,
    ) -> Result<PoolId, DisruptionBlocker> {
        let of = &snapshot.nodes[node.index()];
        let pool = alive(of)?;
        applies(snapshot, of, &snapshot.pools[pool.index()], reason, self.is_empty(snapshot, node))?;
        self.check_rules(snapshot, node, reason)?;
        Ok(pool)
    }

    /// Whether nothing blocks the disruption: neither the node nor its pods opt out, and budgets allow one more. Does not
    /// check whether the reason applies.
    pub fn check_rules(
        &self,
        snapshot: &Snapshot,
        node: NodeId,
        reason: DisruptionReason,
    ) -> Result<(), DisruptionBlocker> {
        let of = &snapshot.nodes[node.index()];
        let pool = of.pool.ok_or(DisruptionBlocker::Unmanaged)?;
        if of.do_not_disrupt {
            return Err(DisruptionBlocker::NodeDoNotDisrupt);
        }
        let in_the_end = goes_in_the_end(of, reason);
        for &pod in self.residents.of(node) {
            match undisturbed(snapshot, pod) {
                Err(DisruptionBlocker::PodDoNotDisrupt(..)) if in_the_end => {}
                other => other?,
            }
        }
        for pod in self.residents.movers(snapshot, node).filter(|_| !in_the_end) {
            self.evictions.check(snapshot, pod).map_err(|blocker| DisruptionBlocker::Evictions(pod, blocker))?;
        }
        self.within_budget(snapshot, pool, reason)?;
        self.above_least(snapshot, pool, reason)
    }

    /// Takes the evictions of a node that goes.
    pub fn evict(
        &mut self,
        snapshot: &Snapshot,
        node: NodeId,
        reason: DisruptionReason,
    ) -> Result<Evictions, DisruptionBlocker> {
        let movers = self.residents.movers(snapshot, node);
        if goes_in_the_end(&snapshot.nodes[node.index()], reason) {
            return Ok(self.evictions.take_what_is_allowed(snapshot, movers));
        }
        self.evictions.take(snapshot, movers).map_err(|(pod, blocker)| DisruptionBlocker::Evictions(pod, blocker))
    }

    /// Whether no pod of a node needs another place, and no buffer its room.
    pub fn is_empty(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        self.residents.movers(snapshot, node).next().is_none() && !self.buffered.contains(&node)
    }

    /// Whether all that is on a node is room that is kept for buffers.
    pub(super) fn is_buffer_only(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        self.buffered.contains(&node) && self.residents.movers(snapshot, node).next().is_none()
    }

    /// Whether the budgets of the pool let another node go.
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

    /// The refusal of a pool whose budgets are used up.
    pub(super) fn used_up(&self, pool: PoolId, reason: DisruptionReason, opens: Option<Seconds>) -> DisruptionBlocker {
        let allowance = self.budgets.allowance(pool, reason);
        DisruptionBlocker::Budget {
            allowed: allowance.nodes.unwrap_or(0),
            busy: self.budgets.busy(pool),
            budget: allowance.budget.unwrap_or(0),
            opens,
            error: allowance.error.as_ref().map(ToString::to_string),
        }
    }

    /// Whether the pool can lose a node for good. A drifted or expired one that is replaced does not count.
    fn above_least(
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

/// Reasons in the order in which they are considered: the cheapest to act on first.
const ORDER: [DisruptionReason; 4] =
    [DisruptionReason::Empty, DisruptionReason::Drifted, DisruptionReason::Expired, DisruptionReason::Underutilized];

/// Whether a node is one of ours, and at work.
fn alive(node: &Node) -> Result<PoolId, DisruptionBlocker> {
    let pool = node.pool.ok_or(DisruptionBlocker::Unmanaged)?;
    match node.state {
        NodeState::Leaving => Err(DisruptionBlocker::Leaving),
        NodeState::Starting => Err(DisruptionBlocker::Starting),
        NodeState::Running if node.initialized.is_none() => Err(DisruptionBlocker::NotInitialized),
        NodeState::Running => Ok(pool),
    }
}

/// Whether a reason has to do with a node.
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

/// Whether pods that do not let their node go only delay it: they have to leave within its grace period. Only for
/// nodes that must go some day, not for those whose going saves something.
fn goes_in_the_end(node: &Node, reason: DisruptionReason) -> bool {
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

/// Whether a node has been quiet for long enough. Pods are not moved onto others either: they would only wait
/// longer to be quiet.
pub(super) fn settled(snapshot: &Snapshot, node: &Node, pool: &Pool) -> Result<(), DisruptionBlocker> {
    let after = pool.disruption.consolidate_after.ok_or(DisruptionBlocker::ConsolidationOff)?;
    let since = node.last_pod_event.max(node.initialized).unwrap_or(node.created);
    let quiet = since.saturating_add(after);
    if quiet > snapshot.now { Err(DisruptionBlocker::Unsettled(quiet)) } else { Ok(()) }
}

/// Whether a pod allows its node to be removed. A pod without a controller does not: its work would be lost; its owner can
/// delete it.
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
