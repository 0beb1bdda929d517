//! Metrics of the controllers. Names, labels and units are Karpenter's where Karpenter has them (`karpenter_…`), so that its
//! dashboards and alerts work unchanged; what only Millpond knows begins with `millpond_`.
//!
//! Other modules count with one line each (`context.metrics.claim_created(&claim, reason)`). What can be read off the
//! cluster is not counted but sampled at scrape time: [`registry`]. Labels have few values: pools, zones, reasons; no
//! pod or node is named.

mod measured;
mod pods;
mod sample;
mod scrape;

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_api::labels;
use millpond_plan::plan::Report;
use millpond_state::groups::GroupRef;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::kinds::NodeClaim;

pub(crate) use measured::Measured;
pub(crate) use pods::listen;
pub use scrape::{registry, sample, text};

/// Reasons why a claim was made, as in Karpenter's `reason` label.
pub mod created_for {
    /// For pending pods.
    pub const PODS: &str = "provisioned";
    /// For a pool with a fixed number of nodes.
    pub const REPLICAS: &str = "static";
}

/// Reasons why a claim is taken away that are not a [`millpond_plan`] reason; those are their names in lower case.
pub mod disrupted_by {
    /// The node expired.
    pub const EXPIRED: &str = "expired";
    /// The machine is unhealthy.
    pub const UNHEALTHY: &str = "unhealthy";
    /// The machine does not exist.
    pub const GARBAGE_COLLECTED: &str = "garbage_collected";
    /// No offering is available.
    pub const INSUFFICIENT_CAPACITY: &str = "insufficient_capacity";
    /// The NodeClass is not ready.
    pub const CLASS_NOT_READY: &str = "nodeclass_not_ready";
    /// The limits are exhausted.
    pub const LIMITS_EXCEEDED: &str = "limits_exceeded";
    /// The machine did not come, or did not become a node, in time.
    pub const LIVENESS: &str = "liveness";
}

