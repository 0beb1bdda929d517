//! What every cluster with own hosts has once: the namespace of the Leases, the rights of tokens and of hosts as a group,
//! and the ValidatingAdmissionPolicy that keeps a host to its own objects.

use millpond_api::byoh::names::LEASE_NAMESPACE;
use serde_json::{Value, json};

use crate::join::BOOTSTRAP_GROUP;
use crate::token;

/// Group of all hosts.
const HOSTS: &str = "byoh:hosts";
const POLICY: &str = "millpond-hosts";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// All objects, in the order in which they are applied.
pub fn objects() -> Vec<Value> {
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}})];
    let requests = json!({
        "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
        // Kubelet lists and watches for the answer to its request.
        "verbs": ["create", "get", "list", "watch"],
    });
    for (name, group) in
        [("millpond-host-bootstrappers", token::GROUP), ("millpond-kubelet-bootstrappers", BOOTSTRAP_GROUP)]
    {
        objects.extend(granted(name, group, json!([requests])));
    }
    let own_requests = json!({
        "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"],
    });
    // A create cannot be limited to a name; the policy does.
    let create = json!({
        "apiGroups": ["infrastructure.cluster.x-k8s.io"], "resources": ["byohosts"], "verbs": ["create"],
    });
    objects.extend(granted("millpond-hosts", HOSTS, json!([own_requests, create])));
    objects.extend([policy(), binding()]);
    objects
}

fn granted(name: &str, group: &str, rules: Value) -> [Value; 2] {
    [
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        }),
    ]
}

fn policy() -> Value {
    let rule = |group: &str, resources: &[&str], operations: &[&str]| json!({"apiGroups": [group], "apiVersions": ["*"], "resources": resources, "operations": operations});
    let same = |field: &str| {
        format!("(has(object.{field}) ? object.{field} : {{}}) == (has(oldObject.{field}) ? oldObject.{field} : {{}})")
    };
    let same_text = |field: &str| {
        format!(
            "!has(object.status) || !has(object.status.{field}) || (has(oldObject.status) && \
             has(oldObject.status.{field}) && object.status.{field} == oldObject.status.{field})"
        )
    };
    let is_host = "request.resource.resource == 'byohosts'";
    let is_new = "request.operation == 'CREATE'";
    let is_status = "request.subResource == 'status'";
    let validation = |expression: String, message: &str| json!({"expression": expression, "message": message, "reason": "Forbidden"});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                rule("infrastructure.cluster.x-k8s.io", &["byohosts", "byohosts/status"], &["CREATE", "UPDATE"]),
                rule("coordination.k8s.io", &["leases"], &["CREATE", "UPDATE"]),
            ]},
            "matchConditions": [{
                "name": "of-a-host", "expression": format!("request.userInfo.groups.exists(group, group == '{HOSTS}')"),
            }],
            "validations": [
                validation(
                    "request.userInfo.username == 'byoh:host:' + object.metadata.name".to_owned(),
                    "a host may write objects of its own name only",
                ),
                validation(
                    format!("!({is_host} && {is_new}) || (!has(object.spec.claim) && !has(object.spec.bootstrapSecret) \
                             && !has(object.spec.installationSecret) && !has(object.metadata.finalizers))"),
                    "a host may not give itself to a machine",
                ),
                validation(
                    format!("!({is_host} && {is_new}) || !has(object.metadata.labels) || \
                             !('cluster.x-k8s.io/cluster-name' in object.metadata.labels)"),
                    "a host may not give itself to a cluster",
                ),
                validation(
                    format!("!({is_host} && !({is_new}) && !({is_status})) || (({}) && ({}) && ({}))",
                            same("metadata.labels"), same("metadata.annotations"), same("spec")),
                    "a host may not change labels, annotations or spec of its ByoHost",
                ),
                validation(
                    format!("!({is_host} && {is_status}) || (({}) && ({}) && ({}))",
                            same_text("state"), same_text("machineRef"), same_text("pool")),
                    "state, machineRef and pool of a ByoHost are written by controllers",
                ),
            ],
        },
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY}, "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    })
}
