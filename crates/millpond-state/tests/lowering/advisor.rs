//! Scaling Advisor's constraint, snapshot and request.

use millpond_plan::model::{CPU, Consolidation, MEMORY, PODS, PodState, Snapshot};
use millpond_state::{Options, Reader};

use crate::support::{NOW, errors, read};

const CONSTRAINT: &str = r#"{
  "apiVersion": "sa.gardener.cloud/v1alpha1", "kind": "ScalingConstraint",
  "metadata": {"name": "c", "namespace": "shoot"},
  "spec": {"consumerID": "x", "defaultBackoffPolicy": {"initialBackoff": "1m", "maxBackoff": "5m"}, "nodePools": [
    {"name": "a", "region": "us-east-1", "availabilityZones": ["us-east-1a", "eu-1"], "priority": 2,
     "labels": {"worker.gardener.cloud/pool": "a"}, "taints": [{"key": "team", "effect": "NoSchedule"}],
     "quota": {"cpu": "64", "nodes": "5"}, "min": 1,
     "nodeTemplates": [
       {"name": "large", "architecture": "amd64", "instanceType": "m5.large", "capacity": {"cpu": "2", "memory": "8Gi"},
        "kubeReservedCapacity": {"cpu": "80m", "memory": "1Gi"}, "systemReservedCapacity": {"memory": "100Mi"}, "maxVolumes": 20, "priority": 1},
       {"name": "odd", "architecture": "arm64", "instanceType": "acme.9", "capacity": {"cpu": "4", "memory": "4G", "pods": "50"}, "priority": 1}]}]}}"#;

const CLUSTER: &str = r#"{
  "pods": [
    {"name": "waits", "namespace": "shop", "uid": "1", "aggregatedRequests": {"cpu": "1", "memory": "1Gi"}, "tolerations": [{"key": "team", "operator": "Exists"}], "priorityClassName": "high",
     "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
    {"name": "runs", "namespace": "shop", "uid": "2", "aggregatedRequests": {"cpu": "500m"}, "nodeName": "n1", "priority": 7}],
  "nodes": [
    {"name": "n1", "labels": {"sa.gardener.cloud/node-pool-name": "a", "topology.kubernetes.io/zone": "us-east-1a"}, "instanceType": "m5.large",
     "capacity": {"cpu": "2"}, "allocatable": {"cpu": "1920m"}, "csiNodeSpec": {"drivers": [{"name": "x.csi", "nodeID": "n1", "allocatable": {"count": 9}}]}}],
  "pvs": [{"name": "pv1", "storageClassName": "s", "claimRef": {"namespace": "shop", "name": "data"}, "nodeAffinity": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]}]}]}}],
  "pvcs": [{"name": "data", "namespace": "shop", "volumeName": "pv1", "storageClassName": "s", "phase": "Bound"}],
  "storageClasses": [{"metadata": {"name": "s"}, "provisioner": "x.csi"}],
  "priorityClasses": [{"metadata": {"name": "high"}, "value": 100}]}"#;

fn lower(texts: &[&str]) -> (Snapshot, Vec<String>) {
    let mut reader = Reader::new();
    for (index, text) in texts.iter().enumerate() {
        reader.add(&format!("{index}.json"), text.as_bytes());
    }
    let reading = reader.finish();
    assert_eq!((reading.errors, reading.warnings), (vec![], vec![]));
    let taken = reading.state.snapshot(NOW, &Options::default());
    (taken.snapshot, taken.notes.iter().map(ToString::to_string).collect())
}

