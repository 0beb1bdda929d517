//! Nodes and the claims behind them.

use millpond_plan::model::{CapacityType, Expiry, Node, NodeState, Snapshot};

use crate::support::{snapshot, words};

const POOL: &str = "
{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: general}, spec: {template: {spec: {requirements: [], startupTaints: [{key: example.com/booting, effect: NoSchedule}], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}}
---
";

const LABELS: &str = "karpenter.sh/nodepool: general, node.kubernetes.io/instance-type: c-4x-amd64-linux, topology.kubernetes.io/zone: test-zone-b, karpenter.sh/capacity-type: on-demand";

fn only(text: &str) -> (Snapshot, Node) {
    let snapshot = snapshot(&format!("{POOL}{text}"));
    assert_eq!(snapshot.nodes.len(), 1);
    let node = snapshot.nodes[0].clone();
    (snapshot, node)
}

fn node(metadata: &str, spec: &str, status: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: one, creationTimestamp: '2026-11-16T10:00:00Z', {metadata}}}, spec: {{{spec}}}, status: {{{status}}}}}\n---\n"
    )
}

fn claim(metadata: &str, status: &str) -> String {
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: general-abc, labels: {{{LABELS}}}, {metadata}}}, spec: {{requirements: [{{key: kubernetes.io/arch, operator: In, values: [amd64]}}], startupTaints: [{{key: cni, effect: NoExecute}}], taints: [{{key: team, value: a, effect: NoSchedule}}], nodeClassRef: {{name: default}}}}, status: {{{status}}}}}\n---\n"
    )
}

fn taints(snapshot: &Snapshot, node: &Node) -> Vec<String> {
    node.taints.iter().map(|taint| snapshot.text(taint.key).to_owned()).collect()
}

#[test]
fn type_zone_price_and_pool_come_from_labels() {
    let (snapshot, node) =
        only(&node(&format!("labels: {{{LABELS}}}"), "", "capacity: {cpu: 4}, allocatable: {cpu: 3900m}"));
    assert_eq!(node.pool.map(|pool| snapshot.pools[pool.index()].name.as_str()), Some("general"));
    assert_eq!(node.instance_type.map(|it| snapshot.text(it)), Some("c-4x-amd64-linux"));
    assert_eq!(node.zone.map(|it| snapshot.text(it)), Some("test-zone-b"));
    assert_eq!((node.capacity_type, node.price), (Some(CapacityType::OnDemand), Some(108_589_935)));
    assert_eq!(
        (words(&node.capacity, &snapshot), words(&node.allocatable, &snapshot)),
        ("cpu=4000".into(), "cpu=3900".into())
    );
    assert_eq!((node.created, node.initialized), (1_794_823_200, Some(1_794_823_200)));
}

#[test]
fn old_labels_and_missing_ones() {
    let old = "labels: {beta.kubernetes.io/instance-type: c-4x-amd64-linux, failure-domain.beta.kubernetes.io/zone: nowhere, beta.kubernetes.io/arch: arm64, kubernetes.io/arch: amd64}";
    let (snapshot, node) = only(&node(old, "", "capacity: {cpu: 4}"));
    let label = |key: &str| node.labels.get(snapshot.symbols.find(key).unwrap()).map(|it| snapshot.text(it));
    assert_eq!(label("topology.kubernetes.io/zone"), Some("nowhere"));
    assert_eq!(label("kubernetes.io/arch"), Some("amd64"));
    assert_eq!(label("kubernetes.io/hostname"), Some("one"));
    // On demand where nothing is said, and another zone's price where the catalogue does not know the zone.
    assert_eq!((node.pool, node.capacity_type, node.price), (None, None, Some(108_589_935)));
    assert_eq!(words(&node.allocatable, &snapshot), "cpu=4000");
}

