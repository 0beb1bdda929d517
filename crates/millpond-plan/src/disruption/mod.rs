//! Disruption: when a node may be removed, and what that costs the pods on it.
//!
//! ```text
//! cron ─▶ window ─▶ budget ─┐
//!                    pdb ───┼─▶ eligible ─▶ may this node go, or why not
//!              residents ───┤
//!                   cost ───┘            │
//!                                        ▼
//!       value, order, receivers ─▶ consolidate ─▶ finish: removals, savings, where pods move
//!       state (cluster, undo)         │              ▲
//!       purchase (kernel), domains  ▼              │
//!       scheduling_order,           │              │
//!       replacement_set             │              │
//!                      planner: outdated, underused ─▶ trial      bound: what it costs at least
//! ```

mod balanced;
mod bound;
mod budget;
mod consolidate;
mod cost;
mod cron;
mod domains;
mod eligible;
mod finish;
mod order;
mod outdated;
mod pdb;
mod planner;
mod purchase;
mod receivers;
mod replacement_set;
mod residents;
mod scheduling_order;
mod state;
#[cfg(test)]
mod tests;
mod trial;
mod underused;
mod value;
mod verdict;
mod window;

pub use budget::{Allowance, BudgetLedger, PoolBudgets, REASONS, first_mistake};
pub use consolidate::{Consolidated, consolidate};
pub use cost::{NODE_DISRUPTION, eviction_cost, pods_cost};
pub use cron::{Cron, CronError};
pub use eligible::{Accounts, DisruptionBlocker};
pub use pdb::{EvictionLedger, EvictionRefusal, Evictions};
pub use residents::{Residents, moves};
pub use verdict::{NodeVerdict, NodeVerdicts, VerdictRef, name_binding_budgets, node_verdict, node_verdicts};
pub use window::{ScheduleError, Window};
