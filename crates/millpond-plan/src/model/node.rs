//! Existing nodes, and nodes that are starting or leaving.

use super::{Labels, Nanos, PoolId, Resources, Seconds};
use crate::model::CapacityType;
use crate::symbol::Symbol;
use crate::taint::Taint;

/// Where a node is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeState {
    /// It runs pods.
    Running,
    /// It was bought and is not ready yet; pods can be planned on it.
    Starting,
    /// It is being removed: nothing is planned on it, and its pods need another place.
    Leaving,
}

/// A drifted node stays this long: a user who changed a pool by mistake can change it back before nodes are replaced.
pub const DRIFT_SETTLES: Seconds = 10;

/// That a node is no longer what its pool asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Why.
    pub why: String,
    /// Since when; none where that is not known, and then for long enough.
    pub since: Option<Seconds>,
}

impl Drift {
    /// Drift that was there for long enough.
    pub fn settled(why: impl Into<String>) -> Self {
        Self { why: why.into(), since: None }
    }

    /// When a node may go for it.
    pub fn settles(&self) -> Option<Seconds> {
        self.since.map(|since| since.saturating_add(DRIFT_SETTLES))
    }
}

/// When a node is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Expiry {
    /// When it has reached the age that its pool sets.
    #[default]
    OfPool,
    /// Never.
    Never,
    /// From then on, whatever its pool says by now.
    At(Seconds),
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The pool that it was bought for; none for a node that Millpond does not manage.
    pub pool: Option<PoolId>,
    /// Where it is in its life.
    pub state: NodeState,
    /// Whether kube-scheduler may place pods on it at all (`spec.unschedulable` is false).
    pub schedulable: bool,
    /// Labels, the hostname among them.
    pub labels: Labels,
    /// Taints that count: without the startup taints of a node that is starting.
    pub taints: Vec<Taint>,
    /// What it reports, and limits count.
    pub capacity: Resources,
    /// What pods can use, before any pod.
    pub allocatable: Resources,
    /// Its instance type.
    pub instance_type: Option<Symbol>,
    /// Its zone.
    pub zone: Option<Symbol>,
    /// How it was bought.
    pub capacity_type: Option<CapacityType>,
    /// What it costs; none where that is not known.
    pub price: Option<Nanos>,
    /// When it was made.
    pub created: Seconds,
    /// When it became ready for pods, if it is.
    pub initialized: Option<Seconds>,
    /// When a pod last came or went.
    pub last_pod_event: Option<Seconds>,
    /// Why it is no longer what its pool asks for, if so.
    pub drifted: Option<Drift>,
    /// Whether the node opts out of disruption (`karpenter.sh/do-not-disrupt: "true"`).
    pub do_not_disrupt: bool,
    /// When it is too old.
    pub expiry: Expiry,
    /// Whether its pods have to leave within a time, whatever holds them (`terminationGracePeriod`): then what holds
    /// them does not keep a drifted or expired node.
    pub ends_in_time: bool,
    /// Whether it is ready; one that is not counts against disruption budgets.
    pub ready: bool,
}

impl Node {
    /// When it is too old, in a pool whose nodes are replaced at that age.
    pub fn expires(&self, expire_after: Option<Seconds>) -> Option<Seconds> {
        match self.expiry {
            Expiry::OfPool => expire_after.map(|after| self.created.saturating_add(after)),
            Expiry::Never => None,
            Expiry::At(then) => Some(then),
        }
    }
}
