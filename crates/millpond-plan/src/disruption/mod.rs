//! Taking nodes away: when it is allowed, and what it costs those who run on them.
//!
//! ```text
//! cron ─▶ window ─▶ budget ─┐
//!                    pdb ───┼─▶ eligible ─▶ may this node go, or why not
//!              residents ───┤
//!                   cost ───┘            │
//!                                        ▼
//!       value, order, receivers ─▶ consolidate ─▶ removals, savings, where pods move
//!       state (board, undo), purchase (kernel)
//! ```

mod balanced;
mod budget;
mod consolidate;
mod cost;
mod cron;
mod eligible;
mod order;
mod pdb;
mod purchase;
mod receivers;
mod residents;
mod state;
#[cfg(test)]
mod tests;
mod value;
mod verdict;
mod window;

pub use budget::{Allowance, BudgetLedger, PoolBudgets, REASONS, first_mistake};
pub use consolidate::{Consolidated, consolidate};
pub use cost::{NODE_DISRUPTION, eviction_cost, pods_cost};
pub use cron::{Cron, CronError};
pub use eligible::{Accounts, Refusal};
pub use pdb::{EvictionLedger, EvictionRefusal};
pub use residents::{Residents, moves};
pub use verdict::{NodeVerdict, node_verdict};
pub use window::{ScheduleError, Window};
