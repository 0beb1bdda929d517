//! Taking nodes away: when it is allowed, and what it costs those who run on them.
//!
//! ```text
//! cron ─▶ window ─▶ budget ─┐
//!                    pdb ───┼─▶ eligible ─▶ may this node go, or why not
//!              residents ───┤
//!                   cost ───┘
//! ```

mod budget;
mod cost;
mod cron;
mod eligible;
mod pdb;
mod residents;
#[cfg(test)]
mod tests;
mod window;

pub use budget::{Allowance, BudgetLedger, PoolBudgets, REASONS, first_mistake};
pub use cost::{NODE_DISRUPTION, eviction_cost, pods_cost};
pub use cron::{Cron, CronError};
pub use eligible::{Accounts, Refusal};
pub use pdb::{EvictionLedger, EvictionRefusal};
pub use residents::{Residents, moves};
pub use window::{ScheduleError, Window};
