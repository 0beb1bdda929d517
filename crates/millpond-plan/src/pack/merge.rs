//! Merges two nodes into one, where that costs no more.
//!
//! Rounding leaves nodes that are not quite full, and nodes without a pod of an exclusive group beside
//! nodes that have one. The pods of two nodes often fit a larger one at the same price or less: every
//! node pays for its own overhead.

use super::instance::{Dims, Instance, within};
use super::plan::{Nodes, Stock, merge, usage};
use super::prices::Prices;

/// Kinds of nodes that are tried against each other, the worst first: all pairs are looked at.
const MAX_KINDS: usize = 300;
/// Passes over the pairs; each starts with what the last one merged.
const MAX_PASSES: usize = 4;

/// Merges nodes of a plan pairwise while that is free or saves money.
pub(super) fn pairs(
    instance: &Instance,
    prices: &Prices,
    by_price: &[usize],
    stock: &mut Stock,
    plan: Vec<Nodes>,
) -> Vec<Nodes> {
    let mut plan = merge(plan);
    for _ in 0..MAX_PASSES {
        let earned = |nodes: &Nodes| {
            let value: f64 = nodes.content.iter().map(|&(row, n)| prices.packing[row] * n as f64).sum();
            (value / instance.price(nodes.bin) * 1e9) as u64
        };
        plan.sort_by_cached_key(|nodes| (earned(nodes), nodes.clone()));
        let before = plan.len();
        let kinds = before.min(MAX_KINDS);
        let used: Vec<Dims<i64>> = plan[..kinds].iter().map(|nodes| usage(instance, &nodes.content)).collect();
        for one in 0..kinds {
            for other in one..kinds {
                let both = [(&plan[one], &used[one]), (&plan[other], &used[other])];
                let Some((bin, content)) = together(instance, by_price, stock, both) else { continue };
                let times = if one == other { plan[one].times / 2 } else { plan[one].times.min(plan[other].times) };
                let times = times.min(stock.left(bin));
                if times == 0 {
                    continue;
                }
                for place in [one, other] {
                    plan[place].times -= times;
                    stock.give_back(plan[place].bin, times);
                }
                stock.take(bin, times);
                plan.push(Nodes { bin, content, times });
            }
        }
        let merged = plan.len() > before;
        plan = merge(plan);
        if !merged {
            break;
        }
    }
    plan
}

/// The bin and the content of two nodes in one, if there is a bin for it at no higher price.
fn together(
    instance: &Instance,
    by_price: &[usize],
    stock: &Stock,
    [(one, used), (other, more)]: [(&Nodes, &Dims<i64>); 2],
) -> Option<(usize, Vec<(usize, u64)>)> {
    // Free stock costs nothing and exists anyway.
    let free = instance.is_free_stock(one.bin) || instance.is_free_stock(other.bin);
    if one.times == 0 || other.times == 0 || free {
        return None;
    }
    let price = |bin: usize| instance.bins[bin].price;
    let most = price(one.bin).checked_add(price(other.bin))?;
    let least = price(one.bin).max(price(other.bin));
    let mut used = *used;
    for (sum, more) in used.iter_mut().zip(more) {
        *sum = sum.checked_add(*more)?;
    }
    let from = by_price.partition_point(|&bin| price(bin) < least);
    let bin = by_price[from..].iter().copied().take_while(|&bin| price(bin) <= most).find(|&bin| {
        let offered = &instance.bins[bin];
        let rows = one.content.iter().chain(&other.content);
        within(&used, &offered.capacity, instance.dims)
            && stock.left(bin) > 0
            && rows.clone().all(|&(row, _)| offered.classes.contains(instance.rows[row].class))
    })?;
    Some((bin, joined(instance, &one.content, &other.content)?))
}

/// Both contents; `None` if a cap or an exclusive group forbids it.
fn joined(instance: &Instance, one: &[(usize, u64)], other: &[(usize, u64)]) -> Option<Vec<(usize, u64)>> {
    let mut content = one.to_vec();
    for &(row, count) in other {
        match content.iter_mut().find(|known| known.0 == row) {
            Some(known) => known.1 = known.1.checked_add(count)?,
            None => content.push((row, count)),
        }
    }
    content.sort_unstable();
    let mut groups = Vec::new();
    for &(row, count) in &content {
        let row = &instance.rows[row];
        if count > row.cap || row.groups.iter().any(|group| groups.contains(group)) {
            return None;
        }
        groups.extend(&row.groups);
    }
    Some(content)
}
