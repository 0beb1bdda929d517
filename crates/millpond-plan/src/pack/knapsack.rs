//! The best content of one node: the fractional knapsack, and patterns built from it.
//!
//! [`Knapsack::vertex`] solves `max d·x, W·x ≤ capacity, 0 ≤ x ≤ u` with a simplex of one row per
//! dimension. [`Knapsack::fill`] takes the whole part of its solution, and goes on with what is left
//! of the node. That keeps the mix of the relaxation: all resources run out together, where a
//! greedy choice by density would use up one and waste the others.
//!
//! Both work on a bench: the items that matter, laid out side by side. A fill starts with a hundred of
//! them and soon has only the few that still fit.

use super::instance::{Dims, Instance, InstanceBin, MAX_DIMS};

/// Smallest reduced cost that counts, relative to values around one.
const EPSILON: f64 = 1e-9;
/// Vertices of a fill; after these the little room that is left goes to the most valuable items.
const MAX_VERTICES: usize = 3;
/// Dense items that are sorted at a time for the start of a vertex; often the first few do.
const SORT_AT_ONCE: usize = 8;

/// Some rows of an instance, laid out for scanning.
pub(super) struct Items {
    /// Indices of the instance's rows.
    pub(super) rows: Vec<usize>,
    pub(super) dims: usize,
    /// Scaled requests by item.
    weights: Vec<f64>,
    /// Requests by item.
    requests: Vec<i64>,
    /// Limit on the pods of the row on one node.
    pub(super) caps: Vec<u64>,
    /// For each item the items that exclude it; empty if no item is excluded.
    rivals: Vec<Vec<usize>>,
}

impl Items {
    pub(super) fn new(instance: &Instance, rows: Vec<usize>) -> Self {
        let dims = instance.dims;
        let mut weights = Vec::with_capacity(dims * rows.len());
        for &row in &rows {
            let request = &instance.rows[row].request;
            weights.extend((0..dims).map(|dim| request[dim] as f64 * instance.unit[dim]));
        }
        let rivals = rivals(instance, &rows);
        let of = |row: &usize| &instance.rows[*row];
        Self {
            dims,
            weights,
            requests: rows.iter().flat_map(|row| of(row).request.into_iter().take(dims)).collect(),
            caps: rows.iter().map(|row| of(row).cap).collect(),
            rivals,
            rows,
        }
    }

