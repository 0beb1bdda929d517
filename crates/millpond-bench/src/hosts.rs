//! Fleets of own hosts and machines that wait for them, with selectors that overlap: a function of a seed.

use millpond_plan::matching::{Inventory, Operator, Pool, Requirement, Spread, WaitingMachine};

/// Pools take turns with these selectors; the last one alone asks for GPUs.
const SELECTORS: [&[(&str, &str)]; 6] = [
    &[],
    &[("arch", "amd64")],
    &[("team", "a")],
    &[("gpu", "false")],
    &[("team", "b"), ("arch", "arm64")],
    &[("gpu", "true")],
];
/// The label that distinguishes hosts.
const NAME: &str = "name";
/// Pools of a fleet.
const POOLS: usize = 48;
/// Hosts in a hundred that have GPUs.
const GPU_PERCENT: usize = 8;

/// Hosts, and pools with waiting machines.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// The hosts, all free.
    pub inventory: Inventory,
    /// The pools.
    pub pools: Vec<Pool>,
    /// Machines of all pools.
    pub machines: usize,
}

/// Numbers that look like chance.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// So many hosts and machines. All machines find hosts: each is made for a host of its own. With `distinct`, no two hosts
/// are alike, so that each is a class of its own for the matcher.
pub fn fleet(hosts: usize, machines: usize, distinct: bool, seed: u64) -> Fleet {
    let mut random = Random(seed);
    let domains = (0..4).map(|zone| format!("z{zone}")).collect();
    let mut inventory = Inventory { domains, ..Inventory::default() };
    let mut pools: Vec<Pool> = (0..POOLS).map(|number| pool(number, distinct)).collect();
    let mut made = 0;
    for number in 0..hosts {
        let is_gpu = random.below(100) < GPU_PERCENT;
        let name = format!("h{number:06}");
        let mut labels = vec![
            ("arch", ["amd64", "arm64"][random.below(2)]),
            ("team", ["a", "b", "c", "d", "e"][random.below(5)]),
            ("gpu", if is_gpu { "true" } else { "false" }),
        ];
        let (size, zone) = (random.below(4), random.below(4));
        labels.extend(distinct.then_some((NAME, name.as_str())));
        let mut capacity = vec![("cpu", 16_000_i64 << size), ("memory", (64_i64 << 30) << size)];
        capacity.extend(is_gpu.then_some(("nvidia.com/gpu", 4)));
        inventory.add(&name, &labels, &capacity, Some(zone as u32));
        if made < machines {
            let suits = |selector: &[(&str, &str)]| selector.iter().all(|wanted| labels.contains(wanted));
            let kinds = |kind: usize| if is_gpu { kind == SELECTORS.len() - 1 } else { suits(SELECTORS[kind]) };
            let fitting: Vec<usize> = (0..POOLS).filter(|pool| kinds(pool % SELECTORS.len())).collect();
            let chosen = fitting[random.below(fitting.len())];
            pools[chosen].machines.push(WaitingMachine { name: format!("m{number}"), promised: None });
            made += 1;
        }
    }
    Fleet { inventory, pools, machines: made }
}

/// A pool; one that asks for the label of names tells all hosts apart.
fn pool(number: usize, distinct: bool) -> Pool {
    let selector = SELECTORS[number % SELECTORS.len()].iter().map(|(key, value)| Requirement::equals(key, value));
    let has_name = Requirement { key: NAME.to_owned(), operator: Operator::Exists, values: Vec::new() };
    Pool {
        name: format!("p{number:03}"),
        selector: selector.chain(distinct.then_some(has_name)).collect(),
        spread: Spread::None,
        ..Pool::default()
    }
}

#[cfg(test)]
mod tests {
    use millpond_plan::matching::match_hosts;

    use super::*;

    #[test]
    fn every_machine_of_a_fleet_finds_a_host() {
        for distinct in [false, true] {
            let fleet = fleet(300, 270, distinct, 1);
            let outcome = match_hosts(&fleet.inventory, &fleet.pools);
            assert_eq!((outcome.placed, outcome.unplaced), (270, 0));
        }
    }
}
