//! CapacityBuffers: how many pods they stand for, and what these are like.

use millpond_plan::model::{DoNotDisrupt, PodKind, PodState, Snapshot};
use millpond_state::{Options, Unresolved, buffer_of};

use crate::support::{read, snapshot, taken, words};

const TEMPLATE: &str = "
---
apiVersion: v1
kind: PodTemplate
metadata: {name: chunk, namespace: shop}
template:
  metadata: {labels: {app: web}, annotations: {karpenter.sh/do-not-disrupt: 'true'}}
  spec:
    nodeSelector: {kubernetes.io/os: linux}
    priorityClassName: system-node-critical
    nodeName: somewhere
    schedulingGates: [{name: later}]
    volumes:
    - {name: data, persistentVolumeClaim: {claimName: none}}
    - {name: own, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: none}}}}
    containers:
    - {name: a, resources: {requests: {cpu: 500m, memory: 1Gi}}}
    - {name: b, resources: {requests: {cpu: 500m}}}
";

fn buffer(name: &str, spec: &str) -> String {
    format!(
        "\n---\n{{apiVersion: autoscaling.x-k8s.io/v1beta1, kind: CapacityBuffer, metadata: {{name: {name}, namespace: shop}}, spec: {{{spec}}}}}\n"
    )
}

fn workload(kind: &str, replicas: &str) -> String {
    format!(
        "\n---\n{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: web, namespace: shop}}, spec: {{{replicas} selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 2}}}}}}]}}}}}}}}\n"
    )
}

/// How many pods the buffer `b` stands for.
fn size(text: &str) -> Result<u32, Unresolved> {
    let reading = read(text);
    assert_eq!((reading.errors, reading.warnings), (vec![], vec![]));
    let size = reading.state.buffer("shop", "b").expect("there");
    let made = reading.state.snapshot(0, &Options::default()).snapshot.pods.len();
    assert_eq!(made, size.clone().unwrap_or(0) as usize, "as many pods as are told");
    size
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    (0..snapshot.pods.len()).map(|pod| snapshot.pod_name(pod.into())).collect()
}

#[test]
fn pods_of_a_template() {
    let text = format!("{TEMPLATE}{}", buffer("warm", "podTemplateRef: {name: chunk}, replicas: 2"));
    let snapshot = snapshot(&text);
    assert_eq!(names(&snapshot), ["shop/capacity-buffer-warm-1", "shop/capacity-buffer-warm-2"]);
    assert_eq!(buffer_of(&snapshot.pods[1].name), Some("warm"));
    assert!(snapshot.pods.iter().all(|pod| pod.state == PodState::Pending && pod.node.is_none()));
    let class = snapshot.class_of(0.into());
    assert_eq!(words(&class.requests, &snapshot), format!("cpu=1000 memory={}", 1 << 30));
    assert_eq!((class.kind, class.priority, class.preempts), (PodKind::Buffer, i32::MIN, false));
    // Real pods bring volumes and may opt out of disruption; placeholder pods do not.
    assert_eq!((class.volume_terms.len(), &class.problem, class.do_not_disrupt), (0, &None, DoNotDisrupt::No));
    assert_eq!(class.node_terms.len(), 1);
    assert!(!class.node_terms[0].is_empty(), "the node selector holds");
}

