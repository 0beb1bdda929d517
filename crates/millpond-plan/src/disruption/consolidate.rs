//! Consolidation: which nodes go, what comes in their place, and where their pods move. Pods that wait have been
//! planned before; this works on the result.
//!
//! ```text
//! empty ─▶ drifted, expired ─▶ ┌ delete: one node after the other into room elsewhere ┐ ─▶ Outcome
//! no pods   replaced whatever  └ replace: groups planned anew together, m → n         ┘
//!           it costs             until nothing is found
//! ```
//!
//! Every step is tried on the board with all rules and undone if it fails or saves too little, so budgets and
//! PodDisruptionBudgets hold for all steps together. A pod that was moved to a node which goes later is moved on:
//! only where it ends up counts.
//!
//! **Order.** Nodes that cost most for what is on them go first ([`value`](super::value)); among equals the zone that
//! has most nodes of the pool gives one up. Pods move to nodes that stay anyway, then to those that are best used.
//!
//! **Savings.** A node that is deleted saves its price. A replacement must save at least a twentieth of what it
//! replaces: less is within what planning anew may vary by, and pods would move to and fro. Of groups that save about
//! as much the smallest is taken, and a node whose stay costs nothing stays. For pools with the policy `Balanced` see
//! [`balanced`](super::balanced).

use std::collections::{BTreeMap, HashMap};

use super::balanced::Totals;
use super::cost::pods_cost;
use super::eligible::{Refusal, settled};
use super::order::Queue;
use super::purchase;
use super::receivers::Receivers;
use super::state::{Mark, State};
use super::value::Prices;
use crate::board::SpotId;
use crate::market::Market;
use crate::model::{DisruptionReason, Node, NodeId, NodeState, PodId, PoolId, Resources, Snapshot};
use crate::pack::{self, BitSet};
use crate::plan::{NewNode, Outcome, Plan, Removal, Rule, Settings, Target};

/// Replacements save at least one part of so many.
const LEAST_SAVING: u128 = 20;
/// Nodes that are planned anew together.
const GROUP: usize = 64;
/// With more candidates than this only whole groups are tried, not parts of them.
const MANY: usize = 256;
/// Groups up to this size are tried without each of their nodes.
const SMALL: usize = 12;
/// Kinds of empty nodes that are tried instead of buying.
const MAX_RESTORES: usize = 16;
/// Packing problems that are solved for replacements.
const MAX_SOLVES: usize = 400;
/// Nodes whose pods were moved in vain, in one pass, after which the rest is not tried.
const MAX_FAILURES: usize = 400;
/// Passes over all nodes; each but the last found something.
const MAX_ROUNDS: usize = 4;
/// Pods worth more than this share of their node's price are not planned anew, in millionths.
const WELL_USED: u128 = 950_000;
/// Pods of outdated nodes rather move to nodes that are used as much as this, in millionths.
const HALF_USED: u128 = 500_000;
/// Patterns that the kernel may build for a group; groups are small.
const EVALUATIONS: u64 = 200;

/// A finished consolidation.
#[derive(Debug)]
pub struct Consolidated {
    /// The plan with its removals.
    pub outcome: Outcome,
    /// Why each node stays, by node; none for those that go.
    pub kept: Vec<Option<Refusal>>,
}

/// Takes nodes away on top of a plan for the pods that wait.
pub fn consolidate(snapshot: &Snapshot, market: &Market, outcome: Outcome, settings: &Settings) -> Consolidated {
    let mut planner = Planner::new(snapshot, market, &outcome.plan, settings);
    planner.remove_empty();
    // At first not into nodes that are likely to go next, then wherever there is room.
    for least_used in [HALF_USED, 0] {
        planner.rebuild_receivers(least_used);
        planner.replace_outdated(DisruptionReason::Drifted);
        planner.replace_outdated(DisruptionReason::Expired);
    }
    for _ in 0..MAX_ROUNDS {
        planner.rebuild_receivers(0);
        let deleted = planner.delete_underused();
        let replaced = planner.replace_underused();
        let needless = planner.give_back_needless();
        if !replaced && !deleted && !needless {
            break;
        }
    }
    planner.finish(outcome)
}

