//! Pools: what may be bought, how much of it, and when it may be taken away.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Nanos, ResourceId, Seconds, TypeId};
use crate::requirement::Requirements;
use crate::symbol::Symbol;
use crate::taint::Taint;

/// A pool of nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Pools of higher weight are used first.
    pub weight: i32,
    /// Requirements on its nodes, including the labels of its template.
    pub requirements: Requirements,
    /// Permanent taints of its nodes.
    pub taints: Vec<Taint>,
    /// Taints of its nodes until something takes them away; planning does not look at them.
    pub startup_taints: Vec<Taint>,
    /// The types that its provider has, before the pool's requirements.
    pub types: Vec<TypeId>,
    /// Older-generation types of the provider that no requirement of the pool names: they are not bought. Sorted.
    pub unnamed: Vec<TypeId>,
    /// Limits on the sum of its nodes.
    pub limits: Limits,
    /// The number of nodes that it is never reduced below.
    pub min_nodes: u64,
    /// A fixed number of nodes: such a pool is not planned for, whatever pods are pending.
    pub replicas: Option<u64>,
    /// When its nodes may be disrupted.
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

    /// Whether the generation of a type allows the pool to buy it: it is current, or a requirement names it.
    pub fn names(&self, of: TypeId) -> bool {
        self.unnamed.binary_search(&of).is_err()
    }

    /// Whether nodes of the pool certainly lack a label, including the labels that every new node gets (pool, zone,
    /// capacity type).
    pub fn lacks(&self, key: Symbol) -> bool {
        self.requirements.get(key).is_some_and(|wanted| wanted.named() == (&[], false) && wanted.allows_missing())
    }
}

/// Limits on the sum of nodes, including those that are starting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Limits on capacity, by resource.
    pub resources: Vec<(ResourceId, i64)>,
    /// Limit on the number of nodes.
    pub nodes: Option<u64>,
    /// Limit on the price in nano-dollars per hour.
    pub price: Option<Nanos>,
}

impl Limits {
    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// Which nodes consolidation considers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Consolidation {
    /// Nodes without pods.
    WhenEmpty,
    /// Nodes without pods, and nodes whose pods fit elsewhere at lower cost.
    #[default]
    WhenEmptyOrUnderutilized,
    /// The same, where the saving is worth the disruption.
    Balanced,
}

/// When the nodes of a pool may be disrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disruption {
    /// Which nodes consolidation considers.
    pub policy: Consolidation,
    /// Seconds after the last pod came or left before a node is considered; `None` means never.
    pub consolidate_after: Option<Seconds>,
    /// Age in seconds at which a node is replaced; `None` means never.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// How many nodes it allows at a time.
    pub nodes: Nodes,
    /// When it is active; `None` means always.
    pub schedule: Option<Schedule>,
    /// The reasons that it applies to; empty means all.
    pub reasons: Vec<DisruptionReason>,
}

/// A number of nodes, or a share of the pool's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nodes {
    /// A number of nodes.
    Count(u64),
    /// A percentage of the pool's nodes, rounded up.
    Percent(u8),
}

impl fmt::Display for Nodes {
    /// As a pool has it: `3`, `10%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// When a budget holds: from every time that the schedule names, for so long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Five fields of cron, or `@daily` and the like.
    pub cron: String,
    /// The IANA name of the time zone; UTC where none is given.
    pub time_zone: Option<String>,
    /// How long it is active after each match, in seconds.
    pub duration: Seconds,
}

/// Why a node is disrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DisruptionReason {
    /// It has no pods.
    Empty,
    /// It differs from what its pool would launch today.
    Drifted,
    /// It reached its maximum age.
    Expired,
    /// Its pods would cost less elsewhere.
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
