//! The MachineSets of a MachineDeployment as they should be: which is the current one, what each carries.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use millpond_api::capi::{self, names};
use millpond_controllers::kinds::{MachineDeployment, MachineSet};
use serde_json::{Value, json};

use super::super::{at, number, owner_reference, put, template};
use super::rollout::{Limits, Size, Strategy};
use crate::meta::{annotation, merge_diff};

/// How many Machines the deployment wants (annotation of a set).
pub const DESIRED: &str = "machinedeployment.clusters.x-k8s.io/desired-replicas";
/// How many Machines the deployment may have (annotation of a set).
pub const MOST: &str = "machinedeployment.clusters.x-k8s.io/max-replicas";
/// Revisions that a set had before (annotation of a set).
const HISTORY: &str = "machinedeployment.clusters.x-k8s.io/revision-history";
/// No Machine is created in this set (annotation on a MachineSet).
pub const DISABLE_CREATE: &str = "cluster.x-k8s.io/disable-machine-create";
/// Annotations of a deployment that its sets do not get.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    names::REVISION,
    HISTORY,
    DESIRED,
    MOST,
    "cluster.x-k8s.io/conversion-data",
];
/// The length of the random part of a set's name.
const SUFFIX: usize = 5;

/// The sets of a deployment, sorted out.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    /// The one with the current template.
    pub new: Option<Arc<MachineSet>>,
    /// The others, the oldest first.
    pub old: Vec<Arc<MachineSet>>,
}

impl Sets {
    /// Sorts out; of several sets with the current template the largest, then the oldest one counts.
    pub fn sort(all: Vec<Arc<MachineSet>>, deployment: &capi::Deployment, now: Timestamp) -> Self {
        let after = deployment.rollout_after.and_then(|after| Timestamp::from_second(after.0).ok());
        let after = after.filter(|after| *after <= now);
        let is_current = |set: &Arc<MachineSet>| {
            let view = capi::MachineSet::of(&set.spec);
            let is_late = after.is_none_or(|after| created(set) >= after);
            is_late && template::differences(&view.template, &deployment.template).is_empty()
        };
        let mut sorted = all;
        sorted.sort_by_key(|set| (created(set), set.name_any()));
        let largest = sorted.iter().filter(|set| is_current(set)).rev().max_by_key(|set| wanted(set));
        let new = largest.cloned();
        sorted.retain(|set| new.as_ref().is_none_or(|new| new.name_any() != set.name_any()));
        Self { new, old: sorted }
    }

    /// All sets.
    pub fn all(&self) -> impl Iterator<Item = &Arc<MachineSet>> {
        self.old.iter().chain(&self.new)
    }

    fn newest_old(&self) -> i64 {
        self.old.iter().map(|set| revision(&**set)).max().unwrap_or_default()
    }
}

/// The Machines that a set should have.
pub fn wanted(set: &MachineSet) -> i64 {
    number(&set.spec, &["replicas"]).unwrap_or_default()
}

/// When a set was made.
pub fn created(set: &MachineSet) -> Timestamp {
    set.creation_timestamp().map_or(Timestamp::MAX, |time| time.0)
}

