//! Chooses zones, racks and other domains for pods that have to move and that topology rules concern: each stays in its
//! domain as long as kube-scheduler would allow that.
//!
//! kube-scheduler may no longer allow it: since a pod was bound, pods that its spread counts may have come or gone,
//! pods that it needs nearby may have left, or its zone may have no offering any more. A trial run finds out: all pods
//! are counted in their present domains, and each pod that the rules refuse there is assigned to another domain that
//! they allow, one pod after the other. The trial run leaves the cluster state as it was.

use std::collections::BTreeMap;

use super::eligible::DisruptionBlocker;
use super::purchase::{holding, holds};
use super::state::State;
use crate::market::Market;
use crate::model::{ClassId, Labels, PodId};
use crate::pack::BitSet;
use crate::plan::Rule;
use crate::symbol::Symbol;
use crate::topology::{Domain, TopologyNode};

/// Labels other than the hostname that topology rules name, with their values.
pub(super) type Domains = Vec<(Symbol, Option<Symbol>)>;

/// Pods by class and by the domains that they are to be scheduled in.
pub(super) type Groups = BTreeMap<(ClassId, Domains), Vec<PodId>>;

/// Groups pods for which some of these offers are to be bought. Returns a pod as the error if the rules allow it in no
/// domain.
pub(super) fn groups(state: &mut State<'_>, offers: &BitSet, pods: &[PodId]) -> Result<Groups, DisruptionBlocker> {
    let mut groups = Groups::new();
    for &pod in pods {
        let class = state.class(pod);
        let domains = domains(&keys(state, class), state.last_place(pod).labels);
        groups.entry((class, domains)).or_default().push(pod);
    }
    if groups.keys().all(|(_, domains)| domains.is_empty()) {
        return Ok(groups);
    }
    let mut rehearsal = Rehearsal { state, offers, nodes: BTreeMap::new(), seats: BTreeMap::new() };
    rehearsal.seat_all(&groups);
    let refused = rehearsal.take_refused(&mut groups);
    let dealt = rehearsal.deal(refused, &mut groups);
    rehearsal.end();
    groups.retain(|_, pods| !pods.is_empty());
    dealt.map(|()| groups)
}

/// Keeps only the offers that are in the domains.
pub(super) fn keep_inside(offers: &mut BitSet, domains: &Domains, market: &Market) {
    for (key, value) in domains {
        let same = market.values(*key).find(|(known, _)| Some(*known) == *value).map(|(_, offers)| offers);
        // A pod whose node lacks the label stays on nodes without it.
        match same {
            Some(same) => offers.intersect(same),
            None => market.values(*key).for_each(|(_, offers_of)| offers.subtract(offers_of)),
        }
    }
}

