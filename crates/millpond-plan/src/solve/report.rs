//! The report of a finished plan.

use std::collections::BTreeMap;

use crate::cluster_state::NodeSlotId;
use crate::model::{ClassId, PodId, Resources};
use crate::plan::{Outcome, Preference, Report, Target, Verdict};

use super::Solver;

impl Solver<'_> {
    /// Completes the plan and its report.
    pub(super) fn finish(mut self) -> Outcome {
        let (least, proof) = self.prove_bound().unzip();
        let (plan, unplaced) = self.assemble();
        let (verdicts, unplaced) = self.verdicts(&unplaced);
        let nodes = &self.snapshot.nodes;
        let price = |node: &crate::model::Node| u128::from(node.price.unwrap_or(0));
        let cost_before: u128 = nodes.iter().map(price).sum();
        let leaving = |node: &&crate::model::Node| node.state == crate::model::NodeState::Leaving;
        let staying: u128 = nodes.iter().filter(|node| !leaving(node)).map(price).sum();
        let bought: u128 = plan.new_nodes.iter().map(|node| u128::from(node.price)).sum();
        let report = Report {
            cost_before,
            cost_after: staying + bought,
            unpriced_nodes: nodes.iter().filter(|node| node.price.is_none()).count(),
            nodes_before: nodes.len(),
            nodes_after: nodes.iter().filter(|node| !leaving(node)).count() + plan.new_nodes.len(),
            pods: self.demand.total(),
            bound: staying + least.unwrap_or(0),
            proofs: proof.into_iter().collect(),
            unplaced,
            verdicts,
            relaxed: self.relaxed(&plan.placements),
            work: self.work,
        };
        Outcome { plan, report }
    }

    /// The free capacity of existing nodes before the plan put pods on them.
    pub(super) fn room_before(&self) -> Vec<(NodeSlotId, Resources)> {
        let mut room: Vec<(NodeSlotId, Resources)> = (0..self.snapshot.nodes.len() as u32)
            .map(NodeSlotId)
            .filter(|&spot| self.cluster.is_open(spot))
            .map(|spot| (spot, self.cluster.free(spot).clone()))
            .collect();
        let at: BTreeMap<NodeSlotId, usize> =
            room.iter().enumerate().map(|(index, (spot, _))| (*spot, index)).collect();
        for (class, spot, count) in &self.filled {
            let requests = &self.snapshot.classes[class.index()].requests;
            room[at[spot]].1.add_times(requests, i64::from(*count));
        }
        room
    }

    fn verdicts(&mut self, unplaced: &[PodId]) -> (Vec<Verdict>, Vec<(PodId, u32)>) {
        let mut known: BTreeMap<ClassId, u32> = BTreeMap::new();
        let mut verdicts = Vec::new();
        let mut which = Vec::with_capacity(unplaced.len());
        for &pod in unplaced {
            let class = self.snapshot.pods[pod.index()].class;
            let index = *known.entry(class).or_insert_with(|| {
                verdicts.push(crate::explain::verdict(
                    self.snapshot,
                    self.market,
                    &mut self.cluster,
                    self.ledger.usage(),
                    class,
                ));
                verdicts.len() as u32 - 1
            });
            which.push((pod, index));
        }
        (verdicts, which)
    }

    /// Node preferences that were not met.
    fn relaxed(&self, placements: &[(PodId, Target)]) -> Vec<(Preference, usize)> {
        let symbols = &self.snapshot.symbols;
        let mut relaxed: BTreeMap<Preference, usize> = BTreeMap::new();
        if !self.soft_taints && self.snapshot.classes.iter().all(|class| class.node_preferences.is_empty()) {
            return Vec::new();
        }
        let wishing = |pod: PodId| {
            let class = self.snapshot.class_of(pod);
            !class.node_preferences.is_empty() || self.soft_taints
        };
        let bought: Vec<&super::Planned> = self.planned.iter().filter(|node| !node.dropped).collect();
        for &(pod, target) in placements.iter().filter(|(pod, _)| wishing(*pod)) {
            let class = self.snapshot.class_of(pod);
            let (labels, taints) = match target {
                Target::Existing(node) => {
                    let node = &self.snapshot.nodes[node.index()];
                    (&node.labels, &node.taints)
                }
                Target::New(index) => {
                    let offer = self.market.offer(bought[index as usize].offer as usize);
                    (&*offer.labels, &self.snapshot.pools[offer.pool.index()].taints)
                }
            };
            let unkept = |(_, term): &(i32, crate::requirement::Requirements)| {
                !term.match_labels(|key| labels.get(key), symbols)
            };
            if class.node_preferences.iter().any(unkept) {
                *relaxed.entry(Preference::NodeAffinity).or_default() += 1;
            }
            if crate::taint::count_discouraging(taints, &class.tolerations, symbols) > 0 {
                *relaxed.entry(Preference::Taint).or_default() += 1;
            }
        }
        relaxed.into_iter().collect()
    }
}
