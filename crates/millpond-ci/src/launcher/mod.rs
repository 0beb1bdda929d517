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
//! Crash safety: a record is written before what it stands for is created, and removed after it is deleted. Records that
//! belong together are written together. Whatever a launcher leaves behind is unlocked once its session is over, and
//! the next decision puts it right.
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
