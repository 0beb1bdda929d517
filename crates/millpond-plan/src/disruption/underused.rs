//! Nodes that cost more than what is on them is worth: deleted one by one where there is room elsewhere, or replaced in
//! groups.

use std::cmp::Reverse;

use super::eligible::DisruptionBlocker;
use super::planner::Planner;
use super::purchase;
use super::trial::Buying;
use crate::cluster_state::NodeSlotId;
use crate::model::{DisruptionReason, NodeId, PodId};
use crate::plan::Rule;

/// Nodes that are planned anew together, at least if there are as many.
const GROUP: usize = 64;
/// The most of them in a large cluster. Larger groups are packed better and take less work in all, but a step that
/// waits for all its new nodes should not be most of the cluster.
const MAX_GROUP: usize = 256;
/// In a large cluster a group is one part of so many of the candidates.
const GROUPS: usize = 8;
/// With more candidates than this only whole groups are tried, not parts of them.
const MANY: usize = 256;
/// Groups up to this size are tried without each of their nodes.
const SMALL: usize = 12;
/// Packing problems that are solved for replacements.
const MAX_SOLVES: usize = 400;
/// Nodes whose pods were moved in vain, in one pass, after which the rest is not tried.
const MAX_FAILURES: usize = 400;
/// Pods worth more than this share of their node's price are not planned anew, in millionths.
const WELL_USED: u128 = 950_000;

impl Planner<'_> {
    /// Empties nodes one by one into room elsewhere.
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

    /// Why the node may not go, whatever becomes of its pods.
    fn refused(&self, node: NodeId) -> Option<DisruptionBlocker> {
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
        let room = self.receivers.any_room(&self.state.cluster, class);
        (!room).then_some(*largest)
    }

    /// Plans groups of nodes anew, the worst used first.
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
            Err(blocker) => {
                self.undo(mark, nodes, blocker);
                false
            }
        }
    }

    /// What replacing these nodes would save; nothing if it cannot be done.
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

    /// Nodes that are bought, for pods that wait or for others, and are not needed any more.
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
