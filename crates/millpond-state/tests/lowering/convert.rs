//! Plans for converted files: the same nodes at the same cost as for the files that they were made from.

use std::sync::Arc;

use millpond_api::catalog::import::{self, Options as ImportOptions};
use millpond_api::catalog::{Catalog, built_in};
use millpond_api::convert::{Converted, Input, Settings, Target, convert};
use millpond_plan::plan::Settings as PlanSettings;
use millpond_state::{Options, Reader};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::support::NOW;

/// A plan by names: pool, type, zone and price of each new node; pods without a place; the cost.
#[derive(Debug, PartialEq, Eq)]
struct Outline {
    nodes: Vec<(String, String, String, u64)>,
    unplaced: Vec<String>,
    cost: u128,
}

fn outline(objects: &[Value], catalog: Option<Arc<Catalog>>) -> Outline {
    let mut reader = Reader::new();
    for (index, object) in objects.iter().enumerate() {
        reader.add(&format!("{index}.json"), object.to_string().as_bytes());
    }
    let reading = reader.finish();
    assert_eq!(reading.errors, []);
    let options = Options { catalog, ..Options::default() };
    let snapshot = reading.state.snapshot(NOW, &options).snapshot;
    let outcome = millpond_plan::plan(&snapshot, &PlanSettings::default());
    let mut nodes: Vec<_> = outcome
        .plan
        .new_nodes
        .iter()
        .map(|node| {
            let of = &snapshot.types[node.instance_type.index()];
            let zone = of.offerings[node.offering as usize].zone;
            let texts = (snapshot.pools[node.pool.index()].name.clone(), snapshot.text(of.name).to_owned());
            (texts.0, texts.1, snapshot.text(zone).to_owned(), node.price)
        })
        .collect();
    nodes.sort();
    let unplaced = outcome.report.unplaced.iter().map(|(pod, _)| snapshot.pods[pod.index()].name.to_string());
    Outline { nodes, unplaced: unplaced.collect(), cost: outcome.report.cost_after }
}

fn converted(objects: Vec<Value>, target: Target) -> Converted {
    let settings = Settings::new(built_in("aws").expect("it is there"));
    convert(&Input::gather(objects).expect("they are read"), target, &settings).expect("they are converted")
}

fn pick<'a, T>(random: &mut StdRng, from: &'a [T]) -> &'a T {
    from.choose(random).expect("there is one")
}

/// Pools without quotas and least numbers, which not every side can say, and pods for them.
fn scenario(seed: u64) -> (Value, Value) {
    let mut random = StdRng::seed_from_u64(seed);
    let kinds = [("m5.large", 2, 8), ("m5.xlarge", 4, 16), ("c5.2xlarge", 8, 16), ("r5.large", 2, 16)];
    let mut pools = Vec::new();
    for (number, name) in ["blue", "green", "red"].iter().enumerate().take(random.random_range(1..=3)) {
        let mut templates = Vec::new();
        for (index, (kind, cores, gib)) in
            kinds.iter().enumerate().filter(|_| random.random_bool(0.7)).collect::<Vec<_>>()
        {
            templates.push(json!({
                "name": format!("{name}-{index}"), "architecture": "amd64", "instanceType": kind, "priority": 0,
                "capacity": {"cpu": cores.to_string(), "memory": format!("{gib}Gi"), "pods": "30", "ephemeral-storage": "50Gi"},
                "kubeReservedCapacity": {"cpu": pick(&mut random, &["100m", "250m"]), "memory": "1Gi"},
                "systemReservedCapacity": {"memory": pick(&mut random, &["100Mi", "300Mi"])},
            }));
        }
        if templates.is_empty() {
            continue;
        }
        let zones = [&["us-east-1a"][..], &["us-east-1a", "us-east-1b"], &["us-east-1c", "us-east-1d", "us-east-1a"]];
        let taints = if random.random_bool(0.3) { json!([{"key": "own", "effect": "NoSchedule"}]) } else { json!([]) };
        pools.push(json!({
            "name": name, "region": "us-east-1", "availabilityZones": pick(&mut random, &zones), "priority": number * 10,
            "labels": {"colour": name}, "taints": taints, "nodeTemplates": templates,
        }));
    }
    let mut pods = Vec::new();
    for number in 0..random.random_range(5..40) {
        let mut pod = json!({
            "name": format!("p{number}"), "namespace": "default",
            "aggregatedRequests": {"cpu": pick(&mut random, &["200m", "900m", "1900m", "3"]), "memory": pick(&mut random, &["500Mi", "2Gi", "6900Mi"])},
        });
        if random.random_bool(0.3) {
            pod["nodeSelector"] = json!({"colour": pick(&mut random, &["blue", "green", "red"])});
        }
        if random.random_bool(0.5) {
            pod["tolerations"] = json!([{"key": "own", "operator": "Exists"}]);
        }
        if random.random_bool(0.2) {
            pod["nodeSelector"] = json!({"sa.gardener.cloud/node-template-name": "blue-1"});
        }
        pods.push(pod);
    }
    let constraint = json!({
        "apiVersion": "sa.gardener.cloud/v1alpha1", "kind": "ScalingConstraint",
        "metadata": {"name": "random", "namespace": "test"}, "spec": {"nodePools": pools},
    });
    (constraint, json!({"pods": pods, "nodes": []}))
}

