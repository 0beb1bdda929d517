//! There and back: nothing is lost but what a report says.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::report::Report;
use super::super::{ConvertError, Input, Settings, Target, convert, names};
use super::aws;
use crate::meta::Kind as _;
use crate::scaling_advisor::ScalingConstraint;

/// A constraint in another tool's words and back, with what both ways reported.
fn there_and_back(constraint: &Value, by: Target) -> Option<(Value, Vec<Report>)> {
    let settings = Settings::new(aws());
    let there = match convert(&Input::gather([constraint.clone()]).unwrap(), by, &settings) {
        Err(ConvertError::NothingLeft { report }) => {
            assert!(!report.is_empty());
            return None;
        }
        there => there.unwrap(),
    };
    let back = convert(&Input::gather(there.objects).unwrap(), Target::ScalingAdvisor, &settings).unwrap();
    Some((back.objects[0].clone(), vec![there.report, back.report]))
}

/// Paths at which two values differ; entries of lists with a name are matched by it, other lists have no order.
fn differences(a: &Value, b: &Value, path: &str, found: &mut Vec<String>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: std::collections::BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            for key in keys {
                differences(x.get(key).unwrap_or(&Value::Null), y.get(key).unwrap_or(&Value::Null), &join(key), found);
            }
        }
        (Value::Array(x), Value::Array(y)) if x.iter().any(|entry| entry.get("name").is_some()) => {
            for (index, entry) in x.iter().enumerate() {
                // Pools have the names that objects can have.
                let fitting = names::fitting(entry["name"].as_str().unwrap());
                let named = |other: &&Value| other["name"] == entry["name"] || other["name"] == fitting.as_str();
                let other = y.iter().find(named).unwrap_or(&Value::Null);
                differences(entry, other, &format!("{path}[{index}]"), found);
            }
            if x.len() < y.len() {
                found.push(path.to_owned());
            }
        }
        (Value::Array(x), Value::Array(y)) => {
            let sorted = |list: &[Value]| {
                let mut texts: Vec<String> = list.iter().map(ToString::to_string).collect();
                texts.sort();
                texts
            };
            if sorted(x) != sorted(y) {
                found.push(path.to_owned());
            }
        }
        _ if a != b => found.push(path.to_owned()),
        _ => {}
    }
}

/// Whether a report speaks of a path, of what it is in, or of what is in it.
fn is_told(path: &str, reports: &[Report]) -> bool {
    let below =
        |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let mut fields = reports.iter().flat_map(|report| &report.entries).map(|entry| entry.field.as_str());
    fields.any(|field| below(path, field) || below(field, path))
}

fn check(constraint: &Value, by: Target) -> Result<(), TestCaseError> {
    let typed: ScalingConstraint = serde_json::from_value(constraint.clone()).unwrap();
    let Some((back, reports)) = there_and_back(constraint, by) else { return Ok(()) };
    let mut found = Vec::new();
    differences(&typed.to_object(), &back, "", &mut found);
    let untold: Vec<_> = found.iter().filter(|path| !is_told(path, &reports)).collect();
    prop_assert!(untold.is_empty(), "{untold:?} of\n{constraint:#}\nback\n{back:#}\nreports {reports:#?}");
    Ok(())
}

fn template() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::select(vec!["m5.large", "m5.xlarge", "c6g.large", "acme.9", "Odd Type"]);
    let capacity = prop::sample::select(vec![
        json!({"cpu": "2", "memory": "8Gi"}),
        json!({"cpu": "4", "memory": "16Gi", "pods": "58", "ephemeral-storage": "50Gi"}),
        json!({"cpu": "1500m", "memory": "1G", "pods": "8", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "2"}),
        json!({"cpu": "2"}),
    ]);
    let kube =
        prop::sample::select(vec![json!({}), json!({"cpu": "80m", "memory": "1Gi"}), json!({"nvidia.com/gpu": "1"})]);
    let system = prop::sample::select(vec![json!({}), json!({"memory": "100Mi", "ephemeral-storage": "1Gi"})]);
    let arch = prop::sample::select(vec!["amd64", "arm64", "pdp11"]);
    (kinds, capacity, kube, system, arch, 0..3i32, prop::option::of(1..30i32)).prop_map(
        |(kind, capacity, kube, system, arch, priority, volumes)| {
            let mut template = json!({
                "architecture": arch, "instanceType": kind, "capacity": capacity, "kubeReservedCapacity": kube,
                "systemReservedCapacity": system, "priority": priority,
            });
            if let Some(volumes) = volumes {
                template["maxVolumes"] = volumes.into();
            }
            template
        },
    )
}

