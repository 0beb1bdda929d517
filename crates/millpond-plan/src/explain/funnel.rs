//! The funnel: what a pool could buy for a class, and what each rule in turn takes out.
//!
//! A [`Step`] is one rule on one subject (a label, a resource, a limit) with the offers that are left after it.
//! The first step that leaves nothing is why the pool does not take the pod.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster_state::{ClusterState, NodeSlotId};
use crate::market::{Market, Usage};
use crate::model::{ClassId, HostPort, Limits, PodClass, PoolId, ResourceId, Snapshot, TypeId};
use crate::pack::BitSet;
use crate::plan::Rule;
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;
use crate::taint::{self, Taint};
use crate::topology::{Topology, TopologyNode};

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The pool or the pod as a whole.
    Whole,
    /// A taint of the pool.
    Taint(Taint),
    /// A label of nodes.
    Label(Symbol),
    /// Alternatives of node affinity, of which one must hold.
    Alternatives,
    /// One of the pod's volumes, by its number.
    Volume(u32),
    /// A resource.
    Resource(ResourceId),
    /// A limit on the number of nodes.
    Nodes,
    /// A limit on the price.
    Price,
}

/// A rule with the offers that pass it and all rules before.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) rule: Rule,
    pub(super) subject: Subject,
    /// Offers that pass.
    pub(super) left: BitSet,
}

/// A class that asks every pool, and the state in which it asks.
pub(super) struct Inquiry<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) market: &'a Market,
    pub(super) topology: &'a Topology,
    pub(super) usage: &'a [Usage],
    pub(super) class: ClassId,
    /// Reserved capacity that planned nodes have taken.
    taken: BTreeMap<(TypeId, u32), u32>,
    /// The slot number that a further node would get.
    next_spot: u32,
}

