//! What people read, as values: words, sums, rows and groups of pools, nodes, pods and plans. Pure.
//!
//! ```text
//!  Snapshot, Outcome ─▶ rows, totals, sentences ─┬─▶ tables of the command line
//!                                                ├─▶ JSON of `-o json`
//!                                                └─▶ pages (millpond-web)
//! ```
//!
//! A reason reads the same everywhere because all of them print the same value. There is no client and no clock here: ages
//! come from [`millpond_plan::model::Snapshot::now`].

pub mod explain;
pub mod format;
pub mod nodes;
pub mod overview;
pub mod pending;
pub mod plan;
pub mod pools;
pub mod totals;
pub mod units;
