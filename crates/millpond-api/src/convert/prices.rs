//! Prices of machines: from the catalogue, from an overlay, and only where neither has one, from a formula that is
//! reported.

use std::sync::Arc;

use super::fleet::{Machine, Offer};
use crate::catalog::overlay::{self, Overlay};
use crate::catalog::{self, CapacityType, Catalog, InstanceType, Offering, Provider, synthetic};

/// Where prices come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prices<'a> {
    pub(super) catalog: &'a Catalog,
    /// For types that the catalogue does not have; those that it has were changed by them already.
    pub(super) overlays: &'a [Overlay],
}

impl Prices<'_> {
    /// On-demand offers of a machine in zones.
    pub(super) fn on_demand(self, machine: &Machine, zones: &[String]) -> Vec<Offer> {
        let listed = zones.iter().map(|zone| self.listed(&machine.instance_type, zone, CapacityType::OnDemand));
        let prices: Option<Vec<u64>> = listed.collect();
        let (prices, estimated) = prices.map_or_else(|| self.estimated(machine, zones), |prices| (prices, false));
        let offer = |(zone, price): (&String, u64)| Offer {
            zone: zone.clone(),
            capacity_type: CapacityType::OnDemand,
            price,
            estimated,
        };
        zones.iter().zip(prices).map(offer).collect()
    }

    /// The price of a type in a zone, or in any zone where the catalogue does not know this one.
    pub(super) fn listed(self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> Option<u64> {
        let of = self.catalog.find(instance_type)?;
        let fits = |offering: &Offering| offering.capacity_type == capacity_type;
        let here = of.cheapest(|offering| fits(offering) && &*offering.zone == zone);
        here.or_else(|| of.cheapest(fits)).map(|offering| offering.price_nanos_hour)
    }

    /// Prices that no list has: those of an overlay, else those of a formula.
    pub(super) fn estimated(self, machine: &Machine, zones: &[String]) -> (Vec<u64>, bool) {
        let amount = |name| u64::try_from(machine.capacity.get(name).unwrap_or(0)).unwrap_or(0);
        let (cpu_milli, memory_bytes) = (amount("cpu"), amount("memory"));
        let price = synthetic::kwok_price(cpu_milli, memory_bytes);
        let offering = |zone: &String| Offering {
            zone: Arc::from(zone.as_str()),
            capacity_type: CapacityType::OnDemand,
            price_nanos_hour: price,
            estimated: true,
            available: true,
            reservation_count: None,
        };
        let of = InstanceType {
            name: machine.instance_type.clone(),
            arch: machine.arch.clone(),
            operating_systems: vec![machine.os.clone()],
            cpu_milli,
            memory_bytes,
            storage_bytes: 0,
            pods: 0,
            naming: catalog::naming::Naming::default(),
            previous_generation: false,
            gpu: None,
            local_nvme_gb: None,
            network_mbps: None,
            extended: Default::default(),
            labels: machine.labels.clone(),
            overhead: Default::default(),
            offerings: zones.iter().map(offering).collect(),
        };
        let mut alone = Catalog {
            name: String::new(),
            provider: Provider::Generic,
            region: self.catalog.region.clone(),
            zones: Vec::new(),
            spot_per_mille: None,
            source: String::new(),
            types: vec![of],
        };
        overlay::apply(&mut alone, self.overlays);
        let offerings = &alone.types[0].offerings;
        let estimated = offerings.iter().any(|offering| offering.estimated);
        (offerings.iter().map(|offering| offering.price_nanos_hour).collect(), estimated)
    }
}
