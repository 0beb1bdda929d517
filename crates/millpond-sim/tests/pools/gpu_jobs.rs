//! Nodes whose GPUs are kept for a job, or used by it: the controllers of node pools leave them alone until it has ended.

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use millpond_api::condition::{find, is_true};
use millpond_gpu::controller::{self, Options};
use millpond_gpu::kinds::GPUInfo;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::basin::{Basin, pods_of};

/// Longer than every delay of the pool.
const LONG: Duration = Duration::from_mins(30);

fn containers() -> Value {
    let amounts = json!({"cpu": "1", "nvidia.com/gpu": "1"});
    json!([{"name": "c", "image": "app:1", "resources": {"requests": amounts, "limits": amounts}}])
}

/// A pool of nodes with one GPU each, which consolidates after a minute.
async fn pool(basin: &Basin) {
    basin.class("default", json!({"catalog": "aws"})).await;
    let requirements = json!([
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g4dn.xlarge"]},
    ]);
    let disruption = json!({"consolidateAfter": "1m", "budgets": [{"nodes": "100%"}]});
    let spec = json!({"template": {"spec": {"requirements": requirements}}, "disruption": disruption});
    basin.pool("gpu", json!({"spec": spec})).await;
}

async fn until_reserved(infos: &Api<GPUInfo>, reason: &str) {
    let holds = |info: Option<&GPUInfo>| {
        let conditions = info.and_then(|info| info.status.as_ref()).map(|status| status.conditions.as_slice());
        find(conditions.unwrap_or_default(), "Reserved").is_some_and(|reserved| reserved.reason == reason)
    };
    let waiting = tokio::time::timeout(LONG, await_condition(infos.clone(), "train", holds));
    waiting.await.unwrap_or_else(|_| panic!("never: {reason}")).expect("watch");
}

fn names(basin: &Basin) -> Vec<String> {
    basin.claims().iter().map(|claim| claim.name().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_of_a_reserved_job_is_neither_consolidated_nor_replaced() {
    let basin = Basin::bare().await;
    pool(&basin).await;
    basin.deployment("warm", 1, "1", json!({"containers": containers()})).await;
    basin.until_running("warm", 1).await;
    let before = names(&basin);
    assert_eq!(before.len(), 1);

    let stop = CancellationToken::new();
    let options = Options { clock: basin.clock.clone(), ..Options::default() };
    let tasks = controller::start(&basin.client, options, &stop);
    let infos = Api::<GPUInfo>::default_namespaced(basin.client.clone());
    let spec = serde_json::from_value(json!({"desAccTime": 10, "gpuRequired": true, "reserve": {"ttl": "24h"}}));
    let mut train = GPUInfo::new(Default::default(), spec.expect("a spec"));
    train.metadata.name = Some("train".to_owned());
    infos.create(&PostParams::default(), &train).await.expect("a GPUInfo");
    until_reserved(&infos, "NoFreeGPU").await;

    // The GPU is free, and kept at once. Without a job on it the node would go after a minute.
    basin.scale("warm", 0).await;
    basin.until("the pod is gone", |cluster| pods_of(cluster, "warm").is_empty()).await;
    until_reserved(&infos, "Reserved").await;
    basin.pass(LONG).await;
    assert_eq!(names(&basin), before, "the node waits for the job");

    // The job comes and runs, and the pool changes meanwhile.
    basin
        .create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "train", "labels": {"app": "train", "millpond.dev/gpuinfo": "train"}},
            "spec": {"schedulingGates": [{"name": "millpond.dev/gpuinfo"}], "containers": containers()},
        }))
        .await;
    until_reserved(&infos, "Claimed").await;
    basin.until_running("train", 1).await;
    let drift = json!({"spec": {"template": {"metadata": {"annotations": {"example.com/generation": "2"}}}}});
    basin.patch("karpenter.sh/v1", "NodePool", "gpu", drift).await;
    let has_drifted = |claim: &_| is_drifted(claim);
    basin.until("the claim has drifted", |cluster| cluster.claims.list().iter().any(|claim| has_drifted(claim))).await;
    basin.pass(LONG).await;
    assert_eq!(names(&basin), before, "the node runs the job");
    basin.until_running("train", 1).await;

    // With the job its guard ends.
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(basin.client.clone());
    pods.delete("train", &DeleteParams::default()).await.expect("the job ends");
    until_reserved(&infos, "Ended").await;
    basin.until("the node is gone", |cluster| cluster.claims.list().is_empty() && cluster.nodes.is_empty()).await;
    stop.cancel();
    tasks.wait().await;
}

fn is_drifted(claim: &millpond_controllers::kinds::NodeClaim) -> bool {
    is_true(&claim.status.conditions, "Drifted")
}
