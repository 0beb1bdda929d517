//! What is there from the start: namespaces, the API's own service, the system's priority classes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{internal_call, resource_of};
use crate::handlers::create;
use crate::kind;
use crate::server::Server;
use crate::service_ip::API_ADDRESS;
use crate::status::ApiError;

/// Creates what is missing.
pub async fn run(server: &Arc<Server>, port: u16) -> Result<(), ApiError> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        ensure(
            server,
            "namespaces",
            name,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        )
        .await?;
    }
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        });
        ensure(server, "priorityclasses.scheduling.k8s.io", name, class).await?;
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "clusterIP": API_ADDRESS, "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        },
    });
    ensure(server, "services", "default/kubernetes", service).await
}

async fn ensure(server: &Arc<Server>, collection: &str, key: &str, mut object: Value) -> Result<(), ApiError> {
    if server.store.get(collection, key).is_some() {
        return Ok(());
    }
    let resource = resource_of(server, collection).expect("a built-in kind is served");
    let mut call = internal_call(server, &resource, key);
    kind::default(&resource, &mut object);
    match create::create_object(&mut call, object, true).await {
        Err(problem) if problem.reason != "AlreadyExists" => Err(problem),
        _ => Ok(()),
    }
}
