//! One file with pools, nodes and pods.

use millpond_plan::model::{NodeState, PodState};

use crate::support::{only_class, read, snapshot, words};

const CLUSTER: &str = r"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: millpond.dev, kind: NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  limits: {cpu: 1000, nodes: 10}
---
apiVersion: millpond.dev/v1alpha1
kind: NodeClass
metadata: {name: default}
spec: {provider: sim, catalog: kwok}
---
apiVersion: v1
kind: Node
metadata:
  name: one
  labels: {karpenter.sh/nodepool: general, node.kubernetes.io/instance-type: c-4x-amd64-linux, topology.kubernetes.io/zone: test-zone-a, karpenter.sh/capacity-type: spot}
status:
  capacity: {cpu: 4, memory: 8Gi, pods: 64}
  allocatable: {cpu: 3900m, memory: 8182Mi, pods: 64}
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: web, namespace: shop}
  spec:
    containers:
    - name: web
      resources: {requests: {cpu: 250m, memory: 64Mi}}
- metadata: {name: cache, namespace: shop}
  spec:
    nodeName: one
    containers:
    - name: cache
      resources: {limits: {cpu: 1, memory: 1Gi}}
";

#[test]
fn a_cluster_in_one_file() {
    let reading = read(CLUSTER);
    assert_eq!((reading.errors.len(), reading.warnings.len(), reading.objects), (0, 0, 5));
    let snapshot = snapshot(CLUSTER);
    assert_eq!(snapshot.pools[0].name, "general");
    assert_eq!(snapshot.pools[0].types.len(), 144);
    assert_eq!(snapshot.pools[0].limits.nodes, Some(10));
    assert_eq!(snapshot.nodes[0].state, NodeState::Running);
    assert_eq!(snapshot.nodes[0].price, Some(76_012_954));
    let pods: Vec<_> = (0..2).map(|pod| snapshot.pod_name(pod.into())).collect();
    assert_eq!(pods, ["shop/cache", "shop/web"]);
    assert_eq!(snapshot.pods[0].state, PodState::Bound);
    assert_eq!(snapshot.pods[1].state, PodState::Pending);
    assert_eq!(words(&snapshot.class_of(0.into()).requests, &snapshot), "cpu=1000 memory=1073741824");
    assert_eq!(words(&snapshot.class_of(1.into()).requests, &snapshot), "cpu=250 memory=67108864");
}

#[test]
fn yaml_and_json_say_the_same() {
    let yaml = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, resources: {requests: {cpu: 2}}}]}}";
    let json = r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "creationTimestamp": null},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}, "env": null}]}}"#;
    for text in
        [yaml.to_owned(), json.to_owned(), format!("[{json}]"), format!("{{\"kind\":\"List\",\"items\":[{json}]}}")]
    {
        let snapshot = snapshot(&text);
        assert_eq!(words(&only_class(&snapshot).requests, &snapshot), "cpu=2000");
    }
}