/// Nodes that go together.
#[derive(Debug)]
struct Step {
    nodes: Vec<NodeId>,
    reason: DisruptionReason,
    bought: Vec<SpotId>,
}

struct Planner<'s> {
    state: State<'s>,
    on_sale: BitSet,
    /// What a pod of each class is worth.
    values: Vec<u64>,
    totals: Totals,
    receivers: Receivers,
    /// Nodes that the plan buys, those for pods that wait first.
    planned: Vec<SpotId>,
    steps: Vec<Step>,
    removed: Vec<bool>,
    kept: Vec<Option<Refusal>>,
    solves: usize,
    budget: pack::Budget,
}

impl<'s> Planner<'s> {
    fn new(snapshot: &'s Snapshot, market: &'s Market, plan: &Plan, settings: &Settings) -> Self {
        let mut state = State::new(snapshot, market);
        let planned = add_plan(&mut state, plan);
        let mut on_sale = market.open(snapshot);
        on_sale.intersect(market.available());
        without_least_values(snapshot, market, &mut on_sale);
        let demand = movable(&state);
        let prices = Prices::new(snapshot, market, &on_sale, &demand);
        let values = snapshot.classes.iter().map(|class| prices.value(&class.requests)).collect();
        let totals = Totals::new(snapshot, &state.accounts.residents);
        let receivers = Receivers::new(&state.board, Vec::new());
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
            state,
        }
    }

    fn node(&self, node: NodeId) -> &'s Node {
        &self.state.snapshot.nodes[node.index()]
    }

    fn price(&self, node: NodeId) -> u128 {
        u128::from(self.node(node).price.unwrap_or(0))
    }

    /// Nodes that are still there, with a rank by which to try them.
    fn queue(&self, rank: impl Fn(NodeId) -> Option<u128>) -> Queue {
        let nodes = (0..self.removed.len()).filter(|&node| !self.removed[node]).map(NodeId::from);
        Queue::new(self.state.snapshot, nodes.filter_map(|node| Some((rank(node)?, node))))
    }

    /// What the pods on a node are worth, in millionths of its price; none for nodes that are not to be tried.
    fn use_of(&self, node: NodeId) -> Option<u128> {
        let of = self.node(node);
        let price = u128::from(of.price.filter(|_| of.pool.is_some() && of.state == NodeState::Running)?);
        if self.state.contents(node).is_empty() {
            return None;
        }
        let value = |pod: &PodId| u128::from(self.values[self.state.class(*pod).index()]);
        let value: u128 = self.state.contents(node).iter().map(value).sum();
        Some(value * 1_000_000 / price.max(1))
    }

    /// Orders the nodes that pods may move to: those that stay anyway first, then the best used, down to a limit, then
    /// those that are bought.
    fn rebuild_receivers(&mut self, least_used: u128) {
        let snapshot = self.state.snapshot;
        let accounts = &self.state.accounts;
        let mut spots: Vec<(bool, std::cmp::Reverse<u128>, &str, SpotId)> = Vec::new();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let id = NodeId::from(index);
            if self.removed[index] || !self.state.board.is_open(SpotId(id.0)) || !receives(snapshot, node) {
                continue;
            }
            let reason = self.reason_for(id, DisruptionReason::Underutilized);
            let goes = accounts.eligible(snapshot, id, reason).is_ok();
            let used = self.use_of(id).unwrap_or(0);
            if goes && used < least_used {
                continue;
            }
            spots.push((goes, std::cmp::Reverse(used), &node.name, SpotId(id.0)));
        }
        spots.sort_unstable();
        let spots = spots.into_iter().map(|(.., spot)| spot).chain(self.planned.iter().copied()).collect();
        self.receivers = Receivers::new(&self.state.board, spots);
    }

    fn remove_empty(&mut self) {
        let reason = DisruptionReason::Empty;
        let rank = |node: NodeId| {
            let empty = self.state.contents(node).is_empty();
            empty.then(|| u128::from(u64::MAX) - self.price(node))
        };
        let mut queue = self.queue(rank);
        while let Some(node) = queue.next(&self.state.zones) {
            let mark = self.state.mark();
            match self.state.take(node, reason) {
                Err(refusal) => self.keep(node, refusal),
                Ok(_) => match self.state.rules_hold() {
                    Err(pod) => self.undo(mark, &[node], Refusal::NoPlace(pod, Rule::TopologySpread)),
                    Ok(()) => self.commit(vec![node], reason, Vec::new()),
                },
            }
        }
    }

    /// Drifted or expired nodes, the oldest first; their pods move to room elsewhere, or to what is bought for them.
    fn replace_outdated(&mut self, reason: DisruptionReason) {
        let applies = |node: NodeId| {
            let of = self.node(node);
            let pool = &self.state.snapshot.pools[of.pool?.index()];
            let outdated = match reason {
                DisruptionReason::Drifted => of.drifted.is_some(),
                _ => expired(self.state.snapshot, of, pool.disruption.expire_after),
            };
            outdated.then(|| of.created.abs_diff(i64::MIN).into())
        };
        let mut queue = self.queue(applies);
        while let Some(node) = queue.next(&self.state.zones) {
            let mark = self.state.mark();
            match self.trial(&[node], reason, Buying::Whatever) {
                Err(refusal) => self.undo(mark, &[node], refusal),
                Ok((nodes, bought)) => self.commit(nodes, reason, bought),
            }
        }
    }

    /// Empties nodes one by one into room elsewhere.
    fn delete_underused(&mut self) -> bool {
        let mut queue = self.queue(|node| self.use_of(node));
        let mut failures = 0;
        let mut found = false;
        while let Some(node) = queue.next(&self.state.zones) {
            if failures >= MAX_FAILURES {
                break;
            }
            if let Some(pod) = self.hopeless(node) {
                let refusal = self.refused(node).unwrap_or(Refusal::NoPlace(pod, Rule::Resources));
                self.keep(node, refusal);
                continue;
            }
            let mark = self.state.mark();
            let tried = self.trial(&[node], DisruptionReason::Underutilized, Buying::Nothing);
            match tried.and_then(|(nodes, _)| self.worthwhile(&nodes, &[]).map(|()| nodes)) {
                Ok(nodes) => {
                    self.commit(nodes, DisruptionReason::Underutilized, Vec::new());
                    found = true;
                }
                Err(refusal) => {
                    failures += usize::from(matches!(refusal, Refusal::NoPlace(..)));
                    self.undo(mark, &[node], refusal);
                }
            }
        }
        found
    }

    /// Why the node may not go, whatever becomes of its pods.
    fn refused(&self, node: NodeId) -> Option<Refusal> {
        let accounts = &self.state.accounts;
        let reason = self.reason_for(node, DisruptionReason::Underutilized);
        let pool = self.node(node).pool?;
        if accounts.budgets.left(pool, reason) == Some(0) {
            return Some(accounts.used_up(pool, reason, None));
        }
        accounts.eligible(self.state.snapshot, node, reason).err()
    }

    /// A pod of the node for which there is no room anywhere: then nothing has to be tried.
    fn hopeless(&mut self, node: NodeId) -> Option<PodId> {
        let largest =
            self.state.contents(node).iter().max_by_key(|pod| (self.values[self.state.class(**pod).index()], **pod))?;
        let class = self.state.class(*largest);
        let room = self.receivers.any_room(&self.state.board, class);
        (!room).then_some(*largest)
    }

    /// Plans groups of nodes anew, the worst used first.
    fn replace_underused(&mut self) -> bool {
        let badly = |node: NodeId| self.use_of(node).filter(|used| *used < WELL_USED);
        let queue = self.queue(badly);
        let mut nodes = queue.drain(self.state.snapshot, self.state.zones.clone());
        let reason = DisruptionReason::Underutilized;
        nodes.retain(|&node| {
            let reason = self.reason_for(node, reason);
            self.state.accounts.eligible(self.state.snapshot, node, reason).is_ok()
        });
        let many = nodes.len() > MANY;
        let mut found = false;
        let mut rest = &nodes[..];
        while !rest.is_empty() && self.solves < MAX_SOLVES {
            let group = &rest[..rest.len().min(GROUP)];
            let replaced = self.replace_group(group, many);
            found |= replaced > 0;
            rest = &rest[if replaced > 0 { replaced } else { group.len() }..];
        }
        found
    }

    /// Replaces a part of a group, from its start; how many nodes were looked at for good.
    fn replace_group(&mut self, group: &[NodeId], many: bool) -> usize {
        if many {
            return if self.replace_nodes(group) { group.len() } else { 0 };
        }
        let mut best: Option<(i128, usize)> = None;
        for size in sizes(group.len()) {
            let Some(savings) = self.savings_of(&group[..size]) else { continue };
            // A larger group must save clearly more.
            if best.is_none_or(|(known, _)| savings * 9 > known * 10) {
                best = Some((savings, size));
            }
        }
        let Some((savings, size)) = best else { return 0 };
        let nodes = self.without_needless(&group[..size], savings);
        if self.replace_nodes(&nodes) { size } else { 0 }
    }

    /// Replaces these nodes, if that is worth it.
    fn replace_nodes(&mut self, nodes: &[NodeId]) -> bool {
        let reason = DisruptionReason::Underutilized;
        let mark = self.state.mark();
        let tried = self.trial(nodes, reason, Buying::Cheaper);
        match tried.and_then(|(nodes, bought)| self.worthwhile(&nodes, &bought).map(|()| (nodes, bought))) {
            Ok((nodes, bought)) => {
                self.commit(nodes, reason, bought);
                true
            }
            Err(refusal) => {
                self.undo(mark, nodes, refusal);
                false
            }
        }
    }

    /// Nodes that are bought, for pods that wait or for others, and are not needed any more.
    fn give_back_needless(&mut self) -> bool {
        let price = |spot: &SpotId| std::cmp::Reverse(self.price_of(*spot));
        let mut spots = self.planned.clone();
        spots.sort_by_key(price);
        let mut found = false;
        for spot in spots.into_iter().take(MAX_FAILURES) {
            let mark = self.state.mark();
            let pods = self.state.lift(spot);
            let needed = pods.is_empty() || !self.state.give_back_unused(spot);
            self.receivers.refresh(&self.state.board, spot);
            let moved = !needed && self.move_elsewhere(pods, true).is_ok();
            let enough = || self.enough(self.state.market.offer(self.state.board.offer(spot)?).pool).ok();
            if moved && enough().is_some() && self.state.rules_hold().is_ok() {
                self.receivers.settle();
                self.planned.retain(|planned| *planned != spot);
                for step in &mut self.steps {
                    step.bought.retain(|bought| *bought != spot);
                }
                found = true;
            } else {
                self.undo(mark, &[], Refusal::NoSaving);
            }
        }
        found
    }

    /// What replacing these nodes would save; nothing if it cannot be done.
    fn savings_of(&mut self, nodes: &[NodeId]) -> Option<i128> {
        let mark = self.state.mark();
        let tried = self.trial(nodes, DisruptionReason::Underutilized, Buying::Cheaper);
        let savings = match tried {
            Err(refusal) => {
                self.undo(mark, nodes, refusal);
                return None;
            }
            Ok((taken, bought)) => self.savings(&taken, &bought),
        };
        self.undo(mark, nodes, Refusal::NoSaving);
        (savings > 0).then_some(savings)
    }

    /// Leaves out nodes whose replacement saves nothing by itself.
    fn without_needless(&mut self, nodes: &[NodeId], savings: i128) -> Vec<NodeId> {
        let mut nodes = nodes.to_vec();
        if nodes.len() > SMALL {
            return nodes;
        }
        let mut index = nodes.len();
        while index > 0 && nodes.len() > 1 {
            index -= 1;
            let mut fewer = nodes.clone();
            fewer.remove(index);
            if self.savings_of(&fewer).is_some_and(|without| without >= savings) {
                nodes = fewer;
            }
        }
        nodes
    }

    /// What a replacement of these nodes may cost.
    fn most(&self, nodes: &[NodeId]) -> u128 {
        nodes.iter().map(|node| self.price(*node)).sum()
    }

    /// Takes nodes away and finds places for their pods. Of several nodes those that may not go are left out.
    fn trial(
        &mut self,
        nodes: &[NodeId],
        reason: DisruptionReason,
        buying: Buying,
    ) -> Result<(Vec<NodeId>, Vec<SpotId>), Refusal> {
        let mut taken = Vec::with_capacity(nodes.len());
        let mut pods = Vec::new();
        for &node in nodes {
            match self.state.take(node, self.reason_for(node, reason)) {
                Ok(more) => {
                    pods.extend(more);
                    taken.push(node);
                    self.receivers.refresh(&self.state.board, SpotId(node.0));
                }
                Err(refusal) if nodes.len() == 1 => return Err(refusal),
                Err(_) => {}
            }
        }
        let left = self.move_elsewhere(pods, buying == Buying::Nothing)?;
        let most = match buying {
            Buying::Nothing => 0,
            Buying::Cheaper => self.most(&taken),
            Buying::Whatever => u128::MAX,
        };
        let bought = if left.is_empty() { Vec::new() } else { self.make_room(&left, most)? };
        self.enough_nodes(&taken)?;
        self.state.rules_hold().map_err(|pod| Refusal::NoPlace(pod, Rule::TopologySpread))?;
        Ok((taken, bought))
    }

    /// A node whose only pods are ones that wait is empty as long as they do.
    fn reason_for(&self, node: NodeId, reason: DisruptionReason) -> DisruptionReason {
        let empty = self.state.accounts.is_empty(self.state.snapshot, node);
        if empty && reason == DisruptionReason::Underutilized { DisruptionReason::Empty } else { reason }
    }

    /// Buys nodes for pods, or lets an empty node stay for them.
    fn make_room(&mut self, pods: &[PodId], most: u128) -> Result<Vec<SpotId>, Refusal> {
        self.solves += 1;
        let refusal = |pod| if most == u128::MAX { Refusal::NoPlace(pod, Rule::Resources) } else { Refusal::NoSaving };
        let quote = purchase::quote(&mut self.state, &self.on_sale, pods, most, self.budget);
        // A node that is there need not be quite as cheap as a new one.
        let price = quote.as_ref().map_or(most, purchase::Quote::cost);
        let limit = price.saturating_add(price / LEAST_SAVING).min(most);
        if let Some(node) = self.restore_for(pods, limit) {
            return Ok(vec![SpotId(node.0)]);
        }
        purchase::buy(&mut self.state, &self.on_sale, quote.map_err(refusal)?).map_err(refusal)
    }

    /// The cheapest of the empty nodes that go, below a price, that holds all these pods; they are put on it.
    fn restore_for(&mut self, pods: &[PodId], limit: u128) -> Option<NodeId> {
        let mut kinds = BTreeMap::new();
        for step in self.steps.iter().filter(|step| step.reason == DisruptionReason::Empty) {
            for &node in &step.nodes {
                let of = self.node(node);
                let outdated = of.drifted.is_some() || !self.removed[node.index()];
                if !outdated && of.price.is_some() && self.price(node) < limit {
                    let kind = (self.price(node), of.pool, of.instance_type, of.zone, of.capacity_type);
                    kinds.entry(kind).or_insert(node);
                }
            }
        }
        for node in kinds.into_values().take(MAX_RESTORES) {
            let mark = self.state.mark();
            self.state.restore(node);
            let spot = SpotId(node.0);
            let fits = pods.iter().all(|&pod| {
                let fits = self.state.board.check(self.state.class(pod), spot).is_ok();
                if fits {
                    self.state.put(pod, spot);
                }
                fits
            });
            if fits {
                return Some(node);
            }
            self.state.undo(mark);
        }
        None
    }

    /// Moves pods to nodes with room, large ones first; gives back those that found none.
    fn move_elsewhere(&mut self, mut pods: Vec<PodId>, all: bool) -> Result<Vec<PodId>, Refusal> {
        let key = |pod: &PodId| {
            let class = self.state.class(*pod);
            (std::cmp::Reverse(self.values[class.index()]), class, *pod)
        };
        pods.sort_unstable_by_key(key);
        let mut left = Vec::new();
        for pod in pods {
            let class = self.state.class(pod);
            match self.receivers.find(&mut self.state.board, class) {
                Ok(spot) => {
                    self.state.put(pod, spot);
                    self.receivers.refresh(&self.state.board, spot);
                }
                Err(rule) if all => return Err(Refusal::NoPlace(pod, rule)),
                Err(_) => left.push(pod),
            }
        }
        Ok(left)
    }

    /// Whether pools that lose nodes keep their least number.
    fn enough_nodes(&self, nodes: &[NodeId]) -> Result<(), Refusal> {
        nodes.iter().filter_map(|node| self.node(*node).pool).try_for_each(|pool| self.enough(pool))
    }

    fn enough(&self, pool: PoolId) -> Result<(), Refusal> {
        let least = self.state.snapshot.pools[pool.index()].min_nodes;
        if self.state.accounts.nodes[pool.index()] < least { Err(Refusal::LeastNodes(least)) } else { Ok(()) }
    }

    fn savings(&self, nodes: &[NodeId], bought: &[SpotId]) -> i128 {
        let spent: u128 = bought.iter().map(|spot| self.price_of(*spot)).sum();
        self.most(nodes) as i128 - spent as i128
    }

    /// What a node costs that is bought, or that stays because of this.
    fn price_of(&self, spot: SpotId) -> u128 {
        match self.state.board.offer(spot) {
            Some(offer) => u128::from(self.state.market.offer(offer).price),
            None => self.price(NodeId(spot.0)),
        }
    }

    /// Whether taking these nodes away saves enough.
    fn worthwhile(&self, nodes: &[NodeId], bought: &[SpotId]) -> Result<(), Refusal> {
        let savings = self.savings(nodes, bought);
        let least = self.most(nodes).div_ceil(LEAST_SAVING);
        if savings <= 0 || !bought.is_empty() && (savings as u128) < least {
            return Err(Refusal::NoSaving);
        }
        let approved = self.totals.approve(self.state.snapshot, &self.state.accounts.residents, nodes, savings);
        if approved { Ok(()) } else { Err(Refusal::NotWorthwhile) }
    }

    fn keep(&mut self, node: NodeId, refusal: Refusal) {
        self.kept[node.index()] = Some(refusal);
    }

    fn undo(&mut self, mark: Mark, nodes: &[NodeId], refusal: Refusal) {
        let touched = self.state.touched(mark);
        self.state.undo(mark);
        self.receivers.undo(&self.state.board, &touched);
        for &node in nodes {
            self.keep(node, refusal.clone());
        }
    }

    fn commit(&mut self, nodes: Vec<NodeId>, reason: DisruptionReason, mut bought: Vec<SpotId>) {
        for node in &nodes {
            self.removed[node.index()] = true;
            self.kept[node.index()] = None;
        }
        let restored: Vec<NodeId> =
            bought.iter().filter(|spot| self.state.board.offer(**spot).is_none()).map(|spot| NodeId(spot.0)).collect();
        for node in restored {
            self.removed[node.index()] = false;
            self.keep(node, Refusal::Promised);
            self.steps.retain(|step| step.nodes != [node]);
        }
        bought.retain(|spot| self.state.board.offer(*spot).is_some());
        let reason = if let [node] = nodes[..] { self.reason_for(node, reason) } else { reason };
        self.planned.extend(&bought);
        self.receivers.settle();
        self.receivers.extend(&self.state.board, &bought);
        self.steps.push(Step { nodes, reason, bought });
    }

    /// The plan with what was decided.
    fn finish(mut self, mut outcome: Outcome) -> Consolidated {
        let snapshot = self.state.snapshot;
        let nodes = self.planned.iter().map(|spot| self.state.board.offer(*spot).expect("what is bought is an offer"));
        outcome.plan.new_nodes = nodes.map(|offer| new_node(self.state.market, offer)).collect();
        let indices: HashMap<SpotId, u32> = self.planned.iter().copied().zip(0..).collect();
        for (pod, target) in &mut outcome.plan.placements {
            let spot = self.state.location(*pod).expect("every pod that waits was put somewhere");
            *target = target_of(&indices, spot);
        }
        let mut moved = 0;
        for step in std::mem::take(&mut self.steps) {
            let disruption = step.nodes.iter().map(|node| pods_cost(snapshot, &self.state.accounts.residents, *node));
            let disruption = disruption.sum();
            for &node in &step.nodes {
                for pod in self.state.accounts.residents.movers(snapshot, node) {
                    let spot = self.state.location(pod).expect("every pod of a node that goes was moved");
                    outcome.plan.placements.push((pod, target_of(&indices, spot)));
                    moved += 1;
                }
                outcome.report.bound -= self.price(node);
            }
            let savings = self.savings(&step.nodes, &step.bought);
            outcome.plan.removals.push(Removal {
                nodes: step.nodes,
                replacements: step.bought.iter().map(|spot| indices[spot]).collect(),
                reason: step.reason,
                savings,
                disruption,
            });
        }
        outcome.plan.placements.sort_unstable_by_key(|(pod, _)| *pod);
        let stays = |(index, node): &(usize, &Node)| !self.removed[*index] && node.state != NodeState::Leaving;
        let staying = || snapshot.nodes.iter().enumerate().filter(stays);
        let cost = staying().map(|(index, _)| self.price(NodeId::from(index)));
        outcome.report.cost_after = cost.chain(self.planned.iter().map(|spot| self.price_of(*spot))).sum();
        outcome.report.nodes_after = staying().count() + self.planned.len();
        outcome.report.pods += moved;
        outcome.report.work += self.solves as u64;
        let kept = self.reasons_to_stay();
        Consolidated { outcome, kept }
    }

    /// For every node that stays the most telling refusal.
    fn reasons_to_stay(&mut self) -> Vec<Option<Refusal>> {
        let mut kept = std::mem::take(&mut self.kept);
        for (index, refusal) in kept.iter_mut().enumerate() {
            let node = NodeId::from(index);
            if self.removed[index] {
                *refusal = None;
            } else if refusal.as_ref().is_none_or(Refusal::beside_the_point) {
                *refusal = Some(match self.state.accounts.reason(self.state.snapshot, node) {
                    Err(refusal) => refusal,
                    Ok(_) if !self.state.contents(node).is_empty() => Refusal::Promised,
                    Ok(_) => Refusal::NoSaving,
                });
            }
        }
        self.add_chances(&mut kept);
        kept
    }

    /// Says when budgets that are used up let another node go; once for each pool and reason.
    fn add_chances(&self, kept: &mut [Option<Refusal>]) {
        let mut known = HashMap::new();
        for (index, refusal) in kept.iter_mut().enumerate() {
            let Some(pool) = self.state.snapshot.nodes[index].pool else { continue };
            if let Some(Refusal::Budget { opens, budget, .. }) = refusal {
                *opens = *known.entry((pool, *budget)).or_insert_with(|| {
                    let reasons = &self.state.snapshot.pools[pool.index()].disruption.budgets[*budget].reasons;
                    let reason = reasons.first().copied().unwrap_or(DisruptionReason::Underutilized);
                    self.state.accounts.budgets.opens(pool, reason, self.state.snapshot.now)
                });
            }
        }
    }
}

