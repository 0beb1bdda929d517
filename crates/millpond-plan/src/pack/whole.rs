//! The most valuable whole pods for one node, by search.
//!
//! Contents are built pod by pod. Prices of the dimensions bound what can still be added: items in the
//! order of value for cost, so what comes later is worth at most its ratio times what the room costs.
//! Nodes for a handful of pods take a few dozen steps; for nodes with many the search gives up.

use super::instance::{Dims, InstanceBin, InstanceRow, within};

/// Differences below this share of the value do not count.
const TRIFLE: f64 = 1e-10;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    /// Worth of the best content, or what it had to exceed if none does.
    pub(super) worth: f64,
    /// The search was complete: no content is better.
    pub(super) complete: bool,
    /// A content above the required value was found.
    pub(super) any: bool,
}

struct Kind<'a> {
    item: usize,
    row: &'a InstanceRow,
    value: f64,
    /// The cost of the request at the prices.
    cost: f64,
    /// Value divided by cost, and the same limited to one.
    density: f64,
    ratio: f64,
    most: u64,
    taken: u64,
    /// The largest value beyond cost that this kind and the later ones can have.
    over: f64,
}

/// One node that is filled with whole pods.
pub(super) struct Search<'a> {
    dims: usize,
    kinds: Vec<Kind<'a>>,
    room: Dims<i64>,
    room_cost: f64,
    value: f64,
    groups: Vec<usize>,
    path: Vec<usize>,
    best: f64,
    /// The best content, as items and how many of each.
    pub(super) content: Vec<(usize, u64)>,
}

impl<'a> Search<'a> {
    /// An empty node; `prices` are scaled amounts', as `unit` says.
    pub(super) fn new(dims: usize, bin: &InstanceBin, prices: &Dims<f64>, unit: &Dims<f64>) -> Self {
        let room_cost = cost(dims, prices, unit, &bin.capacity);
        Self {
            dims,
            kinds: Vec::new(),
            room: bin.capacity,
            room_cost,
            value: 0.0,
            groups: Vec::new(),
            path: Vec::new(),
            best: 0.0,
            content: Vec::new(),
        }
    }

    /// Offers up to `most` pods of a row that fits the node.
    pub(super) fn offer(
        &mut self,
        item: usize,
        row: &'a InstanceRow,
        value: f64,
        most: u64,
        prices: &Dims<f64>,
        unit: &Dims<f64>,
    ) {
        let cost = cost(self.dims, prices, unit, &row.request);
        let most = if row.groups.is_empty() { most } else { most.min(1) };
        let density = if cost > 0.0 { value / cost } else { f64::INFINITY };
        self.kinds.push(Kind { item, row, value, cost, density, ratio: density.min(1.0), most, taken: 0, over: 0.0 });
    }

    /// Looks for the best content worth more than `least`, with a limited number of steps.
    pub(super) fn run(&mut self, least: f64, steps: &mut u64) -> Found {
        self.prepare();
        self.best = least;
        let mut any = false;
        let mut at = 0;
        while *steps > 0 {
            *steps -= 1;
            if at < self.kinds.len() && self.may_improve(at) {
                if self.fits(at) {
                    self.take(at);
                    if self.value > self.best * (1.0 + TRIFLE) {
                        any = true;
                        self.best = self.value;
                        self.keep();
                    }
                } else {
                    at += 1;
                }
                continue;
            }
            let Some(last) = self.path.pop() else {
                return Found { worth: self.best, complete: true, any };
            };
            self.put_back(last);
            at = last + 1;
        }
        Found { worth: self.best, complete: false, any }
    }

    fn prepare(&mut self) {
        self.kinds.sort_by(|a, b| {
            let by_density = b.density.total_cmp(&a.density);
            by_density.then(b.value.total_cmp(&a.value)).then(a.item.cmp(&b.item))
        });
        let mut over = 0.0;
        for kind in self.kinds.iter_mut().rev() {
            let most = (0..self.dims)
                .filter(|&dim| kind.row.request[dim] > 0)
                .map(|dim| (self.room[dim] / kind.row.request[dim]) as u64)
                .fold(kind.most, u64::min);
            over += (kind.value - kind.cost).max(0.0) * most as f64;
            kind.over = over;
        }
    }

    /// Whether pods from this kind on could make the content worth more than the best so far.
    fn may_improve(&self, at: usize) -> bool {
        let kind = &self.kinds[at];
        self.value + kind.over + kind.ratio * self.room_cost > self.best * (1.0 + TRIFLE)
    }

    fn fits(&self, at: usize) -> bool {
        let kind = &self.kinds[at];
        kind.taken < kind.most
            && within(&kind.row.request, &self.room, self.dims)
            && !kind.row.groups.iter().any(|group| self.groups.contains(group))
    }

    fn take(&mut self, at: usize) {
        let kind = &mut self.kinds[at];
        kind.taken += 1;
        self.room_cost -= kind.cost;
        self.value += kind.value;
        for dim in 0..self.dims {
            self.room[dim] -= kind.row.request[dim];
        }
        self.groups.extend(&kind.row.groups);
        self.path.push(at);
    }

    /// Undoes the last take.
    fn put_back(&mut self, at: usize) {
        let kind = &mut self.kinds[at];
        kind.taken -= 1;
        self.room_cost += kind.cost;
        self.value -= kind.value;
        for dim in 0..self.dims {
            self.room[dim] += kind.row.request[dim];
        }
        self.groups.truncate(self.groups.len() - kind.row.groups.len());
    }

    fn keep(&mut self) {
        self.content.clear();
        let taken = self.kinds.iter().filter(|kind| kind.taken > 0);
        self.content.extend(taken.map(|kind| (kind.item, kind.taken)));
        self.content.sort_unstable();
    }
}

fn cost(dims: usize, prices: &Dims<f64>, unit: &Dims<f64>, amounts: &Dims<i64>) -> f64 {
    (0..dims).map(|dim| prices[dim] * unit[dim] * amounts[dim] as f64).sum()
}
