//! GPU jobs: which node a long job should run on, and GPUs that are kept for it.
//!
//! ```text
//!   Nodes, pods, NodeClaims, MaintenanceWindows ──┐
//!   metrics API ──────────────────────────────────┼─▶ Facts ─▶ Estate ─▶ answer (pure) ─▶ status of GPUInfos
//!   vCenter (millpond-vsphere) ───────────────────┘                 │
//!                                                                   └─▶ reservations ─▶ annotation of the Node (CAS),
//!                                                                       pod that holds the GPUs
//! ```
//!
//! The choice itself is `millpond_plan::gpu`. Modules, lowest first: [`kinds`]; `matching` (nodes to virtual machines),
//! `devices` (GPUs of a node), `disturbance` (time until a node is disturbed); [`estate`]; [`answer`] and
//! [`reservations`]; [`pools`] (nodes that would help); [`credentials`], `usage` and [`controller`], which do I/O; [`list`] is the view of `millpond gpu`.

pub mod answer;
pub mod controller;
pub mod credentials;
mod devices;
mod disturbance;
pub mod estate;
pub mod kinds;
pub mod list;
mod matching;
pub mod pools;
mod proposal;
pub mod reservations;
pub mod usage;
