//! Measures the packing kernel.
//!
//! ```text
//! cargo run --release -p millpond-plan --example pack -- scale CATALOG.csv [cmr|full] [third] [seed]
//! cargo run --release -p millpond-plan --example pack -- stock CATALOG.csv [cmr|full] NODES
//! cargo run --release -p millpond-plan --example pack -- mixes CATALOG.csv [cmr|full] [seed]
//! cargo run --release -p millpond-plan --example pack -- estimator
//! cargo run --release -p millpond-plan --example pack -- karpenter [pods] [seed]
//! ```
//!
//! `scale` packs about 10k, 100k and 1M pods of 2,000 shapes on the instance types of a catalogue;
//! `cmr` keeps general families only. `third` gives a sixth of the shapes a cap of one per node and
//! a sixth three zones. `stock` adds running nodes with some room each. `mixes` are a
//! dozen smaller workloads of different kinds. `karpenter` is the workload of Karpenter's scheduling benchmark reduced to
//! packing rows. `EVALUATIONS` in the environment overrides the budget; `THREADS` the threads;
//! with one thread the times are processor times where the system tells them.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures and prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use millpond_plan::pack::{Bin, BitSet, Budget, MAX_RESOURCES, Problem, Row, Solution, solve, verify};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let numbers: Vec<u64> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    match arguments.first().map(String::as_str) {
        Some("scale") => {
            let path = arguments.get(1).ok_or("which catalogue?")?;
            let bins = catalogue(&std::fs::read_to_string(path)?, !has("full"))?;
            let seed = numbers.last().copied().unwrap_or(5);
            let only = setting("PODS");
            for pods in [10_000, 100_000, 1_000_000].into_iter().filter(|&pods| only.is_none_or(|only| only == pods)) {
                measure(&format!("scale {pods}"), &scale(&bins, pods, seed, has("third")));
            }
        }
        Some("stock") => {
            let path = arguments.get(1).ok_or("which catalogue?")?;
            let bins = catalogue(&std::fs::read_to_string(path)?, !has("full"))?;
            let nodes = numbers.first().copied().unwrap_or(10_000);
            for pods in [1_000, 10_000, 100_000] {
                measure(&format!("stock {pods}"), &stocked(scale(&bins, pods, 5, false), nodes));
            }
        }
        Some("mixes") => {
            let path = arguments.get(1).ok_or("which catalogue?")?;
            let bins = catalogue(&std::fs::read_to_string(path)?, !has("full"))?;
            for (name, problem) in mixes(&bins, numbers.last().copied().unwrap_or(1)) {
                measure(name, &problem);
            }
        }
        Some("estimator") => measure("estimator", &estimator()),
        Some("karpenter") => {
            let pods = numbers.first().copied().unwrap_or(20_000);
            let seed = numbers.get(1).copied().unwrap_or(42);
            measure(&format!("karpenter {pods}"), &karpenter(pods, seed));
        }
        _ => return Err("scale, stock, mixes, estimator or karpenter?".into()),
    }
    Ok(())
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn measure(name: &str, problem: &Problem) {
    let pods: u64 = problem.rows.iter().map(|row| row.count).sum();
    let default = Budget {
        threads: setting("THREADS").unwrap_or(2) as usize,
        evaluations: setting("EVALUATIONS").unwrap_or(Budget::default().evaluations),
    };
    let first = Budget { evaluations: 0, ..default };
    for (label, budget) in [("first", first), ("improved", default)] {
        let (best, median, solution) = timed(problem, budget);
        let unplaced: u64 = solution.unplaced.iter().map(|&(_, count)| count).sum();
        let verified = verify(problem, &solution.bound.certificate) == Ok(solution.bound.value);
        println!(
            "{name:<18} {label:<9} pods {pods:>8} nodes {:>7} unplaced {unplaced} $/h {:>10.2} bound \
             {:>10.2} gap {:>6.2} % work {:>7} best {best:>7.2} ms median {median:>7.2} ms{}",
            solution.node_count(),
            solution.cost as f64 / 1e9,
            solution.bound.value as f64 / 1e9,
            solution.gap() * 100.0,
            solution.work,
            if verified { "" } else { " BOUND NOT VERIFIED" },
        );
    }
}

