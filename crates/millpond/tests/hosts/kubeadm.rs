//! What `kubeadm init` leaves in a cluster for nodes that join, and the bootstrap data of one that does.

use anyhow::Result;
use millpond_testkit::{Access, RealCluster, system_kubelet_configuration};
use serde_json::{Value, json};

/// A bootstrap token for any number of nodes.
const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");
/// The group that such tokens are in.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// The Secret with bootstrap data.
pub(crate) const BOOTSTRAP_DATA: &str = "kubeadm-join";

fn rules(name: &str, namespace: &str, resource: &str, object: &str) -> Value {
    let mut rule = json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
    if !object.is_empty() {
        rule["resourceNames"] = json!([object]);
    }
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": [rule],
    });
    if !namespace.is_empty() {
        role["metadata"]["namespace"] = namespace.into();
    }
    role
}

fn binding(name: &str, namespace: &str, role: (&str, &str), subjects: &[(&str, &str)]) -> Value {
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    let subject =
        |(kind, name): &(&str, &str)| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
        "subjects": subjects.iter().map(subject).collect::<Vec<_>>(),
    });
    if !namespace.is_empty() {
        binding["metadata"]["namespace"] = namespace.into();
    }
    binding
}

fn config_map(name: &str, namespace: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data})
}

/// The kubeconfig that users without credentials may read: an address and a CA, and no user.
fn cluster_info(access: &Access) -> Value {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(&access.ca_pem);
    json!({
        "apiVersion": "v1", "kind": "Config", "contexts": null, "current-context": "", "preferences": {}, "users": null,
        "clusters": [{"name": "", "cluster": {"server": access.server, "certificate-authority-data": ca}}],
    })
}

/// Applies everything.
pub(crate) fn init(cluster: &RealCluster) -> Result<()> {
    let access = cluster.access();
    let configuration = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration",
        "kubernetesVersion": millpond_testkit::real::kubernetes_version()?,
        "controlPlaneEndpoint": access.server.trim_start_matches("https://"),
        "networking": {"serviceSubnet": "10.0.0.0/16", "dnsDomain": "cluster.local"},
    });
    let readers = [("Group", GROUP), ("Group", "system:nodes")];
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    let mut objects = vec![
        config_map("cluster-info", "kube-public", json!({"kubeconfig": cluster_info(access).to_string()})),
        config_map("kubeadm-config", "kube-system", json!({"ClusterConfiguration": configuration.to_string()})),
        config_map("kubelet-config", "kube-system", json!({"kubelet": system_kubelet_configuration().to_string()})),
        binding("kubeadm:kubelet-bootstrap", "", ("ClusterRole", "system:node-bootstrapper"), &[("Group", GROUP)]),
        binding(
            "kubeadm:node-autoapprove",
            "",
            ("ClusterRole", &format!("{requests}:nodeclient")),
            &[("Group", GROUP)],
        ),
        binding(
            "kubeadm:node-rotation",
            "",
            ("ClusterRole", &format!("{requests}:selfnodeclient")),
            &[("Group", "system:nodes")],
        ),
    ];
    for (name, namespace, resource, object, subjects) in [
        ("kubeadm:get-nodes", "", "nodes", "", &[("Group", GROUP)][..]),
        ("kubeadm:kubeadm-config", "kube-system", "configmaps", "kubeadm-config", &readers),
        ("kubeadm:kubelet-config", "kube-system", "configmaps", "kubelet-config", &readers),
        ("kubeadm:cluster-info", "kube-public", "configmaps", "cluster-info", &[("User", "system:anonymous")]),
    ] {
        let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
        objects.push(rules(name, namespace, resource, object));
        objects.push(binding(name, namespace, (kind, name), subjects));
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{}", TOKEN.0), "namespace": "kube-system"},
        "stringData": {
            "token-id": TOKEN.0, "token-secret": TOKEN.1, "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true", "auth-extra-groups": GROUP,
        },
    }));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    cluster.kubectl()?.run_with_input(&["apply", "-f", "-"], &list.to_string()).map(drop)
}

/// The Secret with the cloud-config of a node that joins: the file and the command that Cluster API's bootstrap provider
/// writes.
pub(crate) fn bootstrap_data(cluster: &str, access: &Access, ca_hash: &str) -> Value {
    let configuration = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {
            "apiServerEndpoint": access.server.trim_start_matches("https://"),
            "token": format!("{}.{}", TOKEN.0, TOKEN.1), "caCertHashes": [ca_hash],
        }},
        "nodeRegistration": {
            "name": "{{ ds.meta_data.local_hostname }}", "criSocket": "unix:///run/containerd/containerd.sock",
            // A container is no machine to its checks: modules, swap and settings of the kernel are those of the box.
            "ignorePreflightErrors": ["all"],
        },
    });
    let file = "/run/kubeadm/kubeadm-join-config.yaml";
    let value = format!(
        "## template: jinja\n#cloud-config\nwrite_files:\n- path: {file}\n  owner: root:root\n  permissions: '0640'\n  \
         content: |\n    {configuration}\n- path: /run/cluster-api/placeholder\n  owner: root:root\n  permissions: '0640'\n  \
         content: This placeholder file is used to create the /run/cluster-api sub directory\nruncmd:\n\
         - kubeadm join --config {file} && echo success > /run/cluster-api/bootstrap-success.complete\n"
    );
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": BOOTSTRAP_DATA, "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": cluster},
        },
        "stringData": {"value": value, "format": "cloud-config"},
    })
}
