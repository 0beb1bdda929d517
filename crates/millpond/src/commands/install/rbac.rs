//! `millpond install rbac`: the service account of the controller, and the rights that it needs.
//!
//! [`RULES`] is the one list of what controllers read and write in a cluster. A controller that begins to use another verb
//! adds it here; a suite on a real cluster runs the controller with exactly these rules and compares them with the
//! requests that it made.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};

use super::Output;
use crate::commands::lead;

/// The name of the service account, the roles and the bindings.
pub(crate) const NAME: &str = "millpond-controller";
/// Where the controller runs unless the arguments name another namespace.
pub(super) const NAMESPACE: &str = "millpond-system";

const READ: &[&str] = &["list", "watch"];
const STATUS: &[&str] = &["patch"];

/// Group, resources, verbs: what controllers do in the whole cluster.
const RULES: &[(&str, &[&str], &[&str])] = &[
    // Kinds that planning reads.
    ("", &["limitranges", "persistentvolumeclaims", "persistentvolumes", "podtemplates"], READ),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"], READ),
    ("policy", &["poddisruptionbudgets"], READ),
    ("scheduling.k8s.io", &["priorityclasses"], READ),
    ("storage.k8s.io", &["csinodes", "storageclasses", "volumeattachments"], READ),
    // Catalogues of instance types, by label.
    ("", &["configmaps"], READ),
    // Nodes: the provider registers them, termination drains and removes them.
    ("", &["nodes"], &["create", "delete", "get", "list", "patch", "watch"]),
    // Pods that claim a reservation are pinned to its node.
    ("", &["pods"], &["delete", "get", "list", "patch", "watch"]),
    ("", &["pods/eviction"], &["create"]),
    ("", &["pods/status"], STATUS),
    // Advice goes into a namespace that may not be there yet.
    ("", &["namespaces"], &["create", "list", "watch"]),
    ("events.k8s.io", &["events"], &["create"]),
    // Pools and claims.
    ("karpenter.sh", &["nodeclaims"], &["create", "delete", "get", "list", "patch", "watch"]),
    ("karpenter.sh", &["nodepools"], &["get", "list", "patch", "watch"]),
    ("karpenter.sh", &["nodeoverlays"], READ),
    ("karpenter.sh", &["nodeclaims/status", "nodeoverlays/status", "nodepools/status"], STATUS),
    ("millpond.dev", &["clusterlimits"], &["get", "list", "patch", "watch"]),
    ("millpond.dev", &["nodeclasses"], READ),
    ("millpond.dev", &["nodeclasses/status"], STATUS),
    ("autoscaling.x-k8s.io", &["capacitybuffers"], READ),
    ("autoscaling.x-k8s.io", &["capacitybuffers/status"], STATUS),
    // Advice.
    ("sa.gardener.cloud", &["scalingadvices"], &["create", "list", "patch", "watch"]),
    ("sa.gardener.cloud", &["scalingconstraints", "scalingfeedbacks"], READ),
    ("sa.gardener.cloud", &["scalingadvices/status", "scalingconstraints/status"], STATUS),
    // Node groups of Cluster API, and the templates that say what a machine of theirs has.
    ("cluster.x-k8s.io", &["clusters"], READ),
    (
        "cluster.x-k8s.io",
        &["machinedeployments", "machinepools", "machines", "machinesets"],
        &["list", "patch", "watch"],
    ),
    (
        "infrastructure.cluster.x-k8s.io",
        &[
            "awsmachinetemplates",
            "azuremachinetemplates",
            "byomachinetemplates",
            "dockermachinetemplates",
            "vspheremachinetemplates",
        ],
        &["get"],
    ),
    // GPU jobs: the answers, and what they are made from. The definition is watched because it can go and come back.
    ("topology.corinternal.com", &["gpuinfoes"], READ),
    ("topology.corinternal.com", &["gpuinfoes/status"], STATUS),
    ("millpond.dev", &["maintenancewindows"], READ),
    ("millpond.dev", &["maintenancewindows/status"], STATUS),
    ("metrics.k8s.io", &["nodes"], &["list"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"], READ),
    // Authenticates readers of the metrics.
    ("authentication.k8s.io", &["tokenreviews"], &["create"]),
    ("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];

/// Arguments of `millpond install rbac`.
#[derive(Debug, Args)]
pub(crate) struct RbacArgs {
    /// Namespace of the service account
    #[arg(short, long, value_name = "NAMESPACE", default_value = NAMESPACE)]
    namespace: String,
    /// Secret of the namespace with the address and the credentials of vCenter
    #[arg(long, value_name = "NAME")]
    vsphere_secret: Option<String>,
    /// Leave out the rights of a dialect that this cluster does not use
    #[arg(long, value_name = "DIALECT")]
    without: Vec<Dialect>,
    /// How to print them
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Output,
}

/// Prints namespace, service account, roles and bindings.
pub(super) fn run(args: &RbacArgs, out: &mut impl Write) -> anyhow::Result<()> {
    super::print_objects(&objects(&args.namespace, args.vsphere_secret.as_deref(), &args.without), args.output, out)
}

/// Dialects that need rights on Secrets, which a cluster need not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dialect {
    /// BYOH kinds and host agents
    OwnHosts,
    /// Requests for CI nodes
    CiNodes,
}

/// Namespace, service account, roles and bindings; the rights of hosts, and the policy that bounds them.
pub(crate) fn objects(namespace: &str, vsphere_secret: Option<&str>, without: &[Dialect]) -> Vec<Value> {
    let mut objects = of_controller(namespace, vsphere_secret, without);
    if !without.contains(&Dialect::OwnHosts) {
        objects.extend(millpond_hosts::rights::objects());
    }
    objects
}

/// What the controllers themselves need: namespace, service account, roles and bindings. Without a Secret of the
/// namespace, that of the GPUInfo tutorial may be read, wherever it is.
pub(crate) fn of_controller(namespace: &str, vsphere_secret: Option<&str>, without: &[Dialect]) -> Vec<Value> {
    let mut rules: Vec<Value> = RULES.iter().map(|(group, resources, verbs)| rule(group, resources, verbs)).collect();
    let secret =
        |name: &str| json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": READ});
    let subjects = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]);
    // A create cannot be limited to a name.
    let mut own = vec![
        rule("coordination.k8s.io", &["leases"], &["create"]),
        json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [lead::LEASE],
            "verbs": ["get", "update"],
        }),
        // Pods that hold reserved GPUs on their nodes.
        rule("", &["pods"], &["create"]),
    ];
    match vsphere_secret {
        Some(name) => own.push(secret(name)),
        None => rules.push(secret(millpond_gpu::credentials::SECRET.1)),
    }
    let role_ref = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": NAME, "namespace": namespace, "labels": labels()},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": NAME, "labels": labels()}, "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME, "labels": labels()}, "roleRef": role_ref("ClusterRole"), "subjects": subjects,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": NAME, "namespace": namespace, "labels": labels()}, "rules": own,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": NAME, "namespace": namespace, "labels": labels()},
            "roleRef": role_ref("Role"), "subjects": subjects,
        }),
    ];
    if !without.contains(&Dialect::OwnHosts) {
        objects.extend(of_hosts(&subjects));
    }
    if !without.contains(&Dialect::CiNodes) {
        objects.extend(of_ci(&subjects));
    }
    objects
}

