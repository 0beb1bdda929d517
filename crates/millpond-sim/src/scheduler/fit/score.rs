//! Scores feasible nodes with kube-scheduler's default weights.

use super::affinity::AffinityScores;
use super::node::Node;
use super::shape::Shape;
use super::snapshot::{Slot, Snapshot, Usage};
use super::spread::SpreadScores;
use super::taints;

/// The best score of one rule.
const BEST: i64 = 100;
const TAINT_WEIGHT: i64 = 3;
const NODE_AFFINITY_WEIGHT: i64 = 2;
const SPREAD_WEIGHT: i64 = 2;
const POD_AFFINITY_WEIGHT: i64 = 2;

/// Scores that depend on one node only; they hold until the node changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalScore {
    /// `PreferNoSchedule` taints that are not tolerated.
    pub unwanted_taints: i64,
    /// Weight of the preferred node terms that match.
    pub node_affinity: i64,
    /// Room left and balance, ready to be added.
    pub resources: i64,
}

/// Computes the scores that depend on one node only.
pub fn local(shape: &Shape, node: &Node, usage: &Usage) -> LocalScore {
    let liked = shape.preferred_nodes.iter().filter(|(_, term)| term.matches(&node.name, &node.labels));
    LocalScore {
        unwanted_taints: taints::untolerated_preferences(&node.taints, &shape.tolerations),
        node_affinity: liked.map(|(weight, _)| weight).sum(),
        resources: room(shape, node, usage) + balance(shape, node, usage),
    }
}

/// Chooses among candidates; on equal scores the first name in order wins.
pub fn best(snapshot: &Snapshot, shape: &Shape, candidates: &[(Slot, LocalScore)]) -> Option<Slot> {
    if let [(only, _)] = candidates {
        return Some(*only);
    }
    let slots: Vec<Slot> = candidates.iter().map(|(slot, _)| *slot).collect();
    let mut totals: Vec<i64> = candidates.iter().map(|(_, local)| local.resources).collect();
    add_taints(&mut totals, candidates);
    if !shape.preferred_nodes.is_empty() {
        add_node_affinity(&mut totals, candidates);
    }
    if let Some(spread) = SpreadScores::prepare(snapshot, shape, &slots) {
        add_spread(&mut totals, &slots, &spread);
    }
    if let Some(affinity) = AffinityScores::prepare(snapshot, shape) {
        add_pod_affinity(&mut totals, &slots, &affinity);
    }
    let top = *totals.iter().max()?;
    slots
        .into_iter()
        .zip(totals)
        .filter(|(_, total)| *total == top)
        .map(|(slot, _)| slot)
        .min_by(|a, b| snapshot.node(*a).name.cmp(&snapshot.node(*b).name))
}

fn add_taints(totals: &mut [i64], candidates: &[(Slot, LocalScore)]) {
    let most = candidates.iter().map(|(_, local)| local.unwanted_taints).max().unwrap_or_default();
    if most > 0 {
        for (total, (_, local)) in totals.iter_mut().zip(candidates) {
            *total += TAINT_WEIGHT * (BEST - BEST * local.unwanted_taints / most);
        }
    }
}

fn add_node_affinity(totals: &mut [i64], candidates: &[(Slot, LocalScore)]) {
    let most = candidates.iter().map(|(_, local)| local.node_affinity).max().unwrap_or_default();
    if most > 0 {
        for (total, (_, local)) in totals.iter_mut().zip(candidates) {
            *total += NODE_AFFINITY_WEIGHT * (BEST * local.node_affinity / most);
        }
    }
}

fn add_spread(totals: &mut [i64], slots: &[Slot], spread: &SpreadScores<'_>) {
    let raw: Vec<Option<i64>> = slots.iter().map(|slot| (!spread.ignores(*slot)).then(|| spread.raw(*slot))).collect();
    let lowest = raw.iter().flatten().min().copied().unwrap_or_default();
    let highest = raw.iter().flatten().max().copied().unwrap_or_default();
    for (total, raw) in totals.iter_mut().zip(raw) {
        let score = match raw {
            None => 0,
            Some(_) if highest == 0 => BEST,
            Some(raw) => BEST * (highest + lowest - raw) / highest,
        };
        *total += SPREAD_WEIGHT * score;
    }
}

fn add_pod_affinity(totals: &mut [i64], slots: &[Slot], affinity: &AffinityScores<'_>) {
    let raw: Vec<i64> = slots.iter().map(|slot| affinity.raw(*slot)).collect();
    let lowest = raw.iter().min().copied().unwrap_or_default();
    let range = raw.iter().max().copied().unwrap_or_default() - lowest;
    if range > 0 {
        for (total, raw) in totals.iter_mut().zip(raw) {
            let share = (raw - lowest) as f64 / range as f64;
            *total += POD_AFFINITY_WEIGHT * (BEST as f64 * share) as i64;
        }
    }
}

/// More room left is better: the mean share of cpu and memory that stays free.
fn room(shape: &Shape, node: &Node, usage: &Usage) -> i64 {
    let share = |wanted: i64, used: i64, total: i64| {
        (total > 0).then(|| if used + wanted > total { 0 } else { (total - used - wanted) * BEST / total })
    };
    let (wanted, used, total) = (&shape.scoring_requests, &usage.scoring, &node.allocatable);
    let shares = [
        share(wanted.cpu_millis, used.cpu_millis, total.cpu_millis),
        share(wanted.memory_bytes, used.memory_bytes, total.memory_bytes),
    ];
    let counted = shares.iter().flatten().count() as i64;
    if counted == 0 { 0 } else { shares.iter().flatten().sum::<i64>() / counted }
}

/// Cpu and memory used in like proportion are better; judged by what the pod changes.
fn balance(shape: &Shape, node: &Node, usage: &Usage) -> i64 {
    let (wanted, used, total) = (&shape.requests, &usage.requested, &node.allocatable);
    if wanted.cpu_millis == 0 && wanted.memory_bytes == 0 {
        return 0;
    }
    let evenness = |cpu: i64, memory: i64| {
        let fraction = |used: i64, total: i64| (total > 0).then(|| (used as f64 / total as f64).min(1.0));
        match (fraction(cpu, total.cpu_millis), fraction(memory, total.memory_bytes)) {
            (Some(cpu), Some(memory)) => ((1.0 - ((cpu - memory) / 2.0).abs()) * BEST as f64) as i64,
            _ => BEST,
        }
    };
    let after = evenness(used.cpu_millis + wanted.cpu_millis, used.memory_bytes + wanted.memory_bytes);
    let before = evenness(used.cpu_millis, used.memory_bytes);
    BEST / 2 + (BEST / 2 + after - before) / 2
}
