//! What one node should hold: the fractional knapsack, and patterns built from it.
//!
//! [`Knapsack::vertex`] solves `max d·x, W·x ≤ capacity, 0 ≤ x ≤ u` with a simplex of one row per
//! dimension. [`Knapsack::fill`] takes the whole part of its solution, and goes on with what is left
//! of the node. That keeps the mix of the relaxation: all resources run out together, where a
//! greedy choice by density would use up one and waste the others.

use super::instance::{Dims, Instance, InstanceBin, MAX_DIMS};

/// Smallest reduced cost that counts, relative to values around one.
const EPSILON: f64 = 1e-9;

/// Some rows of an instance, laid out for scanning.
pub(super) struct Items {
    /// Indices of the instance's rows.
    pub(super) rows: Vec<usize>,
    pub(super) dims: usize,
    /// Scaled requests, dimension by dimension.
    weights: Vec<f64>,
    requests: Vec<Dims<i64>>,
    classes: Vec<usize>,
    /// Most pods of the row on one node.
    pub(super) caps: Vec<u64>,
    /// For each item the others that exclude it.
    rivals: Vec<Vec<usize>>,
}

impl Items {
    pub(super) fn new(instance: &Instance, rows: Vec<usize>) -> Self {
        let dims = instance.dims;
        let mut weights = Vec::with_capacity(dims * rows.len());
        for dim in 0..dims {
            let unit = instance.unit[dim];
            weights.extend(rows.iter().map(|&row| instance.rows[row].request[dim] as f64 * unit));
        }
        let rivals = rivals(instance, &rows);
        let of = |row: &usize| &instance.rows[*row];
        Self {
            dims,
            weights,
            requests: rows.iter().map(|row| of(row).request).collect(),
            classes: rows.iter().map(|row| of(row).class).collect(),
            caps: rows.iter().map(|row| of(row).cap).collect(),
            rivals,
            rows,
        }
    }