/// The revision of a set or a deployment.
pub fn revision<K: kube::Resource>(object: &K) -> i64 {
    annotation(object, names::REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The numbers of a set that a rollout needs.
pub fn size(set: &MachineSet) -> Size {
    Size {
        wanted: wanted(set),
        actual: number(&set.status, &["replicas"]).unwrap_or_default(),
        available: number(&set.status, &["availableReplicas"]).unwrap_or_default(),
        created: created(set),
        most_before: annotation(set, MOST).and_then(|text| text.parse().ok()),
    }
}

/// A set that is not there yet.
pub fn nothing() -> Size {
    Size { wanted: 0, actual: 0, available: 0, created: Timestamp::MAX, most_before: None }
}

/// How a deployment may move.
pub fn limits(view: &capi::Deployment) -> Limits {
    let replicas = view.replicas.unwrap_or(1);
    let strategy = match view.strategy {
        capi::Strategy::OnDelete => Strategy::OnDelete,
        capi::Strategy::RollingUpdate { max_surge, max_unavailable } => Strategy::Rolling {
            max_surge: max_surge.of(replicas, true),
            max_unavailable: max_unavailable.of(replicas, false),
        },
    };
    Limits { replicas, strategy }
}

/// The revision of the current set, and the annotations that tell of it.
pub fn current_revision(sets: &Sets) -> (i64, BTreeMap<String, String>) {
    let next = sets.newest_old() + 1;
    let known = sets.new.as_deref().map(revision).filter(|number| *number > 0);
    let number = known.filter(|known| *known > next).unwrap_or(next);
    let mut history = sets.new.as_deref().and_then(|set| annotation(set, HISTORY)).unwrap_or_default().to_owned();
    if let Some(known) = known.filter(|known| *known != number) {
        if !history.is_empty() {
            history.push(',');
        }
        history.push_str(&known.to_string());
    }
    let mut annotations = BTreeMap::from([(names::REVISION.to_owned(), number.to_string())]);
    if !history.is_empty() {
        annotations.insert(HISTORY.to_owned(), history);
    }
    (number, annotations)
}

/// The annotations that every set gets from its deployment.
fn copied_annotations(deployment: &MachineDeployment, limits: &Limits) -> BTreeMap<String, String> {
    let mut annotations = deployment.annotations().clone();
    annotations.retain(|name, _| !NOT_COPIED.contains(&name.as_str()));
    annotations.insert(DESIRED.to_owned(), limits.replicas.to_string());
    annotations.insert(MOST.to_owned(), limits.most().to_string());
    annotations
}

fn template_labels(deployment: &MachineDeployment) -> BTreeMap<String, String> {
    serde_json::from_value(at(&deployment.spec, &["template", "metadata", "labels"]).clone()).unwrap_or_default()
}

/// The set for the current template.
pub fn make(deployment: &MachineDeployment, view: &capi::Deployment, name: &str, sets: &Sets) -> MachineSet {
    let suffix = &name[name.len().saturating_sub(SUFFIX)..];
    let unique = format!("{}-{suffix}", template::hash(&view.template));
    let mut labels = template_labels(deployment);
    labels.insert(names::TEMPLATE_HASH.to_owned(), unique.clone());
    let mut spec = json!({
        "clusterName": view.cluster_name,
        "replicas": 0,
        "selector": at(&deployment.spec, &["selector"]),
        "template": at(&deployment.spec, &["template"]),
    });
    put(&mut spec, &["selector", "matchLabels", names::TEMPLATE_HASH], json!(unique));
    put(&mut spec, &["template", "metadata", "labels"], json!(labels));
    set_in_place(&mut spec, deployment);
    labels.insert(names::DEPLOYMENT_NAME.to_owned(), deployment.name_any());
    let mut annotations = copied_annotations(deployment, &limits(view));
    annotations.extend(current_revision(sets).1);
    annotations.insert(DISABLE_CREATE.to_owned(), "false".to_owned());
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: deployment.namespace(),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: Some(vec![owner_reference(deployment, true)]),
        ..ObjectMeta::default()
    };
    MachineSet::new(metadata, spec)
}

/// The changes of a set that need no rollout.
fn set_in_place(spec: &mut Value, deployment: &MachineDeployment) {
    const PATHS: [&[&str]; 12] = [
        &["deletion", "order"],
        &["machineNaming"],
        &["template", "metadata", "annotations"],
        &["template", "spec", "minReadySeconds"],
        &["template", "spec", "readinessGates"],
        &["template", "spec", "taints"],
        &["template", "spec", "deletion", "nodeDrainTimeoutSeconds"],
        &["template", "spec", "deletion", "nodeDeletionTimeoutSeconds"],
        &["template", "spec", "deletion", "nodeVolumeDetachTimeoutSeconds"],
        // The same, as v1beta1 writes it.
        &["template", "spec", "nodeDrainTimeout"],
        &["template", "spec", "nodeDeletionTimeout"],
        &["template", "spec", "nodeVolumeDetachTimeout"],
    ];
    for path in PATHS {
        let value = at(&deployment.spec, path);
        if at(spec, path) != value {
            put(spec, path, value.clone());
        }
    }
    let old_order = at(&deployment.spec, &["strategy", "rollingUpdate", "deletePolicy"]);
    if !old_order.is_null() {
        put(spec, &["deletePolicy"], old_order.clone());
    }
}

/// The patch that brings a set up to date with its deployment; `None` when it is.
pub fn update(
    deployment: &MachineDeployment,
    view: &capi::Deployment,
    set: &MachineSet,
    sets: &Sets,
    replicas: i64,
) -> Option<Value> {
    let is_new = sets.new.as_ref().is_some_and(|new| new.name_any() == set.name_any());
    let mut spec = set.spec.clone();
    let mut labels = template_labels(deployment);
    let unique = set.labels().get(names::TEMPLATE_HASH).cloned().unwrap_or_default();
    labels.insert(names::TEMPLATE_HASH.to_owned(), unique);
    put(&mut spec, &["template", "metadata", "labels"], json!(labels));
    put(&mut spec, &["replicas"], json!(replicas));
    set_in_place(&mut spec, deployment);
    labels.insert(names::DEPLOYMENT_NAME.to_owned(), deployment.name_any());

    let mut annotations = copied_annotations(deployment, &limits(view));
    let stays_as_it_is = !is_new && limits(view).strategy == Strategy::OnDelete;
    annotations.insert(DISABLE_CREATE.to_owned(), stays_as_it_is.to_string());
    if is_new {
        annotations.extend(current_revision(sets).1);
    }
    let mut patch = json!({});
    if let Some(changes) = merge_diff(&set.spec, &spec) {
        patch["spec"] = changes;
    }
    for (key, known, wanted) in
        [("labels", set.labels(), additions(set.labels(), labels)), ("annotations", set.annotations(), annotations)]
    {
        let news: BTreeMap<_, _> = wanted.into_iter().filter(|(name, value)| known.get(name) != Some(value)).collect();
        if !news.is_empty() {
            patch["metadata"][key] = json!(news);
        }
    }
    if patch.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    patch["metadata"]["resourceVersion"] = json!(set.metadata.resource_version);
    Some(patch)
}

/// Labels to add to the existing ones.
fn additions(known: &BTreeMap<String, String>, wanted: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = known.clone();
    all.extend(wanted);
    all
}
