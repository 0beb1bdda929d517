//! The market: every node that could be bought, one [`Offer`] for each pool, type, offering and choice of labels.
//!
//! Pool and type together may leave a label open (an operating system that is chosen at launch, a team that the pool's
//! template lists). If some pod names such a label, there is one offer for each of its values; otherwise one value is
//! chosen: `linux`, `amd64`, else the first in alphabetical order.
//!
//! Which offers suit a class is computed with sets: for each value of each label that some pod names, the market keeps
//! the set of offers that carry it. A requirement is a union of such sets, a term an intersection.

mod memory;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use foldhash::fast::FixedState;

use crate::model::{
    CapacityType, HostPort, Labels, Nanos, NodeState, PodClass, Pool, PoolId, Resources, Snapshot, TypeId,
};
use crate::pack::BitSet;
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;
use crate::taint;

pub use memory::Memory;

/// Offers that a type's offering may be split into for its open labels. More values than this on one node's labels
/// would be a configuration gone wrong; those that pods name come first.
const MAX_LABEL_CHOICES: usize = 64;

/// A node that could be bought.
#[derive(Debug, Clone)]
pub struct Offer {
    /// For which pool.
    pub pool: PoolId,
    /// Its type.
    pub instance_type: TypeId,
    /// Index of the type's offering.
    pub offering: u32,
    /// Its labels, without the hostname.
    pub labels: Arc<Labels>,
    /// Allocatable resources, less the requests of DaemonSet pods.
    pub free: Resources,
    /// Host ports of DaemonSet pods.
    pub ports: Vec<HostPort>,
    /// Price in nano-dollars per hour.
    pub price: Nanos,
    /// Whether the offering is available now.
    pub available: bool,
    /// Nodes left, for reserved capacity.
    pub left: Option<u32>,
    /// Offers with the same number have the same free resources.
    pub capacity: u32,
    /// Offers of higher rank are used first, whatever their price.
    pub rank: Rank,
}

/// The weight of a pool, and the priority of a type within it.
pub type Rank = (i32, i32);

/// Everything that could be bought, indexed.
#[derive(Debug)]
pub struct Market {
    offers: Vec<Offer>,
    /// Offers with each value of each label that some class speaks of.
    by_value: HashMap<Symbol, BTreeMap<Symbol, BitSet>>,
    /// Offers of each pool.
    by_pool: Vec<BitSet>,
    /// Offers that are available now.
    available: BitSet,
    /// The same sorted by price, computed on first use; plans do not need it.
    by_price: OnceLock<Vec<u32>>,
    all: BitSet,
    /// Labels that only the node itself has, because their value is its name.
    own_names: [Symbol; 2],
}

impl Market {
    /// Builds the market of a snapshot.
    pub fn new(snapshot: &Snapshot) -> Self {
        Self::of(snapshot, &Mentioned::new(snapshot))
    }

    fn of(snapshot: &Snapshot, mentioned: &Mentioned) -> Self {
        let mut offers = Vec::new();
        let names = Names::new(snapshot);
        for pool in (0..snapshot.pools.len()).map(PoolId::from) {
            let named = |of: &&TypeId| snapshot.pools[pool.index()].names(**of);
            for &of in snapshot.pools[pool.index()].types.iter().filter(named) {
                offers_of(snapshot, mentioned, &names, pool, of, &mut offers);
            }
        }
        let mut market = Self {
            by_value: HashMap::new(),
            by_pool: vec![BitSet::new(); snapshot.pools.len()],
            available: offers.iter().enumerate().filter(|(_, offer)| offer.available).map(|(index, _)| index).collect(),
            by_price: OnceLock::new(),
            all: BitSet::full(offers.len()),
            own_names: [snapshot.names.hostname, snapshot.names.node_name],
            offers,
        };
        market.index(mentioned);
        market.subtract_daemons(snapshot);
        market.number_capacities();
        market
    }

