//! Fills free capacity first: nodes that cost nothing and have a limited stock, usually the existing ones.
//!
//! Whatever is put there need not be bought. There can be thousands of such nodes, each with another
//! amount of room, so each is filled once, larger ones first, from one group of rows; a heap of the
//! best patterns as for nodes that are bought would look at each of them many times.

use super::greedy::subtract;
use super::instance::Instance;
use super::knapsack::{Content, Items, Knapsack, Order};
use super::plan::{Nodes, Stock};
use super::prices::{Prices, scaled_capacity};

/// Limit on the rows of a group.
const GROUP_ROWS: usize = 100;
/// The bonus of a full node, as a share of its largest worth. If a resource has no price, all mixes of pods look equal;
/// but free capacity that stays unused must be bought elsewhere.
const FULLNESS: f64 = 0.1;

/// Fills free nodes with the pods in `left`.
pub(super) fn fill(instance: &Instance, prices: &Prices, left: &mut [u64], stock: &mut Stock) -> (Vec<Nodes>, u64) {
    let free: Vec<usize> = (0..instance.bins.len()).filter(|&bin| instance.is_free_stock(bin)).collect();
    let (mut plan, mut work) = (Vec::new(), 0);
    if free.is_empty() {
        return (plan, work);
    }
    let rows: Vec<usize> = prices.strata.iter().copied().filter(|&row| left[row] > 0).collect();
    let mut groups: Vec<Group> = prices
        .scopes
        .deal(&rows, GROUP_ROWS)
        .into_iter()
        .map(|hand| Group::new(instance, prices, hand.rows, left))
        .collect();
    let mut knapsack = Knapsack::default();
    let mut turn = 0;
    for bin in free {
        let mut passed = 0;
        while stock.left(bin) > 0 && passed < groups.len() {
            let at = turn % groups.len();
            let group = &mut groups[at];
            turn += 1;
            if !group.suits(instance, bin) {
                passed += 1;
                continue;
            }
            work += 1;
            match group.fill(instance, &mut knapsack, bin, stock) {
                Some(nodes) => {
                    passed = 0;
                    plan.push(nodes);
                }
                None => passed += 1,
            }
        }
    }
    subtract(left, &plan);
    (plan, work)
}

struct Group {
    items: Items,
    values: Vec<f64>,
    /// Values on the node that is currently filled.
    here: Vec<f64>,
    left: Vec<u64>,
    content: Content,
}

impl Group {
    fn new(instance: &Instance, prices: &Prices, rows: Vec<usize>, left: &[u64]) -> Self {
        Self {
            values: rows.iter().map(|&row| prices.packing_free[row]).collect(),
            here: Vec::new(),
            left: rows.iter().map(|&row| left[row]).collect(),
            items: Items::new(instance, rows),
            content: Content::new(),
        }
    }

    /// Whether the bin can hold any of the pods that are left.
    fn suits(&self, instance: &Instance, bin: usize) -> bool {
        let rows = self.items.rows.iter().zip(&self.left).filter(|(_, left)| **left > 0);
        rows.into_iter().any(|(&row, _)| instance.bins[bin].fits(&instance.rows[row], instance.dims))
    }

    /// Fills as many nodes of the bin as its stock and one pattern allow.
    fn fill(&mut self, instance: &Instance, knapsack: &mut Knapsack, bin: usize, stock: &mut Stock) -> Option<Nodes> {
        let offered = &instance.bins[bin];
        self.value_fullness(instance, bin);
        let holds = self.items.fitting(instance, bin).into_iter();
        knapsack.fill(instance, &self.items, offered, holds, Order::Any, &self.here, &self.left, &mut self.content);
        let often = self.content.iter().map(|&(item, count)| self.left[item] / count).min()?;
        let times = often.min(stock.left(bin));
        for &(item, count) in &self.content {
            self.left[item] -= count * times;
        }
        stock.take(bin, times);
        let content = self.content.iter().map(|&(item, count)| (self.items.rows[item], count)).collect();
        Some(Nodes { bin, content, times })
    }

    /// Adds to the values what the pods use of the node.
    fn value_fullness(&mut self, instance: &Instance, bin: usize) {
        let capacity = scaled_capacity(instance, bin);
        let (items, dims) = (&self.items, instance.dims);
        let share = |item: usize, dim: usize| {
            let amount = capacity[dim];
            if amount > 0.0 { items.weight(dim, item) / amount } else { 0.0 }
        };
        let mut most: f64 = 0.0;
        for (item, &value) in self.values.iter().enumerate() {
            let largest = (0..dims).map(|dim| share(item, dim)).fold(0.0, f64::max);
            if largest > 0.0 && largest <= 1.0 {
                most = most.max(value / largest);
            }
        }
        let each = FULLNESS * most / dims.max(1) as f64;
        let full = |item: usize| each * (0..dims).map(|dim| share(item, dim)).sum::<f64>();
        self.here = self.values.iter().enumerate().map(|(item, value)| value + full(item)).collect();
    }
}
