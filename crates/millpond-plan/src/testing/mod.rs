//! What tests of the planner share: clusters in a few words, random clusters, a scheduler that is slow and plainly
//! right, and the cheapest plan by trying everything.
//!
//! Only there with the feature `testing` (and in this crate's own tests).
//!
//! ```text
//! Cluster (words) ──┐
//! Recipe + seed ────┴─▶ Snapshot ─▶ plan ─▶ check
//!                          │                  ▲ compared with
//!                          └─▶ Scheduler, simple_plan, cheapest
//! ```

#![allow(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of a builder that borrows is not general enough to stand for a closure"
)]

mod brute;
mod cluster;
mod random;
mod rng;
mod scheduler;
mod simple;
mod words;

pub use brute::{Cheapest, cheapest};
pub use cluster::{Cluster, Machine, NodeSpec, PodSpec, PoolSpec};
pub use random::{Recipe, random_snapshot};
pub use rng::Rng;
pub use scheduler::Scheduler;
pub use simple::{offers, simple_plan, simple_report, waiting_pods};