    fn number_capacities(&mut self) {
        let mut known: HashMap<&Resources, u32, FixedState> = HashMap::default();
        let mut numbers: Vec<u32> = Vec::with_capacity(self.offers.len());
        let mut last: Option<&Resources> = None;
        for offer in &self.offers {
            let next = known.len() as u32;
            // Offers of a type stand side by side, and as a rule have the same.
            let number = match numbers.last() {
                Some(number) if last == Some(&offer.free) => *number,
                _ => *known.entry(&offer.free).or_insert(next),
            };
            numbers.push(number);
            last = Some(&offer.free);
        }
        for (offer, number) in self.offers.iter_mut().zip(numbers) {
            offer.capacity = number;
        }
    }

    fn index(&mut self, mentioned: &Mentioned) {
        for (index, offer) in self.offers.iter().enumerate() {
            self.by_pool[offer.pool.index()].insert(index);
        }
        for &key in mentioned.values.keys() {
            let mut values: BTreeMap<Symbol, BitSet> = BTreeMap::new();
            for (index, offer) in self.offers.iter().enumerate() {
                if let Some(value) = offer.labels.get(key) {
                    values.entry(value).or_default().insert(index);
                }
            }
            self.by_value.insert(key, values);
        }
    }

    fn subtract_daemons(&mut self, snapshot: &Snapshot) {
        for daemon in &snapshot.daemons {
            let class = &snapshot.classes[daemon.index()];
            let mut runs_on = self.satisfying_terms(&class.node_terms, snapshot);
            runs_on.intersect(&self.tolerated(class, snapshot));
            for index in runs_on.iter() {
                self.offers[index].free.subtract(&class.requests);
                self.offers[index].ports.extend(class.host_ports.iter().cloned());
            }
        }
    }

    /// All offers, including those that are not available now.
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// The offer with this index.
    pub fn offer(&self, index: usize) -> &Offer {
        &self.offers[index]
    }

    /// Every offer.
    pub fn all(&self) -> &BitSet {
        &self.all
    }

    /// Offers that are available now.
    pub fn available(&self) -> &BitSet {
        &self.available
    }

    /// Offers that can be had now, cheapest first, then by the name of their type. The snapshot is one that it is the
    /// market of.
    pub fn by_price(&self, snapshot: &Snapshot) -> &[u32] {
        self.by_price.get_or_init(|| {
            let mut offers: Vec<u32> = self.available.iter().map(|offer| offer as u32).collect();
            offers.sort_by_cached_key(|&index| {
                let offer = self.offer(index as usize);
                let name = snapshot.text(snapshot.types[offer.instance_type.index()].name);
                (offer.price, name, index)
            });
            offers
        })
    }

    /// Offers of a pool.
    pub fn of_pool(&self, pool: PoolId) -> &BitSet {
        &self.by_pool[pool.index()]
    }

