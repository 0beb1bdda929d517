//! Node groups: MachineDeployments, MachineSets and MachinePools of Cluster API as pools of the planner. Their names,
//! which of them are scaled, and the failures of their machines.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use millpond_api::amounts::Amounts;
use millpond_api::capi::MachineStatus;
use millpond_api::capi::node_group::Options;
use millpond_plan::model::Seconds;
use serde::{Deserialize, Serialize};

/// The kind of the object that sets a group's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupKind {
    /// A MachineDeployment.
    MachineDeployment,
    /// A MachineSet that belongs to no MachineDeployment.
    MachineSet,
    /// A MachinePool.
    MachinePool,
}

impl GroupKind {
    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Self::MachineDeployment => "MachineDeployment",
            Self::MachineSet => "MachineSet",
            Self::MachinePool => "MachinePool",
        }
    }
}

/// A node group. Its text is the name of the planner's pool: `namespace/name` of a MachineDeployment, and the kind
/// before it for other kinds. No NodePool can have such a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupRef {
    /// What it is.
    pub kind: GroupKind,
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl GroupRef {
    /// The group of that name.
    pub fn new(kind: GroupKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    /// With the kind, for every kind: `MachineDeployment/namespace/name`.
    pub fn to_string_with_kind(&self) -> String {
        format!("{}/{}/{}", self.kind.name(), self.namespace, self.name)
    }

    /// The group of a planner's pool; `None` for pools of other dialects.
    pub fn of_pool(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        let of = match (parts.next()?, parts.next()?, parts.next()) {
            (namespace, name, None) => Self::new(GroupKind::MachineDeployment, namespace, name),
            ("MachineSet", namespace, Some(name)) => Self::new(GroupKind::MachineSet, namespace, name),
            ("MachinePool", namespace, Some(name)) => Self::new(GroupKind::MachinePool, namespace, name),
            _ => return None,
        };
        parts.next().is_none().then_some(of)
    }
}

impl fmt::Display for GroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != GroupKind::MachineDeployment {
            write!(f, "{}/", self.kind.name())?;
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Which groups are scaled, in the syntax of the cluster-autoscaler's `--node-group-auto-discovery`:
/// `clusterapi:namespace=..,clusterName=..,label=value`. All parts must match; without any, all groups match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Their namespace.
    pub namespace: Option<String>,
    /// Their cluster.
    pub cluster: Option<String>,
    /// Labels that they have.
    pub labels: BTreeMap<String, String>,
}

impl Discovery {
    /// Whether a group matches.
    pub fn finds(&self, namespace: &str, cluster: &str, labels: &BTreeMap<String, String>) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.cluster.as_deref().is_none_or(|wanted| wanted == cluster)
            && self.labels.iter().all(|(key, wanted)| labels.get(key) == Some(wanted))
    }
}

impl FromStr for Discovery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("clusterapi:") else {
            return Err(
                "does not begin with `clusterapi:`, as in `clusterapi:namespace=default,clusterName=c`".to_owned()
            );
        };
        let mut discovery = Self::default();
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=').filter(|(key, value)| {
                !key.is_empty() && !key.ends_with('!') && !value.starts_with('=') && !value.contains('=')
            }) else {
                return Err(format!("`{part}` is not `key=value`; labels can only be compared with `=`"));
            };
            let value = value.to_owned();
            match key {
                "namespace" => discovery.namespace = Some(value),
                "clusterName" => discovery.cluster = Some(value),
                _ => drop(discovery.labels.insert(key.to_owned(), value)),
            }
        }
        Ok(discovery)
    }
}

/// How a plan may use node groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Use {
    /// The plan may add nodes for pods.
    #[default]
    Open,
    /// Their nodes count, but another autoscaler scales them.
    Closed,
    /// They are left out.
    None,
}

/// Why a group gets nothing for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// One sentence, without its final period.
    pub reason: String,
    /// Its missing machines are not being created, so they are not waited for.
    pub stalled: bool,
}

