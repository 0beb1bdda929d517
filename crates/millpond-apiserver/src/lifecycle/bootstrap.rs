//! What is there from the start: namespaces, the range of service addresses, the API's own service, the system's
//! priority classes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{internal_call, resource_of};
use crate::clock::rfc3339;
use crate::handlers::create;
use crate::handlers::update::{Changed, Part, change};
use crate::kind;
use crate::server::Server;
use crate::service_ip::{API_ADDRESS, RANGE};
use crate::status::ApiError;

/// The collection of ranges of service addresses.
const RANGES: &str = "servicecidrs.networking.k8s.io";

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
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [RANGE]},
    });
    ensure(server, RANGES, "kubernetes", range).await?;
    set_ready(server).await?;
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

/// Says of the range of service addresses that it is in use, unless somebody has said something already.
async fn set_ready(server: &Arc<Server>) -> Result<(), ApiError> {
    let resource = resource_of(server, RANGES).expect("a built-in kind is served");
    let mut call = internal_call(server, &resource, "kubernetes");
    let result = change(&mut call, Part::Status, |call, old| {
        let mut object = old.clone();
        if object["spec"]["cidrs"] == json!([RANGE]) && object["status"]["conditions"].is_null() {
            object["status"]["conditions"] = json!([{
                "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
                "lastTransitionTime": rfc3339(call.server.clock.now()),
            }]);
        }
        Ok(Changed { object, precondition: None, track: true })
    });
    result.await.map(|_| ())
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
