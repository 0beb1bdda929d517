//! `plan --kubeconfig` on a running `millpond up`: the same as from files, and again from what it saves.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};
use millpond_testkit::EmbeddedServer;
use serde_json::{Value, json};

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");

/// The server says when objects were made; long after that neither plan depends on the hour.
const LATER: &str = "--now=2100-01-01T00:00:00Z";

/// What examples do not have, and planning looks at.
const MORE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: blue}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: important}
value: 1000
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop}
spec:
  minAvailable: 6
  selector: {matchLabels: {app: shop}}
status: {disruptionsAllowed: 0, currentHealthy: 6, desiredHealthy: 6, expectedPods: 6}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: agent, image: agent, resources: {requests: {cpu: 100m, memory: 128Mi}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: shop}
spec:
  priorityClassName: important
  containers: [{name: main, image: main, resources: {requests: {cpu: '7', memory: 4Gi}}}]
";

/// Only in the cluster: no StatefulSet controller makes its pods there, so they are not planned for.
const STUCK_SET: &str = "
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: refused}
spec:
  replicas: 5
  selector: {matchLabels: {app: refused}}
  template:
    metadata: {labels: {app: refused}}
    spec:
      containers: [{name: main, image: main, resources: {requests: {cpu: '1'}}}]
";

fn objects(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).expect("good YAML")
}

/// A definition of a kind that takes whatever is written.
fn definition(group: &str, version: &str, kind: &str) -> Value {
    let plural = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)).plural;
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Cluster",
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

async fn define(client: &Client, group: &str, version: &str, kind: &str) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let made = api.create(&PostParams::default(), &serde_json::from_value(definition(group, version, kind))?).await?;
    await_condition(api, &made.name_any(), conditions::is_crd_established()).await?;
    Ok(())
}

/// Makes an object, and its status as a controller would write it.
async fn make(client: &Client, object: &Value) -> Result<()> {
    let made: DynamicObject = serde_json::from_value(object.clone())?;
    let types = made.types.clone().context("an object says what it is")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let namespaced = ["Pod", "DaemonSet", "ReplicaSet", "PodDisruptionBudget"].contains(&types.kind.as_str());
    let api: Api<DynamicObject> = if namespaced {
        Api::namespaced_with(client.clone(), made.metadata.namespace.as_deref().unwrap_or("default"), &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    let name = made.name_any();
    api.create(&PostParams::default(), &made).await.with_context(|| format!("make {} {name}", types.kind))?;
    if types.kind == "Node" {
        // New nodes are tainted until the node lifecycle controller finds them ready.
        api.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"taints": null}}))).await?;
    }
    if let Some(status) = object.get("status") {
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    }
    Ok(())
}

/// The plan without what it was made from, which counts changes.
fn plan(words: &[&str]) -> Value {
    let output = Command::new(MILLPOND)
        .args(["plan", "-o=json", "--consolidate", "--check", LATER])
        .args(words)
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut plan: Value = serde_json::from_slice(&output.stdout).expect("a plan is JSON");
    plan["revision"].take();
    plan
}

/// Plans for an example and more from files, from a cluster, and from what that saved: three times the same.
async fn planned_alike(example: &str, more: &str) -> Result<Value> {
    let server = EmbeddedServer::start(Path::new(MILLPOND), &["--bare", "--memory"])?;
    let path = |path: PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
    let (example, kubeconfig) = (path(example.join("cluster.yaml")), path(server.kubeconfig()));
    let (added, saved) = (path(server.folder().join("more.yaml")), path(server.folder().join("saved.json")));
    std::fs::write(&added, more)?;
    let from_files = plan(&["-f", &example, "-f", &added]);

    let client = server.client().await?;
    define(&client, "karpenter.sh", "v1", "NodePool").await?;
    define(&client, "millpond.dev", "v1alpha1", "NodeClass").await?;
    let text = std::fs::read_to_string(&example)?;
    for object in [more, &text, STUCK_SET].into_iter().flat_map(objects) {
        make(&client, &object).await?;
    }
    let from_cluster = plan(&["--kubeconfig", &kubeconfig, "--save-snapshot", &saved]);
    assert_eq!(from_cluster, from_files);
    assert_eq!(plan(&["-f", &saved]), from_files);
    Ok(from_files)
}

#[tokio::test]
async fn pods_that_wait_are_planned_from_a_cluster_as_from_files() -> Result<()> {
    let plan = planned_alike("stuck", MORE).await?;
    assert_eq!((&plan["summary"]["pods"], &plan["summary"]["placed"]), (&json!(6), &json!(2)), "{plan:#}");
    Ok(())
}

#[tokio::test]
async fn nodes_are_consolidated_from_a_cluster_as_from_files() -> Result<()> {
    let budget = planned_alike("consolidate", MORE).await?;
    // The budget lets no pod of the shop move; the empty node goes.
    let actions = budget["actions"].as_array().expect("a list");
    let gone: Vec<&str> =
        actions.iter().filter(|it| it["action"] != "create").filter_map(|it| it["node"].as_str()).collect();
    assert_eq!(gone, ["worker-4"], "{budget:#}");
    Ok(())
}
