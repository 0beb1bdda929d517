//! The dual price of a pod of each row, from a linear programme over fractional patterns.
//!
//! The programme is solved on clusters of similar rows. Its optimum gives prices to the resources of
//! every bin; a row is then worth what its request costs in the bin where it is cheapest. A last pass
//! over all bins lowers the values where a node could still hold more than its price, so that the
//! values prove a bound (see [`certificate`](super::certificate)) as well as steer the packing.

mod programme;

use super::HashMap;
use super::ascent::{BinPrices, ascend};
use super::hybrid::Hybrid;
use super::instance::{Dims, Instance, InstanceRow, MAX_DIMS};
use super::knapsack::{Items, Knapsack};
use super::parallel;
use super::scopes::Scopes;
use super::whole::Search;

/// Up to this many different rows each is its own cluster, which makes the relaxation exact.
const MAX_SINGLE_ROWS: usize = 64;
/// More clusters than this make the programme slower than the packing that it serves.
const MAX_CLUSTERS: usize = 48;
/// Number of bins with limited stock that represent the others.
const STOCK_SAMPLE: usize = 200;
/// Limits below which rows are tried to be worth nothing.
const VALUE_LEVELS: usize = 10;
/// Up to this many bins with a limited stock have their own prices looked for.
const MAX_OWN_STOCK: usize = 48;
/// How often prices are improved row by row, each time with the bins that were in the way; and the
/// steps of each time.
const ASCENTS: (usize, usize) = (2, 24);
/// The same for a bound on few rows: it gains most of a per cent, and takes a few milliseconds.
const PATIENT_ASCENTS: (usize, usize) = (3, 200);
/// Rows that an ascent takes for equal differ by less than this in the binary logarithms of their shares; the first is
/// for few rows.
const LUMP_STEPS: (f64, f64) = (0.02, 0.3);
/// Up to this number of rows, an ascent may use the slower, better step.
const FEW_ROWS: usize = 1_000;
/// Bins that can earn this share of their price are worth trying at any size.
const GOOD: f64 = 0.95;
/// The smallest packing value of a row, as a share of its cost alone: pods that fit into spare capacity for free must
/// still be chosen.
const LEAST_VALUE: f64 = 0.02;

/// Bins times rows for which a second thread takes longer to start than it saves.
const LITTLE_WORK: usize = 200_000;
/// A programme with whole pods for more rows takes too long: for a hundred and twenty it takes a twentieth of a second,
/// and proves up to two per cent more where many pods want a host of their own.
const MAX_WHOLE_ROWS: usize = 160;
/// Steps of the search for what whole pods on a node are worth.
const PROOF_STEPS: u64 = 30_000;

/// Values of rows and prices of resources, in the instance's floating units.
pub(super) struct Prices {
    /// The value of a pod; no node can hold more value than its price and rent.
    pub(super) values: Vec<f64>,
    /// The values for packing, which are never zero.
    pub(super) packing: Vec<f64>,
    /// The values for free nodes with limited stock: rows that have enough of them are worth little.
    pub(super) packing_free: Vec<f64>,
    /// Distinct prices of dimensions.
    pub(super) vectors: Vec<Dims<f64>>,
    /// For each bin the index of its price vector.
    pub(super) of_bin: Vec<usize>,
    /// Bins that are worth their price only if pods are whole.
    pub(super) whole: Vec<bool>,
    /// How much of its price each bin can earn at best, about; the best bins are at one.
    pub(super) promise: Vec<f64>,
    /// All bins, the most promising first.
    pub(super) promising: Vec<usize>,
    /// All rows, ordered so that similar ones are adjacent.
    pub(super) strata: Vec<usize>,
    pub(super) scopes: Scopes,
    /// The value of a node of the bin beyond its price, because its stock is short.
    pub(super) rent: Vec<f64>,
    /// Number of knapsacks that were solved.
    pub(super) work: u64,
}

/// Rows that are treated as equal.
pub(super) struct Cluster {
    pub(super) rows: Vec<usize>,
    pub(super) mean: Dims<f64>,
    pub(super) class: usize,
    pub(super) count: f64,
    /// Limit on its pods on one node.
    pub(super) most: f64,
    /// Whether its rows are exactly equal.
    exact: bool,
}

