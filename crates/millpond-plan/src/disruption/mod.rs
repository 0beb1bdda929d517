//! Taking nodes away: when it is allowed, and what it costs those who run on them.
//!
//! ```text
//! cron ─▶ window ─▶ budget ─┐
//!                    pdb ───┼─▶ eligible ─▶ may this node go, or why not
//!              residents ───┤
//!                   cost ───┘            │
//!                                        ▼
//!       value, order, receivers ─▶ consolidate ─▶ finish: removals, savings, where pods move
//!       state (board, undo)         │              ▲
//!       purchase (kernel), domains  ▼              │
//!       few, dealing (any order)    │              │
//!                      planner: outdated, underused ─▶ trial      bound: what it costs at least
//! ```

mod balanced;
mod bound;
mod budget;
mod consolidate;
mod cost;
mod cron;
mod dealing;
mod domains;
mod eligible;
mod few;
mod finish;
mod order;
mod outdated;
mod pdb;
mod planner;
mod purchase;
mod receivers;
mod residents;
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
pub use eligible::{Accounts, Refusal};
pub use pdb::{EvictionLedger, EvictionRefusal, Evictions};
pub use residents::{Residents, moves};
pub use verdict::{Fate, NodeVerdict, NodeVerdicts, node_verdict, node_verdicts};
pub use window::{ScheduleError, Window};
