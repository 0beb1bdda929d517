//! Consolidation: which nodes go, what comes in their place, and where their pods move. Pods that wait have been
//! planned before; this works on the result.
//!
//! ```text
//! empty ─▶ drifted, expired ─▶ ┌ delete: one node after the other into room elsewhere ┐ ─▶ Outcome
//! no pods   replaced whatever  └ replace: groups planned anew together, m → n         ┘
//!           it costs             until nothing is found
//! ```
//!
//! Every step is tried in the cluster state with all rules and undone if it fails or saves too little, so budgets and
//! PodDisruptionBudgets hold for all steps together. A pod that was moved to a node which goes later is moved on:
//! only where it ends up counts.
//!
//! **Order.** Nodes that cost most for what is on them go first ([`value`](super::value)); among equals the zone that
//! has most nodes of the pool gives one up. Pods move to nodes that stay anyway, then to those that are best used.
//!
//! **Savings.** A node that is deleted saves its price. A replacement must save at least a twentieth of what it
//! replaces: less is within what planning anew may vary by, and pods would move to and fro. Of groups that save about
//! as much the smallest is taken, and a node whose stay costs nothing stays. For pools with the policy `Balanced` see
//! [`balanced`](super::balanced).

use super::eligible::DisruptionBlocker;
use super::planner::Planner;
use crate::market::Market;
use crate::model::{DisruptionReason, Snapshot};
use crate::plan::{Outcome, Settings};

/// Passes over all nodes; each but the last found something.
const MAX_ROUNDS: usize = 4;
/// Pods of outdated nodes rather move to nodes that are used as much as this, in millionths.
const HALF_USED: u128 = 500_000;

/// A finished consolidation.
#[derive(Debug)]
pub struct Consolidated {
    /// The plan with its removals.
    pub outcome: Outcome,
    /// Why each node stays, by node; none for those that go.
    pub kept: Vec<Option<DisruptionBlocker>>,
}

/// Takes nodes away on top of a plan for the pods that wait.
pub fn consolidate(snapshot: &Snapshot, market: &Market, outcome: Outcome, settings: &Settings) -> Consolidated {
    let mut planner = Planner::new(snapshot, market, &outcome.plan, settings);
    planner.remove_empty();
    // At first not into nodes that are likely to go next, then wherever there is room.
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
