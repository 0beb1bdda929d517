//! Affinity between pods: required and preferred, near and apart, in both directions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodAffinityTerm;

use super::labels::{Labels, Requirement, Selector};
use super::reason::Reason;
use super::shape::Shape;
use super::snapshot::{Count, Slot, Snapshot, Topology};

/// How much a running pod's required affinity draws pods that it selects.
const REQUIRED_AFFINITY_PULL: i64 = 1;

/// Pods that should or should not share a topology domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodTerm {
    /// The label whose value makes a domain.
    pub topology_key: String,
    selector: Selector,
    namespaces: BTreeSet<String>,
    namespace_selector: Selector,
}

impl PodTerm {
    /// Compiles a term of a pod in this namespace with these labels.
    pub fn compile(term: &PodAffinityTerm, namespace: &str, labels: &Labels) -> Self {
        let same = |key: &String| Some(Requirement::equals(key, labels.get(key)?));
        let other = |key: &String| Some(Requirement::NotIn(key.clone(), vec![labels.get(key)?.clone()]));
        let selector = Selector::compile(term.label_selector.as_ref())
            .and(term.match_label_keys.iter().flatten().filter_map(same))
            .and(term.mismatch_label_keys.iter().flatten().filter_map(other));
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        Self {
            topology_key: term.topology_key.clone(),
            selector,
            namespaces,
            namespace_selector: Selector::compile(term.namespace_selector.as_ref()),
        }
    }

    /// Whether the term speaks about pods of this shape.
    pub fn selects(&self, shape: &Shape, snapshot: &Snapshot) -> bool {
        let namespace_fits = self.namespaces.contains(&shape.namespace)
            || self.namespace_selector.matches(snapshot.namespace_labels(&shape.namespace));
        namespace_fits && self.selector.matches(&shape.labels)
    }
}

/// Pods counted per domain of one topology key.
#[derive(Clone, Debug)]
struct DomainCounts<'a> {
    topology: &'a Topology,
    counts: Vec<i64>,
}

impl<'a> DomainCounts<'a> {
    fn new(snapshot: &'a Snapshot, key: &str) -> Self {
        let topology = snapshot.topology(key);
        Self { topology, counts: vec![0; topology.len()] }
    }

    fn add(&mut self, slot: Slot, amount: i64) {
        if let Some(domain) = self.topology.domain(slot) {
            self.counts[domain] += amount;
        }
    }

    fn add_running(&mut self, on: &BTreeMap<Slot, Count>, factor: i64) {
        for (slot, count) in on {
            self.add(*slot, i64::from(count.all) * factor);
        }
    }

    /// The count in the domain of a slot; `None` without the label.
    fn at(&self, slot: Slot) -> Option<i64> {
        Some(self.counts[self.topology.domain(slot)?])
    }
}

/// The required pod affinity of one incoming pod, compiled for a cycle.
#[derive(Clone, Debug)]
pub struct AffinityState<'a> {
    snapshot: &'a Snapshot,
    shape: &'a Shape,
    /// Per required term: pods that match all required terms.
    near: Vec<DomainCounts<'a>>,
    /// Total of the (pod, term) pairs counted in `near`.
    near_total: i64,
    /// Per required anti-affinity term: pods that match it.
    apart: Vec<DomainCounts<'a>>,
    /// Per topology key: running pods that repel this one.
    repelled: BTreeMap<&'a str, DomainCounts<'a>>,
}

impl<'a> AffinityState<'a> {
    /// Counts the running pods that matter to a pod of this shape.
    pub fn prepare(snapshot: &'a Snapshot, shape: &'a Shape) -> Self {
        let fresh =
            |terms: &'a [PodTerm]| terms.iter().map(|term| DomainCounts::new(snapshot, &term.topology_key)).collect();
        let mut state = Self {
            snapshot,
            shape,
            near: fresh(&shape.required_affinity),
            near_total: 0,
            apart: fresh(&shape.required_anti_affinity),
            repelled: BTreeMap::new(),
        };
        if !(state.near.is_empty() && state.apart.is_empty()) {
            for (running, on) in snapshot.running() {
                state.count_selected(running, &places(on));
            }
        }
        for (running, on) in snapshot.running_repelling() {
            state.count_repelling(running, &places(on));
        }
        state
    }

    /// Whether the rules have nothing to say about this pod.
    pub fn is_idle(&self) -> bool {
        self.near.is_empty() && self.apart.is_empty() && self.repelled.is_empty()
    }

    /// Counts `amount` pods of a shape more (or less) on a slot.
    pub fn update(&mut self, running: &'a Shape, slot: Slot, amount: i64) {
        self.count_selected(running, &[(slot, amount)]);
        self.count_repelling(running, &[(slot, amount)]);
    }