    /// All ranks, the highest first.
    pub fn ranks(&self) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = self.offers.iter().map(|offer| offer.rank).collect();
        ranks.sort_unstable_by_key(|rank| std::cmp::Reverse(*rank));
        ranks.dedup();
        ranks
    }

    /// Offers of pools that buy nodes for pods: ready, and without a fixed size.
    pub fn open(&self, snapshot: &Snapshot) -> BitSet {
        let mut open = BitSet::new();
        for (pool, offers) in snapshot.pools.iter().zip(&self.by_pool) {
            if pool.not_ready.is_none() && pool.replicas.is_none() {
                open.unite(offers);
            }
        }
        open
    }

    /// The values of a label with the offers that carry each. Only labels that some class speaks of are known.
    pub fn values(&self, key: Symbol) -> impl Iterator<Item = (Symbol, &BitSet)> {
        self.by_value.get(&key).into_iter().flatten().map(|(value, offers)| (*value, offers))
    }

    /// Offers that satisfy a requirement on a label.
    pub fn satisfying(&self, key: Symbol, requirement: &Requirement, snapshot: &Snapshot) -> BitSet {
        if self.own_names.contains(&key) {
            // The name does not exist yet, so no pod can ask for it.
            let (_, complement) = requirement.named();
            return if complement { self.all.clone() } else { BitSet::new() };
        }
        let mut satisfying = BitSet::new();
        let mut labelled = BitSet::new();
        for (value, offers) in self.values(key) {
            labelled.unite(offers);
            if requirement.contains(value, &snapshot.symbols) {
                satisfying.unite(offers);
            }
        }
        if requirement.allows_missing() {
            let mut missing = self.all.clone();
            missing.subtract(&labelled);
            satisfying.unite(&missing);
        }
        satisfying
    }

    /// Offers that satisfy one of several alternatives.
    pub fn satisfying_terms(&self, terms: &[Requirements], snapshot: &Snapshot) -> BitSet {
        let mut any = BitSet::new();
        for term in terms {
            let mut all = self.all.clone();
            for (key, requirement) in term.iter() {
                all.intersect(&self.satisfying(key, requirement, snapshot));
            }
            any.unite(&all);
        }
        any
    }

    /// Offers of pools whose taints the class tolerates.
    pub fn tolerated(&self, class: &PodClass, snapshot: &Snapshot) -> BitSet {
        let mut tolerated = BitSet::new();
        for (pool, offers) in snapshot.pools.iter().zip(&self.by_pool) {
            if taint::first_forbidding(&pool.taints, &class.tolerations, &snapshot.symbols).is_none() {
                tolerated.unite(offers);
            }
        }
        tolerated
    }

    /// Offers that suit the class by taints, node affinity, volumes and the ports of DaemonSet pods, whatever their
    /// size and availability.
    pub fn suiting(&self, class: &PodClass, snapshot: &Snapshot) -> BitSet {
        let mut suiting = self.satisfying_terms(&class.node_terms, snapshot);
        for alternatives in &class.volume_terms {
            suiting.intersect(&self.satisfying_terms(alternatives, snapshot));
        }
        suiting.intersect(&self.tolerated(class, snapshot));
        if !class.host_ports.is_empty() {
            let taken = |offer: &usize| {
                let ports = &self.offers[*offer].ports;
                ports.iter().any(|port| class.host_ports.iter().any(|wanted| wanted.conflicts(port)))
            };
            let conflicting: BitSet = suiting.iter().filter(taken).collect();
            suiting.subtract(&conflicting);
        }
        suiting
    }

    /// How much the class would like an offer, by its preferences on nodes and the soft taints of the pool.
    pub fn liking(&self, class: &PodClass, offer: usize, snapshot: &Snapshot) -> i64 {
        let offer = &self.offers[offer];
        let soft = &snapshot.pools[offer.pool.index()].taints;
        liking(class, &offer.labels, soft, snapshot)
    }
}

/// How much a class would like a node with such labels and taints.
pub fn liking(class: &PodClass, labels: &Labels, taints: &[taint::Taint], snapshot: &Snapshot) -> i64 {
    let symbols = &snapshot.symbols;
    let wished = class.node_preferences.iter().filter(|(_, term)| term.match_labels(|key| labels.get(key), symbols));
    let liked: i64 = wished.map(|(weight, _)| i64::from(*weight)).sum();
    let discouraging = taint::count_discouraging(taints, &class.tolerations, symbols);
    // A `PreferNoSchedule` taint weighs as much as the heaviest preference, because an administrator put it on the node
    // on purpose.
    liked - 100 * discouraging as i64
}

/// Labels that classes speak of, with the values that they name.
#[derive(Debug, PartialEq, Eq)]
struct Mentioned {
    values: BTreeMap<Symbol, BTreeSet<Symbol>>,
}

impl Mentioned {
    fn new(snapshot: &Snapshot) -> Self {
        let mut mentioned = Self { values: BTreeMap::new() };
        for class in &snapshot.classes {
            mentioned.add_class(class);
        }
        for key in [snapshot.names.zone, snapshot.names.capacity_type] {
            mentioned.values.entry(key).or_default();
        }
        mentioned
    }

    fn add_class(&mut self, class: &PodClass) {
        let preferred = class.node_preferences.iter().map(|(_, term)| term);
        for term in class.node_terms.iter().chain(class.volume_terms.iter().flatten()).chain(preferred) {
            for (key, requirement) in term.iter() {
                self.values.entry(key).or_default().extend(requirement.named().0);
            }
        }
        let near = class.affinity.iter().chain(&class.anti_affinity).map(|term| term.key);
        let wished = class.affinity_preferences.iter().map(|(_, term)| term.key);
        for key in class.spread.iter().map(|spread| spread.key).chain(near).chain(wished) {
            self.values.entry(key).or_default();
        }
    }
}

