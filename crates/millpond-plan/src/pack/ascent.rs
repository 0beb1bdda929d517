//! Better prices of resources, row by row.
//!
//! The programme over clusters does not see how rows differ within a cluster. With prices `λ` that
//! use up a node's price (`λ·capacity = price`), the rows are worth `Σ nᵢ·min_b λ_b·wᵢ` in all, a
//! concave function. At its top the rows for which a bin is the cheapest ask for resources in the
//! ratio in which the bin offers them. So prices of what is asked for more are raised, those of the
//! others lowered, a little at a time.

use super::instance::{Dims, Instance, MAX_DIMS};
use super::knapsack::Items;

/// A row counts for every bin that is this close to its cheapest: without it rows that cost the
/// same in two bins would jump between them.
const CLOSE: f64 = 0.01;

/// Prices of the dimensions of one bin.
#[derive(Clone)]
pub(super) struct BinPrices {
    pub(super) bin: usize,
    pub(super) prices: Dims<f64>,
}

/// Raises what the rows are worth in all; `fixed` rows take no part.
pub(super) fn ascend(
    instance: &Instance,
    all: &Items,
    start: &mut [BinPrices],
    fixed: impl Fn(usize) -> bool,
    steps: usize,
) {
    let dims = instance.dims;
    let rows: Vec<usize> = (0..instance.rows.len()).filter(|&row| !fixed(row)).collect();
    let fits: Vec<Vec<bool>> = start
        .iter()
        .map(|one| {
            let bin = &instance.bins[one.bin];
            rows.iter().map(|&row| bin.fits(&instance.rows[row], dims)).collect()
        })
        .collect();
    let mut best: Option<(f64, Vec<BinPrices>)> = None;
    let mut costs = vec![0.0; start.len()];
    for step in 0..=steps {
        let mut asked = vec![[0.0; MAX_DIMS]; start.len()];
        let mut total = 0.0;
        for (place, &row) in rows.iter().enumerate() {
            let mut least = f64::INFINITY;
            for (index, one) in start.iter().enumerate() {
                costs[index] = if fits[index][place] { all.cost_at(&one.prices, row) } else { f64::INFINITY };
                least = least.min(costs[index]);
            }
            if least.is_infinite() {
                continue;
            }
            let count = instance.rows[row].count as f64;
            total += count * least;
            let limit = least * (1.0 + CLOSE) + 1e-300;
            let share = |cost: f64| ((limit - cost) / (limit - least)).max(0.0);
            let sum: f64 = costs.iter().map(|&cost| share(cost)).sum();
            for (index, &cost) in costs.iter().enumerate() {
                if cost < limit {
                    let part = count * share(cost) / sum;
                    for dim in 0..dims {
                        asked[index][dim] += part * all.weight(dim, row);
                    }
                }
            }
        }
        if best.as_ref().is_none_or(|(known, _)| total > *known) {
            best = Some((total, start.to_vec()));
        }
        let pace = 0.5 / (1.0 + step as f64 / 6.0);
        for (one, asked) in start.iter_mut().zip(&asked) {
            shift(instance, one, asked, pace);
        }
    }
    if let Some((_, best)) = best {
        start.clone_from_slice(&best);
    }
}

/// Moves the prices towards the ratio of what is asked to what is offered; their sum over the
/// capacity stays.
fn shift(instance: &Instance, one: &mut BinPrices, asked: &Dims<f64>, pace: f64) {
    let dims = instance.dims;
    let capacity = super::prices::scaled_capacity(instance, one.bin);
    let budget: f64 = (0..dims).map(|dim| one.prices[dim] * capacity[dim]).sum();
    let paid: f64 = (0..dims).map(|dim| one.prices[dim] * asked[dim]).sum();
    if paid <= 0.0 || budget <= 0.0 {
        return;
    }
    let mut next = [0.0; MAX_DIMS];
    for dim in 0..dims {
        if capacity[dim] > 0.0 {
            let ratio = asked[dim] / capacity[dim] * budget / paid;
            // A price of zero could never rise again.
            let floor = budget / capacity[dim] * 1e-4;
            next[dim] = one.prices[dim].max(floor) * ratio.clamp(0.05, 20.0).powf(pace);
        }
    }
    let sum: f64 = (0..dims).map(|dim| next[dim] * capacity[dim]).sum();
    one.prices = next.map(|price| price * budget / sum);
}
