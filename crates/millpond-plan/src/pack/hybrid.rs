//! Better values for a bound: a programme in which small nodes hold whole pods.
//!
//! The relaxation with fractional patterns is weak where pods are large for the nodes. Here a bin whose
//! best whole content can be found by a short search has whole patterns only; the others stay
//! fractional. Both are columns of one programme, so it converges. Its optimum is never below that of
//! the fractional one, from whose values it starts.
//!
//! Duals of the first rounds jump about, so columns are made for points between them and the best
//! values so far. Any point gives values that hold, once divided by the most that a bin is worth more than its price.

use super::instance::{Dims, Instance, MAX_DIMS};
use super::knapsack::{Items, Knapsack};
use super::prices::{Cluster, scaled_capacity};
use super::simplex::{Column, Master};
use super::whole::Search;

/// Rounds of column generation; a hundred rows take up to two hundred.
const MAX_ROUNDS: usize = 300;
/// Limit on the new columns of a round.
const COLUMNS_A_ROUND: usize = 32;
/// Steps of one search; a bin that needs more is fractional.
const SEARCH_STEPS: u64 = 10_000;
/// Limit on the steps of all searches.
const ALL_STEPS: u64 = 1_000_000;
/// Limit on the pivots of one solution.
const MAX_PIVOTS: usize = 400;
/// Entries of the programme's inverse that all pivots touch.
const PIVOT_WORK: usize = 300_000_000;
/// Steps of the search for a first pattern of each bin, and the share of the price that it must be worth.
const SEED_STEPS: u64 = 200;
const SEED_WORTH: f64 = 0.9;
/// Searches that may remain without result before a bin is fractional.
const MAX_STRIKES: u8 = 3;
/// The programme is done when its value is this close to what is proved.
const CLOSE_ENOUGH: f64 = 1.0 + 3e-4;
/// Weight of the best values so far in the point that columns are made for: with half as much a programme of a hundred
/// rows takes twice as many rounds.
const SMOOTHING: f64 = 0.8;

/// The linear programme.
pub(super) struct Hybrid<'a> {
    instance: &'a Instance,
    /// Groups of equal rows.
    clusters: &'a [Cluster],
    items: Items,
    master: Master,
    bins: Vec<Bin>,
    knapsack: Knapsack,
    steps: u64,
    pivot_work: usize,
    pub(super) work: u64,
}

struct Bin {
    index: usize,
    price: f64,
    capacity: Dims<f64>,
    /// Clusters that fit, and how many pods of each at most.
    fitting: Vec<(usize, u64)>,
    /// Prices of its resources when it was last looked at.
    prices: Dims<f64>,
    /// How often the search for it was given up.
    strikes: u8,
}

/// A pattern and its value by its price.
struct Offer {
    ratio: f64,
    bin: usize,
    entries: Vec<(usize, f64)>,
}

impl<'a> Hybrid<'a> {
    /// Only for clusters of equal rows, and bins without a limited stock.
    pub(super) fn new(instance: &'a Instance, clusters: &'a [Cluster]) -> Self {
        let bins: Vec<Bin> = (0..instance.bins.len()).map(|bin| Bin::new(instance, clusters, bin)).collect();
        let start = (0..clusters.len()).map(|cluster| Some(alone(&bins, cluster))).collect();
        let demand = clusters.iter().map(|cluster| cluster.count).collect();
        Self {
            instance,
            clusters,
            items: Items::averages(instance.dims, clusters.iter().map(|cluster| cluster.mean)),
            master: Master::new(demand, start),
            bins,
            knapsack: Knapsack::default(),
            steps: ALL_STEPS,
            pivot_work: PIVOT_WORK,
            work: 0,
        }
    }

