//! Verifies a finished plan from first principles.
//!
//! [`check`] shares no code with what makes plans: it takes the snapshot and the plan, puts every pod where it would
//! be in the end, and asks every rule again. It runs in tests and on request (`plan --check`).
//!
//! ```text
//! structure ─▶ PlannedCluster ─┬─▶ purchases   pools, types, offerings, labels, stock, minValues, limits
//! indices,     the placement   ├─▶ filters     resources, node affinity, volumes, taints, ports
//! pods to      of every pod    ├─▶ neighbours  pod affinity, anti-affinity, spread
//! place        in the end      ├─▶ removals    evictions, budgets of pods, savings
//!                              ├─▶ report      figures, bound and its proofs
//!                              └─▶ weights     pools of greater weight are used as far as their limits go
//! ```
//!
//! **The end.** Nodes that leave or are taken away are gone, with all that does not need a new place; new nodes are
//! there with the daemons that run on them; every planned pod is at its place. Pods bind one after the other, so
//! the end is not all there is to it; what it means here:
//!
//! - Resources, ports, taints, labels: the end is the worst moment, so that every order is good if the end is.
//! - Anti-affinity: judged between each planned pod and all other pods, which is the same in every order.
//! - Affinity: the order is kube-scheduler's, as far as it is known: higher priority first, then pods that need
//!   no other pod, then pods whose required pods are placed. Only where nothing else is left may a pod that satisfies its
//!   own terms start a domain, and only if no pod that satisfies them is anywhere.
//! - Spread: in the end no planned pod's domain has more than `maxSkew` above the least. Any order that keeps to
//!   it all along ends there (pods that are counted only add to the least); a pod that kube-scheduler meets too
//!   early waits until others are bound.
//!
//! Pods that are going away still hold room, ports and their rules, and do not count for spread: as kube-scheduler
//! has it. Rules between pods that run already are not asked again: no plan can help it.
//!
//! Work is done per class and node, per class and kind of node, or per rule, never for pairs of pods.

mod filters;
mod neighbours;
mod planned_cluster;
mod purchases;
mod removals;
mod report;
mod structure;
#[cfg(test)]
mod tests;
mod violation;
mod weights;

pub use violation::Violation;

use crate::model::Snapshot;
use crate::plan::{Outcome, Plan};
use planned_cluster::PlannedCluster;

/// All violations of a plan; empty for a valid one.
///
/// Where an index points nowhere, that is all that is said: nothing else could be asked.
pub fn check(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Violation> {
    let mut found = check_rules(snapshot, outcome);
    if structure::indices(snapshot, outcome).is_empty() {
        found.extend(check_weights(snapshot, &outcome.plan));
    }
    found
}

/// Pods that a plan buys nodes for in one pool though a pool of greater weight has capacity for them within its limits.
///
/// Other engines have other ideas of weights: of their plans this is not asked. The indices of the plan must be good.
pub fn check_weights(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    if weights::may_differ(snapshot) {
        weights::check(&mut PlannedCluster::new(snapshot, plan), &mut found);
    }
    found
}

/// The same as [`check`] without weights: what holds of the plans of every policy.
pub fn check_rules(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Violation> {
    let mut found = structure::indices(snapshot, outcome);
    if !found.is_empty() {
        return found;
    }
    let mut cluster = PlannedCluster::new(snapshot, &outcome.plan);
    structure::decisions(&cluster, outcome, &mut found);
    purchases::check(&mut cluster, &mut found);
    filters::check(&mut cluster, &mut found);
    neighbours::check(&mut cluster, &mut found);
    removals::check(&cluster, &mut found);
    report::check(&cluster, &outcome.report, &mut found);
    found
}
