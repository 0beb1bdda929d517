//! Hosts and waiting machines in the words of the matcher.

use std::collections::BTreeMap;

use millpond_api::amounts::Amounts;
use millpond_api::byoh::{ByoHost, ByoMachineSpec, names};
use millpond_api::meta::Invalid;
use millpond_api::selector::Operator as ApiOperator;
use millpond_plan::matching::{Inventory, Operator, Pool, Requirement, Spread, WaitingMachine};

use crate::state::{Life, availability};

/// How machines of a pool spread over failure domains (annotation of a MachineDeployment): `soft` or `hard`.
pub const SPREAD: &str = "millpond.dev/spread";

/// A machine that waits for a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// Namespace of machine and hosts.
    pub namespace: String,
    /// Name of the ByoMachine.
    pub machine: String,
    /// Name of its MachineDeployment; empty without one.
    pub pool: String,
    /// Labels of suitable hosts.
    pub selector: Vec<Requirement>,
    /// Least capacity of suitable hosts.
    pub needs: BTreeMap<String, i64>,
    /// Host that was chosen before.
    pub promised: Option<String>,
}

/// The settings that a MachineDeployment has for all its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSettings {
    /// Pools of greater priority come first.
    pub priority: i32,
    /// Machines that come before any pool gets more than its minimum.
    pub minimum: u32,
    /// How machines spread over failure domains.
    pub spread: Spread,
}

impl PoolSettings {
    /// Reads annotations of a MachineDeployment.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        use millpond_api::capi::names::{MIN_SIZE, WEIGHT};
        let number = |key: &str| annotations.get(key).and_then(|text| text.trim().parse::<i64>().ok()).unwrap_or(0);
        let spread = match annotations.get(SPREAD).map(|text| text.trim()) {
            Some("soft") => Spread::Soft,
            Some("hard") => Spread::Hard,
            _ => Spread::None,
        };
        let clamped = |number: i64| i32::try_from(number).unwrap_or(0);
        Self { priority: clamped(number(WEIGHT)), minimum: clamped(number(MIN_SIZE)).max(0) as u32, spread }
    }
}

/// The requirements of a machine on the labels of hosts.
pub fn requirements(spec: &ByoMachineSpec) -> Result<Vec<Requirement>, Invalid> {
    let Some(selector) = &spec.selector else { return Ok(Vec::new()) };
    let convert = |one: millpond_api::selector::Requirement| {
        let operator = match one.operator {
            ApiOperator::In => Operator::In,
            ApiOperator::NotIn => Operator::NotIn,
            ApiOperator::Exists => Operator::Exists,
            _ => Operator::DoesNotExist,
        };
        Requirement { key: one.key, operator, values: one.values }
    };
    Ok(selector.requirements()?.into_iter().map(convert).collect())
}

/// Capacity of a host: what its agent reports, as administrators correct it.
pub fn capacity(host: &ByoHost) -> Amounts {
    let mut amounts = host.status.facts.capacity();
    amounts.0.extend(host.status.capacity.0.clone());
    amounts.0.extend(host.spec.capacity.0.clone());
    amounts
}

/// The inventory of hosts, in their order.
pub fn inventory<'h>(hosts: impl IntoIterator<Item = (&'h ByoHost, Life)>) -> Inventory {
    let mut inventory = Inventory::default();
    let mut domains: BTreeMap<String, u32> = BTreeMap::new();
    for (host, life) in hosts {
        let labels: Vec<(&str, &str)> =
            host.metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let capacity = capacity(host);
        let capacity: Vec<(&str, i64)> = capacity.iter().collect();
        let domain = host.metadata.labels.get(names::ZONE).map(|zone| {
            let next = domains.len() as u32;
            *domains.entry(zone.clone()).or_insert_with(|| {
                inventory.domains.push(zone.clone());
                next
            })
        });
        inventory.add(&host.metadata.name, &labels, &capacity, domain);
        if let Some(added) = inventory.hosts.last_mut() {
            added.availability = availability(host, life);
            added.priority = host.spec.priority;
        }
    }
    inventory
}

/// Pools of the matcher, and for each of their machines its number among the requests.
#[derive(Debug, Clone, Default)]
pub struct Pools {
    /// The pools.
    pub pools: Vec<Pool>,
    /// By pool and machine: the number of the request.
    pub requests: Vec<Vec<usize>>,
}

