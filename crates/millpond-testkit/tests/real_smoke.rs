//! The real cluster comes up and does what the comparison suites rely on.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use millpond_testkit::{RealCluster, real};
use serde_json::{Value, json};

/// A bound for what takes a second or two; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_cluster_tells_the_pinned_version_and_is_gone_after_the_drop() -> Result<()> {
    let cluster = RealCluster::builder().start()?;
    let version = cluster.client().await?.apiserver_version().await?;
    assert_eq!(version.git_version, real::kubernetes_version()?);

    let printed = cluster.kubectl()?.run(&["version", "-o", "json"])?;
    let printed: Value = serde_json::from_str(&printed)?;
    assert_eq!(printed["clientVersion"]["gitVersion"], printed["serverVersion"]["gitVersion"]);

    let folder = cluster.folder().to_owned();
    let server = cluster.access().server.clone();
    drop(cluster);
    assert!(!folder.exists(), "{} is left", folder.display());
    let address = server.trim_start_matches("https://");
    assert!(std::net::TcpStream::connect(address).is_err(), "{server} still answers");
    Ok(())
}

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_deployment_runs_on_a_kwok_node() -> Result<()> {
    let mut cluster = RealCluster::builder().controller_manager("*").scheduler().kwok().start()?;
    let client = cluster.client().await?;
    create_node(&client, "pretender", "4").await?;
    cluster.kubectl()?.run(&["create", "deployment", "web", "--image=web", "--replicas=3"])?;

    let running = wait_for_pods(&client, 3, |pod| phase(pod) == Some("Running")).await;
    cluster.ensure_running()?;
    for pod in running? {
        assert_eq!(bound_to(&pod), Some("pretender"));
    }
    Ok(())
}

/// Two nodes of four cores; pods of two, two and four. With nominations, all three fit; without, the scheduler spreads
/// the small ones and the large one finds no room. The planner relies on nominations.
#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_scheduler_honours_nominated_nodes() -> Result<()> {
    let cluster = RealCluster::builder().scheduler().kwok().start()?;
    let client = cluster.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let plan = [("small-a", "2", "na"), ("small-b", "2", "na"), ("large", "4", "nb")];
    for (name, cpu, node) in plan {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": cpu}}}]},
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        // Before the node exists.
        let nominated = json!({"status": {"nominatedNodeName": node}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(nominated)).await?;
    }
    create_node(&client, "na", "4").await?;
    create_node(&client, "nb", "4").await?;

    let bound = wait_for_pods(&client, plan.len(), |pod| bound_to(pod).is_some()).await?;
    for (name, _, node) in plan {
        let pod = bound.iter().find(|pod| pod.metadata.name.as_deref() == Some(name));
        assert_eq!(pod.and_then(bound_to), Some(node), "{name}");
    }
    Ok(())
}

async fn create_node(client: &kube::Client, name: &str, cpu: &str) -> Result<()> {
    let resources = json!({"cpu": cpu, "memory": "16Gi", "pods": "110"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    });
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    // The API server taints new nodes; without the node life-cycle controller
    // no controller removes the taint again.
    let untainted = json!({"spec": {"taints": null}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(untainted)).await?;
    Ok(())
}

/// Watches until that many pods fulfil the condition.
async fn wait_for_pods(client: &kube::Client, count: usize, condition: impl Fn(&Pod) -> bool) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut events = watcher(pods.clone(), watcher::Config::default()).boxed();
    let waiting = async {
        loop {
            events.try_next().await?.context("the watch ended")?;
            let mut list = pods.list(&kube::api::ListParams::default()).await?.items;
            list.retain(|pod| condition(pod));
            if list.len() == count {
                return Ok(list);
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.context("the pods are not as wished")?
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn bound_to(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}