impl<'a> Inquiry<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        market: &'a Market,
        cluster: &'a ClusterState<'_>,
        usage: &'a [Usage],
        class: ClassId,
    ) -> Self {
        let mut taken = BTreeMap::new();
        for spot in snapshot.nodes.len()..cluster.len() {
            let offer = cluster.offer(NodeSlotId(spot as u32)).map(|offer| market.offer(offer));
            if let Some(offer) = offer.filter(|offer| offer.left.is_some()) {
                *taken.entry((offer.instance_type, offer.offering)).or_default() += 1;
            }
        }
        Self { snapshot, market, topology: cluster.topology(), usage, class, taken, next_spot: cluster.len() as u32 }
    }

    pub(super) fn class(&self) -> &'a PodClass {
        &self.snapshot.classes[self.class.index()]
    }

    /// The rules that a pool is asked, up to the first that leaves nothing.
    pub(super) fn funnel(&self, pool: PoolId) -> Vec<Step> {
        let mut funnel = Funnel { left: self.market.of_pool(pool).clone(), steps: Vec::new() };
        let asked = [
            Self::ask_pool,
            Self::ask_taints,
            Self::ask_labels,
            Self::ask_volumes,
            Self::ask_resources,
            Self::ask_stock,
            Self::ask_min_values,
            Self::ask_ports,
            Self::ask_topology,
            Self::ask_pool_limit,
            Self::ask_cluster_limit,
        ];
        for ask in asked {
            ask(self, pool, &mut funnel);
            if funnel.steps.last().is_some_and(|step| step.left.is_empty()) {
                break;
            }
        }
        funnel.steps
    }

    /// The number of labels that the class asks for and nodes of the pool cannot have. Labels that every cluster has
    /// (zone, architecture, type) do not count: they do not pick a pool, as its name and labels of its own do.
    pub(super) fn label_distance(&self, pool: PoolId) -> usize {
        let snapshot = self.snapshot;
        let of = &snapshot.pools[pool.index()];
        let is_usual = |key: Symbol| key != snapshot.names.pool && snapshot.well_known.contains(&key);
        let lacks = |(key, wanted): (Symbol, &Requirement)| match of.requirements.get(key) {
            Some(has) => !has.intersects(wanted, &snapshot.symbols),
            None => !wanted.allows_missing(),
        };
        let of_term =
            |term: &Requirements| term.iter().filter(|(key, wanted)| !is_usual(*key) && lacks((*key, wanted))).count();
        self.class().node_terms.iter().map(of_term).min().unwrap_or_default()
    }

    /// Whether a pool that is not ready would have something for the class if it were, stock and limits aside.
    pub(super) fn would_take(&self, pool: PoolId) -> bool {
        if self.snapshot.pools[pool.index()].not_ready.is_none() {
            return false;
        }
        let mut funnel = Funnel { left: self.market.of_pool(pool).clone(), steps: Vec::new() };
        for ask in [Self::ask_taints, Self::ask_labels, Self::ask_volumes, Self::ask_resources] {
            ask(self, pool, &mut funnel);
        }
        !funnel.left.is_empty()
    }

    fn ask_pool(&self, pool: PoolId, funnel: &mut Funnel) {
        let of = &self.snapshot.pools[pool.index()];
        if self.class().problem.is_some() {
            funnel.nothing(Rule::Pod, Subject::Whole);
        } else if of.not_ready.is_some() || of.replicas.is_some() {
            funnel.nothing(Rule::PoolNotReady, Subject::Whole);
        } else {
            funnel.keep(Rule::PoolRequirements, Subject::Whole, |_| true);
        }
    }

    fn ask_taints(&self, pool: PoolId, funnel: &mut Funnel) {
        let taints = &self.snapshot.pools[pool.index()].taints;
        match taint::first_forbidding(taints, &self.class().tolerations, &self.snapshot.symbols) {
            Some(taint) => funnel.nothing(Rule::Taints, Subject::Taint(*taint)),
            None => funnel.keep(Rule::Taints, Subject::Whole, |_| true),
        }
    }

    fn ask_labels(&self, _: PoolId, funnel: &mut Funnel) {
        match &self.class().node_terms[..] {
            [term] => {
                for (key, requirement) in by_text(self.snapshot, term.iter()) {
                    let satisfying = self.market.satisfying(key, requirement, self.snapshot);
                    funnel.intersect(Rule::NodeAffinity, Subject::Label(key), &satisfying);
                }
            }
            terms => {
                let satisfying = self.market.satisfying_terms(terms, self.snapshot);
                funnel.intersect(Rule::NodeAffinity, Subject::Alternatives, &satisfying);
            }
        }
    }

    fn ask_volumes(&self, _: PoolId, funnel: &mut Funnel) {
        for (index, alternatives) in self.class().volume_terms.iter().enumerate() {
            let satisfying = self.market.satisfying_terms(alternatives, self.snapshot);
            funnel.intersect(Rule::Volumes, Subject::Volume(index as u32), &satisfying);
        }
    }

    fn ask_resources(&self, _: PoolId, funnel: &mut Funnel) {
        for (resource, amount) in self.class().requests.iter().filter(|(_, amount)| *amount > 0) {
            let enough = |offer| self.market.offer(offer).free.get(resource) >= amount;
            funnel.keep(Rule::Resources, Subject::Resource(resource), enough);
        }
    }

    fn ask_stock(&self, _: PoolId, funnel: &mut Funnel) {
        funnel.keep(Rule::Unavailable, Subject::Whole, |offer| self.in_stock(offer));
    }

    /// Whether the plan leaves stock for one more node of an offer.
    pub(super) fn in_stock(&self, offer: usize) -> bool {
        let offer = self.market.offer(offer);
        let taken = self.taken.get(&(offer.instance_type, offer.offering)).copied().unwrap_or(0);
        offer.available && offer.left.is_none_or(|left| left > taken)
    }

    fn ask_min_values(&self, pool: PoolId, funnel: &mut Funnel) {
        let requirements = &self.snapshot.pools[pool.index()].requirements;
        for (key, requirement) in by_text(self.snapshot, requirements.iter()) {
            let Some(wanted) = requirement.min_values() else { continue };
            let enough = self.values_left(key, requirement, &funnel.left).len() >= wanted as usize;
            funnel.keep(Rule::MinValues, Subject::Label(key), |_| enough);
        }
    }

    /// The different values of a label among the types of some offers.
    pub(super) fn values_left(&self, key: Symbol, allowed: &Requirement, offers: &BitSet) -> BTreeSet<Symbol> {
        let symbols = &self.snapshot.symbols;
        let mut values = BTreeSet::new();
        for offer in offers.iter().map(|offer| self.market.offer(offer)) {
            let of_type = self.snapshot.types[offer.instance_type.index()].labels.get(key);
            let bought = [self.snapshot.names.zone, self.snapshot.names.capacity_type].contains(&key);
            match of_type.map(Requirement::named) {
                Some((named, false)) if !bought => {
                    values.extend(named.iter().filter(|v| allowed.contains(**v, symbols)));
                }
                _ => values.extend(offer.labels.get(key)),
            }
        }
        values
    }

    fn ask_ports(&self, _: PoolId, funnel: &mut Funnel) {
        if !self.class().host_ports.is_empty() {
            funnel.keep(Rule::HostPorts, Subject::Whole, |offer| self.taken_port(offer).is_none());
        }
    }

    /// A port that the class wants and a daemon takes on every node of an offer.
    pub(super) fn taken_port(&self, offer: usize) -> Option<&'a HostPort> {
        let taken = &self.market.offer(offer).ports;
        self.class().host_ports.iter().find(|wanted| taken.iter().any(|port| port.conflicts(wanted)))
    }

    fn ask_topology(&self, _: PoolId, funnel: &mut Funnel) {
        if self.topology.is_free(self.class) {
            return;
        }
        let mut failing: BTreeMap<Rule, BitSet> = BTreeMap::new();
        for offer in funnel.left.iter() {
            if let Err(rule) = self.topology.check(self.class, self.place(offer)) {
                failing.entry(rule).or_default().insert(offer);
            }
        }
        for rule in [Rule::PodAffinity, Rule::PodAntiAffinity, Rule::TopologySpread] {
            let failing = failing.remove(&rule).unwrap_or_default();
            funnel.keep(rule, Subject::Whole, |offer| !failing.contains(offer));
        }
    }

    /// A new node of an offer as topology rules see it.
    pub(super) fn place(&self, offer: usize) -> TopologyNode<'a> {
        let offer = self.market.offer(offer);
        let taints = &self.snapshot.pools[offer.pool.index()].taints;
        TopologyNode { spot: self.next_spot, labels: &offer.labels, taints, has_hostname: true, name: None }
    }

    fn ask_pool_limit(&self, pool: PoolId, funnel: &mut Funnel) {
        let limits = &self.snapshot.pools[pool.index()].limits;
        self.ask_limit(Rule::PoolLimit, limits, &self.usage[pool.index()], funnel);
    }

    fn ask_cluster_limit(&self, _: PoolId, funnel: &mut Funnel) {
        self.ask_limit(Rule::ClusterLimit, &self.snapshot.limits, &self.usage[self.snapshot.pools.len()], funnel);
    }

    fn ask_limit(&self, rule: Rule, limits: &Limits, usage: &Usage, funnel: &mut Funnel) {
        for &(resource, limit) in &limits.resources {
            let rest = limit.saturating_sub(usage.capacity.get(resource));
            funnel.keep(rule, Subject::Resource(resource), |offer| self.capacity(offer, resource) <= rest);
        }
        if let Some(limit) = limits.nodes {
            funnel.keep(rule, Subject::Nodes, |_| usage.nodes < limit);
        }
        if let Some(limit) = limits.price {
            let cost = |offer: usize| usage.price + u128::from(self.market.offer(offer).price);
            funnel.keep(rule, Subject::Price, |offer| cost(offer) <= u128::from(limit));
        }
    }

    /// The capacity of an offer's type, as limits count it.
    pub(super) fn capacity(&self, offer: usize, resource: ResourceId) -> i64 {
        let kind = self.market.offer(offer).instance_type;
        self.snapshot.types[kind.index()].capacity.get(resource)
    }

    /// The different types of some offers.
    pub(super) fn types(&self, offers: &BitSet) -> BTreeSet<TypeId> {
        offers.iter().map(|offer| self.market.offer(offer).instance_type).collect()
    }
}

