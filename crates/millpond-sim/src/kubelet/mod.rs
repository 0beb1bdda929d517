//! Kubelets: nodes that become ready and pods that run, end and leave.
//!
//! One pair of queues plays all nodes; a node without events costs nothing. Durations come from annotations (see
//! [`crate::annotations`]) or from the options.

pub mod addresses;
pub mod containers;
pub mod durations;
pub mod leases;
pub mod node_status;
pub mod pod_status;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::annotations;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::{Key, node_name, status_patch};
use crate::options::Nodes;
use crate::queue::Queue;
use crate::worker::Reconcile;
use addresses::Addresses;
use durations::Durations;
use node_status::OS_IMAGE;
use pod_status::{Facts, Step};

/// Provider IDs of own hosts begin with this.
const OWN_HOST: &str = millpond_api::byoh::names::PROVIDER_ID;

/// Whether the stand-in plays a node. A node whose status has a kubelet port, and the node of an own host, has a
/// kubelet of its own, unless the node is marked.
pub fn is_played(nodes: Nodes, node: &Node) -> bool {
    let fake = |value: Option<&String>| value.is_some_and(|value| value == "fake");
    let marked = node.labels().contains_key(annotations::NODE)
        || node.annotations().contains_key(annotations::NODE)
        || fake(node.annotations().get(annotations::KWOK_NODE));
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    marked || (nodes == Nodes::All && !provider_id.starts_with(OWN_HOST) && !has_kubelet(node))
}

/// Whether a real kubelet has registered the node: it does so with its port, as stand-ins do, and with the image of its
/// operating system.
fn has_kubelet(node: &Node) -> bool {
    let Some(status) = &node.status else { return false };
    let endpoint = status.daemon_endpoints.as_ref().and_then(|all| all.kubelet_endpoint.as_ref());
    let is_own = status.node_info.as_ref().is_some_and(|info| info.os_image == OS_IMAGE);
    endpoint.is_some_and(|endpoint| endpoint.port != 0) && !is_own
}

/// Makes nodes ready.
pub struct NodeKubelets {
    cluster: Arc<Cluster>,
    addresses: Arc<Mutex<Addresses>>,
}

/// Runs pods.
pub struct PodKubelets {
    cluster: Arc<Cluster>,
    addresses: Arc<Mutex<Addresses>>,
}

/// The kubelets and their work queues.
pub struct Kubelets {
    /// For nodes.
    pub nodes: (Arc<NodeKubelets>, Arc<Queue<Key>>),
    /// For pods.
    pub pods: (Arc<PodKubelets>, Arc<Queue<Key>>),
}

impl Kubelets {
    /// Kubelets that watch from now on.
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        let addresses = Arc::new(Mutex::new(Addresses::default()));
        let nodes = Arc::new(Queue::new());
        let pods = Arc::new(Queue::new());
        let (own, of_node) = (Arc::clone(&nodes), Arc::clone(&pods));
        let (mirror, played) = (Arc::clone(&cluster.pods), cluster.options.nodes);
        cluster.nodes.on_change(move |old, new| {
            let Some(node) = new.filter(|node| is_played(played, node)) else {
                return;
            };
            own.add(Key::of(&**node));
            if old.is_none_or(|old| !is_played(played, old)) {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                mirror.indexed(name).iter().for_each(|pod| of_node.add(Key::of(&**pod)));
            }
        });
        let (own, used) = (Arc::clone(&pods), Arc::clone(&addresses));
        cluster.pods.on_change(move |old, new| {
            let ip = |pod: &Arc<Pod>| pod.status.as_ref().and_then(|status| status.pod_ip.clone());
            match (old.and_then(ip), new.and_then(ip)) {
                (Some(before), None) => used.lock().give_back(&before),
                (None, Some(now)) => used.lock().take(&now),
                _ => {}
            }
            if let Some(pod) = new.filter(|pod| node_name(pod).is_some()) {
                own.add(Key::of(&**pod));
            }
        });
        Self {
            nodes: (Arc::new(NodeKubelets { cluster: Arc::clone(cluster), addresses: Arc::clone(&addresses) }), nodes),
            pods: (Arc::new(PodKubelets { cluster: Arc::clone(cluster), addresses }), pods),
        }
    }
}

