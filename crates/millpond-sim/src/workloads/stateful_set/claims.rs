//! The volume claims of a StatefulSet's pods: one per template and ordinal.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::json;

use super::plan;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::meta::{Key, controller_reference, is_leaving};

fn templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default()
}

fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}-{ordinal}", template.name_any(), set.name_any())
}

/// Puts the claims of an ordinal into a pod's volumes, in place of volumes of the same name.
pub(super) fn mount(set: &StatefulSet, spec: &mut PodSpec, ordinal: i32) {
    let mut volumes: Vec<Volume> = templates(set)
        .iter()
        .map(|template| Volume {
            name: template.name_any(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(set, template, ordinal),
                read_only: None,
            }),
            ..Volume::default()
        })
        .collect();
    let others = spec.volumes.take().unwrap_or_default();
    volumes.extend(
        others.into_iter().filter(|volume| templates(set).iter().all(|template| template.name_any() != volume.name)),
    );
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
}

/// Creates the claims of an ordinal that do not exist.
pub(super) async fn ensure(cluster: &Cluster, set: &StatefulSet, ordinal: i32) -> Result<()> {
    for template in templates(set) {
        let key = Key::new(&set.namespace().unwrap_or_default(), &claim_name(set, template, ordinal));
        match cluster.claims.get(&key) {
            Some(claim) if is_leaving(&*claim) => {
                let problem = format!("claim `{key}` is being deleted");
                return Err(Error::Malformed { kind: "StatefulSet", key: Key::of(set), problem });
            }
            Some(_) => {}
            None => match cluster.claims.create(&make(set, template, &key)).await {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => {}
            },
        }
    }
    Ok(())
}

fn make(set: &StatefulSet, template: &PersistentVolumeClaim, key: &Key) -> PersistentVolumeClaim {
    let mut claim = template.clone();
    claim.status = None;
    claim.metadata.name = Some(key.name.clone());
    claim.metadata.namespace = Some(key.namespace.clone());
    let selected = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    claim.metadata.labels.get_or_insert_default().extend(selected);
    if deletes(set).0 {
        claim.metadata.owner_references.get_or_insert_default().push(controller_reference(set));
    }
    claim
}

/// Whether claims go with the set, and whether they go with a pod that is scaled away.
fn deletes(set: &StatefulSet) -> (bool, bool) {
    let policy =
        set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.clone()).unwrap_or_default();
    (policy.when_deleted.as_deref() == Some("Delete"), policy.when_scaled.as_deref() == Some("Delete"))
}

/// Hangs claims on the set or on a pod that is about to go, as the retention policy asks.
pub(super) async fn sync_owners(cluster: &Cluster, set: &StatefulSet, members: &[Arc<Pod>]) -> Result<()> {
    if deletes(set) == (false, false) && templates(set).is_empty() {
        return Ok(());
    }
    for pod in members {
        let Some((_, ordinal)) = plan::parse_name(&pod.name_any()) else {
            continue;
        };
        for template in templates(set) {
            let key = Key::new(&set.namespace().unwrap_or_default(), &claim_name(set, template, ordinal));
            let Some(claim) = cluster.claims.get(&key) else {
                continue;
            };
            if let Some(owners) = wanted_owners(set, pod, ordinal, claim.owner_references()) {
                let patch = json!({"metadata": {
                    "ownerReferences": owners,
                    "resourceVersion": claim.metadata.resource_version,
                }});
                cluster.claims.patch(&key, &patch).await?;
            }
        }
    }
    Ok(())
}

/// The owners that a claim should have, when they are not those it has.
fn wanted_owners(set: &StatefulSet, pod: &Pod, ordinal: i32, known: &[OwnerReference]) -> Option<Vec<OwnerReference>> {
    let (with_set, with_pod) = deletes(set);
    let is_scaled_away = !plan::ordinals(set).contains(&ordinal);
    let (set_ref, pod_ref) = (controller_reference(set), controller_reference(pod));
    let mut owners: Vec<OwnerReference> =
        known.iter().filter(|owner| owner.uid != set_ref.uid && owner.uid != pod_ref.uid).cloned().collect();
    if with_pod && is_scaled_away {
        owners.push(pod_ref);
    } else if with_set {
        owners.push(set_ref);
    }
    let uids = |list: &[OwnerReference]| {
        let mut uids: Vec<String> = list.iter().map(|owner| owner.uid.clone()).collect();
        uids.sort();
        uids
    };
    (uids(&owners) != uids(known)).then_some(owners)
}
