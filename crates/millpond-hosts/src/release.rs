//! Patches that give a host to a machine's end: release, and everything that goes with it.

use std::sync::Arc;

use kube::ResourceExt;
use millpond_api::byoh::names;
use millpond_runtime::error::Result;
use millpond_runtime::meta::Key;
use serde_json::{Map, Value, json};

use crate::kinds::ByoHost;
use crate::stock::Stock;

/// On a host that a NodeClaim holds: the name of the NodeClaim (label).
pub const NODE_CLAIM: &str = "millpond.dev/nodeclaim";

/// Fields of the spec that a claim sets and a release takes back.
const OF_CLAIM: &[&str] = &[
    "claim",
    "bootstrapSecret",
    "installationSecret",
    "joinMode",
    "downloadMode",
    "kubernetesVersion",
    "manageKubeProxy",
    "labels",
    "taints",
];

/// Takes the claim of a host back, on condition that the host has not changed since. Label and `machineRef` stay until
/// the agent has reset the host, so that nothing else gets it.
pub fn release_patch(host: &ByoHost) -> Value {
    let mut spec: Map<String, Value> = OF_CLAIM.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
    let epoch = host.spec.claim.as_ref().map_or(0, |claim| claim.epoch).max(host.spec.epoch);
    spec.insert("epoch".to_owned(), json!(epoch));
    json!({"metadata": {"resourceVersion": host.metadata.resource_version}, "spec": spec})
}

/// The metadata and spec of a released host that is reset: free for the next machine, or kept out with a reason.
pub(crate) fn free_patch(host: &ByoHost, quarantine: Option<Value>) -> Value {
    let finalizers: Vec<&String> = host.finalizers().iter().filter(|it| *it != names::HOST_FINALIZER).collect();
    let mut patch = json!({"metadata": {
        "resourceVersion": host.metadata.resource_version,
        "finalizers": finalizers,
        "labels": {names::CLUSTER_NAME: null, names::BYO_MACHINE: null, NODE_CLAIM: null},
        "annotations": {names::UNREGISTERING: null},
    }});
    if let Some(quarantine) = quarantine {
        patch["spec"] = json!({"quarantine": quarantine});
    }
    patch
}

impl Stock {
    /// Releases the claim of a host.
    pub(crate) async fn release(&self, host: &ByoHost) -> Result<Arc<ByoHost>> {
        tracing::info!(
            host = host.name(),
            epoch = host.spec.claim.as_ref().map(|claim| claim.epoch),
            "releases a host"
        );
        self.hosts.patch(&Key::of(host), &release_patch(host)).await
    }

    /// Deletes the Node that a host was.
    pub(crate) async fn delete_node(&self, host: &str) -> Result<()> {
        match self.node_of(host) {
            Some(node) => self.nodes.delete(&node, None).await,
            None => Ok(()),
        }
    }
}
