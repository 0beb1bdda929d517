//! Rules between pods about zones, racks, capacity types: every label but the hostname.
//!
//! A class that has such a rule, or that such a rule of another class counts, is split into parts: a number of pods for
//! each zone. From then on a zone is only a set of offers. Pods are assigned one by one to the allowed domain that has
//! the fewest of the pods concerned; zones in which nodes can be bought count as domains, so a spread uses all of them.
//! Final counts within the skew mean that kube-scheduler can bind the pods in any order.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::model::{CPU, ClassId};
use crate::pack::BitSet;
use crate::symbol::Symbol;
use crate::topology::{Domain, Topology};

use super::Solver;

/// Index of a set of offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SetId(pub(super) u32);

/// Distinct sets of offers.
#[derive(Debug, Default)]
pub(super) struct OfferSets {
    sets: Vec<BitSet>,
    known: HashMap<BitSet, SetId, FixedState>,
    /// Sets computed before.
    bases: HashMap<u32, SetId, FixedState>,
    inside: HashMap<(SetId, Symbol, Symbol), SetId>,
    /// Without offers that, once full, break a promise of `minValues`.
    flexible: bool,
}

impl OfferSets {
    /// For choosing nodes, which should be filled.
    pub(super) fn to_fill() -> Self {
        Self { flexible: true, ..Self::default() }
    }

    pub(super) fn get(&self, id: SetId) -> &BitSet {
        &self.sets[id.0 as usize]
    }

    fn intern(&mut self, set: BitSet) -> SetId {
        if let Some(id) = self.known.get(&set) {
            return *id;
        }
        let id = SetId(self.sets.len() as u32);
        self.sets.push(set.clone());
        self.known.insert(set, id);
        id
    }
}

/// Pods of a class that may go to some offers only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) class: ClassId,
    pub(super) offers: SetId,
    pub(super) count: u32,
}

