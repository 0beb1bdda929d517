//! Stand-ins for an empty cluster.

pub mod clock;
pub mod cluster;
pub mod demo;
pub mod error;
pub mod events;
pub mod kinds;
pub mod kubelet;
pub mod lifecycle;
pub mod marks;
pub mod meta;
pub mod mirror;
pub mod names;
pub mod options;
pub mod queue;
pub mod scheduler;
pub mod standins;
pub mod worker;
pub mod workloads;

pub use options::{Nodes, Options};
pub use standins::{Builder, Part, StandIns};