fn timed(problem: &Problem, budget: Budget) -> (f64, f64, Solution) {
    let mut solution = solve(problem, budget);
    let mut times: Vec<f64> = (0..7)
        .map(|_| {
            let start = (Instant::now(), cpu_ms());
            solution = solve(problem, budget);
            match (budget.threads, start.1, cpu_ms()) {
                (1, Some(before), Some(after)) => after - before,
                _ => start.0.elapsed().as_secs_f64() * 1e3,
            }
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2], solution)
}

/// Time on a processor, where the system tells: other work on the machine does not count.
fn cpu_ms() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e6)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + (high / low).ln() * self.unit()).exp()
    }
}

fn amounts(given: &[i64]) -> [i64; MAX_RESOURCES] {
    let mut amounts = [0; MAX_RESOURCES];
    amounts[..given.len()].copy_from_slice(given);
    amounts
}

/// Milli-cores, MiB and pods of on-demand instances.
fn catalogue(text: &str, general_only: bool) -> Result<Vec<Bin>, Box<dyn Error>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().ok_or("empty catalogue")?.split(',').collect();
    let column = |name: &str| header.iter().position(|known| *known == name).ok_or(format!("no column {name}"));
    let (category, generation) = (column("category")?, column("generation")?);
    let (cpu, memory) = (column("allocatable_cpu_milli")?, column("allocatable_memory_mib")?);
    let (pods, price) = (column("max_pods")?, column("on_demand_usd_hour")?);
    let (name, gpu) = (column("name")?, column("gpu_count")?);
    let mut bins = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let general = ["c", "m", "r"].contains(&fields[category])
            && fields[generation].parse::<u32>().unwrap_or(0) >= 5
            && !fields[name].contains("metal");
        let gpu = ["g", "p"].contains(&fields[category]) || !fields[gpu].is_empty();
        if fields[price].is_empty() || (general_only && !general && !gpu) {
            continue;
        }
        let dollars: f64 = fields[price].parse()?;
        bins.push(Bin {
            capacity: amounts(&[fields[cpu].parse()?, fields[memory].parse()?, fields[pods].parse()?]),
            price: (dollars * 1e9).round() as u64,
            max_nodes: None,
        });
    }
    Ok(bins)
}

fn scale(types: &[Bin], pods: u64, seed: u64, third: bool) -> Problem {
    const SHAPES: u64 = 2_000;
    let mut random = Random(seed);
    let zones = if third { 3 } else { 1 };
    let bins: Vec<Bin> = (0..zones).flat_map(|_| types.iter().cloned()).collect();
    let zone = |zone: usize| (zone * types.len()..(zone + 1) * types.len()).collect::<BitSet>();
    let weights: Vec<f64> = (0..SHAPES).map(|_| random.log_uniform(0.1, 10.0)).collect();
    let total: f64 = weights.iter().sum();
    let mut rows = Vec::new();
    for (shape, weight) in weights.iter().enumerate() {
        let cores = random.log_uniform(0.05, 6.0);
        let ratio = random.log_uniform(0.5, 12.0);
        let request =
            amounts(&[(cores * 1_000.0).round().max(1.0) as i64, (cores * ratio * 1_024.0).round().max(1.0) as i64, 1]);
        let count = ((pods as f64 * weight / total) as u64).max(1);
        let cap = if third && shape % 6 == 0 { 1 } else { u32::MAX };
        let mut push = |count: u64, bins: BitSet| {
            rows.push(Row { request, count, bins, per_node_cap: cap, exclusive: Vec::new() });
        };
        if third && shape % 6 == 1 {
            for index in 0..3 {
                push((count + index as u64) / 3, zone(index));
            }
        } else {
            push(count, BitSet::full(bins.len()));
        }
    }
    Problem { resources: 3, bins, rows }
}

