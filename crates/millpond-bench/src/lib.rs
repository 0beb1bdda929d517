//! Workloads to measure the planner with, and the measuring.
//!
//! ```text
//! parameters, seed ─▶ workload ─▶ Snapshot ─┬─▶ run ──▶ Row (cost, bound, gap, time, memory)
//! catalogue ────────────┘                   └─▶ save ─▶ pods.yaml pools.yaml types.json [nodes.yaml]
//! ```
//!
//! A workload is a pure function of its parameters: the same seed gives the same bytes on every machine. What is
//! saved can be read by `millpond plan -f`, by `kubectl` and by another engine, so that all run the same.

mod builder;
pub mod hosts;
mod memory;
pub mod openb;
pub mod random;
mod row;
mod run;
mod save;
pub mod workload;

pub use row::{Row, table};
pub use run::measure;
pub use save::{SaveError, save};
pub use workload::{Families, Workload};