impl Cluster {
    /// Whether the average pod fits the capacity.
    pub(super) fn fits(&self, instance: &Instance, capacity: &Dims<f64>) -> bool {
        self.mean[..instance.dims].iter().zip(capacity).all(|(mean, amount)| mean <= amount)
    }
}

impl Prices {
    /// Prices for packing.
    pub(super) fn new(instance: &Instance, threads: usize) -> Self {
        Self::for_purpose(instance, threads, Purpose::Packing)
    }

    /// Prices that give a better bound, at the cost of more work.
    pub(super) fn for_bound(instance: &Instance, threads: usize) -> Self {
        Self::for_purpose(instance, threads, Purpose::Bound)
    }

    /// Whether prices to pack by prove as much as others would: there are no zones, in which rows are packed apart, and
    /// too many rows for programmes with whole pods.
    pub(super) fn are_shared(instance: &Instance) -> bool {
        let kinds = instance.kinds().last().map_or(0, |last| last + 1);
        kinds == instance.bins.len() && alike(instance, MAX_WHOLE_ROWS).is_none()
    }

    fn for_purpose(instance: &Instance, threads: usize, purpose: Purpose) -> Self {
        let kind_of = instance.kinds();
        let one_each = kind_of.last().is_none_or(|last| last + 1 == instance.bins.len());
        if one_each {
            return Self::of(instance, threads, purpose);
        }
        let mut this = Self::of(&instance.merged(&kind_of), threads, purpose);
        let mut members = vec![Vec::new(); this.of_bin.len()];
        for (bin, &kind) in kind_of.iter().enumerate() {
            members[kind].push(bin);
        }
        this.of_bin = kind_of.iter().map(|&kind| this.of_bin[kind]).collect();
        this.whole = kind_of.iter().map(|&kind| this.whole[kind]).collect();
        this.promise = kind_of.iter().map(|&kind| this.promise[kind]).collect();
        this.rent = kind_of.iter().map(|&kind| this.rent[kind]).collect();
        this.promising = this.promising.iter().flat_map(|&kind| members[kind].iter().copied()).collect();
        this.scopes = Scopes::new(instance, &kind_of, &this.strata);
        this
    }

    fn of(instance: &Instance, threads: usize, purpose: Purpose) -> Self {
        let shapes = Shapes::new(instance);
        let clusters = clusters(instance, &shapes);
        let exact = clusters.iter().all(|cluster| cluster.exact);
        let mut programme = programme::Programme::new(instance, clusters);
        programme.run();
        let mut this = programme.row_values();
        let all = Items::new(instance, (0..instance.rows.len()).collect());
        this.certify(instance, &all, threads, Purpose::Packing);
        if !exact {
            let patient = purpose == Purpose::Bound && instance.rows.len() <= FEW_ROWS;
            let (ascents, steps) = if patient { PATIENT_ASCENTS } else { ASCENTS };
            let step = if instance.rows.len() <= FEW_ROWS { LUMP_STEPS.0 } else { LUMP_STEPS.1 };
            let lumps = shapes.similar(instance, |row| row.cap >= 16, step);
            for _ in 0..ascents {
                if !this.ascend(instance, &all, &lumps, steps, threads) {
                    break;
                }
            }
        }
        if purpose == Purpose::Bound && !instance.limited_stock {
            this.raise_for_whole_pods(instance, &all, threads);
        }
        this.promising = promising(instance, &this.promise);
        let alone = cost_alone(instance, &this.promising);
        let packing = |values: &[f64]| values.iter().zip(&alone).map(|(&v, &a)| v.max(a * LEAST_VALUE)).collect();
        this.packing = packing(&this.values);
        this.value_stock(instance, &all, threads);
        this.packing_free = packing(&this.values);
        this
    }

    /// The price of a node in packing: price and rent, minus a trifle so that scarce nodes are used before others that
    /// cost the same in the end.
    pub(super) fn cost(&self, instance: &Instance, bin: usize) -> f64 {
        instance.price(bin) + self.rent[bin] * 0.999
    }

