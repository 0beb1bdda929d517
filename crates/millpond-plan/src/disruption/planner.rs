//! The state that all steps of a consolidation share: the cluster as decided so far, the removals and purchases, and
//! why other nodes stay.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::balanced::Totals;
use super::bound;
use super::eligible::{DisruptionBlocker, settled};
use super::order::Queue;
use super::receivers::Receivers;
use super::state::{Mark, State};
use super::value::Prices;
use crate::cluster_state::NodeSlotId;
use crate::market::Market;
use crate::model::{DisruptionReason, Node, NodeId, NodeState, PodId, PoolId, Resources, Snapshot};
use crate::pack::{self, BitSet};
use crate::plan::{BoundProof, Plan, Settings, Target};

/// Limit on the patterns that the kernel evaluates for a group; groups are small.
const EVALUATIONS: u64 = 200;

/// Nodes that are removed together.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) nodes: Vec<NodeId>,
    pub(super) reason: DisruptionReason,
    pub(super) bought: Vec<NodeSlotId>,
}

pub(super) struct Planner<'s> {
    pub(super) state: State<'s>,
    pub(super) on_sale: BitSet,
    /// The value of a pod of each class, in nano-dollars per hour.
    pub(super) values: Vec<u64>,
    pub(super) totals: Totals,
    pub(super) receivers: Receivers,
    /// Nodes that the plan buys, those for pending pods first.
    pub(super) planned: Vec<NodeSlotId>,
    pub(super) steps: Vec<Step>,
    pub(super) removed: Vec<bool>,
    pub(super) kept: Vec<Option<DisruptionBlocker>>,
    pub(super) solves: usize,
    pub(super) budget: pack::Budget,
    /// The proof of the lower bound of any plan's cost.
    pub(super) proof: Option<BoundProof>,
}

