//! The value of a node's pods at market prices. Nodes whose price is far above this value are tried first.
//!
//! Resources get prices such that no offer is cheaper than the resources that it holds, and that all pods together are
//! worth as much as possible under that condition. Cores and memory are priced together, on a grid of their ratio;
//! every other resource gets the surcharge of the cheapest offer that has it. The prices only order nodes; no purchase
//! depends on them.

use crate::market::Market;
use crate::model::{CPU, MEMORY, PODS, ResourceId, Resources, STORAGE, Snapshot};
use crate::pack::BitSet;

/// The price of a MiB divided by that of a millicore: from 2⁻⁸ to 2⁴, in steps of half an octave.
const RATIO_STEPS: std::ops::RangeInclusive<i32> = -16..=8;
const MIB: f64 = 1_048_576.0;

/// Prices of resources, in nano-dollars per hour and unit.
#[derive(Debug, Clone, Default)]
pub(super) struct Prices {
    by_resource: Vec<f64>,
}

impl Prices {
    /// Prices under which `demand` is worth most.
    pub(super) fn new(snapshot: &Snapshot, market: &Market, on_sale: &BitSet, demand: &Resources) -> Self {
        let mut prices = Self { by_resource: vec![0.0; snapshot.resources.len()] };
        let offers = || on_sale.iter().map(|offer| market.offer(offer));
        let wanted = (demand.get(CPU) as f64, demand.get(MEMORY) as f64 / MIB);
        let mut best = 0.0;
        for step in RATIO_STEPS {
            let ratio = 2_f64.powf(f64::from(step) / 2.0);
            let size = |free: &Resources| free.get(CPU).max(0) as f64 + ratio * free.get(MEMORY).max(0) as f64 / MIB;
            let sized = offers().map(|offer| (offer.price as f64, size(&offer.free)));
            let unit = sized.filter(|(_, size)| *size > 0.0).map(|(price, size)| price / size).fold(f64::MAX, f64::min);
            let worth = unit * (wanted.0 + ratio * wanted.1);
            if unit < f64::MAX && worth > best {
                best = worth;
                prices.by_resource[CPU.index()] = unit;
                prices.by_resource[MEMORY.index()] = unit * ratio / MIB;
            }
        }
        if best == 0.0 {
            // Without offers, only the ratio matters: a core is worth eight GiB.
            prices.by_resource[CPU.index()] = 1.0;
            prices.by_resource[MEMORY.index()] = 0.125 / MIB;
        }
        for (resource, _) in demand.iter().filter(|(id, _)| ![CPU, MEMORY, PODS, STORAGE].contains(id)) {
            let on_top = |free: &Resources, price: u64| (price as f64 - prices.worth(free)).max(0.0);
            let each = offers().filter(|offer| offer.free.get(resource) > 0);
            let least = each.map(|offer| on_top(&offer.free, offer.price) / offer.free.get(resource) as f64);
            let least = least.fold(f64::MAX, f64::min);
            prices.by_resource[resource.index()] = if least < f64::MAX { least } else { 0.0 };
        }
        prices
    }

    fn price(&self, resource: ResourceId) -> f64 {
        self.by_resource.get(resource.index()).copied().unwrap_or(0.0)
    }

    fn worth(&self, resources: &Resources) -> f64 {
        resources.iter().map(|(resource, amount)| self.price(resource) * amount.max(0) as f64).sum()
    }

    /// The value of resources in whole nano-dollars per hour.
    pub(super) fn value(&self, resources: &Resources) -> u64 {
        self.worth(resources) as u64
    }
}
