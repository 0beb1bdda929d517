//! The metadata that a Node gets from its Machine: some labels, annotations that refer back, and a taint while it is
//! outdated.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use millpond_api::capi::names;
use millpond_controllers::kinds::Machine;
use serde_json::{Map, Value, json};

use super::super::text;
use crate::meta::{annotation, controller_of};

/// Annotations that came from the Machine (annotation, on a Node).
const ANNOTATIONS_FROM_MACHINE: &str = "cluster.x-k8s.io/annotations-from-machine";
/// The domain of annotations that reach Nodes.
const ANNOTATION_DOMAIN: &str = "node.cluster.x-k8s.io";
/// Put on by bootstrap providers until Cluster API has seen the Node.
const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";
/// Taint of Nodes whose Machine has an older revision.
const OUTDATED: &str = "node.cluster.x-k8s.io/outdated-revision";

/// The patch that brings a Node in line with its Machine; `None` when it is.
pub fn sync(node: &Node, machine: &Machine, outdated: bool) -> Option<Value> {
    let labels: BTreeMap<String, String> =
        machine.labels().iter().filter(|(key, _)| names::reaches_node(key)).map(own).collect();
    let carried: BTreeMap<String, String> =
        machine.annotations().iter().filter(|(key, _)| reaches_node(key)).map(own).collect();
    let mut annotations = bookkeeping(machine);
    annotations.insert(names::LABELS_FROM_MACHINE.to_owned(), joined(&labels));
    annotations.insert(ANNOTATIONS_FROM_MACHINE.to_owned(), joined(&carried));
    annotations.extend(carried);
    let mut metadata = Map::new();
    for (key, known, wanted, listed) in [
        ("labels", node.labels(), labels, names::LABELS_FROM_MACHINE),
        ("annotations", node.annotations(), annotations, ANNOTATIONS_FROM_MACHINE),
    ] {
        let gone = annotation(node, listed).unwrap_or_default().split(',').filter(|name| !name.is_empty());
        let gone = gone.filter(|name| !wanted.contains_key(*name) && known.contains_key(*name));
        let mut changes: Map<String, Value> = gone.map(|name| (name.to_owned(), Value::Null)).collect();
        let news = wanted.iter().filter(|(name, value)| known.get(*name) != Some(*value));
        changes.extend(news.map(|(name, value)| (name.clone(), json!(value))));
        if !changes.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(changes));
        }
    }
    let known = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let taints = taints(&known, outdated);
    let mut patch = json!({});
    if taints != known {
        patch["spec"] = json!({"taints": taints});
    }
    if !metadata.is_empty() {
        patch["metadata"] = Value::Object(metadata);
    }
    if patch.as_object().is_none_or(Map::is_empty) {
        return None;
    }
    patch["metadata"]["resourceVersion"] = json!(node.metadata.resource_version);
    Some(patch)
}

fn own((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

fn joined(names: &BTreeMap<String, String>) -> String {
    names.keys().map(String::as_str).collect::<Vec<_>>().join(",")
}

fn reaches_node(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    domain == ANNOTATION_DOMAIN || domain.strip_suffix(ANNOTATION_DOMAIN).is_some_and(|rest| rest.ends_with('.'))
}

fn bookkeeping(machine: &Machine) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([
        (names::NODE_CLUSTER.to_owned(), text(&machine.spec, &["clusterName"]).unwrap_or_default().to_owned()),
        (names::NODE_CLUSTER_NAMESPACE.to_owned(), machine.namespace().unwrap_or_default()),
        (names::NODE_MACHINE.to_owned(), machine.name_any()),
    ]);
    if let Some(owner) = controller_of(machine) {
        annotations.insert(names::NODE_OWNER_KIND.to_owned(), owner.kind.clone());
        annotations.insert(names::NODE_OWNER_NAME.to_owned(), owner.name.clone());
    }
    annotations
}

fn taints(known: &[Taint], outdated: bool) -> Vec<Taint> {
    let is_ours = |taint: &Taint| taint.key == UNINITIALIZED || (taint.key == OUTDATED && !outdated);
    let mut taints: Vec<Taint> = known.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    if outdated && !taints.iter().any(|taint| taint.key == OUTDATED) {
        let effect = "PreferNoSchedule".to_owned();
        taints.push(Taint { key: OUTDATED.to_owned(), effect, value: None, time_added: None });
    }
    taints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_what_is_meant_for_it() {
        let machine: Machine = serde_json::from_value(json!({
            "metadata": {"name": "m", "namespace": "ns",
                "labels": {"pool": "a", "node-role.kubernetes.io/gpu": "", "x.node.cluster.x-k8s.io/y": "z"},
                "annotations": {"node.cluster.x-k8s.io/note": "n", "other": "o"},
                "ownerReferences": [{"apiVersion": "v", "kind": "MachineSet", "name": "s", "uid": "u", "controller": true}]},
            "spec": {"clusterName": "c"},
        }))
        .expect("a machine");
        let mut node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"old": "1"}, "annotations": {names::LABELS_FROM_MACHINE: "old"}},
            "spec": {"taints": [{"key": UNINITIALIZED, "effect": "NoSchedule"}, {"key": "mine", "effect": "NoExecute"}]},
        }))
        .expect("a node");
        let patch = sync(&node, &machine, true).expect("changes");
        let labels = json!({"old": null, "node-role.kubernetes.io/gpu": "", "x.node.cluster.x-k8s.io/y": "z"});
        assert_eq!(patch["metadata"]["labels"], labels);
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations[names::NODE_MACHINE], "m");
        assert_eq!(annotations[names::NODE_OWNER_NAME], "s");
        assert_eq!((&annotations["node.cluster.x-k8s.io/note"], annotations.get("other")), (&json!("n"), None));
        let keys: Vec<&str> =
            patch["spec"]["taints"].as_array().expect("taints").iter().filter_map(|one| one["key"].as_str()).collect();
        assert_eq!(keys, ["mine", OUTDATED]);

        let mut settled = json!({"metadata": node.metadata});
        for key in ["labels", "annotations"] {
            for (name, value) in patch["metadata"][key].as_object().expect("changes") {
                if value.is_null() {
                    settled["metadata"][key].as_object_mut().expect("a map").remove(name);
                } else {
                    settled["metadata"][key][name] = value.clone();
                }
            }
        }
        settled["spec"] = patch["spec"].clone();
        node = serde_json::from_value(settled).expect("a node");
        assert_eq!(sync(&node, &machine, true), None);
        assert!(sync(&node, &machine, false).is_some(), "the taint goes");
    }
}
