//! Workload controllers: what kube-controller-manager does for workloads.
//!
//! Each one is a pure part that says what is to be done (sizes, orders, conditions) and a thin
//! one that does it. They hold no state: whatever they need is in the objects.

pub mod budget;
pub mod claim;
pub mod daemon_set;
pub mod deployment;
pub mod history;
pub mod job;
pub mod pods;
pub mod rank;
pub mod replica_set;
pub mod scaled;
pub mod stateful_set;