/// How node groups become pools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeGroups {
    /// How a plan may use them.
    pub used: Use,
    /// Groups that one of these matches are scaled; if empty, all groups with autoscaler annotations.
    pub discovery: Vec<Discovery>,
    /// Groups that get nothing for now, and why: their last machines failed.
    pub held: BTreeMap<GroupRef, Held>,
}

impl NodeGroups {
    /// Whether a group is scaled.
    pub fn finds(&self, namespace: &str, cluster: &str, labels: &BTreeMap<String, String>) -> bool {
        self.discovery.is_empty() || self.discovery.iter().any(|one| one.finds(namespace, cluster, labels))
    }
}

/// Annotation of a group: the capacity of its last node. With it the group can grow from zero, although no other object
/// says what its nodes offer.
pub const REMEMBERED_ANNOTATION: &str = "millpond.dev/observed-node";

/// Resources of a former node, stored on its group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Remembered {
    /// Its capacity.
    #[serde(default)]
    pub capacity: Amounts,
    /// What pods could use.
    #[serde(default)]
    pub allocatable: Amounts,
    /// Labels that all nodes of the group had.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// When nodes of a group go, and how long they may take to come; the cluster-autoscaler's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Nodes that are used less than this, in thousandths, may go.
    pub utilization_milli: i64,
    /// The same for nodes with GPUs, of which only the GPUs count.
    pub gpu_utilization_milli: i64,
    /// How long a node must have been unneeded.
    pub unneeded_s: Seconds,
    /// How long a node that is not ready must have been unneeded.
    pub unready_s: Seconds,
    /// How long a machine may take to become a node.
    pub provision_s: Seconds,
    /// How long a node may take to become ready.
    pub startup_s: Seconds,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            utilization_milli: 500,
            gpu_utilization_milli: 500,
            unneeded_s: 600,
            unready_s: 1200,
            provision_s: 900,
            startup_s: 900,
        }
    }
}

impl Timing {
    /// The defaults, but for what a group says itself.
    pub fn of(options: &Options) -> Self {
        let default = Self::default();
        Self {
            utilization_milli: options.utilization_milli.unwrap_or(default.utilization_milli),
            gpu_utilization_milli: options.gpu_utilization_milli.unwrap_or(default.gpu_utilization_milli),
            unneeded_s: options.unneeded_s.unwrap_or(default.unneeded_s),
            unready_s: options.unready_s.unwrap_or(default.unready_s),
            provision_s: options.provision_s.unwrap_or(default.provision_s),
            startup_s: options.startup_s.unwrap_or(default.startup_s),
        }
    }
}

/// Why a machine does not become a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TroubleKind {
    /// The infrastructure provider has no capacity left, or refuses more.
    Quota,
    /// It failed.
    Failed,
    /// It should have become a node by now.
    Late,
}

impl TroubleKind {
    /// Its name in events and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quota => "Quota",
            Self::Failed => "MachineFailed",
            Self::Late => "ProvisionTimeout",
        }
    }
}

/// The failure of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The kind of failure.
    pub kind: TroubleKind,
    /// The message of the infrastructure provider.
    pub message: String,
}

/// Words of clouds, hypervisors and hosts that have nothing left, in lower case.
const QUOTA_WORDS: [&str; 13] = [
    "quota",
    "insufficient",
    "limit exceeded",
    "limitexceeded",
    "exceeded limit",
    "out of capacity",
    "no capacity",
    "not enough",
    "out of stock",
    "stockout",
    "no available host",
    "no host",
    "resource exhausted",
];

