//! Pools: what may be bought, how much of it, and when it may be taken away.

use super::{Nanos, ResourceId, Seconds, TypeId};
use crate::requirement::Requirements;
use crate::symbol::Symbol;
use crate::taint::Taint;

/// A pool of nodes.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Pools of greater weight are used first.
    pub weight: i32,
    /// What its nodes are: requirements and labels of its template.
    pub requirements: Requirements,
    /// Taints of its nodes for good.
    pub taints: Vec<Taint>,
    /// Taints of its nodes until something takes them away; planning does not look at them.
    pub startup_taints: Vec<Taint>,
    /// The types that its provider has, before the pool's requirements.
    pub types: Vec<TypeId>,
    /// Those among them of a previous generation that the pool does not name: none of them is bought. Sorted.
    pub unnamed: Vec<TypeId>,
    /// What its nodes may add up to.
    pub limits: Limits,
    /// Nodes that it never goes below.
    pub min_nodes: u64,
    /// A fixed number of nodes, whatever the pods: such a pool is not planned for.
    pub replicas: Option<u64>,
    /// When its nodes may be taken away.
    pub disruption: Disruption,
    /// Why nothing can be bought for it now, if so (its node class is not ready, it is being deleted).
    pub not_ready: Option<String>,
}

impl Pool {
    /// A pool that takes every pod and is limited by nothing, with Karpenter's defaults; it has no types yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            weight: 0,
            requirements: Requirements::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            types: Vec::new(),
            unnamed: Vec::new(),
            limits: Limits::default(),
            min_nodes: 0,
            replicas: None,
            disruption: Disruption::default(),
            not_ready: None,
        }
    }

    /// Whether it buys nodes of a type, as far as the type's generation goes.
    pub fn names(&self, of: TypeId) -> bool {
        self.unnamed.binary_search(&of).is_err()
    }

    /// Whether its nodes have no such label, not even one that other nodes get when they are bought: the name of their
    /// pool, zone, capacity type.
    pub fn lacks(&self, key: Symbol) -> bool {
        self.requirements.get(key).is_some_and(|wanted| wanted.named() == (&[], false) && wanted.allows_missing())
    }
}

/// What nodes may add up to, those that are starting included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Sums of capacity.
    pub resources: Vec<(ResourceId, i64)>,
    /// Nodes.
    pub nodes: Option<u64>,
    /// Price.
    pub price: Option<Nanos>,
}

impl Limits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// Which nodes consolidation looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consolidation {
    /// Those without pods.
    WhenEmpty,
    /// Those without pods, and those whose pods fit elsewhere for less.
    #[default]
    WhenEmptyOrUnderutilized,
    /// The same, where the saving is worth the disruption.
    Balanced,
}

/// When the nodes of a pool may be taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disruption {
    /// Which nodes consolidation looks at.
    pub policy: Consolidation,
    /// Quiet time after the last pod came or went; none for never.
    pub consolidate_after: Option<Seconds>,
    /// Age at which a node is replaced; none for never.
    pub expire_after: Option<Seconds>,
    /// How many may be taken away at once; the least that holds now.
    pub budgets: Vec<Budget>,
}

/// Karpenter's defaults.
impl Default for Disruption {
    fn default() -> Self {
        let tenth = Budget { nodes: Nodes::Percent(10), schedule: None, reasons: Vec::new() };
        Self {
            policy: Consolidation::default(),
            consolidate_after: Some(0),
            expire_after: Some(720 * 3600),
            budgets: vec![tenth],
        }
    }
}

/// How many nodes of a pool may be taken away at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// How many.
    pub nodes: Nodes,
    /// When it holds; none for always.
    pub schedule: Option<Schedule>,
    /// For which reasons; empty for all.
    pub reasons: Vec<DisruptionReason>,
}

/// A number of nodes, or a share of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// So many.
    Count(u64),
    /// A percentage of the pool's nodes, rounded up.
    Percent(u8),
}

/// When a budget holds: from every time that the schedule names, for so long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Five fields of cron, or `@daily` and the like.
    pub cron: String,
    /// The IANA name of the time zone; UTC where none is given.
    pub time_zone: Option<String>,
    /// For so long.
    pub duration: Seconds,
}

/// Why a node is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DisruptionReason {
    /// It has no pods.
    Empty,
    /// It is no longer what its pool asks for.
    Drifted,
    /// It is too old.
    Expired,
    /// Its pods cost less elsewhere.
    Underutilized,
}

impl DisruptionReason {
    /// Its name in YAML and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Expired => "Expired",
            Self::Underutilized => "Underutilized",
        }
    }
}