#[test]
fn numbers_shares_and_limits() {
    let template = |spec: &str| {
        size(&format!("{TEMPLATE}{}", buffer("b", &format!("podTemplateRef: {{name: chunk}}, {spec}")))).unwrap()
    };
    assert_eq!(template("replicas: 3"), 3);
    assert_eq!(template("limits: {cpu: 2500m}"), 2);
    assert_eq!(template("replicas: 5, limits: {cpu: 10, memory: 3Gi}"), 3);
    assert_eq!(
        template("replicas: 5, limits: {example.com/gpu: 1}"),
        5,
        "a limit on a resource that is not requested limits nothing"
    );
    assert_eq!(template("replicas: 5, limits: {cpu: 999m}"), 0);
    assert_eq!(template("limits: {pods: 4}"), 4);
    let scaled = |kind: &str, replicas: &str, spec: &str| {
        let reference = format!("scalableRef: {{apiGroup: apps, kind: {kind}, name: web}}, {spec}");
        size(&format!("{}{}", workload(kind, replicas), buffer("b", &reference))).unwrap()
    };
    assert_eq!(scaled("Deployment", "replicas: 10,", "percentage: 20"), 2);
    assert_eq!(scaled("StatefulSet", "replicas: 3,", "percentage: 50"), 2);
    assert_eq!(scaled("ReplicaSet", "", "percentage: 1"), 1, "one replica where none is said");
    assert_eq!(scaled("Deployment", "replicas: 0,", "percentage: 50"), 0);
    assert_eq!(scaled("Deployment", "replicas: 10,", "percentage: 20, replicas: 5"), 5, "the greater of the two");
    assert_eq!(scaled("Deployment", "replicas: 10,", "percentage: 50, limits: {cpu: 6}"), 3);
    assert_eq!(scaled("Deployment", "replicas: 10,", "limits: {cpu: 6}"), 3);
    assert_eq!(scaled("Deployment", "replicas: 10,", ""), 0);
}

#[test]
fn what_is_not_there_is_told() {
    let of = |spec: &str| size(&buffer("b", spec)).unwrap_err().to_string();
    assert_eq!(of("replicas: 1"), "neither `podTemplateRef` nor `scalableRef` is set");
    assert_eq!(of("replicas: 1, podTemplateRef: {name: x}"), "there is no PodTemplate `x` in its namespace");
    assert_eq!(of("scalableRef: {kind: Deployment, name: x}"), "there is no Deployment `x` in its namespace");
    let unknown = "is none of the kinds that a buffer can be for: Deployment, ReplicaSet and StatefulSet of `apps`";
    assert_eq!(of("scalableRef: {apiGroup: apps, kind: DaemonSet, name: x}"), format!("`apps/DaemonSet` {unknown}"));
    assert_eq!(of("scalableRef: {apiGroup: x.io, kind: Deployment, name: x}"), format!("`x.io/Deployment` {unknown}"));
    let taken = taken(&buffer("b", "replicas: 1, podTemplateRef: {name: x}"), &Options::default());
    let notes: Vec<String> = taken.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        ["test.yaml:3:1: capacity buffer `shop/b` keeps no room: there is no PodTemplate `x` in its namespace"]
    );
}

#[test]
fn others_fill_buffers_of_other_strategies() {
    let spec = "podTemplateRef: {name: chunk}, replicas: 1";
    let ours =
        format!("{TEMPLATE}{}", buffer("b", &format!("{spec}, provisioningStrategy: buffer.x-k8s.io/active-capacity")));
    assert_eq!(snapshot(&ours).pods.len(), 1);
    let theirs = ours.replace("active-capacity", "frozen-capacity");
    assert_eq!(snapshot(&theirs).pods.len(), 0);
    assert_eq!(read(&theirs).state.buffer("shop", "b"), None);
    assert_eq!(read(&ours).state.buffer("shop", "c"), None);
}

#[test]
fn pods_of_several_buffers_of_one_template_are_alike() {
    let spec = "podTemplateRef: {name: chunk}, replicas: 2";
    let snapshot = snapshot(&format!("{TEMPLATE}{}{}", buffer("a", spec), buffer("b", spec)));
    assert_eq!(snapshot.pods.len(), 4);
    assert!(snapshot.pods.iter().all(|pod| pod.class == snapshot.pods[0].class));
}

#[test]
fn misspelt_fields_are_told() {
    let text = buffer("b", "podTemplateRef: {nmae: chunk, name: x}, replica: 1");
    let warnings: Vec<String> = read(&text).warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings
            .iter()
            .any(|warning| warning.ends_with("is unknown to CapacityBuffer and skipped; is `replicas` meant?"))
    );
}
