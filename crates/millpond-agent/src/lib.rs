//! The host agent: registers its host, tells facts about it, and runs plans that make it a node and undo it again.
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
//! and the undo list is on the host itself: a reset needs no API server. [`agent`] joins the parts, [`decide`] and
//! [`report`] are pure. `device_plugin` offers GPUs to kubelet, where the command line asks for it.

pub mod agent;
mod bootstrap;
pub mod cloud_config;
pub mod credentials;
pub mod decide;
mod device_plugin;
pub mod discovery;
pub mod executor;
pub mod facts;
mod gzip;
pub mod heartbeat;
pub mod join;
pub mod journal;
pub mod network;
pub mod plan;
pub mod progress;
pub mod redact;
pub mod registration;
pub mod report;
pub mod service;
pub mod session;
mod template;
mod work;
