//! Pods that need a place, grouped by class.

use crate::cluster_state::kind_needs_place;
use crate::model::{ClassId, PodId, PodKind, Snapshot};

use super::order;

/// Pods by class. Pods of a class are alike; they are given out in the order of the snapshot.
#[derive(Debug)]
pub(super) struct Demand {
    /// Classes with pods, in the order in which they are planned.
    pub(super) classes: Vec<ClassId>,
    /// All pods, grouped by class.
    pods: Vec<PodId>,
    /// For each class of the snapshot, the index of its first pod, and how many pods have been taken.
    begin: Vec<u32>,
    given: Vec<u32>,
    /// For each class, how many pods have a place, and how many there are.
    held: Vec<u32>,
    count: Vec<u32>,
}

impl Demand {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut count = vec![0_u32; snapshot.classes.len()];
        let kinds: Vec<PodKind> = snapshot.classes.iter().map(|class| class.kind).collect();
        // Pods are large and many: each is looked at once.
        let mut needing: Vec<(PodId, ClassId)> = Vec::with_capacity(snapshot.pods.len());
        for (index, pod) in snapshot.pods.iter().enumerate() {
            if kind_needs_place(snapshot, pod, kinds[pod.class.index()]) {
                count[pod.class.index()] += 1;
                needing.push((PodId::from(index), pod.class));
            }
        }
        let mut begin = Vec::with_capacity(count.len());
        let mut next = 0;
        for count in &count {
            begin.push(next);
            next += count;
        }
        let mut sorted = vec![PodId(0); needing.len()];
        let mut at = begin.clone();
        for (pod, class) in needing {
            let place = &mut at[class.index()];
            sorted[*place as usize] = pod;
            *place += 1;
        }
        let mut classes: Vec<ClassId> = (0..count.len()).filter(|&c| count[c] > 0).map(ClassId::from).collect();
        order::planned_order(snapshot, &mut classes);
        Self { classes, pods: sorted, begin, given: vec![0; count.len()], held: vec![0; count.len()], count }
    }

    /// Number of pods that needed a place at the start.
    pub(super) fn total(&self) -> usize {
        self.pods.len()
    }

    /// Number of pods of a class that still need a place.
    pub(super) fn left(&self, class: ClassId) -> u32 {
        self.count[class.index()] - self.held[class.index()]
    }

    /// Number of pods of a class.
    pub(super) fn count(&self, class: ClassId) -> u32 {
        self.count[class.index()]
    }

    /// Counts pods of a class as placed.
    pub(super) fn hold(&mut self, class: ClassId, count: u32) {
        debug_assert!(count <= self.left(class), "no more pods than there are");
        self.held[class.index()] += count;
    }

    /// Reverts [`Self::hold`].
    pub(super) fn release(&mut self, class: ClassId, count: u32) {
        self.held[class.index()] -= count;
    }

    /// Returns pods of a class for a placement, when the plan is final.
    pub(super) fn take(&mut self, class: ClassId, count: u32) -> &[PodId] {
        let index = class.index();
        let from = (self.begin[index] + self.given[index]) as usize;
        self.given[index] += count;
        &self.pods[from..from + count as usize]
    }

    /// The pods that were not taken.
    pub(super) fn rest(&self) -> Vec<PodId> {
        let mut rest = Vec::new();
        for class in &self.classes {
            let index = class.index();
            let pods = self.begin[index] as usize..(self.begin[index] + self.count[index]) as usize;
            rest.extend(&self.pods[pods][self.given[index] as usize..]);
        }
        rest.sort_unstable();
        rest
    }
}
