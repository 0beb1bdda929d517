//! The Node of a simulated machine: what its pool offers, under the name of its Machine.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use millpond_api::capi::{self, Machine as View, NodeOffer, Problems};
use millpond_api::{amounts, catalog};
use millpond_controllers::kinds::{Machine, MachineSet};
use serde_json::{Value, json};

use crate::annotations;
use crate::kubelet::node_status::node_info;

/// The resources of a machine of unknown size.
const DEFAULT_CPU_MILLIS: i64 = 2000;
const DEFAULT_MEMORY: i64 = 4 << 30;
const DEFAULT_DISK: i64 = 100 << 30;

/// The objects that a Node is built from.
pub struct Sources<'a> {
    /// Its Machine.
    pub machine: &'a Machine,
    /// The set of that, which carries the annotations of its deployment.
    pub set: Option<&'a MachineSet>,
    /// `spec` of the infrastructure object.
    pub infrastructure: &'a Value,
    /// `spec` of the bootstrap configuration.
    pub bootstrap: Option<&'a Value>,
    /// The machine's real resources, from [`super::OFFERS`].
    pub offers: Option<&'a str>,
}

/// The Node, with the id of its machine.
pub fn make(sources: &Sources<'_>, provider_id: &str) -> Node {
    let (machine, offer) = (sources.machine, offer(sources));
    let view = View::of(&machine.spec, &machine.status);
    let name = machine.name_any();
    let mut labels = BTreeMap::from([
        ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/hostname".to_owned(), name.clone()),
    ]);
    if let Some(zone) = &view.spec.failure_domain {
        labels.insert("topology.kubernetes.io/zone".to_owned(), zone.clone());
    }
    if let Some(machine_type) = &offer.machine_type {
        labels.insert("node.kubernetes.io/instance-type".to_owned(), machine_type.clone());
    }
    labels.extend(offer.labels.clone());
    let taints: Vec<Taint> =
        offer.taints.iter().filter_map(|taint| serde_json::from_value(json!(taint)).ok()).collect();
    let capacity = capacity(&offer, sources.offers);
    let mut node = Node {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels),
            annotations: Some([(annotations::NODE.to_owned(), "machine".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(provider_id.to_owned()),
            taints: (!taints.is_empty()).then_some(taints),
            ..NodeSpec::default()
        }),
        status: None,
    };
    let mut info = node_info(&node);
    if let Some(version) = view.spec.version {
        info.kube_proxy_version.clone_from(&version);
        info.kubelet_version = version;
    }
    node.status = Some(NodeStatus {
        capacity: Some(capacity.clone()),
        allocatable: Some(capacity),
        node_info: Some(info),
        ..NodeStatus::default()
    });
    node
}

/// The resources and labels that the pool offers. The objects of one machine have the same fields as the templates of
/// its pool, so they are read as such.
fn offer(sources: &Sources<'_>) -> NodeOffer {
    let as_template = |spec: &Value| json!({"spec": {"template": {"spec": spec}}});
    let view = match sources.set {
        Some(set) => capi::MachineSet::of(&set.spec).template,
        None => View::of(&sources.machine.spec, &sources.machine.status).spec,
    };
    let none = BTreeMap::new();
    let (infrastructure, bootstrap) = (as_template(sources.infrastructure), sources.bootstrap.map(as_template));
    let sources = capi::Sources {
        annotations: sources.set.map_or(&none, |set| set.annotations()),
        template: &view,
        infrastructure: Some(&infrastructure),
        bootstrap: bootstrap.as_ref(),
    };
    NodeOffer::read(&sources, &Problems::new())
}

fn capacity(offer: &NodeOffer, said: Option<&str>) -> BTreeMap<String, Quantity> {
    let mut amounts = offer.capacity.0.clone();
    for (name, text) in said.unwrap_or_default().split(',').filter_map(|part| part.trim().split_once('=')) {
        if let Ok(amount) = amounts::parse(name, text) {
            amounts.insert(name.to_owned(), amount);
        }
    }
    let catalog = offer.machine_type.as_deref().and_then(|name| catalog::built_in("aws")?.find(name));
    let known = catalog.map(|instance| instance.capacity().amounts().0).unwrap_or_default();
    let defaults = [("cpu", DEFAULT_CPU_MILLIS), ("memory", DEFAULT_MEMORY), ("ephemeral-storage", DEFAULT_DISK)];
    for (resource, amount) in known.into_iter().chain(defaults.map(|(name, amount)| (name.to_owned(), amount))) {
        amounts.entry(resource).or_insert(amount);
    }
    amounts.into_iter().map(|(name, amount)| (name.clone(), Quantity(amounts::write(&name, amount)))).collect()
}