    /// Improves the prices row by row. The new prices are kept if they raise the bound; returns whether they do.
    fn ascend(&mut self, instance: &Instance, all: &Items, lumps: &[Cluster], steps: usize, threads: usize) -> bool {
        let endless = |&bin: &usize| instance.bins[bin].stock == u64::MAX;
        let mut bins: Vec<BinPrices> = self
            .vectors
            .iter()
            .enumerate()
            .filter_map(|(index, &prices)| {
                let mut users = (0..instance.bins.len()).filter(endless).filter(|&bin| self.of_bin[bin] == index);
                // The bin that these prices leave least room to is the one that set them.
                let bin = users.next()?;
                let room = |bin: usize| {
                    let capacity = scaled_capacity(instance, bin);
                    let paid: f64 = (0..instance.dims).map(|d| capacity[d] * prices[d]).sum();
                    paid / instance.price(bin)
                };
                let better = |best: usize, bin| if room(bin) > room(best) { bin } else { best };
                Some(BinPrices { bin: users.fold(bin, better), prices })
            })
            .collect();
        let capped = |row: usize| instance.rows[row].cap < 16;
        ascend(instance, lumps, &mut bins, steps);
        let mut next = self.with(instance, self.values.clone(), bins.iter().map(|one| one.prices).collect());
        for (index, row) in instance.rows.iter().enumerate() {
            if !capped(index) {
                let fitting = bins.iter().filter(|one| instance.bins[one.bin].fits(row, instance.dims));
                let least = fitting.map(|one| all.cost_at(&one.prices, index)).reduce(f64::min);
                next.values[index] = least.unwrap_or(next.values[index]);
            }
        }
        for (index, one) in bins.iter().enumerate() {
            next.of_bin[one.bin] = index;
        }
        next.certify(instance, all, threads, Purpose::Packing);
        let better = next.total(instance) > self.total(instance);
        if better {
            *self = next;
        }
        better
    }

    /// Raises the values as far as nodes cannot hold more than their price in whole pods.
    fn raise_for_whole_pods(&mut self, instance: &Instance, all: &Items, threads: usize) {
        let Some(rows) = alike(instance, MAX_WHOLE_ROWS) else { return };
        let least = |rows: &Vec<usize>| rows.iter().map(|&row| self.values[row]).fold(f64::INFINITY, f64::min);
        let start = rows.iter().map(least).collect();
        let clusters: Vec<Cluster> = rows.into_iter().map(|rows| cluster(instance, rows)).collect();
        let mut hybrid = Hybrid::new(instance, &clusters);
        let of_cluster = hybrid.run(start);
        let mut values = self.values.clone();
        for (cluster, value) in clusters.iter().zip(of_cluster) {
            for &row in &cluster.rows {
                values[row] = value;
            }
        }
        let mut next = self.with(instance, values, self.vectors.clone());
        next.work += hybrid.work;
        next.certify(instance, all, threads, Purpose::Bound);
        if next.total(instance) > self.total(instance) {
            *self = next;
        }
    }

    /// Other values and prices, not certified yet.
    fn with(&self, instance: &Instance, values: Vec<f64>, vectors: Vec<Dims<f64>>) -> Self {
        Self {
            values,
            packing: Vec::new(),
            packing_free: Vec::new(),
            vectors,
            of_bin: vec![usize::MAX; instance.bins.len()],
            whole: vec![false; instance.bins.len()],
            promise: self.promise.clone(),
            promising: Vec::new(),
            strata: self.strata.clone(),
            scopes: Scopes::default(),
            rent: self.rent.clone(),
            work: self.work,
        }
    }

    /// The bound: the total value of the rows, less the value of limited stock beyond its price.
    fn total(&self, instance: &Instance) -> f64 {
        let rows = self.values.iter().zip(&instance.rows).map(|(value, row)| value * row.count as f64);
        let stock = instance.bins.iter().zip(&self.rent).filter(|(_, rent)| **rent > 0.0);
        rows.sum::<f64>() - stock.map(|(bin, rent)| bin.stock as f64 * rent).sum::<f64>()
    }

