//! TanzuKubernetesClusters: a Cluster of the same name, and a MachineDeployment for each node pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use millpond_api::duration;
use millpond_controllers::kinds::CapiCluster;
use serde_json::{Value, json};

use super::super::externals::External;
use super::super::infrastructure::shared::merge;
use super::super::{Capi, at, number, put, text};
use super::classes;
use super::pools::{self, Pool, Template};
use crate::error::Result;
use crate::meta::{Key, merge_diff};
use crate::queue::Queue;
use crate::worker::Reconcile;

/// The group of Tanzu's clusters.
pub const GROUP: &str = "run.tanzu.vmware.com";
/// The kind of Tanzu's clusters.
pub const KIND: &str = "TanzuKubernetesCluster";
/// The node pool that a MachineDeployment belongs to (label).
pub const NODE_POOL: &str = "sim.millpond.dev/node-pool";

/// The controller of Tanzu's clusters.
pub struct TanzuClusters {
    capi: Arc<Capi>,
}

impl TanzuClusters {
    /// The controller, and the work queue that watches fill.
    pub fn new(capi: &Arc<Capi>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        capi.externals.on_change(move |resource, object| {
            if resource.group == GROUP && resource.kind == KIND {
                own.add(Key::new(&object.namespace().unwrap_or_default(), &object.name_any()));
            }
        });
        let own = Arc::clone(&queue);
        capi.clusters.on_change(move |old, new| {
            let of_tanzu = |cluster: &CapiCluster| cluster.owner_references().iter().any(|owner| owner.kind == KIND);
            if let Some(cluster) = new.or(old).filter(|cluster| of_tanzu(cluster)) {
                own.add(Key::of(&**cluster));
            }
        });
        (Arc::new(Self { capi: Arc::clone(capi) }), queue)
    }

    async fn cluster(&self, tanzu: &External) -> Result<Arc<CapiCluster>> {
        let key = tanzu.key();
        if let Some(cluster) = self.capi.clusters.get(&key) {
            return Ok(cluster);
        }
        let owner = OwnerReference {
            api_version: tanzu.resource.api_version.clone(),
            kind: tanzu.resource.kind.clone(),
            name: key.name.clone(),
            uid: tanzu.object.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let metadata = ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        self.capi.clusters.create(&CapiCluster::new(metadata, json!({}))).await
    }

    async fn report(&self, tanzu: &External, cluster: &CapiCluster) -> Result<()> {
        let workers = number(&cluster.status, &["workers", "readyReplicas"]).unwrap_or_default();
        let phase = if text(&cluster.status, &["phase"]) == Some("Provisioned") { "running" } else { "creating" };
        let known = tanzu.at(&["status"]);
        let mut wanted = if known.is_object() { known.clone() } else { json!({}) };
        merge(&mut wanted, &json!({"phase": phase, "totalWorkerReplicas": workers}));
        match merge_diff(known, &wanted) {
            Some(changes) => self.capi.externals.patch_status(tanzu, &json!({"status": changes})).await.map(drop),
            None => Ok(()),
        }
    }
}

impl Reconcile for TanzuClusters {
    const NAME: &'static str = "tanzu-clusters";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(resource) = self.capi.externals.resource(GROUP, KIND).await? else { return Ok(None) };
        let Some(tanzu) = self.capi.externals.read(&resource, key).await?.filter(|found| !found.is_leaving()) else {
            return Ok(None);
        };
        let cluster = self.cluster(&tanzu).await?;
        let wanted: Vec<Pool> = tanzu
            .at(&["spec", "topology", "nodePools"])
            .as_array()
            .into_iter()
            .flatten()
            .map(|pool| lower(pool, tanzu.at(&["spec"])))
            .collect();
        pools::ensure(&self.capi, &cluster, &wanted, NODE_POOL).await?;
        self.report(&tanzu, &cluster).await.map(|()| None)
    }
}

/// A node pool as a MachineDeployment with its templates.
fn lower(pool: &Value, spec: &Value) -> Pool {
    let mut machine = json!({});
    if let Some(class) = text(pool, &["vmClass"]) {
        classes::set_vm_class(&mut machine, class);
        machine["className"] = json!(class);
    }
    for field in ["storageClass", "volumes"] {
        if !pool[field].is_null() {
            machine[field] = pool[field].clone();
        }
    }
    let labels: BTreeMap<String, String> = serde_json::from_value(pool["labels"].clone()).unwrap_or_default();
    let taints = pool["taints"].as_array().cloned().unwrap_or_default();
    let mut config = json!({});
    classes::set_registration(&mut config, &labels, &taints);
    let mut more = json!({});
    let release = text(pool, &["tkr", "reference", "name"]).or_else(|| text(spec, &["distribution", "fullVersion"]));
    if let Some(version) = release.and_then(kubernetes_version) {
        put(&mut more, &["template", "spec", "version"], json!(version));
    }
    if let Some(seconds) = text(pool, &["nodeDrainTimeout"]).and_then(|text| duration::parse_seconds(text).ok()) {
        put(&mut more, &["template", "spec", "deletion", "nodeDrainTimeoutSeconds"], json!(seconds));
    }
    let template = |group: &str, kind: &str, spec: Value| Template {
        group: format!("{group}.cluster.x-k8s.io"),
        kind: kind.to_owned(),
        spec,
    };
    Pool {
        name: text(pool, &["name"]).unwrap_or("workers").to_owned(),
        replicas: at(pool, &["replicas"]).as_i64(),
        labels,
        annotations: BTreeMap::new(),
        spec: more,
        infrastructure: template("infrastructure", "VSphereMachineTemplate", machine),
        bootstrap: template("bootstrap", "KubeadmConfigTemplate", config),
    }
}

/// `v1.23.8---vmware.2-tkg.2-zshippable` is Kubernetes `v1.23.8`.
fn kubernetes_version(release: &str) -> Option<String> {
    let version = release.split(['-', '+']).next()?.trim_start_matches('v');
    let is_version = version.split('.').count() == 3 && version.split('.').all(|part| part.parse::<u32>().is_ok());
    is_version.then(|| format!("v{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_pool_becomes_a_pool() {
        let pool = lower(
            &json!({
                "name": "gpu", "replicas": 3, "vmClass": "best-effort-large", "labels": {"a": "b"},
                "taints": [{"key": "gpu", "effect": "NoSchedule"}], "nodeDrainTimeout": "5m",
                "tkr": {"reference": {"name": "v1.23.8---vmware.2-tkg.2-zshippable"}},
            }),
            &json!({}),
        );
        assert_eq!((pool.name.as_str(), pool.replicas), ("gpu", Some(3)));
        assert_eq!(
            pool.infrastructure.spec,
            json!({"numCPUs": 4, "memoryMiB": 16384, "className": "best-effort-large"})
        );
        let registration = &pool.bootstrap.spec["joinConfiguration"]["nodeRegistration"];
        assert_eq!(registration["kubeletExtraArgs"], json!([{"name": "node-labels", "value": "a=b"}]));
        assert_eq!(
            pool.spec["template"]["spec"],
            json!({"version": "v1.23.8", "deletion": {"nodeDrainTimeoutSeconds": 300}})
        );
        assert_eq!(kubernetes_version("latest"), None);
    }
}
