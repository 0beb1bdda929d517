//! Whether pools of greater weight are used first, as far as their limits go.
//!
//! A pod on a new node is in the wrong pool if it could move to a pool of greater weight with everything else
//! unchanged: to another new node with free capacity, or to one more node that limits and stock allow. That can be
//! checked without making another plan; it does not show which of several full pools is the best.
//!
//! Checked for pods without topology rules and host ports, and for pools without `minValues`. If the labels of one more
//! node would be open, the pool is given the benefit of the doubt. Plans that remove nodes are left out, because a
//! replacement has to be cheaper whatever the weights are.

use std::collections::{BTreeMap, HashMap};

use super::planned_cluster::{Group, PlannedCluster};
use super::violation::Violation;
use crate::model::{
    AffinityTerm, ClassId, Labels, Limits, Namespaces, Offering, PodClass, Pool, PoolId, Resources, Snapshot, TypeId,
};
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;
use crate::taint::first_forbidding;

/// Whether pools differ in weight.
pub(super) fn may_differ(snapshot: &Snapshot) -> bool {
    snapshot.pools.windows(2).any(|pair| pair[0].weight != pair[1].weight)
}

/// Checks the pods of every new node.
pub(super) fn check(cluster: &mut PlannedCluster<'_>, found: &mut Vec<Violation>) {
    if !cluster.plan.removals.is_empty() {
        return;
    }
    let (snapshot, first) = (cluster.snapshot, cluster.snapshot.nodes.len());
    let ruled = ruled(snapshot);
    let mut more = OneMore::new(cluster);
    // Pods of one class in pools of one weight have the same answer.
    let mut known: HashMap<(ClassId, i32), Option<(PoolId, String)>> = HashMap::new();
    for number in 0..cluster.plan.new_nodes.len() {
        let weight = snapshot.pools[cluster.plan.new_nodes[number].pool.index()].weight;
        for index in cluster.sites[first + number].groups.clone() {
            let Group { class, planned, .. } = cluster.groups[index];
            if planned == 0 || ruled[class.index()] {
                continue;
            }
            let better = known.entry((class, weight)).or_insert_with(|| better(cluster, &mut more, class, weight));
            if let Some((pool, capacity)) = better {
                let (pod, node) = (cluster.pod_name(&cluster.groups[index]), cluster.site_name(first + number));
                let pool = snapshot.pools[pool.index()].name.clone();
                found.push(Violation::Weight { pod, node, pool, capacity: capacity.clone() });
            }
        }
    }
}

/// The capacity of a pool above a weight that one more pod of a class could have.
fn better(
    cluster: &mut PlannedCluster<'_>,
    more: &mut OneMore,
    class: ClassId,
    weight: i32,
) -> Option<(PoolId, String)> {
    for index in 0..cluster.snapshot.pools.len() {
        let pool = &cluster.snapshot.pools[index];
        let flexible = pool.requirements.iter().all(|(_, one)| one.min_values().is_none());
        let open = pool.not_ready.is_none() && pool.replicas.is_none();
        if pool.weight <= weight || !flexible || !open {
            continue;
        }
        let id = PoolId::from(index);
        let capacity = node_with_room(cluster, id, class).or_else(|| more.node_for(cluster, id, class));
        if let Some(capacity) = capacity {
            return Some((id, capacity));
        }
    }
    None
}

/// A new node of the pool with free capacity for a pod of the class.
fn node_with_room(cluster: &mut PlannedCluster<'_>, pool: PoolId, class: ClassId) -> Option<String> {
    let first = cluster.snapshot.nodes.len();
    for number in 0..cluster.plan.new_nodes.len() {
        let site = first + number;
        if cluster.plan.new_nodes[number].pool != pool || !cluster.affinity_allows(class, site) {
            continue;
        }
        let volumes = &cluster.class(class).volume_terms;
        if !cluster.tolerates(class, site) || !volumes.iter().all(|terms| cluster.satisfies(site, terms)) {
            continue;
        }
        let mut free = cluster.allocatable(site).clone();
        for group in cluster.groups_of(site) {
            let requests = &cluster.class(group.class).requests;
            (0..group.total()).for_each(|_| free.subtract(requests));
        }
        if free.first_lacking(&cluster.class(class).requests).is_none() {
            return Some(format!("node {} has room", cluster.site_name(site)));
        }
    }
    None
}

