//! Workloads: daemons on every node, and pods of those that have none yet.

use millpond_plan::model::{PodKind, PodState, Problem, Snapshot};
use millpond_state::Options;

use crate::support::{snapshot, taken, words};

fn workload(kind: &str, name: &str, spec: &str) -> String {
    let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    format!(
        "---\n{{apiVersion: {group}, kind: {kind}, metadata: {{name: {name}, namespace: shop}}, spec: {{selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{containers: [{{name: c, resources: {{limits: {{cpu: 1}}}}}}]}}}}, {spec}}}}}\n"
    )
}

fn expanded(text: &str) -> Snapshot {
    taken(text, &Options { expand_workloads: true, ..Options::default() }).snapshot
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    (0..snapshot.pods.len()).map(|pod| snapshot.pod_name(pod.into())).collect()
}

#[test]
fn daemons() {
    let snapshot = snapshot(&workload("DaemonSet", "agent", ""));
    assert_eq!((snapshot.pods.len(), snapshot.daemons.len()), (0, 1));
    let class = &snapshot.classes[snapshot.daemons[0].index()];
    assert_eq!((class.kind, words(&class.requests, &snapshot)), (PodKind::Daemon, "cpu=1000".into()));
    let keys: Vec<&str> = class.tolerations.iter().filter_map(|it| it.key).map(|key| snapshot.text(key)).collect();
    assert_eq!(keys.len(), 6);
    assert!(keys.contains(&"node.kubernetes.io/unschedulable"));
}

#[test]
fn daemons_at_home_share_a_class() {
    let mut text = workload("DaemonSet", "agent", "");
    for index in 0..3 {
        text.push_str(&format!("---\n{{apiVersion: v1, kind: Node, metadata: {{name: n{index}}}}}\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: agent-{index}, namespace: shop, ownerReferences: [{{kind: DaemonSet, name: agent, uid: u, controller: true}}]}}, spec: {{nodeName: n{index}, affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchFields: [{{key: metadata.name, operator: In, values: [n{index}]}}]}}]}}}}}}, containers: [{{name: c, resources: {{limits: {{cpu: 1}}}}}}]}}}}\n"));
    }
    let snapshot = snapshot(&text);
    assert_eq!(snapshot.pods.len(), 3);
    assert!(snapshot.pods.iter().all(|pod| pod.class == snapshot.pods[0].class));
}

#[test]
fn pods_of_workloads_that_have_none() {
    let text = [
        workload("Deployment", "web", "replicas: 2"),
        workload("StatefulSet", "db", ""),
        workload("ReplicaSet", "old", "replicas: 0"),
        workload("Job", "sum", "parallelism: 5, completions: 3"),
        workload("Job", "wait", "parallelism: 5, suspend: true"),
        workload("DaemonSet", "agent", ""),
    ]
    .concat();
    assert_eq!(snapshot(&text).pods.len(), 0);
    let snapshot = expanded(&text);
    assert_eq!(names(&snapshot), ["shop/db-0", "shop/sum-0", "shop/sum-1", "shop/sum-2", "shop/web-0", "shop/web-1"]);
    assert!(snapshot.pods.iter().all(|pod| pod.state == PodState::Pending && pod.node.is_none()));
    assert!(snapshot.classes.iter().all(|class| matches!(class.kind, PodKind::Workload | PodKind::Daemon)));
}

#[test]
fn workloads_that_have_pods_get_no_more() {
    let pod = "---\n{apiVersion: v1, kind: Pod, metadata: {name: web-x, namespace: shop, labels: {app: web}}, spec: {containers: []}}\n";
    let deployment = workload("Deployment", "web", "replicas: 2");
    assert_eq!(names(&expanded(&format!("{deployment}{pod}"))), ["shop/web-x"]);
    // A Deployment and its ReplicaSet are the same pods.
    let set = workload("ReplicaSet", "web-1", "replicas: 3").replace(
        "namespace: shop}",
        "namespace: shop, ownerReferences: [{kind: Deployment, name: web, uid: u, controller: true}]}",
    );
    assert_eq!(names(&expanded(&format!("{deployment}{set}"))), ["shop/web-1-0", "shop/web-1-1", "shop/web-1-2"]);
}

#[test]
fn workloads_of_a_saved_cluster_get_no_more_either() {
    let listed = format!("namespace: shop, annotations: {{{}: 'true'}}}}", millpond_state::PODS_LISTED);
    for kind in ["ReplicaSet", "StatefulSet", "Deployment", "Job"] {
        let text = workload(kind, "web", "replicas: 2, parallelism: 2");
        assert_eq!(expanded(&text).pods.len(), 2, "{kind}");
        assert_eq!(expanded(&text.replacen("namespace: shop}", &listed, 1)).pods.len(), 0, "{kind}");
    }
}

#[test]
fn claims_of_a_stateful_set() {
    let class = "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: x, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [a]}]}]}\n";
    let set = workload(
        "StatefulSet",
        "db",
        "replicas: 2, volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]",
    );
    let with_class = expanded(&format!("{class}{set}"));
    let lowered = with_class.class_of(0.into());
    assert_eq!((lowered.problem.clone(), lowered.volume_terms.len(), with_class.classes.len()), (None, 1, 2));
    let without = expanded(&set);
    assert_eq!(without.class_of(0.into()).problem, Some(Problem::StorageClassMissing("fast".into())));
}
