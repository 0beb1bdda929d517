//! The matcher against brute force, by certificates, and on a fleet.

use proptest::prelude::*;

use super::*;

fn machines(count: usize) -> Vec<WaitingMachine> {
    (0..count).map(|number| WaitingMachine { name: format!("m{number}"), promised: None }).collect()
}

fn pool(name: &str, selector: &[(&str, &str)], count: usize) -> Pool {
    let selector = selector.iter().map(|(key, value)| Requirement::equals(key, value)).collect();
    Pool { name: name.to_owned(), selector, machines: machines(count), ..Pool::default() }
}

fn names(inventory: &Inventory, hosts: &[Option<u32>]) -> Vec<String> {
    hosts.iter().map(|host| host.map_or("-".to_owned(), |host| inventory.hosts[host as usize].name.clone())).collect()
}

const GPU: &[(&str, i64)] = &[("cpu", 16_000), ("memory", 64 << 30), ("nvidia.com/gpu", 1)];
const PLAIN: &[(&str, i64)] = &[("cpu", 16_000), ("memory", 64 << 30)];

#[test]
fn a_pool_without_a_selector_leaves_the_gpu_host_to_those_that_need_it() {
    let order = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]];
    for hosts in order {
        for reversed in [false, true] {
            let mut inventory = Inventory::default();
            for number in hosts {
                let gpu: &[_] = if number == 1 { &[("purpose", "gpu")] } else { &[] };
                inventory.add(&format!("node1{number}"), gpu, if number == 1 { GPU } else { PLAIN }, None);
            }
            let mut pools = vec![pool("general", &[], 3), pool("gpu", &[("purpose", "gpu")], 1)];
            if reversed {
                pools.reverse();
            }
            let outcome = match_hosts(&inventory, &pools);
            let of_gpu = usize::from(!reversed);
            assert_eq!((outcome.placed, outcome.unplaced), (4, 0));
            assert_eq!(names(&inventory, &outcome.hosts[of_gpu]), ["node11"]);
            assert_eq!(names(&inventory, &outcome.hosts[1 - of_gpu]), ["node10", "node12", "node13"]);
        }
    }
}

#[test]
fn minimums_come_first_then_priority() {
    let mut inventory = Inventory::default();
    for number in 0..4 {
        inventory.add(&format!("n{number}"), &[], PLAIN, None);
    }
    let high = Pool { priority: 10, ..pool("high", &[], 4) };
    let low = Pool { minimum: 1, ..pool("low", &[], 3) };
    let outcome = match_hosts(&inventory, &[low.clone(), high.clone()]);
    let count = |hosts: &[Option<u32>]| hosts.iter().flatten().count();
    assert_eq!((count(&outcome.hosts[0]), count(&outcome.hosts[1])), (1, 3));
    // A machine that is attached already counts for the minimum.
    let low = Pool { attached: vec![1], ..low };
    let outcome = match_hosts(&inventory, &[low, high]);
    assert_eq!((count(&outcome.hosts[0]), count(&outcome.hosts[1])), (0, 4));
}

#[test]
fn machines_spread_over_domains() {
    let fleet = |in_a: usize, in_b: usize| {
        let mut inventory = Inventory { domains: vec!["a".into(), "b".into()], ..Inventory::default() };
        for number in 0..in_a + in_b {
            inventory.add(&format!("n{number}"), &[], PLAIN, Some(u32::from(number >= in_a)));
        }
        inventory
    };
    let of = |spread, inventory: &Inventory| {
        let outcome = match_hosts(inventory, &[Pool { spread, ..pool("p", &[], 4) }]);
        let in_a = outcome.hosts[0].iter().flatten().filter(|host| inventory.hosts[**host as usize].domain == Some(0));
        (in_a.count(), outcome.placed)
    };
    assert_eq!(of(Spread::Soft, &fleet(4, 4)), (2, 4));
    assert_eq!(of(Spread::Hard, &fleet(4, 4)), (2, 4));
    // One host in b: soft spread fills up in a, hard spread waits.
    assert_eq!(of(Spread::Soft, &fleet(4, 1)), (3, 4));
    assert_eq!(of(Spread::Hard, &fleet(4, 1)), (2, 3));
    let inventory = fleet(4, 1);
    let pools = [Pool { spread: Spread::Hard, ..pool("p", &[], 4) }];
    let outcome = match_hosts(&inventory, &pools);
    let waiting = outcome.hosts[0].iter().position(Option::is_none).unwrap();
    let explanation = explain(&inventory, &pools, &outcome, 0, waiting);
    assert!(explanation.rejected.iter().any(|(_, why)| *why == Rejection::SpreadLimit { domain: "a".into() }));
}

