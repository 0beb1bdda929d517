//! The host agent: facts about its host, and plans that make the host a node and undo it again.
//!
//! ```text
//!   /proc, /sys ─▶ facts ─▶ HostFacts (status of the ByoHost)
//!
//!   bootstrap data ─▶ cloud_config ─┐
//!                                   ├─▶ join (pure) ─▶ Plan ─▶ executor ─▶ host
//!   kubelet files ──────────────────┘                   │         │
//!                                                       └─ journal: steps that are done, and how to undo them
//! ```
//!
//! Everything that the agent reads or writes lies under a root directory, `/` on a host and another one in tests. The
//! journal is on the disk before a step begins and after it is done, so that a killed agent continues where it stopped,
//! and the undo list is on the host itself: a reset needs no API server.

pub mod cloud_config;
pub mod executor;
pub mod facts;
pub mod join;
pub mod journal;
pub mod plan;