#[cfg(test)]
mod tests {
    use millpond_api::capi::names;

    use super::*;

    fn made(set: &Value, infrastructure: &Value, bootstrap: &Value) -> Node {
        let machine: Machine = serde_json::from_value(json!({
            "metadata": {"name": "m-1", "namespace": "ns"},
            "spec": {"clusterName": "c", "version": "v1.34.1", "failureDomain": "z1"},
        }))
        .expect("a machine");
        let set: MachineSet = serde_json::from_value(set.clone()).expect("a set");
        let bootstrap = Some(bootstrap);
        let sources = Sources { machine: &machine, set: Some(&set), infrastructure, bootstrap, offers: None };
        make(&sources, "sim:///1")
    }

    fn amount(node: &Node, resource: &str) -> String {
        let capacity = node.status.as_ref().and_then(|status| status.capacity.clone()).unwrap_or_default();
        capacity.get(resource).map(|amount| amount.0.clone()).unwrap_or_default()
    }

    #[test]
    fn a_vsphere_machine_with_a_gpu() {
        let set = json!({"metadata": {"name": "s"}, "spec": {"template": {"spec": {
            "infrastructureRef": {"apiGroup": "i", "kind": "VSphereMachineTemplate", "name": "t"},
            "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule", "propagation": "Always"}],
        }}}});
        let machine = json!({"numCPUs": 8, "memoryMiB": 32768, "diskGiB": 80,
            "pciDevices": [{"vendorId": 4318, "deviceId": 7864}]});
        let join = json!({"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs":
            [{"name": "node-labels", "value": "purpose=gpu,tier=a"}]}}});
        let node = made(&set, &machine, &join);
        let offered = ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "pods"].map(|name| amount(&node, name));
        assert_eq!(offered, ["8", "32Gi", "80Gi", "1", "110"]);
        let label = |name: &str| node.labels().get(name).cloned().unwrap_or_default();
        assert_eq!(["purpose", "tier", "topology.kubernetes.io/zone"].map(label), ["gpu", "a", "z1"]);
        let spec = node.spec.clone().unwrap_or_default();
        assert_eq!(spec.taints.unwrap_or_default()[0].key, "gpu");
        assert_eq!(spec.provider_id.as_deref(), Some("sim:///1"));
        let info = node.status.and_then(|status| status.node_info).expect("node info");
        assert_eq!(info.kubelet_version, "v1.34.1", "else Cluster API takes the machine for outdated");
    }

    #[test]
    fn own_hosts_and_cloud_machines() {
        let own = json!({"metadata": {"name": "s", "annotations": {
            names::CAPACITY_CPU: "16", names::CAPACITY_MEMORY: "128Gi",
            names::CAPACITY_GPU_TYPE: "nvidia.com/gpu", names::CAPACITY_GPU_COUNT: "2",
        }}, "spec": {"template": {
            "metadata": {"labels": {"purpose": "gpu", "cluster.x-k8s.io/cluster-name": "c"}},
            "spec": {"infrastructureRef": {"apiGroup": "i", "kind": "ByoMachineTemplate", "name": "t"}},
        }}});
        let node = made(&own, &json!({"selector": {"matchLabels": {"purpose": "gpu"}}}), &json!({}));
        assert_eq!(["cpu", "memory", "nvidia.com/gpu"].map(|name| amount(&node, name)), ["16", "128Gi", "2"]);
        assert_eq!(node.labels().get("purpose").map(String::as_str), Some("gpu"));
        assert_eq!(node.labels().get("cluster.x-k8s.io/cluster-name"), None);

        let plain = json!({"metadata": {"name": "s"}, "spec": {"template": {"spec": {}}}});
        let node = made(&plain, &json!({"instanceType": "m5.xlarge"}), &json!({}));
        assert_eq!(amount(&node, "cpu"), "4");
        assert_eq!(node.labels().get("node.kubernetes.io/instance-type").map(String::as_str), Some("m5.xlarge"));
        let node = made(&plain, &json!({}), &json!({}));
        assert_eq!(["cpu", "memory"].map(|name| amount(&node, name)), ["2", "4Gi"]);
    }
}
