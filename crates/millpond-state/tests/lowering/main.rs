//! Objects in, snapshots out: the rules of lowering, one table each.

mod advisor;
mod budgets;
mod files;
mod golden;
mod index;
mod mistakes;
mod nodes;
mod pools;
mod requests;
mod scheduling;
mod support;
mod volumes;
mod workloads;
