//! ByoHost: a machine of one's own, which its agent registers and controllers assign.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::facts::HostFacts;
use super::names;
use super::reference::ObjectReference;
use crate::amounts::Amounts;
use crate::karpenter::Taint;
use crate::meta::{Condition, ObjectMeta, is_default, kind};
use crate::time::Time;

/// A host in the capacity pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ByoHost {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Written by controllers; the agent reads it.
    #[serde(default)]
    pub spec: ByoHostSpec,
    /// Written by the agent and by controllers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ByoHostStatus,
}

kind!(ByoHost, super::GROUP, "v1beta1", "ByoHost", "byohosts", namespaced: true);

/// How a host joins its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum JoinMode {
    /// The bootstrap Secret holds a cloud-config that runs `kubeadm join`.
    #[default]
    Kubeadm,
    /// The agent writes a bootstrap kubeconfig and a kubelet unit.
    TlsBootstrap,
}

/// Where Kubernetes binaries come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DownloadMode {
    /// They are on the host already.
    #[default]
    Offline,
    /// The installer downloads them.
    Online,
}

/// Desired state of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ByoHostSpec {
    /// Machine that holds the host. Absent on a free host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Highest epoch ever assigned; epochs are never reused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub epoch: i64,
    /// Keeps the host out of every match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// Secret with the bootstrap data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_secret: Option<ObjectReference>,
    /// Secret with the scripts `install` and `uninstall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installation_secret: Option<ObjectReference>,
    /// Script that reverts the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uninstallation_script: Option<String>,
    /// How the host joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_mode: Option<JoinMode>,
    /// Where binaries come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_mode: Option<DownloadMode>,
    /// Kubernetes version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kubernetes_version: String,
    /// Whether the agent runs kube-proxy as a unit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub manage_kube_proxy: bool,
    /// Capacity, as administrators correct it.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub capacity: Amounts,
    /// Labels for the Node. They are replaced as a whole with every claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints for the Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Hosts of greater priority are taken first, all else equal.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
}

/// The machine that holds a host. Written by compare-and-swap on the resource version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// UID of the ByoMachine.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// Namespace of the ByoMachine.
    pub namespace: String,
    /// Name of the ByoMachine.
    pub name: String,
    /// Grows with every claim of the host. The agent applies no plan of an older epoch.
    pub epoch: i64,
    /// When it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// Why a host is quarantined.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Quarantine {
    /// In a sentence.
    pub reason: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The phase of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Deserialize, Serialize)]
pub enum HostState {
    /// The agent has not reported facts yet.
    #[default]
    Registering,
    /// Free, and its agent is alive.
    Available,
    /// Claimed by a machine; the agent has not begun.
    Reserved,
    /// The agent installs and joins.
    Provisioning,
    /// A Node of its cluster.
    InUse,
    /// Its Node is drained before the release.
    Draining,
    /// The agent resets it.
    Cleaning,
    /// Quarantined, with a reason.
    Quarantined,
    /// The agent does not renew its Lease.
    Offline,
    /// Permanently out of service.
    Retired,
}

impl HostState {
    /// Every state.
    pub const ALL: [Self; 10] = [
        Self::Registering,
        Self::Available,
        Self::Reserved,
        Self::Provisioning,
        Self::InUse,
        Self::Draining,
        Self::Cleaning,
        Self::Quarantined,
        Self::Offline,
        Self::Retired,
    ];

    /// As objects write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Registering => "Registering",
            Self::Available => "Available",
            Self::Reserved => "Reserved",
            Self::Provisioning => "Provisioning",
            Self::InUse => "InUse",
            Self::Draining => "Draining",
            Self::Cleaning => "Cleaning",
            Self::Quarantined => "Quarantined",
            Self::Offline => "Offline",
            Self::Retired => "Retired",
        }
    }
}

/// Observed state of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ByoHostStatus {
    /// Phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<HostState>,
    /// ByoMachine that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_ref: Option<ObjectReference>,
    /// MachineDeployment of that machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Conditions, see [`names::host`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Operating system in short.
    #[serde(default, rename = "hostinfo", skip_serializing_if = "is_default")]
    pub host_info: HostInfo,
    /// Network interfaces with addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<NetworkStatus>,
    /// Hardware and operating system.
    #[serde(default, skip_serializing_if = "is_default")]
    pub facts: HostFacts,
    /// Capacity that follows from the facts.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub capacity: Amounts,
    /// GPUs, of every vendor.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: i64,
    /// Last epoch that the agent has begun to apply.
    #[serde(default, skip_serializing_if = "is_default")]
    pub epoch: i64,
    /// Plan that the agent applies or has applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanProgress>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent_version: String,
}

/// Operating system in short, as the original provider reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct HostInfo {
    /// `linux`.
    #[serde(default, rename = "osname", skip_serializing_if = "String::is_empty")]
    pub os_name: String,
    /// `Debian GNU/Linux 12 (bookworm)`.
    #[serde(default, rename = "osimage", skip_serializing_if = "String::is_empty")]
    pub os_image: String,
    /// `amd64`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub architecture: String,
}

/// A network interface with its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Whether the link is up.
    #[serde(default)]
    pub connected: bool,
    /// Addresses.
    #[serde(default, rename = "ipAddrs", skip_serializing_if = "Vec::is_empty")]
    pub ip_addrs: Vec<String>,
    /// MAC address.
    #[serde(default, rename = "macAddr", skip_serializing_if = "String::is_empty")]
    pub mac_addr: String,
    /// Name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub network_interface_name: String,
    /// Whether the default route leads through it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_default: bool,
}

