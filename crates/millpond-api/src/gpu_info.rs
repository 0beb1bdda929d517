//! `topology.corinternal.com/v1` GPUInfo: how long a machine-learning job must run and whether it needs a GPU; the status
//! names the node for it.
//!
//! ```yaml
//! apiVersion: topology.corinternal.com/v1
//! kind: GPUInfo
//! metadata: {name: gpuinfo-sample}
//! spec:
//!   desAccTime: 100
//!   gpuRequired: true
//! ```
//!
//! The first two fields of the spec and the first five of the status are those of the accelerator operator that the kind
//! comes from, with its names and its units; all others are optional additions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::karpenter::TaintEffect;
use crate::meta::{Condition, ObjectMeta, is_default, kind};
use crate::time::Time;

/// The API group.
pub const GROUP: &str = "topology.corinternal.com";
/// Node and host of an answer when no node fits.
pub const NONE_AVAILABLE: &str = "None available";
/// The most hours that can be asked for: as many as 64 bits of seconds hold.
pub const MOST_HOURS: i64 = i64::MAX / 3600;
/// The most accelerators of one job; no node has more.
pub const MOST_GPUS: i64 = 1024;

/// The label by which a pod claims the reservation of a GPUInfo of its namespace.
pub const CLAIM_LABEL: &str = "millpond.dev/gpuinfo";
/// The scheduling gate by which a pod waits until it is pinned to the node of its reservation.
pub const CLAIM_GATE: &str = "millpond.dev/gpuinfo";
/// The annotation of a Node that holds its reservations, as JSON: a list of [`NodeReservation`].
pub const RESERVATIONS: &str = "millpond.dev/gpu-reservations";
/// The label of the pod that holds the GPUs of a reservation on its node; the value is the uid of the GPUInfo.
pub const HOLDER_LABEL: &str = "millpond.dev/gpu-reservation";

/// Condition: the data behind the answer is what the cluster and vCenter have now.
pub const INVENTORY_FRESH: &str = "InventoryFresh";
/// Condition: the GPUs are kept for this object.
pub const RESERVED: &str = "Reserved";

/// A question and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct GPUInfo {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The job.
    #[serde(default)]
    pub spec: GPUInfoSpec,
    /// The node for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<GPUInfoStatus>,
}

kind!(GPUInfo, GROUP, "v1", "GPUInfo", "gpuinfoes", namespaced: true);

/// The requirements of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GPUInfoSpec {
    /// Hours that the job runs.
    pub des_acc_time: i64,
    /// Whether it needs a GPU.
    pub gpu_required: bool,
    /// How many; one without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<i64>,
    /// Which model: a name such as `T4`, or vendor and device such as `10de:1eb8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// The least memory of one GPU.
    #[serde(default, rename = "minMemoryGiB", skip_serializing_if = "Option::is_none")]
    pub min_memory_gib: Option<i64>,
    /// Labels of suitable nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the job tolerates. Taints of GPU resources need no entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Keeps the GPUs for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Reserve>,
    /// Whether a job that needs no GPU may run on a node that has some.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_gpu_nodes: bool,
}

impl GPUInfoSpec {
    /// GPUs that the job needs.
    pub fn gpus(&self) -> u64 {
        if !self.gpu_required {
            return 0;
        }
        let reserved = self.reserve.as_ref().and_then(|reserve| reserve.gpus);
        u64::try_from(self.gpu_count.or(reserved).unwrap_or(1)).unwrap_or(1).max(1)
    }
}

/// A taint that is tolerated, as pods write it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// The key; every key without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `Equal` or `Exists`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The effect; every effect without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
}

/// A reservation that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Reserve {
    /// How many GPUs; as many as the job needs without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i64>,
    /// How long they are kept for a pod that has not come yet, as Go writes durations.
    pub ttl: String,
}

impl Reserve {
    /// Seconds that the reservation waits for its pod.
    pub fn ttl_seconds(&self) -> i64 {
        crate::duration::parse_seconds(&self.ttl).unwrap_or_default()
    }
}

