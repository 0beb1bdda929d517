//! Better plans: column generation in groups, rounded step by step.
//!
//! Each group of rows gets a covering programme over patterns. New patterns come from filling the
//! promising bins at the programme's duals; when that finds no more, at values near them, and from a
//! search for the best content. Whole multiples of a pattern are bought, the programme is
//! solved again for the rest, and what remains in the end is pooled over all groups.

use super::greedy::{Greedy, Pattern, candidates};
use super::instance::{Instance, mix};
use super::knapsack::{Content, Items, Knapsack, Order};
use super::parallel;
use super::plan::{Nodes, Stock};
use super::prices::{Prices, scaled_capacity};
use super::scopes::Hand;
use super::simplex::{Column, Master};
use super::whole::Search;

/// Rows of a group, where there are few rows in all and where there are many. Larger groups mix better and leave less to
/// round, but the programme takes longer with the square of its rows. Where there are few, it pays: three zones with a
/// third of `everything` each cost a quarter of a per cent less than six groups.
const GROUP_ROWS: (usize, usize) = (130, 80);
/// Promising bins of the greedy plan that a group starts from.
const SEED_BINS: usize = 24;
/// Limit on the new columns of a round.
const COLUMNS_A_ROUND: usize = 24;
/// Bins that are filled in a round that is not a full one.
const HOT_BINS: usize = 12;
/// A programme this close to the bound is good enough.
const CLOSE_ENOUGH: f64 = 1.002;
/// Weight of the values of earlier rounds in those that patterns are built for; the duals of a
/// single round jump about.
const SMOOTHING: f64 = 0.5;

/// Pivots of one programme, and how many of them take as long as a fill.
const MAX_PIVOTS: usize = 400;
const PIVOTS_AN_EVALUATION: usize = 2;
/// Fills of each bin at values near the duals when the duals themselves lead no further, and how near. A fill takes the
/// same rows first wherever it is done; a little chance shows it others.
const NEARBY: u64 = 3;
const NOISE: f64 = 0.05;
/// Patterns must earn at least this share of their price at the duals to be kept for the remaining pods.
const NEAR: f64 = 0.9;

/// With more rows, the budget is not spent on the last tenth of a per cent of each group.
const FEW_ROWS: usize = 1_000;
/// Steps of such a search, and how many of them take as long as a fill.
const SEARCH_STEPS: u64 = 2_000;
const STEPS_AN_EVALUATION: u64 = 200;

/// How much work a group deserves.
#[derive(Clone, Copy)]
struct Pains {
    /// Number of promising bins.
    bins: usize,
    /// Limit on the rounds of the first programme.
    rounds: usize,
    /// The gain that it must reach within `patience` rounds to continue.
    least_gain: f64,
    patience: usize,
    /// How often what is left is solved again, in how many rounds, and the fraction of a pattern that is bought as a
    /// whole one.
    dives: usize,
    later_rounds: usize,
    round_up_from: f64,
    /// Whether to look further, nearby and by search, when no pattern is found by filling.
    search: bool,
}

impl Pains {
    fn new(rows: usize) -> Self {
        if rows <= FEW_ROWS {
            return Self {
                bins: 40,
                rounds: 80,
                least_gain: 1e-4,
                patience: 6,
                dives: 8,
                later_rounds: 10,
                round_up_from: 0.5,
                search: true,
            };
        }
        // The pods that many groups leave over are pooled, and are packed at least as well as the groups would pack
        // them separately.
        Self {
            bins: 32,
            rounds: 30,
            least_gain: 3e-4,
            patience: 4,
            dives: 1,
            later_rounds: 4,
            round_up_from: 0.3,
            search: false,
        }
    }
}

/// Packs all pods group by group; what could not be rounded remains in `left`.
pub(super) fn place(
    instance: &Instance,
    prices: &Prices,
    left: &mut [u64],
    stock: &mut Stock,
    evaluations: u64,
    threads: usize,
) -> (Vec<Nodes>, u64) {
    let rows: Vec<usize> = prices.strata.iter().copied().filter(|&row| left[row] > 0).collect();
    let few = instance.rows.len() <= FEW_ROWS;
    let groups = prices.scopes.deal(&rows, if few { GROUP_ROWS.0 } else { GROUP_ROWS.1 });
    let share = evaluations / groups.len() as u64;
    let run = |knapsack: &mut Knapsack, hand: &Hand, stock: &mut Stock| {
        let mut group = Group::new(instance, prices, hand, stock, left, share);
        group.run(knapsack, stock);
        (group.plan, group.work)
    };
    let results: Vec<(Vec<Nodes>, u64)> = if instance.limited_stock {
        let mut knapsack = Knapsack::default();
        groups.iter().map(|hand| run(&mut knapsack, hand, stock)).collect()
    } else {
        parallel::map(threads, groups.len(), Knapsack::default, |knapsack, index| {
            run(knapsack, &groups[index], &mut stock.clone())
        })
    };
    let mut plan = Vec::new();
    let mut work = 0;
    for (nodes, spent) in results {
        super::greedy::subtract(left, &nodes);
        plan.extend(nodes);
        work += spent;
    }
    (plan, work)
}

