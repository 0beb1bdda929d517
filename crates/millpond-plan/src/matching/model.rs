//! Hosts, pools and machines, as the matcher sees them.

use std::collections::BTreeMap;

use crate::symbol::{Symbol, Symbols};

/// Every host, with its labels as symbols.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Label keys and values.
    pub symbols: Symbols,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// Names of failure domains; [`Host::domain`] is an index into it.
    pub domains: Vec<String>,
}

/// A host.
#[derive(Debug, Clone)]
pub struct Host {
    /// Name.
    pub name: String,
    /// Labels, sorted by key.
    pub labels: Vec<(Symbol, Symbol)>,
    /// Capacity by resource: thousandths of `cpu`, whole units of all others; sorted by resource.
    pub capacity: Vec<(Symbol, i64)>,
    /// Failure domain, as an index into [`Inventory::domains`].
    pub domain: Option<u32>,
    /// Whether it can be used.
    pub availability: Availability,
    /// Hosts of greater priority are taken first, all else equal.
    pub priority: i32,
}

/// Whether a host can be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Availability {
    /// Free, and its agent is alive.
    #[default]
    Free,
    /// Its agent has not reported yet.
    Registering,
    /// A machine holds it.
    Attached {
        /// The machine.
        machine: String,
    },
    /// Its agent resets it.
    Cleaning,
    /// Its agent does not renew its Lease.
    LeaseExpired {
        /// Seconds since the last renewal.
        seconds: i64,
    },
    /// An administrator paused it.
    Paused,
    /// It is kept out.
    Quarantined {
        /// Why it was quarantined.
        reason: String,
    },
    /// Its object is being deleted.
    Deleting,
    /// It is permanently out of service.
    Retired,
}

/// Equal machines that wait for hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Labels of suitable hosts; all requirements must hold.
    pub selector: Vec<Requirement>,
    /// Minimum capacity of suitable hosts.
    pub needs: BTreeMap<String, i64>,
    /// Pools of higher priority come first.
    pub priority: i32,
    /// Machines that the pool gets before any pool gets more than its minimum.
    pub minimum: u32,
    /// Machines that have a host already, by failure domain.
    pub attached: Vec<u32>,
    /// How machines spread over failure domains.
    pub spread: Spread,
    /// Machines that wait for a host.
    pub machines: Vec<WaitingMachine>,
}

/// A machine without a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitingMachine {
    /// Name.
    pub name: String,
    /// The host of an earlier assignment, to be kept if possible.
    pub promised: Option<String>,
}

/// How machines spread over failure domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// No spreading.
    #[default]
    None,
    /// Evenly, unless that uses a scarcer host.
    Soft,
    /// No domain holds more than its even share; machines wait instead.
    Hard,
}

/// A requirement on a label, as a label selector has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// How it is compared with `values`.
    pub operator: Operator,
    /// The values.
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values, or no such label.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

impl Requirement {
    /// The label has this value.
    pub fn equals(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] }
    }

    /// Whether a label of that value, or its absence, is fine.
    pub fn holds(&self, present: Option<&str>) -> bool {
        let listed = || present.is_some_and(|present| self.values.iter().any(|value| value == present));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => present.is_some(),
            Operator::DoesNotExist => present.is_none(),
        }
    }
}

/// Value of one device: more than any amount of cpu and memory.
const DEVICE_VALUE: i64 = 1 << 16;
/// Devices that count; more of them are worth the same.
const LIMIT_DEVICES: i64 = 64;

impl Inventory {
    /// Adds a free host.
    pub fn add(&mut self, name: &str, labels: &[(&str, &str)], capacity: &[(&str, i64)], domain: Option<u32>) {
        let mut labels: Vec<_> =
            labels.iter().map(|(key, value)| (self.symbols.intern(key), self.symbols.intern(value))).collect();
        labels.sort_unstable();
        let mut capacity: Vec<_> = capacity.iter().map(|(name, amount)| (self.symbols.intern(name), *amount)).collect();
        capacity.sort_unstable();
        let (name, availability) = (name.to_owned(), Availability::Free);
        self.hosts.push(Host { name, labels, capacity, domain, availability, priority: 0 });
    }

    /// Value of a label of a host.
    pub fn label(&self, host: usize, key: &str) -> Option<&str> {
        let key = self.symbols.find(key)?;
        let labels = &self.hosts[host].labels;
        labels.iter().find(|(label, _)| *label == key).map(|(_, value)| self.symbols.text(*value))
    }

    /// Amount of a resource of a host.
    pub fn amount(&self, host: usize, resource: &str) -> i64 {
        let Some(resource) = self.symbols.find(resource) else { return 0 };
        self.hosts[host].capacity.iter().find(|(name, _)| *name == resource).map_or(0, |(_, amount)| *amount)
    }

    /// What using a host costs later machines: devices first, then the order of magnitude of memory and cpu. Hosts of
    /// about the same size have equal values, so that they fall into one class.
    pub fn value(&self, host: usize) -> i64 {
        self.hosts[host].capacity.iter().map(|&(resource, amount)| value(self.symbols.text(resource), amount)).sum()
    }
}

/// Value of an amount of a resource.
pub(super) fn value(resource: &str, amount: i64) -> i64 {
    let magnitude = |amount: i64| i64::from(amount.max(1).ilog2());
    match resource {
        "memory" => 8 * magnitude(amount >> 30),
        "cpu" => magnitude(amount / 1000),
        "pods" | "ephemeral-storage" => 0,
        _ if resource.starts_with("hugepages-") => 0,
        _ => DEVICE_VALUE * amount.clamp(0, LIMIT_DEVICES),
    }
}
