//! The linear programme over clusters of rows and fractional patterns.

use super::super::HashMap;
use super::super::bits::BitSet;
use super::super::instance::{Dims, Instance, MAX_DIMS};
use super::super::knapsack::{Items, Knapsack};
use super::super::scopes::Scopes;
use super::super::simplex::{Column, Master};
use super::{Cluster, Prices, scaled_capacity};

/// Limit on the rounds of column generation; ten are usual.
const MAX_ROUNDS: usize = 60;
/// Limit on the new columns of a round.
const COLUMNS_A_ROUND: usize = 24;
/// Bins that are looked at in a round that is not a full one.
const HOT_BINS: usize = 48;
/// The programme is done when no bin is worth more than its price by this factor.
const CLOSE_ENOUGH: f64 = 1.0 + 2e-4;
/// Averages of bins with a limited stock in the programme, each with a row of its own.
const MAX_STOCK_ROWS: usize = 24;
/// Different prices of resources that are tried on a bin before it gets its own.
const MAX_SHARED: usize = 24;

/// A kind of node in the programme: a bin, or the average of similar bins with a limited stock.
struct Station {
    /// The bin, or one of the averaged ones: they have the same classes.
    bin: usize,
    capacity: Dims<f64>,
    price: f64,
    /// The stock, and the row of the programme that limits it.
    stock: Option<(f64, usize)>,
}

/// Bins without a limit, then averages of those with one. Rows for the stock start at `row`.
fn stations(instance: &Instance, row: usize) -> Vec<Station> {
    let endless = |&bin: &usize| instance.bins[bin].stock == u64::MAX;
    let one =
        |bin: usize| Station { bin, capacity: scaled_capacity(instance, bin), price: instance.price(bin), stock: None };
    let mut stations: Vec<Station> = (0..instance.bins.len()).filter(endless).map(one).collect();
    let stocked: Vec<usize> = (0..instance.bins.len()).filter(|bin| !endless(bin)).collect();
    let mut step = if stocked.len() <= MAX_STOCK_ROWS { 0.0 } else { 0.25 };
    let averages = loop {
        let mut places: HashMap<(&BitSet, Vec<i64>), usize> = HashMap::default();
        let mut members: Vec<Vec<usize>> = Vec::new();
        for &bin in &stocked {
            let offered = &instance.bins[bin];
            let level =
                |amount: f64| if step > 0.0 { (amount.max(1e-9).log2() / step).floor() as i64 } else { bin as i64 };
            let mut key = vec![level(instance.price(bin))];
            key.extend(scaled_capacity(instance, bin)[..instance.dims].iter().map(|&amount| level(amount)));
            let place = *places.entry((&offered.classes, key)).or_insert_with(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            members[place].push(bin);
        }
        if members.len() <= MAX_STOCK_ROWS || step > 30.0 {
            break members;
        }
        step *= 1.5;
    };
    // Still too many: those without a row take no part in the programme.
    for (index, members) in averages.iter().take(MAX_STOCK_ROWS).enumerate() {
        let count: f64 = members.iter().map(|&bin| instance.bins[bin].stock as f64).sum();
        let (mut capacity, mut price) = ([0.0; MAX_DIMS], 0.0);
        for &bin in members {
            let share = instance.bins[bin].stock as f64 / count;
            price += instance.price(bin) * share;
            for (sum, amount) in capacity.iter_mut().zip(scaled_capacity(instance, bin)) {
                *sum += amount * share;
            }
        }
        stations.push(Station { bin: members[0], capacity, price, stock: Some((count, row + index)) });
    }
    stations
}

/// The linear programme over clusters.
pub(super) struct Programme<'a> {
    instance: &'a Instance,
    clusters: Vec<Cluster>,
    items: Items,
    master: Master,
    /// Stations with limited stock have rows after those of the clusters.
    stations: Vec<Station>,
    knapsack: Knapsack,
    /// From the last evaluation of each station: its worth by price, and its prices.
    promise: Vec<f64>,
    prices: Vec<Dims<f64>>,
    work: u64,
}

impl<'a> Programme<'a> {
    pub(super) fn new(instance: &'a Instance, clusters: Vec<Cluster>) -> Self {
        let items = Items::averages(instance.dims, clusters.iter().map(|cluster| cluster.mean));
        let stations = stations(instance, clusters.len());
        let start = clusters.iter().enumerate().map(|(row, cluster)| {
            let (cost, amount) = homogeneous(instance, cluster);
            Some(Column { cost, entries: vec![(row, amount)] })
        });
        let stocks = || stations.iter().filter_map(|station| station.stock);
        let start = start.chain(stocks().map(|_| None)).collect();
        let demand = clusters.iter().map(|cluster| cluster.count);
        let master = Master::new(demand.chain(stocks().map(|(count, _)| -count)).collect(), start);
        Self {
            instance,
            items,
            master,
            knapsack: Knapsack::default(),
            promise: vec![f64::INFINITY; stations.len()],
            prices: vec![[0.0; MAX_DIMS]; stations.len()],
            work: 0,
            clusters,
            stations,
        }
    }

    pub(super) fn run(&mut self) {
        let all: Vec<usize> = (0..self.stations.len()).collect();
        let mut hot = all.clone();
        let mut full = true;
        for _ in 0..MAX_ROUNDS {
            self.master.solve(2_000);
            let added = self.look_at(&hot);
            if full && !added {
                return;
            }
            if full || !added {
                hot = all.clone();
                hot.sort_by(|&a, &b| self.promise[b].total_cmp(&self.promise[a]).then(a.cmp(&b)));
            }
            full = !added;
            hot = if full { all.clone() } else { hot.iter().copied().take(HOT_BINS).collect() };
        }
        self.master.solve(2_000);
        self.look_at(&all);
    }