    /// Finds for every bin with a limited stock the prices at which it is worth least; what exceeds
    /// its price is rent. Thousands of them are likely: the free room of running nodes.
    ///
    /// Where there is more room than pods, no pod that fits should be worth anything, but averages
    /// do not see what fits where. So it is tried to make the cheaper rows worthless, up to a
    /// limit that is found on a sample of the stock.
    fn value_stock(&mut self, instance: &Instance, all: &Items, threads: usize) {
        let stocked: Vec<usize> =
            (0..instance.bins.len()).filter(|&bin| instance.bins[bin].stock != u64::MAX).collect();
        if stocked.is_empty() {
            return;
        }
        if stocked.len() <= MAX_OWN_STOCK {
            let mut knapsack = Knapsack::default();
            for &bin in &stocked {
                let (prices, _) = self.own_prices(instance, all, &mut knapsack, bin);
                self.vectors.push(prices);
            }
        }
        // The price vector for values of zero.
        self.vectors.push([0.0; MAX_DIMS]);
        let stride = stocked.len().div_ceil(STOCK_SAMPLE);
        let sample: Vec<usize> = stocked.iter().copied().skip(stride / 2).step_by(stride).collect();
        // Rows that fit the fewest nodes come first.
        let room = |row: &InstanceRow| {
            let fitting = sample.iter().filter(|&&bin| instance.bins[bin].fits(row, instance.dims));
            fitting.map(|&bin| u128::from(instance.bins[bin].stock)).sum::<u128>()
        };
        let mut scarce: Vec<(u128, usize)> = instance.rows.iter().map(room).zip(0..).collect();
        scarce.sort_unstable();
        let without = scarce.iter().take_while(|&&(room, _)| room == 0).count();
        let levels = (0..=VALUE_LEVELS).map(|level| without + level * (scarce.len() - without) / VALUE_LEVELS);
        let cut = |values: &[f64], level: usize| {
            let mut cut = vec![0.0; values.len()];
            for &(_, row) in &scarce[..level] {
                cut[row] = values[row];
            }
            cut
        };
        let values = self.values.clone();
        let mut best = (f64::NEG_INFINITY, 0);
        for level in levels {
            self.values = cut(&values, level);
            let rents = self.rents(instance, all, &sample, threads);
            let rent = sample.iter().zip(&rents).map(|(&bin, &(rent, _))| instance.bins[bin].stock as f64 * rent);
            let total = self.total(instance) - rent.sum::<f64>() * stride as f64;
            if total > best.0 {
                best = (total, level);
            }
        }
        self.values = cut(&values, best.1);
        let rents = self.rents(instance, all, &stocked, threads);
        for (&bin, (rent, vector)) in stocked.iter().zip(rents) {
            self.of_bin[bin] = vector;
            self.rent[bin] = rent;
        }
    }

    /// The value of each bin beyond its price, and the prices that prove it.
    fn rents(&self, instance: &Instance, all: &Items, bins: &[usize], threads: usize) -> Vec<(f64, usize)> {
        let shared: Vec<Shared> = self.vectors.iter().map(|v| Shared::new(v, instance, all, self)).collect();
        parallel::map(
            threads,
            bins.len(),
            || (),
            |(), index| {
                let bin = bins[index];
                let mut best = (f64::INFINITY, 0);
                for (at, one) in shared.iter().enumerate() {
                    let worth = one.worth(instance, bin, best.0);
                    if worth < best.0 {
                        best = (worth, at);
                    }
                }
                let price = instance.bins[bin].price as f64 * instance.money;
                ((best.0 - price).max(0.0), best.1)
            },
        )
    }