struct Group<'a> {
    instance: &'a Instance,
    prices: &'a Prices,
    items: Items,
    /// Lower bound on the cost of the group's pods.
    values: Vec<f64>,
    left: Vec<u64>,
    scope: Option<usize>,
    bins: Vec<usize>,
    /// For each bin, the items that it may hold.
    fitting: Vec<Vec<u32>>,
    pool: Vec<Pattern>,
    plan: Vec<Nodes>,
    work: u64,
    limit: u64,
    pains: Pains,
}

impl<'a> Group<'a> {
    fn new(instance: &'a Instance, prices: &'a Prices, hand: &Hand, stock: &Stock, left: &[u64], limit: u64) -> Self {
        let pains = Pains::new(instance.rows.len());
        let bins = candidates(instance, prices, hand, stock, pains.bins);
        let fits = |row: usize, bin: usize| instance.bins[bin].fits(&instance.rows[row], instance.dims);
        // Rows for which nothing is in stock have to stay.
        let rows: Vec<usize> =
            hand.rows.iter().copied().filter(|&row| bins.iter().any(|&bin| fits(row, bin))).collect();
        let values = rows.iter().map(|&row| prices.values[row]).collect();
        let left = rows.iter().map(|&row| left[row]).collect();
        let items = Items::new(instance, rows);
        Self {
            instance,
            prices,
            values,
            left,
            scope: hand.scope,
            fitting: bins.iter().map(|&bin| items.fitting(instance, bin)).collect(),
            items,
            bins,
            pool: Vec::new(),
            plan: Vec::new(),
            work: 0,
            limit,
            pains,
        }
    }

    fn run(&mut self, knapsack: &mut Knapsack, stock: &mut Stock) {
        self.seed_pool(knapsack, stock);
        for dive in 0..self.pains.dives {
            if self.left.iter().all(|&left| left == 0) || self.work >= self.limit {
                return;
            }
            let rounds = if dive == 0 { self.pains.rounds } else { self.pains.later_rounds };
            let solution = self.relax(knapsack, rounds);
            if !self.buy(solution, stock) {
                return;
            }
        }
    }

    fn cost(&self, bin: usize) -> f64 {
        self.prices.cost(self.instance, bin)
    }

    /// Starts with the patterns of a greedy plan.
    fn seed_pool(&mut self, knapsack: &mut Knapsack, stock: &Stock) {
        let hand = Hand { rows: self.items.rows.clone(), scope: self.scope };
        let counts = self.left.clone();
        let mut greedy = Greedy::with_counts(self.instance, self.prices, &hand, stock, counts, SEED_BINS);
        greedy.run(knapsack, &mut stock.clone(), 0.0);
        self.work += greedy.work;
        self.pool = greedy.patterns();
    }

    /// Builds a pattern for one of the bins.
    fn fill(&mut self, knapsack: &mut Knapsack, at: usize, values: &[f64]) -> (f64, Content) {
        self.work += 1;
        let mut content = Content::new();
        let bin = &self.instance.bins[self.bins[at]];
        let offered = self.fitting[at].iter().copied();
        let value =
            knapsack.fill(self.instance, &self.items, bin, offered, Order::Any, values, &self.left, &mut content);
        (value, content)
    }

