//! Writes the decisions into the plan, and the reason why every other node stays.

use std::collections::HashMap;

use super::bound;
use super::consolidate::Consolidated;
use super::cost::pods_cost;
use super::eligible::DisruptionBlocker;
use super::planner::{Planner, Step, outdated};
use crate::cluster_state::NodeSlotId;
use crate::market::Market;
use crate::model::{DisruptionReason, Node, NodeId, NodeState};
use crate::plan::{NewNode, Outcome, Plan, Removal, Report, Target};

impl Planner<'_> {
    /// Completes the plan with removals, replacements and moved pods.
    pub(super) fn finish(mut self, mut outcome: Outcome) -> Consolidated {
        let indices: HashMap<NodeSlotId, u32> = self.planned.iter().copied().zip(0..).collect();
        self.place_waiting(&mut outcome.plan, &indices);
        let waiting = outcome.plan.placements.len();
        for step in std::mem::take(&mut self.steps) {
            self.add_removal(&mut outcome.plan, &indices, step);
        }
        outcome.report.pods += outcome.plan.placements.len() - waiting;
        outcome.plan.placements.sort_unstable_by_key(|(pod, _)| *pod);
        self.count(&mut outcome.report);
        let kept = self.reasons_to_stay();
        Consolidated { outcome, kept }
    }

    /// Adds the new nodes and the placements of pending pods.
    fn place_waiting(&self, plan: &mut Plan, indices: &HashMap<NodeSlotId, u32>) {
        let nodes =
            self.planned.iter().map(|spot| self.state.cluster.offer(*spot).expect("what is bought is an offer"));
        plan.new_nodes = nodes.map(|offer| new_node(self.state.market, offer)).collect();
        for (pod, target) in &mut plan.placements {
            let spot = self.state.location(*pod).expect("every pod that waits was put somewhere");
            *target = target_of(indices, spot);
        }
    }

    fn add_removal(&self, plan: &mut Plan, indices: &HashMap<NodeSlotId, u32>, step: Step) {
        let (snapshot, residents) = (self.state.snapshot, &self.state.accounts.residents);
        for pod in step.nodes.iter().flat_map(|node| residents.movers(snapshot, *node)) {
            let spot = self.state.location(pod).expect("every pod of a node that goes was moved");
            plan.placements.push((pod, target_of(indices, spot)));
        }
        plan.removals.push(Removal {
            savings: self.savings(&step.nodes, &step.bought),
            disruption: step.nodes.iter().map(|node| pods_cost(snapshot, residents, *node)).sum(),
            replacements: step.bought.iter().map(|spot| indices[spot]).collect(),
            reason: step.reason,
            nodes: step.nodes,
        });
    }

    /// Counts the nodes and costs of the cluster after the plan.
    fn count(&mut self, report: &mut Report) {
        let nodes = &self.state.snapshot.nodes;
        let stays = |(index, node): &(usize, &Node)| !self.removed[*index] && node.state != NodeState::Leaving;
        let staying = || nodes.iter().enumerate().filter(stays);
        let cost = staying().map(|(index, _)| self.price(NodeId::from(index)));
        report.cost_after = cost.chain(self.planned.iter().map(|spot| self.price_of(*spot))).sum();
        report.nodes_after = staying().count() + self.planned.len();
        report.work += self.solves as u64;
        if let Some(proof) = self.proof.take() {
            report.bound = bound::value(self.state.snapshot, &proof);
            report.proofs = vec![proof];
        }
    }

    /// For each node that stays, the blocker that explains it best.
    fn reasons_to_stay(&mut self) -> Vec<Option<DisruptionBlocker>> {
        let mut kept = std::mem::take(&mut self.kept);
        for (index, blocker) in kept.iter_mut().enumerate() {
            let node = NodeId::from(index);
            if self.removed[index] {
                *blocker = None;
            } else if blocker.as_ref().is_none_or(DisruptionBlocker::is_inapplicable) {
                *blocker = Some(match self.state.accounts.reason(self.state.snapshot, node) {
                    Err(blocker) => blocker,
                    Ok(_) if !self.state.contents(node).is_empty() => DisruptionBlocker::Promised,
                    Ok(_) => DisruptionBlocker::NoSaving,
                });
            }
            if blocker.as_ref().is_some_and(|blocker| self.is_for_buffers(node, blocker)) {
                *blocker = Some(DisruptionBlocker::Buffer);
            }
        }
        self.add_chances(&mut kept);
        kept
    }

    /// Whether the node would be removed but for the capacity buffers placed on it.
    fn is_for_buffers(&self, node: NodeId, blocker: &DisruptionBlocker) -> bool {
        let snapshot = self.state.snapshot;
        let for_its_pods = matches!(
            blocker,
            DisruptionBlocker::NoPlace(..)
                | DisruptionBlocker::NoSaving
                | DisruptionBlocker::OnlyWhenEmpty
                | DisruptionBlocker::Promised
        );
        for_its_pods && !outdated(snapshot, self.node(node)) && self.state.accounts.is_buffer_only(snapshot, node)
    }

    /// Fills in when budgets that are used up next allow a node to be disrupted, computed once for each pool and
    /// reason.
    fn add_chances(&self, kept: &mut [Option<DisruptionBlocker>]) {
        let mut known = HashMap::new();
        for (index, blocker) in kept.iter_mut().enumerate() {
            let Some(pool) = self.state.snapshot.nodes[index].pool else { continue };
            if let Some(DisruptionBlocker::Budget { opens, budget, .. }) = blocker {
                *opens = *known.entry((pool, *budget)).or_insert_with(|| {
                    let reasons = &self.state.snapshot.pools[pool.index()].disruption.budgets[*budget].reasons;
                    let reason = reasons.first().copied().unwrap_or(DisruptionReason::Underutilized);
                    self.state.accounts.budgets.opens(pool, reason, self.state.snapshot.now)
                });
            }
        }
    }
}

fn target_of(indices: &HashMap<NodeSlotId, u32>, spot: NodeSlotId) -> Target {
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
