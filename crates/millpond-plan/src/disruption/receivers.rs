//! Finds a node that a pod can move to by its free capacity: a tree over the nodes in their order of preference. Each
//! branch holds the largest free amount of each resource below it.
//!
//! For each class the tree remembers how many of the first nodes cannot take its pods. Free capacity only shrinks
//! during a trial, so a search continues where the last one ended. Undoing a trial restores these numbers.

use crate::cluster_state::{ClusterState, NodeSlotId};
use crate::model::{ClassId, ResourceId, Resources};
use crate::plan::Rule;

/// Limit on the nodes that are tried for one pod. Each of them is open and has the capacity; only scheduling rules can
/// refuse the pod.
const MAX_TRIES: usize = 512;

#[derive(Debug)]
pub(super) struct Receivers {
    spots: Vec<NodeSlotId>,
    /// Position in `spots`, by node; `u32::MAX` for nodes that are not in the tree.
    position: Vec<u32>,
    width: usize,
    dimensions: usize,
    most: Vec<i64>,
    /// For each class, how many of the first nodes cannot take its pods while no pod leaves them.
    passed: Vec<u32>,
    /// Earlier values of `passed` that the current trial changed, in order.
    journal: Vec<(ClassId, u32)>,
    /// The pod being placed: its nonzero requests.
    asked: Vec<(usize, i64)>,
}

impl Receivers {
    /// Builds a tree of these nodes, the most preferred first.
    pub(super) fn new(cluster: &ClusterState<'_>, spots: Vec<NodeSlotId>) -> Self {
        let snapshot = cluster.snapshot();
        let mut tree = Self {
            spots,
            position: Vec::new(),
            width: 0,
            dimensions: snapshot.resources.len(),
            most: Vec::new(),
            passed: vec![0; snapshot.classes.len()],
            journal: Vec::new(),
            asked: Vec::new(),
        };
        tree.build(cluster);
        tree
    }

    fn build(&mut self, cluster: &ClusterState<'_>) {
        self.width = self.spots.len().next_power_of_two();
        self.position = vec![u32::MAX; cluster.len()];
        self.most = vec![-1; 2 * self.width * self.dimensions];
        for index in 0..self.spots.len() {
            let spot = self.spots[index];
            self.position[spot.index()] = index as u32;
            self.write(self.width + index, cluster.is_open(spot).then(|| cluster.free(spot)));
        }
        for branch in (1..self.width).rev() {
            self.join(branch);
        }
    }

    /// Appends nodes after all others.
    pub(super) fn extend(&mut self, cluster: &ClusterState<'_>, spots: &[NodeSlotId]) {
        self.spots.extend(spots);
        if self.spots.len() > self.width {
            return self.build(cluster);
        }
        self.position.resize(cluster.len(), u32::MAX);
        let first = self.spots.len() - spots.len();
        for (index, &spot) in (first..).zip(spots) {
            self.position[spot.index()] = index as u32;
            self.update(cluster, spot);
        }
    }

    /// Updates the free capacity of a node; a closed node has none.
    pub(super) fn refresh(&mut self, cluster: &ClusterState<'_>, spot: NodeSlotId) {
        let Some(position) = self.position_of(spot) else { return };
        if self.update(cluster, spot) {
            self.look_again(position);
        }
    }

    /// Makes every class search from this position again, because the node there has more free capacity.
    fn look_again(&mut self, position: usize) {
        for class in 0..self.passed.len() {
            if self.passed[class] as usize > position {
                self.pass(ClassId::from(class), position);
            }
        }
    }

    /// Confirms the current trial.
    pub(super) fn settle(&mut self) {
        self.journal.clear();
    }

    /// Reverts the current trial, after the cluster state was reverted. `touched` are the nodes that the trial changed.
    pub(super) fn undo(&mut self, cluster: &ClusterState<'_>, touched: &[NodeSlotId]) {
        while let Some((class, passed)) = self.journal.pop() {
            self.passed[class.index()] = passed;
        }
        for &spot in touched {
            self.update(cluster, spot);
        }
    }

    fn position_of(&self, spot: NodeSlotId) -> Option<usize> {
        self.position.get(spot.index()).filter(|position| **position != u32::MAX).map(|position| *position as usize)
    }