    /// Column generation for what is left: patterns, cut to what is left, and how often to buy each.
    fn relax(&mut self, knapsack: &mut Knapsack, rounds: usize) -> Vec<(Pattern, f64)> {
        let places: Vec<usize> = (0..self.items.len()).filter(|&item| self.left[item] > 0).collect();
        let mut row_of = vec![usize::MAX; self.items.len()];
        for (row, &item) in places.iter().enumerate() {
            row_of[item] = row;
        }
        let mut patterns: Vec<Pattern> = places.iter().map(|&item| self.alone(item)).collect();
        let column = |group: &Self, pattern: &Pattern| Column {
            cost: group.cost(pattern.bin),
            entries: pattern.content.iter().map(|&(item, n)| (row_of[item], n as f64)).collect(),
        };
        let start = patterns.iter().map(|pattern| Some(column(self, pattern))).collect();
        let demand = places.iter().map(|&item| self.left[item] as f64).collect();
        let mut master = Master::new(demand, start);
        let solve = |group: &mut Self, master: &mut Master| {
            group.work += (master.solve(MAX_PIVOTS) / PIVOTS_AN_EVALUATION) as u64;
        };
        for pattern in std::mem::take(&mut self.pool) {
            let content: Content = pattern
                .content
                .iter()
                .map(|&(item, count)| (item, count.min(self.left[item])))
                .filter(|&(_, count)| count > 0)
                .collect();
            if content.len() > 1 {
                let pattern = Pattern { bin: pattern.bin, content };
                master.add(column(self, &pattern));
                patterns.push(pattern);
            }
        }
        let least: f64 = self.values.iter().zip(&self.left).map(|(value, &left)| value * left as f64).sum();
        let mut hot: Vec<(f64, usize)> = Vec::new();
        let mut centre = self.values.clone();
        let mut values = Vec::new();
        let mut thorough = false;
        for round in 0..rounds {
            solve(self, &mut master);
            let value = master.value();
            let before = values.len().checked_sub(self.pains.patience).map(|round: usize| values[round]);
            values.push(value);
            let stalled = before.is_some_and(|before: f64| value > before * (1.0 - self.pains.least_gain));
            if value <= least * CLOSE_ENOUGH || self.work >= self.limit || (stalled && thorough) {
                break;
            }
            if stalled {
                thorough = self.pains.search;
                values.clear();
                if !thorough {
                    break;
                }
            }
            let mut pure = vec![0.0; self.items.len()];
            let mut smooth = vec![0.0; self.items.len()];
            for (&item, &dual) in places.iter().zip(master.duals()) {
                pure[item] = dual.max(0.0);
                smooth[item] = SMOOTHING * centre[item] + (1.0 - SMOOTHING) * pure[item];
            }
            let full = hot.len() < HOT_BINS || round % 4 == 3;
            let mut added = Vec::new();
            if !thorough {
                added = self.generate(knapsack, &smooth, &pure, &mut hot, full);
                if added.is_empty() {
                    added = self.generate(knapsack, &pure, &pure, &mut hot, true);
                }
                thorough = added.is_empty() && self.pains.search;
            }
            if thorough {
                for draw in 0..NEARBY {
                    let nearby = disturbed(&smooth, round as u64 * NEARBY + draw);
                    added.extend(self.generate(knapsack, &nearby, &pure, &mut hot, true));
                }
                if added.is_empty() {
                    added = self.search(knapsack, &smooth, &pure);
                }
                if added.is_empty() {
                    added = self.search(knapsack, &pure, &pure);
                }
            }
            centre = smooth;
            if added.is_empty() {
                break;
            }
            for pattern in added {
                master.add(column(self, &pattern));
                patterns.push(pattern);
            }
        }
        solve(self, &mut master);
        let mut amounts = vec![0.0; patterns.len()];
        for (column, amount) in master.solution() {
            amounts[column] = amount;
        }
        // Patterns that are far from use would only slow the next programme down.
        let near = (0..patterns.len()).map(|column| master.worth(column) > self.cost(patterns[column].bin) * NEAR);
        let near: Vec<bool> = near.collect();
        let all = patterns.into_iter().zip(amounts).zip(near);
        all.filter(|&((_, amount), near)| near || amount > 0.0).map(|(pattern, _)| pattern).collect()
    }

