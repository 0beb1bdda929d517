//! A node as far as it alone decides what it is to the planner.

use millpond_api::capi::names;
use millpond_api::karpenter::{DO_NOT_DISRUPT, INITIALIZED_LABEL, UNREGISTERED_TAINT};
use millpond_plan::model::{Labels, Resources, Seconds, Snapshot};
use millpond_plan::symbol::Symbol;
use millpond_plan::taint::Taint;

use super::pod::effect;
use super::requests::amounts;
use super::select::current_name;
use crate::objects::cluster::Node;
use crate::objects::meta::condition;

/// Taints that Kubernetes puts on a starting node and then removes.
const EPHEMERAL: [&str; 5] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    UNREGISTERED_TAINT,
    "node.cluster.x-k8s.io/uninitialized",
];

/// Prefixes of such taints.
const EPHEMERAL_PREFIXES: [&str; 2] = ["startup-taint.cluster-autoscaler.kubernetes.io/", "readiness.k8s.io/"];

/// Whether a node has this taint only while it starts.
pub(crate) fn is_ephemeral(key: &str) -> bool {
    EPHEMERAL.contains(&key) || EPHEMERAL_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Taints of a node that is about to be taken away.
const LEAVING: [&str; 2] = [millpond_api::karpenter::DISRUPTED_TAINT, "ToBeDeletedByClusterAutoscaler"];

/// The properties of a Node object.
#[derive(Debug, Clone)]
pub(crate) struct NodeEntry {
    pub(crate) revision: Box<str>,
    pub(crate) provider_id: Box<str>,
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Taint>,
    pub(crate) capacity: Resources,
    pub(crate) allocatable: Resources,
    pub(crate) schedulable: bool,
    pub(crate) created: Seconds,
    pub(crate) ready: bool,
    pub(crate) ready_since: Option<Seconds>,
    pub(crate) leaving: bool,
    /// `karpenter.sh/initialized`, where it says anything.
    pub(crate) initialized: bool,
    pub(crate) do_not_disrupt: bool,
    /// Namespace and name of its Machine, where Cluster API wrote it down.
    pub(crate) machine: Option<(Box<str>, Box<str>)>,
}

/// Labels of a node: under the names of today, the hostname always among them.
pub(crate) fn node_labels<'l>(
    name: &str,
    labels: impl Iterator<Item = (&'l str, &'l str)>,
    tables: &mut Snapshot,
) -> Labels {
    let symbols = &mut tables.symbols;
    let hostname = (tables.names.hostname, symbols.intern(name));
    let all: Vec<(Symbol, Symbol)> = labels.map(|(key, value)| (symbols.intern(key), symbols.intern(value))).collect();
    let renamed: Vec<(Symbol, Symbol)> = all
        .iter()
        .filter_map(|(key, value)| {
            let old = symbols.text(*key);
            let new = current_name(old).to_owned();
            (new != old).then(|| (symbols.intern(&new), *value))
        })
        .collect();
    // The value under the current name of a label counts.
    std::iter::once(hostname).chain(renamed).chain(all).collect()
}

pub(crate) fn lower(node: &Node<'_>, tables: &mut Snapshot) -> NodeEntry {
    let labels = node_labels(&node.metadata.name, node.metadata.labels.iter(), tables);
    let capacity = amounts(&node.status.capacity, &mut tables.resources);
    let ready = condition(&node.status.conditions, "Ready");
    let is_ready = ready.is_none_or(|condition| &*condition.status == "True");
    let annotations = &node.metadata.annotations;
    let keep = annotations.get(DO_NOT_DISRUPT) == Some("true")
        || annotations.get("cluster-autoscaler.kubernetes.io/scale-down-disabled") == Some("true");
    let leaving = node.metadata.deletion_timestamp.is_some()
        || node.spec.taints.iter().any(|taint| LEAVING.contains(&&*taint.key));
    let taints = node.spec.taints.iter().map(|taint| Taint {
        key: tables.symbols.intern(&taint.key),
        value: tables.symbols.intern(&taint.value),
        effect: effect(taint.effect),
    });
    NodeEntry {
        revision: (*node.metadata.resource_version).into(),
        provider_id: (*node.spec.provider_id).into(),
        taints: taints.collect(),
        labels,
        allocatable: if node.status.allocatable.is_empty() {
            capacity.clone()
        } else {
            amounts(&node.status.allocatable, &mut tables.resources)
        },
        capacity,
        schedulable: !node.spec.unschedulable,
        created: node.metadata.creation_timestamp.map_or(0, |time| time.0),
        ready: is_ready,
        ready_since: ready.filter(|_| is_ready).and_then(|ready| ready.last_transition_time).map(|time| time.0),
        leaving,
        initialized: node.metadata.labels.get(INITIALIZED_LABEL) == Some("true"),
        do_not_disrupt: keep,
        machine: annotations.get(names::NODE_MACHINE).map(|machine| {
            let namespace = annotations.get(names::NODE_CLUSTER_NAMESPACE).unwrap_or("default");
            (namespace.into(), machine.into())
        }),
    }
}