    /// Raises the values of the clusters, which must hold.
    pub(super) fn run(&mut self, start: Vec<f64>) -> Vec<f64> {
        let mut best = start;
        let mut proved = self.total(&best);
        self.seed(&best);
        let mut pure = false;
        for _ in 0..MAX_ROUNDS {
            self.solve();
            if self.master.value() <= proved * CLOSE_ENOUGH || self.steps == 0 || self.pivot_work == 0 {
                break;
            }
            let duals: Vec<f64> = self.master.duals().iter().map(|dual| dual.max(0.0)).collect();
            let weight = if pure { 0.0 } else { SMOOTHING };
            let point: Vec<f64> =
                best.iter().zip(&duals).map(|(best, dual)| weight * best + (1.0 - weight) * dual).collect();
            let offers = self.look_at_all(&point);
            let holding = self.lowered(&point, &offers);
            let total = self.total(&holding);
            if total > proved {
                proved = total;
                best = holding;
            }
            let added = self.add(&duals, offers);
            if !added && pure {
                break;
            }
            pure = !added;
        }
        best
    }

    fn solve(&mut self) {
        let pivots = self.master.solve(MAX_PIVOTS);
        let entries = self.clusters.len() * self.clusters.len();
        self.pivot_work = self.pivot_work.saturating_sub(pivots * entries);
    }

    /// Values that hold: each divided by the most that a bin for it is worth by its price.
    fn lowered(&self, values: &[f64], offers: &[Offer]) -> Vec<f64> {
        let mut most = vec![1.0_f64; values.len()];
        for offer in offers {
            for &(cluster, _) in &self.bins[offer.bin].fitting {
                most[cluster] = most[cluster].max(offer.ratio);
            }
        }
        values.iter().zip(&most).map(|(value, most)| value / most).collect()
    }

    /// Starts with a pattern of every bin.
    fn seed(&mut self, values: &[f64]) {
        for at in 0..self.bins.len() {
            let bin = &mut self.bins[at];
            bin.prices = bin.vertex(&self.items, values, &mut self.knapsack).1;
            self.work += 1;
            let mut search = bin.search(self.instance, self.clusters, values);
            let mut steps = SEED_STEPS;
            let found = search.run(bin.price * SEED_WORTH, &mut steps);
            if found.any {
                let entries = whole(&search.content);
                self.master.add(Column { cost: bin.price, entries });
            }
        }
    }

    fn total(&self, values: &[f64]) -> f64 {
        values.iter().zip(self.clusters).map(|(value, cluster)| value * cluster.count).sum()
    }

    /// Adds the best patterns that gain at the duals; returns whether there are any.
    fn add(&mut self, duals: &[f64], offers: Vec<Offer>) -> bool {
        let gain = |offer: &Offer| {
            let worth: f64 = offer.entries.iter().map(|&(cluster, amount)| duals[cluster] * amount).sum();
            worth / self.bins[offer.bin].price
        };
        let mut gains: Vec<(f64, Offer)> = offers.into_iter().map(|offer| (gain(&offer), offer)).collect();
        gains.retain(|(gain, _)| *gain > 1.0 + 1e-6);
        gains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.bin.cmp(&b.1.bin)));
        gains.truncate(COLUMNS_A_ROUND);
        let any = !gains.is_empty();
        for (_, offer) in gains {
            self.master.add(Column { cost: self.bins[offer.bin].price, entries: offer.entries });
        }
        any
    }

    /// Patterns of bins that are worth more than their price.
    fn look_at_all(&mut self, values: &[f64]) -> Vec<Offer> {
        (0..self.bins.len()).filter_map(|bin| self.look_at(bin, values)).collect()
    }

    fn look_at(&mut self, at: usize, values: &[f64]) -> Option<Offer> {
        let bin = &mut self.bins[at];
        if bin.worth_at_most(&self.items, values) <= bin.price {
            return None;
        }
        self.work += 1;
        let (worth, prices) = bin.vertex(&self.items, values, &mut self.knapsack);
        bin.prices = prices;
        if worth <= bin.price {
            return None;
        }
        if bin.strikes < MAX_STRIKES {
            let mut search = bin.search(self.instance, self.clusters, values);
            let given = SEARCH_STEPS.min(self.steps);
            let mut steps = given;
            let found = search.run(bin.price, &mut steps);
            self.steps -= given - steps;
            if found.complete {
                let ratio = found.worth / bin.price;
                return found.any.then(|| Offer { ratio, bin: at, entries: whole(&search.content) });
            }
            bin.strikes += 1;
            if found.any && bin.strikes < MAX_STRIKES {
                // The search bounds nothing: what the relaxation says holds.
                return Some(Offer { ratio: worth / bin.price, bin: at, entries: whole(&search.content) });
            }
            bin.strikes = MAX_STRIKES;
        }
        let amounts = self.knapsack.amounts.iter().copied().enumerate();
        let entries = amounts.filter(|&(_, amount)| amount > 1e-9).collect();
        Some(Offer { ratio: worth / bin.price, bin: at, entries })
    }
}

