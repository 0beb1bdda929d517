//! Whether the new nodes can be bought: pools, types, offerings, labels, stock, `minValues` and limits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::planned_cluster::PlannedCluster;
use super::violation::Violation;
use crate::model::{ClassId, Limits, Offering, PoolId, ResourceId, Resources, TypeId};
use crate::plan::NewNode;
use crate::requirement::Requirement;
use crate::symbol::Symbol;
use crate::taint::first_forbidding;

/// Checks every new node, then the sums over all of them.
pub(super) fn check(cluster: &mut PlannedCluster<'_>, found: &mut Vec<Violation>) {
    for (number, node) in cluster.plan.new_nodes.iter().enumerate() {
        offer(cluster, number, node, found);
        labels(cluster, number, node, found);
    }
    empty_nodes(cluster, found);
    stock(cluster, found);
    min_values(cluster, found);
    limits(cluster, found);
}

fn name(cluster: &PlannedCluster<'_>, number: usize) -> String {
    cluster.plan.node_name(cluster.snapshot, number)
}

fn offer(cluster: &PlannedCluster<'_>, number: usize, node: &NewNode, found: &mut Vec<Violation>) {
    let pool = &cluster.snapshot.pools[node.pool.index()];
    let closed = match (&pool.not_ready, pool.replicas) {
        (Some(why), _) => Some(format!("is not ready: {why}")),
        (None, Some(count)) => Some(format!("has a fixed size of {count}")),
        (None, None) => None,
    };
    if let Some(why) = closed {
        found.push(Violation::ClosedPool { node: name(cluster, number), why });
    }
    let instance_type = &cluster.snapshot.types[node.instance_type.index()];
    if !pool.types.contains(&node.instance_type) || pool.unnamed.contains(&node.instance_type) {
        let instance_type = cluster.snapshot.text(instance_type.name).to_owned();
        found.push(Violation::ForeignType { node: name(cluster, number), instance_type });
    }
    let offering = &instance_type.offerings[node.offering as usize];
    if !offering.available {
        found.push(Violation::Unavailable(name(cluster, number)));
    }
    if offering.price != node.price {
        let (planned, actual) = (node.price, offering.price);
        found.push(Violation::Price { node: name(cluster, number), planned, actual });
    }
}

