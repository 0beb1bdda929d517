//! Revisions: which ReplicaSet holds the current template, and how the others are numbered.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::Value;

use super::rollout::Limits;
use crate::kinds::template_tree;
use crate::meta::{annotation, controller_reference};
use crate::name_generator::hash_name;

/// The label that tells the pods of two revisions apart.
pub const HASH_LABEL: &str = "pod-template-hash";
/// The number of a revision.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// The numbers that a revision had before it was rolled back to.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The wanted pods when the set was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The most pods when the set was last scaled.
pub const MOST: &str = "deployment.kubernetes.io/max-replicas";

const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MOST,
    "deprecated.deployment.rollback.to",
];
/// The history annotation is kept shorter than this.
const LONGEST_HISTORY: usize = 2000;
/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The set with the deployment's template, the oldest if there are several.
pub fn find_new<'a>(deployment: &Deployment, sets: &'a [Arc<ReplicaSet>]) -> Option<&'a Arc<ReplicaSet>> {
    let wanted = template_of(deployment).map(comparable)?;
    sets.iter()
        .filter(|set| {
            let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            template.map(comparable).as_ref() == Some(&wanted)
        })
        .min_by_key(|set| (set.creation_timestamp().map(|time| time.0), set.name_any()))
}

/// The revision number of a set, zero without one.
pub fn number(set: &ReplicaSet) -> i64 {
    annotation(set, REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// A set for the deployment's template, with no pods yet.
pub fn make(deployment: &Deployment, collisions: Option<i32>) -> ReplicaSet {
    let empty = PodTemplateSpec::default();
    let mut template = template_of(deployment).unwrap_or(&empty).clone();
    let hash = template_hash(&template, collisions);
    let name = deployment.name_any();
    let mut end = name.len().min(LONGEST_NAME - 1 - hash.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let meta = template.metadata.get_or_insert_default();
    meta.labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let labels = meta.labels.clone();
    let mut selector = deployment.spec.as_ref().map_or_else(LabelSelector::default, |spec| spec.selector.clone());
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", &name[..end])),
            namespace: deployment.namespace(),
            labels,
            owner_references: Some(vec![controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds),
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

/// The annotations that the new set should have: the deployment's, and its revision.
pub fn annotations(deployment: &Deployment, set: &ReplicaSet, newest_old: i64) -> BTreeMap<String, String> {
    let mut annotations = set.annotations().clone();
    for (key, value) in deployment.annotations() {
        if !NOT_COPIED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let revision = newest_old + 1;
    let before = number(set);
    if before < revision {
        let previous = annotations.insert(REVISION.to_owned(), revision.to_string());
        if let Some(previous) = previous.filter(|text| !text.is_empty()) {
            let history = annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
            annotations.insert(REVISION_HISTORY.to_owned(), extend_history(&history, &previous));
        }
    }
    annotations
}

/// The annotations that remember how large the deployment was when a set was scaled.
pub fn scale_annotations(limits: &Limits) -> [(&'static str, String); 2] {
    [(DESIRED, limits.replicas.to_string()), (MOST, limits.most().to_string())]
}

fn extend_history(history: &str, revision: &str) -> String {
    let mut numbers: Vec<&str> = history.split(',').filter(|number| !number.is_empty()).collect();
    numbers.push(revision);
    while numbers.len() > 1 && numbers.iter().map(|number| number.len() + 1).sum::<usize>() > LONGEST_HISTORY {
        numbers.remove(0);
    }
    numbers.join(",")
}

fn template_of(deployment: &Deployment) -> Option<&PodTemplateSpec> {
    deployment.spec.as_ref().map(|spec| &spec.template)
}

/// A hash of the template; the counter makes another one when the first is taken.
fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut text = comparable(template).to_string();
    if let Some(collisions) = collisions {
        text.push_str(&collisions.to_string());
    }
    hash_name(text.as_bytes())
}

/// A template without its hash label and without empty fields, so that equal means equal.
fn comparable(template: &PodTemplateSpec) -> Value {
    let mut value = template_tree(template);
    if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    drop_empty(&mut value);
    value
}

/// Removes nulls, empty lists and empty maps, all of which mean absence.
pub fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(drop_empty);
            map.retain(|_, value| match value {
                Value::Null => false,
                Value::Array(list) => !list.is_empty(),
                // An empty object may be a choice, such as an `emptyDir`.
                _ => true,
            });
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}