    /// Fills the hot bins, or all, at the values; the patterns that at the duals earn more than their price, best first.
    fn generate(
        &mut self,
        knapsack: &mut Knapsack,
        values: &[f64],
        duals: &[f64],
        hot: &mut Vec<(f64, usize)>,
        full: bool,
    ) -> Vec<Pattern> {
        let places: Vec<usize> =
            if full { (0..self.bins.len()).collect() } else { hot.iter().map(|&(_, at)| at).collect() };
        let mut found: Vec<(f64, Pattern)> = Vec::new();
        let mut earned: Vec<(f64, usize)> = Vec::new();
        for at in places {
            let (value, content) = self.fill(knapsack, at, values);
            let bin = self.bins[at];
            earned.push((value / self.cost(bin), at));
            let worth: f64 = content.iter().map(|&(item, n)| duals[item] * n as f64).sum();
            let ratio = worth / self.cost(bin);
            if ratio > 1.0 + 1e-5 {
                found.push((ratio, Pattern { bin, content }));
            }
        }
        if full {
            earned.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            earned.truncate(HOT_BINS);
            *hot = earned;
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.bin.cmp(&b.1.bin)));
        found.truncate(COLUMNS_A_ROUND);
        found.into_iter().map(|(_, pattern)| pattern).collect()
    }

    /// Searches all bins for the best pattern at the values; those that at the duals earn more than their price.
    fn search(&mut self, knapsack: &mut Knapsack, values: &[f64], duals: &[f64]) -> Vec<Pattern> {
        let instance = self.instance;
        let mut found: Vec<(f64, Pattern)> = Vec::new();
        for &bin in &self.bins {
            let offered = &instance.bins[bin];
            let most = |item: usize| {
                let row = &instance.rows[self.items.rows[item]];
                if offered.fits(row, instance.dims) { self.left[item].min(row.cap) } else { 0 }
            };
            knapsack.vertex(&self.items, values, &scaled_capacity(instance, bin), |item| most(item) as f64);
            let mut search = Search::new(instance.dims, offered, &knapsack.prices, &instance.unit);
            for item in (0..self.items.len()).filter(|&item| values[item] > 0.0 && most(item) > 0) {
                let row = &instance.rows[self.items.rows[item]];
                search.offer(item, row, values[item], most(item), &knapsack.prices, &instance.unit);
            }
            let mut steps = SEARCH_STEPS;
            let given = steps;
            search.run(0.0, &mut steps);
            self.work += 1 + (given - steps) / STEPS_AN_EVALUATION;
            let worth: f64 = search.content.iter().map(|&(item, n)| duals[item] * n as f64).sum();
            let ratio = worth / self.cost(bin);
            if ratio > 1.0 + 1e-5 {
                found.push((ratio, Pattern { bin, content: search.content }));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.bin.cmp(&b.1.bin)));
        found.truncate(COLUMNS_A_ROUND);
        found.into_iter().map(|(_, pattern)| pattern).collect()
    }

    /// The best node that holds pods of a single row.
    fn alone(&self, item: usize) -> Pattern {
        let row = &self.instance.rows[self.items.rows[item]];
        let mut best: Option<(f64, usize, u64)> = None;
        for &bin in &self.bins {
            let offered = &self.instance.bins[bin];
            if !offered.fits(row, self.instance.dims) {
                continue;
            }
            let count = (0..self.instance.dims)
                .filter(|&dim| row.request[dim] > 0)
                .map(|dim| (offered.capacity[dim] / row.request[dim]) as u64)
                .fold(self.left[item].min(row.cap), u64::min);
            let each = self.cost(bin) / count as f64;
            if best.is_none_or(|(known, _, _)| each < known) {
                best = Some((each, bin, count));
            }
        }
        let (_, bin, count) = best.expect("candidates hold every row of the group");
        Pattern { bin, content: vec![(item, count)] }
    }

    /// Buys whole multiples of patterns; if there are none, patterns with a large fraction. Returns whether it bought
    /// any. All patterns return to the pool.
    fn buy(&mut self, solution: Vec<(Pattern, f64)>, stock: &mut Stock) -> bool {
        let mut order: Vec<usize> = (0..solution.len()).filter(|&at| solution[at].1 > 1e-6).collect();
        order.sort_by(|&a, &b| solution[b].1.total_cmp(&solution[a].1).then(a.cmp(&b)));
        let mut any = false;
        for &at in &order {
            let (pattern, amount) = &solution[at];
            any |= self.buy_cut(pattern, (amount + 1e-6).floor() as u64, stock);
        }
        let round_up_from = if any || !self.pains.search { self.pains.round_up_from } else { 0.0 };
        for &at in &order {
            let (pattern, amount) = &solution[at];
            let fraction = amount - (amount + 1e-6).floor();
            let fits = pattern.content.iter().all(|&(item, count)| self.left[item] >= count);
            if fraction >= round_up_from && fits {
                any |= self.buy_cut(pattern, 1, stock);
            }
        }
        self.pool = solution.into_iter().map(|(pattern, _)| pattern).collect();
        any
    }

    /// Buys nodes of a pattern. A row that is used up is left out of the remaining nodes: buying fewer nodes instead
    /// would leave the pods of all other rows unplaced.
    fn buy_cut(&mut self, pattern: &Pattern, times: u64, stock: &mut Stock) -> bool {
        let mut wanted = times.min(stock.left(pattern.bin));
        let mut content = pattern.content.clone();
        let mut any = false;
        while wanted > 0 {
            for (item, count) in &mut content {
                *count = (*count).min(self.left[*item]);
            }
            content.retain(|&(_, count)| count > 0);
            let fits = content.iter().map(|&(item, count)| self.left[item] / count).min();
            let Some(fits) = fits else { break };
            let nodes = fits.min(wanted);
            for &(item, count) in &content {
                self.left[item] -= count * nodes;
            }
            let rows = content.iter().map(|&(item, count)| (self.items.rows[item], count));
            self.plan.push(Nodes { bin: pattern.bin, content: rows.collect(), times: nodes });
            stock.take(pattern.bin, nodes);
            wanted -= nodes;
            any = true;
        }
        any
    }
}

/// The values, each raised or lowered a little by chance.
fn disturbed(values: &[f64], draw: u64) -> Vec<f64> {
    let chance = |item: usize| (mix(mix(draw) ^ item as u64) >> 11) as f64 / (1_u64 << 53) as f64;
    values.iter().enumerate().map(|(item, value)| value * (1.0 + NOISE * (2.0 * chance(item) - 1.0))).collect()
}
