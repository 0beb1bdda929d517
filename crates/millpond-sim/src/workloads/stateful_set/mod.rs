//! StatefulSets: pods with names, in order.

pub mod claims;
pub mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::ResourceExt;
use serde_json::json;

use super::claim::claim;
use super::history::{self, History, REVISION_LABEL};
use super::pods::{self, PodControl};
use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::{Key, controller_of, is_leaving, phase, status_patch};
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;
use plan::{Action, Revision};

const COMPONENT: &str = "statefulset-controller";
const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
/// Default of `revisionHistoryLimit`.
const DEFAULT_HISTORY: i32 = 10;

/// The StatefulSet controller.
pub struct StatefulSets {
    cluster: Arc<Cluster>,
}

impl StatefulSets {
    /// The controller, and the work queue that watches fill.
    pub fn new(cluster: Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        cluster.stateful_sets.on_change(move |_, new| {
            if let Some(set) = new {
                own.add(Key::of(&**set));
            }
        });
        let (pods, sets) = (Arc::clone(&queue), Arc::clone(&cluster.stateful_sets));
        cluster.pods.on_change(move |old, new| {
            for pod in old.into_iter().chain(new) {
                let namespace = pod.namespace().unwrap_or_default();
                match controller_of(&**pod) {
                    Some(owner) if owner.kind == "StatefulSet" => pods.add(Key::new(&namespace, &owner.name)),
                    Some(_) => {}
                    None => {
                        if let Some((name, _)) = plan::parse_name(&pod.name_any())
                            && let Some(set) = sets.get(&Key::new(&namespace, name))
                            && selector(&set).matches(pod.labels())
                        {
                            pods.add(Key::of(&*set));
                        }
                    }
                }
            }
        });
        (Arc::new(Self { cluster }), queue)
    }

    fn control(&self) -> PodControl<'_> {
        PodControl { cluster: &self.cluster, component: COMPONENT }
    }

    async fn act(&self, set: &StatefulSet, action: &Action, revisions: &Revisions) -> Result<()> {
        match action {
            Action::Create { ordinal, revision } => {
                claims::ensure(&self.cluster, set, *ordinal).await?;
                let (name, template) = match revision {
                    Revision::Current => (&revisions.current_name, &revisions.current),
                    Revision::Update => (&revisions.update_name, &revisions.update),
                };
                let pod = make_pod(set, template, name, *ordinal);
                match self.control().create(set, &pod).await {
                    // An object of that name that is not ours is in the way; look again later.
                    Err(error) if error.is_already_exists() && self.is_ours(set, &pod) => Ok(()),
                    outcome => outcome.map(drop),
                }
            }
            Action::EnsureClaims { ordinal } => claims::ensure(&self.cluster, set, *ordinal).await,
            Action::Delete(pod) => self.control().delete(set, pod).await,
            Action::Identify(pod) => {
                let ordinal = plan::parse_name(&pod.name_any()).map_or(0, |(_, ordinal)| ordinal);
                let labels = json!({POD_NAME_LABEL: pod.name_any(), POD_INDEX_LABEL: ordinal.to_string()});
                let patch = json!({"metadata": {"labels": labels, "uid": pod.metadata.uid}});
                self.cluster.pods.patch(&Key::of(&**pod), &patch).await.map(drop)
            }
        }
    }

    fn is_ours(&self, set: &StatefulSet, pod: &Pod) -> bool {
        let found = self.cluster.pods.get(&Key::of(pod));
        found.is_some_and(|found| crate::meta::controller_uid(&*found) == set.metadata.uid.as_deref())
    }

    /// The pods that belong to a set by name and owner.
    async fn members(&self, set: &StatefulSet) -> Result<Vec<Arc<Pod>>> {
        let name = set.name_any();
        let is_member = |pod: &Pod| plan::parse_name(&pod.name_any()).is_some_and(|(parent, _)| parent == name);
        claim(&self.cluster.pods, set, &selector(set), is_member).await
    }
}

struct Revisions {
    current_name: String,
    current: PodTemplateSpec,
    update_name: String,
    update: PodTemplateSpec,
}

