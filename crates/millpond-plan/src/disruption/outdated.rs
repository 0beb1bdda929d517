//! Nodes that are removed without regard to savings: empty, drifted and expired ones.

use super::eligible::DisruptionBlocker;
use super::planner::{Planner, expired};
use super::trial::Buying;
use crate::model::{DisruptionReason, NodeId};

impl Planner<'_> {
    pub(super) fn remove_empty(&mut self) {
        let reason = DisruptionReason::Empty;
        let rank = |node: NodeId| {
            let empty = self.state.contents(node).is_empty();
            empty.then(|| u128::from(u64::MAX) - self.price(node))
        };
        let mut queue = self.queue(rank);
        while let Some(node) = queue.next(&self.state.zones) {
            let mark = self.state.mark();
            match self.state.take(node, reason) {
                Err(blocker) => self.keep(node, blocker),
                Ok(_) => match self.state.rules_hold() {
                    Err((pod, rule)) => self.undo(mark, &[node], DisruptionBlocker::NoPlace(pod, rule)),
                    Ok(()) => self.commit(vec![node], reason, Vec::new()),
                },
            }
        }
    }

    /// Removes drifted or expired nodes, the oldest first; their pods move to existing nodes or to nodes bought for
    /// them.
    pub(super) fn replace_outdated(&mut self, reason: DisruptionReason) {
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
                Err(blocker) => self.undo(mark, &[node], blocker),
                Ok((nodes, bought)) => self.commit(nodes, reason, bought),
            }
        }
    }
}
