//! One trial: nodes are removed, and their pods go to existing nodes, to an empty node whose removal is reverted, or to
//! nodes that are bought.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::eligible::DisruptionBlocker;
use super::planner::Planner;
use super::purchase::{self, Filled, Purchase, Quote};
use super::replacement_set;
use crate::cluster_state::NodeSlotId;
use crate::model::{DisruptionReason, NodeId, PodId, PoolId};

/// Replacements must save at least one part in this many.
const LEAST_SAVING: u128 = 20;
/// Limit on the kinds of empty nodes that are tried instead of buying.
const MAX_RESTORES: usize = 16;

/// What a trial may buy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buying {
    /// Nothing: the pods must fit on existing nodes.
    Nothing,
    /// Nodes that cost less than the removed ones.
    Cheaper,
    /// Any node that the pods need, at any price.
    Whatever,
}

/// Ways to find nodes that hold pods in any scheduling order.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// A single node.
    One,
    /// A small set of nodes that holds any mixture of the pods.
    ReplacementSet,
    /// The kernel's choice, with one part in this many of each node left free.
    AllBut(i64),
}

impl Way {
    /// Less slack than a twenty-fourth finds hardly anything that the other ways do not, and more than a twelfth finds
    /// nothing cheaper.
    const ALL: [Self; 4] = [Self::One, Self::ReplacementSet, Self::AllBut(24), Self::AllBut(12)];
}

