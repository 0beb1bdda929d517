//! One scheduling round by Karpenter's rules: every pod of the queue gets a node, a claim or nothing.
//!
//! Pods are decided one by one, as in Karpenter. The speed comes from not repeating checks: a node or claim that was
//! too small for a class, or whose pods keep it away, stays so for the round and is skipped for that class. What a
//! class requires of any claim (labels, domains) is computed once per pod and compared with claims as sets.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::super::plan_builder::PlanBuilder;
use super::preferences::{Level, RelaxationLevels};
use crate::cluster_state::NodeSlotId;
use crate::model::{ClassId, HostPort, Limits, PodClass, PodId, PoolId, Resources};
use crate::pack::BitSet;
use crate::plan::Rule;
use crate::requirement::Requirement;
use crate::symbol::Symbol;
use crate::taint;
use crate::topology::{Domain, Topology};

/// A host without pods: Karpenter can always make one, so that the least of a spread over hosts is zero.
const EMPTY_HOST: Domain = Domain(u32::MAX);

/// The node or claim that a pod goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    Node(NodeSlotId),
    Claim(usize),
}

/// The result of a round.
pub(super) struct Solution {
    /// For each claim, the offers that it may still become.
    pub(super) claims: Vec<BitSet>,
    /// In the order of placement.
    pub(super) placed: Vec<(PodId, Home)>,
    pub(super) failed: Vec<PodId>,
}

struct Host {
    spot: NodeSlotId,
    free: Resources,
    ports: Vec<HostPort>,
}

struct Claim {
    pool: PoolId,
    offers: BitSet,
    used: Resources,
    /// The most of each resource that any of the offers has: a quick no.
    most: Resources,
    ports: Vec<HostPort>,
    pods: u32,
    host: Domain,
}

/// What is left of limits, counting each claim as its largest type.
struct Rest {
    resources: Vec<(crate::model::ResourceId, i64)>,
    nodes: Option<u64>,
    price: Option<u128>,
}

/// Nodes and claims that cannot take a class for the rest of the round.
#[derive(Default, Clone)]
struct Dead {
    hosts: BitSet,
    claims: BitSet,
}

/// What a class requires of any claim, given the pods placed so far.
struct Ask {
    /// Offers that suit by labels, taints and volumes.
    suiting: Rc<BitSet>,
    /// Those of `suiting` that topology rules allow now.
    allowed: BitSet,
    /// For each label that needs a single value: the values, best first, with their offers.
    choices: Vec<Vec<(Symbol, BitSet)>>,
}

/// Why a claim does not take a pod.
enum ClaimMismatch {
    ForNow,
    ForGood,
}

pub(super) struct Round<'d, 's> {
    builder: &'d mut PlanBuilder<'s>,
    relaxation: &'d RelaxationLevels,
    topology: Topology,
    hosts: Vec<Host>,
    claims: Vec<Claim>,
    /// Claims ordered by number of pods, then age.
    order: BTreeSet<(u32, u32)>,
    pools: Vec<PoolId>,
    /// By pool; the last entry is the sum over all pools.
    rest: Vec<Rest>,
    dead: Vec<Dead>,
    suiting: HashMap<(ClassId, bool), Rc<BitSet>>,
    /// Labels of rules that a class has to pass, and of those that count it.
    looks_at: HashMap<ClassId, Rc<[Symbol]>>,
    counted_by: HashMap<ClassId, Rc<[Symbol]>>,
}

