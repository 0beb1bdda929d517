//! Constraints of a pod's PersistentVolumeClaims, read from claims, volumes and classes. ResourceClaims are refused: stand-in
//! nodes have no devices.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use super::fit::labels::{NodeFilter, NodeTerm, Requirement};
use super::fit::volumes::VolumeDemands;
use crate::cluster::Cluster;
use crate::meta::{Key, has_ended, node_name};

/// Marks the node for which a claim's volume is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const LEGACY_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// What the claims of a pod require of its node.
pub fn demands(cluster: &Cluster, pod: &Pod, claims: &[String]) -> VolumeDemands {
    let mut demands = VolumeDemands::default();
    let devices = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()).next();
    if let Some(claim) = devices {
        demands.blocked = Some(format!("cannot allocate devices of claim \"{}\": stand-ins have none", claim.name));
        return demands;
    }
    let namespace = pod.namespace().unwrap_or_default();
    let mut unbound = false;
    for name in claims {
        let Some(claim) = cluster.claims.get(&Key::new(&namespace, name)) else {
            demands.blocked = Some(format!("persistentvolumeclaim \"{name}\" not found"));
            return demands;
        };
        if claim.metadata.deletion_timestamp.is_some() {
            demands.blocked = Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
            return demands;
        }
        demands.claim_in_use |= is_single(&claim) && is_used_by_another(cluster, pod, &namespace, name);
        if let Some(volume) = volume_name(&claim) {
            match cluster.volumes.get(&Key::new("", volume)) {
                Some(volume) => add_volume(&mut demands, &volume),
                None => demands.volume_missing = true,
            }
            continue;
        }
        match class_of(cluster, &claim) {
            Some(class) if waits_for_consumer(&class) => add_class(&mut demands, &class),
            _ => unbound = true,
        }
    }
    if unbound {
        demands.blocked = Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
    }
    demands
}

/// The claims of a pod for which a volume is created once its node is chosen.
pub fn waiting_claims(cluster: &Cluster, pod: &Pod, claims: &[String]) -> Vec<Key> {
    let namespace = pod.namespace().unwrap_or_default();
    claims
        .iter()
        .map(|name| Key::new(&namespace, name))
        .filter(|key| {
            cluster.claims.get(key).is_some_and(|claim| {
                volume_name(&claim).is_none()
                    && class_of(cluster, &claim).is_some_and(|class| waits_for_consumer(&class))
            })
        })
        .collect()
}

/// The volume that a claim is bound to.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The class of a claim, if it names one that exists.
pub fn class_of(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Option<std::sync::Arc<StorageClass>> {
    let legacy = claim.annotations().get(LEGACY_CLASS);
    let name = legacy.or_else(|| claim.spec.as_ref()?.storage_class_name.as_ref())?;
    cluster.storage_classes.get(&Key::new("", name))
}

/// Whether volumes of a class are made when a pod has its node.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

fn is_single(claim: &PersistentVolumeClaim) -> bool {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.iter().any(|mode| mode == "ReadWriteOncePod")
}

fn is_used_by_another(cluster: &Cluster, pod: &Pod, namespace: &str, claim: &str) -> bool {
    cluster.pods.list_in(namespace).iter().any(|other| {
        let volumes = other.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        other.uid() != pod.uid()
            && node_name(other).is_some()
            && !has_ended(other)
            && volumes
                .iter()
                .any(|volume| volume.persistent_volume_claim.as_ref().is_some_and(|used| used.claim_name == claim))
    })
}

fn add_volume(demands: &mut VolumeDemands, volume: &PersistentVolume) {
    demands.add_zone_labels(volume.labels());
    let required = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref());
    if let Some(required) = required {
        let terms = required.node_selector_terms.iter().filter_map(NodeTerm::compile).collect();
        demands.reachable_from.push(NodeFilter { labels: Vec::new(), terms: Some(terms) });
    }
}

fn add_class(demands: &mut VolumeDemands, class: &StorageClass) {
    let Some(topologies) = class.allowed_topologies.as_deref().filter(|list| !list.is_empty()) else {
        return;
    };
    let terms = topologies
        .iter()
        .filter_map(|term| {
            let expressions = term.match_label_expressions.as_deref().unwrap_or_default();
            let labels = expressions.iter().map(|one| Requirement::In(one.key.clone(), one.values.clone()));
            NodeTerm::of_labels(labels.collect())
        })
        .collect();
    demands.provisionable_on.push(NodeFilter { labels: Vec::new(), terms: Some(terms) });
}