/// The labels are what pool, type and offering allow together, nothing is missing and nothing is made up.
fn labels(cluster: &PlannedCluster<'_>, number: usize, node: &NewNode, found: &mut Vec<Violation>) {
    let (snapshot, names) = (cluster.snapshot, &cluster.snapshot.names);
    let (symbols, pool) = (&snapshot.symbols, &snapshot.pools[node.pool.index()]);
    let instance_type = &snapshot.types[node.instance_type.index()];
    let offering = &instance_type.offerings[node.offering as usize];
    let mut missing = |key| {
        let key = snapshot.text(key).to_owned();
        found.push(Violation::MissingLabel { node: name(cluster, number), key });
    };
    let mut wrong: Vec<(Symbol, Symbol, &'static str)> = Vec::new();

    let fixed = [
        (names.pool, pool.name.as_str(), "its pool"),
        (names.instance_type, snapshot.text(instance_type.name), "its type"),
        (names.zone, snapshot.text(offering.zone), "its offering"),
        (names.capacity_type, offering.capacity_type.name(), "its offering"),
    ];
    // A pool can say that its nodes come without them.
    let none = Requirement::does_not_exist();
    for (key, expected, against) in fixed {
        if pool.requirements.get(key) == Some(&none) {
            continue;
        }
        match node.labels.get(key) {
            None => missing(key),
            Some(value) if snapshot.text(value) != expected => wrong.push((key, value, against)),
            Some(_) => {}
        }
    }
    let of_type = instance_type.labels.iter().map(|(key, wanted)| (key, wanted, "its type"));
    let of_pool = pool.requirements.iter().map(|(key, wanted)| (key, wanted, "its pool"));
    for (key, wanted, against) in of_type.chain(of_pool) {
        match node.labels.get(key) {
            Some(value) if !wanted.contains(value, symbols) => wrong.push((key, value, against)),
            // Labels of `fixed` were compared above.
            None if fixed.iter().any(|(known, ..)| *known == key) => {}
            None if !wanted.allows_missing() && !is_anything(snapshot, key, wanted, instance_type) => missing(key),
            _ => {}
        }
    }
    for (key, value) in node.labels.iter() {
        let spoken_of = instance_type.labels.get(key).is_some() || pool.requirements.get(key).is_some();
        if key == names.hostname || !spoken_of && !fixed.iter().any(|(known, ..)| *known == key) {
            wrong.push((key, value, "given neither by the pool nor by the type"));
        }
    }
    wrong.sort_unstable();
    wrong.dedup_by_key(|(key, ..)| *key);
    for (key, value, against) in wrong {
        let (key, value) = (snapshot.text(key).to_owned(), snapshot.text(value).to_owned());
        found.push(Violation::Label { node: name(cluster, number), key, value, against });
    }
}

/// Whether a pool requires a label of its own with any value (`Exists`): the value is generated when the node is
/// created, so no pod can rely on it.
fn is_anything(
    snapshot: &crate::model::Snapshot,
    key: Symbol,
    wanted: &Requirement,
    instance_type: &crate::model::InstanceType,
) -> bool {
    let (_, all_but) = wanted.named();
    all_but && instance_type.labels.get(key).is_none() && !snapshot.well_known.contains(&key)
}

/// Nodes without pods are bought only for pools that would otherwise be below their least.
fn empty_nodes(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let first = cluster.snapshot.nodes.len();
    let empty = |number: &usize| cluster.groups_of(first + number).iter().all(|group| group.planned == 0);
    let mut spare: HashMap<PoolId, i128> = HashMap::new();
    for number in (0..cluster.plan.new_nodes.len()).filter(empty) {
        let pool = cluster.plan.new_nodes[number].pool;
        let spare = spare.entry(pool).or_insert_with(|| {
            let least = i128::from(cluster.snapshot.pools[pool.index()].min_nodes);
            cluster.node_count_after(pool) as i128 - least
        });
        if *spare > 0 {
            *spare -= 1;
            found.push(Violation::EmptyNode(name(cluster, number)));
        }
    }
}

fn stock(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let mut bought: BTreeMap<(TypeId, u32), usize> = BTreeMap::new();
    for node in &cluster.plan.new_nodes {
        *bought.entry((node.instance_type, node.offering)).or_default() += 1;
    }
    for ((of, offering), bought) in bought {
        let instance_type = &cluster.snapshot.types[of.index()];
        let Offering { zone, left: Some(left), .. } = instance_type.offerings[offering as usize] else { continue };
        if bought > left as usize {
            let instance_type = cluster.snapshot.text(instance_type.name).to_owned();
            let zone = cluster.snapshot.text(zone).to_owned();
            found.push(Violation::Stock { instance_type, zone, bought, left });
        }
    }
}

/// For each key of a pool with `minValues`, the types that could hold the pods of the node have at least that many
/// values.
fn min_values(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let mut known: HashMap<(PoolId, Symbol, Vec<(ClassId, u32)>), usize> = HashMap::new();
    for (number, node) in cluster.plan.new_nodes.iter().enumerate() {
        let pool = &cluster.snapshot.pools[node.pool.index()];
        for (key, requirement) in pool.requirements.iter() {
            let Some(wanted) = requirement.min_values() else { continue };
            let groups = cluster.groups_of(cluster.snapshot.nodes.len() + number).iter();
            let pods: Vec<_> =
                groups.filter(|group| group.planned > 0).map(|group| (group.class, group.planned)).collect();
            let entry = known.entry((node.pool, key, pods));
            let pods = entry.key().2.clone();
            let values = *entry.or_insert_with(|| Alternatives { cluster, node, pods: &pods }.values(key).len());
            if values < wanted as usize {
                let key = cluster.snapshot.text(key).to_owned();
                found.push(Violation::MinValues { node: name(cluster, number), key, found: values, wanted });
            }
        }
    }
}

/// The other types of the same pool that could hold the pods of a new node.
struct Alternatives<'w> {
    cluster: &'w PlannedCluster<'w>,
    node: &'w NewNode,
    pods: &'w [(ClassId, u32)],
}