impl Trouble {
    /// The failure that a machine reports; `None` while it may still become a node.
    pub fn of(status: &MachineStatus) -> Option<Self> {
        if status.node.is_some() {
            return None;
        }
        if let Some((reason, message)) = &status.failure {
            let message = if message.is_empty() { reason } else { message };
            let kind = if is_quota(reason) || is_quota(message) { TroubleKind::Quota } else { TroubleKind::Failed };
            return Some(Self { kind, message: message.clone() });
        }
        let infrastructure = status.conditions.iter().find(|condition| condition.kind == "InfrastructureReady");
        let refused = infrastructure.filter(|condition| condition.status == "False");
        let words = refused.map(|condition| (condition.reason.as_str(), condition.message.as_str()));
        if let Some((reason, message)) = words.filter(|(reason, message)| is_quota(reason) || is_quota(message)) {
            let message = if message.is_empty() { reason } else { message };
            return Some(Self { kind: TroubleKind::Quota, message: message.to_owned() });
        }
        (status.phase == "Failed").then(|| {
            let message = words
                .map_or("its phase is Failed", |(reason, message)| if message.is_empty() { reason } else { message });
            Self { kind: TroubleKind::Failed, message: message.to_owned() }
        })
    }
}

fn is_quota(text: &str) -> bool {
    let text = text.to_lowercase();
    QUOTA_WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use millpond_api::capi::Machine;
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_are_found_by_the_names_of_their_pools() {
        for (kind, text) in [
            (GroupKind::MachineDeployment, "default/workers"),
            (GroupKind::MachineSet, "MachineSet/default/workers"),
            (GroupKind::MachinePool, "MachinePool/default/workers"),
        ] {
            let group = GroupRef::new(kind, "default", "workers");
            assert_eq!((group.to_string().as_str(), GroupRef::of_pool(text)), (text, Some(group)));
        }
        for text in ["general", "Teapot/default/workers", "MachineSet/a/b/c", ""] {
            assert_eq!(GroupRef::of_pool(text), None, "{text}");
        }
    }

    #[test]
    fn groups_are_found_as_the_cluster_autoscaler_finds_them() {
        let labels = BTreeMap::from([("cluster-autoscaler-enabled".to_owned(), "true".to_owned())]);
        let finds = |text: &str| text.parse::<Discovery>().map(|it| it.finds("default", "my-cluster", &labels));
        assert_eq!(finds("clusterapi:"), Ok(true));
        assert_eq!(
            finds("clusterapi:namespace=default,clusterName=my-cluster,cluster-autoscaler-enabled=true"),
            Ok(true)
        );
        assert_eq!(finds("clusterapi:namespace=other"), Ok(false));
        assert_eq!(finds("clusterapi:clusterName=other"), Ok(false));
        assert_eq!(finds("clusterapi:team=a"), Ok(false));
        for wrong in ["namespace=default", "clusterapi:team", "clusterapi:team!=a", "clusterapi:team==a", "mig:x=y"] {
            assert!(finds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn trouble_is_distinguished() {
        let kind = |status| Trouble::of(&Machine::of(&json!({}), &status).status).map(|trouble| trouble.kind);
        let not_ready = |reason: &str, message: &str| json!({"phase": "Provisioning", "conditions": [{"type": "InfrastructureReady", "status": "False", "reason": reason, "message": message}]});
        assert_eq!(kind(json!({"phase": "Provisioning"})), None);
        assert_eq!(kind(not_ready("WaitingForBootstrapData", "")), None);
        assert_eq!(
            kind(not_ready("InstanceProvisionFailed", "vCPU Quota exceeded in region")),
            Some(TroubleKind::Quota)
        );
        assert_eq!(kind(json!({"failureReason": "InsufficientResources"})), Some(TroubleKind::Quota));
        assert_eq!(
            kind(json!({"failureReason": "CreateError", "failureMessage": "no such image"})),
            Some(TroubleKind::Failed)
        );
        assert_eq!(kind(json!({"phase": "Failed"})), Some(TroubleKind::Failed));
        // It became a node once: the current phase is about something else.
        assert_eq!(kind(json!({"phase": "Failed", "nodeRef": {"name": "n"}})), None);
    }
}
