//! kube-scheduler's fit rules on a compact snapshot, without I/O.
//!
//! ```text
//!   Node, Pod objects ──view──▶ Node, Shape ──▶ Snapshot (usage per node, counts per shape)
//!                                                  │
//!                                   Cycle::prepare(shape)            what holds for all nodes
//!                                                  │
//!                          check(node) ──▶ Ok | Refusal(reasons)     what holds for one node
//!                                                  │
//!                       score the survivors, or look for victims (preempt)
//! ```
//!
//! A [`Shape`] is everything about a pod that a rule looks at; equal pods share one shape, so the
//! snapshot counts shapes per node instead of walking pods. Nothing here awaits, reads a clock or
//! knows a client: the same code can serve a planner.
//!
//! Left out, because no stand-in produces them: dynamic resource allocation, pod groups, CSI
//! attach limits and in-tree disk conflicts.

pub mod affinity;
pub mod cycle;
pub mod labels;
pub mod node;
pub mod pick;
pub mod ports;
pub mod preempt;
pub mod quantity;
pub mod reason;
pub mod resources;
pub mod score;
pub mod shape;
pub mod snapshot;
pub mod spread;
pub mod taints;
pub mod volumes;

#[cfg(test)]
mod tests;

pub use cycle::{Cycle, FilterFailure, queueing_hint};
pub use node::Node;
pub use pick::{Decision, FitCache, decide};
pub use reason::{FitError, Reason};
pub use resources::Resources;
pub use shape::{Shape, ShapeContext};
pub use snapshot::{PodEntry, PodKey, Snapshot};
