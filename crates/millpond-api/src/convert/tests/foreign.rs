//! NodePools of Karpenter's providers, instance types of KWOK, templates of Cluster Autoscaler's chart.

use serde_json::json;

use super::super::{Action, Converted, Input, Settings, Target, convert};
use super::{aws, converted, input, page, yaml};
use crate::catalog::{built_in, import};

/// A pool of EC2 with all that other sides lack.
const EC2: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: general
  uid: 11111111-2222-3333-4444-555555555555
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", millpond.dev/limit-dollars-per-hour: "5"}
spec:
  weight: 10
  limits: {cpu: "100"}
  disruption:
    consolidateAfter: 5m
    budgets: [{nodes: "2", schedule: "0 9 * * *", duration: 8h, timeZone: Europe/Berlin}]
  template:
    metadata:
      labels: {team: shop}
    spec:
      terminationGracePeriod: 1h
      startupTaints: [{key: example.com/agent, effect: NoSchedule}]
      requirements:
      - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}
      - {key: karpenter.k8s.aws/instance-size, operator: In, values: [large, xlarge], minValues: 2}
      - {key: topology.kubernetes.io/zone, operator: In, values: [us-east-1a]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
      - {key: example.com/rack, operator: In, values: [r1]}
      - {key: example.com/side, operator: Exists}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: KarpenterNodeRole
  amiSelectorTerms: [{alias: al2023@latest}]
  kubelet: {maxPods: 40, systemReserved: {cpu: 100m}}
"#;

fn entries(converted: &Converted) -> Vec<String> {
    converted.report.entries.iter().map(ToString::to_string).collect()
}

#[test]
fn a_pool_of_ec2_keeps_its_words_and_gets_a_class() {
    let made = converted(EC2, Target::Millpond);
    insta::assert_snapshot!(page(&made));
}

#[test]
fn a_pool_of_ec2_for_karpenter_with_kwok() {
    let made = converted(EC2, Target::Kwok);
    insta::assert_snapshot!(page(&made));
}

#[test]
fn a_pool_of_ec2_for_scaling_advisor() {
    let made = converted(EC2, Target::ScalingAdvisor);
    insta::assert_snapshot!(format!("{}\n\n{}", page(&made), made.files[0].text));
}

#[test]
fn a_pool_of_ec2_for_cluster_autoscaler() {
    let made = converted(EC2, Target::ClusterAutoscaler);
    let templates = made.objects[1]["data"]["templates"].as_str().unwrap();
    // Two types in one zone, bought in two ways.
    assert_eq!(templates.matches("kind: Node\n").count(), 4);
    assert!(templates.contains("example.com/rack: r1") && templates.contains("karpenter.k8s.aws/instance-family: m5"));
    assert!(templates.contains("name: general-m5-large-us-east-1a-spot"));
    insta::assert_snapshot!(entries(&made).join("\n"));
}

#[test]
fn only_the_cheapest_types_are_kept_where_so_many_are_wanted() {
    let text = EC2.replace(
        "      - {key: karpenter.k8s.aws/instance-size, operator: In, values: [large, xlarge], minValues: 2}\n",
        "",
    );
    let settings = Settings { most_types: Some(2), ..Settings::new(aws()) };
    let made = convert(&input(&text), Target::ScalingAdvisor, &settings).unwrap();
    let templates = made.objects[0]["spec"]["nodePools"][0]["nodeTemplates"].as_array().unwrap();
    assert_eq!(templates.len(), 2);
    let told = |line: &String| line.contains("the 2 types with the lowest price for a core are kept of");
    assert!(entries(&made).iter().any(told), "{:?}", entries(&made));
}

#[test]
fn a_pool_of_millpond_passes_through() {
    let text = EC2
        .split("---")
        .next()
        .unwrap()
        .replace("group: karpenter.k8s.aws, kind: EC2NodeClass", "group: millpond.dev, kind: NodeClass");
    let class = "---\n{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {name: default, uid: x}, spec: {provider: sim, catalog: aws, future: 1}, status: {}}";
    let made = converted(&format!("{text}{class}"), Target::Millpond);
    assert!(made.report.is_empty(), "{:?}", entries(&made));
    assert_eq!(made.objects.len(), 2);
    assert_eq!(
        made.objects[1],
        json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "default"},
            "spec": {"provider": "sim", "catalog": "aws", "future": 1},
        })
    );
    assert!(made.objects[0]["metadata"].get("uid").is_none());
    assert_eq!(made.objects[0]["spec"]["disruption"]["budgets"][0]["timeZone"], "Europe/Berlin");
}

const TYPES: &str = r#"[{"name": "box-4", "architecture": "arm64", "operatingSystems": ["linux"], "resources": {"cpu": "4", "memory": "8Gi"},
  "offerings": [{"Price": 0.25, "Available": true, "Requirements": [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}, {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["here"]}]}]}]"#;

fn with_types(text: &str) -> Input {
    let options = import::Options { name: "boxes".into(), ..import::Options::default() };
    let mut input = input(text);
    input.add_catalog(import::read("boxes.json", TYPES.as_bytes(), None, &options).unwrap().catalog);
    input
}