fn keys(state: &State<'_>, class: ClassId) -> Vec<Symbol> {
    let hostname = state.snapshot.names.hostname;
    let mut keys: Vec<Symbol> = state.cluster.topology().keys_of(class).filter(|key| *key != hostname).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn domains(keys: &[Symbol], labels: &Labels) -> Domains {
    keys.iter().map(|key| (*key, labels.get(*key))).collect()
}

/// The trial run: pods are counted where they could be scheduled again until each has a domain.
struct Rehearsal<'a, 's> {
    state: &'a mut State<'s>,
    /// Offers that can be bought.
    offers: &'a BitSet,
    /// How many of the pods are on each node; a node without any no longer makes its domain exist.
    nodes: BTreeMap<u32, u32>,
    seats: BTreeMap<PodId, TopologyNode<'s>>,
}

/// A pod that cannot be scheduled in its present domain.
struct Refused {
    pod: PodId,
    /// Its present domain.
    before: Domains,
    /// The topology rule that refuses it; `None` means that no offer is available in the domain.
    rule: Option<Rule>,
}

impl<'s> Rehearsal<'_, 's> {
    fn seat_all(&mut self, groups: &Groups) {
        for (_, pods) in groups.iter().filter(|((_, domains), _)| !domains.is_empty()) {
            for &pod in pods {
                self.seat(pod, self.state.last_place(pod));
            }
        }
    }

    fn seat(&mut self, pod: PodId, place: TopologyNode<'s>) {
        let (class, snapshot) = (self.state.class(pod), self.state.snapshot);
        let topology = self.state.cluster.topology_mut();
        let seated = self.nodes.entry(place.spot).or_default();
        if *seated == 0 {
            topology.add_node(place, snapshot);
        }
        *seated += 1;
        topology.add(class, place, 1, snapshot);
        self.seats.insert(pod, place);
    }

    fn unseat(&mut self, pod: PodId) {
        let Some(place) = self.seats.remove(&pod) else { return };
        let (class, snapshot) = (self.state.class(pod), self.state.snapshot);
        let topology = self.state.cluster.topology_mut();
        topology.remove(class, place, 1, snapshot);
        let seated = self.nodes.entry(place.spot).or_default();
        *seated -= 1;
        if *seated == 0 {
            topology.remove_node(place, snapshot);
        }
    }

    /// Removes and returns the pods that cannot be scheduled in their present domain.
    fn take_refused(&mut self, groups: &mut Groups) -> Vec<Refused> {
        let mut refused = Vec::new();
        for ((class, domains), pods) in groups.iter_mut().filter(|((_, domains), _)| !domains.is_empty()) {
            let sold = self.is_sold(*class, domains);
            while let Some(&pod) = pods.last() {
                let place = self.state.last_place(pod);
                self.unseat(pod);
                let rule = self.state.cluster.topology().check_besides_host(*class, place).err();
                if sold && rule.is_none() {
                    // Pods of one group are equal, so the result for one holds for all.
                    self.seat(pod, place);
                    break;
                }
                refused.push(Refused { pod, before: domains.clone(), rule });
                pods.pop();
            }
        }
        refused
    }

    fn is_sold(&mut self, class: ClassId, domains: &Domains) -> bool {
        let mut offers = self.suiting(class);
        keep_inside(&mut offers, domains, self.state.market);
        offers.iter().any(|offer| holds(self.state, class, offer))
    }

    fn suiting(&mut self, class: ClassId) -> BitSet {
        let mut offers = self.state.cluster.suiting_offers(class).clone();
        offers.intersect(self.offers);
        offers
    }

    /// Assigns pods to other domains.
    fn deal(&mut self, mut refused: Vec<Refused>, groups: &mut Groups) -> Result<(), DisruptionBlocker> {
        // Pods with required affinity come after the pods that they may need.
        refused.sort_by_key(|refused| self.state.cluster.topology().must_be_near(self.state.class(refused.pod)));
        let mut choices = BTreeMap::new();
        for refused in refused {
            let class = self.state.class(refused.pod);
            let choices = choices.entry(class).or_insert_with(|| self.choices(class));
            let chosen = self.choose(&refused, choices);
            let (domains, offer) = chosen.map_err(|rule| DisruptionBlocker::NoPlace(refused.pod, rule))?;
            // Each pod gets a hypothetical node of its own: here only domains count, not capacity.
            let spot = self.state.cluster.len() + self.nodes.len();
            self.seat(refused.pod, self.state.cluster.place_on(offer, spot as u32));
            groups.entry((class, domains)).or_default().push(refused.pod);
        }
        Ok(())
    }

    /// Domains in which a node can be bought for the class, each with one offer.
    fn choices(&mut self, class: ClassId) -> BTreeMap<Domains, usize> {
        let offers = self.suiting(class);
        let keys = keys(self.state, class);
        let mut choices = BTreeMap::new();
        for offer in holding(self.state, class, &offers) {
            choices.entry(domains(&keys, &self.state.market.offer(offer).labels)).or_insert(offer);
        }
        choices
    }

    /// Of the domains that the rules allow, those that change the fewest labels; among these, the one with the fewest
    /// pods. The error is the rule that excludes all of them.
    fn choose(&self, refused: &Refused, choices: &BTreeMap<Domains, usize>) -> Result<(Domains, usize), Rule> {
        let (class, snapshot) = (self.state.class(refused.pod), self.state.snapshot);
        let topology = self.state.cluster.topology();
        let check = |offer: usize| topology.check_besides_host(class, self.state.cluster.place_on(offer, u32::MAX));
        let allowed = choices.iter().filter(|(_, offer)| check(**offer).is_ok());
        let best = allowed.min_by_key(|(domains, _)| {
            let changed = domains.iter().zip(&refused.before).filter(|(new, old)| new != old).count();
            let values = || domains.iter().filter_map(|(key, value)| Some((*key, Domain::value((*value)?))));
            // A domain without nodes so far comes into being with no pods, and a spread compares all others with it.
            let new = values().any(|(key, domain)| !topology.knows(class, key, domain));
            let load: u64 = values().map(|(key, domain)| topology.load(class, key, domain)).sum();
            let text = |symbol: &Symbol| snapshot.text(*symbol);
            let names: BTreeMap<_, _> =
                domains.iter().map(|(key, value)| (text(key), value.as_ref().map(text))).collect();
            (changed, new, load, names)
        });
        let against = || choices.values().filter_map(|offer| check(*offer).err()).min();
        match best {
            Some((domains, offer)) => Ok((domains.clone(), *offer)),
            // Without any offer for the class, no topology rule is to blame.
            None if choices.is_empty() => Err(Rule::Resources),
            None => Err(refused.rule.or_else(against).unwrap_or(Rule::Resources)),
        }
    }

    /// Reverts the trial run.
    fn end(mut self) {
        while let Some((&pod, _)) = self.seats.first_key_value() {
            self.unseat(pod);
        }
    }
}