fn scenarios() -> impl Iterator<Item = (Value, Value)> {
    let pools = |(constraint, _): &(Value, Value)| constraint["spec"]["nodePools"] != json!([]);
    (0..60).map(scenario).filter(pools)
}

#[test]
fn a_constraint_and_its_node_pools_are_planned_alike() {
    let mut bought = 0;
    for (constraint, cluster) in scenarios() {
        let there = outline(&[constraint.clone(), cluster.clone()], None);
        let mut objects = converted(vec![constraint.clone()], Target::Millpond).objects;
        objects.push(cluster);
        assert_eq!(outline(&objects, None), there, "{constraint:#}");
        bought += there.nodes.len();
    }
    assert!(bought > 100, "{bought}");
}

#[test]
fn templates_of_cluster_autoscaler_are_planned_alike() {
    for (constraint, cluster) in scenarios() {
        let there = outline(&[constraint.clone(), cluster.clone()], None);
        let templates = converted(vec![constraint.clone()], Target::ClusterAutoscaler).objects;
        let mut objects = converted(templates, Target::Millpond).objects;
        objects.push(cluster);
        assert_eq!(outline(&objects, None), there, "{constraint:#}");
    }
}

#[test]
fn instance_types_of_kwok_are_planned_alike() {
    for (mut constraint, cluster) in scenarios() {
        // KWOK has one list of types for all pools, and no labels of templates.
        for pool in constraint["spec"]["nodePools"].as_array_mut().unwrap() {
            for template in pool["nodeTemplates"].as_array_mut().unwrap() {
                template["kubeReservedCapacity"]["cpu"] = "250m".into();
                template["systemReservedCapacity"]["memory"] = "300Mi".into();
            }
        }
        let mut cluster = cluster;
        cluster["pods"]
            .as_array_mut()
            .unwrap()
            .retain(|pod| pod["nodeSelector"]["colour"].is_string() || pod["nodeSelector"].is_null());
        let there = outline(&[constraint.clone(), cluster.clone()], None);
        let made = converted(vec![constraint.clone()], Target::Kwok);
        let options = ImportOptions { name: "types".into(), region: "us-east-1".into(), ..ImportOptions::default() };
        let types = import::read("types.json", made.files[0].text.as_bytes(), None, &options).unwrap().catalog;
        let mut objects = made.objects;
        objects.push(cluster);
        assert_eq!(outline(&objects, Some(Arc::new(types))), there, "{constraint:#}");
    }
}

#[test]
fn node_pools_and_their_constraint_are_planned_alike() {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
        "spec": {"weight": 7, "limits": {"cpu": "60"}, "disruption": {"consolidationPolicy": "WhenEmpty"}, "template": {
            "metadata": {"labels": {"team": "shop"}},
            "spec": {
                "expireAfter": "Never",
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c6g"]},
                    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["17"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["us-east-1f"]}],
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "aws"}}}},
    });
    let class = json!({
        "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "aws"},
        "spec": {"provider": "sim", "catalog": "aws", "kubelet": {"maxPods": 20, "systemReserved": {"memory": "500Mi"}}},
    });
    let (_, cluster) = scenario(3);
    let mut cluster = cluster;
    for pod in cluster["pods"].as_array_mut().unwrap() {
        pod["nodeSelector"] = json!({"team": "shop"});
    }
    let there = outline(&[pool.clone(), class.clone(), cluster.clone()], None);
    assert!(!there.nodes.is_empty());
    let mut objects = converted(vec![pool, class], Target::ScalingAdvisor).objects;
    objects.push(cluster);
    assert_eq!(outline(&objects, None), there);
}