/// The nodes that limits and stock allow in addition to the plan.
struct OneMore {
    /// Capacity, nodes and price that each pool has in the end, nodes that leave included; the last is the sum.
    used: Vec<(Resources, u64, u128)>,
    bought: BTreeMap<(TypeId, u32), u32>,
}

impl OneMore {
    fn new(cluster: &PlannedCluster<'_>) -> Self {
        let snapshot = cluster.snapshot;
        let all = snapshot.pools.len();
        let mut more = Self { used: vec![Default::default(); all + 1], bought: BTreeMap::new() };
        let mut count = |pool: PoolId, capacity: &Resources, price: u64| {
            for index in [pool.index(), all] {
                let (resources, nodes, cost) = &mut more.used[index];
                resources.add(capacity);
                *nodes += 1;
                *cost += u128::from(price);
            }
        };
        for node in &snapshot.nodes {
            if let Some(pool) = node.pool {
                count(pool, &node.capacity, node.price.unwrap_or(0));
            }
        }
        for node in &cluster.plan.new_nodes {
            count(node.pool, &snapshot.types[node.instance_type.index()].capacity, node.price);
            *more.bought.entry((node.instance_type, node.offering)).or_default() += 1;
        }
        more
    }

    /// A type of a pool, one more node of which could hold a pod.
    fn node_for(&mut self, cluster: &PlannedCluster<'_>, pool: PoolId, class: ClassId) -> Option<String> {
        let snapshot = cluster.snapshot;
        for &of in &snapshot.pools[pool.index()].types {
            let instance_type = &snapshot.types[of.index()];
            for (number, offering) in instance_type.offerings.iter().enumerate() {
                let bought = self.bought.get(&(of, number as u32)).copied().unwrap_or(0);
                let in_stock = offering.available && offering.left.is_none_or(|left| bought < left);
                let node = Prospect { snapshot, pool: &snapshot.pools[pool.index()], of, offering };
                if in_stock && self.is_within(pool, &node) && node.could_hold(cluster.class(class)) {
                    let (name, zone) = (snapshot.text(instance_type.name), snapshot.text(offering.zone));
                    return Some(format!("its limits allow one more {name} in {zone}"));
                }
            }
        }
        None
    }

    fn is_within(&self, pool: PoolId, node: &Prospect<'_>) -> bool {
        let capacity = &node.snapshot.types[node.of.index()].capacity;
        let allows = |limits: &Limits, (resources, nodes, price): &(Resources, u64, u128)| {
            let mut limited = limits.resources.iter();
            limited.all(|&(resource, most)| resources.get(resource).saturating_add(capacity.get(resource)) <= most)
                && limits.nodes.is_none_or(|most| *nodes < most)
                && limits.price.is_none_or(|most| price + u128::from(node.offering.price) <= u128::from(most))
        };
        allows(&node.pool.limits, &self.used[pool.index()])
            && allows(&node.snapshot.limits, &self.used[node.snapshot.pools.len()])
    }
}

/// A node that could be bought.
struct Prospect<'a> {
    snapshot: &'a Snapshot,
    pool: &'a Pool,
    of: TypeId,
    offering: &'a Offering,
}

/// What is known about a label of a node that is not bought yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Is(Option<Symbol>),
    /// One of several values, chosen at launch.
    Open,
}

