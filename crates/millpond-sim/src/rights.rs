//! The rules of a cluster role for stand-ins: exactly the rights that they need in a cluster with authorization.

use serde_json::{Value, json};

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];
const STATUS: &[&str] = &["patch"];

/// Group, resources, verbs.
const RULES: &[(&str, &[&str], &[&str])] = &[
    ("", &["namespaces", "services"], READ),
    ("", &["nodes", "persistentvolumeclaims", "persistentvolumes", "pods"], WRITE),
    ("", &["nodes/status", "persistentvolumeclaims/status", "persistentvolumes/status", "pods/status"], STATUS),
    ("", &["pods/binding", "pods/eviction"], &["create"]),
    // Bootstrap data of machines.
    ("", &["secrets"], &["create"]),
    ("apps", &["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"], WRITE),
    ("apps", &["daemonsets/status", "deployments/status", "replicasets/status", "statefulsets/status"], STATUS),
    ("batch", &["jobs"], WRITE),
    ("batch", &["jobs/status"], STATUS),
    ("coordination.k8s.io", &["leases"], WRITE),
    ("events.k8s.io", &["events"], &["create", "patch"]),
    ("policy", &["poddisruptionbudgets"], READ),
    ("policy", &["poddisruptionbudgets/status"], STATUS),
    ("scheduling.k8s.io", &["priorityclasses"], READ),
    ("storage.k8s.io", &["storageclasses", "volumeattachments"], READ),
    // Cluster API: its own kinds, and those of providers, which have any names.
    ("cluster.x-k8s.io", &["*"], WRITE),
    ("infrastructure.cluster.x-k8s.io", &["*"], WRITE),
    ("bootstrap.cluster.x-k8s.io", &["*"], WRITE),
    ("controlplane.cluster.x-k8s.io", &["*"], WRITE),
    ("run.tanzu.vmware.com", &["*"], WRITE),
];

/// The rules.
pub fn rules() -> Vec<Value> {
    let rule = |(group, resources, verbs): &(&str, &[&str], &[&str])| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    RULES.iter().map(rule).collect()
}
