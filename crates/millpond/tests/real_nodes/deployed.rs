//! What `millpond install controller` prints, applied to a real cluster: two replicas on a real kubelet, under the service
//! account that comes with them, from an image with the binary of this build and nothing else.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use millpond_testkit::machines::Network;
use millpond_testkit::{Access, Image, Kubectl, Process, RealCluster, RealNode};
use serde_json::{Value, json};

use crate::audit::{AuditLog, granted};
use crate::objects::{BOOTSTRAP_TOKEN, apply, bootstrap_token};
use crate::{MILLPOND, PATIENCE, READY};

const IMAGE: &str = "localhost/millpond:test";
const NAMESPACE: &str = "millpond-system";
/// The service account that comes with the deployment.
const ACCOUNT: &str = "system:serviceaccount:millpond-system:millpond-controller";
/// The address of the Service `kubernetes` in the clusters of the test kit.
const KUBERNETES: &str = "10.0.0.1:443";

fn printed(words: &[&str]) -> Result<String> {
    let output = Command::new(MILLPOND).args(words).output().context("run millpond")?;
    ensure!(output.status.success(), "millpond {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// What `kubeadm init` binds, so that nodes can join by token.
fn bindings_for_tokens() -> Value {
    let binding = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        })
    };
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        binding("kubelet-bootstrap", "system:node-bootstrapper", "system:bootstrappers"),
        binding("approve-bootstrap", &format!("{requests}:nodeclient"), "system:bootstrappers"),
        binding("approve-rotation", &format!("{requests}:selfnodeclient"), "system:nodes"),
    ]})
}

/// A node with the image of the controller; its pods reach the API server at the address of its Service.
fn node(network: &Network, cluster: &RealCluster, kubectl: &Kubectl) -> Result<RealNode> {
    let mut node = RealNode::boot(network, "node-1", 2)?;
    let scratch = cluster.folder().join("image");
    std::fs::create_dir_all(&scratch)?;
    node.import(&Image::of_program(IMAGE, Path::new(MILLPOND), &scratch)?)?;
    let server = cluster.access().server.trim_start_matches("https://").to_owned();
    node.serve(KUBERNETES, &server)?;
    apply(kubectl, &bindings_for_tokens())?;
    apply(kubectl, &bootstrap_token())?;
    node.join(&Access { token: Some(BOOTSTRAP_TOKEN.into()), client_pem: None, ..cluster.access().clone() })?;
    kubectl.run(&["wait", "node/node-1", "--for=create", PATIENCE])?;
    kubectl.run(&["wait", "node/node-1", READY, PATIENCE]).with_context(|| log(&node))?;
    Ok(node)
}

fn log(node: &RealNode) -> String {
    let pods = node.machine().sh("tail -n 20 /var/log/pods/*/*/*.log").unwrap_or_default();
    format!("kubelet:\n{}\npods:\n{pods}", node.kubelet().map(Process::log_tail).unwrap_or_default())
}

fn deploy(kubectl: &Kubectl) -> Result<()> {
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &printed(&["install", "crds"])?)?;
    kubectl.run(&["wait", "crds", "--all", "--for=condition=Established", PATIENCE])?;
    kubectl.run_with_input(&["apply", "-f", "-"], &printed(&["install", "controller", "--image", IMAGE])?)?;
    // Both replicas are ready: one leads and has listed everything, the other one follows.
    kubectl.run(&["-n", NAMESPACE, "rollout", "status", "deployment/millpond-controller", PATIENCE]).map(drop)
}

/// The leader plans for a pod: a claim is launched and registered, and the pool counts its node.
fn acts(kubectl: &Kubectl) -> Result<()> {
    let class = json!({
        "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "default"},
        "spec": {"provider": "sim", "catalog": "kwok"},
    });
    let requirements = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]);
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
            "requirements": requirements,
        }}},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits"},
        "spec": {
            "nodeSelector": {"karpenter.sh/nodepool": "default"},
            "containers": [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    for object in [class, pool, pod] {
        apply(kubectl, &object)?;
    }
    kubectl.run(&["wait", "nodepool/default", READY, PATIENCE])?;
    // The nomination itself goes as soon as kube-scheduler has bound the pod, which may be at once.
    kubectl.run(&["wait", "nodepool/default", "--for=jsonpath={.status.nodes}=1", PATIENCE])?;
    let lease = ["-n", NAMESPACE, "get", "lease", "millpond-controller", "-o", "jsonpath={.spec.holderIdentity}"];
    let holder = kubectl.run(&lease)?;
    ensure!(holder.starts_with("millpond-controller-"), "one of the pods leads: {holder}");
    Ok(())
}

/// Beyond loopback the metrics are for those who may read them: the controller asks the API server, with rights of its own.
fn metrics_are_for_those_who_may(kubectl: &Kubectl, node: &RealNode) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reads-metrics"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    });
    apply(kubectl, &role)?;
    for account in ["prometheus", "stranger"] {
        kubectl.run(&["create", "serviceaccount", account])?;
    }
    let binding = ["create", "clusterrolebinding", "reads-metrics", "--clusterrole=reads-metrics"];
    kubectl.run(&[&binding[..], &["--serviceaccount=default:prometheus"]].concat())?;
    let pods = ["-n", NAMESPACE, "get", "pods", "-o", "jsonpath={.items[0].status.podIP}"];
    let address = kubectl.run(&pods)?;
    let code = |token: &str| {
        node.machine().sh(&format!(
            "curl --silent --insecure --output /dev/null --write-out '%{{http_code}}' \
             --header 'Authorization: Bearer {token}' https://{address}:8443/metrics"
        ))
    };
    for (account, expected) in [("prometheus", "200"), ("stranger", "403")] {
        let token = kubectl.run(&["create", "token", account])?;
        let code = code(token.trim())?;
        ensure!(code == expected, "{account} gets {code}");
    }
    let code = code("guess")?;
    ensure!(code == "401", "a token that is not one gets {code}");
    Ok(())
}