impl<'d, 's> Round<'d, 's> {
    pub(super) fn new(builder: &'d mut PlanBuilder<'s>, relaxation: &'d RelaxationLevels) -> Self {
        let snapshot = builder.snapshot;
        let mut pools: Vec<PoolId> = (0..snapshot.pools.len()).map(PoolId::from).collect();
        pools.sort_by(|a, b| {
            let (a, b) = (&snapshot.pools[a.index()], &snapshot.pools[b.index()]);
            b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name))
        });
        let limits = snapshot.pools.iter().map(|pool| &pool.limits).chain([&snapshot.limits]);
        let rest = limits.zip(&builder.usage).map(|(limits, usage)| Rest::new(limits, usage)).collect();
        let spots = builder.open_spots();
        let hosts = spots.into_iter().map(|spot| Host {
            spot,
            free: builder.cluster.free(spot).clone(),
            ports: builder.cluster.ports(spot).to_vec(),
        });
        let mut round = Self {
            topology: builder.cluster.topology().clone(),
            hosts: hosts.collect(),
            claims: Vec::new(),
            order: BTreeSet::new(),
            pools,
            rest,
            dead: vec![Dead::default(); snapshot.classes.len()],
            suiting: HashMap::new(),
            looks_at: HashMap::new(),
            counted_by: HashMap::new(),
            builder,
            relaxation,
        };
        round.expect_domains();
        round
    }

    /// Zones in which nodes can be bought are domains of a spread, whether or not a node is there.
    fn expect_domains(&mut self) {
        let market = self.builder.market;
        for index in 0..self.builder.snapshot.classes.len() {
            let class = ClassId::from(index);
            let keys: Vec<Symbol> = self.class(class).spread.iter().filter(|one| one.hard).map(|one| one.key).collect();
            for key in keys {
                if key == self.builder.snapshot.names.hostname {
                    self.topology.expect_domain(class, key, EMPTY_HOST);
                    continue;
                }
                let mut reachable = (*self.suiting(Level { class, strict: false })).clone();
                reachable.intersect(market.available());
                for (value, _) in market.values(key).filter(|(_, offers)| offers.intersects(&reachable)) {
                    self.topology.expect_domain(class, key, Domain::value(value));
                }
            }
        }
    }

    fn class(&self, class: ClassId) -> &'s PodClass {
        &self.builder.snapshot.classes[class.index()]
    }

    /// Pods are tried again as long as a whole pass over the queue places a pod.
    pub(super) fn solve(mut self, queue: &[PodId]) -> Solution {
        let mut placed = Vec::new();
        let mut waiting = queue.to_vec();
        let mut hopeless = BitSet::new();
        loop {
            let before = waiting.len();
            waiting.retain(|&pod| {
                let class = self.builder.class_of(pod);
                if hopeless.contains(class.index()) {
                    return true;
                }
                match self.add(class) {
                    Some(home) => {
                        placed.push((pod, home));
                        false
                    }
                    None => {
                        if self.fails_for_good(class) {
                            hopeless.insert(class.index());
                        }
                        true
                    }
                }
            });
            if waiting.is_empty() || waiting.len() == before {
                break;
            }
        }
        Solution { claims: self.claims.into_iter().map(|claim| claim.offers).collect(), placed, failed: waiting }
    }

    /// Without rules between pods nothing that others do can help a class later.
    fn fails_for_good(&mut self, class: ClassId) -> bool {
        let levels = &self.relaxation.levels[class.index()];
        levels.iter().all(|level| self.topology.looks_at(level.class).is_empty())
    }

    /// Finds a node or claim for a pod, relaxing its preferences step by step.
    fn add(&mut self, class: ClassId) -> Option<Home> {
        let relaxation = self.relaxation;
        relaxation.levels[class.index()].iter().find_map(|&level| {
            self.add_to_host(class, level)
                .or_else(|| self.add_to_claim(class, level))
                .or_else(|| self.add_new_claim(class, level))
        })
    }

    fn add_to_host(&mut self, class: ClassId, level: Level) -> Option<Home> {
        for index in 0..self.hosts.len() {
            if self.dead[level.class.index()].hosts.contains(index) {
                continue;
            }
            self.builder.work += 1;
            match self.fits_host(level, index) {
                Ok(()) => {
                    self.place_on_host(class, index);
                    return Some(Home::Node(self.hosts[index].spot));
                }
                Err(ClaimMismatch::ForGood) => self.dead[level.class.index()].hosts.insert(index),
                Err(ClaimMismatch::ForNow) => {}
            }
        }
        None
    }

    fn fits_host(&mut self, level: Level, index: usize) -> Result<(), ClaimMismatch> {
        let of = self.class(level.class);
        let host = &self.hosts[index];
        let place = self.builder.cluster.place_of(host.spot);
        let symbols = &self.builder.snapshot.symbols;
        let unwelcome = level.strict && taint::count_discouraging(place.taints, &of.tolerations, symbols) > 0;
        if unwelcome || !self.builder.cluster.suits(level.class, host.spot) {
            return Err(ClaimMismatch::ForGood);
        }
        if host.free.first_lacking(&of.requests).is_some() || conflict(&host.ports, &of.host_ports) {
            return Err(ClaimMismatch::ForGood);
        }
        self.topology.check(level.class, place).map_err(mismatch)
    }

    fn place_on_host(&mut self, class: ClassId, index: usize) {
        let of = self.class(class);
        let host = &mut self.hosts[index];
        host.free.subtract(&of.requests);
        host.ports.extend(of.host_ports.iter().cloned());
        let place = self.builder.cluster.place_of(host.spot);
        self.topology.add(class, place, 1, self.builder.snapshot);
    }

    fn add_to_claim(&mut self, class: ClassId, level: Level) -> Option<Home> {
        if self.claims.is_empty() {
            return None;
        }
        let ask = self.ask(level);
        let mut refused = Vec::new();
        let mut found = None;
        for &(_, index) in &self.order {
            let index = index as usize;
            if self.dead[level.class.index()].claims.contains(index) {
                continue;
            }
            self.builder.work += 1;
            match self.fits_claim(level.class, &ask, index) {
                Ok(offers) => {
                    found = Some((index, offers));
                    break;
                }
                Err(ClaimMismatch::ForGood) => refused.push(index),
                Err(ClaimMismatch::ForNow) => {}
            }
        }
        refused.into_iter().for_each(|index| self.dead[level.class.index()].claims.insert(index));
        let (index, offers) = found?;
        self.join(class, index, offers);
        Some(Home::Claim(index))
    }

    /// The offers that a claim may still become with one more pod.
    fn fits_claim(&self, class: ClassId, ask: &Ask, index: usize) -> Result<BitSet, ClaimMismatch> {
        let claim = &self.claims[index];
        let of = self.class(class);
        let mut used = claim.used.clone();
        used.add(&of.requests);
        if claim.most.first_lacking(&used).is_some() || conflict(&claim.ports, &of.host_ports) {
            return Err(ClaimMismatch::ForGood);
        }
        if !claim.offers.intersects(&ask.allowed) {
            return Err(if claim.offers.intersects(&ask.suiting) {
                ClaimMismatch::ForNow
            } else {
                ClaimMismatch::ForGood
            });
        }
        self.check_host(class, claim.host)?;
        let left = self.narrow(&claim.offers, ask, &used)?;
        // Larger pods would only leave fewer types.
        if !self.has_min_values(claim.pool, &left) {
            return Err(ClaimMismatch::ForGood);
        }
        Ok(left)
    }

    fn check_host(&self, class: ClassId, host: Domain) -> Result<(), ClaimMismatch> {
        let hostname = self.builder.snapshot.names.hostname;
        // An empty host can always be had, so that a host that is too full for a spread stays so.
        self.topology.check_domain(class, hostname, host).map_err(|rule| match rule {
            Rule::PodAffinity => ClaimMismatch::ForNow,
            _ => ClaimMismatch::ForGood,
        })
    }

    /// Chooses the domains and drops offers that are too small.
    fn narrow(&self, offers: &BitSet, ask: &Ask, used: &Resources) -> Result<BitSet, ClaimMismatch> {
        let mut left = offers.clone();
        left.intersect(&ask.allowed);
        for choices in &ask.choices {
            let (_, best) = choices.iter().find(|(_, with)| with.intersects(&left)).ok_or(ClaimMismatch::ForNow)?;
            left.intersect(best);
        }
        let left = self.large_enough(&left, used);
        match (left.is_empty(), ask.choices.is_empty()) {
            (false, _) => Ok(left),
            (true, true) => Err(ClaimMismatch::ForGood),
            // Another domain may have larger types.
            (true, false) => Err(ClaimMismatch::ForNow),
        }
    }

    /// The offers with room for this much. Neighbours in the list are mostly of one type and equally large.
    fn large_enough(&self, offers: &BitSet, used: &Resources) -> BitSet {
        let mut last: Option<(&Resources, bool)> = None;
        let enough = |offer: &usize| {
            let free = &self.builder.market.offer(*offer).free;
            let enough = match last {
                Some((known, enough)) if known == free => enough,
                _ => free.first_lacking(used).is_none(),
            };
            last = Some((free, enough));
            enough
        };
        offers.iter().filter(enough).collect()
    }

    /// The most of each resource that any of the offers has.
    fn most(&self, offers: &BitSet) -> Resources {
        let mut most = Resources::new();
        let mut last = None;
        for free in offers.iter().map(|offer| &self.builder.market.offer(offer).free) {
            if last != Some(free) {
                most.raise_to(free);
                last = Some(free);
            }
        }
        most
    }

    /// Whether enough different values are left for `minValues`.
    fn has_min_values(&self, pool: PoolId, offers: &BitSet) -> bool {
        let requirements = &self.builder.snapshot.pools[pool.index()].requirements;
        requirements.iter().all(|(key, requirement)| {
            requirement.min_values().is_none_or(|wanted| self.values(key, requirement, offers) >= wanted as usize)
        })
    }

    fn values(&self, key: Symbol, allowed: &Requirement, offers: &BitSet) -> usize {
        let snapshot = self.builder.snapshot;
        let bought = [snapshot.names.zone, snapshot.names.capacity_type].contains(&key);
        let mut values = BTreeSet::new();
        for offer in offers.iter().map(|offer| self.builder.market.offer(offer)) {
            let of_type = snapshot.types[offer.instance_type.index()].labels.get(key);
            match of_type.map(Requirement::named) {
                Some((named, false)) if !bought => {
                    values.extend(named.iter().filter(|value| allowed.contains(**value, &snapshot.symbols)).copied());
                }
                _ => values.extend(offer.labels.get(key)),
            }
        }
        values.len()
    }

    fn add_new_claim(&mut self, class: ClassId, level: Level) -> Option<Home> {
        let ask = self.ask(level);
        let host = Domain((self.builder.cluster.len() + self.claims.len()) as u32);
        self.check_host(level.class, host).ok()?;
        for index in 0..self.pools.len() {
            let pool = self.pools[index];
            if let Some(offers) = self.new_claim(pool, level.class, &ask) {
                self.rest_of(pool, &offers);
                self.claims.push(Claim {
                    pool,
                    offers: BitSet::new(),
                    used: Resources::new(),
                    most: Resources::new(),
                    ports: Vec::new(),
                    pods: 0,
                    host,
                });
                self.order.insert((0, self.claims.len() as u32 - 1));
                self.join(class, self.claims.len() - 1, offers);
                return Some(Home::Claim(self.claims.len() - 1));
            }
        }
        None
    }

    /// The offers that a pool could buy for a pod.
    fn new_claim(&self, pool: PoolId, class: ClassId, ask: &Ask) -> Option<BitSet> {
        let of = &self.builder.snapshot.pools[pool.index()];
        if of.not_ready.is_some() || of.replicas.is_some() {
            return None;
        }
        let mut offers = self.builder.market.of_pool(pool).clone();
        offers.intersect(&ask.allowed);
        let all = self.rest.len() - 1;
        let offers: BitSet =
            offers.iter().filter(|&o| [pool.index(), all].iter().all(|&rest| self.allows(rest, o))).collect();
        let left = self.narrow(&offers, ask, &self.class(class).requests).ok()?;
        (!left.is_empty() && self.has_min_values(pool, &left)).then_some(left)
    }

    fn allows(&self, rest: usize, offer: usize) -> bool {
        let rest = &self.rest[rest];
        let of = self.builder.market.offer(offer);
        let capacity = &self.builder.snapshot.types[of.instance_type.index()].capacity;
        rest.resources.iter().all(|&(resource, left)| capacity.get(resource) <= left.max(0))
            && rest.nodes != Some(0)
            && rest.price.is_none_or(|left| u128::from(of.price) <= left)
    }

    /// Takes the largest that a claim may become off what limits leave.
    fn rest_of(&mut self, pool: PoolId, offers: &BitSet) {
        let market = self.builder.market;
        let types = &self.builder.snapshot.types;
        let all = self.rest.len() - 1;
        for rest in [pool.index(), all] {
            let rest = &mut self.rest[rest];
            for (resource, left) in &mut rest.resources {
                let capacity = |offer: usize| types[market.offer(offer).instance_type.index()].capacity.get(*resource);
                *left -= offers.iter().map(capacity).max().unwrap_or(0);
            }
            rest.nodes = rest.nodes.map(|nodes| nodes.saturating_sub(1));
            let dearest = offers.iter().map(|offer| market.offer(offer).price).max().unwrap_or(0);
            rest.price = rest.price.map(|left| left.saturating_sub(u128::from(dearest)));
        }
    }

    /// Adds a pod to a claim, which may only become these offers from now on.
    fn join(&mut self, class: ClassId, index: usize, offers: BitSet) {
        let of = self.class(class);
        let most = self.most(&offers);
        let claim = &mut self.claims[index];
        self.order.remove(&(claim.pods, index as u32));
        claim.pods += 1;
        claim.used.add(&of.requests);
        claim.ports.extend(of.host_ports.iter().cloned());
        claim.most = most;
        claim.offers = offers;
        self.order.insert((claim.pods, index as u32));
        self.count(class, index);
    }

    fn count(&mut self, class: ClassId, index: usize) {
        let topology = &self.topology;
        let keys = self.counted_by.entry(class).or_insert_with(|| {
            let keys: BTreeSet<Symbol> = topology.keys_of(class).collect();
            keys.into_iter().collect()
        });
        let claim = &self.claims[index];
        for &key in Rc::clone(keys).iter() {
            if key == self.builder.snapshot.names.hostname {
                self.topology.add_possible(class, key, &[claim.host]);
                continue;
            }
            let possible = self.builder.market.values(key).filter(|(_, with)| with.intersects(&claim.offers));
            let domains: Vec<Domain> = possible.map(|(value, _)| Domain::value(value)).collect();
            self.topology.add_possible(class, key, &domains);
        }
    }

    fn suiting(&mut self, level: Level) -> Rc<BitSet> {
        let Level { class, strict } = level;
        if let Some(known) = self.suiting.get(&(class, strict)) {
            return Rc::clone(known);
        }
        let mut suiting = self.builder.cluster.suiting_offers(class).clone();
        suiting.intersect(self.builder.market.available());
        let snapshot = self.builder.snapshot;
        for (index, pool) in snapshot.pools.iter().enumerate().filter(|_| strict) {
            if taint::count_discouraging(&pool.taints, &self.class(class).tolerations, &snapshot.symbols) > 0 {
                suiting.subtract(self.builder.market.of_pool(PoolId::from(index)));
            }
        }
        let suiting = Rc::new(suiting);
        self.suiting.insert((class, strict), Rc::clone(&suiting));
        suiting
    }

    /// What a pod requires of any claim.
    fn ask(&mut self, level: Level) -> Ask {
        let suiting = self.suiting(level);
        let class = level.class;
        let topology = &self.topology;
        let keys = self.looks_at.entry(class).or_insert_with(|| topology.looks_at(class).into());
        let mut ask = Ask { allowed: (*suiting).clone(), suiting, choices: Vec::new() };
        for &key in Rc::clone(keys).iter() {
            if key != self.builder.snapshot.names.hostname {
                self.ask_domains(class, key, &mut ask);
            }
        }
        ask
    }

    fn ask_domains(&self, class: ClassId, key: Symbol, ask: &mut Ask) {
        let (market, snapshot) = (self.builder.market, self.builder.snapshot);
        let spread = self.class(class).spread.iter().any(|spread| spread.hard && spread.key == key);
        let near = self.topology.is_affine(class, key);
        let mut allowed = Vec::new();
        let mut forbidden = BitSet::new();
        for (value, offers) in market.values(key).filter(|(_, offers)| offers.intersects(&ask.suiting)) {
            match self.topology.check_domain(class, key, Domain::value(value)) {
                Ok(()) => allowed.push((value, offers)),
                Err(_) => forbidden.unite(offers),
            }
        }
        if !spread && !near {
            ask.allowed.subtract(&forbidden);
            return;
        }
        let cheapest = |offers: &BitSet| {
            let suiting = offers.iter().filter(|offer| ask.suiting.contains(*offer));
            suiting.map(|offer| market.offer(offer).price).min()
        };
        allowed.sort_by_cached_key(|(value, offers)| {
            let load = if spread { self.topology.load(class, key, Domain::value(*value)) } else { 0 };
            let price = if spread { None } else { cheapest(offers) };
            (load, price, snapshot.text(*value).to_owned())
        });
        let mut any = BitSet::new();
        allowed.iter().for_each(|(_, offers)| any.unite(offers));
        ask.allowed.intersect(&any);
        ask.choices.push(allowed.into_iter().map(|(value, offers)| (value, offers.clone())).collect());
    }
}

impl Rest {
    fn new(limits: &Limits, usage: &crate::market::Usage) -> Self {
        let left = |&(resource, limit): &(_, i64)| (resource, limit.saturating_sub(usage.capacity.get(resource)));
        Self {
            resources: limits.resources.iter().map(left).collect(),
            nodes: limits.nodes.map(|limit| limit.saturating_sub(usage.nodes)),
            price: limits.price.map(|limit| u128::from(limit).saturating_sub(usage.price)),
        }
    }
}

/// Pods are never removed during a round, so an anti-affinity that refuses a claim refuses it for the whole round.
/// Affinity and spread may be satisfied later.
fn mismatch(rule: Rule) -> ClaimMismatch {
    match rule {
        Rule::PodAntiAffinity => ClaimMismatch::ForGood,
        _ => ClaimMismatch::ForNow,
    }
}

fn conflict(taken: &[HostPort], wanted: &[HostPort]) -> bool {
    wanted.iter().any(|port| taken.iter().any(|taken| taken.conflicts(port)))
}
