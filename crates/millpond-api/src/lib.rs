//! What Millpond reads and writes: the kinds of every dialect, file formats,
//! names of labels. Plain values and their validation; no client, no clock, no
//! planning.
//!
//! ```text
//!   CSV, KWOK JSON ──import──┐
//!   data/*.catalog ──text────┼──▶ catalog::Catalog ──overlay──▶ query ──▶ planner, command line
//!   synthetic (code) ────────┘          │
//!                                       └── labels (what pods and pools select by)
//! ```

pub mod amounts;
pub mod byoh;
pub mod capacity_buffer;
pub mod capi;
pub mod catalog;
pub mod ci;
pub mod cluster_limits;
pub mod condition;
pub mod convert;
pub mod crd;
pub mod document;
pub mod duration;
pub mod gpu_info;
pub mod karpenter;
pub mod labels;
pub mod maintenance_window;
pub mod meta;
pub mod money;
pub mod node_class;
pub mod quantity;
pub mod reasons;
pub mod scaling_advisor;
pub mod selector;
pub mod sim_script;
pub mod spelling;
pub mod time;