/// Rules of the ClusterRole that only a deployed controller needs; the others are counted on a cluster without nodes
/// (`real_pools`), where all settings of pools are played.
const OF_A_DEPLOYMENT: [(&str, &str, &str); 2] =
    [("authentication.k8s.io", "tokenreviews", "create"), ("authorization.k8s.io", "subjectaccessreviews", "create")];
/// Rules of the Role that this suite does not use: there is no GPUInfo that reserves.
const NOT_PLAYED: [(&str, &str, &str); 1] = [("", "pods", "create")];
/// What Kubernetes lets every user ask about itself (`system:basic-user`).
const OF_EVERY_USER: [(&str, &str, &str); 1] = [("authorization.k8s.io", "selfsubjectaccessreviews", "create")];

/// No request was forbidden, and the deployed controllers used each rule that no other suite counts.
fn rights_are_exact(audit: &AuditLog) -> Result<()> {
    let own = |right: &(&str, &str, &str)| (right.0.to_owned(), right.1.to_owned(), right.2.to_owned());
    // The leader renews its Lease after a while.
    audit.wait_for(&own(&("coordination.k8s.io", "leases", "update")))?;
    let used = audit.rights()?;
    let printed: Value =
        serde_json::from_str(&printed(&["install", "controller", "--image", IMAGE, "--output", "json"])?)?;
    let (of_role, of_cluster_role) = (granted(&printed, "Role"), granted(&printed, "ClusterRole"));
    let not_played: BTreeSet<_> = NOT_PLAYED.iter().map(own).collect();
    ensure!(not_played.is_subset(&of_role), "exceptions for rules that are not there: {not_played:?}");
    let expected: BTreeSet<_> = OF_A_DEPLOYMENT.iter().map(own).collect();
    ensure!(expected.is_subset(&of_cluster_role), "the ClusterRole lacks some of {expected:?}");
    let counted = of_role.difference(&not_played).chain(&expected);
    let unused: Vec<_> = counted.filter(|right| !used.contains(*right)).collect();
    ensure!(unused.is_empty(), "`millpond install controller` has rules that no request used: {unused:#?}");
    let mut stray = used;
    let everyone = OF_EVERY_USER.iter().map(own).collect();
    for allowed in [&of_role, &of_cluster_role, &everyone] {
        stray.retain(|right| !allowed.contains(right));
    }
    ensure!(stray.is_empty(), "requests that other roles allowed: {stray:#?}");
    Ok(())
}

#[test]
#[ignore = "needs the real parts"]
fn real_deployment_acts_under_its_service_account() {
    let network = Network::new().unwrap();
    let audit = AuditLog::of(ACCOUNT).unwrap();
    let [policy, log_path] = audit.flags();
    let cluster = RealCluster::builder()
        .address(network.address())
        .apiserver_arg(policy)
        .apiserver_arg(log_path)
        .service_accounts()
        .controller_manager("*")
        .scheduler()
        .start()
        .unwrap();
    let kubectl = cluster.kubectl().unwrap();
    let mut node = node(&network, &cluster, &kubectl).unwrap();
    deploy(&kubectl).with_context(|| log(&node)).unwrap();
    acts(&kubectl).with_context(|| log(&node)).unwrap();
    metrics_are_for_those_who_may(&kubectl, &node).with_context(|| log(&node)).unwrap();
    let budget = ["-n", NAMESPACE, "get", "pdb", "millpond-controller", "-o", "jsonpath={.status.currentHealthy}"];
    assert_eq!(kubectl.run(&budget).unwrap(), "2");
    rights_are_exact(&audit).unwrap();
    let said = log(&node);
    assert!(!said.contains("is forbidden"), "a right is missing: {said}");
    node.ensure_running().unwrap();
}