#[test]
fn promised_hosts_do_not_move() {
    let mut inventory = Inventory::default();
    inventory.add("gpu", &[], GPU, None);
    inventory.add("plain", &[], PLAIN, None);
    let mut pools = [pool("p", &[], 2)];
    pools[0].machines[1].promised = Some("gpu".to_owned());
    let outcome = match_hosts(&inventory, &pools);
    assert_eq!(names(&inventory, &outcome.hosts[0]), ["plain", "gpu"]);
    inventory.hosts[0].availability = Availability::Quarantined { reason: "disk errors".into() };
    let outcome = match_hosts(&inventory, &pools);
    assert_eq!((outcome.placed, outcome.unplaced), (1, 1), "a promise does not outlive a quarantine");
}

#[test]
fn explanations_name_one_reason_per_host_and_what_to_type() {
    let mut inventory = Inventory::default();
    for (name, labels) in [
        ("node10", &[("purpose", "worker")] as &[_]),
        ("node11", &[("purpose", "gpu"), ("gpu", "true")]),
        ("node12", &[("purpose", "worker")]),
        ("node13", &[("purpose", "general")]),
        ("node14", &[]),
        ("node15", &[("purpose", "worker")]),
        ("node16", &[("purpose", "worker")]),
    ] {
        inventory.add(name, labels, if name == "node11" { GPU } else { PLAIN }, None);
    }
    inventory.hosts[0].availability = Availability::Attached { machine: "worker-0".into() };
    inventory.hosts[2].availability = Availability::LeaseExpired { seconds: 90 };
    inventory.hosts[5].availability = Availability::Quarantined { reason: "reset failed: mounts left".into() };
    let pools = [pool("worker", &[("purpose", "worker")], 2)];
    let outcome = match_hosts(&inventory, &pools);
    assert_eq!(names(&inventory, &outcome.hosts[0]), ["node16", "-"]);
    let explanation = explain(&inventory, &pools, &outcome, 0, 1);
    let lines: Vec<String> = explanation.rejected.iter().map(|(host, why)| format!("{host} {why}")).collect();
    assert_eq!(
        lines,
        [
            "node10 Attached: to machine worker-0",
            "node11 LabelMismatch: wants purpose=worker, has purpose=gpu",
            "node12 LeaseExpired: 90s ago",
            "node13 LabelMismatch: wants purpose=worker, has purpose=general",
            "node14 LabelMismatch: wants purpose=worker, has no label purpose",
            "node15 Quarantined: reset failed: mounts left",
            "node16 ReservedFor: machine m0 of pool worker",
        ]
    );
    let fix = explanation.fix.unwrap();
    assert_eq!(fix.to_string(), "kubectl label byohost node13 purpose=worker --overwrite");
    assert_eq!(fix.labels, ["purpose=worker"]);
    // The fix helps.
    let purpose = inventory.symbols.intern("purpose");
    let worker = inventory.symbols.intern("worker");
    inventory.hosts[3].labels = vec![(purpose, worker)];
    let outcome = match_hosts(&inventory, &pools);
    assert_eq!(outcome.unplaced, 0);
    let explanation = explain(&inventory, &pools, &outcome, 0, 0);
    assert_eq!((explanation.chosen.as_deref(), explanation.runner_up), (Some("node13"), None));
}