#[test]
fn lives_of_nodes() {
    let pool = format!("labels: {{{LABELS}}}");
    let taint = |key: &str| format!("taints: [{{key: {key}, effect: NoSchedule}}]");
    for (metadata, spec, expected, left) in [
        (pool.clone(), String::new(), NodeState::Running, vec![]),
        (pool.clone(), taint("karpenter.sh/disrupted"), NodeState::Leaving, vec!["karpenter.sh/disrupted"]),
        (
            pool.clone(),
            taint("ToBeDeletedByClusterAutoscaler"),
            NodeState::Leaving,
            vec!["ToBeDeletedByClusterAutoscaler"],
        ),
        (format!("{pool}, deletionTimestamp: '2026-11-16T11:00:00Z'"), String::new(), NodeState::Leaving, vec![]),
        (pool.clone(), taint("node.kubernetes.io/not-ready"), NodeState::Starting, vec![]),
        (pool.clone(), taint("example.com/booting"), NodeState::Starting, vec![]),
        (pool.clone(), taint("startup-taint.cluster-autoscaler.kubernetes.io/x"), NodeState::Starting, vec![]),
        (pool.clone(), taint("team"), NodeState::Running, vec!["team"]),
        // A node that was ready once and is not any more keeps what it has.
        (
            pool.replace('}', ", karpenter.sh/initialized: 'true'}"),
            taint("node.kubernetes.io/not-ready"),
            NodeState::Running,
            vec!["node.kubernetes.io/not-ready"],
        ),
        // And so does one of no pool: its startup taints are unknown.
        (
            String::new(),
            taint("node.kubernetes.io/not-ready"),
            NodeState::Running,
            vec!["node.kubernetes.io/not-ready"],
        ),
    ] {
        let (snapshot, node) = only(&node(&metadata, &spec, "capacity: {cpu: 4}"));
        assert_eq!(
            (node.state, taints(&snapshot, &node)),
            (expected, left.into_iter().map(str::to_owned).collect()),
            "{metadata} {spec}"
        );
    }
}

#[test]
fn closed_unready_and_kept_nodes() {
    let (_, plain) = only(&node("", "", ""));
    assert_eq!((plain.schedulable, plain.ready, plain.do_not_disrupt), (true, true, false));
    let (_, closed) = only(&node(
        "annotations: {karpenter.sh/do-not-disrupt: 'true'}",
        "unschedulable: true",
        "conditions: [{type: Ready, status: Unknown, lastTransitionTime: '2026-11-16T11:00:00Z'}]",
    ));
    assert_eq!((closed.schedulable, closed.ready, closed.do_not_disrupt), (false, false, true));
    let (_, disabled) =
        only(&node("annotations: {cluster-autoscaler.kubernetes.io/scale-down-disabled: 'true'}", "", ""));
    assert!(disabled.do_not_disrupt);
}

#[test]
fn a_claim_without_a_node_is_a_node_that_starts() {
    let (snapshot, bought) = only(&claim("", "providerID: 'kwok://x'"));
    assert_eq!(
        (&*bought.name, bought.state, bought.initialized, bought.ready),
        ("general-abc", NodeState::Starting, None, false)
    );
    assert_eq!(taints(&snapshot, &bought), ["team"]);
    // Its size is its type's until it says more.
    assert!(words(&bought.capacity, &snapshot).starts_with("cpu=4000 memory=8589934592"));
    assert!(words(&bought.allocatable, &snapshot).starts_with("cpu=3900 memory=8579448832"));
    let label = |key: &str| bought.labels.get(snapshot.symbols.find(key).unwrap()).map(|it| snapshot.text(it));
    assert_eq!(label("kubernetes.io/arch"), Some("amd64"));
    let (snapshot, told) = only(&claim("", "capacity: {cpu: 8}, allocatable: {cpu: 7}"));
    assert_eq!(
        (words(&told.capacity, &snapshot), words(&told.allocatable, &snapshot)),
        ("cpu=8000".into(), "cpu=7000".into())
    );
    let (_, going) = only(&claim("deletionTimestamp: '2026-11-16T11:00:00Z'", ""));
    assert_eq!(going.state, NodeState::Leaving);
}