/// Symbols of the label values that every offer needs.
struct Names {
    pools: Vec<Option<Symbol>>,
    /// In the order of [`CapacityType::ALL`].
    capacity_types: [Option<Symbol>; CapacityType::ALL.len()],
}

impl Names {
    fn new(snapshot: &Snapshot) -> Self {
        Self {
            pools: snapshot.pools.iter().map(|pool| snapshot.symbols.find(&pool.name)).collect(),
            capacity_types: CapacityType::ALL.map(|one| snapshot.symbols.find(one.name())),
        }
    }
}

fn offers_of(
    snapshot: &Snapshot,
    mentioned: &Mentioned,
    known: &Names,
    id: PoolId,
    of: TypeId,
    offers: &mut Vec<Offer>,
) {
    let names = &snapshot.names;
    let Some(merged) = merge(snapshot, id, of) else { return };
    let (pool, kind) = (&snapshot.pools[id.index()], &snapshot.types[of.index()]);
    let choices = label_choices(snapshot, mentioned, pool, known.pools[id.index()], &merged);
    for (offering, offered) in kind.offerings.iter().enumerate() {
        let capacity_type = known.capacity_types[offered.capacity_type as usize];
        let allows = |key, value: Option<Symbol>| {
            let found = merged.iter().find(|(known, _)| *known == key);
            found.is_none_or(|(_, requirement)| requirement.allows(value, &snapshot.symbols))
        };
        let zone = Some(offered.zone).filter(|_| !pool.lacks(names.zone));
        let capacity_type = capacity_type.filter(|_| !pool.lacks(names.capacity_type));
        if !allows(names.zone, zone) || !allows(names.capacity_type, capacity_type) {
            continue;
        }
        let bought = [zone.map(|value| (names.zone, value)), capacity_type.map(|value| (names.capacity_type, value))];
        for labels in &choices {
            offers.push(Offer {
                pool: id,
                instance_type: of,
                offering: offering as u32,
                labels: Arc::new(labels.with(bought.into_iter().flatten())),
                free: kind.allocatable.clone(),
                ports: Vec::new(),
                price: offered.price,
                available: offered.available && offered.left != Some(0),
                left: offered.left,
                capacity: 0,
                rank: (pool.weight, kind.priority),
            });
        }
    }
}

/// Labels with their allowed values.
type Allowed<'s> = Vec<(Symbol, Cow<'s, Requirement>)>;

/// The label values that pool and type allow together; `None` if they contradict each other.
fn merge(snapshot: &Snapshot, pool: PoolId, of: TypeId) -> Option<Allowed<'_>> {
    let (pool, kind) = (&snapshot.pools[pool.index()], &snapshot.types[of.index()]);
    let mut merged: Allowed<'_> = kind.labels.iter().map(|(key, values)| (key, Cow::Borrowed(values))).collect();
    for (key, wanted) in pool.requirements.iter() {
        let place = merged.iter().position(|(known, _)| *known == key);
        let both = match place {
            Some(place) => merged[place].1.intersection(wanted, &snapshot.symbols),
            // A type defines every well-known label that it has.
            None if is_well_known(snapshot, key) && !wanted.allows_missing() => return None,
            None => wanted.clone(),
        };
        if both.is_impossible(&snapshot.symbols) {
            return None;
        }
        match place {
            Some(place) => merged[place].1 = Cow::Owned(both),
            None => merged.push((key, Cow::Owned(both))),
        }
    }
    merged.sort_unstable_by_key(|(key, _)| *key);
    Some(merged)
}

fn is_well_known(snapshot: &Snapshot, key: Symbol) -> bool {
    key != snapshot.names.pool && snapshot.well_known.binary_search(&key).is_ok()
}