impl Planner<'_> {
    /// Removes nodes and finds places for their pods. If there are several nodes, those that are not eligible are left
    /// out.
    pub(super) fn trial(
        &mut self,
        nodes: &[NodeId],
        reason: DisruptionReason,
        buying: Buying,
    ) -> Result<(Vec<NodeId>, Vec<NodeSlotId>), DisruptionBlocker> {
        let mut taken = Vec::with_capacity(nodes.len());
        let mut pods = Vec::new();
        for &node in nodes {
            match self.state.take(node, self.reason_for(node, reason)) {
                Ok(more) => {
                    pods.extend(more);
                    taken.push(node);
                    self.receivers.refresh(&self.state.cluster, NodeSlotId(node.0));
                }
                Err(blocker) if nodes.len() == 1 => return Err(blocker),
                Err(_) => {}
            }
        }
        let left = self.move_elsewhere(pods.clone(), buying == Buying::Nothing)?;
        let most = match buying {
            Buying::Nothing => 0,
            Buying::Cheaper => self.most(&taken),
            Buying::Whatever => u128::MAX,
        };
        let mut bought = if left.is_empty() { Vec::new() } else { self.make_room(&left, most)? };
        // Only for removals that must happen: one that merely saves cost can wait until it breaks no rule.
        if buying == Buying::Whatever {
            self.mend(&pods, &mut bought)?;
        }
        self.enough_nodes(&taken)?;
        self.state.rules_hold().map_err(|(pod, rule)| DisruptionBlocker::NoPlace(pod, rule))?;
        Ok((taken, bought))
    }

    /// Moves those pods whose rules were broken by pods placed after them; each is moved about once.
    fn mend(&mut self, pods: &[PodId], bought: &mut Vec<NodeSlotId>) -> Result<(), DisruptionBlocker> {
        for _ in pods {
            let Some((pod, _)) = self.state.rules_hold().err().filter(|(pod, _)| pods.contains(pod)) else { break };
            let Some(spot) = self.state.take_off(pod) else { break };
            self.receivers.refresh(&self.state.cluster, spot);
            let class = self.state.class(pod);
            if let Some(&spot) = bought.iter().find(|spot| self.state.cluster.check(class, **spot).is_ok()) {
                self.state.put(pod, spot);
            } else if !self.move_elsewhere(vec![pod], false)?.is_empty() {
                bought.extend(self.make_room(&[pod], u128::MAX)?);
            }
        }
        bought.retain(|spot| !self.state.give_back_unused(*spot));
        Ok(())
    }

    /// Moves pods to nodes with free capacity, large pods first; returns those that fit nowhere.
    pub(super) fn move_elsewhere(&mut self, mut pods: Vec<PodId>, all: bool) -> Result<Vec<PodId>, DisruptionBlocker> {
        let key = |pod: &PodId| {
            let class = self.state.class(*pod);
            (Reverse(self.values[class.index()]), class, *pod)
        };
        pods.sort_unstable_by_key(key);
        let mut left = Vec::new();
        for pod in pods {
            let class = self.state.class(pod);
            match self.receivers.find(&mut self.state.cluster, class) {
                Ok(spot) => {
                    self.state.put(pod, spot);
                    self.receivers.refresh(&self.state.cluster, spot);
                }
                Err(rule) if all => return Err(DisruptionBlocker::NoPlace(pod, rule)),
                Err(_) => left.push(pod),
            }
        }
        Ok(left)
    }

    /// Buys nodes for pods, or keeps an empty node for them.
    fn make_room(&mut self, pods: &[PodId], most: u128) -> Result<Vec<NodeSlotId>, DisruptionBlocker> {
        self.solves += 1;
        let blocker = |why| if most == u128::MAX { why } else { DisruptionBlocker::NoSaving };
        let quote = self.quote(pods, most, Filled::Whole);
        // An existing node may cost a little more than a new one.
        let price = quote.as_ref().map_or(most, purchase::Quote::cost);
        let limit = price.saturating_add(price / LEAST_SAVING).min(most);
        if let Some(node) = self.restore_for(pods, limit) {
            return Ok(vec![NodeSlotId(node.0)]);
        }
        let mark = self.state.mark();
        let tight = purchase::buy(&mut self.state, &self.on_sale, quote.map_err(blocker)?).map_err(blocker)?;
        if purchase::holds_anyhow(&self.state, &tight) {
            return Ok(tight);
        }
        self.state.undo(mark);
        match self.buy_roomier(pods, most) {
            Some(bought) => Ok(bought),
            // Drifted and expired nodes are removed even so.
            None if most == u128::MAX => {
                let quote = self.quote(pods, most, Filled::Whole).map_err(blocker)?;
                purchase::buy(&mut self.state, &self.on_sale, quote).map_err(blocker)
            }
            None => Err(DisruptionBlocker::NoSaving),
        }
    }

    fn quote(&mut self, pods: &[PodId], most: u128, filled: Filled) -> Result<Quote, DisruptionBlocker> {
        purchase::quote(&mut self.state, &self.on_sale, pods, most, filled, self.budget)
    }

    /// Buys nodes below a price that hold the pods in any scheduling order: the cheapest result of all ways.
    fn buy_roomier(&mut self, pods: &[PodId], most: u128) -> Option<Vec<NodeSlotId>> {
        let mut best: Option<Purchase> = None;
        for way in Way::ALL {
            let below = best.as_ref().map_or(most, |best| best.cost);
            let mark = self.state.mark();
            let bought = self.buy_by(way, pods, below).filter(|bought| purchase::holds_anyhow(&self.state, bought));
            let purchase = bought.map(|bought| Purchase::new(&self.state, &bought));
            self.state.undo(mark);
            best = purchase.filter(|purchase| purchase.cost < below).or(best);
        }
        best.map(|best| best.repeat(&mut self.state))
    }

    fn buy_by(&mut self, way: Way, pods: &[PodId], below: u128) -> Option<Vec<NodeSlotId>> {
        match way {
            Way::One => purchase::buy_one(&mut self.state, &self.on_sale, pods, below).map(|spot| vec![spot]),
            Way::ReplacementSet => replacement_set::buy(&mut self.state, &self.on_sale, pods, below),
            Way::AllBut(parts) => {
                let quote = self.quote(pods, below, Filled::AllBut(parts)).ok()?;
                purchase::buy(&mut self.state, &self.on_sale, quote).ok()
            }
        }
    }

    /// Restores the cheapest removed empty node, below a price, that holds all these pods, and puts them on it.
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
            let spot = NodeSlotId(node.0);
            if self.state.put_all(pods, spot) {
                return Some(node);
            }
            self.state.undo(mark);
        }
        None
    }

    /// Whether the pools of these nodes keep their minimum number of nodes.
    fn enough_nodes(&self, nodes: &[NodeId]) -> Result<(), DisruptionBlocker> {
        nodes.iter().filter_map(|node| self.node(*node).pool).try_for_each(|pool| self.enough(pool))
    }

    pub(super) fn enough(&self, pool: PoolId) -> Result<(), DisruptionBlocker> {
        let least = self.state.snapshot.pools[pool.index()].min_nodes;
        if self.state.accounts.nodes[pool.index()] < least { Err(DisruptionBlocker::LeastNodes(least)) } else { Ok(()) }
    }

    /// Whether removing these nodes saves enough.
    pub(super) fn worthwhile(&self, nodes: &[NodeId], bought: &[NodeSlotId]) -> Result<(), DisruptionBlocker> {
        let savings = self.savings(nodes, bought);
        let least = self.most(nodes).div_ceil(LEAST_SAVING);
        if savings <= 0 || !bought.is_empty() && (savings as u128) < least {
            return Err(DisruptionBlocker::NoSaving);
        }
        let approved = self.totals.approve(self.state.snapshot, &self.state.accounts.residents, nodes, savings);
        if approved { Ok(()) } else { Err(DisruptionBlocker::NotWorthwhile) }
    }
}
