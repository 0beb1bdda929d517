//! Volume provisioner for PersistentVolumeClaims, with unlimited capacity.
//!
//! A claim gets a volume at once, or, when its class waits for the first consumer, once the
//! scheduler has written the consumer's node into the claim; the volume then stays in that
//! node's zone. Volumes that exist already are not matched to claims, except by name.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::json;

use crate::cluster::Cluster;
use crate::error::Result;
use crate::events::EventReason;
use crate::meta::{Key, annotation, is_leaving};
use crate::queue::Queue;
use crate::scheduler::storage::{SELECTED_NODE, class_of, volume_name, waits_for_consumer};
use crate::worker::Reconcile;

const COMPONENT: &str = "volume-provisioner";
const DRIVER: &str = "sim.millpond.dev";
const ZONE: &str = "topology.kubernetes.io/zone";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Creates and binds volumes, and deletes those whose claim is gone.
pub struct Volumes {
    cluster: Arc<Cluster>,
}

impl Volumes {
    /// The provisioner, and the work queue that watches of claims fill. Keys without namespace are volumes.
    pub fn new(cluster: &Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        cluster.claims.on_change(move |old, new| match new {
            Some(claim) => own.add(Key::of(&**claim)),
            None => {
                if let Some(volume) = old.and_then(|claim| volume_name(claim)) {
                    own.add(Key::new("", volume));
                }
            }
        });
        let own = Arc::clone(&queue);
        cluster.volumes.on_change(move |_, new| {
            if let Some(volume) = new {
                own.add(Key::of(&**volume));
            }
        });
        let (own, claims) = (Arc::clone(&queue), Arc::clone(&cluster.claims));
        cluster.storage_classes.on_change(move |_, _| {
            let waiting = claims.list().into_iter().filter(|claim| volume_name(claim).is_none());
            waiting.for_each(|claim| own.add(Key::of(&*claim)));
        });
        (Arc::new(Self { cluster: Arc::clone(cluster) }), queue)
    }

    async fn provision(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<()> {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
        let found = class_of(&self.cluster, claim);
        if class.as_deref().is_some_and(|name| !name.is_empty()) && found.is_none() {
            // A class that does not exist may still come.
            return Ok(());
        }
        let waits = found.as_ref().is_some_and(|class| waits_for_consumer(class));
        let node = annotation(claim, SELECTED_NODE);
        if waits && node.is_none() {
            return Ok(());
        }
        let zone = node
            .and_then(|name| self.cluster.nodes.get(&Key::new("", name)))
            .and_then(|node| node.labels().get(ZONE).cloned());
        let policy = found.as_ref().and_then(|class| class.reclaim_policy.clone());
        let volume = make_volume(claim, class, policy, zone.as_deref());
        match self.cluster.volumes.create(&volume).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        let patch = json!({
            "metadata": {
                "resourceVersion": claim.metadata.resource_version,
                "annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"},
            },
            "spec": {"volumeName": volume.name_any()},
        });
        self.cluster.claims.patch(key, &patch).await?;
        let event_reason = EventReason {
            component: COMPONENT,
            action: "Provisioning",
            reason: "ProvisioningSucceeded",
            warning: false,
        };
        self.cluster.recorder.record(
            claim,
            event_reason,
            format!("Successfully provisioned volume {}", volume.name_any()),
        );
        Ok(())
    }

    async fn sync_claim(&self, key: &Key) -> Result<()> {
        let Some(claim) = self.cluster.claims.get(key) else {
            return Ok(());
        };
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        match volume_name(&claim) {
            None if !is_leaving(&*claim) => self.provision(key, &claim).await,
            Some(volume) if phase != Some("Bound") => {
                let Some(volume) = self.cluster.volumes.get(&Key::new("", volume)) else {
                    return Ok(());
                };
                let spec = volume.spec.clone().unwrap_or_default();
                let status = json!({"status": {
                    "phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity,
                }});
                self.cluster.claims.patch_status(key, &status).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    async fn sync_volume(&self, key: &Key) -> Result<()> {
        let Some(volume) = self.cluster.volumes.get(key) else {
            return Ok(());
        };
        let spec = volume.spec.clone().unwrap_or_default();
        if spec.csi.as_ref().is_none_or(|source| source.driver != DRIVER) {
            return Ok(());
        }
        let Some(owner) = &spec.claim_ref else {
            return Ok(());
        };
        let claim_key =
            Key::new(owner.namespace.as_deref().unwrap_or_default(), owner.name.as_deref().unwrap_or_default());
        let claim = self.cluster.claims.get(&claim_key).filter(|claim| claim.uid() == owner.uid);
        if claim.is_none() && spec.persistent_volume_reclaim_policy.as_deref() != Some("Retain") {
            return self.cluster.volumes.delete(&volume, None).await;
        }
        let phase = if claim.is_some() { "Bound" } else { "Released" };
        if volume.status.as_ref().and_then(|status| status.phase.as_deref()) != Some(phase) {
            self.cluster.volumes.patch_status(key, &json!({"status": {"phase": phase}})).await?;
        }
        Ok(())
    }
}

impl Reconcile for Volumes {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        if key.namespace.is_empty() {
            self.sync_volume(key).await?;
        } else {
            self.sync_claim(key).await?;
        }
        Ok(None)
    }
}

fn make_volume(
    claim: &PersistentVolumeClaim,
    class: Option<String>,
    policy: Option<String>,
    zone: Option<&str>,
) -> PersistentVolume {
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let spec = claim.spec.clone().unwrap_or_default();
    let in_zone = zone.map(|zone| {
        let requirement = NodeSelectorRequirement {
            key: ZONE.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![zone.to_owned()]),
        };
        let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
        VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
    });
    PersistentVolume {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            storage_class_name: class,
            persistent_volume_reclaim_policy: Some(policy.unwrap_or_else(|| "Delete".to_owned())),
            volume_mode: spec.volume_mode,
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                name: Some(claim.name_any()),
                namespace: claim.namespace(),
                uid: claim.uid(),
                ..ObjectReference::default()
            }),
            csi: Some(CSIPersistentVolumeSource {
                driver: DRIVER.to_owned(),
                volume_handle: name,
                ..CSIPersistentVolumeSource::default()
            }),
            node_affinity: in_zone,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}