/// The node for a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GPUInfoStatus {
    /// The node.
    pub suitable_node_name: String,
    /// Its host.
    pub suitable_host_name: String,
    /// Guest memory in use, in MiB.
    pub node_memory_usage: i64,
    /// CPU demand: in MHz from vSphere, in millicores from Kubernetes.
    #[serde(rename = "nodeCPUUsage")]
    pub node_cpu_usage: i64,
    /// Whole hours until the node is disturbed.
    pub available_accelerator_time: i64,
    /// Where that time comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability: Option<Availability>,
    /// Nodes that fit, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidateStatus>,
    /// Nodes that do not fit, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectedStatus>,
    /// The nodes that would help if none fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
    /// The GPUs that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationStatus>,
    /// `InventoryFresh`, `Reserved`, `Ready`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The time of the data that the answer was last computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Time>,
    /// The generation that the answer belongs to.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
}

/// How long a node stays undisturbed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Availability {
    /// The nearest event: `HostMaintenance`, `ScheduledTask`, `MaintenanceWindow`, `NodeExpiry`, `NodeReplacement`, or
    /// `Assumed` where none is known.
    pub source: String,
    /// When it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The event in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A node that fits, with the parts of its score; less is better.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CandidateStatus {
    /// The node.
    pub node: String,
    /// Its host.
    pub host: String,
    /// CPU demand.
    pub cpu_demand: i64,
    /// Free GPUs that the job leaves over.
    pub gpus_left: i64,
    /// Whether the job would break up a node whose GPUs are all free.
    #[serde(skip_serializing_if = "is_default")]
    pub fragments: bool,
    /// Whole hours until the node is disturbed.
    pub available_hours: i64,
    /// Whether that time is only assumed.
    #[serde(skip_serializing_if = "is_default")]
    pub assumed: bool,
    /// Memory in use in MiB.
    pub memory: i64,
}

/// A node that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct RejectedStatus {
    /// The node.
    pub node: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

/// Nodes that would help.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Proposal {
    /// The pool that could add them; `None` if no pool has such GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How many.
    pub nodes: i64,
    /// The instance type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Their cost, in dollars per hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<String>,
    /// The proposal in words.
    pub message: String,
}

/// GPUs that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationStatus {
    /// The node.
    pub node: String,
    /// How many.
    pub gpus: i64,
    /// `Waiting` for the pod, `Claimed` by it, `Expired` without it, or `Ended` with it.
    pub phase: String,
    /// Until when they wait for a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The generation of the object that asked.
    pub generation: i64,
    /// The pod that claimed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

/// An entry of the annotation [`RESERVATIONS`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReservation {
    /// The uid of the GPUInfo.
    pub uid: String,
    /// Its namespace and name.
    pub gpuinfo: String,
    /// The resource.
    pub resource: String,
    /// How many of it.
    pub gpus: u64,
    /// Until when they wait for a pod.
    pub until: Time,
    /// The generation of the GPUInfo that asked.
    pub generation: i64,
    /// The pod that claimed them: its requests count from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

/// The reservations of a node as its annotation has them; an annotation that cannot be read is none.
pub fn read_reservations(annotation: Option<&str>) -> Vec<NodeReservation> {
    annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_all_its_zeros() {
        let text = serde_json::to_string(&GPUInfoStatus::default()).unwrap();
        assert_eq!(
            text,
            r#"{"suitableNodeName":"","suitableHostName":"","nodeMemoryUsage":0,"nodeCPUUsage":0,"availableAcceleratorTime":0}"#
        );
    }

    #[test]
    fn a_job_needs_one_gpu_if_it_says_no_number() {
        let gpus = |text: &str| serde_json::from_str::<GPUInfoSpec>(text).unwrap().gpus();
        assert_eq!(gpus(r#"{"desAccTime":100,"gpuRequired":true}"#), 1);
        assert_eq!(gpus(r#"{"desAccTime":100,"gpuRequired":false}"#), 0);
        assert_eq!(gpus(r#"{"desAccTime":1,"gpuRequired":true,"gpuCount":4}"#), 4);
        assert_eq!(gpus(r#"{"desAccTime":1,"gpuRequired":true,"reserve":{"gpus":2,"ttl":"2h"}}"#), 2);
    }
}