    /// Judges one node.
    pub fn check(&self, slot: Slot) -> Result<(), Reason> {
        if !self.near_holds(slot) {
            return Err(Reason::PodAffinity);
        }
        if self.apart.iter().any(|counts| counts.at(slot).is_some_and(|pods| pods > 0)) {
            return Err(Reason::PodAntiAffinity);
        }
        if self.repelled.values().any(|counts| counts.at(slot).is_some_and(|pods| pods > 0)) {
            return Err(Reason::ExistingAntiAffinity);
        }
        Ok(())
    }

    fn near_holds(&self, slot: Slot) -> bool {
        let mut all_present = true;
        for counts in &self.near {
            match counts.at(slot) {
                None => return false,
                Some(pods) => all_present &= pods > 0,
            }
        }
        // The first pod of a group that wants to be near itself may go anywhere.
        all_present || (self.near_total == 0 && self.selects_itself())
    }

    fn selects_itself(&self) -> bool {
        self.shape.required_affinity.iter().all(|term| term.selects(self.shape, self.snapshot))
    }

    fn count_selected(&mut self, running: &Shape, places: &[(Slot, i64)]) {
        let selects = |term: &PodTerm| term.selects(running, self.snapshot);
        if !self.near.is_empty() && self.shape.required_affinity.iter().all(selects) {
            for counts in &mut self.near {
                for (slot, amount) in places.iter().copied() {
                    if counts.topology.domain(slot).is_some() {
                        self.near_total += amount;
                    }
                    counts.add(slot, amount);
                }
            }
        }
        for (term, counts) in self.shape.required_anti_affinity.iter().zip(&mut self.apart) {
            if term.selects(running, self.snapshot) {
                for (slot, amount) in places.iter().copied() {
                    counts.add(slot, amount);
                }
            }
        }
    }

    fn count_repelling(&mut self, running: &'a Shape, places: &[(Slot, i64)]) {
        for term in &running.required_anti_affinity {
            if term.selects(self.shape, self.snapshot) {
                let counts = self
                    .repelled
                    .entry(&term.topology_key)
                    .or_insert_with(|| DomainCounts::new(self.snapshot, &term.topology_key));
                for (slot, amount) in places.iter().copied() {
                    counts.add(slot, amount);
                }
            }
        }
    }
}

/// Where pods run, and how many.
fn places(on: &BTreeMap<Slot, Count>) -> Vec<(Slot, i64)> {
    on.iter().map(|(slot, count)| (*slot, i64::from(count.all))).collect()
}

/// The scores of nodes by preferred pod affinity.
#[derive(Debug)]
pub struct AffinityScores<'a> {
    by_key: BTreeMap<&'a str, DomainCounts<'a>>,
}

impl<'a> AffinityScores<'a> {
    /// Weighs the running pods; `None` when none has a say.
    pub fn prepare(snapshot: &'a Snapshot, shape: &'a Shape) -> Option<Self> {
        let mut scores = Self { by_key: BTreeMap::new() };
        if !(shape.preferred_affinity.is_empty() && shape.preferred_anti_affinity.is_empty()) {
            for (running, on) in snapshot.running() {
                scores.pull(snapshot, &shape.preferred_affinity, running, on, 1);
                scores.pull(snapshot, &shape.preferred_anti_affinity, running, on, -1);
            }
        }
        for (running, on) in snapshot.running_with_affinity() {
            for term in &running.required_affinity {
                if term.selects(shape, snapshot) {
                    scores.counts(snapshot, term).add_running(on, REQUIRED_AFFINITY_PULL);
                }
            }
            scores.pull(snapshot, &running.preferred_affinity, shape, on, 1);
            scores.pull(snapshot, &running.preferred_anti_affinity, shape, on, -1);
        }
        (!scores.by_key.is_empty()).then_some(scores)
    }

    /// The raw score of a node.
    pub fn raw(&self, slot: Slot) -> i64 {
        self.by_key.values().filter_map(|counts| counts.at(slot)).sum()
    }

    fn pull(
        &mut self,
        snapshot: &'a Snapshot,
        terms: &'a [(i64, PodTerm)],
        selected: &Shape,
        on: &BTreeMap<Slot, Count>,
        sign: i64,
    ) {
        for (weight, term) in terms {
            if term.selects(selected, snapshot) {
                self.counts(snapshot, term).add_running(on, weight * sign);
            }
        }
    }

    fn counts(&mut self, snapshot: &'a Snapshot, term: &'a PodTerm) -> &mut DomainCounts<'a> {
        self.by_key.entry(&term.topology_key).or_insert_with(|| DomainCounts::new(snapshot, &term.topology_key))
    }
}
