//! Builds a snapshot from objects: a synchronous index over objects that are watched or read from files. No client, no
//! clock.
//!
//! ```text
//! files ──▶ Reader ─┐                      ┌─ pools, types (catalogues)
//!                   ├─▶ State ─▶ snapshot ─┼─ nodes, pods by class
//! watches ─ apply ──┘    │                 └─ budgets, namespaces ──▶ millpond-plan
//!           delete       └── a pod that did not change is never lowered again
//! ```
//!
//! - [`Reader`] reads YAML and JSON in all forms that `kubectl` writes, and says file, line and column of what is
//!   wrong.
//! - [`State`] holds the latest of each object ([`State::apply`], [`State::delete`]) and makes a
//!   [`millpond_plan::model::Snapshot`] of them ([`State::snapshot`]).
//! - [`advice`] is the way back: a plan as a ScalingAdvice.
//! - [`objects`] are the kinds as far as planning looks at them; `lower` turns pods into classes, `snapshot` puts
//!   everything together.

pub mod advice;
pub mod groups;
mod lower;
pub mod objects;
mod read;
pub mod saved;
mod snapshot;
mod state;

pub use objects::text::PODS_LISTED;
pub use read::{Diagnostic, LIMIT_BYTES, Position, Reader, Reading, Severity};
pub use snapshot::{DefaultSpread, Group, GroupMachine, Note, Options, PoolsOf, Taken, add_types, buffer_of};
pub use state::{Applied, Origin, Overlays, State, Unresolved, pool_labels};