    /// Finds for every bin without a limit prices at which it is not worth more than it costs, and
    /// lowers the values of rows where there are none.
    fn certify(&mut self, instance: &Instance, all: &Items, threads: usize, purpose: Purpose) {
        let shared: Vec<Shared> = self.vectors.iter().map(|v| Shared::new(v, instance, all, self)).collect();
        let limit = |bin: usize| instance.price(bin);
        let stop = |bin: usize| limit(bin) * 4.0;
        let open: Vec<usize> = (0..instance.bins.len())
            .filter(|&bin| instance.bins[bin].stock == u64::MAX)
            .filter(|&bin| {
                let known = self.of_bin[bin];
                known == usize::MAX || shared[known].worth(instance, bin, stop(bin)) > limit(bin)
            })
            .collect();
        let threads = if open.len() * instance.rows.len() < LITTLE_WORK { 1 } else { threads };
        let found = parallel::map(threads, open.len(), Knapsack::default, |knapsack, index| {
            let bin = open[index];
            let fitting = shared.iter().position(|one| one.worth(instance, bin, stop(bin)) <= limit(bin));
            match fitting {
                Some(shared) => Found::Shared(shared),
                None => {
                    let (prices, worth) = self.own_prices(instance, all, knapsack, bin);
                    if purpose == Purpose::Bound
                        && worth > limit(bin)
                        && let Some(worth) = self.whole_worth(instance, bin, &prices)
                    {
                        return Found::Whole((prices, worth));
                    }
                    Found::Own((prices, worth))
                }
            }
        });
        for (&bin, found) in open.iter().zip(found) {
            self.of_bin[bin] = match found {
                Found::Shared(index) => index,
                Found::Own((prices, worth)) => {
                    self.work += 1;
                    let scale = instance.price(bin) / worth.max(1e-300);
                    self.promise[bin] = (1.0 / scale).min(1.0);
                    if scale < 1.0 {
                        self.lower(instance, all, bin, &prices, scale);
                    }
                    self.vectors.push(prices.map(|price| price * scale.min(1.0)));
                    self.vectors.len() - 1
                }
                Found::Whole((prices, worth)) => {
                    let scale = instance.price(bin) / worth;
                    self.lower_all(instance, bin, scale);
                    self.whole[bin] = true;
                    self.vectors.push(prices);
                    self.vectors.len() - 1
                }
            };
        }
    }

    /// The fractional knapsack of a bin over all rows: its prices and its value.
    fn own_prices(&self, instance: &Instance, all: &Items, knapsack: &mut Knapsack, bin: usize) -> (Dims<f64>, f64) {
        let offered = &instance.bins[bin];
        let worth = knapsack.vertex(all, &self.values, &scaled_capacity(instance, bin), |item| {
            let row = &instance.rows[item];
            if offered.fits(row, instance.dims) { row.count.min(row.cap) as f64 } else { 0.0 }
        });
        (knapsack.prices, worth * (1.0 + 1e-9))
    }

    /// The most that whole pods on a node of the bin are worth, at least its price; `None` if that takes
    /// too long to find out.
    fn whole_worth(&self, instance: &Instance, bin: usize, prices: &Dims<f64>) -> Option<f64> {
        let offered = &instance.bins[bin];
        let mut search = Search::new(instance.dims, offered, prices, &instance.unit);
        for (index, row) in instance.rows.iter().enumerate() {
            let value = self.values[index];
            if value > 0.0 && offered.fits(row, instance.dims) {
                search.offer(index, row, value, row.count.min(row.cap), prices, &instance.unit);
            }
        }
        let mut steps = PROOF_STEPS;
        let found = search.run(instance.price(bin), &mut steps);
        found.complete.then_some(found.worth)
    }

    /// Multiplies the values of all rows that fit a bin by a factor below one.
    fn lower_all(&mut self, instance: &Instance, bin: usize, scale: f64) {
        if scale < 1.0 {
            for (value, row) in self.values.iter_mut().zip(&instance.rows) {
                if instance.bins[bin].fits(row, instance.dims) {
                    *value *= scale;
                }
            }
        }
    }

    /// Lowers the rows of an overfull bin to their part of what is paid for it.
    fn lower(&mut self, instance: &Instance, all: &Items, bin: usize, at: &Dims<f64>, scale: f64) {
        for (index, row) in instance.rows.iter().enumerate() {
            if instance.bins[bin].fits(row, instance.dims) {
                let paid = all.cost_at(at, index).max(self.values[index]);
                self.values[index] = self.values[index].min(paid * scale);
            }
        }
    }
}

enum Found {
    Shared(usize),
    Own((Dims<f64>, f64)),
    /// With the values of whole pods.
    Whole((Dims<f64>, f64)),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Packing,
    Bound,
}

