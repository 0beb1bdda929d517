//! `millpond.dev/v1alpha1` NodeClass: where the nodes of a pool come from, and what kubelet keeps for itself there.
//!
//! ```yaml
//! apiVersion: millpond.dev/v1alpha1
//! kind: NodeClass
//! metadata: {name: default}
//! spec:
//!   provider: sim
//!   catalog: aws
//!   kubelet: {maxPods: 110, systemReserved: {cpu: 100m, memory: 200Mi}}
//!   backoff: {initial: 3m, max: 30m}
//!   sim: {registrationDelay: 30s}
//! ```
//!
//! The node classes of Karpenter's providers (`EC2NodeClass`, `GCENodeClass`, `KWOKNodeClass`) are read as far as
//! they say the same.

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::byoh::LabelSelector;
use crate::duration::Duration;
use crate::meta::{Condition, Invalid, ObjectMeta, is_default, kind};
use crate::money::Dollars;
use crate::sim_script::Script;
use crate::spelling::nearest;
use crate::time::Time;

/// The API group of Millpond's own kinds.
pub const GROUP: &str = "millpond.dev";
/// The name of the kind.
pub const KIND: &str = "NodeClass";

/// Default of the first backoff after a stock-out, in seconds.
pub const BACKOFF_INITIAL_S: i64 = 180;
/// Default of the longest backoff after a stock-out, in seconds.
pub const BACKOFF_MAX_S: i64 = 1800;

/// A class of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeClass {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: NodeClassSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: NodeClassStatus,
}

kind!(NodeClass, GROUP, "v1alpha1", "NodeClass", "nodeclasses", namespaced: false);

/// The spec of a node class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassSpec {
    /// The provider of the nodes: `sim` for simulated ones, `hosts` for own hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The name of a catalogue of instance types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// Names of price overlays that apply to these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<String>,
    /// Settings of kubelet.
    #[serde(default, alias = "kubeletConfiguration", skip_serializing_if = "Kubelet::is_default")]
    pub kubelet: Kubelet,
    /// How long offerings that could not be had are left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Behaviour of the simulated cloud for these nodes, for classes whose provider it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sim: Option<Script>,
    /// The own hosts of the nodes, for classes of the provider `hosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<OwnHosts>,
}

/// The word in `spec.provider` of classes whose nodes are own hosts.
pub const HOSTS_PROVIDER: &str = "hosts";
/// The namespace of own hosts of classes that name none.
const HOSTS_NAMESPACE: &str = "default";

/// Own hosts that nodes are made of.
///
/// ```yaml
/// spec:
///   provider: hosts
///   hosts: {selector: {matchLabels: {purpose: worker}}, pricePerHour: "0.10"}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnHosts {
    /// Namespace of the ByoHosts; `default` without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Labels of suitable hosts; every host of the namespace without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Price of one host in plans, in dollars per hour; `None` counts as nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<Dollars>,
    /// BootstrapKubeconfig of the same namespace that says where the API server is; the cluster of the hosts without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bootstrap_kubeconfig: String,
}

impl OwnHosts {
    /// Namespace of the ByoHosts.
    pub fn namespace(&self) -> &str {
        if self.namespace.is_empty() { HOSTS_NAMESPACE } else { &self.namespace }
    }
}

impl NodeClassSpec {
    /// The error for the first price overlay that is named but not known, if any.
    pub fn unknown_overlay<'a>(&self, known: impl Iterator<Item = &'a str> + Clone) -> Option<Invalid> {
        let is_known = |name: &str| known.clone().any(|known| known == name);
        let (index, name) = self.overlays.iter().enumerate().find(|(_, name)| !is_known(name))?;
        let hint = nearest(name, known).map(|like| format!("; is `{like}` meant?")).unwrap_or_default();
        let problem = format!("there is no price overlay `{name}`{hint}");
        Some(Invalid::new(format!("spec.overlays[{index}]"), problem))
    }
}

/// Backoff of an offering after a stock-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Backoff {
    /// After the first failure; 3 minutes without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Duration>,
    /// The longest, as it grows with every failure that follows; 30 minutes without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Duration>,
}

impl Backoff {
    /// Seconds after the first failure.
    pub fn initial_s(&self) -> i64 {
        self.initial.map_or(BACKOFF_INITIAL_S, |initial| initial.0)
    }

    /// The most seconds; never fewer than after the first failure.
    pub fn max_s(&self) -> i64 {
        self.max.map_or(BACKOFF_MAX_S, |max| max.0).max(self.initial_s())
    }
}

/// Settings of kubelet that change a node's allocatable resources.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    /// Maximum number of pods on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<u32>,
    /// Maximum number of pods for each core, if that is fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_per_core: Option<u32>,
    /// Kept for the operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_reserved: Option<Amounts>,
    /// Kept for kubelet and the container runtime, instead of what the provider's rule says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_reserved: Option<Amounts>,
}

impl Kubelet {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        self == &Self::default()
    }
}

/// The observed state of a class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassStatus {
    /// How many instance types its catalogue has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_types: Option<i64>,
    /// Offerings that are left alone for a while, because they could not be had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<UnavailableOffering>,
    /// `Ready` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The most entries of [`NodeClassStatus::unavailable`]: those that end last. More make the object too large for
/// every watcher.
pub const LIMIT_UNAVAILABLE: usize = 100;

/// An offering that is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableOffering {
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// When the backoff ends.
    pub until: Time,
    /// Failures in a row.
    #[serde(default)]
    pub failures: i64,
    /// The provider's message, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl NodeClass {
    /// Why nothing can be made of it now: its `Ready` condition says no.
    pub fn not_ready(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == "Ready" && condition.status != "True")
    }

    /// How long offerings that could not be had are left alone.
    pub fn backoff(&self) -> Backoff {
        self.spec.backoff.unwrap_or_default()
    }

    /// The errors of the object.
    pub fn validate(&self) -> Vec<Invalid> {
        let mut invalid = Vec::new();
        let backoff = self.backoff();
        if backoff.max.is_some_and(|max| max.0 < backoff.initial_s()) {
            invalid.push(Invalid::new("spec.backoff.max", "is shorter than `initial`"));
        }
        let kubelet = &self.spec.kubelet;
        for (field, number) in [("maxPods", kubelet.max_pods), ("podsPerCore", kubelet.pods_per_core)] {
            if number == Some(0) {
                invalid.push(Invalid::new(format!("spec.kubelet.{field}"), "must be above zero"));
            }
        }
        let known = ["cpu", "memory", "ephemeral-storage", "pid"];
        let reserved = [("systemReserved", &kubelet.system_reserved), ("kubeReserved", &kubelet.kube_reserved)];
        for (field, amounts) in reserved {
            let names = amounts.iter().flat_map(Amounts::iter).map(|(name, _)| name);
            let unknown = names.filter(|name| !known.contains(name));
            invalid.extend(unknown.map(|name| {
                let problem = "can be reserved only of cpu, memory, ephemeral-storage and pid";
                Invalid::new(format!("spec.kubelet.{field}.{name}"), problem)
            }));
        }
        invalid.extend(self.spec.sim.iter().flat_map(|script| script.validate("spec.sim")));
        let selector = self.spec.hosts.as_ref().and_then(|hosts| hosts.selector.as_ref());
        if let Some(Err(wrong)) = selector.map(LabelSelector::requirements) {
            invalid.push(Invalid::new("spec.hosts.selector", wrong.to_string()));
        }
        invalid
    }
}
