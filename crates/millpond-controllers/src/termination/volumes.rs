//! Volumes that are to be detached before a machine goes, so that they can be attached elsewhere at once. Pure.
//!
//! The attach/detach controller or a CSI driver detaches them; this module only waits. Volumes of pods that stay until
//! the machine goes are not waited for.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use millpond_runtime::meta::Key;

use super::pods::is_drainable;

/// The names of the attachments of a node that are waited for.
pub(super) fn awaited(
    attachments: &[Arc<VolumeAttachment>],
    pods: &[Arc<Pod>],
    now: Timestamp,
    claim: impl Fn(&Key) -> Option<Arc<PersistentVolumeClaim>>,
) -> Vec<String> {
    if attachments.is_empty() {
        return Vec::new();
    }
    let staying = pods.iter().filter(|pod| !is_drainable(pod, now));
    let kept: BTreeSet<String> =
        staying.flat_map(|pod| claims(pod)).filter_map(|key| claim(&key)?.spec.as_ref()?.volume_name.clone()).collect();
    let volume = |attachment: &VolumeAttachment| attachment.spec.source.persistent_volume_name.clone();
    let is_awaited = |attachment: &&Arc<VolumeAttachment>| volume(attachment).is_some_and(|name| !kept.contains(&name));
    attachments.iter().filter(is_awaited).map(|attachment| attachment.name_any()).collect()
}

/// The claims on volumes that a pod makes.
fn claims(pod: &Pod) -> Vec<Key> {
    let namespace = pod.namespace().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.as_deref().unwrap_or_default());
    let name = |volume: &k8s_openapi::api::core::v1::Volume| match (&volume.persistent_volume_claim, &volume.ephemeral)
    {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), volume.name)),
        (None, None) => None,
    };
    volumes.filter_map(name).map(|name| Key::new(&namespace, &name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, volumes: Value, more: Value) -> Arc<Pod> {
        let mut spec = json!({"containers": [], "volumes": volumes});
        spec["tolerations"] = more;
        let pod = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn attachment(name: &str, source: Value) -> Arc<VolumeAttachment> {
        let spec = json!({"attacher": "csi", "nodeName": "n", "source": source});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
    }

    #[test]
    fn volumes_of_pods_that_stay_are_not_waited_for() {
        let stays = json!([{"operator": "Exists"}]);
        let pods = [
            pod("daemon", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "logs"}}]), stays.clone()),
            pod("cache", json!([{"name": "v", "ephemeral": {}}, {"name": "w", "emptyDir": {}}]), stays),
            pod("web", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]), json!([])),
        ];
        let volume = |name: &str| json!({"persistentVolumeName": name});
        let attachments = [
            attachment("a-logs", volume("pv-logs")),
            attachment("a-cache", volume("pv-cache-v")),
            attachment("a-data", volume("pv-data")),
            attachment("a-old", volume("pv-of-a-pod-that-left")),
            attachment("a-inline", json!({"inlineVolumeSpec": {}})),
        ];
        let claim = |key: &Key| {
            let claim = json!({"metadata": {"name": key.name}, "spec": {"volumeName": format!("pv-{}", key.name)}});
            Some(Arc::new(serde_json::from_value(claim).unwrap()))
        };
        assert_eq!(awaited(&attachments, &pods, Timestamp::UNIX_EPOCH, claim), ["a-data", "a-old"]);
        assert!(awaited(&[], &pods, Timestamp::UNIX_EPOCH, claim).is_empty());
        let unknown = |_: &Key| None;
        assert_eq!(awaited(&attachments, &pods, Timestamp::UNIX_EPOCH, unknown).len(), 4);
    }
}
