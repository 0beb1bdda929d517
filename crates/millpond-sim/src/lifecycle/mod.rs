//! The node and volume controllers of kube-controller-manager: taints from conditions, eviction by taints, deletion of
//! pods whose node is gone, and volumes for claims.

pub mod eviction;
pub mod node_taints;
pub mod pod_gc;
pub mod volumes;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::Key;

/// Marks a pod as disrupted, and in the same write as failed if `failed`; one that is gone
/// already is fine.
async fn mark_disrupted(cluster: &Cluster, pod: &Pod, reason: &str, message: &str, failed: bool) -> Result<()> {
    let fresh = PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        observed_generation: pod.metadata.generation,
        last_transition_time: Some(cluster.clock.time()),
        last_probe_time: None,
    };
    let mut conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.retain(|condition| condition.type_ != fresh.type_);
    conditions.push(fresh);
    let mut status = json!({"conditions": conditions});
    if failed {
        status["phase"] = Value::String("Failed".to_owned());
    }
    let patch = json!({"metadata": {"resourceVersion": pod.resource_version()}, "status": status});
    match cluster.pods.patch_status(&Key::of(pod), &patch).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