/// The rights of launcher and builder on objects, and of the controller of SoftwareFactories. What drivers do with pods
/// and namespaces is among the rights of the contexts that the configuration names.
fn of_ci(subjects: &Value) -> Vec<Value> {
    const NAME: &str = "millpond-ci-controller";
    let all = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let kinds = ["noderequests", "cinodes", "diskimages", "imagebuilds", "imageuploads"];
    let statuses = kinds.map(|kind| format!("{kind}/status"));
    let factories = "sf.softwarefactory-project.io";
    let rules = json!([
        rule("millpond.dev", &kinds, &all),
        rule("millpond.dev", &statuses.each_ref().map(String::as_str), &["get", "patch", "update"]),
        rule(factories, &["softwarefactories"], &["get", "list", "patch", "update", "watch"]),
        rule(factories, &["softwarefactories/status"], &["get", "patch", "update"]),
        rule("", &["configmaps", "secrets", "serviceaccounts", "services"], &all),
        rule("apps", &["deployments", "statefulsets"], &all),
        rule("policy", &["poddisruptionbudgets"], &all),
        rule("networking.k8s.io", &["ingresses"], &all),
        rule("coordination.k8s.io", &["leases"], &all),
    ]);
    bound(NAME, &rules, subjects)
}

/// A ClusterRole with its binding.
fn bound(name: &str, rules: &Value, subjects: &Value) -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io/v1";
    vec![
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name, "labels": labels()}, "rules": rules}),
        json!({
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": name, "labels": labels()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": subjects,
        }),
    ]
}

/// The rights of the controllers of own hosts: to steer the kinds, to let hosts in, and to give each host what is its
/// own.
fn of_hosts(subjects: &Value) -> Vec<Value> {
    const NAME: &str = "millpond-host-controller";
    let hosts = "infrastructure.cluster.x-k8s.io";
    let roles = ["create", "delete", "get", "list", "patch", "watch"];
    let kinds = [
        "bootstrapkubeconfigs",
        "bootstrapkubeconfigtemplates",
        "byoclusters",
        "byohosts",
        "byomachines",
        "byomachinetemplates",
        "k8sinstallerconfigs",
        "k8sinstallerconfigtemplates",
    ];
    let statuses = kinds.map(|kind| format!("{kind}/status"));
    let rules = json!([
        rule("certificates.k8s.io", &["certificatesigningrequests"], &["list", "watch"]),
        rule("certificates.k8s.io", &["certificatesigningrequests/approval"], &["patch", "update"]),
        {
            "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"],
            "resourceNames": ["kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet"],
        },
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], &roles),
        // Tokens, and what the Roles of hosts give: a Role gives nothing that its author may not do.
        rule("", &["secrets"], &["create", "delete", "get", "list", "patch", "update", "watch"]),
        rule(hosts, &kinds, &roles),
        rule(hosts, &statuses.each_ref().map(String::as_str), &["get", "patch"]),
        rule("coordination.k8s.io", &["leases"], &["create", "get", "list", "patch", "update", "watch"]),
        // The configuration of kubelets and the certificate of the API server.
        rule("", &["configmaps"], &["get"]),
    ]);
    bound(NAME, &rules, subjects)
}

/// The labels of everything that is installed.
pub(super) fn labels() -> Value {
    json!({"app.kubernetes.io/name": "millpond", "app.kubernetes.io/component": "controller"})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_rule_has_a_wildcard_or_reads_secrets() {
        for (group, resources, verbs) in RULES {
            let words = resources.iter().chain(*verbs).chain([group]);
            assert!(words.clone().all(|word| *word != "*"), "{group} {resources:?}");
            assert!(!resources.contains(&"secrets"), "{group}");
        }
    }

    #[test]
    fn a_resource_stands_in_one_rule() {
        let mut seen = BTreeSet::new();
        for (group, resources, _) in RULES {
            for resource in *resources {
                assert!(seen.insert((group, resource)), "{group} {resource}");
            }
        }
    }
}