type Counters<L> = Family<L, Counter>;
type Gauges<L> = Family<L, Gauge>;
type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// Counters that are updated as things happen.
pub struct Metrics {
    claims_created: Counters<Created>,
    claims_terminated: Counters<Terminated>,
    claims_disrupted: Counters<Disrupted>,
    nodes_created: Counters<PoolZone>,
    nodes_terminated: Counters<PoolZone>,
    nodes_drained: Counters<Pool>,
    evictions: Counters<Code>,
    decisions: Counters<Decision>,
    /// By pool and reason; pools that no longer exist are left out of scrapes.
    allowed_disruptions: Mutex<BTreeMap<(String, String), u64>>,
    scheduling: Durations<Controller>,
    queue_depth: Gauges<Controller>,
    unschedulable: Gauges<Controller>,
    pods_startup: Histogram,
    pods_bound: Histogram,
    provider_duration: Durations<Call>,
    provider_errors: Counters<CallError>,
    limits_refused: Counters<Limited>,
    advice: Counter,
    groups_scaled_up: Counters<Group>,
    groups_scaled_down: Counters<GroupReason>,
    machines_failed: Counters<GroupReason>,
    plan_gap: Gauge<f64, std::sync::atomic::AtomicU64>,
    plan_cost: Gauge<f64, std::sync::atomic::AtomicU64>,
    plan_bound: Gauge<f64, std::sync::atomic::AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Created {
    reason: String,
    nodepool: String,
    /// Whether fewer kinds were left open than the pool asks for: Millpond does not do that.
    min_values_relaxed: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Terminated {
    nodepool: String,
    capacity_type: String,
    zone: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Disrupted {
    reason: String,
    nodepool: String,
    capacity_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolZone {
    nodepool: String,
    zone: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    nodepool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolReason {
    nodepool: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    decision: &'static str,
    reason: String,
    consolidation_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    method: &'static str,
    provider: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallError {
    method: &'static str,
    provider: &'static str,
    error: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Limited {
    scope: &'static str,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Group {
    node_group: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupReason {
    node_group: String,
    reason: &'static str,
}

/// The planner for pending pods.
pub const PROVISIONER: &str = "provisioner";
/// The planner that looks for nodes to remove.
pub const DISRUPTION: &str = "disruption";

impl Default for Metrics {
    fn default() -> Self {
        let durations = || Histogram::new(DURATIONS);
        Self {
            claims_created: Family::default(),
            claims_terminated: Family::default(),
            claims_disrupted: Family::default(),
            nodes_created: Family::default(),
            nodes_terminated: Family::default(),
            nodes_drained: Family::default(),
            evictions: Family::default(),
            decisions: Family::default(),
            allowed_disruptions: Mutex::default(),
            scheduling: Family::new_with_constructor(duration_histogram),
            queue_depth: Family::default(),
            unschedulable: Family::default(),
            pods_startup: durations(),
            pods_bound: durations(),
            provider_duration: Family::new_with_constructor(duration_histogram),
            provider_errors: Family::default(),
            limits_refused: Family::default(),
            advice: Counter::default(),
            groups_scaled_up: Family::default(),
            groups_scaled_down: Family::default(),
            machines_failed: Family::default(),
            plan_gap: Gauge::default(),
            plan_cost: Gauge::default(),
            plan_bound: Gauge::default(),
        }
    }
}

/// Bounds of durations in seconds: a millisecond, which a plan takes, to the quarter of an hour in which a machine must
/// have become a node.
const DURATIONS: [f64; 18] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];

fn duration_histogram() -> Histogram {
    Histogram::new(DURATIONS)
}

impl Metrics {
    /// A claim was written, for one of the reasons in [`created_for`], or that of the disruption it replaces nodes for.
    pub fn claim_created(&self, claim: &NodeClaim, reason: &str) {
        let labels = Created { reason: reason.to_lowercase(), nodepool: pool(claim), min_values_relaxed: "false" };
        self.claims_created.get_or_create(&labels).inc();
    }

    /// A claim has come to its end: its machine is gone.
    pub fn claim_terminated(&self, claim: &NodeClaim) {
        let (capacity_type, zone) = (label(claim, labels::CAPACITY_TYPE), label(claim, labels::ZONE));
        self.claims_terminated.get_or_create(&Terminated { nodepool: pool(claim), capacity_type, zone }).inc();
    }

    /// A claim was deleted by a controller, for one of the reasons in [`disrupted_by`], or that of a plan.
    pub fn claim_disrupted(&self, claim: &NodeClaim, reason: &str) {
        let (reason, capacity_type) = (reason.to_lowercase(), label(claim, labels::CAPACITY_TYPE));
        self.claims_disrupted.get_or_create(&Disrupted { reason, nodepool: pool(claim), capacity_type }).inc();
    }

    /// Counts a machine that became a node.
    pub fn node_created(&self, claim: &NodeClaim) {
        self.nodes_created.get_or_create(&pool_zone(claim)).inc();
    }

    /// Counts a Node object that was removed with its machine.
    pub fn node_terminated(&self, claim: &NodeClaim) {
        self.nodes_terminated.get_or_create(&pool_zone(claim)).inc();
    }

    /// Counts a node whose pods are gone.
    pub fn node_drained(&self, claim: &NodeClaim) {
        self.nodes_drained.get_or_create(&Pool { nodepool: pool(claim) }).inc();
    }

    /// The eviction of a pod was asked for, and answered with this HTTP status.
    pub fn eviction_answered(&self, code: u16) {
        self.evictions.get_or_create(&Code { code: code.into() }).inc();
    }

    /// Nodes are to go (`delete`) or to be replaced first (`replace`), for the reason of a plan.
    pub fn disruption_decided(&self, reason: &str, nodes: usize, replacements: usize) {
        let decision = if replacements == 0 { "delete" } else { "replace" };
        let reason = reason.to_lowercase();
        let consolidation_type = match (reason.as_str(), nodes) {
            ("empty", _) => "empty",
            ("underutilized", 1) => "single",
            ("underutilized", _) => "multi",
            _ => "",
        };
        self.decisions.get_or_create(&Decision { decision, reason, consolidation_type }).inc();
    }

    /// How many nodes of a pool may be disrupted at a time for a reason, now.
    pub fn allowed_disruptions(&self, pool: &str, reason: &str, nodes: u64) {
        self.allowed_disruptions.lock().insert((pool.to_owned(), reason.to_lowercase()), nodes);
    }

    /// A planner ([`PROVISIONER`], [`DISRUPTION`]) thought for this long.
    pub fn planned(&self, controller: &'static str, took: Duration) {
        self.scheduling.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
    }

    /// Pods that no plan has looked at yet, and pods that the last one found no place for.
    pub(crate) fn pending_pods(&self, fresh: usize, unschedulable: usize) {
        let provisioner = Controller { controller: PROVISIONER };
        self.queue_depth.get_or_create(&provisioner).set(fresh as i64);
        self.unschedulable.get_or_create(&provisioner).set(unschedulable as i64);
    }

    /// Stores the figures of the last plan.
    pub(crate) fn plan_made(&self, report: &Report) {
        self.plan_cost.set(report.cost_after as f64 / 1e9);
    }

    /// Stores the lower bound of the last plan, once it is proved.
    pub(crate) fn plan_proved(&self, report: &Report) {
        self.plan_bound.set(report.bound as f64 / 1e9);
        self.plan_gap.set(report.gap());
    }

    /// Records the time from a pod's creation to its start.
    pub(crate) fn pod_started(&self, after: Duration) {
        self.pods_startup.observe(after.as_secs_f64());
    }

    /// A pod got its node so long after it was created.
    pub(crate) fn pod_bound(&self, after: Duration) {
        self.pods_bound.observe(after.as_secs_f64());
    }

    /// Counts new advice.
    pub(crate) fn advised(&self) {
        self.advice.inc();
    }

    /// Counts a scale-up of a node group.
    pub(crate) fn group_scaled_up(&self, group: &GroupRef, machines: i64) {
        let machines = u64::try_from(machines).unwrap_or(0);
        self.groups_scaled_up.get_or_create(&Group { node_group: group.to_string() }).inc_by(machines);
    }

    /// A node group was given fewer machines: `unneeded`, or `failed`.
    pub(crate) fn group_scaled_down(&self, group: &GroupRef, machines: i64, reason: &'static str) {
        let labels = GroupReason { node_group: group.to_string(), reason };
        self.groups_scaled_down.get_or_create(&labels).inc_by(u64::try_from(machines).unwrap_or(0));
    }

    /// A machine of a node group will not become a node.
    pub(crate) fn machine_failed(&self, group: &GroupRef, reason: &'static str) {
        self.machines_failed.get_or_create(&GroupReason { node_group: group.to_string(), reason }).inc();
    }

    /// Counts claims that a limit refused.
    pub(crate) fn limit_refused(&self, scope: &'static str, name: &str, claims: usize) {
        let labels = Limited { scope, name: name.to_owned() };
        self.limits_refused.get_or_create(&labels).inc_by(claims as u64);
    }

    fn provider_called(
        &self,
        provider: &'static str,
        method: &'static str,
        took: Duration,
        error: Option<&'static str>,
    ) {
        self.provider_duration.get_or_create(&Call { method, provider }).observe(took.as_secs_f64());
        if let Some(error) = error {
            self.provider_errors.get_or_create(&CallError { method, provider, error }).inc();
        }
    }
}

fn pool_zone(claim: &NodeClaim) -> PoolZone {
    PoolZone { nodepool: pool(claim), zone: label(claim, labels::ZONE) }
}

fn pool(claim: &NodeClaim) -> String {
    label(claim, labels::NODE_POOL)
}

fn label(claim: &NodeClaim, key: &str) -> String {
    claim.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
}
