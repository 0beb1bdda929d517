//! Credentials of nodes: a Secret beside the record of the node, and one beside the request that the node is for.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use millpond_runtime::meta::controller_reference;
use serde_json::{Map, Value, json};

use super::kinds::{CINode, NodeRequest};

/// Owns the fields of Secrets.
const MANAGER: &str = "millpond-ci";
/// The name of cluster, context and user in the kubeconfig of a node.
const CONTEXT: &str = "node";

/// Writes the Secret beside a node's record; gives its place as `NAMESPACE/NAME`.
pub(super) async fn keep(
    client: &Client,
    namespace: &str,
    node: &str,
    credentials: &Map<String, Value>,
) -> kube::Result<String> {
    let name = format!("cinode-{node}");
    let data = credentials.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    write(client, namespace, &name, data.collect(), None).await?;
    Ok(format!("{namespace}/{name}"))
}

/// Copies the credentials of a node to its request, with a kubeconfig; gives the name of the Secret.
pub(super) async fn hand_over(
    client: &Client,
    request: &NodeRequest,
    node: &CINode,
    place: &str,
) -> kube::Result<String> {
    let (namespace, name) = place.split_once('/').unwrap_or(("default", place));
    let kept = Api::<Secret>::namespaced(client.clone(), namespace).get(name).await?;
    let text = |value: ByteString| String::from_utf8_lossy(&value.0).into_owned();
    let mut data: BTreeMap<String, String> =
        kept.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value))).collect();
    if let (Some(token), Some(port)) = (data.get("token"), &node.status.connection_port) {
        data.insert("kubeconfig".to_owned(), kubeconfig(port, token));
    }
    let name = format!("{}-{}", request.name(), node.name());
    let namespace = request.metadata.namespace.as_deref().unwrap_or("default");
    write(client, namespace, &name, data, Some(controller_reference(request))).await?;
    Ok(name)
}

/// Deletes the Secret of a node's record.
pub(super) async fn forget(client: &Client, place: &str) -> kube::Result<()> {
    let (namespace, name) = place.split_once('/').unwrap_or(("default", place));
    match Api::<Secret>::namespaced(client.clone(), namespace).delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

async fn write(
    client: &Client,
    namespace: &str,
    name: &str,
    data: BTreeMap<String, String>,
    owner: Option<OwnerReference>,
) -> kube::Result<()> {
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(data.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect()),
        ..Secret::default()
    };
    let params = PatchParams::apply(MANAGER).force();
    Api::<Secret>::namespaced(client.clone(), namespace).patch(name, &params, &Patch::Apply(&secret)).await.map(drop)
}

/// A kubeconfig with the rights of one node.
fn kubeconfig(port: &Value, token: &str) -> String {
    let mut cluster = json!({"server": port["host"]});
    match port["ca_crt"].as_str() {
        Some(ca) if port["skiptls"] != true => cluster["certificate-authority-data"] = ca.into(),
        _ => cluster["insecure-skip-tls-verify"] = (port["skiptls"] == true).into(),
    }
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "contexts": [{"name": CONTEXT, "context": {
            "cluster": CONTEXT, "user": CONTEXT, "namespace": port["namespace"],
        }}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
    });
    // JSON is YAML, and kubectl reads it.
    config.to_string()
}
