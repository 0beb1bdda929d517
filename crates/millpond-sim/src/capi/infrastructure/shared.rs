//! Plays the objects that all Machines of a Cluster share: its infrastructure and its control plane are ready at once.
//! The API server in use is the control plane.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::capi::{self, Reference};
use serde_json::{Value, json};

use super::super::externals::External;
use super::super::{Capi, at, owner_key, text};
use super::is_played;
use crate::error::Result;
use crate::meta::{Key, is_leaving, merge_diff};
use crate::queue::Queue;
use crate::worker::Reconcile;

/// The control plane's endpoint if its object names none.
const DEFAULT_ENDPOINT: (&str, u16) = ("127.0.0.1", 6443);

/// Plays what Clusters share.
pub struct SharedInfrastructure {
    capi: Arc<Capi>,
}

impl SharedInfrastructure {
    /// The providers, and the work queue that watches fill.
    pub fn new(capi: &Arc<Capi>) -> (Arc<Self>, Arc<Queue<Key>>) {
        (Arc::new(Self { capi: Arc::clone(capi) }), capi.queue_of_clusters())
    }

    /// Finds what a Cluster refers to, if it is played here and belongs to it already.
    async fn find(&self, reference: Option<&Reference>, cluster: &Key) -> Result<Option<External>> {
        let providers = &self.capi.cluster.options.providers;
        let Some(reference) = reference.filter(|reference| is_played(providers, &reference.kind)) else {
            return Ok(None);
        };
        let found = self.capi.externals.get(reference, &cluster.namespace).await?;
        Ok(found.filter(|found| !found.is_leaving() && owner_key(&found.object, "Cluster").as_ref() == Some(cluster)))
    }

    async fn report(&self, external: &External, status: Value) -> Result<()> {
        let known = external.at(&["status"]);
        let mut wanted = if known.is_object() { known.clone() } else { json!({}) };
        merge(&mut wanted, &status);
        match merge_diff(known, &wanted) {
            Some(changes) => self.capi.externals.patch_status(external, &json!({"status": changes})).await.map(drop),
            None => Ok(()),
        }
    }
}

impl Reconcile for SharedInfrastructure {
    const NAME: &'static str = "shared-infrastructure";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(cluster) = self.capi.clusters.get(key).filter(|cluster| !is_leaving(&**cluster)) else {
            return Ok(None);
        };
        let view = capi::Cluster::of(&cluster.spec);
        if let Some(mut found) = self.find(view.infrastructure.as_ref(), key).await? {
            let has_endpoint = text(&cluster.spec, &["controlPlaneEndpoint", "host"]).is_some()
                || text(found.at(&["spec"]), &["controlPlaneEndpoint", "host"]).is_some();
            if !has_endpoint {
                let (host, port) = DEFAULT_ENDPOINT;
                let patch = json!({"spec": {"controlPlaneEndpoint": {"host": host, "port": port}}});
                found = self.capi.externals.patch(&found, &patch).await?;
            }
            self.report(&found, json!({"initialization": {"provisioned": true}, "ready": true})).await?;
        }
        if let Some(found) = self.find(view.control_plane.as_ref(), key).await? {
            self.report(&found, control_plane_status(&found)).await?;
        }
        Ok(None)
    }
}

/// The status of an externally managed control plane, at the version that was asked for.
fn control_plane_status(found: &External) -> Value {
    let mut status = json!({
        "initialization": {"controlPlaneInitialized": true},
        "externalManagedControlPlane": true,
        "initialized": true,
        "ready": true,
    });
    if let Some(version) = text(found.at(&["spec"]), &["version"]) {
        status["version"] = json!(version);
    }
    if let Some(replicas) = at(found.at(&["spec"]), &["replicas"]).as_i64() {
        for counter in ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"] {
            status[counter] = json!(replicas);
        }
    }
    tracing::trace!(control_plane = found.object.name_any(), "reported");
    status
}

/// Merges objects, the second into the first.
pub(in crate::capi) fn merge(target: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        if value.is_object() && target[key].is_object() {
            merge(&mut target[key], value);
        } else {
            target[key] = value.clone();
        }
    }
}
