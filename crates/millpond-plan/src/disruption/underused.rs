//! Nodes that cost more than the value of their pods: deleted one by one if their pods fit on other nodes, or replaced
//! in groups.

use std::cmp::Reverse;

use super::eligible::DisruptionBlocker;
use super::planner::Planner;
use super::purchase;
use super::trial::Buying;
use crate::cluster_state::NodeSlotId;
use crate::model::{DisruptionReason, NodeId, PodId};
use crate::plan::Rule;

/// Number of nodes that are replanned together, if there are that many.
const GROUP: usize = 64;
/// The largest group in a large cluster. Larger groups pack better and need less work in total, but a step waits for
/// all its new nodes and so should not cover most of the cluster.
const MAX_GROUP: usize = 256;
/// In a large cluster a group is one part in this many of the candidates.
const GROUPS: usize = 8;
/// With more candidates than this, only whole groups are tried and not parts of them.
const MANY: usize = 256;
/// For groups up to this size, leaving out each single node is tried as well.
const SMALL: usize = 12;
/// Limit on the packing problems that are solved for replacements.
const MAX_SOLVES: usize = 400;
/// After this many failed trials in one pass, the remaining nodes are not tried.
const MAX_FAILURES: usize = 400;
/// Nodes whose pods are worth more than this share of the price are not replanned, in millionths.
const WELL_USED: u128 = 950_000;

