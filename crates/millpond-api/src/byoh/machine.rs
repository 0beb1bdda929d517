//! ByoMachine and ByoMachineTemplate: the infrastructure of a Machine, on a host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Template;
use super::host::{DownloadMode, HostInfo, JoinMode};
use super::reference::ObjectReference;
use super::selector::LabelSelector;
use crate::amounts::Amounts;
use crate::meta::{Condition, ObjectMeta, is_default, kind};
use crate::time::Time;

/// The infrastructure of one Machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ByoMachine {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Which hosts are suitable, and how they join.
    #[serde(default)]
    pub spec: ByoMachineSpec,
    /// The host, and how far it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ByoMachineStatus,
}

kind!(ByoMachine, super::GROUP, "v1beta1", "ByoMachine", "byomachines", namespaced: true);

/// Which hosts are suitable, and how they join.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ByoMachineSpec {
    /// Labels of suitable hosts; every host without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// `byoh://HOST`.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// K8sInstallerConfigTemplate that installs Kubernetes; nothing is installed without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installer_ref: Option<ObjectReference>,
    /// BootstrapKubeconfig for `tlsBootstrap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_config_ref: Option<ObjectReference>,
    /// How the host joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_mode: Option<JoinMode>,
    /// Where binaries come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_mode: Option<DownloadMode>,
    /// Kubernetes version, instead of the Machine's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kubernetes_version: String,
    /// Whether the agent runs kube-proxy as a unit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub manage_kube_proxy: bool,
    /// Least capacity of suitable hosts.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub capacity_requirements: Amounts,
}

/// The host of a machine, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ByoMachineStatus {
    /// Host that was chosen, before it is claimed: the intent survives a crash.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Contract with Cluster API v1beta2.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: Initialization,
    /// Contract with Cluster API v1beta1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready: bool,
    /// Conditions, see [`super::names::machine`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Operating system of the host.
    #[serde(default, rename = "hostinfo", skip_serializing_if = "is_default")]
    pub host_info: HostInfo,
    /// Addresses of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Node that the host has become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<ObjectReference>,
    /// Failure domain of the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure_domain: String,
    /// Whether the release of the host has begun.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cleanup_started: bool,
    /// Whether the host is free again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cleanup_completed: bool,
    /// How long the host may take to become a Node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_startup_timeout: String,
    /// When the last bootstrap began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_bootstrap_timestamp: Option<Time>,
    /// Why the machine can never work, in one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure_reason: String,
    /// Why the machine can never work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure_message: String,
}

/// Contract of infrastructure and bootstrap objects with Cluster API v1beta2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// Whether the infrastructure exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
    /// Whether the Secret with bootstrap data exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_created: Option<bool>,
}

/// An address of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct MachineAddress {
    /// `Hostname`, `InternalIP`, `ExternalIP`, `InternalDNS`, `ExternalDNS`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}

/// What ByoMachines are cloned from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ByoMachineTemplate {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The clones.
    #[serde(default)]
    pub spec: ByoMachineTemplateSpec,
    /// What nodes of the clones offer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ByoMachineTemplateStatus,
}

kind!(
    ByoMachineTemplate, super::GROUP, "v1beta1", "ByoMachineTemplate", "byomachinetemplates", namespaced: true
);

/// The clones of a template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ByoMachineTemplateSpec {
    /// Metadata and spec of the clones.
    #[serde(default)]
    pub template: Template<ByoMachineSpec>,
    /// Capacity for scale-from-zero, instead of what matching hosts have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<TemplateCapacity>,
}

/// Capacity for scale-from-zero, in the words of the cluster-autoscaler's annotations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateCapacity {
    /// Cores.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpu: String,
    /// Memory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memory: String,
    /// Local disk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ephemeral_disk: String,
    /// Pods.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub max_pods: String,
    /// Resource of the GPUs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gpu_type: String,
    /// Number of GPUs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gpu_count: String,
    /// Labels of the nodes, `k=v,k=v`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub labels: String,
    /// Taints of the nodes, `k=v:Effect`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub taints: String,
    /// Volumes that drivers attach.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub csi_drivers: String,
}

/// What nodes of the clones offer, inferred from matching hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ByoMachineTemplateStatus {
    /// The least that every matching host has; the cluster-autoscaler reads it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, String>,
    /// Operating system and architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfo>,
    /// Free hosts that match the selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching_hosts: Option<i64>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Operating system and architecture of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// `amd64`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub architecture: String,
    /// `linux`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operating_system: String,
}
