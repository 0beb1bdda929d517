//! Thin async loops around pure decisions: watch → state → plan → execute → status.
//!
//! ```text
//!            any Kubernetes API, through kube::Client
//!             ▲ writes                        │ watches
//!             │                               ▼
//!             │                            Cluster ── mirrors (what controllers read)
//!             │                               │  └── State (what the planner reads) ──▶ Snapshot
//!   ┌─────────┴───────┬────────────────┬──────┴─────────┬──────────────────┬─────────────────┐
//!   provision         claims           disruption       pools              garbage_          limits
//!   pods → batch →    launch,          marks, commands: status, readiness, collection        reserve before
//!   plan → claims,    register,        replace first,   static pools       orphans both      anything is
//!   nominations       initialize       then drain                          ways              created
//! ```
//!
//! Beside them: `advice` recommends instead of acting, `repair` replaces broken nodes, `interrupt` handles events of
//! providers, `metrics` counts, `leader` elects the acting process.
//!
//! No controller knows whether the API is the embedded one. Time is `tokio::time` and [`millpond_runtime::clock`],
//! random numbers come from a seed. When nothing changes, nothing is written.

pub mod advice;
mod blocking;
pub mod buffers;
pub mod capi;
pub mod claims;
pub mod classes;
pub mod clouds;
pub mod cluster;
pub mod context;
mod decisions;
pub mod disruption;
pub mod events;
pub mod garbage_collection;
pub mod health;
pub mod interrupt;
pub mod kinds;
mod launch_backoff;
pub mod leader;
mod leader_provider;
pub mod limits;
pub mod metrics;
mod nodes;
pub mod nominations;
pub mod overlays;
pub mod pools;
mod provided;
pub mod provision;
pub mod repair;
pub mod run;
mod standings;
pub mod static_pools;
pub mod stock_outs;
pub mod termination;
mod turn;