/// Requirements in the order of their keys' texts, so that sentences do not depend on the order of arrival.
pub(super) fn by_text<'r>(
    snapshot: &Snapshot,
    requirements: impl Iterator<Item = (Symbol, &'r Requirement)>,
) -> Vec<(Symbol, &'r Requirement)> {
    let mut sorted: Vec<_> = requirements.collect();
    sorted.sort_by_key(|(key, _)| snapshot.text(*key));
    sorted
}

struct Funnel {
    left: BitSet,
    steps: Vec<Step>,
}

impl Funnel {
    /// A step that keeps some of what is left. After one that left nothing there is none.
    fn keep(&mut self, rule: Rule, subject: Subject, keeps: impl Fn(usize) -> bool) {
        if self.is_done() {
            return;
        }
        self.left = self.left.iter().filter(|&offer| keeps(offer)).collect();
        self.steps.push(Step { rule, subject, left: self.left.clone() });
    }

    fn intersect(&mut self, rule: Rule, subject: Subject, with: &BitSet) {
        self.keep(rule, subject, |offer| with.contains(offer));
    }

    fn nothing(&mut self, rule: Rule, subject: Subject) {
        self.keep(rule, subject, |_| false);
    }

    fn is_done(&self) -> bool {
        self.steps.last().is_some_and(|step| step.left.is_empty())
    }
}
