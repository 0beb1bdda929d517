//! Nodes that pods can move to, found by what is free on them: a tree over the nodes in their order of preference,
//! with the most that is free of each resource below every branch.

use crate::board::{Board, SpotId};
use crate::model::{ClassId, ResourceId, Resources};
use crate::plan::Rule;

/// Nodes that are tried for one pod. Those that are tried are open and have the room; only rules of the pod itself
/// speak against them.
const MAX_TRIES: usize = 512;

#[derive(Debug)]
pub(super) struct Receivers {
    spots: Vec<SpotId>,
    /// By spot, where it stands in `spots`.
    position: Vec<u32>,
    width: usize,
    dimensions: usize,
    most: Vec<i64>,
}

impl Receivers {
    /// A tree of these nodes, the best first.
    pub(super) fn new(board: &Board<'_>, spots: Vec<SpotId>, dimensions: usize) -> Self {
        let width = spots.len().next_power_of_two();
        let mut position = vec![u32::MAX; board.len()];
        for (index, spot) in spots.iter().enumerate() {
            position[spot.index()] = index as u32;
        }
        let mut tree = Self { spots, position, width, dimensions, most: vec![-1; 2 * width * dimensions] };
        for index in 0..tree.spots.len() {
            tree.write(width + index, Some(board.free(tree.spots[index])));
        }
        for branch in (1..width).rev() {
            tree.join(branch);
        }
        tree
    }

    /// Takes over what is free on a node now; nothing if it is closed.
    pub(super) fn refresh(&mut self, board: &Board<'_>, spot: SpotId) {
        let Some(&position) = self.position.get(spot.index()).filter(|position| **position != u32::MAX) else { return };
        let mut branch = self.width + position as usize;
        self.write(branch, board.is_open(spot).then(|| board.free(spot)));
        while branch > 1 {
            branch /= 2;
            self.join(branch);
        }
    }

    fn write(&mut self, leaf: usize, free: Option<&Resources>) {
        for dimension in 0..self.dimensions {
            let amount = free.map_or(-1, |free| free.get(ResourceId(dimension as u16)).max(0));
            self.most[leaf * self.dimensions + dimension] = amount;
        }
    }

    fn join(&mut self, branch: usize) {
        for dimension in 0..self.dimensions {
            let below = |child: usize| self.most[child * self.dimensions + dimension];
            self.most[branch * self.dimensions + dimension] = below(2 * branch).max(below(2 * branch + 1));
        }
    }

    fn has_room(&self, branch: usize, request: &[i64]) -> bool {
        let free = &self.most[branch * self.dimensions..(branch + 1) * self.dimensions];
        free[0] >= 0 && free.iter().zip(request).all(|(free, asked)| free >= asked)
    }

    /// The first node, from a place in the order on, that a pod of the class may be on. If there is none, the rule
    /// that the last one failed by.
    pub(super) fn find(&self, board: &mut Board<'_>, class: ClassId, from: usize) -> Result<(usize, SpotId), Rule> {
        let requests = &board.snapshot().classes[class.index()].requests;
        let request: Vec<i64> = (0..self.dimensions).map(|id| requests.get(ResourceId(id as u16)).max(0)).collect();
        let mut rule = Rule::Resources;
        let mut from = from;
        for _ in 0..MAX_TRIES {
            let Some(position) = self.first_with_room(&request, from) else { break };
            let spot = self.spots[position];
            match board.check(class, spot) {
                Ok(()) => return Ok((position, spot)),
                Err(against) => rule = against,
            }
            from = position + 1;
        }
        Err(rule)
    }

    /// Whether any node has room for a pod of the class.
    pub(super) fn any_room(&self, request: &Resources) -> bool {
        let request: Vec<i64> = (0..self.dimensions).map(|id| request.get(ResourceId(id as u16)).max(0)).collect();
        self.first_with_room(&request, 0).is_some()
    }

    fn first_with_room(&self, request: &[i64], from: usize) -> Option<usize> {
        let mut from = from;
        while from < self.spots.len() {
            let mut branch = self.width + from;
            // Up and to the right until a branch seems to have room, then down to its first leaf.
            while !self.has_room(branch, request) {
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
                branch = if self.has_room(left, request) { left } else { left + 1 };
                if !self.has_room(branch, request) {
                    break;
                }
            }
            if self.has_room(branch, request) {
                return Some(branch - self.width);
            }
            // The most of each resource were on different nodes: go on behind this branch.
            let depth = self.width.ilog2() - branch.ilog2();
            from = ((branch + 1) << depth) - self.width;
        }
        None
    }
}
