//! The store of requests and nodes that a launcher works on.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::engine::{Decision, ForeignPool, Lock};
use crate::model::{Node, NodeRequest};

/// A store of requests and nodes: ZooKeeper, or objects in the Kubernetes API.
///
/// All methods may be called from several tasks concurrently. A call that is dropped may or may not have had its
/// effect.
pub trait Backend: Send + Sync + 'static {
    /// The records of the store, as far as this process has seen them. Cheap: records are shared. Own writes are
    /// included once [`commit`](Self::commit) has returned.
    fn records(&self) -> Records;

    /// One request of [`records`](Self::records).
    fn request(&self, id: &str) -> Option<Stored<NodeRequest>> {
        self.records().requests.remove(id)
    }

    /// One node of [`records`](Self::records).
    fn node(&self, id: &str) -> Option<Stored<Node>> {
        self.records().nodes.remove(id)
    }

    /// Tells when [`records`](Self::records) has changed: the value counts the changes.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Announces exactly these pools as those of this launcher. The store announces them again after a lost connection.
    /// A pool takes part in decisions once its id is in [`Records::ours`]: if several launchers have the same provider,
    /// one at a time owns the pool.
    fn announce(&self, pools: Vec<PoolSpec>);

    /// Takes the lock of a record without waiting for it. False if another process holds it or the record is gone.
    fn lock<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool, BackendError>>;

    /// Gives a lock back. A lock that is not held is no error.
    fn unlock<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), BackendError>>;

    /// Writes all of it or nothing. Refused with [`BackendError::Conflict`] if a record is not at the revision that the
    /// write names any more, or if a lock that this process had on one of the records is lost. Gives the ids of created
    /// nodes, in order.
    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<String>, BackendError>>;

    /// Submits a request of this launcher's own, which ends with its session; gives the id.
    fn submit(&self, _record: NodeRequest) -> BoxFuture<'_, Result<String, BackendError>> {
        Box::pin(std::future::ready(Err(BackendError::Refused("launchers have no requests here".to_owned()))))
    }

    /// Deletes a request of this launcher's own. One that is gone is no error.
    fn withdraw<'a>(&'a self, _request: &'a str) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Takes the lock of a node for an owner that outlives this process. False if another process holds it.
    fn own<'a>(&'a self, _node: &'a str, _owner: &'a str) -> BoxFuture<'a, Result<bool, BackendError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Gives back what [`own`](Self::own) took, by whichever process.
    fn disown<'a>(&'a self, _node: &'a str, _owner: &'a str) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether the store answers; `/ready` asks it.
    fn is_connected(&self) -> bool;

    /// Hears of every decision before it is carried out: a store with room for it keeps why requests wait or fail.
    fn decided(&self, _decision: &Decision) {}
}

/// What can be locked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A request.
    Request(String),
    /// A node.
    Node(String),
}

/// The version of a stored record. What it means is the store's business.
pub type Revision = u64;

/// The records of a store.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Requests by id.
    pub requests: BTreeMap<String, Stored<NodeRequest>>,
    /// Nodes by id.
    pub nodes: BTreeMap<String, Stored<Node>>,
    /// Ids of this launcher's pools that are registered.
    pub ours: BTreeMap<PoolId, String>,
    /// Pools of other launchers.
    pub foreign: Vec<ForeignPool>,
    /// How much of what other launchers have given to tenants is in these records. What it means is the store's business.
    pub tenants_seen: Arc<BTreeMap<String, i32>>,
    /// Whether the store was read in full since the connection was made; until then nothing is decided.
    pub is_complete: bool,
}

/// A record in the store.
#[derive(Debug)]
pub struct Stored<T> {
    /// The record.
    pub record: Arc<T>,
    /// Its version.
    pub revision: Revision,
    /// Who holds its lock.
    pub lock: Lock,
}

impl<T> Clone for Stored<T> {
    fn clone(&self) -> Self {
        Self { record: Arc::clone(&self.record), revision: self.revision, lock: self.lock }
    }
}

/// A pool by the names of its provider and itself.
pub type PoolId = (String, String);

/// A pool to announce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The provider's name.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Lower numbers come first.
    pub priority: i64,
    /// The labels that it can provide.
    pub labels: Vec<String>,
}

/// One write of a commit.
#[derive(Debug, Clone)]
pub enum Write {
    /// Replaces a request.
    Request {
        /// Its id.
        id: String,
        /// The version that is replaced.
        revision: Revision,
        /// The new record.
        record: NodeRequest,
        /// Whether the lock on it is given back with the same write.
        unlock: bool,
    },
    /// Creates a node. It is not locked yet.
    Create {
        /// The new record.
        record: Node,
    },
    /// Replaces a node.
    Node {
        /// Its id.
        id: String,
        /// The version that is replaced.
        revision: Revision,
        /// The new record.
        record: Node,
        /// Whether the lock on it is given back with the same write.
        unlock: bool,
    },
    /// Changes nothing itself; the commit is refused if other launchers may have given a tenant anything since.
    Tenants {
        /// [`Records::tenants_seen`] of the decision.
        seen: Arc<BTreeMap<String, i32>>,
    },
    /// Removes a node's record, and its lock.
    Remove {
        /// Its id.
        id: String,
        /// The version that is removed.
        revision: Revision,
    },
}

/// Why the store did not do what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BackendError {
    /// A record has changed, or a lock is lost. It is decided again from what is there now.
    #[error("`{0}` has changed")]
    Conflict(String),
    /// The connection is lost, or was lost while the call was under way. Its effect is seen in the records.
    #[error("the store is not reachable: {0}")]
    Disconnected(String),
    /// The store refuses.
    #[error("the store refuses: {0}")]
    Refused(String),
}
