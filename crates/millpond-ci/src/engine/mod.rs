//! Decides the next actions for requests and nodes: a pure function from a [`Snapshot`] to a [`Decision`].
//!
//! ```text
//!   Snapshot ──▶ upkeep: what is lost, expired, no longer configured
//!            ──▶ assign: requests in order, each from one pool; reservations
//!            ──▶ upkeep: nodes kept ready, hosts to register      ──▶ Decision
//! ```
//!
//! One decision covers all pools of a launcher. Resources count as used from the decision on, so that two requests of
//! one decision never share them. A request that has to wait does not hold up others. The caller that carries out the actions
//! compares versions; an action whose snapshot is stale fails and is decided again.

mod assign;
mod matching;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod upkeep;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::config::{Config, Driver, Label, Resources};
use crate::model::{Node, NodeRequest};

/// The most nodes of one request; more is a mistake of its author.
pub const LIMIT_NODES: usize = 1000;

/// Everything that a decision depends on.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Seconds since 1970.
    pub now: f64,
    /// Pools of this launcher.
    pub pools: Vec<Pool>,
    /// Pools of other launchers.
    pub foreign: Vec<ForeignPool>,
    /// Limits on the sum of each provider's nodes.
    pub provider_limits: BTreeMap<String, Resources>,
    /// Limits on the sum of each tenant's nodes.
    pub tenant_limits: BTreeMap<String, Resources>,
    /// Labels with what is kept ready of them.
    pub labels: BTreeMap<String, Label>,
    /// How long nodes stay on hold at most.
    pub max_hold_age_s: Option<u64>,
    /// Labels that a pool has no capacity for at the moment.
    pub out_of_capacity: BTreeSet<(String, String)>,
    /// Labels of a pool whose disk image has no ready upload to the provider, with the image.
    pub without_image: BTreeMap<(String, String), String>,
    /// Requests by id.
    pub requests: BTreeMap<String, Locked<NodeRequest>>,
    /// Nodes by id.
    pub nodes: BTreeMap<String, Locked<Node>>,
}

/// A record and its lock.
#[derive(Debug, Clone)]
pub struct Locked<T> {
    /// The record, shared with the store that it comes from.
    pub record: Arc<T>,
    /// Who holds its lock.
    pub lock: Lock,
}

impl<T: Clone> Locked<T> {
    /// The record, to change it in this snapshot alone.
    pub fn edit(&mut self) -> &mut T {
        Arc::make_mut(&mut self.record)
    }
}

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// No process.
    Free,
    /// This launcher.
    Ours,
    /// Another process.
    Other,
}

/// A pool of this launcher.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Its id in `declined_by` of requests.
    pub id: String,
    /// Its provider.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Lower numbers come first.
    pub priority: i64,
    /// Limits on the sum of its nodes.
    pub limits: Resources,
    /// The usage of a node of each label.
    pub labels: BTreeMap<String, Resources>,
    /// The hosts of a static pool; `None` for pools that launch nodes.
    pub hosts: Option<Vec<Host>>,
    /// How many requests the provider handles at a time.
    pub max_concurrency: Option<u64>,
    /// Whether it may exceed the provider's limits.
    pub ignores_provider_limits: bool,
}

/// A host of a static pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The user on it; together with name and port it identifies the host.
    pub username: String,
    /// Its port.
    pub port: u16,
    /// How many jobs may use it at a time.
    pub slots: u32,
    /// Its labels.
    pub labels: Vec<String>,
}

/// A pool of another launcher.
#[derive(Debug, Clone)]
pub struct ForeignPool {
    /// Its id in `declined_by` of requests.
    pub id: String,
    /// Its provider.
    pub provider: String,
    /// Lower numbers come first.
    pub priority: i64,
    /// Whether it takes no new requests.
    pub paused: bool,
    /// What it can provide.
    pub labels: BTreeSet<String>,
}

/// The actions, and why requests wait.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// For each waiting request, the verdict of every pool.
    pub waiting: BTreeMap<String, Vec<Verdict>>,
}

/// The verdict of a pool on a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The pool's id.
    pub pool: String,
    /// Why it does not provide the nodes now.
    pub reason: Reason,
}

/// One action.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Take a request and provide its nodes, in the order of its labels.
    Assign {
        /// The request.
        request: String,
        /// The pool's id.
        pool: String,
        /// Where each node comes from.
        nodes: Vec<Source>,
    },
    /// All nodes of a request are ready.
    Fulfil {
        /// The request.
        request: String,
    },
    /// Pools cannot provide a request.
    Decline {
        /// The request.
        request: String,
        /// The new value of its `declined_by`.
        declined_by: Vec<String>,
        /// Whether no pool is left, so that it fails.
        fails: bool,
        /// Why, for each pool.
        verdicts: Vec<Verdict>,
    },
    /// Give a request back: its launcher is gone, or found no capacity.
    Release {
        /// The request.
        request: String,
    },
    /// A ready node is for no request any more.
    Deallocate {
        /// The node.
        node: String,
    },
    /// Delete a node.
    Delete {
        /// The node.
        node: String,
        /// Why.
        reason: DeleteReason,
    },
    /// Launch a node that is kept ready.
    Launch {
        /// The pool's id.
        pool: String,
        /// The label.
        label: String,
    },
    /// Register a slot of a static host as a ready node.
    Register {
        /// The pool's id.
        pool: String,
        /// The index of the host in its pool.
        host: usize,
        /// The slot.
        slot: u32,
    },
}

