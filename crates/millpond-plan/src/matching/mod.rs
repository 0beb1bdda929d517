//! Matches machines to hosts: all waiting machines against all free hosts at once.
//!
//! ```text
//!   hosts ─▶ classes (equal labels that selectors name, equal domain, equal value)
//!                        │
//!   source ─▶ pool ─▶ pool × domain ─▶ class ─▶ sink        1. which machines: tier by tier, as many as possible
//!                                                           2. which hosts: the least value, then the best spread
//!                        │
//!   Outcome ◀─ hosts of a class by priority and name ──▶ explain: why each host was not chosen
//! ```
//!
//! Machines that are placed first stay placed while later tiers are added, since an augmenting path never gives up a
//! machine. So minimums come before everything else, then pools by priority, and within a tier as many machines as
//! possible. With the machines fixed, the hosts that are used have the least total value: GPUs, memory and hosts that
//! narrower pools select are kept free. Earlier assignments of hosts to machines do not change.

mod classes;
mod explain;
mod flow;
mod model;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use explain::{Explanation, Fix, Rejection, explain, typed};
pub use model::{Availability, Host, Inventory, Operator, Pool, Requirement, Spread, WaitingMachine};

use classes::Classes;
use flow::Network;

/// Weights of an objective in layers: value of hosts, then hosts that narrower pools select, then spread. Each is far
/// above what the layer below adds up to for thousands of machines, and all fit into 64 bits with the largest value.
const VALUE_UNIT: i64 = 1 << 34;
/// See [`VALUE_UNIT`].
const NARROW_UNIT: i64 = 1 << 21;
/// Pools that count as narrower; beyond, a host is as popular as can be.
const LIMIT_NARROW: i64 = 7;
/// Cost of one machine above the even share of its domain, under [`Spread::Soft`].
const UNEVEN: i64 = 1;
const SOURCE: usize = 0;
const SINK: usize = 1;

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Per pool and machine, in the order of the input: the number of the host in the inventory.
    pub hosts: Vec<Vec<Option<u32>>>,
    /// Machines with a host.
    pub placed: usize,
    /// Machines without a host.
    pub unplaced: usize,
    /// Value of the hosts that are used, see [`Inventory::value`].
    pub value: i64,
    /// Number of classes of the free hosts.
    pub classes: usize,
}

/// Arcs of one pool.
struct PoolArcs {
    supply: usize,
    /// The arcs to classes, as pairs of class and arc.
    classes: Vec<(usize, usize)>,
}

/// Matches the waiting machines of all pools with the free hosts of the inventory.
pub fn match_hosts(inventory: &Inventory, pools: &[Pool]) -> Outcome {
    let mut outcome =
        Outcome { hosts: pools.iter().map(|pool| vec![None; pool.machines.len()]).collect(), ..Outcome::default() };
    let taken = keep_promises(inventory, pools, &mut outcome);
    let mut classes = Classes::build(inventory, pools, &taken);
    outcome.classes = classes.len();
    let waiting: Vec<u32> =
        outcome.hosts.iter().map(|hosts| hosts.iter().filter(|host| host.is_none()).count() as u32).collect();
    let (mut network, arcs) = build(inventory, pools, &classes, &waiting);
    let supplies = choose_machines(&mut network, &arcs, pools, &waiting);
    let (mut network, arcs) = build(inventory, pools, &classes, &waiting);
    for (arcs, supply) in arcs.iter().zip(&supplies) {
        network.set_capacity(arcs.supply, *supply);
    }
    network.minimize();
    hand_out(&network, &arcs, &mut classes, &mut outcome);
    finish(inventory, outcome)
}

/// Keeps earlier assignments, as long as their hosts are free and suitable.
fn keep_promises(inventory: &Inventory, pools: &[Pool], outcome: &mut Outcome) -> Vec<bool> {
    let mut taken = vec![false; inventory.hosts.len()];
    if pools.iter().all(|pool| pool.machines.iter().all(|machine| machine.promised.is_none())) {
        return taken;
    }
    let by_name: BTreeMap<&str, usize> =
        inventory.hosts.iter().enumerate().map(|(index, host)| (host.name.as_str(), index)).collect();
    for (pool, hosts) in pools.iter().zip(&mut outcome.hosts) {
        for (machine, place) in pool.machines.iter().zip(hosts) {
            let promised = machine.promised.as_deref().and_then(|name| by_name.get(name)).copied();
            let promised = promised.filter(|&host| !taken[host] && explain::reject(inventory, pool, host).is_none());
            if let Some(host) = promised {
                taken[host] = true;
                *place = Some(host as u32);
            }
        }
    }
    taken
}