impl Prospect<'_> {
    /// Whether the node certainly could hold one pod of the class.
    fn could_hold(&self, class: &PodClass) -> bool {
        let symbols = &self.snapshot.symbols;
        let of_type = &self.snapshot.types[self.of.index()].labels;
        let agree = |(key, wanted): (Symbol, &Requirement)| match self.label(key) {
            Label::Is(value) => wanted.allows(value, symbols),
            Label::Open => {
                let both = of_type.get(key).map(|of_type| of_type.intersection(wanted, symbols));
                !both.as_ref().unwrap_or(wanted).is_impossible(symbols)
            }
        };
        if !self.pool.requirements.iter().all(agree)
            || first_forbidding(&self.pool.taints, &class.tolerations, symbols).is_some()
            || !self.satisfies(&class.node_terms)
            || !class.volume_terms.iter().all(|terms| self.satisfies(terms))
        {
            return false;
        }
        let mut free = self.snapshot.types[self.of.index()].allocatable.clone();
        for daemon in &self.snapshot.daemons {
            let daemon = &self.snapshot.classes[daemon.index()];
            let tolerates = first_forbidding(&self.pool.taints, &daemon.tolerations, symbols).is_none();
            if tolerates && (self.leaves_open(&daemon.node_terms) || self.satisfies(&daemon.node_terms)) {
                free.subtract(&daemon.requests);
            }
        }
        free.first_lacking(&class.requests).is_none()
    }

    /// Whether the node certainly satisfies one of several alternatives.
    fn satisfies(&self, terms: &[Requirements]) -> bool {
        let symbols = &self.snapshot.symbols;
        let holds = |(key, wanted): (Symbol, &Requirement)| match self.label(key) {
            Label::Is(value) => wanted.allows(value, symbols),
            Label::Open => false,
        };
        terms.iter().any(|term| term.iter().all(holds))
    }

    fn leaves_open(&self, terms: &[Requirements]) -> bool {
        terms.iter().flat_map(Requirements::iter).any(|(key, _)| self.label(key) == Label::Open)
    }

    fn label(&self, key: Symbol) -> Label {
        let names = &self.snapshot.names;
        let of_pool = self.pool.requirements.get(key);
        let of_type = self.snapshot.types[self.of.index()].labels.get(key);
        let of_offering = [names.zone, names.capacity_type, names.pool].contains(&key);
        // A pool can do without the labels of an offering, not without those of a type.
        if of_pool == Some(&Requirement::does_not_exist()) && (of_offering || of_type.is_none()) {
            return Label::Is(None);
        }
        if key == names.zone {
            return Label::Is(Some(self.offering.zone));
        }
        if key == names.capacity_type {
            return Label::Is(self.snapshot.symbols.find(self.offering.capacity_type.name()));
        }
        if key == names.pool {
            return Label::Is(self.snapshot.symbols.find(&self.pool.name));
        }
        if key == names.hostname || key == names.node_name {
            return Label::Open;
        }
        let only = |wanted: &Requirement| wanted.only_value().map_or(Label::Open, |value| Label::Is(Some(value)));
        match (of_type, of_pool) {
            (None, None) => Label::Is(None),
            (Some(one), None) => only(one),
            // A label that providers set is there only if the type has it.
            (None, Some(_)) if self.snapshot.well_known.contains(&key) => Label::Is(None),
            (None, Some(one)) => only(one),
            (Some(of_type), Some(of_pool)) => only(&of_type.intersection(of_pool, &self.snapshot.symbols)),
        }
    }
}

/// Classes that a rule between pods concerns: their own, or one of others that counts them; and those with host ports.
fn ruled(snapshot: &Snapshot) -> Vec<bool> {
    let selects = |selector: Option<&Requirements>, labels: &Labels| {
        selector.is_some_and(|selector| crate::model::selects(selector, labels, &snapshot.symbols))
    };
    let term_selects = |term: &AffinityTerm, class: &PodClass| {
        let inside = match &term.namespaces {
            Namespaces::All => true,
            Namespaces::These(these) => these.contains(&class.namespace),
        };
        inside && selects(term.selector.as_ref(), &class.labels)
    };
    let concerns = |other: &PodClass, class: &PodClass| {
        let spread = other.spread.iter().filter(|spread| spread.hard);
        let mut spread = spread.map(|spread| selects(spread.selector.as_ref(), &class.labels));
        spread.any(|selected| selected && other.namespace == class.namespace)
            || other.affinity.iter().chain(&other.anti_affinity).any(|term| term_selects(term, class))
    };
    let of_its_own = |class: &PodClass| {
        class.spread.iter().any(|spread| spread.hard)
            || !(class.affinity.is_empty() && class.anti_affinity.is_empty() && class.host_ports.is_empty())
    };
    let with_rules: Vec<&PodClass> = snapshot.classes.iter().filter(|class| of_its_own(class)).collect();
    let is_ruled = |class: &PodClass| of_its_own(class) || with_rules.iter().any(|other| concerns(other, class));
    snapshot.classes.iter().map(is_ruled).collect()
}
