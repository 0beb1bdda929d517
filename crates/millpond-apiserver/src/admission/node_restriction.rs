//! NodeRestriction: what a node may write, beyond what the authorizer can see. The texts are those of Kubernetes.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::auth::Attributes;
use crate::authz::Decision;
use crate::authz::node::node_identity;
use crate::builtin::certificates::{KUBELET_CLIENT, KUBELET_SERVING};
use crate::builtin::json::Fields;
use crate::handlers::call::Call;
use crate::handlers::update::Part;
use crate::pki::SigningRequest;
use crate::status::ApiError;

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Before a node creates an object.
pub(super) fn on_create(call: &Call, object: &Value) -> Result<(), ApiError> {
    create(call, object).map_err(|refusal| refusal.into_error(call, object.at("metadata").text("name")))
}

fn create(call: &Call, object: &Value) -> Result<(), Denial> {
    let Some(node) = node_of(call)? else { return Ok(()) };
    let name = object.at("metadata").text("name");
    match &*call.resource.storage {
        "pods" => pod(call, node, object),
        "nodes" => own_node(node, name, object, None),
        "persistentvolumeclaims" => refuse("may only update PVC status"),
        "leases.coordination.k8s.io" => lease(call, node, name),
        "csinodes.storage.k8s.io" => csi_node(node, name),
        "resourceslices.resource.k8s.io" if object.at("spec").text("nodeName") != node => {
            refuse("can only create ResourceSlice with the same NodeName as the requesting node")
        }
        "certificatesigningrequests.certificates.k8s.io" => signing_request(node, object),
        _ => Ok(()),
    }
}

/// Before a node changes an object.
pub(super) fn on_update(call: &Call, new: &Value, old: &Value, part: Part) -> Result<(), ApiError> {
    update(call, new, old, part).map_err(|refusal| refusal.into_error(call, call.name()))
}

fn update(call: &Call, new: &Value, old: &Value, part: Part) -> Result<(), Denial> {
    let Some(node) = node_of(call)? else { return Ok(()) };
    match (&*call.resource.storage, part) {
        // Evictions are checked separately.
        ("pods", Part::Other("" | "eviction")) => Ok(()),
        ("pods", Part::Status) => pod_status(node, new, old),
        ("pods", Part::Main) => {
            let why = format!("unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods");
            refuse(why)
        }
        ("pods", Part::Other(name)) => {
            let why = format!("unexpected pod subresource {name:?}, only 'status' and 'eviction' are allowed");
            refuse(why)
        }
        ("nodes", _) => own_node(node, call.name(), new, Some(old)),
        ("persistentvolumeclaims", Part::Status) => claim_status(node, new, old),
        ("persistentvolumeclaims", _) => refuse("may only update PVC status"),
        ("leases.coordination.k8s.io", _) => lease(call, node, call.name()),
        ("csinodes.storage.k8s.io", _) => csi_node(node, call.name()),
        _ => Ok(()),
    }
}

/// Before a node deletes an object.
pub(super) fn on_delete(call: &Call, name: &str) -> Result<(), ApiError> {
    delete(call, name).map_err(|refusal| refusal.into_error(call, name))
}

