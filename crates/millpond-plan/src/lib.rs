//! Millpond's planner: pure functions from a snapshot to a plan.
//!
//! Nothing in here reads a clock, a file or the environment, waits, or draws from a global source
//! of randomness: the same input gives the same plan, byte for byte.
//!
//! ```text
//! rows of equal pods ─┐
//! offerings, prices ──┴─▶ pack ─▶ nodes to buy, cost, lower bound with its certificate
//! ```

pub mod board;
pub mod check;
pub mod disruption;
pub mod explain;
pub mod market;
pub mod model;
pub mod pack;
pub mod plan;
pub mod policy;
pub mod requirement;
mod solve;
pub mod symbol;
pub mod taint;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod topology;

pub use solve::{plan, plan_on};
