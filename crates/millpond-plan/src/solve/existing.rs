//! Uses the free capacity of existing nodes, and of nodes on their way, before anything is bought.

use std::collections::HashMap;

use crate::cluster_state::NodeSlotId;
use crate::model::{ClassId, NodeState};

use super::Solver;

impl Solver<'_> {
    /// Fills open nodes class by class.
    pub(super) fn fill_existing(&mut self) {
        if !(0..self.snapshot.nodes.len()).any(|node| self.cluster.is_open(NodeSlotId(node as u32))) {
            return;
        }
        self.expect_domains_on_offer();
        let planned_placements = self.planned_placements();
        let waiting = self.waiting();
        let priority = |class: &ClassId| self.snapshot.classes[class.index()].priority;
        for equals in waiting.chunk_by(|a, b| priority(a) == priority(b)) {
            for class in equals {
                self.fill_as_meant(*class, planned_placements.get(class).map_or(&[], Vec::as_slice));
            }
            equals.iter().for_each(|&class| self.fill_with(class));
        }
        self.cluster.topology_mut().expect_nothing();
    }

    /// The nodes that an earlier plan chose for the pods of each class.
    fn planned_placements(&self) -> HashMap<ClassId, Vec<(NodeSlotId, u32)>> {
        let mut planned_placements: HashMap<ClassId, Vec<(NodeSlotId, u32)>> = HashMap::new();
        for &(node, class, count) in &self.snapshot.planned_placements {
            planned_placements.entry(class).or_default().push((NodeSlotId(node.0), count));
        }
        planned_placements
    }

    /// Puts pods where an earlier plan put them, as far as they still fit there.
    fn fill_as_meant(&mut self, class: ClassId, planned_placements: &[(NodeSlotId, u32)]) {
        let of = &self.snapshot.classes[class.index()];
        if self.cluster.topology().is_free(class) && of.host_ports.is_empty() {
            for &(node, count) in planned_placements {
                if self.cluster.suits(class, node) {
                    let room = self.cluster.room(class, node).min(u64::from(count.min(self.left(class)))) as u32;
                    self.fill(class, node, room);
                }
            }
            return;
        }
        // One pod on each node in turn: a rule that refused a node may allow it after a placement on another.
        let mut planned_placements = planned_placements.to_vec();
        loop {
            let before = self.left(class);
            for (node, count) in &mut planned_placements {
                if *count > 0 && self.left(class) > 0 && self.cluster.check(class, *node).is_ok() {
                    self.fill(class, *node, 1);
                    *count -= 1;
                }
            }
            if self.left(class) == before {
                return;
            }
        }
    }

    fn fill_with(&mut self, class: ClassId) {
        let mut nodes: Vec<NodeSlotId> = (0..self.snapshot.nodes.len() as u32).map(NodeSlotId).collect();
        nodes.retain(|&node| self.cluster.suits(class, node) && self.cluster.room(class, node) > 0);
        let has_preferences = {
            let of = &self.snapshot.classes[class.index()];
            !of.node_preferences.is_empty() || !of.tolerations.is_empty()
        };
        nodes.sort_by_cached_key(|&node| {
            let there = &self.snapshot.nodes[node.index()];
            let soft = has_preferences || there.taints.iter().any(|taint| !taint.effect.forbids());
            let liked = if soft { self.cluster.liking(class, node) } else { 0 };
            (std::cmp::Reverse(liked), there.state == NodeState::Starting, &there.name)
        });
        let of = &self.snapshot.classes[class.index()];
        if self.cluster.topology().is_free(class) && of.host_ports.is_empty() {
            for node in nodes {
                let count = self.cluster.room(class, node).min(u64::from(self.left(class))) as u32;
                self.fill(class, node, count);
            }
            return;
        }
        // One pod on each node in turn, until no node takes one: a rule that refused a node may allow it after a
        // placement on another.
        loop {
            let before = self.left(class);
            for &node in &nodes {
                if self.left(class) > 0 && self.cluster.check(class, node).is_ok() {
                    self.fill(class, node, 1);
                }
            }
            if self.left(class) == before || self.left(class) == 0 {
                return;
            }
        }
    }

    pub(super) fn fill(&mut self, class: ClassId, node: NodeSlotId, count: u32) {
        if count > 0 {
            self.hold(class, count);
            self.cluster.place(class, node, count);
            self.filled.push((class, node, count));
        }
    }
}