/// Adds running nodes, each with another amount of room.
fn stocked(problem: Problem, nodes: u64) -> Problem {
    let mut problem = problem;
    let mut random = Random(nodes);
    for _ in 0..nodes {
        let cores = random.log_uniform(0.1, 4.0);
        let memory = cores * random.log_uniform(0.5, 12.0);
        let capacity = amounts(&[(cores * 1_000.0) as i64, (memory * 1_024.0) as i64, 1 + random.below(100) as i64]);
        problem.bins.push(Bin { capacity, price: 0, max_nodes: Some(1) });
    }
    for row in &mut problem.rows {
        row.bins = BitSet::full(problem.bins.len());
    }
    problem
}

/// Rows drawn at random: how many, cores, GiB for each core, pods of each row.
struct Mix {
    rows: usize,
    cores: (f64, f64),
    ratio: (f64, f64),
    pods: (f64, f64),
}

impl Mix {
    fn rows(&self, random: &mut Random, bins: usize) -> Vec<Row> {
        let row = |random: &mut Random| {
            let cores = random.log_uniform(self.cores.0, self.cores.1);
            let memory = cores * random.log_uniform(self.ratio.0, self.ratio.1);
            Row {
                request: amounts(&[(cores * 1_000.0) as i64, (memory * 1_024.0) as i64, 1]),
                count: random.log_uniform(self.pods.0, self.pods.1).round() as u64,
                bins: BitSet::full(bins),
                per_node_cap: u32::MAX,
                exclusive: Vec::new(),
            }
        };
        (0..self.rows).map(|_| row(random)).collect()
    }
}

