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
//! ```
//!
//! The node classes of Karpenter's providers (`EC2NodeClass`, `GCENodeClass`, `KWOKNodeClass`) are read as far as
//! they say the same.

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::meta::{Condition, Invalid, ObjectMeta};
use crate::sim_script::Script;

/// The API group of Millpond's own kinds.
pub const GROUP: &str = "millpond.dev";

/// A class of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeClass {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: NodeClassSpec,
    /// What is.
    #[serde(default)]
    pub status: NodeClassStatus,
}

/// What a class of nodes is made of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassSpec {
    /// Who makes the nodes: `sim` for none but simulated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The name of a catalogue of instance types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// Names of price overlays that hold for these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<String>,
    /// Settings of kubelet.
    #[serde(default, alias = "kubeletConfiguration", skip_serializing_if = "Kubelet::is_default")]
    pub kubelet: Kubelet,
    /// What the simulated cloud does with these nodes, of classes whose provider it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sim: Option<Script>,
}

/// Settings of kubelet that change what a node has for pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    /// The most pods of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<u32>,
    /// Pods for each core, where that is fewer.
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

/// What is known of a class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeClassStatus {
    /// `Ready` among them.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

impl NodeClass {
    /// Why nothing can be made of it now: its `Ready` condition says no.
    pub fn not_ready(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == "Ready" && condition.status != "True")
    }

    /// What cannot be.
    pub fn validate(&self) -> Vec<Invalid> {
        let mut invalid = Vec::new();
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
        invalid
    }
}