impl Solver<'_> {
    /// Offers that are available and on which the class may be, whatever their size.
    pub(super) fn base_offers(&mut self, class: ClassId, sets: &mut OfferSets) -> SetId {
        let number = self.cluster.static_id(class);
        if let Some(id) = sets.bases.get(&number) {
            return *id;
        }
        let mut offers = self.cluster.suiting_offers(class).clone();
        offers.intersect(&self.on_sale);
        if sets.flexible {
            self.min_values.keep_flexible(&mut offers, self.market);
        }
        let id = sets.intern(offers);
        sets.bases.insert(number, id);
        id
    }

    /// While existing nodes are filled, zones in which nodes can be bought count as domains too.
    pub(super) fn expect_domains_on_offer(&mut self) {
        let mut sets = OfferSets::to_fill();
        for class in self.waiting() {
            let keys: Vec<Symbol> = self.cluster.topology().spread_keys(class).collect();
            if keys.is_empty() {
                continue;
            }
            let base = self.base_offers(class, &mut sets);
            for key in keys {
                for (value, _) in self.domains_for(class, base, key, &mut sets) {
                    self.cluster.topology_mut().expect_domain(class, key, Domain::value(value));
                }
            }
        }
    }

    /// Splits pending pods into parts.
    pub(super) fn deal(&mut self, classes: &[ClassId], sets: &mut OfferSets) -> Vec<Part> {
        let hostname = self.snapshot.names.hostname;
        let mut parts = Vec::with_capacity(classes.len());
        let mut ruled: Vec<(ClassId, Vec<Symbol>)> = Vec::new();
        for &class in classes {
            let mut keys: Vec<Symbol> = self.cluster.topology().keys_of(class).filter(|key| *key != hostname).collect();
            keys.sort_unstable_by_key(|key| self.snapshot.text(*key));
            keys.dedup();
            if keys.is_empty() {
                let offers = self.base_offers(class, sets);
                parts.push(Part { class, offers, count: self.left(class) });
            } else {
                ruled.push((class, keys));
            }
        }
        if !ruled.is_empty() {
            self.deal_ruled(&ruled, sets, &mut parts);
        }
        parts
    }

    fn deal_ruled(&mut self, ruled: &[(ClassId, Vec<Symbol>)], sets: &mut OfferSets, parts: &mut Vec<Part>) {
        let mut table =
            Table { topology: self.cluster.topology().clone(), volume: BTreeMap::new(), companions: HashMap::new() };
        for (class, keys) in ruled {
            let base = self.base_offers(*class, sets);
            for &key in keys {
                for (value, _) in self.domains_for(*class, base, key, sets) {
                    table.topology.expect_domain(*class, key, Domain::value(value));
                }
            }
        }
        // Classes with required affinity come after the classes that they may need.
        let affine = |(class, keys): &&(ClassId, Vec<Symbol>)| {
            keys.iter().any(|&key| self.cluster.topology().is_affine(*class, key))
        };
        let (last, first): (Vec<_>, Vec<_>) = ruled.iter().partition(affine);
        let ordered: Vec<_> = first.into_iter().chain(last).collect();
        let mut hands = Vec::with_capacity(ordered.len());
        for (class, keys) in &ordered {
            let base = self.base_offers(*class, sets);
            let mut open = vec![Part { class: *class, offers: base, count: self.left(*class) }];
            for &key in keys {
                let mut closer = Vec::new();
                for part in open {
                    let near = self.companions(*class, key, &ordered, &mut table, sets);
                    let hand = self.deal_part(part, key, near.as_deref(), &mut table, sets);
                    if keys.len() == 1 {
                        hands.push(hand);
                    } else {
                        closer.extend(hand.parts());
                    }
                }
                open = closer;
            }
            parts.extend(open);
        }
        table.even_out(&mut hands);
        parts.extend(hands.iter().flat_map(Hand::parts));
    }

    /// Domains that all classes of an affinity group can use: a group that starts somewhere new should start where
    /// all of it can be.
    fn companions(
        &mut self,
        class: ClassId,
        key: Symbol,
        ruled: &[&(ClassId, Vec<Symbol>)],
        table: &mut Table,
        sets: &mut OfferSets,
    ) -> Option<Vec<Symbol>> {
        let group = self.cluster.topology().affinity_group(class, key);
        if group.is_empty() {
            return None;
        }
        if let Some(known) = table.companions.get(&group) {
            return known.clone();
        }
        let mut shared: Option<Vec<Symbol>> = None;
        for &&(other, _) in ruled {
            let topology = self.cluster.topology();
            if !(topology.follows(other, class, key) || topology.follows(class, other, key)) {
                continue;
            }
            let base = self.base_offers(other, sets);
            let theirs: Vec<Symbol> = self.domains_for(other, base, key, sets).into_iter().map(|(v, _)| v).collect();
            match &mut shared {
                Some(shared) => shared.retain(|value| theirs.contains(value)),
                None => shared = Some(theirs),
            }
        }
        let shared = shared.filter(|shared| !shared.is_empty());
        table.companions.insert(group, shared.clone());
        shared
    }

    fn deal_part(
        &mut self,
        part: Part,
        key: Symbol,
        near: Option<&[Symbol]>,
        table: &mut Table,
        sets: &mut OfferSets,
    ) -> Hand {
        let domains = self.domains_for(part.class, part.offers, key, sets);
        let cpu = u128::from(self.snapshot.classes[part.class.index()].requests.get(CPU).max(1).unsigned_abs());
        let mut counts = vec![0_u32; domains.len()];
        for _ in 0..part.count {
            let allowed = (0..domains.len())
                .filter(|&index| table.topology.check_domain(part.class, key, Domain::value(domains[index].0)).is_ok());
            // The first of equals, since domains are in the order of their names.
            let best = allowed.min_by_key(|&index| {
                let value = domains[index].0;
                let apart = near.is_some_and(|near| !near.contains(&value));
                let load = table.topology.load(part.class, key, Domain::value(value));
                (apart, load, table.volume.get(&(key, value)).copied().unwrap_or(0))
            });
            let Some(best) = best else { break };
            let value = domains[best].0;
            table.topology.add_in_domain(part.class, key, Domain::value(value), 1);
            *table.volume.entry((key, value)).or_default() += cpu;
            counts[best] += 1;
        }
        Hand { class: part.class, key, domains, counts }
    }

    /// The domains of a label in which a class could be bought a node, by name, with the offers in each.
    fn domains_for(&mut self, class: ClassId, base: SetId, key: Symbol, sets: &mut OfferSets) -> Vec<(Symbol, SetId)> {
        let requests = &self.snapshot.classes[class.index()].requests;
        let mut domains = Vec::new();
        let mut values: Vec<Symbol> = self.market.values(key).map(|(value, _)| value).collect();
        values.sort_unstable_by_key(|value| self.snapshot.text(*value));
        for value in values {
            let inside = match sets.inside.get(&(base, key, value)) {
                Some(id) => *id,
                None => {
                    let mut inside = sets.get(base).clone();
                    let carrying = self.market.values(key).find(|(carried, _)| *carried == value);
                    inside.intersect(carrying.expect("the value comes from the market").1);
                    let id = sets.intern(inside);
                    sets.inside.insert((base, key, value), id);
                    id
                }
            };
            let fits = |offer: usize| self.market.offer(offer).free.first_lacking(requests).is_none();
            if sets.get(inside).iter().any(fits) {
                domains.push((value, inside));
            }
        }
        domains
    }
}

