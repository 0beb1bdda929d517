//! The launcher: carries out what the engine decides. It knows nothing of ZooKeeper or Kubernetes; both are a
//! [`Backend`], a store of requests and nodes.
//!
//! ```text
//!   Backend ──records, changes──▶ Launcher ──Snapshot──▶ engine::decide ──Decision──▶ actions
//!      ▲                                                                                │
//!      └────────────── locks, commits that compare revisions ◀──────────────────────────┤
//!                                            Driver ◀── launch, delete ─────────────────┘
//! ```

mod backend;

pub use backend::{Backend, BackendError, Key, PoolId, PoolSpec, Records, Revision, Stored, Write};
