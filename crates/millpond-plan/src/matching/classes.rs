//! Free hosts in classes: hosts of one class are equal to every pool.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::model::{Availability, Inventory, Operator, Pool, Requirement, value};
use crate::symbol::{Symbol, Symbols};

struct Class {
    /// Hosts, the next one to be taken last.
    hosts: Vec<u32>,
    domain: usize,
    value: i64,
    suits: Vec<bool>,
    selected_by: usize,
}

/// Classes of free hosts.
pub(super) struct Classes(Vec<Class>);

/// The properties of a host that matter: labels that a selector names, the largest threshold of each need that it
/// reaches, its domain and value.
struct Relevance {
    /// By symbol of a label key: whether a selector names it.
    keys: Vec<bool>,
    /// By symbol of a resource: amounts that some pool needs, ascending.
    thresholds: HashMap<Symbol, Vec<i64>, FixedState>,
    /// By symbol of a resource: whether its amount has a value.
    resources: Vec<Option<ResourceKind>>,
}

#[derive(Clone, Copy)]
struct ResourceKind {
    is_valued: bool,
}

impl Relevance {
    fn of(inventory: &Inventory, pools: &[Pool]) -> Self {
        let symbols = &inventory.symbols;
        let mut keys = vec![false; symbols.len()];
        let mut needs: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for pool in pools {
            for requirement in &pool.selector {
                if let Some(key) = symbols.find(&requirement.key) {
                    keys[key.index()] = true;
                }
            }
            for (resource, amount) in &pool.needs {
                needs.entry(resource).or_default().push(*amount);
            }
        }
        let mut thresholds = HashMap::with_hasher(FixedState::default());
        for (resource, mut amounts) in needs {
            amounts.sort_unstable();
            amounts.dedup();
            if let Some(resource) = symbols.find(resource) {
                thresholds.insert(resource, amounts);
            }
        }
        Self { keys, thresholds, resources: vec![None; symbols.len()] }
    }

    /// Writes the key of a host and returns its value.
    fn key(&mut self, inventory: &Inventory, host: usize, key: &mut Vec<u64>) -> i64 {
        let host = &inventory.hosts[host];
        key.clear();
        for &(label, present) in &host.labels {
            if self.keys[label.index()] {
                key.push((label.index() as u64) << 32 | present.index() as u64);
            }
        }
        let mut total = 0;
        for &(resource, amount) in &host.capacity {
            let kind = *self.resources[resource.index()].get_or_insert_with(|| ResourceKind {
                is_valued: value(inventory.symbols.text(resource), i64::MAX) > 0,
            });
            if kind.is_valued {
                total += value(inventory.symbols.text(resource), amount);
            }
            if let Some(thresholds) = self.thresholds.get(&resource) {
                let reached = thresholds.partition_point(|threshold| *threshold <= amount) as u64;
                key.push(1 << 63 | (resource.index() as u64) << 32 | reached);
            }
        }
        key.push(host.domain.map_or(0, |domain| u64::from(domain) + 1));
        key.push(total as u64);
        total
    }
}

/// A requirement with symbols in the place of texts.
struct Compiled {
    key: Option<Symbol>,
    operator: Operator,
    values: Vec<Symbol>,
}

impl Compiled {
    fn new(requirement: &Requirement, symbols: &Symbols) -> Self {
        let values = requirement.values.iter().filter_map(|value| symbols.find(value)).collect();
        Self { key: symbols.find(&requirement.key), operator: requirement.operator, values }
    }

    fn holds(&self, labels: &[(Symbol, Symbol)]) -> bool {
        let present = self.key.and_then(|key| labels.iter().find(|(label, _)| *label == key)).map(|(_, value)| value);
        let listed = || present.is_some_and(|present| self.values.contains(present));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => present.is_some(),
            Operator::DoesNotExist => present.is_none(),
        }
    }
}

impl Classes {
    /// Classes of the hosts that are free and not taken, in the order of their first host.
    pub(super) fn build(inventory: &Inventory, pools: &[Pool], taken: &[bool]) -> Self {
        let mut relevance = Relevance::of(inventory, pools);
        let mut numbers: HashMap<Box<[u64]>, usize, FixedState> = HashMap::with_hasher(FixedState::default());
        let mut classes: Vec<Class> = Vec::new();
        let mut key = Vec::new();
        for (host, _) in taken.iter().enumerate().filter(|(_, taken)| !**taken) {
            if inventory.hosts[host].availability != Availability::Free {
                continue;
            }
            let value = relevance.key(inventory, host, &mut key);
            match numbers.get(key.as_slice()) {
                Some(&class) => classes[class].hosts.push(host as u32),
                None => {
                    numbers.insert(key.clone().into_boxed_slice(), classes.len());
                    let domain = inventory.hosts[host].domain.map_or(0, |domain| domain as usize + 1);
                    let domain = if domain == 0 { inventory.domains.len() } else { domain - 1 };
                    classes.push(Class { hosts: vec![host as u32], domain, value, suits: Vec::new(), selected_by: 0 });
                }
            }
        }
        let mut all = Self(classes);
        all.compare(inventory, pools);
        all.sort(inventory);
        all
    }

    fn compare(&mut self, inventory: &Inventory, pools: &[Pool]) {
        let compile = |pool: &Pool| {
            let selector: Vec<_> =
                pool.selector.iter().map(|requirement| Compiled::new(requirement, &inventory.symbols)).collect();
            selector
        };
        let selectors: Vec<_> = pools.iter().map(compile).collect();
        for class in &mut self.0 {
            let host = class.hosts[0] as usize;
            let labels = &inventory.hosts[host].labels;
            for (pool, selector) in pools.iter().zip(&selectors) {
                let suits = selector.iter().all(|requirement| requirement.holds(labels))
                    && pool.needs.iter().all(|(resource, amount)| inventory.amount(host, resource) >= *amount);
                class.suits.push(suits);
                class.selected_by += usize::from(suits && !selector.is_empty());
            }
        }
    }

    /// The host to take first comes last: greatest priority, then name.
    fn sort(&mut self, inventory: &Inventory) {
        for class in &mut self.0 {
            class.hosts.sort_by(|one, other| {
                let (one, other) = (&inventory.hosts[*one as usize], &inventory.hosts[*other as usize]);
                one.priority.cmp(&other.priority).then_with(|| other.name.cmp(&one.name))
            });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn suits(&self, class: usize, pool: usize) -> bool {
        self.0[class].suits[pool]
    }

    /// Pools with a selector that name hosts of the class.
    pub(super) fn selected_by(&self, class: usize) -> usize {
        self.0[class].selected_by
    }

    /// Index of the failure domain; hosts without one share the index after the last.
    pub(super) fn domain(&self, class: usize) -> usize {
        self.0[class].domain
    }

    pub(super) fn value(&self, class: usize) -> i64 {
        self.0[class].value
    }

    pub(super) fn hosts(&self, class: usize) -> &[u32] {
        &self.0[class].hosts
    }

    /// Takes the next host of a class.
    pub(super) fn take(&mut self, class: usize) -> Option<u32> {
        self.0[class].hosts.pop()
    }
}
