//! Catalogues from formulas: the 144 types of Karpenter's KWOK provider and the
//! types of Karpenter's scheduling benchmark.

use std::sync::Arc;

use super::import::build::{Basics, instance_type};
use super::overhead::GIB;
use super::text::{SpotPrice, grid};
use super::{CapacityType, Catalog, Offering, Provider};

/// Cores of the KWOK types.
const KWOK_CORES: [u64; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];

/// Families of the KWOK types by GiB of memory per core.
const KWOK_FAMILIES: [(&str, u64); 3] = [("c", 2), ("s", 4), ("m", 8)];

/// Types of the scheduling benchmark unless another number is asked for.
pub const FAKE_TYPES: u32 = 400;

/// The types that Karpenter's KWOK provider generates: cores × memory per core ×
/// operating system × architecture, each spot and on-demand in four zones.
///
/// On-demand is $0.025 a core and $0.001 for 10⁹ bytes of memory; spot is 0.7 of it.
pub fn kwok() -> Catalog {
    let zones = ["a", "b", "c", "d"].map(|letter| Arc::from(format!("test-zone-{letter}")));
    let mut types = Vec::with_capacity(144);
    for cores in KWOK_CORES {
        for (family, ratio) in KWOK_FAMILIES {
            for system in ["linux", "windows"] {
                for arch in ["amd64", "arm64"] {
                    let basics = Basics {
                        name: format!("{family}-{cores}x-{arch}-{system}"),
                        arch: arch.to_owned(),
                        cpu_milli: cores * 1000,
                        memory_bytes: cores * ratio * GIB,
                        pods: (cores * 16).min(1024) as u32,
                    };
                    let mut made = instance_type(Provider::Kwok, basics, None);
                    made.operating_systems = vec![system.to_owned()];
                    // In thousandths of a nano-dollar, so that spot is rounded once.
                    let price = cores * 25_000_000_000 + made.memory_bytes;
                    let spot = (price * 7 / 10 + 500) / 1000;
                    made.offerings = grid(&zones, Some((price + 500) / 1000), Some(SpotPrice::Price(spot)));
                    types.push(made);
                }
            }
        }
    }
    catalog("kwok", Provider::Kwok, zones.to_vec(), "the formulas of Karpenter's KWOK provider", types)
}

/// The estimated price of a machine of unknown price, by KWOK's formula: $0.025 a core and $0.001 for 10⁹ bytes of
/// memory.
pub fn kwok_price(cpu_milli: u64, memory_bytes: u64) -> u64 {
    let sum = u128::from(cpu_milli) * 25_000_000 / 1000 + u128::from(memory_bytes) / 1000;
    u64::try_from(sum).unwrap_or(u64::MAX)
}

/// The types of Karpenter's scheduling benchmark: type `i` has `i + 1` cores,
/// twice as many GiB, ten times as many pods, and five offerings of one price:
/// $0.1 a core and $0.1 for 10⁹ bytes of memory.
pub fn fake(count: u32) -> Catalog {
    let zones: Vec<Arc<str>> = (1..=3).map(|number| Arc::from(format!("test-zone-{number}"))).collect();
    let mut types = Vec::with_capacity(count as usize);
    for index in 0..count {
        let cores = u64::from(index) + 1;
        let basics = Basics {
            name: format!("fake-it-{index}"),
            arch: "amd64".to_owned(),
            cpu_milli: cores * 1000,
            memory_bytes: 2 * cores * GIB,
            pods: 10 * (index + 1),
        };
        let price = (cores * 1_000_000_000 + basics.memory_bytes + 5) / 10;
        let mut made = instance_type(Provider::Generic, basics, None);
        made.operating_systems = ["linux", "windows", "darwin"].map(str::to_owned).to_vec();
        let large = cores > 4 && 2 * cores > 8;
        made.labels.insert("integer".to_owned(), cores.to_string());
        made.labels.insert("size".to_owned(), if large { "large" } else { "small" }.to_owned());
        if large {
            made.labels.insert("special".to_owned(), "optional".to_owned());
        }
        let offering = |zone: &Arc<str>, capacity_type| Offering {
            zone: Arc::clone(zone),
            capacity_type,
            price_nanos_hour: price,
            estimated: false,
            available: true,
            reservation_count: None,
        };
        for (position, zone) in zones.iter().enumerate() {
            made.offerings.push(offering(zone, CapacityType::OnDemand));
            if position < 2 {
                made.offerings.push(offering(zone, CapacityType::Spot));
            }
        }
        types.push(made);
    }
    catalog("fake", Provider::Generic, zones, "the formulas of Karpenter's scheduling benchmark", types)
}

fn catalog(
    name: &str,
    provider: Provider,
    zones: Vec<Arc<str>>,
    source: &str,
    mut types: Vec<super::InstanceType>,
) -> Catalog {
    types.sort_by(|a, b| a.name.cmp(&b.name));
    Catalog {
        name: name.to_owned(),
        provider,
        region: String::new(),
        zones,
        spot_per_mille: None,
        source: source.to_owned(),
        types,
    }
}
