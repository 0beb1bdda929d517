//! Objects in, snapshots out: the rules of lowering, one table each.

mod advisor;
mod budgets;
mod buffers;
mod convert;
mod files;
mod golden;
mod index;
mod limit_ranges;
mod live;
mod mistakes;
mod node_groups;
mod nodes;
mod overlays;
mod pools;
mod requests;
mod scheduling;
mod support;
mod volumes;
mod workloads;
