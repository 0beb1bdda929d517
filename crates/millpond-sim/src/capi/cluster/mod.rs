//! Clusters: what their Machines share, the pools of their topology, and their end, which takes everything along.

pub mod classes;
pub mod pools;
pub mod status;
pub mod tanzu;
pub mod topology;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::capi::{self, Reference, names};
use millpond_controllers::kinds::{CapiCluster, Machine, MachineDeployment, MachineSet};
use serde_json::{Value, json};

use super::externals::External;
use super::machine_set::status::paused;
use super::{Capi, at, is_paused, owner_reference, text, with_owner, without};
use crate::error::Result;
use crate::kinds::Kind;
use crate::meta::{Key, controller_of, is_leaving, status_patch};
use crate::mirror::Mirror;
use crate::queue::Queue;
use crate::worker::Reconcile;
use status::{Facts, Shared};

/// Keeps a Cluster until all of it is gone.
const FINALIZER: &str = "cluster.cluster.x-k8s.io";

/// The Cluster controller.
pub struct Clusters {
    capi: Arc<Capi>,
}

impl Clusters {
    /// A controller that is told of changes through the returned queue.
    pub fn new(capi: &Arc<Capi>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = capi.queue_of_clusters();
        let batch = capi.cluster.options.batch;
        wake_with(&capi.deployments, |one| &one.spec, &queue, batch);
        wake_with(&capi.sets, |one| &one.spec, &queue, batch);
        wake_with(&capi.machines, |one| &one.spec, &queue, batch);
        (Arc::new(Self { capi: Arc::clone(capi) }), queue)
    }

    fn deployments(&self, cluster: &CapiCluster) -> Vec<Arc<MachineDeployment>> {
        of_cluster(&self.capi.deployments, cluster, |one| &one.spec)
    }

    fn sets(&self, cluster: &CapiCluster) -> Vec<Arc<MachineSet>> {
        of_cluster(&self.capi.sets, cluster, |one| &one.spec)
    }

    fn machines(&self, cluster: &CapiCluster) -> Vec<Arc<Machine>> {
        of_cluster(&self.capi.machines, cluster, |one| &one.spec)
    }

    /// Looks up the objects that a Cluster refers to, and makes the Cluster their owner. An object of a kind that is
    /// not served counts as present and ready: without its CRD it has no status.
    async fn shared(&self, reference: Option<&Reference>, cluster: &CapiCluster) -> Result<(Shared, Option<External>)> {
        let Some(reference) = reference else { return Ok((Shared::NotAsked, None)) };
        let namespace = cluster.namespace().unwrap_or_default();
        if self.capi.externals.resource(&reference.group, &reference.kind).await?.is_none() {
            return Ok((Shared::NotServed, None));
        }
        let Some(found) = self.capi.externals.get(reference, &namespace).await? else {
            return Ok((Shared::Absent(reference.kind.clone()), None));
        };
        let meta = &found.object.metadata;
        let owners = with_owner(meta.owner_references.as_deref(), owner_reference(cluster, true));
        let found = match owners.filter(|_| !is_leaving(cluster)) {
            Some(owners) => {
                let patch = json!({"metadata": {
                    "resourceVersion": meta.resource_version,
                    "ownerReferences": owners,
                    "labels": {names::CLUSTER_NAME: cluster.name_any()},
                }});
                self.capi.externals.patch(&found, &patch).await?
            }
            None => found,
        };
        Ok((Shared::Found(reference.kind.clone(), found.at(&["status"]).clone()), Some(found)))
    }

