//! Improves the prices of resources, row by row.
//!
//! The programme over clusters does not see how rows differ within a cluster. With prices `λ` that
//! use up a node's price (`λ·capacity = price`), the rows are worth `Σ nᵢ·min_b λ_b·wᵢ` in all, a
//! concave function. At its top the rows for which a bin is the cheapest ask for resources in the
//! ratio in which the bin offers them. So prices of what is asked for more are raised, those of the
//! others lowered, a little at a time.

use super::instance::{Dims, Instance, MAX_DIMS};
use super::prices::{Cluster, scaled_capacity};

/// A row counts for every bin that is this close to its cheapest: without it rows that cost the
/// same in two bins would jump between them.
const CLOSE: f64 = 0.01;

/// Prices of the dimensions of one bin.
#[derive(Clone)]
pub(super) struct BinPrices {
    pub(super) bin: usize,
    pub(super) prices: Dims<f64>,
}

/// Raises the total value of the rows.
pub(super) fn ascend(instance: &Instance, rows: &[Cluster], start: &mut [BinPrices], steps: usize) {
    match instance.dims {
        1 => ascend_in::<1>(instance, rows, start, steps),
        2 => ascend_in::<2>(instance, rows, start, steps),
        3 => ascend_in::<3>(instance, rows, start, steps),
        4 => ascend_in::<4>(instance, rows, start, steps),
        5 => ascend_in::<5>(instance, rows, start, steps),
        // Dimensions beyond the count are zero.
        _ => ascend_in::<MAX_DIMS>(instance, rows, start, steps),
    }
}

fn ascend_in<const D: usize>(instance: &Instance, rows: &[Cluster], start: &mut [BinPrices], steps: usize) {
    let first = |amounts: &Dims<f64>| -> [f64; D] { std::array::from_fn(|dim| amounts[dim]) };
    let capacity: Vec<Dims<f64>> = start.iter().map(|one| scaled_capacity(instance, one.bin)).collect();
    // For each row, the bins that it fits.
    let fits: Vec<Vec<usize>> = rows
        .iter()
        .map(|row| {
            let holds = |&index: &usize| {
                instance.bins[start[index].bin].classes.contains(row.class) && row.fits(instance, &capacity[index])
            };
            (0..start.len()).filter(holds).collect()
        })
        .collect();
    let mut best: Option<(f64, Vec<BinPrices>)> = None;
    let mut costs = vec![0.0; start.len()];
    for step in 0..=steps {
        let prices: Vec<[f64; D]> = start.iter().map(|one| first(&one.prices)).collect();
        let mut asked = vec![[0.0; MAX_DIMS]; start.len()];
        let mut total = 0.0;
        for (row, fits) in rows.iter().zip(&fits) {
            let mean = first(&row.mean);
            let mut least = f64::INFINITY;
            for (cost, &index) in costs.iter_mut().zip(fits) {
                *cost = 0.0;
                for dim in 0..D {
                    *cost += prices[index][dim] * mean[dim];
                }
                if *cost < least {
                    least = *cost;
                }
            }
            if least.is_infinite() {
                continue;
            }
            total += row.count * least;
            let limit = least * (1.0 + CLOSE) + 1e-300;
            let share = |cost: f64| ((limit - cost) / (limit - least)).max(0.0);
            let sum: f64 = costs[..fits.len()].iter().map(|&cost| share(cost)).sum();
            for (&cost, &index) in costs.iter().zip(fits) {
                if cost < limit {
                    let part = row.count * share(cost) / sum;
                    for dim in 0..D {
                        asked[index][dim] += part * mean[dim];
                    }
                }
            }
        }
        if best.as_ref().is_none_or(|(known, _)| total > *known) {
            best = Some((total, start.to_vec()));
        }
        let pace = 0.5 / (1.0 + step as f64 / 6.0);
        for ((one, asked), capacity) in start.iter_mut().zip(&asked).zip(&capacity) {
            shift(instance, one, asked, capacity, pace);
        }
    }
    if let Some((_, best)) = best {
        start.clone_from_slice(&best);
    }
}

/// Moves the prices towards the ratio of what is asked to what is offered; their sum over the
/// capacity stays.
fn shift(instance: &Instance, one: &mut BinPrices, asked: &Dims<f64>, capacity: &Dims<f64>, pace: f64) {
    let dims = instance.dims;
    let budget: f64 = (0..dims).map(|dim| one.prices[dim] * capacity[dim]).sum();
    let paid: f64 = (0..dims).map(|dim| one.prices[dim] * asked[dim]).sum();
    if paid <= 0.0 || budget <= 0.0 {
        return;
    }
    let mut next = [0.0; MAX_DIMS];
    for dim in 0..dims {
        if capacity[dim] > 0.0 {
            let ratio = asked[dim] / capacity[dim] * budget / paid;
            // A price of zero could never rise.
            let floor = budget / capacity[dim] * 1e-4;
            next[dim] = one.prices[dim].max(floor) * ratio.clamp(0.05, 20.0).powf(pace);
        }
    }
    let sum: f64 = (0..dims).map(|dim| next[dim] * capacity[dim]).sum();
    one.prices = next.map(|price| price * budget / sum);
}
