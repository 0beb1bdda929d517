//! The status of a node that works.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::durations;
use crate::annotations;
use crate::meta::annotation;

/// `status.nodeInfo.osImage` of nodes that stand-ins play.
pub(super) const OS_IMAGE: &str = "Millpond stand-in";

/// The resources of a node that was created without any.
const DEFAULT_CAPACITY: [(&str, &str); 4] =
    [("cpu", "4"), ("ephemeral-storage", "100Gi"), ("memory", "16Gi"), ("pods", "110")];
/// The version that stand-in kubelets report.
const KUBELET_VERSION: &str = "v1.36.0-millpond";

const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// When a node is due to be ready.
pub fn ready_at(node: &Node, startup: Duration) -> Timestamp {
    let after = annotation(node, annotations::READY_AFTER).and_then(durations::parse).unwrap_or(startup);
    let made = node.creation_timestamp().map_or(Timestamp::MIN, |time| time.0);
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    made.saturating_add(after).unwrap_or(Timestamp::MAX)
}

/// The status of a ready node: what is given stays, what is missing is filled in.
pub fn ready(node: &Node, address: &str, now: &Time) -> NodeStatus {
    let mut status = node.status.clone().unwrap_or_default();
    let capacity = status.capacity.take().filter(|list| !list.is_empty());
    let allocatable = status.allocatable.take().filter(|list| !list.is_empty());
    let (capacity, allocatable) = match (capacity, allocatable) {
        (Some(capacity), Some(allocatable)) => (capacity, allocatable),
        (Some(list), None) | (None, Some(list)) => (list.clone(), list),
        (None, None) => (default_capacity(), default_capacity()),
    };
    status.capacity = Some(capacity);
    status.allocatable = Some(allocatable);
    status.conditions = Some(conditions(status.conditions.take().unwrap_or_default(), now));
    let addresses = status.addresses.get_or_insert_default();
    for (type_, value) in [("InternalIP", address.to_owned()), ("Hostname", node.name_any())] {
        if !addresses.iter().any(|known| known.type_ == type_) {
            addresses.push(NodeAddress { type_: type_.to_owned(), address: value });
        }
    }
    // A node without this information has empty strings and a port of zero, filled in by the API server.
    let is_blank = status.node_info.as_ref().is_none_or(|info| info.kubelet_version.is_empty());
    if is_blank {
        status.node_info = Some(node_info(node));
    }
    let port = status.daemon_endpoints.as_ref().and_then(|endpoints| endpoints.kubelet_endpoint.as_ref());
    if port.is_none_or(|endpoint| endpoint.port == 0) {
        let kubelet_endpoint = Some(DaemonEndpoint { port: 10250 });
        status.daemon_endpoints = Some(NodeDaemonEndpoints { kubelet_endpoint });
    }
    status
}

fn default_capacity() -> BTreeMap<String, Quantity> {
    DEFAULT_CAPACITY.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect()
}

/// Own conditions are set, others stay; one that says the same already is not touched.
fn conditions(mut known: Vec<NodeCondition>, now: &Time) -> Vec<NodeCondition> {
    for (type_, status, reason, message) in CONDITIONS {
        let fresh = NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: Some(now.clone()),
        };
        match known.iter_mut().find(|condition| condition.type_ == type_) {
            Some(condition) if condition.status == status => {}
            Some(condition) => *condition = fresh,
            None => known.push(fresh),
        }
    }
    known
}

/// The machine information that a stand-in reports.
pub fn node_info(node: &Node) -> NodeSystemInfo {
    let label = |name: &str, default: &str| node.labels().get(name).cloned().unwrap_or_else(|| default.to_owned());
    let uid = node.uid().unwrap_or_default();
    NodeSystemInfo {
        architecture: label("kubernetes.io/arch", "amd64"),
        operating_system: label("kubernetes.io/os", "linux"),
        kubelet_version: KUBELET_VERSION.to_owned(),
        kube_proxy_version: KUBELET_VERSION.to_owned(),
        container_runtime_version: "millpond://0".to_owned(),
        kernel_version: "millpond".to_owned(),
        os_image: OS_IMAGE.to_owned(),
        boot_id: uid.clone(),
        machine_id: uid.replace('-', ""),
        system_uuid: uid,
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(value: serde_json::Value) -> Node {
        serde_json::from_value(value).expect("a node")
    }

    #[test]
    fn what_is_given_stays_and_the_rest_is_filled_in() {
        let now = Time("2026-01-01T00:00:00Z".parse().expect("a time"));
        let given = node(json!({
            "metadata": {"name": "n"},
            "status": {
                "capacity": {"cpu": "64"},
                "conditions": [{"type": "Ready", "status": "False"}, {"type": "Custom", "status": "True"}],
            },
        }));
        let status = ready(&given, "10.64.0.9", &now);
        assert_eq!(status.allocatable, status.capacity);
        assert_eq!(status.capacity.as_ref().expect("capacity")["cpu"].0, "64");
        let types: Vec<String> =
            status.conditions.iter().flatten().map(|one| format!("{}={}", one.type_, one.status)).collect();
        assert_eq!(
            types,
            ["Ready=True", "Custom=True", "MemoryPressure=False", "DiskPressure=False", "PIDPressure=False"]
        );
        let settled = Node { status: Some(status.clone()), ..given };
        let later = Time("2026-01-01T09:00:00Z".parse().expect("a time"));
        assert_eq!(ready(&settled, "10.64.0.9", &later), status, "a ready node is left alone");
        let bare = ready(&node(json!({"metadata": {"name": "n"}})), "10.64.0.9", &now);
        assert_eq!(bare.allocatable.expect("allocatable")["pods"].0, "110");
    }

    #[test]
    fn annotations_delay_readiness() {
        let slow = node(json!({"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {annotations::READY_AFTER: "45s"}}}));
        assert_eq!(ready_at(&slow, Duration::ZERO).to_string(), "2026-01-01T00:00:45Z");
    }
}