/// The agent's progress with a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanProgress {
    /// Hash of the plan.
    pub hash: String,
    /// Epoch of the claim that the plan belongs to.
    pub epoch: i64,
    /// Steps of the plan.
    #[serde(default)]
    pub steps: i64,
    /// Steps that are done.
    #[serde(default)]
    pub done: i64,
    /// `Applying`, `Applied`, `Failed`, `Resetting`, `Reset`, `ResetFailed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The step that failed and the end of its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl ByoHost {
    /// Labels that follow from the name and the facts of the host.
    pub fn derived_labels(&self) -> BTreeMap<&'static str, String> {
        let mut labels = BTreeMap::from([(names::HOST, self.metadata.name.clone())]);
        let facts = &self.status.facts;
        if facts.cpu.threads > 0 {
            labels.insert(names::CAPACITY_CPU, facts.cpu.threads.to_string());
        }
        if facts.memory.total_bytes > 0 {
            labels.insert(names::CAPACITY_MEMORY, format!("{}Mi", facts.memory.total_bytes >> 20));
        }
        if !facts.gpus.is_empty() {
            labels.insert(names::CAPACITY_GPU, facts.gpus.len().to_string());
            labels.insert(names::GPU, "true".to_owned());
        }
        labels
    }

    /// Changes that make the labels of the host true: a value to set, or `None` to remove the label. Other labels are
    /// the administrators', and so is `gpu` with another value than `true`.
    pub fn label_changes(&self) -> BTreeMap<&'static str, Option<String>> {
        let derived = self.derived_labels();
        let mut changes = BTreeMap::new();
        let keys = [names::HOST, names::CAPACITY_CPU, names::CAPACITY_MEMORY, names::CAPACITY_GPU, names::GPU];
        for key in keys {
            let (wanted, present) = (derived.get(key), self.metadata.labels.get(key));
            let is_administrators = key == names::GPU && present.is_some_and(|value| value != "true");
            if wanted != present && !(wanted.is_none() && is_administrators) {
                changes.insert(key, wanted.cloned());
            }
        }
        changes
    }

    /// Whether no machine holds the host.
    pub fn is_free(&self) -> bool {
        self.spec.claim.is_none()
            && self.status.machine_ref.is_none()
            && !self.metadata.labels.contains_key(names::CLUSTER_NAME)
    }

    /// Epoch for the next claim of the host.
    pub fn next_epoch(&self) -> i64 {
        let claimed = self.spec.claim.as_ref().map_or(0, |claim| claim.epoch);
        claimed.max(self.spec.epoch).max(self.status.epoch).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byoh::facts::{CpuFacts, GpuDevice, MemoryFacts};

    #[test]
    fn labels_follow_from_facts() {
        let mut host = ByoHost::default();
        host.metadata.name = "node11".to_owned();
        assert_eq!(host.derived_labels().into_keys().collect::<Vec<_>>(), [names::HOST]);
        host.status.facts.cpu = CpuFacts { threads: 16, ..CpuFacts::default() };
        host.status.facts.memory = MemoryFacts { total_bytes: 64 << 30, ..MemoryFacts::default() };
        host.status.facts.gpus = vec![GpuDevice { resource: "nvidia.com/gpu".into(), ..GpuDevice::default() }];
        let labels = host.derived_labels();
        assert_eq!(labels[names::CAPACITY_CPU], "16");
        assert_eq!(labels[names::CAPACITY_MEMORY], "65536Mi");
        assert_eq!(labels[names::GPU], "true");
        for (key, value) in &labels {
            assert!(crate::labels::is_key(key) && crate::labels::is_value(value), "{key}={value}");
        }
        assert_eq!(host.label_changes().len(), labels.len());
        host.metadata.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        assert!(host.label_changes().is_empty());
        // The GPU is gone: nothing may say that it is there.
        let gpus = std::mem::take(&mut host.status.facts.gpus);
        assert_eq!(host.label_changes(), BTreeMap::from([(names::CAPACITY_GPU, None), (names::GPU, None)]));
        host.metadata.labels.insert(names::GPU.to_owned(), "false".to_owned());
        assert_eq!(host.label_changes(), BTreeMap::from([(names::CAPACITY_GPU, None)]));
        host.status.facts.gpus = gpus;
        let capacity = host.status.facts.capacity();
        assert_eq!(capacity.iter().collect::<Vec<_>>(), [("cpu", 16_000), ("memory", 64 << 30), ("nvidia.com/gpu", 1)]);
    }

    #[test]
    fn epochs_only_grow() {
        let mut host = ByoHost::default();
        assert!(host.is_free());
        assert_eq!(host.next_epoch(), 1);
        host.spec.claim = Some(Claim { epoch: 4, ..Claim::default() });
        assert_eq!(host.next_epoch(), 5);
        host.spec.claim = None;
        host.status.epoch = 4;
        assert_eq!(host.next_epoch(), 5);
        host.spec.epoch = 6;
        assert_eq!(host.next_epoch(), 7, "an epoch that the agent never began is not used again");
        host.metadata.labels.insert(names::CLUSTER_NAME.to_owned(), "c".to_owned());
        assert!(!host.is_free(), "the label means attached, also to the original provider");
    }

    #[test]
    fn states_are_written_by_name() {
        for state in HostState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