    async fn fill(&self, cluster: Arc<CapiCluster>, endpoint: &Value) -> Result<Arc<CapiCluster>> {
        let mut patch = json!({});
        let finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|known| known == FINALIZER) {
            let all: Vec<String> = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
            patch["metadata"] = json!({"finalizers": all, "resourceVersion": cluster.metadata.resource_version});
        }
        if endpoint.is_object() && text(&cluster.spec, &["controlPlaneEndpoint", "host"]).is_none() {
            patch["spec"] = json!({"controlPlaneEndpoint": endpoint});
        }
        if patch == json!({}) {
            return Ok(cluster);
        }
        self.capi.clusters.patch(&Key::of(&*cluster), &patch).await
    }

    async fn write_status(&self, key: &Key, facts: &Facts) -> Result<()> {
        let Some(cluster) = self.capi.clusters.get(key) else { return Ok(()) };
        let deployments = self.deployments(&cluster);
        let status = status::compute(&cluster, &deployments, facts, &self.capi.cluster.clock.time());
        if let Some(patch) = status_patch(&*cluster, Some(&cluster.status), &status) {
            self.capi.clusters.patch_status(key, &patch).await?;
        }
        Ok(())
    }

    async fn live(&self, cluster: Arc<CapiCluster>) -> Result<Option<Duration>> {
        let key = Key::of(&*cluster);
        let view = capi::Cluster::of(&cluster.spec);
        let (infrastructure, found) = self.shared(view.infrastructure.as_ref(), &cluster).await?;
        let (control_plane, _) = self.shared(view.control_plane.as_ref(), &cluster).await?;
        let endpoint = found.map(|found| found.at(&["spec", "controlPlaneEndpoint"]).clone()).unwrap_or_default();
        let cluster = self.fill(cluster, &endpoint).await?;
        let mut facts = Facts { infrastructure, control_plane, topology: None, stage: None };
        if let Some(topology) = &view.topology {
            let outcome = topology::reconcile(&self.capi, &cluster, topology).await;
            facts.topology = Some(outcome.as_ref().err().map(crate::error::Error::cause));
            self.write_status(&key, &facts).await?;
            outcome?;
        }
        self.write_status(&key, &facts).await.map(|()| None)
    }

    /// Workers first, then the control plane, then the infrastructure.
    async fn leave(&self, cluster: &CapiCluster) -> Result<()> {
        let key = Key::of(cluster);
        for deployment in self.deployments(cluster).iter().filter(|one| !is_leaving(&***one)) {
            self.capi.deployments.delete(deployment, None).await?;
        }
        for set in self.sets(cluster).iter().filter(|one| !is_leaving(&***one) && controller_of(&***one).is_none()) {
            self.capi.sets.delete(set, None).await?;
        }
        for machine in self.machines(cluster).iter().filter(|one| !is_leaving(&***one)) {
            if controller_of(&**machine).is_none() {
                self.capi.machines.delete(machine, None).await?;
            }
        }
        let counts = [
            ("MachineDeployments", self.deployments(cluster).len()),
            ("MachineSets", self.sets(cluster).len()),
            ("Machines", self.machines(cluster).len()),
        ];
        let left: Vec<String> =
            counts.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| format!("* {count} {kind}")).collect();
        if !left.is_empty() {
            return self.wait(&key, "WaitingForWorkersDeletion", left.join("\n")).await;
        }
        let view = capi::Cluster::of(&cluster.spec);
        for (reference, reason) in [
            (&view.control_plane, "WaitingForControlPlaneDeletion"),
            (&view.infrastructure, "WaitingForInfrastructureDeletion"),
        ] {
            if let (_, Some(found)) = self.shared(reference.as_ref(), cluster).await? {
                if !found.is_leaving() {
                    self.capi.externals.delete(&found).await?;
                }
                if self.capi.externals.read(&found.resource, &found.key()).await?.is_some() {
                    return self.wait(&key, reason, format!("Waiting for {} to be deleted", found.resource.kind)).await;
                }
            }
        }
        let finalizers = without(cluster.metadata.finalizers.as_deref(), FINALIZER);
        let patch = json!({"metadata": {
            "resourceVersion": cluster.metadata.resource_version, "finalizers": finalizers,
        }});
        self.capi.clusters.patch(&key, &patch).await.map(drop)
    }

    async fn wait(&self, key: &Key, reason: &'static str, message: String) -> Result<()> {
        let unknown = Facts { stage: Some((reason, message)), ..Facts::default() };
        self.write_status(key, &unknown).await
    }
}

impl Reconcile for Clusters {
    const NAME: &'static str = "cluster-controller";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(cluster) = self.capi.clusters.get(key) else { return Ok(None) };
        if is_paused(&cluster, &*cluster) {
            let status = paused(&cluster.status, cluster.metadata.generation, &self.capi.cluster.clock.time());
            if let Some(patch) = status_patch(&*cluster, Some(&cluster.status), &status) {
                self.capi.clusters.patch_status(key, &patch).await?;
            }
            return Ok(None);
        }
        if is_leaving(&*cluster) {
            return self.leave(&cluster).await.map(|()| None);
        }
        self.live(cluster).await
    }
}

/// The objects of a Cluster.
pub(super) fn of_cluster<K: Kind>(mirror: &Mirror<K>, cluster: &CapiCluster, spec: fn(&K) -> &Value) -> Vec<Arc<K>> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let mut found = mirror.list_in(&namespace);
    found.retain(|object| at(spec(object), &["clusterName"]) == name.as_str());
    found
}

fn wake_with<K: Kind>(mirror: &Mirror<K>, spec: fn(&K) -> &Value, queue: &Arc<Queue<Key>>, batch: Duration) {
    let own = Arc::clone(queue);
    mirror.on_change(move |old, new| {
        if let Some(object) = new.or(old)
            && let Some(name) = text(spec(object), &["clusterName"])
        {
            own.add_after(Key::new(&object.namespace().unwrap_or_default(), name), batch);
        }
    });
}