impl Alternatives<'_> {
    /// The values of a label over all types that would do.
    fn values(&self, key: Symbol) -> BTreeSet<Symbol> {
        let (snapshot, names) = (self.cluster.snapshot, &self.cluster.snapshot.names);
        let pool = &snapshot.pools[self.node.pool.index()];
        let mut values = BTreeSet::new();
        for &of in &pool.types {
            let instance_type = &snapshot.types[of.index()];
            for offering in instance_type.offerings.iter().filter(|one| one.available && one.left != Some(0)) {
                if !self.would_do(of, offering) {
                    continue;
                }
                if key == names.zone {
                    values.insert(offering.zone);
                } else if key == names.capacity_type {
                    values.extend(snapshot.symbols.find(offering.capacity_type.name()));
                } else if let Some(labels) = instance_type.labels.get(key) {
                    let wanted = pool.requirements.get(key);
                    let allowed =
                        |value: &Symbol| wanted.is_none_or(|wanted| wanted.contains(*value, &snapshot.symbols));
                    values.extend(labels.named().0.iter().copied().filter(allowed));
                }
            }
        }
        values
    }

    fn would_do(&self, of: TypeId, offering: &Offering) -> bool {
        let snapshot = self.cluster.snapshot;
        let (symbols, pool) = (&snapshot.symbols, &snapshot.pools[self.node.pool.index()]);
        let instance_type = &snapshot.types[of.index()];
        let label = |key| self.label(of, offering, key);
        let agree = pool.requirements.iter().all(|(key, wanted)| {
            wanted.allows(label(key), symbols)
                || label(key).is_none() && is_anything(snapshot, key, wanted, instance_type)
        });
        if !agree {
            return false;
        }
        let matches =
            |terms: &[crate::requirement::Requirements]| terms.iter().any(|term| term.match_labels(label, symbols));
        let suits = |class: ClassId| {
            let class = self.cluster.class(class);
            matches(&class.node_terms) && class.volume_terms.iter().all(|terms| matches(terms))
        };
        let mut asked = Resources::new();
        for &(class, count) in self.pods {
            if !suits(class) {
                return false;
            }
            asked.add_times(&self.cluster.class(class).requests, i64::from(count));
        }
        let mut free = instance_type.allocatable.clone();
        for &daemon in &snapshot.daemons {
            let class = self.cluster.class(daemon);
            let tolerates = first_forbidding(&pool.taints, &class.tolerations, symbols).is_none();
            if tolerates && matches(&class.node_terms) {
                free.subtract(&class.requests);
            }
        }
        free.first_lacking(&asked).is_none()
    }

    /// The label that a node of the type would have: that of the node itself where the type leaves it open.
    fn label(&self, of: TypeId, offering: &Offering, key: Symbol) -> Option<Symbol> {
        let (snapshot, names) = (self.cluster.snapshot, &self.cluster.snapshot.names);
        let instance_type = &snapshot.types[of.index()];
        let of_pool = snapshot.pools[self.node.pool.index()].requirements.get(key);
        if of_pool == Some(&Requirement::does_not_exist()) {
            return None;
        }
        if key == names.zone {
            return Some(offering.zone);
        }
        if key == names.capacity_type {
            return snapshot.symbols.find(offering.capacity_type.name());
        }
        if key == names.hostname || key == names.node_name {
            return Some(names.hostname);
        }
        let own = self.node.labels.get(key);
        let Some(values) = instance_type.labels.get(key) else {
            let of_pool = snapshot.pools[self.node.pool.index()].requirements.get(key).is_some();
            return own.filter(|_| of_pool);
        };
        let own = own.filter(|value| values.contains(*value, &snapshot.symbols));
        let wanted = snapshot.pools[self.node.pool.index()].requirements.get(key);
        let allowed = |value: &&Symbol| wanted.is_none_or(|wanted| wanted.contains(**value, &snapshot.symbols));
        own.or_else(|| values.named().0.iter().find(allowed).copied())
    }
}

/// The sums over the nodes of a pool, or of all pools.
#[derive(Default)]
struct Sum {
    nodes: i128,
    price: i128,
    capacity: BTreeMap<ResourceId, i128>,
    /// New nodes.
    bought: usize,
    bought_capacity: Resources,
}

impl Sum {
    fn add(&mut self, capacity: &Resources, price: u64) {
        self.nodes += 1;
        self.price += i128::from(price);
        for (resource, amount) in capacity.iter() {
            *self.capacity.entry(resource).or_default() += i128::from(amount);
        }
    }
}

/// All nodes, including those being removed and those bought, stay within the limits of every pool and of the cluster.
/// An exceeded limit matters only if the plan buys some of what it limits.
fn limits(cluster: &PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let snapshot = cluster.snapshot;
    let mut pools: Vec<Sum> = snapshot.pools.iter().map(|_| Sum::default()).collect();
    let mut all = Sum::default();
    for node in &snapshot.nodes {
        if let Some(pool) = node.pool {
            pools[pool.index()].add(&node.capacity, node.price.unwrap_or(0));
            all.add(&node.capacity, node.price.unwrap_or(0));
        }
    }
    for node in &cluster.plan.new_nodes {
        let capacity = &snapshot.types[node.instance_type.index()].capacity;
        for sum in [&mut pools[node.pool.index()], &mut all] {
            sum.add(capacity, node.price);
            sum.bought += 1;
            sum.bought_capacity.add(capacity);
        }
    }
    for (pool, sum) in snapshot.pools.iter().zip(&pools) {
        within(cluster, &format!("pool {}", pool.name), sum, &pool.limits, found);
    }
    within(cluster, "the cluster", &all, &snapshot.limits, found);
}

fn within(cluster: &PlannedCluster<'_>, of: &str, sum: &Sum, limits: &Limits, found: &mut Vec<Violation>) {
    if sum.bought == 0 {
        return;
    }
    let resources = limits.resources.iter().filter(|(resource, _)| sum.bought_capacity.get(*resource) > 0);
    let resources = resources.map(|(resource, limit)| {
        let used = sum.capacity.get(resource).copied().unwrap_or(0);
        (cluster.snapshot.resources.name(*resource).to_owned(), used, i128::from(*limit))
    });
    let nodes = limits.nodes.map(|limit| ("nodes".to_owned(), sum.nodes, i128::from(limit)));
    let price = limits.price.map(|limit| ("price".to_owned(), sum.price, i128::from(limit)));
    for (what, used, limit) in resources.chain(nodes).chain(price) {
        if used > limit {
            found.push(Violation::Limit { of: of.to_owned(), what, used, limit });
        }
    }
}
