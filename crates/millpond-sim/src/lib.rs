//! Stand-ins for an empty cluster.

pub mod scheduler;
