//! Preemption: which pods of lower priority would have to be evicted, and from which node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::cycle::Cycle;
use super::labels::Selector;
use super::reason::{Preemption, Reason};
use super::snapshot::{PodEntry, PodKey, Slot};

/// At least this many nodes are tried before the best is chosen …
const TRIED_NODES_AT_LEAST: usize = 100;
/// … or this share of them, in percent.
const TRIED_NODES_PERCENT: usize = 10;

/// A disruption budget as far as preemption cares.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Its namespace.
    pub namespace: String,
    /// The pods it protects.
    pub selector: Selector,
    /// How many may go now.
    pub allowed: i32,
    /// Pods whose disruption their budget has counted already.
    pub disrupted: BTreeSet<String>,
}

/// A node that can be freed, and at what price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub slot: Slot,
    /// The pods that have to go, the most important first.
    pub victims: Vec<PodKey>,
    /// How many of them a budget would protect.
    pub broken_budgets: usize,
}

/// Looks for the cheapest set of victims.
///
/// `resolvable` are the nodes where removing pods could help; `offset` is where the search starts,
/// so that not always the same nodes are emptied.
pub fn find(
    cycle: &Cycle<'_>,
    resolvable: &[Slot],
    nominated: Option<&str>,
    budgets: &[Budget],
    offset: usize,
) -> Result<Candidate, Preemption> {
    if !cycle.shape().may_preempt {
        return Err(Preemption::Never);
    }
    if waits_for_victims(cycle, resolvable, nominated) {
        return Err(Preemption::Waiting);
    }
    let nodes = cycle.snapshot.node_count();
    let wanted = (resolvable.len() * TRIED_NODES_PERCENT / 100).max(TRIED_NODES_AT_LEAST).min(resolvable.len());
    let mut candidates = Vec::new();
    let mut refusals: BTreeMap<Reason, usize> = BTreeMap::new();
    for step in 0..resolvable.len() {
        let slot = resolvable[(offset + step) % resolvable.len()];
        match free(cycle, slot, budgets) {
            Ok(candidate) => candidates.push(candidate),
            Err(reasons) => reasons.into_iter().for_each(|why| *refusals.entry(why).or_default() += 1),
        }
        let harmless = candidates.iter().any(|candidate| candidate.broken_budgets == 0);
        if harmless && candidates.len() >= wanted {
            break;
        }
    }
    if let Some(best) = cheapest(cycle, candidates) {
        return Ok(best);
    }
    let untouched = nodes - resolvable.len();
    if untouched > 0 {
        *refusals.entry(Reason::PreemptionFutile).or_default() += untouched;
    }
    Err(Preemption::Futile(nodes, refusals))
}

/// Whether victims of an earlier choice are still on their way out.
fn waits_for_victims(cycle: &Cycle<'_>, resolvable: &[Slot], nominated: Option<&str>) -> bool {
    let Some(slot) = nominated.and_then(|name| cycle.snapshot.slot(name)) else {
        return false;
    };
    resolvable.contains(&slot) && lesser_pods(cycle, slot).any(|(_, entry)| entry.leaving && entry.preempted)
}

fn lesser_pods<'a>(cycle: &Cycle<'a>, slot: Slot) -> impl Iterator<Item = (&'a PodKey, &'a PodEntry)> {
    let priority = cycle.shape().priority;
    let snapshot = cycle.snapshot;
    snapshot
        .state(slot)
        .pods
        .iter()
        .filter_map(move |key| Some((key, snapshot.pod(key)?)))
        .filter(move |(_, entry)| entry.shape.shape.priority < priority)
}

/// Removes all lesser pods from a node and gives back as many as possible.
fn free(cycle: &Cycle<'_>, slot: Slot, budgets: &[Budget]) -> Result<Candidate, Vec<Reason>> {
    let mut lesser: Vec<(&PodKey, &PodEntry)> = lesser_pods(cycle, slot).collect();
    if lesser.is_empty() {
        return Err(vec![Reason::NoVictims]);
    }
    let mut trial = cycle.trial(slot);
    for (_, entry) in &lesser {
        trial.remove(entry);
    }
    cycle.check_trial(&trial).map_err(|refusal| refusal.reasons)?;
    lesser.sort_by_key(|(key, entry)| importance(key, entry));
    let (protected, free): (Vec<_>, Vec<_>) = split_by_budget(&lesser, budgets);
    let mut victims = Vec::new();
    let mut broken_budgets = 0;
    for (is_protected, (key, entry)) in
        protected.into_iter().map(|pod| (true, pod)).chain(free.into_iter().map(|pod| (false, pod)))
    {
        trial.restore(entry);
        if cycle.check_trial(&trial).is_err() {
            trial.remove(entry);
            broken_budgets += usize::from(is_protected);
            victims.push((key, entry));
        }
    }
    victims.sort_by_key(|(key, entry)| importance(key, entry));
    Ok(Candidate { slot, victims: victims.into_iter().map(|(key, _)| PodKey::clone(key)).collect(), broken_budgets })
}

/// Sorts the most important first: higher priority, then longer life, then uid.
fn importance<'a>(key: &'a PodKey, entry: &PodEntry) -> (Reverse<i32>, Timestamp, &'a str) {
    (Reverse(entry.shape.shape.priority), entry.started.unwrap_or(Timestamp::MAX), key)
}

type Pods<'a> = Vec<(&'a PodKey, &'a PodEntry)>;

fn split_by_budget<'a>(pods: &[(&'a PodKey, &'a PodEntry)], budgets: &[Budget]) -> (Pods<'a>, Pods<'a>) {
    let mut left: Vec<i32> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.iter().partition(|(_, entry)| {
        let shape = &entry.shape.shape;
        let mut breaks = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            if budget.namespace == shape.namespace
                && !shape.labels.is_empty()
                && !budget.selector.is_unrestricted()
                && budget.selector.matches(&shape.labels)
                && !budget.disrupted.contains(&entry.name)
            {
                *left -= 1;
                breaks |= *left < 0;
            }
        }
        breaks
    })
}

/// Fewest broken budgets, least important victims, fewest of them, youngest, first by name.
fn cheapest(cycle: &Cycle<'_>, candidates: Vec<Candidate>) -> Option<Candidate> {
    let snapshot = cycle.snapshot;
    candidates.into_iter().min_by_key(|candidate| {
        let victims = || candidate.victims.iter().filter_map(|key| snapshot.pod(key));
        let priorities = || victims().map(|entry| i64::from(entry.shape.shape.priority));
        let highest = priorities().max().unwrap_or_default();
        // Shifted so that two victims of negative priority never beat one.
        let sum: i64 = priorities().map(|priority| priority + i64::from(i32::MAX) + 1).sum();
        let oldest_of_highest = victims()
            .filter(|entry| i64::from(entry.shape.shape.priority) == highest)
            .filter_map(|entry| entry.started)
            .min()
            .unwrap_or(Timestamp::MAX);
        (
            candidate.broken_budgets,
            highest,
            sum,
            candidate.victims.len(),
            Reverse(oldest_of_highest),
            snapshot.node(candidate.slot).name.clone(),
        )
    })
}
