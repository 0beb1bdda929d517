//! Requests and nodes as objects of the Kubernetes API: the [`Backend`](crate::launcher::Backend) of launchers without
//! ZooKeeper.
//!
//! ```text
//!   NodeRequest, CINode ──watch──▶ Mirror ──▶ State (records as the engine reads them) ──▶ ObjectBackend::records
//!          ▲                                                                                       │
//!          └──────── create, patch, delete with resource versions ◀── commit ◀─────────────────────┘
//! ```
//!
//! One process at a time runs this backend: the one that leads. Locks are its own memory. A request has no holder of its
//! own, so a node of a fulfilled request counts as in use until the request is deleted.

mod backend;
mod ids;
pub mod kinds;
mod record;
mod secrets;
mod state;
#[cfg(test)]
mod tests;

pub use backend::ObjectBackend;
pub use record::{node_of, request_id, request_of};
pub use state::request_name;