/// A dozen workloads of different kinds.
fn mixes(types: &[Bin], seed: u64) -> Vec<(&'static str, Problem)> {
    let mut random = Random(seed);
    let mix = |rows, cores, ratio, pods| Mix { rows, cores, ratio, pods };
    let plain = [
        ("web-small", mix(40, (0.05, 1.0), (0.5, 4.0), (5.0, 300.0))),
        ("mem-heavy", mix(20, (0.5, 8.0), (6.0, 16.0), (5.0, 200.0))),
        ("cpu-heavy", mix(20, (0.5, 16.0), (0.5, 2.0), (5.0, 200.0))),
        ("giant-pod", mix(21, (0.1, 48.0), (1.0, 8.0), (1.0, 60.0))),
        ("tiny-podlimit", mix(3, (0.001, 0.002), (0.5, 1.0), (3_000.0, 3_500.0))),
        ("tiny-case", mix(3, (0.5, 4.0), (1.0, 8.0), (2.0, 3.0))),
        ("everything", mix(300, (0.05, 16.0), (0.5, 12.0), (1.0, 150.0))),
    ];
    let mut all: Vec<(&'static str, Problem)> = plain
        .iter()
        .map(|(name, mix)| {
            let rows = mix.rows(&mut random, types.len());
            (*name, Problem { resources: 3, bins: types.to_vec(), rows })
        })
        .collect();
    let services = mix(40, (0.1, 4.0), (0.5, 10.0), (3.0, 150.0));
    // One per host, of a row or of a group of rows.
    let mut lonely = mix(120, (0.1, 4.0), (0.5, 10.0), (2.0, 80.0)).rows(&mut random, types.len());
    for (index, row) in lonely.iter_mut().enumerate() {
        match index % 6 {
            0 => row.per_node_cap = 1,
            1 => row.exclusive = vec![index as u32 / 30],
            _ => {}
        }
    }
    all.push(("anti-affinity", Problem { resources: 3, bins: types.to_vec(), rows: lonely }));
    // Two architectures: every third type is of the other one.
    let mut split = services.rows(&mut random, types.len());
    for (index, row) in split.iter_mut().enumerate() {
        let other = |bin: &usize| bin.is_multiple_of(3);
        row.bins = match index % 3 {
            0 => (0..types.len()).filter(other).collect(),
            1 => (0..types.len()).filter(|bin| !other(bin)).collect(),
            _ => BitSet::full(types.len()),
        };
    }
    all.push(("arch-split", Problem { resources: 3, bins: types.to_vec(), rows: split }));
    // Spot at a discount beside on demand; two thirds of the rows may use it.
    let mut both = types.to_vec();
    both.extend(types.iter().map(|bin| {
        let share = 30 + random.below(35);
        Bin { price: bin.price / 100 * share, ..bin.clone() }
    }));
    let mut spot = services.rows(&mut random, both.len());
    for row in spot.iter_mut().step_by(3) {
        row.bins = BitSet::full(types.len());
    }
    all.push(("spot-od", Problem { resources: 3, bins: both, rows: spot }));
    // Three zones: pinned rows, spread rows and free ones.
    let zones: Vec<Bin> = (0..3).flat_map(|_| types.iter().cloned()).collect();
    let zone = |zone: usize| (zone * types.len()..(zone + 1) * types.len()).collect::<BitSet>();
    let mut placed = Vec::new();
    for (index, row) in services.rows(&mut random, zones.len()).into_iter().enumerate() {
        match index % 3 {
            0 => placed.push(Row { bins: zone(index / 3 % 3), ..row }),
            1 => placed.extend((0..3).map(|at| Row { bins: zone(at), count: row.count.div_ceil(3), ..row.clone() })),
            _ => placed.push(row),
        }
    }
    all.push(("zones", Problem { resources: 3, bins: zones, rows: placed }));
    // A device on some types at five times the price, asked for by a quarter of the rows.
    let mut devices = types.to_vec();
    devices.extend(types.iter().step_by(9).map(|bin| {
        let mut with = Bin { price: bin.price.saturating_mul(5), ..bin.clone() };
        with.capacity[3] = 1 + bin.capacity[0] / 8_000;
        with
    }));
    let mut training = services.rows(&mut random, devices.len());
    for row in training.iter_mut().step_by(4) {
        row.request[3] = 1;
    }
    all.push(("devices", Problem { resources: 4, bins: devices, rows: training }));
    all
}

/// Cluster Autoscaler's estimator benchmark.
fn estimator() -> Problem {
    let row = |request: i64, count: u64| Row {
        request: amounts(&[request]),
        count,
        bins: BitSet::full(1),
        per_node_cap: u32::MAX,
        exclusive: Vec::new(),
    };
    let node = Bin { capacity: amounts(&[1_000]), price: 1_000_000_000, max_nodes: None };
    Problem { resources: 1, bins: vec![node], rows: vec![row(50, 50_000), row(95, 1_000)] }
}

/// Karpenter's scheduling benchmark, zones aside: a fifth of the pods exclude each other.
fn karpenter(pods: u64, seed: u64) -> Problem {
    const CPU: [i64; 5] = [100, 250, 500, 1_000, 1_500];
    const MEMORY: [i64; 6] = [100, 256, 512, 1_024, 2_048, 4_096];
    let mut random = Random(seed);
    let mut counts: BTreeMap<(i64, i64, bool), u64> = BTreeMap::new();
    for pod in 0..pods {
        let group = (pod / (pods / 5).max(1)).min(5);
        // Labels are drawn as in the benchmark, so that requests are too.
        let labels = [1, 2, 2, 1, 0, 1][group as usize];
        for _ in 0..labels {
            random.below(7);
        }
        let cpu = CPU[random.below(5) as usize];
        let memory = MEMORY[random.below(6) as usize];
        *counts.entry((cpu, memory, group == 4)).or_default() += 1;
    }
    let bins: Vec<Bin> = (0..400_i64)
        .map(|index| Bin {
            capacity: amounts(&[(index + 1) * 1_000 - 100, (index + 1) * 2_048 - 10, (index + 1) * 10]),
            price: 314_748_365 * (index as u64 + 1),
            max_nodes: None,
        })
        .collect();
    let rows = counts
        .into_iter()
        .map(|((cpu, memory, exclusive), count)| Row {
            request: amounts(&[cpu, memory, 1]),
            count,
            bins: BitSet::full(bins.len()),
            per_node_cap: u32::MAX,
            exclusive: if exclusive { vec![0] } else { Vec::new() },
        })
        .collect();
    Problem { resources: 3, bins, rows }
}