/// Where a node comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A ready node.
    Ready(String),
    /// A node of this label to launch.
    Launch(String),
}

/// Why a node is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteReason {
    /// No process has its lock.
    Unlocked,
    /// It was ready for too long.
    MaxReadyAge,
    /// It was on hold for too long.
    MaxHoldAge,
    /// Its host or slot is no longer configured.
    NotConfigured,
    /// A request needs its resources.
    MakeRoom {
        /// The request.
        request: String,
    },
}

/// Why a pool does not provide a request now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The request names no label.
    NoLabels,
    /// The request names too many.
    TooManyNodes(usize),
    /// The pool has no such label.
    UnknownLabel(String),
    /// The request needs more than a limit allows at any time.
    ExceedsLimit {
        /// Whose limit it is.
        scope: Scope,
        /// The resource.
        resource: String,
        /// What the request needs.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// The pool's hosts have fewer slots with these labels in total.
    NotEnoughHosts,
    /// The pool has declined the request before.
    Declined,
    /// A node could not be launched.
    LaunchFailed,
    /// The limit allows it once other nodes are gone.
    AtLimit {
        /// Whose limit it is.
        scope: Scope,
        /// The resource.
        resource: String,
        /// What the request needs.
        needed: u64,
        /// What is left of the limit.
        left: u64,
    },
    /// All hosts with these labels are in use.
    NoFreeHost,
    /// The provider has no capacity for this label at the moment.
    OutOfCapacity(String),
    /// The label's disk image has no ready upload to the provider.
    NoUpload(String),
    /// The provider handles as many requests as it may.
    MaxConcurrency(u64),
    /// The request asks for another provider.
    PrefersProvider(String),
    /// A pool of another launcher comes first.
    YieldsTo(String),
}

/// Whose limit it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The pool's.
    Pool,
    /// The provider's.
    Provider,
    /// The tenant's.
    Tenant(String),
}

impl Reason {
    /// Whether waiting does not help.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::NoLabels
                | Self::TooManyNodes(_)
                | Self::UnknownLabel(_)
                | Self::ExceedsLimit { .. }
                | Self::NotEnoughHosts
                | Self::Declined
                | Self::LaunchFailed
        )
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool => f.write_str("the pool"),
            Self::Provider => f.write_str("the provider"),
            Self::Tenant(name) => write!(f, "the tenant `{name}`"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLabels => f.write_str("the request names no label"),
            Self::TooManyNodes(count) => write!(f, "the request needs {count} nodes, more than {LIMIT_NODES}"),
            Self::UnknownLabel(label) => write!(f, "it has no label `{label}`"),
            Self::ExceedsLimit { scope, resource, needed, limit } => {
                write!(f, "the request needs {needed} {resource}, the limit of {scope} is {limit}")
            }
            Self::NotEnoughHosts => f.write_str("it does not have that many hosts with these labels"),
            Self::Declined => f.write_str("it declined the request before"),
            Self::LaunchFailed => f.write_str("a node could not be launched"),
            Self::AtLimit { scope, resource, needed, left } => {
                write!(f, "the request needs {needed} {resource}, {left} are left below the limit of {scope}")
            }
            Self::NoFreeHost => f.write_str("all hosts with these labels are in use"),
            Self::OutOfCapacity(label) => write!(f, "the provider has no capacity for `{label}` at the moment"),
            Self::NoUpload(image) => write!(f, "no upload of the disk image `{image}` is ready"),
            Self::MaxConcurrency(limit) => {
                write!(f, "the provider handles {limit} requests already, as many as it may")
            }
            Self::PrefersProvider(provider) => write!(f, "the request prefers the provider `{provider}`"),
            Self::YieldsTo(pool) => write!(f, "`{pool}` has a higher priority"),
        }
    }
}

/// Decides what happens next. The same snapshot gives the same decision.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let mut decision = Decision::default();
    let gone = upkeep::clean(snapshot, &mut decision);
    let mut usage = usage::Usage::of(snapshot);
    let contended = assign::assign(snapshot, &gone, &mut usage, &mut decision);
    upkeep::keep_ready(snapshot, &contended, &mut usage, &mut decision);
    upkeep::register(snapshot, &mut decision);
    decision
}

/// The pools of a configuration; `id` makes a pool's id from provider and name. Disabled providers have none.
pub fn pools(config: &Config, id: &dyn Fn(&str, &str) -> String) -> Vec<Pool> {
    let enabled = config.providers.iter().filter(|provider| provider.max_concurrency != Some(0));
    let pools = enabled.flat_map(|provider| {
        provider.pools.iter().map(|pool| Pool {
            id: id(&provider.name, &pool.name),
            provider: provider.name.clone(),
            name: pool.name.clone(),
            priority: pool.priority,
            limits: pool.limits.clone(),
            labels: pool.labels.iter().map(|(name, label)| (name.clone(), label.resources.clone())).collect(),
            hosts: (provider.driver == Driver::Static).then(|| pool.hosts.iter().map(host).collect()),
            max_concurrency: provider.max_concurrency,
            ignores_provider_limits: pool.openstack.as_ref().is_some_and(|pool| pool.ignore_provider_quota),
        })
    });
    pools.collect()
}

fn host(host: &crate::config::StaticHost) -> Host {
    Host {
        name: host.name.clone(),
        username: host.username.clone(),
        port: host.port(),
        slots: host.max_parallel_jobs,
        labels: host.labels.clone(),
    }
}