/// What may be bought in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Buying {
    Nothing,
    Cheaper,
    Whatever,
}

/// Puts a plan for pods that wait on the board.
fn add_plan(state: &mut State<'_>, plan: &Plan) -> Vec<SpotId> {
    let mut offers: HashMap<(PoolId, u32, u32), Vec<usize>> = HashMap::new();
    if !plan.new_nodes.is_empty() {
        for (index, offer) in state.market.offers().iter().enumerate() {
            offers.entry((offer.pool, offer.instance_type.0, offer.offering)).or_default().push(index);
        }
    }
    let mut planned = Vec::with_capacity(plan.new_nodes.len());
    for node in &plan.new_nodes {
        let alike = offers.get(&(node.pool, node.instance_type.0, node.offering)).map_or(&[][..], Vec::as_slice);
        let offer = alike.iter().copied().find(|&offer| state.market.offer(offer).labels == node.labels);
        planned.push(state.add_planned(offer.expect("a plan buys what is on offer")));
    }
    for &(pod, target) in &plan.placements {
        let spot = match target {
            Target::Existing(node) => SpotId(node.0),
            Target::New(index) => planned[index as usize],
        };
        state.add_waiting(pod, spot);
    }
    state.accept_plan();
    planned
}

fn target_of(indices: &HashMap<SpotId, u32>, spot: SpotId) -> Target {
    indices.get(&spot).map_or(Target::Existing(NodeId(spot.0)), |index| Target::New(*index))
}

