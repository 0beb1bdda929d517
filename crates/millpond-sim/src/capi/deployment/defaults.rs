//! What Cluster API's webhooks fill in on a MachineDeployment, and what its controller adds at once.

use kube::ResourceExt;
use kube::api::ObjectMeta;
use millpond_api::capi::names;
use millpond_controllers::kinds::{CapiCluster, MachineDeployment};
use serde_json::{Map, Value, json};

use super::super::{at, number, owner_reference, put, text, with_owner};
use crate::meta::{annotation, merge_diff};

/// Keeps a MachineDeployment until its sets are gone.
pub const FINALIZER: &str = "cluster.x-k8s.io/machinedeployment";

/// The patch that fills in missing defaults; `None` when nothing is missing. `before` is the last known number of
/// Machines.
pub fn missing(deployment: &MachineDeployment, cluster: &CapiCluster, before: Option<i64>) -> Option<Value> {
    let spec = filled(deployment, before);
    let mut patch = json!({});
    if let Some(changes) = merge_diff(&deployment.spec, &spec) {
        patch["spec"] = changes;
    }
    let mut metadata = Map::new();
    let name = text(&deployment.spec, &["clusterName"]).unwrap_or_default();
    if deployment.labels().get(names::CLUSTER_NAME).map(String::as_str) != Some(name) {
        metadata.insert("labels".to_owned(), json!({names::CLUSTER_NAME: name}));
    }
    extend_lists(&mut metadata, &deployment.metadata, cluster, FINALIZER);
    if !metadata.is_empty() {
        metadata.insert("resourceVersion".to_owned(), json!(deployment.metadata.resource_version));
        patch["metadata"] = Value::Object(metadata);
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// Adds the Cluster to the owners and a finalizer, where they are missing.
fn extend_lists(patch: &mut Map<String, Value>, meta: &ObjectMeta, cluster: &CapiCluster, finalizer: &str) {
    if let Some(owners) = with_owner(meta.owner_references.as_deref(), owner_reference(cluster, false)) {
        patch.insert("ownerReferences".to_owned(), json!(owners));
    }
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    if !finalizers.iter().any(|known| known == finalizer) {
        let all: Vec<&str> = finalizers.iter().map(String::as_str).chain([finalizer]).collect();
        patch.insert("finalizers".to_owned(), json!(all));
    }
}

fn filled(deployment: &MachineDeployment, before: Option<i64>) -> Value {
    let mut spec = deployment.spec.clone();
    let cluster = text(&spec, &["clusterName"]).unwrap_or_default().to_owned();
    if number(&spec, &["replicas"]).is_none() {
        spec["replicas"] = json!(replicas(deployment, before));
    }
    let is_empty = |value: &Value| value.as_object().is_none_or(Map::is_empty);
    let selector = at(&spec, &["selector"]);
    let selects_nothing =
        is_empty(&selector["matchLabels"]) && selector["matchExpressions"].as_array().is_none_or(Vec::is_empty);
    let mut labels = vec![(names::CLUSTER_NAME, cluster)];
    if selects_nothing {
        labels.push((names::DEPLOYMENT_NAME, deployment.name_any()));
    }
    for (label, value) in labels {
        put(&mut spec, &["selector", "matchLabels", label], json!(value));
        put(&mut spec, &["template", "metadata", "labels", label], json!(value));
    }
    // Written in the older form, the strategy is there already.
    if at(&spec, &["strategy"]).is_null() {
        fill_strategy(&mut spec);
    }
    if let Some(version) = text(&spec, &["template", "spec", "version"])
        && !version.starts_with('v')
    {
        let version = format!("v{version}");
        put(&mut spec, &["template", "spec", "version"], json!(version));
    }
    spec
}

fn fill_strategy(spec: &mut Value) {
    let strategy = ["rollout", "strategy"];
    if text(spec, &[strategy[0], strategy[1], "type"]).is_none() {
        put(spec, &[strategy[0], strategy[1], "type"], json!("RollingUpdate"));
    }
    if text(spec, &[strategy[0], strategy[1], "type"]) == Some("RollingUpdate") {
        for (step, default) in [("maxSurge", 1), ("maxUnavailable", 0)] {
            let path = [strategy[0], strategy[1], "rollingUpdate", step];
            if at(spec, &path).is_null() {
                put(spec, &path, json!(default));
            }
        }
    }
}

/// The default for `replicas`: within the bounds of the autoscaler if it has any, else one.
fn replicas(deployment: &MachineDeployment, before: Option<i64>) -> i64 {
    let bound = |name: &str| annotation(deployment, name).and_then(|text| text.parse::<i64>().ok());
    match (bound(names::MIN_SIZE), bound(names::MAX_SIZE)) {
        (Some(min), Some(max)) => before.map_or(min, |before| before.min(max).max(min)),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(annotations: &Value, spec: &Value) -> MachineDeployment {
        serde_json::from_value(json!({
            "metadata": {"name": "pool", "namespace": "ns", "annotations": annotations}, "spec": spec,
        }))
        .expect("a deployment")
    }

    #[test]
    fn labels_tell_pools_apart_unless_somebody_chose_them() {
        let bare = filled(&deployment(&json!({}), &json!({"clusterName": "c", "template": {}})), None);
        let both = json!({"cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/deployment-name": "pool"});
        assert_eq!((&bare["selector"]["matchLabels"], &bare["template"]["metadata"]["labels"]), (&both, &both));
        assert_eq!(bare["replicas"], 1);
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        assert_eq!(bare["rollout"]["strategy"], rolling);

        let chosen = json!({"clusterName": "c", "selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"version": "1.34.1"}}});
        let chosen = filled(&deployment(&json!({}), &chosen), None);
        let labels = json!({"a": "b", "cluster.x-k8s.io/cluster-name": "c"});
        assert_eq!((&chosen["selector"]["matchLabels"], &chosen["template"]["metadata"]["labels"]), (&labels, &labels));
        assert_eq!((&chosen["rollout"], &chosen["template"]["spec"]["version"]), (&Value::Null, &json!("v1.34.1")));
    }

    #[test]
    fn replicas_stay_within_the_bounds_of_the_autoscaler() {
        let bounds = |min: &str, max: &str| json!({names::MIN_SIZE: min, names::MAX_SIZE: max});
        let cases = [
            (bounds("2", "5"), None, 2),
            (bounds("2", "5"), Some(1), 2),
            (bounds("2", "5"), Some(4), 4),
            (bounds("2", "5"), Some(9), 5),
            (bounds("0", "5"), None, 0),
            (bounds("two", "5"), Some(3), 1),
            (json!({}), Some(3), 1),
        ];
        for (annotations, before, expected) in cases {
            let made = deployment(&annotations, &json!({"clusterName": "c"}));
            assert_eq!(replicas(&made, before), expected, "{annotations} {before:?}");
        }
    }
}