impl Pools {
    /// Puts machines that are alike together: those of one MachineDeployment that ask for the same hosts.
    pub fn of(
        requests: &[Request],
        settings: impl Fn(&str) -> PoolSettings,
        attached: impl Fn(&str) -> Vec<u32>,
    ) -> Self {
        let mut groups: BTreeMap<(&str, String, &BTreeMap<String, i64>), Vec<usize>> = BTreeMap::new();
        for (number, request) in requests.iter().enumerate() {
            let selector: Vec<String> = request.selector.iter().map(millpond_plan::matching::typed).collect();
            // A machine of its own is a pool of its own.
            let name = if request.pool.is_empty() { &request.machine } else { &request.pool };
            groups.entry((name, selector.join(","), &request.needs)).or_default().push(number);
        }
        let mut pools = Self::default();
        for ((name, _, needs), members) in groups {
            let PoolSettings { priority, minimum, spread } = settings(name);
            let machines = members.iter().map(|number| {
                let Request { machine, promised, .. } = &requests[*number];
                WaitingMachine { name: machine.clone(), promised: promised.clone() }
            });
            pools.pools.push(Pool {
                name: name.to_owned(),
                selector: requests[members[0]].selector.clone(),
                needs: needs.clone(),
                priority,
                minimum,
                attached: attached(name),
                spread,
                machines: machines.collect(),
            });
            pools.requests.push(members);
        }
        pools
    }
}

/// Machines of a pool that have a host, by the failure domains of the inventory; hosts without a domain come last.
pub fn attached_by_domain<'h>(
    inventory: &Inventory,
    hosts: impl IntoIterator<Item = &'h ByoHost>,
    pool: &str,
) -> Vec<u32> {
    let mut counts = vec![0; inventory.domains.len() + 1];
    for (host, seen) in hosts.into_iter().zip(&inventory.hosts) {
        if host.spec.claim.is_some() && host.status.pool == pool {
            counts[seen.domain.map_or(inventory.domains.len(), |domain| domain as usize)] += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use millpond_plan::matching::match_hosts;

    use super::*;

    fn request(machine: &str, pool: &str, purpose: &str) -> Request {
        Request {
            machine: machine.to_owned(),
            pool: pool.to_owned(),
            selector: vec![Requirement::equals("purpose", purpose)],
            ..Request::default()
        }
    }

    #[test]
    fn machines_of_one_deployment_are_one_pool() {
        let requests = [
            request("w-1", "worker-pool", "worker"),
            request("g-1", "gpu-pool", "gpu"),
            request("w-2", "worker-pool", "worker"),
            request("w-3", "worker-pool", "other"),
            request("alone", "", "worker"),
        ];
        let pools = Pools::of(&requests, |_| PoolSettings::default(), |_| Vec::new());
        let shown: Vec<_> = pools.pools.iter().map(|pool| (pool.name.as_str(), pool.machines.len())).collect();
        assert_eq!(shown, [("alone", 1), ("gpu-pool", 1), ("worker-pool", 1), ("worker-pool", 2)]);
        assert_eq!(pools.requests, [vec![4], vec![1], vec![3], vec![0, 2]]);
    }

    #[test]
    fn corrected_capacity_and_zones_reach_the_matcher() {
        let mut host = ByoHost::default();
        host.metadata.name = "node10".to_owned();
        host.metadata.labels.insert(names::ZONE.to_owned(), "rack-1".to_owned());
        host.status.facts.cpu.threads = 4;
        host.spec.capacity.0.insert("cpu".to_owned(), 2000);
        let alive = Life { alive: true, ..Life::default() };
        let inventory = inventory([(&host, alive)]);
        assert_eq!(inventory.domains, ["rack-1"]);
        let needs = |cpu| Request { needs: BTreeMap::from([("cpu".to_owned(), cpu)]), ..Request::default() };
        for (cpu, placed) in [(2000, 1), (3000, 0)] {
            let pools = Pools::of(&[needs(cpu)], |_| PoolSettings::default(), |_| Vec::new());
            assert_eq!(match_hosts(&inventory, &pools.pools).placed, placed, "{cpu}");
        }
    }

    #[test]
    fn annotations_say_how_a_pool_is_served() {
        let annotations = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let set = annotations(&[
            (SPREAD, "hard"),
            (millpond_api::capi::names::WEIGHT, "5"),
            (millpond_api::capi::names::MIN_SIZE, "2"),
        ]);
        assert_eq!(PoolSettings::of(&set), PoolSettings { priority: 5, minimum: 2, spread: Spread::Hard });
        assert_eq!(PoolSettings::of(&annotations(&[(SPREAD, "x")])), PoolSettings::default());
    }
}