    fn rent(&self, station: usize) -> f64 {
        self.stations[station].stock.map_or(0.0, |(_, row)| self.master.duals()[row].max(0.0))
    }

    /// Solves the knapsacks of the stations and adds the best columns; says whether there were any.
    fn look_at(&mut self, stations: &[usize]) -> bool {
        let instance = self.instance;
        let values: Vec<f64> = self.master.duals()[..self.clusters.len()].iter().map(|dual| dual.max(0.0)).collect();
        let mut found: Vec<(f64, usize, Vec<(usize, f64)>)> = Vec::new();
        for &station in stations {
            let Station { bin, capacity, price, .. } = &self.stations[station];
            let classes = &instance.bins[*bin].classes;
            let clusters = &self.clusters;
            let worth = self.knapsack.vertex(&self.items, &values, capacity, |item| {
                let cluster = &clusters[item];
                if classes.contains(cluster.class) && cluster.fits(instance, capacity) { cluster.most } else { 0.0 }
            });
            self.work += 1;
            let ratio = worth / (price + self.rent(station));
            self.promise[station] = ratio;
            self.prices[station] = self.knapsack.prices;
            if ratio > CLOSE_ENOUGH {
                let amounts = self.knapsack.amounts.iter().copied().enumerate();
                found.push((ratio, station, amounts.filter(|&(_, amount)| amount > 1e-9).collect()));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        found.truncate(COLUMNS_A_ROUND);
        let any = !found.is_empty();
        for (_, station, mut entries) in found {
            let Station { price, stock, .. } = &self.stations[station];
            entries.extend(stock.map(|(_, row)| (row, -1.0)));
            self.master.add(Column { cost: *price, entries });
        }
        any
    }

    /// Values of rows from the prices of the stations that are worth their price.
    pub(super) fn row_values(self) -> Prices {
        let instance = self.instance;
        let bins = instance.bins.len();
        let mut by_promise: Vec<usize> = (0..self.stations.len()).collect();
        by_promise.sort_by(|&a, &b| self.promise[b].total_cmp(&self.promise[a]).then(a.cmp(&b)));
        let duals = self.master.duals();
        let mut values = vec![f64::INFINITY; instance.rows.len()];
        let mut vectors: Vec<Dims<f64>> = Vec::new();
        let mut of_bin = vec![usize::MAX; bins];
        for &station in by_promise.iter().take_while(|&&station| self.promise[station] > 0.995) {
            if vectors.len() >= MAX_SHARED {
                break;
            }
            let bin = self.stations[station].bin;
            let scale = 1.0 / self.promise[station].max(1.0);
            let prices = self.prices[station].map(|price| price * scale);
            for (cluster, &dual) in self.clusters.iter().zip(duals) {
                let paid: f64 = (0..instance.dims).map(|d| prices[d] * cluster.mean[d]).sum();
                let over = (dual * scale - paid).max(0.0);
                let over = if over > 1e-9 * dual { over } else { 0.0 };
                for &index in &cluster.rows {
                    let row = &instance.rows[index];
                    if instance.bins[bin].fits(row, instance.dims) {
                        let request = (0..instance.dims).map(|d| prices[d] * row.request[d] as f64 * instance.unit[d]);
                        values[index] = values[index].min(request.sum::<f64>() + over);
                    }
                }
            }
            of_bin[bin] = vectors.len();
            vectors.push(prices);
        }
        for (cluster, &dual) in self.clusters.iter().zip(duals) {
            for &row in &cluster.rows {
                // Equal rows have their exact dual; a row that fits no good bin takes the average.
                if cluster.exact || values[row].is_infinite() {
                    values[row] = dual.max(0.0);
                }
            }
        }
        let mut promise = vec![1.0; bins];
        for (station, &of) in self.stations.iter().zip(&self.promise) {
            promise[station.bin] = of;
        }
        Prices {
            values,
            packing: Vec::new(),
            packing_free: Vec::new(),
            vectors,
            of_bin,
            whole: vec![false; bins],
            promise,
            promising: Vec::new(),
            strata: self.clusters.iter().flat_map(|cluster| cluster.rows.iter().copied()).collect(),
            scopes: Scopes::default(),
            rent: vec![0.0; bins],
            work: self.work,
        }
    }
}

/// Price and amount of the best node with one cluster only.
fn homogeneous(instance: &Instance, cluster: &Cluster) -> (f64, f64) {
    let mut best: Option<(f64, f64)> = None;
    for bin in 0..instance.bins.len() {
        let offered = &instance.bins[bin];
        if offered.stock != u64::MAX || !offered.classes.contains(cluster.class) {
            continue;
        }
        let capacity = scaled_capacity(instance, bin);
        let amount = (0..instance.dims)
            .filter(|&dim| cluster.mean[dim] > 0.0)
            .map(|dim| capacity[dim] / cluster.mean[dim])
            .fold(cluster.most, f64::min);
        let price = instance.price(bin);
        if amount >= 1.0 && best.is_none_or(|(cost, by)| price * by < cost * amount) {
            best = Some((price, amount));
        }
    }
    // No unlimited bin can hold the average: use a price high enough to be avoided.
    best.unwrap_or_else(|| {
        let dearest = (0..instance.bins.len()).map(|bin| instance.price(bin)).fold(1.0, f64::max);
        (dearest * 10.0, 1.0)
    })
}