impl Planner<'_> {
    /// Removes nodes one by one whose pods fit on other nodes.
    pub(super) fn delete_underused(&mut self) -> bool {
        let mut queue = self.queue(|node| self.use_of(node));
        let mut failures = 0;
        let mut found = false;
        while let Some(node) = queue.next(&self.state.zones) {
            if failures >= MAX_FAILURES {
                break;
            }
            if let Some(pod) = self.hopeless(node) {
                let blocker = self.refused(node).unwrap_or(DisruptionBlocker::NoPlace(pod, Rule::Resources));
                self.keep(node, blocker);
                continue;
            }
            let mark = self.state.mark();
            let tried = self.trial(&[node], DisruptionReason::Underutilized, Buying::Nothing);
            match tried.and_then(|(nodes, _)| self.worthwhile(&nodes, &[]).map(|()| nodes)) {
                Ok(nodes) => {
                    self.commit(nodes, DisruptionReason::Underutilized, Vec::new());
                    found = true;
                }
                Err(blocker) => {
                    failures += usize::from(matches!(blocker, DisruptionBlocker::NoPlace(..)));
                    self.undo(mark, &[node], blocker);
                }
            }
        }
        found
    }

    /// The blocker that keeps the node whatever its pods could do.
    fn refused(&self, node: NodeId) -> Option<DisruptionBlocker> {
        let accounts = &self.state.accounts;
        let reason = self.reason_for(node, DisruptionReason::Underutilized);
        match accounts.eligible_but_for_budgets(self.state.snapshot, node, reason) {
            Err(blocker) => Some(blocker),
            Ok(pool) if accounts.budgets.left(pool, reason) == Some(0) => Some(accounts.used_up(pool, reason, None)),
            Ok(pool) => accounts.above_least(self.state.snapshot, pool, reason).err(),
        }
    }

    /// A pod of the node that no other node has capacity for. If there is one, a trial would fail.
    fn hopeless(&mut self, node: NodeId) -> Option<PodId> {
        let largest =
            self.state.contents(node).iter().max_by_key(|pod| (self.values[self.state.class(**pod).index()], **pod))?;
        let class = self.state.class(*largest);
        let room = self.receivers.any_room(&self.state.cluster, class);
        (!room).then_some(*largest)
    }

    /// Replans groups of nodes, the least used first.
    pub(super) fn replace_underused(&mut self) -> bool {
        let badly = |node: NodeId| self.use_of(node).filter(|used| *used < WELL_USED);
        let queue = self.queue(badly);
        let mut nodes = queue.drain(self.state.snapshot, self.state.zones.clone());
        let reason = DisruptionReason::Underutilized;
        nodes.retain(|&node| {
            let reason = self.reason_for(node, reason);
            self.state.accounts.eligible(self.state.snapshot, node, reason).is_ok()
        });
        let many = nodes.len() > MANY;
        let size = (nodes.len() / GROUPS).clamp(GROUP, MAX_GROUP);
        let mut found = false;
        let mut rest = &nodes[..];
        while !rest.is_empty() && self.solves < MAX_SOLVES {
            let group = &rest[..rest.len().min(size)];
            let replaced = self.replace_group(group, many);
            found |= replaced > 0;
            rest = &rest[if replaced > 0 { replaced } else { group.len() }..];
        }
        found
    }

    /// Replaces the best prefix of a group and returns how many of its nodes are settled.
    fn replace_group(&mut self, group: &[NodeId], many: bool) -> usize {
        if many {
            return if self.replace_nodes(group) { group.len() } else { 0 };
        }
        let mut best: Option<(i128, usize)> = None;
        for size in sizes(group.len()) {
            let Some(savings) = self.savings_of(&group[..size]) else { continue };
            // Replacing a larger part must save clearly more, because it disrupts more.
            if best.is_none_or(|(known, _)| savings * 9 > known * 10) {
                best = Some((savings, size));
            }
        }
        let Some((savings, size)) = best else { return 0 };
        let nodes = self.without_needless(&group[..size], savings);
        if self.replace_nodes(&nodes) { size } else { 0 }
    }

    /// Replaces these nodes if the saving is worth it.
    fn replace_nodes(&mut self, nodes: &[NodeId]) -> bool {
        let reason = DisruptionReason::Underutilized;
        let mark = self.state.mark();
        let tried = self.trial(nodes, reason, Buying::Cheaper);
        match tried.and_then(|(nodes, bought)| self.worthwhile(&nodes, &bought).map(|()| (nodes, bought))) {
            Ok((nodes, bought)) => {
                self.commit(nodes, reason, bought);
                true
            }
            Err(blocker) => {
                self.undo(mark, nodes, blocker);
                false
            }
        }
    }

    /// What replacing these nodes would save; `None` if it is not possible.
    fn savings_of(&mut self, nodes: &[NodeId]) -> Option<i128> {
        let mark = self.state.mark();
        let tried = self.trial(nodes, DisruptionReason::Underutilized, Buying::Cheaper);
        let savings = match tried {
            Err(blocker) => {
                self.undo(mark, nodes, blocker);
                return None;
            }
            Ok((taken, bought)) => self.savings(&taken, &bought),
        };
        self.undo(mark, nodes, DisruptionBlocker::NoSaving);
        (savings > 0).then_some(savings)
    }

    /// Leaves out nodes that add nothing to the saving.
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

    /// Gives back planned nodes, for pending pods or replacements, that are no longer needed.
    pub(super) fn give_back_needless(&mut self) -> bool {
        let price = |spot: &NodeSlotId| Reverse(self.price_of(*spot));
        let mut spots = self.planned.clone();
        spots.sort_by_key(price);
        let mut found = false;
        for spot in spots.into_iter().take(MAX_FAILURES) {
            let mark = self.state.mark();
            let pods = self.state.lift(spot);
            let needed = pods.is_empty() || !self.state.give_back_unused(spot);
            self.receivers.refresh(&self.state.cluster, spot);
            let moved = !needed && self.move_elsewhere(pods, true).is_ok();
            let enough = || self.enough(self.state.market.offer(self.state.cluster.offer(spot)?).pool).ok();
            let rest: Vec<NodeSlotId> = self.planned.iter().copied().filter(|planned| *planned != spot).collect();
            let steady = || purchase::holds_anyhow(&self.state, &rest);
            if moved && enough().is_some() && self.state.rules_hold().is_ok() && steady() {
                self.receivers.settle();
                self.planned.retain(|planned| *planned != spot);
                for step in &mut self.steps {
                    step.bought.retain(|bought| *bought != spot);
                }
                found = true;
            } else {
                self.undo(mark, &[], DisruptionBlocker::NoSaving);
            }
        }
        found
    }
}

/// Sizes of the prefixes of a group that are tried.
fn sizes(whole: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (1..=4).collect();
    while let Some(last) = sizes.last().copied().filter(|last| *last < whole) {
        sizes.push(last + last / 2);
    }
    sizes.retain(|size| *size < whole);
    sizes.push(whole);
    sizes
}