impl Revisions {
    fn of(set: &StatefulSet, history: &History) -> Self {
        let update = template(set);
        let update_name = history.update.name_any();
        let known = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
        let current = history.all.iter().find(|revision| Some(revision.name_any().as_str()) == known);
        match current.and_then(|revision| Some((revision.name_any(), history::template_of(revision)?))) {
            Some((current_name, current)) => Self { current_name, current, update_name, update },
            None => Self { current_name: update_name.clone(), current: update.clone(), update_name, update },
        }
    }
}

impl Reconcile for StatefulSets {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(set) = self.cluster.stateful_sets.get(key) else {
            return Ok(None);
        };
        let members = self.members(&set).await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
        let history = History::sync(&self.cluster, &*set, &selector(&set), &template(&set), collisions).await?;
        let revisions = Revisions::of(&set, &history);
        let now = self.cluster.clock.now();
        let mut outcome = Ok(());
        if !is_leaving(&*set) {
            claims::sync_owners(&self.cluster, &set, &members).await?;
            for action in plan::plan(&set, &members, &revisions.update_name, now) {
                outcome = self.act(&set, &action, &revisions).await;
                if outcome.is_err() {
                    break;
                }
            }
        }
        let members = self.members(&set).await?;
        let status = status(&set, &members, &revisions, history.collisions, now);
        if let Some(patch) = status_patch(&*set, set.status.as_ref(), &status) {
            self.cluster.stateful_sets.patch_status(key, &patch).await?;
        }
        let mut in_use: BTreeSet<String> =
            members.iter().filter_map(|pod| pod.labels().get(REVISION_LABEL).cloned()).collect();
        in_use.extend([revisions.current_name, revisions.update_name]);
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(DEFAULT_HISTORY);
        history.truncate(&self.cluster, &in_use, limit).await?;
        outcome?;
        Ok(pods::next_availability(&members, plan::min_ready_seconds(&set), now))
    }
}

fn selector(set: &StatefulSet) -> Selector {
    Selector::compile(set.spec.as_ref().map(|spec| &spec.selector))
}

fn template(set: &StatefulSet) -> PodTemplateSpec {
    set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default()
}

/// The pod of an ordinal.
fn make_pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = pods::from_template(template, set);
    let name = format!("{}-{ordinal}", set.name_any());
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME_LABEL.to_owned(), name.clone());
    labels.insert(POD_INDEX_LABEL.to_owned(), ordinal.to_string());
    labels.insert(REVISION_LABEL.to_owned(), revision.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    claims::mount(set, spec, ordinal);
    pod.metadata.name = Some(name);
    pod
}

fn status(
    set: &StatefulSet,
    members: &[Arc<Pod>],
    revisions: &Revisions,
    collisions: i32,
    now: Timestamp,
) -> StatefulSetStatus {
    let count = |filter: &dyn Fn(&Pod) -> bool| members.iter().filter(|pod| filter(pod)).count() as i32;
    let is_ready = |pod: &Pod| phase(pod) == "Running" && pods::is_ready(pod);
    let of_revision = |name: &str| {
        let is_of = |pod: &Pod| !is_leaving(pod) && pod.labels().get(REVISION_LABEL).map(String::as_str) == Some(name);
        count(&is_of)
    };
    let replicas = members.len() as i32;
    let ready = count(&is_ready);
    let updated = of_revision(&revisions.update_name);
    let mut current = of_revision(&revisions.current_name);
    let mut current_name = revisions.current_name.clone();
    let wanted = plan::replicas(set);
    if plan::is_rolling(set) && updated == wanted && ready == wanted && replicas == wanted {
        current = updated;
        current_name.clone_from(&revisions.update_name);
    }
    let non_zero = |count: i32| Some(count).filter(|count| *count != 0);
    StatefulSetStatus {
        replicas,
        ready_replicas: non_zero(ready),
        available_replicas: Some(count(&|pod| {
            is_ready(pod) && pods::is_available(pod, plan::min_ready_seconds(set), now)
        })),
        current_replicas: non_zero(current),
        updated_replicas: non_zero(updated),
        current_revision: Some(current_name),
        update_revision: Some(revisions.update_name.clone()),
        collision_count: Some(collisions),
        observed_generation: set.metadata.generation,
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    }
}