/// A fleet with overlapping selectors whose demand is feasible by construction.
fn fleet(hosts: usize, pool_count: usize, machine_share: usize, seed: u64) -> (Inventory, Vec<Pool>) {
    let mut state = seed;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize) % below
    };
    let mut inventory = Inventory { domains: (0..4).map(|zone| format!("z{zone}")).collect(), ..Inventory::default() };
    for number in 0..hosts {
        let is_gpu = random(100) < 8;
        let (size, zone, team) = (random(4), random(4), random(5));
        let labels = [
            ("arch", ["amd64", "arm64"][random(2)]),
            ("team", ["a", "b", "c", "d", "e"][team]),
            ("gpu", if is_gpu { "true" } else { "false" }),
        ];
        let (cpu, memory) = (16_000_i64 << size, (64_i64 << 30) << size);
        let mut capacity = vec![("cpu", cpu), ("memory", memory)];
        capacity.extend(is_gpu.then_some(("nvidia.com/gpu", 4)));
        inventory.add(&format!("h{number:06}"), &labels, &capacity, Some(zone as u32));
    }
    let selectors: [&[(&str, &str)]; 6] = [
        &[],
        &[("arch", "amd64")],
        &[("team", "a")],
        &[("gpu", "false")],
        &[("team", "b"), ("arch", "arm64")],
        &[("gpu", "true")],
    ];
    let mut pools: Vec<Pool> =
        (0..pool_count).map(|number| pool(&format!("p{number:03}"), selectors[number % 6], 0)).collect();
    for host in 0..hosts * machine_share / 100 {
        let is_gpu = inventory.label(host, "gpu") == Some("true");
        let suits: Vec<usize> = (0..pools.len())
            .filter(|&number| explain::reject(&inventory, &pools[number], host).is_none())
            .filter(|&number| !is_gpu || number % 6 == 5)
            .collect();
        if let Some(&chosen) = suits.get(random(suits.len().max(1))) {
            let name = format!("m{host}");
            pools[chosen].machines.push(WaitingMachine { name, promised: None });
        }
    }
    (inventory, pools)
}

#[test]
fn a_feasible_fleet_is_placed_whole_and_wastes_no_gpu() {
    let (inventory, pools) = fleet(10_000, 50, 90, 7);
    let outcome = match_hosts(&inventory, &pools);
    assert_eq!(outcome.unplaced, 0);
    assert!(outcome.placed > 8_500, "{}", outcome.placed);
    for (pool, hosts) in pools.iter().zip(&outcome.hosts) {
        let asks = pool.selector.iter().any(|requirement| requirement.key == "gpu" && requirement.values == ["true"]);
        for host in hosts.iter().flatten() {
            assert!(explain::reject(&inventory, pool, *host as usize).is_none());
            assert!(asks || inventory.label(*host as usize, "gpu") == Some("false"), "{} wastes a GPU", pool.name);
        }
    }
    let mut used: Vec<u32> = outcome.hosts.iter().flatten().copied().flatten().collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), outcome.placed, "no host serves two machines");
    assert_eq!(match_hosts(&inventory, &pools), outcome, "the same input gives the same outcome");
}

/// Duality: no arc that can still carry something has a negative reduced cost, and no path is left.
#[test]
fn large_solutions_carry_their_certificate() {
    for (seed, share) in [(1, 90), (2, 98), (3, 60)] {
        let (inventory, mut pools) = fleet(5_000, 40, share, seed);
        for (number, pool) in pools.iter_mut().enumerate() {
            pool.spread = [Spread::None, Spread::Soft][number % 2];
        }
        let classes = Classes::build(&inventory, &pools, &vec![false; inventory.hosts.len()]);
        let waiting: Vec<u32> = pools.iter().map(|pool| pool.machines.len() as u32).collect();
        let (mut network, _) = build(&inventory, &pools, &classes, &waiting);
        let sent = network.minimize();
        assert_eq!(sent, waiting.iter().map(|count| u64::from(*count)).sum::<u64>());
        assert!(network.is_certified());
        assert!(network.is_maximum());
    }
}