    /// Items that are not rows: averages, for relaxations only. Weights dimension by dimension.
    pub(super) fn averages(dims: usize, count: usize, weights: Vec<f64>) -> Self {
        Self {
            rows: (0..count).collect(),
            dims,
            weights,
            requests: Vec::new(),
            classes: Vec::new(),
            caps: Vec::new(),
            rivals: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// What the request of an item costs at the prices.
    pub(super) fn cost_at(&self, prices: &Dims<f64>, item: usize) -> f64 {
        (0..self.dims).map(|dim| prices[dim] * self.weight(dim, item)).sum()
    }

    pub(super) fn weight(&self, dim: usize, item: usize) -> f64 {
        self.weights[dim * self.len() + item]
    }
}

fn rivals(instance: &Instance, rows: &[usize]) -> Vec<Vec<usize>> {
    let mut rivals = vec![Vec::new(); rows.len()];
    if instance.groups.is_empty() {
        return rivals;
    }
    let mut place = vec![usize::MAX; instance.rows.len()];
    for (item, &row) in rows.iter().enumerate() {
        place[row] = item;
    }
    for (item, &row) in rows.iter().enumerate() {
        for &group in &instance.rows[row].groups {
            let members = instance.groups[group].iter().map(|&member| place[member]);
            rivals[item].extend(members.filter(|&other| other != usize::MAX && other != item));
        }
    }
    rivals
}

/// What a node holds: items and how many of each, ascending by item.
pub(super) type Content = Vec<(usize, u64)>;

/// Working memory, kept between calls.
#[derive(Default)]
pub(super) struct Knapsack {
    /// `x` of [`Self::vertex`].
    pub(super) amounts: Vec<f64>,
    /// Prices of the dimensions at the vertex.
    pub(super) prices: Dims<f64>,
    upper: Vec<f64>,
    /// Which way an item may go: one from its lower bound, minus one from its upper bound, zero for
    /// items that are basic or absent.
    way: Vec<f64>,
    taken: Vec<u64>,
    order: Vec<(f64, usize)>,
}

/// Marks a slack in the basis: the item number is this plus the dimension.
const SLACK: usize = usize::MAX - MAX_DIMS;

impl Knapsack {
    /// Upper bounds of a vertex: what is left of each item that fits.
    pub(super) fn limit(&mut self, upper: impl Iterator<Item = f64>) {
        self.upper.clear();
        self.upper.extend(upper);
    }

    /// Solves the fractional knapsack below the upper bounds; returns its value.
    pub(super) fn vertex(&mut self, items: &Items, values: &[f64], capacity: &Dims<f64>) -> f64 {
        let (n, dims) = (items.len(), items.dims);
        self.way.clear();
        self.way.extend(self.upper.iter().map(|&upper| if upper > 0.0 { 1.0 } else { 0.0 }));
        let mut basis = [SLACK; MAX_DIMS];
        let mut inverse = [[0.0; MAX_DIMS]; MAX_DIMS];
        for dim in 0..dims {
            basis[dim] = SLACK + dim;
            inverse[dim][dim] = 1.0;
        }
        let mut level = *capacity;
        self.start(items, values, &mut level);
        // Each step gains value; the limit is a guard against cycling on ties.
        for _ in 0..(4 * n + 50) {
            self.price_out(items, values, &basis, &inverse);
            let Some(entering) = self.choose(items, values) else { break };
            let up = entering >= SLACK || self.way[entering] > 0.0;
            let column = transformed(items, entering, &inverse);
            let sign = if up { 1.0 } else { -1.0 };
            let own = if entering >= SLACK { f64::INFINITY } else { self.upper[entering] };
            let (step, leaving) = self.ratio(dims, &basis, &level, &column, sign, own);
            for dim in 0..dims {
                level[dim] -= sign * step * column[dim];
            }
            let Some(leaving) = leaving else {
                if step.is_infinite() {
                    break;
                }
                self.way[entering] = -sign;
                continue;
            };
            let out = basis[leaving];
            if out < SLACK {
                self.way[out] = if sign * column[leaving] < 0.0 { -1.0 } else { 1.0 };
            }
            if entering < SLACK {
                self.way[entering] = 0.0;
            }
            let start = if up { 0.0 } else { own };
            level[leaving] = start + sign * step;
            basis[leaving] = entering;
            pivot(&mut inverse, &column, leaving, dims);
        }
        self.read_off(n, dims, &basis, &level);
        self.amounts.iter().zip(values).map(|(amount, value)| amount * value).sum()
    }

    /// Puts dense items at their upper bound while they fit: a feasible start that saves most of
    /// the steps when there are few pods of each row.
    fn start(&mut self, items: &Items, values: &[f64], level: &mut Dims<f64>) {
        let dims = items.dims;
        let mut need = [0.0; MAX_DIMS];
        for dim in 0..dims {
            let weights = &items.weights[dim * items.len()..(dim + 1) * items.len()];
            need[dim] = weights.iter().zip(&self.upper).map(|(weight, upper)| weight * upper).sum();
        }
        let mut price = [0.0; MAX_DIMS];
        for dim in 0..dims {
            if need[dim] > level[dim] {
                price[dim] = 1.0 / level[dim].max(1e-12);
            }
        }
        self.order.clear();
        for item in 0..items.len() {
            if self.way[item] > 0.0 && values[item] > 0.0 {
                let weight: f64 = (0..dims).map(|dim| price[dim] * items.weight(dim, item)).sum();
                self.order.push((weight / values[item], item));
            }
        }
        self.order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for &(_, item) in &self.order {
            let upper = self.upper[item];
            let fits = (0..dims).all(|dim| level[dim] >= upper * items.weight(dim, item));
            if !fits {
                break;
            }
            for dim in 0..dims {
                level[dim] -= upper * items.weight(dim, item);
            }
            self.way[item] = -1.0;
        }
    }

    /// Prices of the dimensions at the basis.
    fn price_out(&mut self, items: &Items, values: &[f64], basis: &Dims<usize>, inverse: &[[f64; MAX_DIMS]; MAX_DIMS]) {
        self.prices = [0.0; MAX_DIMS];
        for row in 0..items.dims {
            if basis[row] < SLACK {
                let value = values[basis[row]];
                for dim in 0..items.dims {
                    self.prices[dim] += value * inverse[row][dim];
                }
            }
        }
    }

    /// The entering item: the one with the largest gain per pod.
    fn choose(&self, items: &Items, values: &[f64]) -> Option<usize> {
        let (mut best, item) = match items.dims {
            1 => self.scan::<1>(items, values),
            2 => self.scan::<2>(items, values),
            3 => self.scan::<3>(items, values),
            4 => self.scan::<4>(items, values),
            5 => self.scan::<5>(items, values),
            _ => self.scan::<MAX_DIMS>(items, values),
        };
        let mut choice = (best > EPSILON).then_some(item);
        best = best.max(EPSILON);
        for dim in 0..items.dims {
            if -self.prices[dim] > best {
                best = -self.prices[dim];
                choice = Some(SLACK + dim);
            }
        }
        choice
    }

    /// The largest gain and its item, over the first `D` dimensions.
    fn scan<const D: usize>(&self, items: &Items, values: &[f64]) -> (f64, usize) {
        let n = items.len();
        let mut weights: [&[f64]; D] = [&[]; D];
        for (dim, slice) in weights.iter_mut().enumerate().take(items.dims) {
            *slice = &items.weights[dim * n..(dim + 1) * n];
        }
        let (way, values) = (&self.way[..n], &values[..n]);
        let mut best = 0.0;
        let mut choice = 0;
        for item in 0..n {
            let mut reduced = values[item];
            for dim in 0..D.min(items.dims) {
                reduced -= self.prices[dim] * weights[dim][item];
            }
            let gain = way[item] * reduced;
            if gain > best {
                best = gain;
                choice = item;
            }
        }
        (best, choice)
    }

    /// How far the entering item can go, and which basic one stops it (none: its own bound).
    fn ratio(
        &self,
        dims: usize,
        basis: &Dims<usize>,
        level: &Dims<f64>,
        column: &Dims<f64>,
        sign: f64,
        own: f64,
    ) -> (f64, Option<usize>) {
        let mut step = own;
        let mut leaving = None;
        for dim in 0..dims {
            let slope = sign * column[dim];
            let limit = if slope > EPSILON {
                level[dim].max(0.0) / slope
            } else if slope < -EPSILON && basis[dim] < SLACK {
                (self.upper[basis[dim]] - level[dim]).max(0.0) / -slope
            } else {
                continue;
            };
            if limit < step {
                step = limit;
                leaving = Some(dim);
            }
        }
        (step, leaving)
    }

    fn read_off(&mut self, n: usize, dims: usize, basis: &Dims<usize>, level: &Dims<f64>) {
        self.amounts.clear();
        for item in 0..n {
            self.amounts.push(if self.way[item] < 0.0 { self.upper[item] } else { 0.0 });
        }
        for dim in 0..dims {
            if basis[dim] < SLACK {
                self.amounts[basis[dim]] = level[dim].max(0.0);
            }
        }
        for price in &mut self.prices {
            *price = price.max(0.0);
        }
    }

    /// Builds a pattern for one node from at most `left` of each item; its value is returned.
    pub(super) fn fill(
        &mut self,
        instance: &Instance,
        items: &Items,
        bin: &InstanceBin,
        values: &[f64],
        left: &[u64],
        content: &mut Content,
    ) -> f64 {
        let n = items.len();
        let mut room = bin.capacity;
        self.taken.clear();
        self.taken.resize(n, 0);
        self.upper.clear();
        for item in 0..n {
            let allowed = bin.classes.contains(items.classes[item]) && values[item] > 0.0;
            let most = if allowed { left[item].min(items.caps[item]) } else { 0 };
            self.upper.push(most as f64);
        }
        loop {
            let mut any = false;
            for item in 0..n {
                if self.upper[item] > 0.0 {
                    if super::instance::within(&items.requests[item], &room, items.dims) {
                        any = true;
                    } else {
                        self.upper[item] = 0.0;
                    }
                }
            }
            if !any {
                break;
            }
            let mut capacity = [0.0; MAX_DIMS];
            for dim in 0..items.dims {
                capacity[dim] = room[dim] as f64 * instance.unit[dim];
            }
            self.vertex(items, values, &capacity);
            if !self.take_whole(items, &mut room) {
                self.take_best(items, values, &mut room);
            }
        }
        content.clear();
        let mut value = 0.0;
        for item in 0..n {
            // Bounds are floating: counts beyond 2⁵³ may come out a little high.
            let taken = self.taken[item].min(left[item]).min(items.caps[item]);
            if taken > 0 {
                content.push((item, taken));
                value += values[item] * taken as f64;
            }
        }
        value
    }

    /// Takes the whole part of the vertex; says whether there was any.
    fn take_whole(&mut self, items: &Items, room: &mut Dims<i64>) -> bool {
        let mut any = false;
        for item in 0..items.len() {
            let whole = (self.amounts[item] + 1e-6).floor();
            if whole >= 1.0 {
                any |= self.take(items, item, whole.min(self.upper[item]) as u64, room);
            }
        }
        any
    }

    /// Takes the most valuable item that fits: once, or a part of what fits if that is a lot, for
    /// pods so small that the vertex does not see them.
    fn take_best(&mut self, items: &Items, values: &[f64], room: &mut Dims<i64>) {
        let mut best: Option<usize> = None;
        for item in 0..items.len() {
            if self.upper[item] > 0.0 && best.is_none_or(|best| values[item] > values[best]) {
                best = Some(item);
            }
        }
        if let Some(item) = best {
            let request = &items.requests[item];
            let most = (0..items.dims)
                .filter(|&dim| request[dim] > 0)
                .map(|dim| (room[dim] / request[dim]) as u64)
                .fold(self.upper[item] as u64, u64::min);
            self.take(items, item, (most / 4).max(1), room);
        }
    }

    fn take(&mut self, items: &Items, item: usize, count: u64, room: &mut Dims<i64>) -> bool {
        let request = &items.requests[item];
        let mut count = count;
        if self.upper[item] <= 0.0 {
            return false;
        }
        for dim in 0..items.dims {
            if request[dim] > 0 {
                count = count.min((room[dim] / request[dim]) as u64);
            }
        }
        if count == 0 {
            return false;
        }
        for dim in 0..items.dims {
            room[dim] -= request[dim] * count as i64;
        }
        self.taken[item] += count;
        self.upper[item] -= count as f64;
        for &rival in &items.rivals[item] {
            self.upper[rival] = 0.0;
        }
        true
    }
}

fn transformed(items: &Items, entering: usize, inverse: &[[f64; MAX_DIMS]; MAX_DIMS]) -> Dims<f64> {
    let mut column = [0.0; MAX_DIMS];
    for row in 0..items.dims {
        column[row] = if entering >= SLACK {
            inverse[row][entering - SLACK]
        } else {
            (0..items.dims).map(|dim| inverse[row][dim] * items.weight(dim, entering)).sum()
        };
    }
    column
}

fn pivot(inverse: &mut [[f64; MAX_DIMS]; MAX_DIMS], column: &Dims<f64>, leaving: usize, dims: usize) {
    let scale = 1.0 / column[leaving];
    for dim in 0..dims {
        inverse[leaving][dim] *= scale;
    }
    let pivot_row = inverse[leaving];
    for row in 0..dims {
        if row != leaving && column[row] != 0.0 {
            for dim in 0..dims {
                inverse[row][dim] -= column[row] * pivot_row[dim];
            }
        }
    }
}
