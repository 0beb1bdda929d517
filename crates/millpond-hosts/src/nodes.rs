//! The Node that a host becomes: its labels, its provider ID, and what a ByoMachine says of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millpond_api::byoh::{MachineAddress, ObjectReference, names};
use serde_json::{Map, Value, json};

use crate::kinds::{ByoHost, Machine};

/// Labels of a Machine that its Node gets: those of the MachineDeployment's template, but Cluster API's own.
pub(crate) fn labels(machine: &Machine) -> BTreeMap<String, String> {
    let of_cluster_api = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        domain == "cluster.x-k8s.io"
            || domain.ends_with(".cluster.x-k8s.io") && !domain.ends_with("node.cluster.x-k8s.io")
            || key == millpond_api::capi::names::TEMPLATE_HASH
    };
    let all = machine.metadata.labels.clone().unwrap_or_default();
    all.into_iter().filter(|(key, _)| !of_cluster_api(key)).collect()
}

/// The patch that brings a Node in line with its host and Machine; `None` when it is. kubelet sets most of this when it
/// registers; labels that kubelet may not set itself, and the provider ID under kubeadm, come from here.
pub(crate) fn sync(node: &Node, host: &ByoHost, machine: &Machine) -> Option<Value> {
    let mut wanted = labels(machine);
    if let Some(zone) = host.label(names::ZONE) {
        wanted.insert(names::ZONE.to_owned(), zone.to_owned());
    }
    let missing: Map<String, Value> = wanted
        .into_iter()
        .filter(|(key, value)| node.labels().get(key) != Some(value))
        .map(|(key, value)| (key, json!(value)))
        .collect();
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let mut patch = json!({});
    if !missing.is_empty() {
        patch["metadata"] = json!({"labels": missing});
    }
    if id.is_empty() {
        patch["spec"] = json!({"providerID": names::provider_id(host.name())});
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// A reference to a Node.
pub(crate) fn reference(node: &Node) -> ObjectReference {
    ObjectReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        ..ObjectReference::default()
    }
}

/// Addresses of a host: its name, and those of the interface with the default route, or else of all.
pub(crate) fn addresses(host: &ByoHost) -> Vec<MachineAddress> {
    let network = &host.status.network;
    let has_default = network.iter().any(|one| one.is_default);
    let used = network.iter().filter(|one| if has_default { one.is_default } else { one.connected });
    let internal = used.flat_map(|one| &one.ip_addrs).map(|address| {
        // Some agents report the length of the prefix too.
        let address = address.split_once('/').map_or(address.as_str(), |(address, _)| address);
        MachineAddress { kind: "InternalIP".to_owned(), address: address.to_owned() }
    });
    let name = MachineAddress { kind: "Hostname".to_owned(), address: host.name().to_owned() };
    std::iter::once(name).chain(internal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_get_the_labels_of_the_template() {
        let machine: Machine = serde_json::from_value(json!({
            "metadata": {"name": "m", "labels": {
                "purpose": "gpu", "cluster-autoscaler-enabled": "true", "cluster.x-k8s.io/cluster-name": "c",
                "topology.cluster.x-k8s.io/owned": "", "machine-template-hash": "1", "node-role.kubernetes.io/gpu": "",
                "mine.node.cluster.x-k8s.io/a": "b",
            }}, "spec": {},
        }))
        .unwrap();
        let host: ByoHost = serde_json::from_value(json!({
            "metadata": {"name": "node11", "labels": {names::ZONE: "rack-1"}},
            "status": {"network": [
                {"connected": true, "ipAddrs": ["172.17.0.1/16"]},
                {"connected": true, "ipAddrs": ["10.0.0.11/24", "fe80::1"], "isDefault": true},
            ]},
        }))
        .unwrap();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "node11"}})).unwrap();
        let patch = sync(&node, &host, &machine).unwrap();
        let expected = json!({
            "metadata": {"labels": {
                "purpose": "gpu", "cluster-autoscaler-enabled": "true", "node-role.kubernetes.io/gpu": "",
                "mine.node.cluster.x-k8s.io/a": "b", names::ZONE: "rack-1",
            }},
            "spec": {"providerID": "byoh://node11"},
        });
        assert_eq!(patch, expected);
        let mut settled = patch;
        settled["metadata"]["name"] = json!("node11");
        assert_eq!(sync(&serde_json::from_value(settled).unwrap(), &host, &machine), None);
        let shown: Vec<_> = addresses(&host).into_iter().map(|one| format!("{} {}", one.kind, one.address)).collect();
        assert_eq!(shown, ["Hostname node11", "InternalIP 10.0.0.11", "InternalIP fe80::1"]);
    }
}
