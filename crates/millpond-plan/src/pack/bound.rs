//! Turns floating-point prices into an integer certificate.

use super::certificate::{Certificate, NodePrices, NodeProof, Proof, verify};
use super::instance::Instance;
use super::model::{Bound, Problem};
use super::prices::Prices;

/// Prices times scale stay below this, so that sums of a few of them fit 64 bits.
const MAX_SCALED: u64 = 1 << 61;
/// Rounding is mended by shrinking everything; more rounds than this mean that the prices are
/// beyond repair, and the bound is zero.
const MAX_SHRINKS: usize = 6;

/// The bound on the cost of the given pods, with a certificate that holds.
pub(super) fn certify(problem: &Problem, instance: &Instance, prices: &Prices, counts: Vec<u64>) -> Bound {
    let dearest = instance.bins.iter().map(|bin| bin.price).max().unwrap_or(1).max(1);
    let mut scale: u64 = 1;
    while scale < 1 << 40 && dearest < MAX_SCALED / (scale * 2) {
        scale *= 2;
    }
    let mut shrink = 1.0 - 1e-12;
    for _ in 0..MAX_SHRINKS {
        let certificate = round(problem, instance, prices, &counts, scale, shrink);
        if let Ok(value) = verify(problem, &certificate) {
            return Bound { value, certificate };
        }
        shrink = 1.0 - (1.0 - shrink) * 300.0;
    }
    let proof = Proof::Prices {
        scale: 1,
        values: vec![0; problem.rows.len()],
        prices: Vec::new(),
        bins: vec![NodeProof::Nothing; problem.bins.len()],
    };
    Bound { value: 0, certificate: Certificate { counts, proof } }
}

fn round(
    problem: &Problem,
    instance: &Instance,
    prices: &Prices,
    counts: &[u64],
    scale: u64,
    shrink: f64,
) -> Certificate {
    let money = scale as f64 / instance.money * shrink;
    let vectors: Vec<NodePrices> = prices.vectors.iter().map(|vector| node_prices(instance, vector, money)).collect();
    let mut bins = proofs(problem, instance, prices);
    let free: Vec<usize> = (0..instance.bins.len())
        .filter(|&bin| instance.bins[bin].price == 0 && instance.bins[bin].stock == u64::MAX)
        .collect();
    let mut vectors = vectors;
    if !free.is_empty() {
        for bin in &mut bins {
            let free = free.iter().any(|&free| *bin == NodeProof::Prices(prices.of_bin[free] as u32));
            if free {
                *bin = NodeProof::Prices(vectors.len() as u32);
            }
        }
        vectors.push(NodePrices::default());
    }
    let mut values: Vec<Option<u64>> = vec![None; problem.rows.len()];
    for (index, row) in instance.rows.iter().enumerate() {
        if free.iter().any(|&bin| instance.bins[bin].fits(row, instance.dims)) {
            values[row.origin] = Some(0);
            continue;
        }
        let value = prices.values[index] * money * shrink;
        let value = snap(instance, &vectors, index, value as u64);
        // Parts of one row are worth what the least of them is.
        let known = &mut values[row.origin];
        *known = Some(known.map_or(value, |known| known.min(value)));
    }
    let values = values.into_iter().map(Option::unwrap_or_default).collect();
    let proof = Proof::Prices { scale, values, prices: vectors, bins };
    Certificate { counts: counts.to_vec(), proof }
}

/// For each bin of the problem, the proof of what its nodes are worth at most.
fn proofs(problem: &Problem, instance: &Instance, prices: &Prices) -> Vec<NodeProof> {
    let mut bins = vec![NodeProof::Nothing; problem.bins.len()];
    let mut searched: Option<usize> = None;
    for (bin, offered) in instance.bins.iter().enumerate() {
        let index = prices.of_bin[bin] as u32;
        if !prices.whole[bin] {
            bins[offered.origin] = NodeProof::Prices(index);
            continue;
        }
        // Of bins that differ only in which rows may use them, one proof often covers all.
        let like = searched.filter(|&known| {
            let known = &instance.bins[known];
            known.capacity == offered.capacity
                && known.price == offered.price
                && known.classes.is_superset(&offered.classes)
                && problem.bins[known.origin].max_nodes.is_none()
        });
        bins[offered.origin] = match like {
            Some(known) => NodeProof::Within(instance.bins[known].origin as u32),
            None => NodeProof::Search(index),
        };
        searched = like.or(Some(bin));
    }
    for &(dropped, replacement) in &instance.replaced {
        bins[dropped] = match bins[replacement] {
            NodeProof::Search(_) if problem.bins[replacement].max_nodes.is_none() => {
                NodeProof::Within(replacement as u32)
            }
            other => other,
        };
    }
    bins
}

fn node_prices(instance: &Instance, vector: &[f64], money: f64) -> NodePrices {
    let mut prices = NodePrices::default();
    let whole = |dim: usize| (vector[dim] * instance.unit[dim] * money).min(1e18) as u64;
    for dim in 0..instance.resources {
        prices.resources[dim] = whole(dim);
    }
    prices.groups = (instance.resources..instance.dims)
        .map(|dim| (instance.dense_groups[dim - instance.resources], whole(dim)))
        .filter(|&(_, price)| price > 0)
        .collect();
    prices.groups.sort_unstable();
    prices
}

/// Rounding down the prices can leave a row worth a little more than its request costs, which counts
/// once for every pod that a node could hold. Takes such a little off.
fn snap(instance: &Instance, vectors: &[NodePrices], row: usize, value: u64) -> u64 {
    let mut value = value;
    let request = &instance.rows[row].request;
    for prices in vectors {
        let mut paid: i128 = 0;
        for dim in 0..instance.resources {
            paid += i128::from(prices.resources[dim]) * i128::from(request[dim]);
        }
        for &(group, price) in &prices.groups {
            let place = instance.dense_groups.iter().position(|&known| known == group);
            if place.is_some_and(|place| request[instance.resources + place] > 0) {
                paid += i128::from(price);
            }
        }
        let over = i128::from(value) - paid;
        if over > 0 && over < i128::from(value / 10_000) {
            value = paid as u64;
        }
    }
    value
}