/// Prices that are tried on many bins, with the rows that they do not pay for in full.
struct Shared {
    prices: Dims<f64>,
    residuals: Vec<(usize, f64)>,
}

impl Shared {
    fn new(prices: &Dims<f64>, instance: &Instance, all: &Items, of: &Prices) -> Self {
        let over = |item: usize| of.values[item] - all.cost_at(prices, item);
        let mut residuals: Vec<(usize, f64)> = (0..all.len())
            .map(|item| (item, over(item)))
            .filter(|&(item, over)| over > 1e-12 * of.values[item])
            .collect();
        // By request, so that the search can end at the first row that is too large.
        residuals.sort_by_key(|&(row, _)| instance.rows[row].request[0]);
        Self { prices: *prices, residuals }
    }

    /// The most that one node of the bin can be worth, by these prices; may stop early when that
    /// exceeds the limit.
    fn worth(&self, instance: &Instance, bin: usize, limit: f64) -> f64 {
        let capacity = scaled_capacity(instance, bin);
        let offered = &instance.bins[bin];
        let mut worth: f64 = (0..instance.dims).map(|dim| capacity[dim] * self.prices[dim]).sum();
        for &(index, over) in &self.residuals {
            let row = &instance.rows[index];
            if worth > limit || row.request[0] > offered.capacity[0] {
                break;
            }
            if offered.fits(row, instance.dims) {
                worth += offered.most(row, instance.resources) as f64 * over;
            }
        }
        worth * (1.0 + 1e-9)
    }
}

pub(super) fn scaled_capacity(instance: &Instance, bin: usize) -> Dims<f64> {
    let mut capacity = [0.0; MAX_DIMS];
    for dim in 0..instance.dims {
        capacity[dim] = instance.bins[bin].capacity[dim] as f64 * instance.unit[dim];
    }
    capacity
}

/// All bins except free ones that are filled first anyway, the most promising first; good bins alternate by size,
/// because a relaxation does not see how well whole pods fit.
fn promising(instance: &Instance, promise: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..instance.bins.len()).filter(|&bin| !instance.is_free_stock(bin)).collect();
    order.sort_by(|&a, &b| promise[b].total_cmp(&promise[a]).then(a.cmp(&b)));
    let mut seen: HashMap<u32, usize> = HashMap::default();
    let turn = |&bin: &usize| {
        if promise[bin] < GOOD {
            return usize::MAX;
        }
        let size = instance.bins[bin].price.checked_ilog2().unwrap_or(0);
        let turn = seen.entry(size).or_default();
        *turn += 1;
        *turn
    };
    let mut turns: Vec<(usize, usize)> = Vec::with_capacity(order.len());
    let mut turn = turn;
    for bin in order {
        turns.push((turn(&bin), bin));
    }
    // Stable: within a turn the more promising stays first.
    turns.sort_by_key(|&(turn, _)| turn);
    turns.into_iter().map(|(_, bin)| bin).collect()
}

/// The cost of one pod of each row on nodes of its own, at the best of a few promising bins.
fn cost_alone(instance: &Instance, promising: &[usize]) -> Vec<f64> {
    const LOOK_AT: usize = 8;
    let ratio = |row: &InstanceRow, bin: usize| {
        let capacity = &instance.bins[bin].capacity;
        let share = (0..instance.resources)
            .filter(|&dim| row.request[dim] > 0)
            .map(|dim| row.request[dim] as f64 / capacity[dim] as f64)
            .fold(1.0 / row.count.min(row.cap) as f64, f64::max);
        instance.price(bin) * share
    };
    let alone = |row: &InstanceRow| {
        let fitting = promising.iter().filter(|&&bin| instance.bins[bin].fits(row, instance.dims));
        fitting.take(LOOK_AT).map(|&bin| ratio(row, bin)).fold(f64::INFINITY, f64::min)
    };
    let only_free = |cost: f64| if cost.is_finite() { cost } else { 1.0 };
    instance.rows.iter().map(|row| only_free(alone(row))).collect()
}

