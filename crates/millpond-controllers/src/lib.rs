//! Thin async loops around pure decisions: watch → state → plan → execute → status.
//!
//! ```text
//!            any Kubernetes API, through kube::Client
//!             ▲ writes                        │ watches
//!             │                               ▼
//!             │                            Cluster ── mirrors (what controllers read)
//!             │                               │  └── State (what the planner reads) ──▶ Snapshot
//!   ┌─────────┴───────┬────────────────┬──────┴─────────┬──────────────────┬─────────────────┐
//!   provision         claims           disruption       pools              collect           limits
//!   pods → batch →    launch,          marks, commands: status, readiness, orphans both      reserve before
//!   plan → claims,    register,        replace first,   static pools       ways              anything is
//!   nominations       initialize, end  then drain                                            intended
//! ```
//!
//! Beside them: `advice` tells instead of acting, `repair` replaces broken nodes, `interrupt` heeds what providers tell, `metrics` counts, `leader` says
//! who acts.
//!
//! Nothing here knows whether the API is the embedded one. Time is `tokio::time` and [`millpond_runtime::clock`], chance
//! comes from a seed. When nothing changes, nothing is written.

pub mod advice;
mod blocking;
pub mod buffers;
pub mod capi;
pub mod claims;
pub mod classes;
pub mod clouds;
pub mod cluster;
pub mod context;
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
pub mod provision;
pub mod repair;
pub mod run;
pub mod static_pools;
pub mod stock_outs;
pub mod termination;