impl<'s> Planner<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, market: &'s Market, plan: &Plan, settings: &Settings) -> Self {
        let mut state = State::new(snapshot, market);
        let proof = bound::prove(&mut state, plan, settings.budget);
        let planned = add_plan(&mut state, plan);
        let mut on_sale = market.open(snapshot);
        on_sale.intersect(market.available());
        without_least_values(snapshot, market, &mut on_sale);
        let demand = movable(&state);
        let prices = Prices::new(snapshot, market, &on_sale, &demand);
        let values = snapshot.classes.iter().map(|class| prices.value(&class.requests)).collect();
        let totals = Totals::new(snapshot, &state.accounts.residents);
        let receivers = Receivers::new(&state.cluster, Vec::new());
        let evaluations = settings.budget.evaluations.min(EVALUATIONS);
        Self {
            on_sale,
            values,
            totals,
            receivers,
            planned,
            steps: Vec::new(),
            removed: vec![false; snapshot.nodes.len()],
            kept: vec![None; snapshot.nodes.len()],
            solves: 0,
            budget: pack::Budget { evaluations, ..settings.budget },
            proof,
            state,
        }
    }

    pub(super) fn node(&self, node: NodeId) -> &'s Node {
        &self.state.snapshot.nodes[node.index()]
    }

    pub(super) fn price(&self, node: NodeId) -> u128 {
        u128::from(self.node(node).price.unwrap_or(0))
    }

    /// The highest price at which a replacement of these nodes still saves enough.
    pub(super) fn most(&self, nodes: &[NodeId]) -> u128 {
        nodes.iter().map(|node| self.price(*node)).sum()
    }

    /// The price of a node that is bought, or of an existing one that stays because of this step.
    pub(super) fn price_of(&self, spot: NodeSlotId) -> u128 {
        match self.state.cluster.offer(spot) {
            Some(offer) => u128::from(self.state.market.offer(offer).price),
            None => self.price(NodeId(spot.0)),
        }
    }

    pub(super) fn savings(&self, nodes: &[NodeId], bought: &[NodeSlotId]) -> i128 {
        let spent: u128 = bought.iter().map(|spot| self.price_of(*spot)).sum();
        self.most(nodes) as i128 - spent as i128
    }

    /// Nodes that have not been removed, with a rank that sets the order in which they are tried; the closure returns
    /// `None` for nodes to leave out.
    pub(super) fn queue(&self, rank: impl Fn(NodeId) -> Option<u128>) -> Queue {
        let nodes = (0..self.removed.len()).filter(|&node| !self.removed[node]).map(NodeId::from);
        Queue::new(self.state.snapshot, nodes.filter_map(|node| Some((rank(node)?, node))))
    }

    /// The value of a node's pods in millionths of its price; `None` for nodes that are not tried.
    pub(super) fn use_of(&self, node: NodeId) -> Option<u128> {
        let of = self.node(node);
        let price = u128::from(of.price.filter(|_| of.pool.is_some() && of.state == NodeState::Running)?);
        if self.state.contents(node).is_empty() {
            return None;
        }
        let value = |pod: &PodId| u128::from(self.values[self.state.class(*pod).index()]);
        let value: u128 = self.state.contents(node).iter().map(value).sum();
        Some(value * 1_000_000 / price.max(1))
    }

    /// Orders the nodes that pods may move to: those that stay anyway first, then the best used ones down to
    /// `least_used`, then those that the plan buys.
    pub(super) fn rebuild_receivers(&mut self, least_used: u128) {
        let snapshot = self.state.snapshot;
        let accounts = &self.state.accounts;
        let mut spots: Vec<(bool, Reverse<u128>, &str, NodeSlotId)> = Vec::new();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let id = NodeId::from(index);
            if self.removed[index] || !self.state.cluster.is_open(NodeSlotId(id.0)) || !receives(snapshot, node) {
                continue;
            }
            let reason = self.reason_for(id, DisruptionReason::Underutilized);
            let goes = accounts.eligible(snapshot, id, reason).is_ok();
            let used = self.use_of(id).unwrap_or(0);
            if goes && used < least_used {
                continue;
            }
            spots.push((goes, Reverse(used), &node.name, NodeSlotId(id.0)));
        }
        spots.sort_unstable();
        let spots = spots.into_iter().map(|(.., spot)| spot).chain(self.planned.iter().copied()).collect();
        self.receivers = Receivers::new(&self.state.cluster, spots);
    }

    /// The reason for removing the node: a node is empty if its only pods are pending ones planned onto it, but not if
    /// it holds capacity for a buffer.
    pub(super) fn reason_for(&self, node: NodeId, reason: DisruptionReason) -> DisruptionReason {
        let empty = self.state.accounts.is_empty(self.state.snapshot, node);
        if empty && reason == DisruptionReason::Underutilized { DisruptionReason::Empty } else { reason }
    }

    pub(super) fn keep(&mut self, node: NodeId, blocker: DisruptionBlocker) {
        let known = self.kept[node.index()].as_ref();
        // What keeps a drifted or expired node is its reason to stay, not that consolidation would not consider it or
        // would save nothing.
        let outdated = outdated(self.state.snapshot, self.node(node));
        let idle = matches!(blocker, DisruptionBlocker::ConsolidationOff | DisruptionBlocker::OnlyWhenEmpty);
        let vain = matches!(
            blocker,
            DisruptionBlocker::NoPlace(..) | DisruptionBlocker::NoSaving | DisruptionBlocker::NotWorthwhile
        );
        let says_more = known.is_some_and(|known| (idle || vain) && !known.is_inapplicable());
        if !(outdated && says_more) {
            self.kept[node.index()] = Some(blocker);
        }
    }

    pub(super) fn undo(&mut self, mark: Mark, nodes: &[NodeId], blocker: DisruptionBlocker) {
        let touched = self.state.touched(mark);
        self.state.undo(mark);
        self.receivers.undo(&self.state.cluster, &touched);
        for &node in nodes {
            self.keep(node, blocker.clone());
        }
    }

    pub(super) fn commit(&mut self, nodes: Vec<NodeId>, reason: DisruptionReason, mut bought: Vec<NodeSlotId>) {
        for node in &nodes {
            self.removed[node.index()] = true;
            self.kept[node.index()] = None;
        }
        let restored: Vec<NodeId> = bought
            .iter()
            .filter(|spot| self.state.cluster.offer(**spot).is_none())
            .map(|spot| NodeId(spot.0))
            .collect();
        for node in restored {
            self.removed[node.index()] = false;
            self.keep(node, DisruptionBlocker::Promised);
            self.steps.retain(|step| step.nodes != [node]);
        }
        bought.retain(|spot| self.state.cluster.offer(*spot).is_some());
        let reason = if let [node] = nodes[..] { self.reason_for(node, reason) } else { reason };
        self.planned.extend(&bought);
        self.receivers.settle();
        self.receivers.extend(&self.state.cluster, &bought);
        self.steps.push(Step { nodes, reason, bought });
    }
}