/// Groups rows of the same class and similar request; coarser until there are few enough.
fn clusters(instance: &Instance, shapes: &Shapes) -> Vec<Cluster> {
    if let Some(alike) = alike(instance, MAX_SINGLE_ROWS) {
        return alike.into_iter().map(|rows| Cluster { exact: true, ..cluster(instance, rows) }).collect();
    }
    let mut step = 1.0;
    loop {
        let clusters = shapes.similar(instance, |_| true, step);
        if clusters.len() <= MAX_CLUSTERS || step > 30.0 {
            return clusters;
        }
        step *= 1.5;
    }
}

/// Groups of rows that differ only in their counts: the same pods in several zones, if zones do not matter. `None` if
/// there are more than `most` groups.
fn alike(instance: &Instance, most: usize) -> Option<Vec<Vec<usize>>> {
    let mut places: HashMap<(usize, &Dims<i64>, u64, &[usize]), usize> = HashMap::default();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (index, row) in instance.rows.iter().enumerate() {
        let place = *places.entry((row.class, &row.request, row.cap, &row.groups)).or_insert_with(|| {
            members.push(Vec::new());
            members.len() - 1
        });
        if place >= most {
            return None;
        }
        members[place].push(index);
    }
    Some(members)
}

/// Binary logarithms of what rows ask for: the largest share of it last, the others by that.
struct Shapes {
    varied: Vec<usize>,
    logarithms: Vec<[f64; MAX_DIMS + 1]>,
}

impl Shapes {
    fn new(instance: &Instance) -> Self {
        let differs = |&dim: &usize| instance.rows.windows(2).any(|pair| pair[0].request[dim] != pair[1].request[dim]);
        let varied: Vec<usize> = (0..instance.dims).filter(differs).collect();
        let logarithms = instance.rows.iter().map(|row| {
            let scaled = |dim: usize| row.request[dim] as f64 * instance.unit[dim];
            let size = varied.iter().map(|&dim| scaled(dim)).fold(1e-30, f64::max);
            let mut of = [0.0; MAX_DIMS + 1];
            of[MAX_DIMS] = size.log2();
            for &dim in &varied {
                of[dim] = (scaled(dim) / size).log2();
            }
            of
        });
        Self { logarithms: logarithms.collect(), varied }
    }

    /// Groups the chosen rows by class, and by the logarithms of size and shares in steps.
    fn similar(&self, instance: &Instance, chosen: impl Fn(&InstanceRow) -> bool, step: f64) -> Vec<Cluster> {
        let mut places: HashMap<(usize, bool, [i32; MAX_DIMS + 1]), usize> = HashMap::default();
        let mut members: Vec<Vec<usize>> = Vec::new();
        for (index, row) in instance.rows.iter().enumerate().filter(|(_, row)| chosen(row)) {
            let of = &self.logarithms[index];
            let mut key = [0; MAX_DIMS + 1];
            key[MAX_DIMS] = (of[MAX_DIMS] / (2.0 * step)).floor() as i32;
            for &dim in &self.varied {
                // A resource that is not requested has an infinite logarithm and gets the smallest number.
                key[dim] = (of[dim] / step).round() as i32;
            }
            let place = *places.entry((row.class, row.cap < 16, key)).or_insert_with(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            members[place].push(index);
        }
        members.into_iter().map(|rows| cluster(instance, rows)).collect()
    }
}

fn cluster(instance: &Instance, rows: Vec<usize>) -> Cluster {
    let mut mean = [0.0; MAX_DIMS];
    let (mut count, mut most) = (0.0, 0.0);
    for &row in &rows {
        let row = &instance.rows[row];
        count += row.count as f64;
        most += row.count.min(row.cap) as f64;
        for dim in 0..instance.dims {
            mean[dim] += row.request[dim] as f64 * instance.unit[dim] * row.count as f64;
        }
    }
    for amount in &mut mean {
        *amount /= count;
    }
    let first = &instance.rows[rows[0]];
    if rows.iter().all(|&row| instance.rows[row].request == first.request) {
        for dim in 0..instance.dims {
            mean[dim] = first.request[dim] as f64 * instance.unit[dim];
        }
    }
    Cluster { mean, class: first.class, count, most, rows, exact: false }
}