fn check(snapshot: &Snapshot) {
    let pool = &snapshot.pools[0];
    assert_eq!((&*pool.name, pool.weight, pool.min_nodes, pool.limits.nodes), ("a", 2, 1, Some(5)));
    assert_eq!((pool.limits.resources.clone(), pool.taints.len()), (vec![(CPU, 64_000)], 1));
    assert_eq!((pool.disruption.policy, pool.disruption.expire_after), (Consolidation::WhenEmpty, None));
    let [large, odd] = [0, 1].map(|index| &snapshot.types[pool.types[index].index()]);
    assert_eq!(
        (large.capacity.get(MEMORY), large.allocatable.get(MEMORY)),
        (8 << 30, (8 << 30) - (1 << 30) - (100 << 20))
    );
    assert_eq!((large.allocatable.get(CPU), large.allocatable.get(PODS), odd.allocatable.get(PODS)), (1920, 110, 50));
    let prices: Vec<_> =
        large.offerings.iter().map(|offering| (snapshot.text(offering.zone), offering.price)).collect();
    assert_eq!(prices, [("us-east-1a", 96_000_000), ("eu-1", 96_000_000)]);
    assert_eq!(odd.offerings[0].price, 104_000_000);
    let template = snapshot.symbols.find("sa.gardener.cloud/node-template-name").expect("it is a label");
    assert_eq!(odd.labels.get(template).expect("it is labelled").only_value().map(|it| snapshot.text(it)), Some("odd"));
}

fn check_cluster(snapshot: &Snapshot) {
    assert_eq!(snapshot.nodes[0].pool.map(millpond_plan::model::PoolId::index), Some(0));
    assert_eq!(snapshot.nodes[0].price, Some(96_000_000));
    assert_eq!((&*snapshot.pods[0].name, snapshot.pods[0].state), ("runs", PodState::Bound));
    assert_eq!(snapshot.class_of(0.into()).priority, 7);
    let waits = snapshot.class_of(1.into());
    assert_eq!((waits.priority, waits.requests.get(CPU), waits.volume_terms.len()), (100, 1000, 1));
}

#[test]
fn pools_templates_and_zones() {
    let (snapshot, notes) = lower(&[CONSTRAINT]);
    check(&snapshot);
    assert_eq!(
        notes,
        ["0.json:1:1: pool `a`: catalogue `aws` has no on-demand price of `acme.9`; it is estimated from its size"]
    );
}

#[test]
fn a_constraint_and_a_snapshot_or_both_in_a_request() {
    let (snapshot, _) = lower(&[CONSTRAINT, CLUSTER]);
    check(&snapshot);
    check_cluster(&snapshot);
    let kindless =
        CONSTRAINT.replace(r#""apiVersion": "sa.gardener.cloud/v1alpha1", "kind": "ScalingConstraint","#, "");
    check(&lower(&[&kindless]).0);
    let request =
        format!(r#"{{"id": "1", "constraint": {kindless}, "snapshot": {CLUSTER}, "simulatorStrategy": "x"}}"#);
    let (snapshot, _) = lower(&[&request]);
    check(&snapshot);
    check_cluster(&snapshot);
}

#[test]
fn mistakes_in_a_snapshot_have_their_place() {
    let wrong = "{\"pods\": [\n {\"name\": \"a\", \"aggregatedRequests\": {\"cpu\": \"1x\"}}]}";
    assert_eq!(
        errors(wrong),
        [
            "test.yaml:2:46: field `pods[0].aggregatedRequests.cpu`: `1x` is not a quantity such as `500m`, `4` or `16Gi`"
        ]
    );
    let twice = "{\"snapshot\": {\"nodes\": [\n {\"name\": \"a\"},\n {\"name\": \"a\"}]}}";
    assert_eq!(errors(twice), ["test.yaml:3:11: Node/a: field `snapshot.nodes[1].name`: `a` is there twice"]);
    let toleration = "{\"pods\": [{\"name\": \"a\", \"tolerations\": [\n{\"key\": \"a\", \"operator\": \"Gt\", \"value\": \"x\"}]}]}";
    assert_eq!(
        errors(toleration),
        ["test.yaml:2:41: Pod/a: field `pods[0].tolerations[0].value`: `x` is not a whole number"]
    );
    let constraint = CONSTRAINT.replace(r#""eu-1"], "priority": 2"#, r#""eu-1"], "priority": -2"#);
    assert_eq!(errors(&constraint).len(), 1);
    assert!(read("{\"pods\": []}").errors.is_empty());
}
