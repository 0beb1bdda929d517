//! Millpond's planner: pure functions from a snapshot to a plan.
//!
//! Nothing in this crate reads a clock, a file or the environment, waits, or draws from a global source of randomness:
//! the same input gives the same plan, byte for byte.
//!
//! ```text
//! Snapshot ─▶ market, topology, cluster ─▶ solve ─┬─▶ Plan ─▶ disruption ─▶ Plan ─▶ check
//!             what can be bought,               │
//!             what the rules allow              └─▶ pack: rows of equal pods, priced bins ─▶ nodes, bound
//! ```
//!
//! [`plan()`] is the way in; [`explain`] says why a pod has no place, [`check`] whether a finished plan is right.

pub mod check;
pub mod cluster_state;
pub mod disruption;
pub mod explain;
pub mod fallback_offers;
pub mod gpu;
pub mod market;
pub mod matching;
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