    /// Updates the tree above a node and returns whether the node has more of some resource than before.
    fn update(&mut self, cluster: &ClusterState<'_>, spot: NodeSlotId) -> bool {
        let Some(position) = self.position_of(spot) else { return false };
        let mut branch = self.width + position;
        let grew = self.write(branch, cluster.is_open(spot).then(|| cluster.free(spot)));
        while branch > 1 {
            branch /= 2;
            self.join(branch);
        }
        grew
    }

    fn write(&mut self, leaf: usize, free: Option<&Resources>) -> bool {
        let mut grew = false;
        for dimension in 0..self.dimensions {
            let amount = free.map_or(-1, |free| free.get(ResourceId(dimension as u16)).max(0));
            let known = &mut self.most[leaf * self.dimensions + dimension];
            grew |= amount > *known;
            *known = amount;
        }
        grew
    }

    fn join(&mut self, branch: usize) {
        for dimension in 0..self.dimensions {
            let below = |child: usize| self.most[child * self.dimensions + dimension];
            self.most[branch * self.dimensions + dimension] = below(2 * branch).max(below(2 * branch + 1));
        }
    }

    fn has_room(&self, branch: usize) -> bool {
        let free = &self.most[branch * self.dimensions..(branch + 1) * self.dimensions];
        free[0] >= 0 && self.asked.iter().all(|&(dimension, asked)| free[dimension] >= asked)
    }

    fn pass(&mut self, class: ClassId, passed: usize) {
        let before = std::mem::replace(&mut self.passed[class.index()], passed as u32);
        if before as usize != passed {
            self.journal.push((class, before));
        }
    }

    /// The first node that may take a pod of the class. The error is the rule by which the last node refused it.
    pub(super) fn find(&mut self, cluster: &mut ClusterState<'_>, class: ClassId) -> Result<NodeSlotId, Rule> {
        let mut rule = Rule::Resources;
        let Some(mut position) = self.first_with_room(cluster, class) else { return Err(rule) };
        let mut forever = true;
        for _ in 0..MAX_TRIES {
            let spot = self.spots[position];
            match cluster.check(class, spot) {
                Ok(()) => return Ok(spot),
                Err(against) => rule = against,
            }
            forever &= matches!(rule, Rule::Taints | Rule::NodeAffinity | Rule::Volumes);
            let next = self.next_with_room(position + 1);
            if forever {
                self.pass(class, next.unwrap_or(self.spots.len()));
            }
            let Some(next) = next else { break };
            position = next;
        }
        Err(rule)
    }

    /// Whether any node has the free capacity for a pod of the class.
    pub(super) fn any_room(&mut self, cluster: &ClusterState<'_>, class: ClassId) -> bool {
        self.first_with_room(cluster, class).is_some()
    }

    fn first_with_room(&mut self, cluster: &ClusterState<'_>, class: ClassId) -> Option<usize> {
        let requests = &cluster.snapshot().classes[class.index()].requests;
        self.asked.clear();
        self.asked.extend(requests.iter().filter(|(_, amount)| *amount > 0).map(|(id, amount)| (id.index(), amount)));
        let found = self.next_with_room(self.passed[class.index()] as usize);
        self.pass(class, found.unwrap_or(self.spots.len()));
        found
    }

    fn next_with_room(&self, from: usize) -> Option<usize> {
        let mut from = from;
        while from < self.spots.len() {
            let mut branch = self.width + from;
            // Go up and to the right until a branch seems to have the capacity, then down to its first leaf.
            while !self.has_room(branch) {
                while branch % 2 == 1 {
                    branch /= 2;
                }
                if branch == 0 {
                    return None;
                }
                branch += 1;
            }
            while branch < self.width {
                let left = 2 * branch;
                branch = if self.has_room(left) { left } else { left + 1 };
                if !self.has_room(branch) {
                    break;
                }
            }
            if self.has_room(branch) {
                return Some(branch - self.width);
            }
            // The largest amounts of the branch belong to different nodes: continue after this branch.
            let depth = self.width.ilog2() - branch.ilog2();
            from = ((branch + 1) << depth) - self.width;
        }
        None
    }
}
