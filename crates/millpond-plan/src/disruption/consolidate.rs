//! Consolidation: which nodes are removed, what replaces them, and where their pods move. It starts from the plan for
//! pending pods.
//!
//! ```text
//! empty ─▶ drifted, expired ─▶ ┌ delete: one node after the other into room elsewhere ┐ ─▶ Outcome
//! no pods   replaced whatever  └ replace: groups planned anew together, m → n         ┘
//!           it costs             until nothing is found
//! ```
//!
//! Every step is tried in the cluster state with all rules and undone if it fails or saves too little, so budgets and
//! PodDisruptionBudgets hold for all steps together. If the node that a pod moved to is removed in a later step, the
//! pod moves again; only its last node counts.
//!
//! **Order.** Nodes whose price is highest compared with the value of their pods are tried first
//! ([`value`](super::value)); among equals, a node of the zone that has most nodes of the pool. Pods move to nodes that
//! stay anyway first, then to the best used ones.
//!
//! **Savings.** A node that is deleted saves its price. A replacement must save at least a twentieth of what it
//! replaces: smaller savings are within the variation of replanning, and pods would move back and forth. Of groups with
//! about equal savings the smallest is taken, and a node whose removal adds nothing to the saving stays. For pools with
//! the policy `Balanced` see [`balanced`](super::balanced).

use super::eligible::DisruptionBlocker;
use super::planner::Planner;
use crate::market::Market;
use crate::model::{DisruptionReason, Snapshot};
use crate::plan::{Outcome, Settings};

/// Limit on passes over all nodes. A pass that changes nothing ends the loop earlier.
const MAX_ROUNDS: usize = 4;
/// Pods of drifted and expired nodes first look for nodes that are used at least this much, in millionths of their
/// price.
const HALF_USED: u128 = 500_000;

/// The result of a consolidation.
#[derive(Debug)]
pub struct Consolidated {
    /// The plan for pending pods, extended by the removals.
    pub outcome: Outcome,
    /// Why each node stays, by node; `None` for those that are removed.
    pub kept: Vec<Option<DisruptionBlocker>>,
}

/// Removes and replaces nodes on top of a plan for pending pods.
pub fn consolidate(snapshot: &Snapshot, market: &Market, outcome: Outcome, settings: &Settings) -> Consolidated {
    let mut planner = Planner::new(snapshot, market, &outcome.plan, settings);
    planner.remove_empty();
    // The first pass avoids nodes that are likely to be removed next; the second takes any node with free capacity.
    for least_used in [HALF_USED, 0] {
        planner.rebuild_receivers(least_used);
        planner.replace_outdated(DisruptionReason::Drifted);
        planner.replace_outdated(DisruptionReason::Expired);
    }
    for _ in 0..MAX_ROUNDS {
        planner.rebuild_receivers(0);
        let deleted = planner.delete_underused();
        let replaced = planner.replace_underused();
        let needless = planner.give_back_needless();
        if !replaced && !deleted && !needless {
            break;
        }
    }
    planner.finish(outcome)
}
