//! Maximum flow and flow of least cost, over whole numbers.
//!
//! Both augment along all shortest paths at once (Dinic; primal-dual with potentials), so that the number of searches
//! depends on how many different path lengths there are and not on how much flows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const UNREACHED: i64 = i64::MAX;

#[derive(Debug, Clone, Copy)]
struct Arc {
    to: u32,
    capacity: u32,
    cost: i64,
}

/// A network with one source and one sink. Every arc has its reverse arc beside it.
#[derive(Debug, Clone)]
pub(super) struct Network {
    arcs: Vec<Arc>,
    of_node: Vec<Vec<u32>>,
    source: usize,
    sink: usize,
    potential: Vec<i64>,
}

impl Network {
    /// A network without arcs; source and sink are nodes 0 and 1.
    pub(super) fn new(nodes: usize) -> Self {
        let nodes = nodes.max(2);
        Self { arcs: Vec::new(), of_node: vec![Vec::new(); nodes], source: 0, sink: 1, potential: vec![0; nodes] }
    }

    /// Adds an arc and returns its number.
    pub(super) fn add(&mut self, from: usize, to: usize, capacity: u32, cost: i64) -> usize {
        let number = self.arcs.len();
        self.arcs.push(Arc { to: to as u32, capacity, cost });
        self.arcs.push(Arc { to: from as u32, capacity: 0, cost: -cost });
        self.of_node[from].push(number as u32);
        self.of_node[to].push(number as u32 + 1);
        number
    }

    /// Flow of an arc.
    pub(super) fn flow(&self, arc: usize) -> u32 {
        self.arcs[arc ^ 1].capacity
    }

    /// Sets the remaining capacity of an arc.
    pub(super) fn set_capacity(&mut self, arc: usize, capacity: u32) {
        self.arcs[arc].capacity = capacity;
    }

    /// Augments along any path until none is left, at any cost.
    pub(super) fn maximize(&mut self) -> u64 {
        let mut total = 0;
        while let Some(level) = self.levels() {
            let tight = |arc: &Arc, from: usize| level[arc.to as usize] == level[from].saturating_add(1);
            let sent = self.augment(&tight);
            total += sent;
            if sent == 0 {
                break;
            }
        }
        total
    }

    /// Augments along cheapest paths until no path is left. Costs must not be negative, and nothing may flow before.
    pub(super) fn minimize(&mut self) -> u64 {
        let mut total = 0;
        self.potential.fill(0);
        while let Some(distance) = self.distances() {
            // Nodes that cannot be reached keep up with the sink, so that reduced costs stay non-negative.
            let farthest = distance[self.sink];
            for (potential, distance) in self.potential.iter_mut().zip(&distance) {
                *potential += (*distance).min(farthest);
            }
            // Arcs without reduced cost may form circles; levels among them keep paths simple.
            while let Some(level) = self.tight_levels() {
                let potential = self.potential.clone();
                let tight = |arc: &Arc, from: usize| {
                    arc.cost + potential[from] == potential[arc.to as usize]
                        && level[arc.to as usize] == level[from].saturating_add(1)
                };
                let sent = self.augment(&tight);
                total += sent;
                if sent == 0 {
                    break;
                }
            }
        }
        total
    }

    /// Whether the flow has the least cost of all flows of its size: no arc that can still carry something has a
    /// negative reduced cost.
    #[cfg(test)]
    pub(super) fn is_certified(&self) -> bool {
        let fine = |(number, arc): (usize, &Arc)| {
            let from = self.arcs[number ^ 1].to as usize;
            arc.capacity == 0 || arc.cost + self.potential[from] - self.potential[arc.to as usize] >= 0
        };
        self.arcs.iter().enumerate().all(fine)
    }

    /// Whether no path from source to sink is left: the nodes that the source reaches are a cut that proves the maximum.
    #[cfg(test)]
    pub(super) fn is_maximum(&self) -> bool {
        self.levels().is_none()
    }

    fn levels(&self) -> Option<Vec<u32>> {
        self.breadth_first(|_, _| true)
    }

    fn tight_levels(&self) -> Option<Vec<u32>> {
        self.breadth_first(|arc, from| arc.cost + self.potential[from] == self.potential[arc.to as usize])
    }

    fn breadth_first(&self, allowed: impl Fn(&Arc, usize) -> bool) -> Option<Vec<u32>> {
        let mut level = vec![u32::MAX; self.of_node.len()];
        level[self.source] = 0;
        let mut queue = VecDeque::from([self.source]);
        while let Some(node) = queue.pop_front() {
            for &number in &self.of_node[node] {
                let arc = &self.arcs[number as usize];
                let to = arc.to as usize;
                if arc.capacity > 0 && level[to] == u32::MAX && allowed(arc, node) {
                    level[to] = level[node] + 1;
                    queue.push_back(to);
                }
            }
        }
        (level[self.sink] != u32::MAX).then_some(level)
    }

    /// Shortest distances from the source by reduced costs.
    fn distances(&self) -> Option<Vec<i64>> {
        let mut distance = vec![UNREACHED; self.of_node.len()];
        distance[self.source] = 0;
        let mut heap = BinaryHeap::from([Reverse((0, self.source))]);
        while let Some(Reverse((length, node))) = heap.pop() {
            if length > distance[node] {
                continue;
            }
            for &number in &self.of_node[node] {
                let arc = &self.arcs[number as usize];
                let to = arc.to as usize;
                if arc.capacity == 0 {
                    continue;
                }
                let longer = length + arc.cost + self.potential[node] - self.potential[to];
                if longer < distance[to] {
                    distance[to] = longer;
                    heap.push(Reverse((longer, to)));
                }
            }
        }
        (distance[self.sink] != UNREACHED).then_some(distance)
    }

    /// Sends as much as allowed arcs carry, each arc being looked at once.
    fn augment(&mut self, allowed: &impl Fn(&Arc, usize) -> bool) -> u64 {
        let mut next = vec![0_usize; self.of_node.len()];
        let mut total = 0;
        let mut path: Vec<u32> = Vec::new();
        let mut node = self.source;
        loop {
            if node == self.sink {
                let sent = path.iter().map(|&arc| self.arcs[arc as usize].capacity).min().unwrap_or(0);
                for &arc in &path {
                    self.arcs[arc as usize].capacity -= sent;
                    self.arcs[arc as usize ^ 1].capacity += sent;
                }
                total += u64::from(sent);
                path.clear();
                node = self.source;
                continue;
            }
            let list = &self.of_node[node];
            let usable = |&&number: &&u32| {
                let arc = &self.arcs[number as usize];
                arc.capacity > 0 && allowed(arc, node)
            };
            match list[next[node]..].iter().position(|number| usable(&number)) {
                Some(skipped) => {
                    next[node] += skipped;
                    let number = list[next[node]];
                    path.push(number);
                    node = self.arcs[number as usize].to as usize;
                }
                None => {
                    next[node] = list.len();
                    let Some(number) = path.pop() else { return total };
                    node = self.arcs[number as usize ^ 1].to as usize;
                    next[node] += 1;
                }
            }
        }
    }
}
