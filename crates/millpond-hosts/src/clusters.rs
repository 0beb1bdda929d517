//! ByoClusters: ready once the address of the control plane is known, deleted after their machines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::byoh::{ControlPlaneEndpoint, FailureDomain, names};
use millpond_api::condition::{Conditions, READY};
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use serde_json::json;

use crate::kinds::ByoCluster;
use crate::stock::{Stock, enqueue};

/// Keeps the status of ByoClusters.
pub struct Clusters {
    stock: Arc<Stock>,
}

impl Clusters {
    /// The controller, and the work queue that watches fill.
    pub fn new(stock: &Arc<Stock>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        enqueue(&stock.byo_clusters, &queue);
        let (own, shared) = (Arc::clone(&queue), Arc::downgrade(stock));
        let all = move || {
            let clusters = shared.upgrade().map(|stock| stock.byo_clusters.list()).unwrap_or_default();
            clusters.iter().for_each(|cluster| own.add(Key::of(&**cluster)));
        };
        let wake = all.clone();
        stock.machines.on_change(move |_, after| {
            if after.is_none() {
                wake();
            }
        });
        stock.hosts.on_change(move |before, after| {
            let zone = |host: Option<&Arc<crate::kinds::ByoHost>>| {
                host.and_then(|host| host.label(names::ZONE).map(str::to_owned))
            };
            if zone(before) != zone(after) {
                all();
            }
        });
        (Arc::new(Self { stock: Arc::clone(stock) }), queue)
    }

    /// Machines of the Cluster that a ByoCluster belongs to.
    fn has_machines(&self, cluster: &ByoCluster) -> bool {
        let owner = cluster.owner_references().iter().find(|owner| owner.kind == "Cluster");
        let name = owner.map_or(cluster.name(), |owner| owner.name.as_str());
        let machines = self.stock.machines.list_in(cluster.namespace());
        machines.iter().any(|one| one.labels().get(names::CLUSTER_NAME).is_some_and(|label| label == name))
    }

    async fn set_finalizer(&self, cluster: &ByoCluster, wanted: bool) -> Result<Arc<ByoCluster>> {
        let mut finalizers: Vec<String> = cluster.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != names::CLUSTER_FINALIZER);
        if wanted {
            finalizers.push(names::CLUSTER_FINALIZER.to_owned());
        }
        let metadata = json!({"resourceVersion": cluster.metadata.resource_version, "finalizers": finalizers});
        self.stock.byo_clusters.patch(&Key::of(cluster), &json!({"metadata": metadata})).await
    }
}

impl Reconcile for Clusters {
    const NAME: &'static str = "byocluster";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(mut cluster) = self.stock.byo_clusters.get(key) else { return Ok(None) };
        let is_held = cluster.finalizers().iter().any(|finalizer| finalizer == names::CLUSTER_FINALIZER);
        if is_leaving(&*cluster) {
            if is_held && !self.has_machines(&cluster) {
                self.set_finalizer(&cluster, false).await?;
            }
            return Ok(None);
        }
        if !is_held {
            cluster = self.set_finalizer(&cluster, true).await?;
        }
        if cluster.spec.control_plane_endpoint.host.is_empty()
            && let Some(endpoint) = self.stock.options.api_server.as_ref().and_then(|own| split(&own.url))
        {
            let patch = json!({"spec": {"controlPlaneEndpoint": endpoint}});
            cluster = self.stock.byo_clusters.patch(key, &patch).await?;
        }
        let mut status = cluster.status.clone();
        let ready = if cluster.spec.control_plane_endpoint.host.is_empty() {
            Condition::fails(READY, "EndpointUnknown", "spec.controlPlaneEndpoint.host is empty")
        } else {
            status.ready = true;
            status.initialization.provisioned = Some(true);
            Condition::holds(READY)
        };
        let hosts = self.stock.hosts.list_in(cluster.namespace());
        let zones: BTreeSet<&str> = hosts.iter().filter_map(|host| host.label(names::ZONE)).collect();
        let domain = |name: &str| FailureDomain { name: name.to_owned(), ..FailureDomain::default() };
        status.failure_domains = zones.into_iter().map(domain).collect();
        let generation = cluster.metadata.generation.unwrap_or_default();
        Conditions::new(&mut status.conditions, &[], generation, self.stock.now()).set(ready);
        if let Some(patch) = status_patch(&*cluster, Some(&cluster.status), &status) {
            self.stock.byo_clusters.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}

/// Host and port of an address such as `https://10.0.0.1:6443`.
fn split(url: &str) -> Option<ControlPlaneEndpoint> {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    Some(ControlPlaneEndpoint { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split() {
        let split = |url| split(url).map(|endpoint| (endpoint.host, endpoint.port));
        assert_eq!(split("https://10.0.0.1:6443"), Some(("10.0.0.1".to_owned(), 6443)));
        assert_eq!(split("https://[::1]:6443/"), Some(("::1".to_owned(), 6443)));
        assert_eq!(split("https://api"), None);
    }
}