fn new_node(market: &Market, offer: usize) -> NewNode {
    let offer = market.offer(offer);
    NewNode {
        pool: offer.pool,
        instance_type: offer.instance_type,
        offering: offer.offering,
        price: offer.price,
        labels: offer.labels.clone(),
    }
}

/// Pools that ask for several types to choose from are not bought from here: what is chosen is one type.
fn without_least_values(snapshot: &Snapshot, market: &Market, on_sale: &mut BitSet) {
    for (index, pool) in snapshot.pools.iter().enumerate() {
        if pool.requirements.iter().any(|(_, requirement)| requirement.min_values().is_some()) {
            on_sale.subtract(market.of_pool(PoolId::from(index)));
        }
    }
}

/// What all pods that could move ask for.
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

fn expired(snapshot: &Snapshot, node: &Node, after: Option<i64>) -> bool {
    after.is_some_and(|after| node.created.saturating_add(after) <= snapshot.now)
}

/// Whether pods are moved to a node: not to one that is not ready, or is outdated itself, or would only wait longer to
/// be quiet.
fn receives(snapshot: &Snapshot, node: &Node) -> bool {
    let Some(pool) = node.pool.map(|pool| &snapshot.pools[pool.index()]) else {
        return node.ready && node.state == NodeState::Running;
    };
    let outdated = node.drifted.is_some() || expired(snapshot, node, pool.disruption.expire_after);
    let restless = matches!(settled(snapshot, node, pool), Err(Refusal::Unsettled(_)));
    node.ready && node.state == NodeState::Running && node.initialized.is_some() && !outdated && !restless
}

/// Sizes of the parts of a group that are tried.
fn sizes(whole: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (1..=4).collect();
    while let Some(last) = sizes.last().copied().filter(|last| *last < whole) {
        sizes.push(last + last / 2);
    }
    sizes.retain(|size| *size < whole);
    sizes.push(whole);
    sizes
}
