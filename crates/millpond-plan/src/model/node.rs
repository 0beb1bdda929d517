//! Existing nodes, and nodes that are starting or leaving.

use serde::{Deserialize, Serialize};

use super::{Labels, Nanos, PoolId, Resources, Seconds};
use crate::model::CapacityType;
use crate::symbol::Symbol;
use crate::taint::Taint;

/// The phase of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeState {
    /// It takes and runs pods.
    Running,
    /// It was bought and is not ready; pods can be planned on it.
    Starting,
    /// It is being removed: nothing is planned on it, and its pods must be scheduled elsewhere.
    Leaving,
}

/// A drifted node is kept for this many seconds, so that a user who changed a pool by mistake can revert the change
/// before nodes are replaced.
pub const DRIFT_SETTLES: Seconds = 10;

/// A node that differs from what its pool would launch today.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// How it differs.
    pub why: String,
    /// When it was first noticed; `None` means long ago.
    pub since: Option<Seconds>,
}

impl Drift {
    /// Drift that was noticed long ago.
    pub fn settled(why: impl Into<String>) -> Self {
        Self { why: why.into(), since: None }
    }

    /// When the node may be replaced because of it.
    pub fn settles(&self) -> Option<Seconds> {
        self.since.map(|since| since.saturating_add(DRIFT_SETTLES))
    }
}

/// When a node expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Expiry {
    /// At the age that its pool sets.
    #[default]
    OfPool,
    /// Never.
    Never,
    /// At this time, whatever its pool says now.
    At(Seconds),
}

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its pool; `None` for a node that Millpond does not manage.
    pub pool: Option<PoolId>,
    /// Its phase.
    pub state: NodeState,
    /// Whether kube-scheduler may place pods on it (`spec.unschedulable` is false).
    pub schedulable: bool,
    /// Its labels, including the hostname.
    pub labels: Labels,
    /// Taints that count: without the startup taints of a node that is starting.
    pub taints: Vec<Taint>,
    /// What it reports; limits count it.
    pub capacity: Resources,
    /// What pods can use, with no pod on it.
    pub allocatable: Resources,
    /// Its instance type.
    pub instance_type: Option<Symbol>,
    /// Its zone.
    pub zone: Option<Symbol>,
    /// How it was bought.
    pub capacity_type: Option<CapacityType>,
    /// Price in nano-dollars per hour; `None` if it is not known.
    pub price: Option<Nanos>,
    /// When it was created.
    pub created: Seconds,
    /// When it was initialized; `None` if it is not.
    pub initialized: Option<Seconds>,
    /// When a pod last came to it or left it.
    pub last_pod_event: Option<Seconds>,
    /// Why it is no longer what its pool asks for, if so.
    pub drifted: Option<Drift>,
    /// Whether the node opts out of disruption (`karpenter.sh/do-not-disrupt: "true"`).
    pub do_not_disrupt: bool,
    /// When it expires.
    pub expiry: Expiry,
    /// Whether its pods are evicted by force after a time (`terminationGracePeriod`). Then pods that block eviction do
    /// not protect a drifted or expired node.
    pub ends_in_time: bool,
    /// Whether it is ready; a node that is not counts against disruption budgets.
    pub ready: bool,
    /// What a node that is starting waits for, in words, where that is known.
    pub waits_for: Option<String>,
}

impl Node {
    /// When it expires, if its pool replaces nodes at this age.
    pub fn expires(&self, expire_after: Option<Seconds>) -> Option<Seconds> {
        match self.expiry {
            Expiry::OfPool => expire_after.map(|after| self.created.saturating_add(after)),
            Expiry::Never => None,
            Expiry::At(then) => Some(then),
        }
    }
}