fn whole(content: &[(usize, u64)]) -> Vec<(usize, f64)> {
    content.iter().map(|&(cluster, count)| (cluster, count as f64)).collect()
}

impl Bin {
    fn new(instance: &Instance, clusters: &[Cluster], bin: usize) -> Self {
        let offered = &instance.bins[bin];
        let most = |cluster: &Cluster| {
            let row = &instance.rows[cluster.rows[0]];
            if !offered.fits(row, instance.dims) {
                return 0;
            }
            (0..instance.dims)
                .filter(|&dim| row.request[dim] > 0)
                .map(|dim| (offered.capacity[dim] / row.request[dim]) as u64)
                .fold(cluster.most as u64, u64::min)
        };
        let fitting = clusters.iter().map(most).enumerate().filter(|&(_, most)| most > 0).collect();
        Self {
            index: bin,
            price: instance.price(bin),
            capacity: scaled_capacity(instance, bin),
            fitting,
            prices: [0.0; MAX_DIMS],
            strikes: 0,
        }
    }

    /// The value of fractional pods, and the prices of resources.
    fn vertex(&self, items: &Items, values: &[f64], knapsack: &mut Knapsack) -> (f64, Dims<f64>) {
        let mut upper = vec![0.0; values.len()];
        for &(cluster, most) in &self.fitting {
            upper[cluster] = most as f64;
        }
        let worth = knapsack.vertex(items, values, &self.capacity, |item| upper[item]);
        (worth, knapsack.prices)
    }

    /// A search that uses the prices of the last vertex.
    fn search<'a>(&self, instance: &'a Instance, clusters: &[Cluster], values: &[f64]) -> Search<'a> {
        let mut search = Search::new(instance.dims, &instance.bins[self.index], &self.prices, &instance.unit);
        for &(cluster, most) in self.fitting.iter().filter(|(cluster, _)| values[*cluster] > 0.0) {
            let row = &instance.rows[clusters[cluster].rows[0]];
            search.offer(cluster, row, values[cluster], most, &self.prices, &instance.unit);
        }
        search
    }

    /// An upper limit on the worth at other values, by the previous prices.
    fn worth_at_most(&self, items: &Items, values: &[f64]) -> f64 {
        let room: f64 = self.prices.iter().zip(&self.capacity).map(|(price, amount)| price * amount).sum();
        let over = |&(cluster, most): &(usize, u64)| {
            (values[cluster] - items.cost_at(&self.prices, cluster)).max(0.0) * most as f64
        };
        room + self.fitting.iter().map(over).sum::<f64>()
    }
}

/// The best node that holds pods of a single cluster.
fn alone(bins: &[Bin], cluster: usize) -> Column {
    let mut best: Option<(f64, u64)> = None;
    for bin in bins {
        let found = bin.fitting.binary_search_by_key(&cluster, |&(cluster, _)| cluster);
        let Ok(place) = found else { continue };
        let count = bin.fitting[place].1;
        if best.is_none_or(|(price, known)| bin.price * (known as f64) < price * count as f64) {
            best = Some((bin.price, count));
        }
    }
    let (cost, count) = best.expect("every row fits a bin");
    Column { cost, entries: vec![(cluster, count as f64)] }
}