fn pool() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["web", "batch", "Data_Base", "gpu.1"]);
    let zones = prop::sample::subsequence(vec!["us-east-1a", "us-east-1b", "eu-1"], 1..=3);
    let labels = prop::sample::select(vec![
        json!({}),
        json!({"tier": "front", "worker.gardener.cloud/pool": "x"}),
        json!({"karpenter.sh/secret": "x", "kubernetes.io/hostname": "y", "tier": "back"}),
        json!({"topology.kubernetes.io/region": "elsewhere", "sa.gardener.cloud/node-pool-name": "z"}),
    ]);
    let taints = prop::sample::select(vec![
        json!([]),
        json!([{"key": "team", "value": "shop", "effect": "NoSchedule"}]),
        json!([{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}, {"key": "!", "effect": "NoSchedule"}]),
    ]);
    let quota =
        prop::option::of(prop::sample::select(vec![json!({"cpu": "64"}), json!({"memory": "1Ti", "nodes": "9"})]));
    let templates = prop::collection::vec(template(), 1..4);
    (name, zones, labels, taints, quota, templates, 0..300i32, prop::option::of(1..3i32)).prop_map(
        |(name, zones, labels, taints, quota, mut templates, priority, min)| {
            for (index, template) in templates.iter_mut().enumerate() {
                template["name"] = format!("t{index}").into();
            }
            let mut pool = json!({
                "name": name, "region": "us-east-1", "availabilityZones": zones, "labels": labels, "taints": taints,
                "annotations": {"note": "kept"}, "priority": priority, "nodeTemplates": templates,
            });
            if let Some(quota) = quota {
                pool["quota"] = quota;
            }
            if let Some(min) = min {
                pool["min"] = min.into();
            }
            pool
        },
    )
}

fn constraint() -> impl Strategy<Value = Value> {
    let pools = prop::collection::vec(pool(), 1..4);
    let backoff = prop::option::of(Just(json!({"initialBackoff": "1m0s", "maxBackoff": "10m0s"})));
    let consumer = prop::sample::select(vec!["", "gardener"]);
    let name = prop::sample::select(vec!["shop", "My.Shop"]);
    (pools, backoff, consumer, name).prop_map(|(mut pools, backoff, consumer, name)| {
        let mut names = std::collections::BTreeSet::new();
        pools.retain(|pool| names.insert(pool["name"].to_string()));
        let mut spec = json!({"consumerID": consumer, "nodePools": pools});
        if let Some(backoff) = backoff {
            spec["defaultBackoffPolicy"] = backoff;
        }
        json!({
            "apiVersion": "sa.gardener.cloud/v1alpha1", "kind": "ScalingConstraint",
            "metadata": {"name": name, "namespace": "garden"}, "spec": spec,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_constraint_by_way_of_node_pools(constraint in constraint()) {
        check(&constraint, Target::Millpond)?;
    }

    #[test]
    fn a_constraint_by_way_of_cluster_autoscaler(constraint in constraint()) {
        check(&constraint, Target::ClusterAutoscaler)?;
    }

    #[test]
    fn a_constraint_by_way_of_itself(constraint in constraint()) {
        check(&constraint, Target::ScalingAdvisor)?;
    }

    #[test]
    fn what_is_written_is_valid(constraint in constraint()) {
        let settings = Settings::new(aws());
        let made = convert(&Input::gather([constraint]).unwrap(), Target::Millpond, &settings);
        for object in made.iter().flat_map(|made| &made.objects) {
            let invalid = match object["kind"].as_str() {
                Some("NodePool") => serde_json::from_value::<crate::karpenter::NodePool>(object.clone()).unwrap().validate(),
                Some("NodeClass") => serde_json::from_value::<crate::node_class::NodeClass>(object.clone()).unwrap().validate(),
                _ => Vec::new(),
            };
            prop_assert_eq!(invalid, vec![], "{:#}", object);
        }
    }
}
