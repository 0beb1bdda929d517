//! Stand-ins for an empty cluster: what a real one brings along, so that workloads live.
//!
//! ```text
//!                     any Kubernetes API, through kube::Client
//!                        ▲ writes             │ watches, one per kind
//!                        │                    ▼
//!                        └───────────────  mirrors ──changes──▶ queues (each key once)
//!                                             │                    │
//!      ┌──────────────────────┬───────────────┴──────┬─────────────┴───────────┐
//!      ▼                      ▼                      ▼                         ▼
//!  workloads              scheduler               kubelet                  lifecycle
//!  Deployment, ReplicaSet   fit: kube-scheduler's   nodes become ready,      taints, eviction by
//!  StatefulSet, DaemonSet   rules, pure             pods run, end, leave     taints, pods of lost
//!  Job, budgets                                                              nodes, volumes
//! ```
//!
//! [`capi`] plays the core of Cluster API and its providers beside them, where asked to.
//!
//! [`StandIns`] starts any choice of these [`Part`]s on any API server; nothing here knows whether
//! that is the embedded one. All waiting is `tokio::time` and all chance comes from
//! [`Options::seed`], so that a whole cluster runs under paused time and repeats itself. When
//! nothing changes, nothing is written: leases are off unless asked for, and a status is written
//! only when it differs.
//!
//! Deliberately absent: garbage collection and the end of namespaces (the embedded API does that
//! itself), Endpoints, CronJobs, and anything that would need a container.
//!
//! The guide for users is `docs/guides/stand-ins.md`.

pub mod annotations;
pub mod capi;
pub mod cluster;
pub mod demo;
pub mod kubelet;
pub mod lifecycle;
pub mod options;
pub mod rights;
pub mod scheduler;
pub mod standins;
pub mod workloads;

pub use millpond_runtime::{clock, error, events, kinds, meta, mirror, name_generator, queue, worker};
pub use options::{Nodes, Options, Providers};
pub use standins::{Builder, Part, StandIns};

/// The Rust of the guide compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/stand-ins.md")]
struct Guide;
