//! Claims, volumes and what drivers can attach.

use millpond_plan::model::{PodClass, Problem, Snapshot};
use millpond_plan::requirement::Requirements;

use crate::support::snapshot;

const STORAGE: &str = "
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: waits}, provisioner: ebs.csi.aws.com, volumeBindingMode: WaitForFirstConsumer,
 allowedTopologies: [{matchLabelExpressions: [{key: topology.ebs.csi.aws.com/zone, values: [a, b]}]}]}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: anywhere, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: kubernetes.io/aws-ebs, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: now}, provisioner: x}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: in-a}, spec: {claimRef: {name: bound}, csi: {driver: ebs.csi.aws.com}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]}]}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: old, labels: {failure-domain.beta.kubernetes.io/zone: a__b}}, spec: {claimRef: {name: old}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk-1}, spec: {storageClassName: local, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [one]}]}]}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk-2}, spec: {storageClassName: local, claimRef: {name: other}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [two]}]}]}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaimList, items: [
 {metadata: {name: bound}, spec: {volumeName: in-a, storageClassName: waits}},
 {metadata: {name: old}, spec: {volumeName: old}},
 {metadata: {name: lost}, spec: {volumeName: nowhere}},
 {metadata: {name: waiting}, spec: {storageClassName: waits}},
 {metadata: {name: default}, spec: {}},
 {metadata: {name: immediate}, spec: {storageClassName: now}},
 {metadata: {name: none}, spec: {storageClassName: ''}},
 {metadata: {name: strange}, spec: {storageClassName: unheard}},
 {metadata: {name: disk}, spec: {storageClassName: local}},
 {metadata: {name: one-pod}, spec: {volumeName: in-a, accessModes: [ReadWriteOncePod]}}]}
---
{apiVersion: v1, kind: Node, metadata: {name: one}, status: {capacity: {cpu: 4}}}
---
{apiVersion: v1, kind: Node, metadata: {name: two}, status: {capacity: {cpu: 4}}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: one}, spec: {drivers: [{name: ebs.csi.aws.com, nodeID: i-1, allocatable: {count: 25}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: holder}, spec: {nodeName: one, containers: [], volumes: [{name: v, persistentVolumeClaim: {claimName: one-pod}}]}}
---
";

fn words(term: &Requirements, snapshot: &Snapshot) -> String {
    let symbols = &snapshot.symbols;
    let all: Vec<String> =
        term.iter().map(|(key, it)| format!("{} {}", symbols.text(key), it.describe(symbols, 9))).collect();
    all.join("; ")
}

fn class<'s>(snapshot: &'s Snapshot, pod: &str) -> &'s PodClass {
    snapshot.class_of(snapshot.find_pod(pod).expect("it is there"))
}

fn with_volume(volume: &str) -> Snapshot {
    let pod =
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: [], volumes: [{volume}]}}}}");
    snapshot(&format!("{STORAGE}{pod}"))
}

fn outcome(volume: &str) -> (Vec<Vec<String>>, i64, Option<Problem>) {
    let snapshot = with_volume(volume);
    let class = class(&snapshot, "default/p");
    let terms = class.volume_terms.iter().map(|terms| terms.iter().map(|term| words(term, &snapshot)).collect());
    let driver = snapshot.resources.find("attachable-volumes-csi-ebs.csi.aws.com");
    (terms.collect(), driver.map_or(0, |driver| class.requests.get(driver)), class.problem.clone())
}

#[test]
fn claims() {
    let zone = |zones: &str| vec![vec![format!("topology.kubernetes.io/zone In [{zones}]")]];
    for (claim, terms, attached, problem) in [
        ("bound", zone("a"), 1, None),
        ("old", zone("a, b"), 0, None),
        ("waiting", zone("a, b"), 1, None),
        ("default", vec![], 1, None),
        ("disk", vec![vec!["kubernetes.io/hostname In [one]".to_owned()]], 0, None),
        ("missing", vec![], 0, Some(Problem::ClaimMissing("missing".into()))),
        ("lost", vec![], 0, Some(Problem::ClaimUnbound("lost".into()))),
        ("immediate", vec![], 0, Some(Problem::ClaimUnbound("immediate".into()))),
        ("none", vec![], 0, Some(Problem::ClaimUnbound("none".into()))),
        ("strange", vec![], 0, Some(Problem::StorageClassMissing("unheard".into()))),
        ("one-pod", vec![], 0, Some(Problem::ClaimInUse("one-pod".into()))),
    ] {
        let volume = format!("{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}");
        assert_eq!(outcome(&volume), (terms, attached, problem), "{claim}");
    }
}

#[test]
fn the_pod_that_holds_a_claim_keeps_it() {
    let snapshot = with_volume("{name: v, emptyDir: {}}");
    let holder = class(&snapshot, "default/holder");
    assert_eq!((holder.problem.clone(), holder.volume_terms.len()), (None, 1));
}

#[test]
fn volumes_that_come_with_the_pod() {
    let template = |spec: &str| format!("{{name: v, ephemeral: {{volumeClaimTemplate: {{spec: {{{spec}}}}}}}}}");
    assert_eq!(outcome(&template("storageClassName: waits")).0, [["topology.kubernetes.io/zone In [a, b]"]]);
    assert_eq!(outcome(&template("storageClassName: now")).2, Some(Problem::ClaimUnbound("p-v".into())));
}

#[test]
fn what_drivers_can_attach() {
    let snapshot = with_volume("{name: v, persistentVolumeClaim: {claimName: bound}}");
    let driver = snapshot.resources.find("attachable-volumes-csi-ebs.csi.aws.com").unwrap();
    let counts: Vec<_> = snapshot.nodes.iter().map(|node| (&*node.name, node.allocatable.get(driver))).collect();
    assert_eq!(counts, [("one", 25), ("two", 1_000_000)]);
}

#[test]
fn two_volumes_of_one_driver_count_twice() {
    let (_, attached, _) = outcome(
        "{name: v, persistentVolumeClaim: {claimName: bound}}, {name: w, persistentVolumeClaim: {claimName: waiting}}",
    );
    assert_eq!(attached, 2);
}
