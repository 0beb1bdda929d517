//! The initial objects: namespaces, default roles and bindings, the range of service addresses, the API's own service,
//! the system's priority classes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::tokens::CLUSTER_INFO;
use super::{internal_call, resource_of};
use crate::authz::defaults;
use crate::clock::rfc3339;
use crate::handlers::update::{Changed, Part, change};
use crate::handlers::{create, kubelet};
use crate::kind;
use crate::server::Server;
use crate::service_ip::{API_ADDRESS, RANGE};
use crate::status::ApiError;

/// The collection of ranges of service addresses.
const RANGES: &str = "servicecidrs.networking.k8s.io";

/// The description of the cluster for joining nodes, in kubeadm's form: a ConfigMap that is readable without
/// credentials, and the rights of tokens that `kubeadm token create` makes.
pub(crate) async fn describe_cluster(server: &Arc<Server>, url: &str, ca_pem: &str) -> Result<(), ApiError> {
    let kubeconfig = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {url}\n  name: \"\"\n\
         contexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n",
        STANDARD.encode(ca_pem),
    );
    let description = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig},
    });
    ensure(server, "configmaps", CLUSTER_INFO, description).await?;
    let resource = resource_of(server, "configmaps").expect("a built-in kind is served");
    let mut call = internal_call(server, &resource, CLUSTER_INFO);
    // Address and CA may have changed since the last start.
    let result = change(&mut call, Part::Main, |_, old| {
        let mut object = old.clone();
        object["data"]["kubeconfig"] = json!(kubeconfig);
        Ok(Changed { object, precondition: None, track: true })
    });
    result.await?;
    for (collection, key, object) in kubeadm_rights() {
        ensure(server, collection, key, object).await?;
    }
    Ok(())
}

/// Roles and bindings that kubeadm makes for machines that join: collection, key, object.
fn kubeadm_rights() -> Vec<(&'static str, &'static str, Value)> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
    const JOINING: &str = "system:bootstrappers:kubeadm:default-node-token";
    const INFO: &str = "kubeadm:bootstrap-signer-clusterinfo";
    let metadata = json!({"name": INFO, "namespace": "kube-public"});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": INFO},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "system:anonymous"}],
    });
    let cluster_wide = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group}],
        })
    };
    let of_server = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "millpond:kubelet-api-admin"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": kubelet::USER}],
    });
    let bind = |name: &'static str, role: &str, group: &str| (BINDINGS, name, cluster_wide(name, role, group));
    let approver = |which: &str| format!("system:certificates.k8s.io:certificatesigningrequests:{which}");
    vec![
        ("roles.rbac.authorization.k8s.io", "kube-public/kubeadm:bootstrap-signer-clusterinfo", role),
        ("rolebindings.rbac.authorization.k8s.io", "kube-public/kubeadm:bootstrap-signer-clusterinfo", binding),
        (BINDINGS, "millpond:kubelet-api-admin", of_server),
        bind("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", JOINING),
        bind("kubeadm:node-autoapprove-bootstrap", &approver("nodeclient"), JOINING),
        bind("kubeadm:node-autoapprove-certificate-rotation", &approver("selfnodeclient"), "system:nodes"),
    ]
}

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
    defaults::reconcile(server).await?;
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

/// Sets the condition of the service address range to in use, unless it has a status already.
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