/// The labels of a node, in each way in which what is left open can be chosen. Zone and capacity type are the
/// offering's matter.
fn label_choices(
    snapshot: &Snapshot,
    mentioned: &Mentioned,
    pool: &Pool,
    name: Option<Symbol>,
    merged: &Allowed<'_>,
) -> Vec<Labels> {
    let names = &snapshot.names;
    let name = name.filter(|_| !pool.lacks(names.pool));
    let mut first = Vec::with_capacity(merged.len() + 1);
    first.extend(name.map(|name| (names.pool, name)));
    let mut choices: Vec<Vec<(Symbol, Symbol)>> = vec![first];
    for (key, requirement) in merged {
        let key = *key;
        if [names.zone, names.capacity_type, names.pool, names.hostname].contains(&key) {
            continue;
        }
        // Most labels of a type have one value: no list for these.
        if let ([only], false) = requirement.named() {
            if requirement.contains(*only, &snapshot.symbols) {
                choices.iter_mut().for_each(|chosen| chosen.push((key, *only)));
            }
            continue;
        }
        let values = open_values(snapshot, mentioned, key, requirement);
        let most = (MAX_LABEL_CHOICES / choices.len()).max(1);
        let Some((first, more)) = values.split_first() else { continue };
        let split: Vec<_> = more
            .iter()
            .take(most - 1)
            .flat_map(|value| choices.iter().map(|chosen| [&chosen[..], &[(key, *value)]].concat()))
            .collect();
        choices.iter_mut().for_each(|chosen| chosen.push((key, *first)));
        choices.extend(split);
    }
    choices.into_iter().map(|labels| labels.into_iter().collect()).collect()
}

/// The values among which to choose, the usual one first; just that one where no pod cares.
fn open_values(snapshot: &Snapshot, mentioned: &Mentioned, key: Symbol, requirement: &Requirement) -> Vec<Symbol> {
    let symbols = &snapshot.symbols;
    let (named, complement) = requirement.named();
    let named_by_pods = mentioned.values.get(&key);
    let mut values: Vec<Symbol> = if complement {
        // The requirement lists no values: take those that pods name, else a bound of its range, else `true`.
        let by_pods = named_by_pods.into_iter().flatten().copied();
        let mut values: Vec<Symbol> = by_pods.filter(|value| requirement.contains(*value, symbols)).collect();
        if values.is_empty() && !requirement.allows_missing() {
            let (least, most) = requirement.bounds();
            let usual = least.or(most).map_or_else(|| "true".to_owned(), |number| number.to_string());
            values.extend(symbols.find(&usual).filter(|value| requirement.contains(*value, symbols)));
        }
        values
    } else {
        named.iter().copied().filter(|value| requirement.contains(*value, symbols)).collect()
    };
    let usual = |value: &Symbol| !matches!(symbols.text(*value), "linux" | "amd64");
    let asked = |value: &Symbol| !named_by_pods.is_some_and(|values| values.contains(value));
    values.sort_by_key(|value| (usual(value), asked(value), symbols.text(*value)));
    if named_by_pods.is_none() {
        values.truncate(1);
    }
    values
}

/// What existing and new nodes use of each pool: the sums that limits compare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Capacity.
    pub capacity: Resources,
    /// Nodes.
    pub nodes: u64,
    /// Price in nano-dollars per hour.
    pub price: u128,
}

impl Usage {
    /// Adds a node.
    pub fn add(&mut self, capacity: &Resources, price: Nanos) {
        self.capacity.add(capacity);
        self.nodes += 1;
        self.price += u128::from(price);
    }

    /// Subtracts a node.
    pub fn take_back(&mut self, capacity: &Resources, price: Nanos) {
        self.capacity.subtract(capacity);
        self.nodes -= 1;
        self.price -= u128::from(price);
    }

    /// Usage of the existing nodes of each pool, including those that are being removed, which are paid for until they
    /// are gone. The last entry is the sum over all pools.
    pub fn by_pool(snapshot: &Snapshot) -> Vec<Self> {
        let mut usage = vec![Self::default(); snapshot.pools.len() + 1];
        let total = snapshot.pools.len();
        for node in &snapshot.nodes {
            if let Some(pool) = node.pool {
                usage[pool.index()].add(&node.capacity, node.price.unwrap_or(0));
                usage[total].add(&node.capacity, node.price.unwrap_or(0));
            }
        }
        usage
    }
}

/// Whether pods can be planned on an existing node.
pub fn usable(snapshot: &Snapshot, node: usize) -> bool {
    let node = &snapshot.nodes[node];
    node.state != NodeState::Leaving && node.schedulable
}