#[test]
fn a_node_that_comes_before_its_claim_knows_of_it_is_not_counted_twice() {
    let early = node("", "providerID: 'kwok://x', taints: [{key: karpenter.sh/unregistered, effect: NoExecute}]", "");
    let (_, claimed) = only(&format!("{early}{}", claim("", "")));
    assert_eq!(claimed.name, "general-abc");
    let (_, there) = only(&format!("{early}{}", claim("", "providerID: 'kwok://x'")));
    assert_eq!((&*there.name, there.state), ("one", NodeState::Starting));
    // Files may leave the claims out.
    let (_, alone) = only(&early);
    assert_eq!(alone.name, "one");
}

#[test]
fn a_claim_tells_more_of_its_node() {
    let of_node = node(
        &format!("labels: {{{LABELS}}}"),
        "providerID: 'kwok://x', taints: [{key: cni, effect: NoExecute}, {key: team, effect: NoSchedule}]",
        "capacity: {cpu: 4}, allocatable: {}",
    );
    let young = format!(
        "{of_node}{}",
        claim(
            "",
            "providerID: 'kwok://x', capacity: {cpu: 4, nvidia.com/gpu: 1}, allocatable: {cpu: 3500m, nvidia.com/gpu: 1}"
        )
    );
    let (snapshot, node) = only(&young);
    assert_eq!((node.state, &*node.name), (NodeState::Starting, "one"));
    assert_eq!(taints(&snapshot, &node), ["team"]);
    // Devices that are still missing are counted on; what the node reports goes before what was promised.
    assert_eq!(words(&node.capacity, &snapshot), "cpu=4000 nvidia.com/gpu=1");
    let conditions = "conditions: [{type: Initialized, status: 'True', lastTransitionTime: '2026-11-16T11:30:00Z'}, {type: Drifted, status: 'True', reason: NodePoolDrifted, lastTransitionTime: '2026-11-16T11:50:00Z'}]";
    let old = format!(
        "{of_node}{}",
        claim(
            "annotations: {karpenter.sh/do-not-disrupt: 'true'}",
            &format!("nodeName: one, lastPodEventTime: '2026-11-16T11:45:00Z', {conditions}")
        )
    );
    let (snapshot, node) = only(&old);
    assert_eq!(
        (node.state, node.initialized, node.last_pod_event),
        (NodeState::Running, Some(1_794_828_600), Some(1_794_829_500))
    );
    let drift = node.drifted.as_ref().map(|drift| (drift.why.as_str(), drift.since));
    assert_eq!((drift, node.do_not_disrupt), (Some(("NodePoolDrifted", Some(1_794_829_800))), true));
    assert_eq!(taints(&snapshot, &node), ["cni", "team"]);
    assert_eq!(words(&node.capacity, &snapshot), "cpu=4000");
    assert_eq!((node.expiry, node.ends_in_time), (Expiry::OfPool, false));
    // What was agreed when it was bought holds for it, whatever its pool says by now.
    let agreed = |words: &str| {
        let old = claim("creationTimestamp: '2026-11-16T11:00:00Z'", "nodeName: one");
        only(&format!("{of_node}{}", old.replace("nodeClassRef", &format!("{words}, nodeClassRef")))).1
    };
    let mortal = agreed("expireAfter: 90s, terminationGracePeriod: 1h");
    assert_eq!((mortal.expiry, mortal.ends_in_time), (Expiry::At(1_794_826_800 + 90), true));
    assert_eq!(agreed("expireAfter: Never").expiry, Expiry::Never);
    // Drained, and its machine on its way out: it is none of the pool's nodes any more.
    let over =
        "nodeName: one, conditions: [{type: Initialized, status: 'True'}, {type: InstanceTerminating, status: 'True'}]";
    let (_, node) = only(&format!("{of_node}{}", claim("deletionTimestamp: '2026-11-16T11:50:00Z'", over)));
    assert_eq!((node.state, node.initialized), (NodeState::Leaving, None));
}