/// Adds the plan for pending pods to the cluster state and returns the nodes that it buys.
fn add_plan(state: &mut State<'_>, plan: &Plan) -> Vec<NodeSlotId> {
    let mut offers: HashMap<(PoolId, u32, u32), Vec<usize>> = HashMap::new();
    if !plan.new_nodes.is_empty() {
        for (index, offer) in state.market.offers().iter().enumerate() {
            offers.entry((offer.pool, offer.instance_type.0, offer.offering)).or_default().push(index);
        }
    }
    state.accounts.keep_buffers(state.snapshot, plan);
    let mut planned = Vec::with_capacity(plan.new_nodes.len());
    for node in &plan.new_nodes {
        let alike = offers.get(&(node.pool, node.instance_type.0, node.offering)).map_or(&[][..], Vec::as_slice);
        let offer = alike.iter().copied().find(|&offer| state.market.offer(offer).labels == node.labels);
        planned.push(state.add_planned(offer.expect("a plan buys what is on offer")));
    }
    for &(pod, target) in &plan.placements {
        let spot = match target {
            Target::Existing(node) => NodeSlotId(node.0),
            Target::New(index) => planned[index as usize],
        };
        state.add_waiting(pod, spot);
    }
    state.accept_plan();
    planned
}

/// Removes the offers of pools with `minValues`: such a pool needs a choice of types, and a replacement is a single
/// type.
fn without_least_values(snapshot: &Snapshot, market: &Market, on_sale: &mut BitSet) {
    for (index, pool) in snapshot.pools.iter().enumerate() {
        if pool.requirements.iter().any(|(_, requirement)| requirement.min_values().is_some()) {
            on_sale.subtract(market.of_pool(PoolId::from(index)));
        }
    }
}

/// The sum of the requests of all pods that could move.
fn movable(state: &State<'_>) -> Resources {
    let mut demand = Resources::new();
    for (index, node) in state.snapshot.nodes.iter().enumerate() {
        if node.pool.is_some() {
            for pod in state.contents(NodeId::from(index)) {
                demand.add(&state.snapshot.class_of(*pod).requests);
            }
        }
    }
    demand
}

pub(super) fn expired(snapshot: &Snapshot, node: &Node, after: Option<i64>) -> bool {
    node.expires(after).is_some_and(|then| then <= snapshot.now)
}

/// Whether a node is drifted or expired, and so removed whatever the savings are.
pub(super) fn outdated(snapshot: &Snapshot, node: &Node) -> bool {
    let age = node.pool.and_then(|pool| snapshot.pools[pool.index()].disruption.expire_after);
    node.drifted.is_some() || expired(snapshot, node, age)
}

/// Whether pods may move to a node: it is ready, not drifted or expired itself, and settled, since pods would otherwise
/// restart its `consolidateAfter`.
fn receives(snapshot: &Snapshot, node: &Node) -> bool {
    let Some(pool) = node.pool.map(|pool| &snapshot.pools[pool.index()]) else {
        return node.ready && node.state == NodeState::Running;
    };
    let restless = matches!(settled(snapshot, node, pool), Err(DisruptionBlocker::Unsettled(_)));
    node.ready
        && node.state == NodeState::Running
        && node.initialized.is_some()
        && !outdated(snapshot, node)
        && !restless
}
