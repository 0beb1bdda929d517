//! The pod that represents the autoscaler of node groups under `millpond up`: the autoscaler runs in this process, but
//! users look for its pod and its log in `kube-system`.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "cluster-autoscaler-millpond";
/// No scheduler takes the pod, and no kubelet.
const SCHEDULER: &str = "millpond";

/// Whether a pod is the one.
pub(crate) fn is_it(namespace: &str, pod: &str) -> bool {
    (namespace, pod) == (NAMESPACE, NAME)
}

/// Makes the pod unless it is there.
pub(crate) async fn ensure(client: &Client) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let container = json!({"name": "cluster-autoscaler", "image": "millpond"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"app": "cluster-autoscaler"}},
        "spec": {"schedulerName": SCHEDULER, "containers": [container]},
    });
    let pod: Pod = serde_json::from_value(pod).context("the pod of the autoscaler")?;
    match api.create(&PostParams::default(), &pod).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
        Err(error) => return Err(error).context("cannot make the pod of the autoscaler"),
    }
    let running = json!({"name": "cluster-autoscaler", "image": "millpond", "imageID": "", "ready": true, "started": true,
        "restartCount": 0, "state": {"running": {}}});
    let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}]);
    let status = json!({"status": {"phase": "Running", "conditions": conditions, "containerStatuses": [running]}});
    api.patch_status(NAME, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .context("the pod of the autoscaler")?;
    Ok(())
}