/// Every way to give hosts to machines: machines per tier in order, then the least value.
fn brute_force(inventory: &Inventory, pools: &[Pool]) -> (Vec<usize>, i64) {
    let units: Vec<usize> =
        pools.iter().enumerate().flat_map(|(number, pool)| vec![number; pool.machines.len()]).collect();
    let mut best = (Vec::new(), i64::MAX);
    let mut used = vec![false; inventory.hosts.len()];
    let mut counts = vec![0; pools.len()];
    search(inventory, pools, &units, 0, &mut used, &mut counts, 0, &mut best);
    best
}

#[expect(clippy::too_many_arguments, reason = "a recursion that is read once")]
fn search(
    inventory: &Inventory,
    pools: &[Pool],
    units: &[usize],
    at: usize,
    used: &mut [bool],
    counts: &mut [usize],
    value: i64,
    best: &mut (Vec<usize>, i64),
) {
    if at == units.len() {
        let tiers = tiers(pools, counts);
        if tiers > best.0 || (tiers == best.0 && value < best.1) {
            *best = (tiers, value);
        }
        return;
    }
    search(inventory, pools, units, at + 1, used, counts, value, best);
    let pool = units[at];
    for host in 0..used.len() {
        if !used[host] && explain::reject(inventory, &pools[pool], host).is_none() {
            (used[host], counts[pool]) = (true, counts[pool] + 1);
            search(inventory, pools, units, at + 1, used, counts, value + inventory.value(host), best);
            (used[host], counts[pool]) = (false, counts[pool] - 1);
        }
    }
}

/// Machines placed up to the minimum and beyond, for priority 1 and 0.
fn tiers(pools: &[Pool], counts: &[usize]) -> Vec<usize> {
    let sum = |priority, beyond: bool| {
        let of = pools.iter().zip(counts).filter(|(pool, _)| pool.priority == priority);
        of.map(|(pool, &count)| {
            let first = count.min(pool.minimum as usize);
            if beyond { count - first } else { first }
        })
        .sum()
    };
    vec![sum(1, false), sum(0, false), sum(1, true), sum(0, true)]
}

fn small_case() -> impl Strategy<Value = (Inventory, Vec<Pool>)> {
    let host = (0..3_usize, 0..3_usize, 0..3_i64);
    let one_pool = (0..4_usize, 0..2_i32, 0..3_u32, 0..4_usize, 0..2_i64);
    (proptest::collection::vec(host, 0..6), proptest::collection::vec(one_pool, 1..4)).prop_map(|(hosts, pools)| {
        let mut inventory = Inventory::default();
        for (number, (team, rack, gpus)) in hosts.into_iter().enumerate() {
            let labels = [("team", ["a", "b", "c"][team]), ("rack", ["x", "y", "z"][rack])];
            let capacity = [("cpu", 4_000), ("memory", 16 << 30), ("nvidia.com/gpu", gpus)];
            inventory.add(&format!("h{number}"), &labels, &capacity, None);
        }
        let selectors: [&[(&str, &str)]; 4] =
            [&[], &[("team", "a")], &[("rack", "x")], &[("team", "b"), ("rack", "y")]];
        let make = |(number, (selector, priority, minimum, count, gpus)): (usize, (usize, i32, u32, usize, i64))| {
            let needs = BTreeMap::from([("nvidia.com/gpu".to_owned(), gpus)]);
            Pool { needs, priority, minimum, ..pool(&format!("p{number}"), selectors[selector], count) }
        };
        (inventory, pools.into_iter().enumerate().map(make).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn small_cases_are_as_good_as_brute_force((inventory, pools) in small_case()) {
        prop_assume!(pools.iter().map(|pool| pool.machines.len()).sum::<usize>() <= 6);
        let outcome = match_hosts(&inventory, &pools);
        let counts: Vec<usize> = outcome.hosts.iter().map(|hosts| hosts.iter().flatten().count()).collect();
        let (best, value) = brute_force(&inventory, &pools);
        prop_assert_eq!(tiers(&pools, &counts), best);
        prop_assert_eq!(outcome.value, value);
    }
}
