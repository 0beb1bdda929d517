//! Workload controllers: what kube-controller-manager does for workloads.
//!
//! Each controller has a pure part that computes what to do (sizes, orders, conditions) and a thin part that does it.
//! They keep no state: everything they need is in the objects.

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
