//! The launcher: carries out what the engine decides. It knows nothing of ZooKeeper or Kubernetes; both are a
//! [`Backend`], a store of requests and nodes.
//!
//! ```text
//!   Backend ──records, changes──▶ Launcher ──Snapshot──▶ engine::decide ──Decision──▶ actions
//!      ▲                                                                                │
//!      └────────────── locks, commits that compare revisions ◀──────────────────────────┤
//!                                            Driver ◀── launch, delete ─────────────────┘
//! ```
//!
//! Crash safety: a record is written before the thing that it describes is created, and removed after that is deleted.
//! Records that belong together are written together. The records of a launcher that ended are unlocked once its
//! session is over, and the next decision repairs them.
//!
//! `snapshot` adds what is under way to what is stored; `act` has a function per action; `launch` follows one node
//! through its driver; `upkeep` finds leaks and asks for limits.

mod act;
mod backend;
mod capacity;
mod launch;
pub mod reload;
mod run;
mod snapshot;
mod under_way;
mod upkeep;

pub use backend::{Backend, BackendError, Key, PoolId, PoolSpec, Records, Revision, Stored, Write};
pub use run::{Handle, Launcher, Settings, Waiting};