/// Pods of a class, by domain of a label.
struct Hand {
    class: ClassId,
    key: Symbol,
    domains: Vec<(Symbol, SetId)>,
    counts: Vec<u32>,
}

impl Hand {
    fn parts(&self) -> impl Iterator<Item = Part> {
        let dealt = self.counts.iter().zip(&self.domains).filter(|(count, _)| **count > 0);
        dealt.map(|(&count, &(_, offers))| Part { class: self.class, offers, count })
    }
}

/// The domains that pods are assigned to.
struct Table {
    topology: Topology,
    /// Cores dealt to each domain so far: among equals the emptier.
    volume: BTreeMap<(Symbol, Symbol), u128>,
    /// Domains for whole affinity groups, by what they are affine to.
    companions: HashMap<Vec<usize>, Option<Vec<Symbol>>>,
}

impl Table {
    /// Pods that come later can bring spreads out of balance that look at them: moves some of them until none is.
    fn even_out(&mut self, hands: &mut [Hand]) {
        for hand in hands {
            for from in 0..hand.domains.len() {
                while hand.counts[from] > 0 && self.topology.excess(hand.class, hand.key) > 0 {
                    let mut others = (0..hand.domains.len()).filter(|to| *to != from);
                    let Some(to) = others.find(|&to| self.moves_evenly(hand, from, to)) else { break };
                    hand.counts[from] -= 1;
                    hand.counts[to] += 1;
                }
            }
        }
    }

    /// Moves a pod from one domain to another if that makes spreads more even and no rule of its own is against it.
    fn moves_evenly(&mut self, hand: &Hand, from: usize, to: usize) -> bool {
        let (class, key) = (hand.class, hand.key);
        let [from, to] = [from, to].map(|index| Domain::value(hand.domains[index].0));
        let before = self.topology.excess(class, key);
        self.topology.add_in_domain(class, key, from, -1);
        if self.topology.check_domain(class, key, to).is_ok() {
            self.topology.add_in_domain(class, key, to, 1);
            if self.topology.excess(class, key) < before {
                return true;
            }
            self.topology.add_in_domain(class, key, to, -1);
        }
        self.topology.add_in_domain(class, key, from, 1);
        false
    }
}