fn delete(call: &Call, name: &str) -> Result<(), Denial> {
    let Some(node) = node_of(call)? else { return Ok(()) };
    let object = || {
        let key = crate::handlers::call::key_of(&call.resource, call.namespace(), name);
        let object = call.server.store.get(&call.resource.storage, &key).map(|object| object.to_value());
        object.unwrap_or_default()
    };
    match &*call.resource.storage {
        "pods" if object().at("spec").text("nodeName") != node => {
            refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        "nodes" if name != node => refuse(format!("node {node:?} is not allowed to modify node {name:?}")),
        "leases.coordination.k8s.io" => lease(call, node, name),
        "csinodes.storage.k8s.io" => csi_node(node, name),
        "resourceslices.resource.k8s.io" if object().at("spec").text("nodeName") != node => {
            refuse("can only delete ResourceSlice with the same NodeName as the requesting node")
        }
        _ => Ok(()),
    }
}

/// Before a node evicts a pod.
pub(crate) fn on_evict(call: &Call, pod: &Value) -> Result<(), ApiError> {
    evict(call, pod).map_err(|refusal| refusal.into_error(call, call.name()))
}

fn evict(call: &Call, pod: &Value) -> Result<(), Denial> {
    match node_of(call)? {
        Some(node) if pod.at("spec").text("nodeName") != node => {
            refuse(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
        _ => Ok(()),
    }
}

/// Before a node asks for the token of a service account: only for a pod of its own.
pub(crate) fn on_token(call: &Call, request: &Value) -> Result<(), ApiError> {
    token(call, request).map_err(|refusal| refusal.into_error(call, call.name()))
}

fn token(call: &Call, request: &Value) -> Result<(), Denial> {
    let Some(node) = node_of(call)? else { return Ok(()) };
    let spec = request.at("spec");
    let reference = spec.at("boundObjectRef");
    let name = reference.text("name");
    if reference.text("apiVersion") != "v1" || reference.text("kind") != "Pod" || name.is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    let uid = reference.text("uid");
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let pod = call.server.store.get("pods", &format!("{}/{name}", call.namespace()));
    let pod = pod.ok_or_else(|| Denial::Other(ApiError::not_found("", "pods", name)))?;
    if *pod.index.uid != *uid {
        return refuse(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
        ));
    }
    let pod = pod.to_value();
    if pod.at("spec").text("nodeName") != node {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    audience(call, &pod, spec.items("audiences"))
}

/// The audience of a token must be one that a volume of the pod asks for.
fn audience(call: &Call, pod: &Value, audiences: &[Value]) -> Result<(), Denial> {
    let audience = match audiences {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if pod.at("spec").items("volumes").iter().any(|volume| volume_has_audience(call, pod, volume, audience)) {
        return Ok(());
    }
    let wanted = Attributes {
        verb: "request-serviceaccounts-token-audience",
        namespace: call.namespace(),
        resource: audience,
        name: call.name(),
        ..Attributes::default()
    };
    if matches!(call.server.authorizer.decide(&call.identity, &wanted), Decision::Allow(_)) {
        return Ok(());
    }
    let user = &call.identity.user;
    let why = format!(
        "audience {audience:?} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
    );
    refuse(why)
}

fn volume_has_audience(call: &Call, pod: &Value, volume: &Value, audience: &str) -> bool {
    let store = &call.server.store;
    let mut sources = volume.at("projected").items("sources").iter();
    if sources.any(|source| {
        source.has("serviceAccountToken") && source.at("serviceAccountToken").text("audience") == audience
    }) {
        return true;
    }
    let driver_of = |claim: &str| {
        let claim = store.get("persistentvolumeclaims", &format!("{}/{claim}", call.namespace()))?.to_value();
        let volume = store.get("persistentvolumes", claim.at("spec").text("volumeName"))?.to_value();
        Some(volume.at("spec").at("csi").text("driver").to_owned())
    };
    let driver = if volume.has("csi") {
        Some(volume.at("csi").text("driver").to_owned())
    } else if volume.has("persistentVolumeClaim") {
        driver_of(volume.at("persistentVolumeClaim").text("claimName"))
    } else if volume.has("ephemeral") {
        driver_of(&format!("{}-{}", pod.at("metadata").text("name"), volume.text("name")))
    } else {
        None
    };
    let driver = driver.and_then(|driver| store.get("csidrivers.storage.k8s.io", &driver));
    driver.is_some_and(|driver| {
        let driver = driver.to_value();
        driver.at("spec").items("tokenRequests").iter().any(|request| request.text("audience") == audience)
    })
}

/// The node that makes the request, if one does.
fn node_of(call: &Call) -> Result<Option<&str>, Denial> {
    match node_identity(&call.identity) {
        Some("") => refuse(format!("could not determine node from user {:?}", call.identity.user)),
        node => Ok(node),
    }
}

/// Why something is refused.
enum Denial {
    Forbidden(String),
    Other(ApiError),
}

impl Denial {
    fn into_error(self, call: &Call, name: &str) -> ApiError {
        match self {
            Self::Forbidden(why) => ApiError::forbidden(&call.resource.group, &call.resource.plural, name, &why),
            Self::Other(error) => error,
        }
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Denial> {
    Err(Denial::Forbidden(why.into()))
}

fn pod(call: &Call, node: &str, pod: &Value) -> Result<(), Denial> {
    let metadata = pod.at("metadata");
    if !metadata.at("annotations").has(MIRROR) {
        let why = format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods");
        return refuse(why);
    }
    let only = |what: &str| refuse(format!("node {node:?} can only create pods with {what}"));
    if pod.at("spec").text("nodeName") != node {
        return only("spec.nodeName set to itself");
    }
    let owner = match metadata.items("ownerReferences") {
        [] => return only("an owner reference set to itself"),
        [owner] => owner,
        _ => return only("a single owner reference set to itself"),
    };
    if owner.text("apiVersion") != "v1" || owner.text("kind") != "Node" || owner.text("name") != node {
        return only("an owner reference set to itself");
    }
    if !owner.flag("controller") {
        return only("a controller owner reference set to itself");
    }
    if owner.flag("blockOwnerDeletion") {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let found =
        call.server.store.get("nodes", node).ok_or_else(|| Denial::Other(ApiError::not_found("", "nodes", node)))?;
    let uid = owner.text("uid");
    if *found.index.uid != *uid {
        return refuse(format!("node {node} UID mismatch: expected {uid} got {}", found.index.uid));
    }
    match referenced(pod.at("spec")) {
        Some(what) => refuse(format!("node {node:?} can not create pods that reference {what}")),
        None => Ok(()),
    }
}

/// Objects of the API that a pod refers to.
fn referenced(spec: &Value) -> Option<&'static str> {
    if !spec.text("serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let containers: Vec<&Value> = lists.iter().flat_map(|list| spec.items(list)).collect();
    let names = |source: &str, key: &str| {
        containers.iter().any(|container| {
            container.items("envFrom").iter().any(|from| from.has(source))
                || container.items("env").iter().any(|variable| variable.at("valueFrom").has(key))
        })
    };
    if !spec.items("imagePullSecrets").is_empty() || names("secretRef", "secretKeyRef") {
        return Some("secrets");
    }
    if names("configMapRef", "configMapKeyRef") {
        return Some("configmaps");
    }
    if !spec.items("resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    spec.items("volumes").iter().find_map(referenced_by_volume)
}

fn referenced_by_volume(volume: &Value) -> Option<&'static str> {
    let secrets = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];
    if secrets.iter().any(|source| volume.at(source).has("secretRef")) {
        return Some("secrets");
    }
    for (source, what) in [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ] {
        if volume.has(source) {
            return Some(what);
        }
    }
    let sources = volume.at("projected").items("sources").iter();
    let known = [
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    sources.flat_map(|source| known.iter().filter(|(key, _)| source.has(key))).map(|(_, what)| *what).next()
}

fn pod_status(node: &str, new: &Value, old: &Value) -> Result<(), Denial> {
    if old.at("spec").text("nodeName") != node {
        let why = format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself");
        return refuse(why);
    }
    if new.at("metadata").at("labels") != old.at("metadata").at("labels") {
        return refuse(format!("node {node:?} cannot update labels through pod status"));
    }
    let differs = |field: &str| new.at("status").at(field) != old.at("status").at(field);
    if differs("resourceClaimStatuses") {
        return refuse(format!("node {node:?} cannot update resource claim statues"));
    }
    if differs("extendedResourceClaimStatus") {
        return refuse(format!("node {node:?} cannot update extended resource claim status"));
    }
    Ok(())
}

fn claim_status(node: &str, new: &Value, old: &Value) -> Result<(), Denial> {
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        if let Some(status) = claim["status"].as_object_mut() {
            for field in ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"] {
                status.remove(field);
            }
        }
        if let Some(metadata) = claim["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            metadata.remove("managedFields");
        }
        claim
    };
    if rest(new) == rest(old) {
        return Ok(());
    }
    let why = format!("node {node:?} is not allowed to update fields other than status.quantity and status.conditions");
    refuse(why)
}

fn own_node(node: &str, name: &str, new: &Value, old: Option<&Value>) -> Result<(), Denial> {
    if name != node {
        return refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let source = |object: &Value| object.at("spec").at("configSource").clone();
    let Some(old) = old else {
        if !source(new).is_null() {
            return refuse(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
        }
        let forbidden = forbidden_labels(new, &Value::Null);
        if forbidden.is_empty() {
            return Ok(());
        }
        let why = format!("node {node:?} is not allowed to set the following labels: {}", forbidden.join(", "));
        return refuse(why);
    };
    if !source(new).is_null() && source(new) != source(old) {
        let why = format!("node {node:?} is not allowed to update configSource to a new non-nil configSource");
        return refuse(why);
    }
    if new.at("spec").at("taints") != old.at("spec").at("taints") {
        return refuse(format!("node {node:?} is not allowed to modify taints"));
    }
    if new.at("metadata").at("ownerReferences") != old.at("metadata").at("ownerReferences") {
        return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    let forbidden = forbidden_labels(new, old);
    if forbidden.is_empty() {
        return Ok(());
    }
    refuse(format!("is not allowed to modify labels: {}", forbidden.join(", ")))
}

/// Labels that differ and are not a node's to set, sorted.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (new.at("metadata"), old.at("metadata"));
    let keys: BTreeSet<&str> = new.entries("labels").chain(old.entries("labels")).map(|(key, _)| key).collect();
    let differs = |key: &&str| new.at("labels").at(key) != old.at("labels").at(key);
    keys.into_iter().filter(differs).filter(|key| is_forbidden(key)).map(str::to_owned).collect()
}

fn is_forbidden(label: &str) -> bool {
    const OWN: [&str; 11] = [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    ];
    let Some((domain, _)) = label.split_once('/') else { return false };
    let within = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let is_own = OWN.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    (within("kubernetes.io") || within("k8s.io")) && !is_own
}

fn lease(call: &Call, node: &str, name: &str) -> Result<(), Denial> {
    if call.namespace() != "kube-node-lease" {
        return refuse("can only access leases in the \"kube-node-lease\" system namespace");
    }
    if name != node {
        return refuse("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, name: &str) -> Result<(), Denial> {
    if name != node {
        return refuse("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

fn signing_request(node: &str, object: &Value) -> Result<(), Denial> {
    let spec = object.at("spec");
    if ![KUBELET_CLIENT, KUBELET_SERVING].contains(&spec.text("signerName")) {
        return Ok(());
    }
    let pem = BASE64.decode(spec.text("request")).unwrap_or_default();
    let request = match SigningRequest::from_pem(&pem) {
        Ok(request) => request,
        Err(problem) => return refuse(format!("unable to parse csr: {problem}")),
    };
    if request.common_name != format!("system:node:{node}") {
        return refuse(format!("can only create a node CSR with CN=system:node:{node}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_kubernetes_are_not_a_nodes_to_set() {
        for label in [
            "node-restriction.kubernetes.io/a",
            "x.node-restriction.kubernetes.io/a",
            "kubernetes.io/role",
            "node-role.kubernetes.io/control-plane",
            "foo.k8s.io/a",
        ] {
            assert!(is_forbidden(label), "{label}");
        }
        for label in [
            "role",
            "example.com/role",
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/a",
            "x.kubelet.kubernetes.io/a",
            "mykubernetes.io/a",
        ] {
            assert!(!is_forbidden(label), "{label}");
        }
    }
}