impl Reconcile for NodeKubelets {
    const NAME: &'static str = "kubelet-node";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(node) = self.cluster.nodes.get(key) else {
            return Ok(None);
        };
        if !is_played(self.cluster.options.nodes, &node) || crate::meta::is_leaving(&*node) {
            return Ok(None);
        }
        let due = node_status::ready_at(&node, self.cluster.options.node_startup);
        let left = self.cluster.clock.until(due);
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let address = self.addresses.lock().of_node(&key.name);
        let status = node_status::ready(&node, &address, &self.cluster.clock.time());
        if let Some(patch) = status_patch(&*node, node.status.as_ref(), &status) {
            self.cluster.nodes.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}

impl PodKubelets {
    async fn take(&self, key: &Key, pod: &Pod, step: Step) -> Result<Option<Duration>> {
        match step {
            Step::Rest => Ok(None),
            Step::Wait(delay) => Ok(Some(delay)),
            Step::Write { status, then } => {
                if let Some(patch) = status_patch(pod, pod.status.as_ref(), &*status) {
                    self.cluster.pods.patch_status(key, &patch).await?;
                }
                Ok(then)
            }
            Step::Remove => {
                self.cluster.pods.delete(pod, Some(0)).await?;
                Ok(None)
            }
        }
    }

    fn host_address(&self, node: &str) -> String {
        let known = self.cluster.nodes.get(&Key::new("", node)).and_then(|node| {
            let addresses = node.status.as_ref()?.addresses.as_ref()?;
            Some(addresses.iter().find(|address| address.type_ == "InternalIP")?.address.clone())
        });
        known.unwrap_or_else(|| self.addresses.lock().of_node(node))
    }
}

impl Reconcile for PodKubelets {
    const NAME: &'static str = "kubelet-pod";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(pod) = self.cluster.pods.get(key) else {
            return Ok(None);
        };
        let Some(node) = node_name(&pod) else {
            return Ok(None);
        };
        let is_here = self
            .cluster
            .nodes
            .get(&Key::new("", node))
            .is_some_and(|node| is_played(self.cluster.options.nodes, &node));
        if !is_here {
            return Ok(None);
        }
        let facts = Facts {
            pod: &pod,
            now: self.cluster.clock.now(),
            durations: Durations::of(&pod, &self.cluster.options),
            host_address: self.host_address(node),
        };
        let step = facts.step(|| self.addresses.lock().next_pod());
        self.take(key, &pod, step).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_with_a_kubelet_is_not_played_unless_it_is_marked() {
        let node = |more: serde_json::Value| -> Node { serde_json::from_value(more).unwrap() };
        let endpoints = json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}});
        let plain =
            node(json!({"metadata": {"name": "n"}, "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}}));
        let real = node(json!({"metadata": {"name": "n"}, "status": endpoints}));
        let info = json!({
            "osImage": OS_IMAGE, "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "architecture": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
        });
        let own = node(json!({
            "metadata": {"name": "n"}, "status": {"daemonEndpoints": endpoints["daemonEndpoints"], "nodeInfo": info},
        }));
        let kwok = json!({"name": "n", "annotations": {annotations::KWOK_NODE: "fake"}});
        let kwok = node(json!({"metadata": kwok, "status": endpoints}));
        assert!(is_played(Nodes::All, &plain));
        assert!(!is_played(Nodes::All, &real));
        assert!(is_played(Nodes::All, &own), "a stand-in has registered it");
        assert!(is_played(Nodes::All, &kwok) && is_played(Nodes::Marked, &kwok));
    }
}