    /// Items that are not rows: averages, for relaxations only.
    pub(super) fn averages(dims: usize, means: impl Iterator<Item = Dims<f64>>) -> Self {
        let weights: Vec<f64> = means.flat_map(|mean| mean.into_iter().take(dims)).collect();
        let count = weights.len().checked_div(dims).unwrap_or(0);
        Self { rows: (0..count).collect(), dims, weights, requests: Vec::new(), caps: Vec::new(), rivals: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The cost of an item's request at the prices.
    pub(super) fn cost_at(&self, prices: &Dims<f64>, item: usize) -> f64 {
        self.weights_of(item).iter().zip(prices).map(|(weight, price)| weight * price).sum()
    }

    pub(super) fn weight(&self, dim: usize, item: usize) -> f64 {
        self.weights[item * self.dims + dim]
    }

    fn weights_of(&self, item: usize) -> &[f64] {
        &self.weights[item * self.dims..(item + 1) * self.dims]
    }

    fn request(&self, item: usize) -> &[i64] {
        &self.requests[item * self.dims..(item + 1) * self.dims]
    }

    /// Whether the remaining capacity holds one more pod.
    fn fits(&self, item: usize, room: &Dims<i64>) -> bool {
        self.request(item).iter().zip(room).all(|(amount, limit)| amount <= limit)
    }

    /// The items that a node of the bin may hold.
    pub(super) fn fitting(&self, instance: &Instance, bin: usize) -> Vec<u32> {
        let bin = &instance.bins[bin];
        let holds = |item: &u32| {
            let row = self.rows[*item as usize];
            self.fits(*item as usize, &bin.capacity) && bin.classes.contains(instance.rows[row].class)
        };
        (0..self.len() as u32).filter(holds).collect()
    }
}

fn rivals(instance: &Instance, rows: &[usize]) -> Vec<Vec<usize>> {
    if instance.groups.is_empty() {
        return Vec::new();
    }
    let mut rivals = vec![Vec::new(); rows.len()];
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

/// The order in which items are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Unspecified.
    Any,
    /// Items first that earn most for the capacity that they use.
    Best,
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
    bench: Bench,
    /// Items of a fill, and how many of each were taken.
    offered: Vec<usize>,
    taken: Vec<u64>,
    /// Items that an item on the node excludes.
    excluded: Vec<bool>,
}

impl Knapsack {
    /// Solves the fractional knapsack below the upper bounds; returns its value.
    pub(super) fn vertex(
        &mut self,
        items: &Items,
        values: &[f64],
        capacity: &Dims<f64>,
        upper: impl Fn(usize) -> f64,
    ) -> f64 {
        self.bench.clear();
        for (item, &value) in values.iter().enumerate() {
            let upper = upper(item);
            if upper > 0.0 && value > 0.0 {
                self.bench.push(item, items.weights_of(item), value, upper);
            }
        }
        self.bench.solve(items.dims, capacity, Order::Any);
        self.prices = self.bench.prices.map(|price| price.max(0.0));
        self.amounts.clear();
        self.amounts.resize(items.len(), 0.0);
        let mut worth = 0.0;
        for (place, &item) in self.bench.items.iter().enumerate() {
            self.amounts[item] = self.bench.amounts[place];
            worth += self.bench.amounts[place] * self.bench.values[place];
        }
        worth
    }

    /// Builds a pattern for one node from at most `left` of each item; its value is returned. `offered` are items that
    /// the bin may hold.
    #[expect(clippy::too_many_arguments, reason = "the inner loop of packing: a struct of borrows would say no more")]
    pub(super) fn fill(
        &mut self,
        instance: &Instance,
        items: &Items,
        bin: &InstanceBin,
        offered: impl Iterator<Item = u32>,
        order: Order,
        values: &[f64],
        left: &[u64],
        content: &mut Content,
    ) -> f64 {
        let dims = items.dims;
        let mut room = bin.capacity;
        // All entries are zero between calls.
        if self.taken.len() < items.len() {
            self.taken.resize(items.len(), 0);
        }
        self.excluded.clear();
        self.excluded.resize(items.rivals.len(), false);
        self.bench.clear();
        self.offered.clear();
        for item in offered.map(|item| item as usize) {
            let most = left[item].min(items.caps[item]);
            if most > 0 && values[item] > 0.0 {
                self.bench.push(item, items.weights_of(item), values[item], most as f64);
                self.offered.push(item);
            }
        }
        for round in 0.. {
            if self.bench.items.is_empty() {
                break;
            }
            let mut any = false;
            if round < MAX_VERTICES {
                let mut capacity = [0.0; MAX_DIMS];
                for dim in 0..dims {
                    capacity[dim] = room[dim] as f64 * instance.unit[dim];
                }
                // Later, what is left of the node is not what the order was made for.
                self.bench.solve(dims, &capacity, if round == 0 { order } else { Order::Any });
                any = self.take_whole(items, &mut room);
            }
            if !any {
                self.take_best(items, &mut room);
            }
            let excluded = &self.excluded;
            self.bench.retain(dims, |item, upper| {
                upper > 0.0 && items.fits(item, &room) && !excluded.get(item).is_some_and(|&excluded| excluded)
            });
        }
        content.clear();
        for &item in &self.offered {
            // Bounds are floating: counts beyond 2⁵³ may come out a little high.
            let taken = std::mem::take(&mut self.taken[item]).min(left[item]).min(items.caps[item]);
            if taken > 0 {
                content.push((item, taken));
            }
        }
        content.sort_unstable();
        content.iter().map(|&(item, taken)| values[item] * taken as f64).sum()
    }

    /// Takes the whole part of the vertex; says whether there was any.
    fn take_whole(&mut self, items: &Items, room: &mut Dims<i64>) -> bool {
        let mut any = false;
        for place in 0..self.bench.items.len() {
            let whole = (self.bench.amounts[place] + 1e-6) as u64;
            if whole >= 1 {
                any |= self.take(items, place, whole.min(self.bench.upper[place] as u64), room);
            }
        }
        any
    }

    /// Takes the most valuable item that fits: once, or a part of what fits if that is a lot, for
    /// pods so small that the vertex does not see them.
    fn take_best(&mut self, items: &Items, room: &mut Dims<i64>) {
        let values = &self.bench.values;
        let mut best = 0;
        for place in 1..values.len() {
            if values[place] > values[best] {
                best = place;
            }
        }
        let request = items.request(self.bench.items[best]);
        let most = (0..items.dims)
            .filter(|&dim| request[dim] > 0)
            .map(|dim| (room[dim] / request[dim]) as u64)
            .fold(self.bench.upper[best] as u64, u64::min);
        if !self.take(items, best, (most / 4).max(1), room) {
            self.bench.upper[best] = 0.0;
        }
    }

    fn take(&mut self, items: &Items, place: usize, count: u64, room: &mut Dims<i64>) -> bool {
        let item = self.bench.items[place];
        let request = items.request(item);
        let mut count = count;
        if self.excluded.get(item).is_some_and(|&excluded| excluded) {
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
        self.taken[item] = self.taken[item].saturating_add(count);
        self.bench.upper[place] -= count as f64;
        for &rival in items.rivals.get(item).into_iter().flatten() {
            self.excluded[rival] = true;
        }
        true
    }
}

/// The items of one knapsack, and its vertex.
#[derive(Default)]
struct Bench {
    items: Vec<usize>,
    /// Dimension by dimension, so that loops over items run over numbers that stand side by side.
    weights: [Vec<f64>; MAX_DIMS],
    values: Vec<f64>,
    upper: Vec<f64>,
    amounts: Vec<f64>,
    prices: Dims<f64>,
    /// The direction in which an item may change: one from its lower bound, minus one from its upper bound, zero for
    /// basic items.
    way: Vec<f64>,
    gains: Vec<f64>,
    order: Vec<(f64, usize)>,
}

/// Marks a slack in the basis: the item number is this plus the dimension.
const SLACK: usize = usize::MAX - MAX_DIMS;

impl Bench {
    fn clear(&mut self) {
        self.items.clear();
        self.weights.iter_mut().for_each(Vec::clear);
        self.values.clear();
        self.upper.clear();
    }

    fn push(&mut self, item: usize, weights: &[f64], value: f64, upper: f64) {
        self.items.push(item);
        for (all, &weight) in self.weights.iter_mut().zip(weights) {
            all.push(weight);
        }
        self.values.push(value);
        self.upper.push(upper);
    }

    /// Keeps items by index and upper bound.
    fn retain(&mut self, dims: usize, keep: impl Fn(usize, f64) -> bool) {
        let mut kept = 0;
        for place in 0..self.items.len() {
            if keep(self.items[place], self.upper[place]) {
                if kept != place {
                    self.items[kept] = self.items[place];
                    self.values[kept] = self.values[place];
                    self.upper[kept] = self.upper[place];
                    for weights in &mut self.weights[..dims] {
                        weights[kept] = weights[place];
                    }
                }
                kept += 1;
            }
        }
        self.items.truncate(kept);
        self.values.truncate(kept);
        self.upper.truncate(kept);
        self.weights[..dims].iter_mut().for_each(|weights| weights.truncate(kept));
    }

    /// Finds the best amounts within the capacity, and the prices that go with them.
    fn solve(&mut self, dims: usize, capacity: &Dims<f64>, order: Order) {
        self.prices = [0.0; MAX_DIMS];
        match dims {
            0 => {
                self.amounts.clear();
                self.amounts.extend_from_slice(&self.upper);
            }
            1 => self.solve_in::<1>(capacity, order),
            2 => self.solve_in::<2>(capacity, order),
            3 => self.solve_in::<3>(capacity, order),
            4 => self.solve_in::<4>(capacity, order),
            5 => self.solve_in::<5>(capacity, order),
            6 => self.solve_in::<6>(capacity, order),
            7 => self.solve_in::<7>(capacity, order),
            8 => self.solve_in::<8>(capacity, order),
            9 => self.solve_in::<9>(capacity, order),
            10 => self.solve_in::<10>(capacity, order),
            11 => self.solve_in::<11>(capacity, order),
            _ => self.solve_in::<MAX_DIMS>(capacity, order),
        }
    }

    fn solve_in<const D: usize>(&mut self, capacity: &Dims<f64>, order: Order) {
        let n = self.items.len();
        let mut level = [0.0; D];
        level.copy_from_slice(&capacity[..D]);
        self.way.clear();
        self.way.resize(n, 1.0);
        match order {
            Order::Any => self.start(&mut level),
            Order::Best => _ = self.raise(0..n, &mut level),
        }
        let mut basis: [usize; D] = std::array::from_fn(|dim| SLACK + dim);
        let mut inverse = [[0.0; D]; D];
        for (dim, row) in inverse.iter_mut().enumerate() {
            row[dim] = 1.0;
        }
        let mut prices = [0.0; D];
        // Each step gains value; the limit is a guard against cycling on ties.
        for _ in 0..(4 * n + 50) {
            prices = [0.0; D];
            for row in 0..D {
                if basis[row] < SLACK {
                    let value = self.values[basis[row]];
                    for dim in 0..D {
                        prices[dim] += value * inverse[row][dim];
                    }
                }
            }
            let Some(entering) = self.choose(&prices) else { break };
            let up = entering >= SLACK || self.way[entering] > 0.0;
            let column = self.transformed(entering, &inverse);
            let sign = if up { 1.0 } else { -1.0 };
            let own = if entering >= SLACK { f64::INFINITY } else { self.upper[entering] };
            let (step, leaving) = self.ratio(&basis, &level, &column, sign, own);
            for dim in 0..D {
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
            pivot(&mut inverse, &column, leaving);
        }
        self.prices[..D].copy_from_slice(&prices);
        self.amounts.clear();
        self.amounts.extend(self.way.iter().zip(&self.upper).map(|(&way, &upper)| if way < 0.0 { upper } else { 0.0 }));
        for dim in 0..D {
            if basis[dim] < SLACK {
                self.amounts[basis[dim]] = level[dim].max(0.0);
            }
        }
    }

    /// Puts dense items at their upper bound while they fit: a feasible start that saves most of
    /// the steps when there are few pods of each row.
    fn start<const D: usize>(&mut self, level: &mut [f64; D]) {
        let mut price = [0.0; D];
        for dim in 0..D {
            let need: f64 = self.weights[dim].iter().zip(&self.upper).map(|(weight, upper)| weight * upper).sum();
            if need > level[dim] {
                price[dim] = 1.0 / level[dim].max(1e-12);
            }
        }
        self.gains.clear();
        self.gains.resize(self.items.len(), 0.0);
        self.subtract_costs(&price.map(|price| -price));
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(self.gains.iter().zip(&self.values).map(|(cost, value)| cost / value).zip(0..));
        let by_density = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let mut rest = order.as_mut_slice();
        while !rest.is_empty() {
            let now = rest.len().min(SORT_AT_ONCE);
            if rest.len() > now {
                rest.select_nth_unstable_by(now - 1, by_density);
            }
            let (first, others) = rest.split_at_mut(now);
            first.sort_unstable_by(by_density);
            if !self.raise(first.iter().map(|&(_, place)| place), level) {
                break;
            }
            rest = others;
        }
        self.order = order;
    }

    /// Puts items at their upper bound, one after the other, until one does not fit.
    fn raise<const D: usize>(&mut self, places: impl Iterator<Item = usize>, level: &mut [f64; D]) -> bool {
        for place in places {
            let upper = self.upper[place];
            let mut after = *level;
            for dim in 0..D {
                after[dim] -= upper * self.weights[dim][place];
            }
            if after.iter().any(|&amount| amount < 0.0) {
                return false;
            }
            *level = after;
            self.way[place] = -1.0;
        }
        true
    }

    /// Takes off the gains what each item takes up at the prices.
    fn subtract_costs<const D: usize>(&mut self, prices: &[f64; D]) {
        for (weights, &price) in self.weights.iter().zip(prices) {
            for (gain, weight) in self.gains.iter_mut().zip(weights) {
                *gain -= price * weight;
            }
        }
    }

    /// The entering item: the one with the largest gain per pod.
    fn choose<const D: usize>(&mut self, prices: &[f64; D]) -> Option<usize> {
        self.gains.clear();
        self.gains.extend_from_slice(&self.values);
        self.subtract_costs(prices);
        for (gain, way) in self.gains.iter_mut().zip(&self.way) {
            *gain *= way;
        }
        let most = largest(&self.gains);
        let mut best = EPSILON;
        let mut choice = None;
        if most > best {
            best = most;
            choice = self.gains.iter().position(|&gain| gain >= most);
        }
        for (dim, &price) in prices.iter().enumerate() {
            if -price > best {
                best = -price;
                choice = Some(SLACK + dim);
            }
        }
        choice
    }

    /// The column of the entering item in terms of the basis.
    fn transformed<const D: usize>(&self, entering: usize, inverse: &[[f64; D]; D]) -> [f64; D] {
        std::array::from_fn(|row| {
            if entering >= SLACK {
                return inverse[row][entering - SLACK];
            }
            inverse[row].iter().zip(&self.weights).map(|(entry, weights)| entry * weights[entering]).sum()
        })
    }

    /// How far the entering item can go, and which basic one stops it (none: its own bound).
    fn ratio<const D: usize>(
        &self,
        basis: &[usize; D],
        level: &[f64; D],
        column: &[f64; D],
        sign: f64,
        own: f64,
    ) -> (f64, Option<usize>) {
        let mut step = own;
        let mut leaving = None;
        for dim in 0..D {
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
}

/// Numbers that are compared at a time: with a single one each comparison would wait for the last.
const LANES: usize = 4;

fn largest(values: &[f64]) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut most = [f64::NEG_INFINITY; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            most[lane] = if chunk[lane] > most[lane] { chunk[lane] } else { most[lane] };
        }
    }
    most.iter().chain(rest).fold(f64::NEG_INFINITY, |most, &value| if value > most { value } else { most })
}

fn pivot<const D: usize>(inverse: &mut [[f64; D]; D], column: &[f64; D], leaving: usize) {
    let scale = 1.0 / column[leaving];
    for entry in &mut inverse[leaving] {
        *entry *= scale;
    }
    let pivot_row = inverse[leaving];
    for row in 0..D {
        if row != leaving && column[row] != 0.0 {
            for dim in 0..D {
                inverse[row][dim] -= column[row] * pivot_row[dim];
            }
        }
    }
}