fn build(inventory: &Inventory, pools: &[Pool], classes: &Classes, waiting: &[u32]) -> (Network, Vec<PoolArcs>) {
    let domains = inventory.domains.len() + 1;
    let first_zone = 2 + pools.len();
    let first_class = first_zone + pools.len() * domains;
    let mut network = Network::new(first_class + classes.len());
    let mut all = Vec::new();
    for (number, pool) in pools.iter().enumerate() {
        let supply = network.add(SOURCE, 2 + number, waiting[number], 0);
        let mut of_pool = PoolArcs { supply, classes: Vec::new() };
        let suitable: Vec<usize> = (0..classes.len()).filter(|&class| classes.suits(class, number)).collect();
        let share = even_share(pool, classes, &suitable, waiting[number]);
        for domain in 0..domains {
            let zone = first_zone + number * domains + domain;
            let here = suitable.iter().copied().filter(|&class| classes.domain(class) == domain);
            let mut some = false;
            for class in here {
                some = true;
                of_pool.classes.push((class, network.add(zone, first_class + class, u32::MAX / 2, 0)));
            }
            if some {
                let already = pool.attached.get(domain).copied().unwrap_or(0);
                let room = share.map_or(u32::MAX / 2, |share| share.saturating_sub(already));
                network.add(2 + number, zone, room, 0);
                if pool.spread == Spread::Soft {
                    network.add(2 + number, zone, u32::MAX / 2, UNEVEN);
                }
            }
        }
        all.push(of_pool);
    }
    for class in 0..classes.len() {
        let narrow = (classes.selected_by(class) as i64).min(LIMIT_NARROW);
        let cost = classes.value(class) * VALUE_UNIT + narrow * NARROW_UNIT;
        network.add(first_class + class, SINK, classes.hosts(class).len() as u32, cost);
    }
    (network, all)
}

/// The most machines of a pool that a domain should hold; `None` without spread.
fn even_share(pool: &Pool, classes: &Classes, suitable: &[usize], waiting: u32) -> Option<u32> {
    if pool.spread == Spread::None {
        return None;
    }
    let mut domains: Vec<usize> = suitable.iter().map(|&class| classes.domain(class)).collect();
    let attached = pool.attached.iter().enumerate().filter(|(_, count)| **count > 0);
    domains.extend(attached.map(|(domain, _)| domain));
    domains.sort_unstable();
    domains.dedup();
    let all = waiting + pool.attached.iter().sum::<u32>();
    Some(all.div_ceil((domains.len() as u32).max(1)))
}

/// How many machines of each pool get a host: minimums first, then by priority.
fn choose_machines(network: &mut Network, arcs: &[PoolArcs], pools: &[Pool], waiting: &[u32]) -> Vec<u32> {
    for of_pool in arcs {
        network.set_capacity(of_pool.supply, 0);
    }
    let below_minimum = |pool: &Pool, waiting: u32| {
        let present: u32 = pool.attached.iter().sum::<u32>() + (pool.machines.len() as u32 - waiting);
        pool.minimum.saturating_sub(present).min(waiting)
    };
    let mut tiers: Vec<(bool, i32, usize, u32)> = Vec::new();
    for (number, (pool, &waiting)) in pools.iter().zip(waiting).enumerate() {
        let first = below_minimum(pool, waiting);
        tiers.push((false, pool.priority, number, first));
        tiers.push((true, pool.priority, number, waiting - first));
    }
    tiers.retain(|tier| tier.3 > 0);
    tiers.sort_by(|one, other| {
        let key = |tier: &(bool, i32, usize, u32)| (tier.0, std::cmp::Reverse(tier.1));
        key(one).cmp(&key(other)).then_with(|| pools[one.2].name.cmp(&pools[other.2].name))
    });
    for tier in tiers.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        for &(_, _, pool, machines) in tier {
            network.set_capacity(arcs[pool].supply, machines);
        }
        network.maximize();
        for &(_, _, pool, _) in tier {
            network.set_capacity(arcs[pool].supply, 0);
        }
    }
    arcs.iter().map(|of_pool| network.flow(of_pool.supply)).collect()
}

/// Turns flow into hosts: pools by name take the hosts of a class in the order of priority and name.
fn hand_out(network: &Network, arcs: &[PoolArcs], classes: &mut Classes, outcome: &mut Outcome) {
    for (of_pool, places) in arcs.iter().zip(&mut outcome.hosts) {
        let mut free = places.iter_mut().filter(|place| place.is_none());
        for &(class, arc) in &of_pool.classes {
            for _ in 0..network.flow(arc) {
                if let (Some(place), Some(host)) = (free.next(), classes.take(class)) {
                    *place = Some(host);
                }
            }
        }
    }
}

fn finish(inventory: &Inventory, mut outcome: Outcome) -> Outcome {
    let used = || outcome.hosts.iter().flatten().copied().flatten();
    (outcome.placed, outcome.value) = (used().count(), used().map(|host| inventory.value(host as usize)).sum());
    outcome.unplaced = outcome.hosts.iter().map(Vec::len).sum::<usize>() - outcome.placed;
    outcome
}