#[test]
fn instance_types_of_kwok_alone_get_a_pool() {
    let made = convert(&with_types(""), Target::Millpond, &Settings::new(aws())).unwrap();
    insta::assert_snapshot!(page(&made));
}

#[test]
fn instance_types_of_kwok_are_those_of_its_pools() {
    let pool = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: small}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: slow}}}}
---
{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: slow}, spec: {nodeRegistrationDelay: 30s}}";
    let made = convert(&with_types(pool), Target::Millpond, &Settings::new(aws())).unwrap();
    assert!(made.report.is_empty(), "{:?}", entries(&made));
    let class = json!({"provider": "sim", "catalog": "boxes", "sim": {"registrationDelay": "30s"}});
    assert_eq!(made.objects[1]["spec"], class);
    assert_eq!(made.objects[2]["metadata"]["labels"]["millpond.dev/catalog"], "boxes");
    // Read again, it is the same for KWOK: what its provider keeps is taken off once.
    let back = convert(&Input::gather(made.objects).unwrap(), Target::Kwok, &Settings::new(aws())).unwrap();
    let types: serde_json::Value = serde_json::from_str(&back.files[0].text).unwrap();
    assert_eq!(types[0]["resources"], json!({"cpu": "4", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "110"}));
    assert_eq!(types[0]["offerings"][0]["Price"], 0.25);
    assert_eq!(back.objects[1]["spec"]["nodeRegistrationDelay"], "30s");
}

#[test]
fn without_a_pool_of_its_own_a_catalogue_is_not_named_twice() {
    let kwok = built_in("kwok").unwrap();
    let text = "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: a}, spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}}";
    let made = convert(&input(text), Target::Millpond, &Settings::new(kwok)).unwrap();
    let kinds: Vec<_> = made.objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["NodePool", "NodeClass"], "the catalogue comes with Millpond");
    assert_eq!(made.objects[1]["spec"]["catalog"], "kwok");
}

/// As Cluster Autoscaler's chart has them: Nodes of kind, one with a GPU.
const CHART: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: kwok-provider-templates, namespace: default}
data:
  templates: |
    apiVersion: v1
    kind: List
    items:
    - apiVersion: v1
      kind: Node
      metadata:
        annotations: {}
        labels:
          beta.kubernetes.io/arch: amd64
          beta.kubernetes.io/os: linux
          kubernetes.io/hostname: kind-worker
          kwok-nodegroup: kind-worker
          k8s.amazonaws.com/accelerator: nvidia-tesla-k80
        name: kind-worker
      spec:
        podCIDR: 10.244.2.0/24
        providerID: kind://docker/kind/kind-worker
        unschedulable: true
      status:
        addresses: [{address: 172.18.0.3, type: InternalIP}]
        allocatable: {cpu: 11500m, memory: 30Gi, pods: "110"}
        capacity: {cpu: "12", memory: 32Gi, pods: "110", nvidia.com/gpu: "0"}
    - apiVersion: v1
      kind: Node
      metadata:
        annotations: {cluster-autoscaler.kwok.nodegroup/min-count: "2", cluster-autoscaler.kwok.nodegroup/max-count: "7"}
        labels: {node.kubernetes.io/instance-type: m5.large, topology.kubernetes.io/zone: us-east-1a, kwok-nodegroup: m5, kubernetes.io/arch: amd64, kubernetes.io/os: linux}
        name: m5
      spec:
        taints: [{key: kwok-provider, value: "true", effect: NoSchedule}, {key: own, effect: NoExecute}]
      status:
        capacity: {cpu: "2", memory: 8Gi}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kwok-provider-config}
data:
  config: |
    apiVersion: v1alpha1
    readNodesFrom: configmap
    nodegroups: {fromNodeLabelKey: kwok-nodegroup}
    configmap: {name: kwok-provider-templates}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-autoscaler-priority-expander}
data:
  priorities: |
    10:
      - .*
    50:
      - ^m.*
"#;

#[test]
fn templates_of_the_chart_become_pools() {
    insta::assert_snapshot!(page(&converted(CHART, Target::Millpond)));
}

#[test]
fn templates_of_the_chart_become_a_constraint() {
    let made = converted(CHART, Target::ScalingAdvisor);
    insta::assert_snapshot!(yaml(&made.objects));
}

#[test]
fn a_price_may_be_set_for_what_no_catalogue_has() {
    let overlays = [crate::catalog::overlay::Overlay {
        name: "own".into(),
        weight: 1,
        requirements: crate::selector::parse("node.kubernetes.io/instance-type=kind-worker").unwrap(),
        price: Some(crate::catalog::overlay::PriceRule::Absolute(420_000_000)),
        surcharge_nanos_hour: 0,
        capacity: Default::default(),
    }];
    let settings = Settings { overlays: &overlays, ..Settings::new(aws()) };
    let made = convert(&input(CHART), Target::Millpond, &settings).unwrap();
    let text = yaml(&made.objects);
    assert!(text.contains("offer=default:on-demand:0.42 "), "{text}");
    let estimated =
        |entry: &super::super::Entry| entry.action == Action::Defaulted && entry.reason.contains("estimated");
    assert!(!made.report.entries.iter().any(estimated));
}
