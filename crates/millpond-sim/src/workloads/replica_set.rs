//! ReplicaSets: as many pods as asked for.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::claim::claim;
use super::pods::{self, BURST, PodControl};
use super::rank::choose_excess;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::{Key, controller_of, controller_uid, is_leaving, status_patch};
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;

const COMPONENT: &str = "replicaset-controller";

/// The ReplicaSet controller.
pub struct ReplicaSets {
    cluster: Arc<Cluster>,
}

impl ReplicaSets {
    /// The controller, and the work queue that watches fill.
    pub fn new(cluster: Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let sets = Arc::clone(&queue);
        cluster.replica_sets.on_change(move |_, new| {
            if let Some(set) = new {
                sets.add(Key::of(&**set));
            }
        });
        let (pods, batch) = (Arc::clone(&queue), cluster.options.batch);
        let sets = Arc::clone(&cluster.replica_sets);
        cluster.pods.on_change(move |old, new| {
            let news = [(old, new.is_none()), (new, false)];
            for (pod, is_urgent) in news.into_iter().filter_map(|(pod, gone)| Some((pod?, gone))) {
                match controller_of(&**pod) {
                    Some(owner) if owner.kind == "ReplicaSet" => {
                        let key = Key::new(&pod.namespace().unwrap_or_default(), &owner.name);
                        let is_urgent = is_urgent || old.is_some_and(|old| is_leaving(&**old) != is_leaving(&**pod));
                        if is_urgent { pods.add(key) } else { pods.add_after(key, batch) }
                    }
                    Some(_) => {}
                    None => {
                        adopters(&sets.list_in(&pod.namespace().unwrap_or_default()), pod)
                            .for_each(|key| pods.add(key));
                    }
                }
            }
        });
        (Arc::new(Self { cluster }), queue)
    }

    /// Creates or deletes pods; says what went wrong.
    async fn manage(&self, set: &ReplicaSet, active: &[Arc<Pod>]) -> Result<()> {
        let control = PodControl { cluster: &self.cluster, component: COMPONENT };
        let wanted = replicas(set);
        if active.len() < wanted {
            let missing = (wanted - active.len()).min(BURST);
            let template = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
            let pods = (0..missing).map(|_| pods::from_template(&template, set)).collect();
            return control.create_all(set, pods).await.1;
        }
        if active.len() > wanted {
            let excess = (active.len() - wanted).min(BURST);
            let chosen = choose_excess(active, &self.related_pods(set), excess, self.cluster.clock.now());
            return control.delete_all(set, &chosen).await;
        }
        Ok(())
    }

    /// The pods of all sets that share this one's owner.
    fn related_pods(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let own_uid = set.uid().unwrap_or_default();
        let Some(owner) = controller_uid(set) else {
            return self.cluster.pods.owned_by(&own_uid);
        };
        let siblings = self.cluster.replica_sets.owned_by(owner);
        siblings.iter().flat_map(|sibling| self.cluster.pods.owned_by(&sibling.uid().unwrap_or_default())).collect()
    }
}

impl Reconcile for ReplicaSets {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(set) = self.cluster.replica_sets.get(key) else {
            return Ok(None);
        };
        let selector = Selector::compile(set.spec.as_ref().map(|spec| &spec.selector));
        let active = claim(&self.cluster.pods, &*set, &selector, pods::is_active).await?;
        let managed = if is_leaving(&*set) { Ok(()) } else { self.manage(&set, &active).await };
        let uid = set.uid().unwrap_or_default();
        let owned = self.cluster.pods.owned_by(&uid);
        let active: Vec<_> = owned.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let leaving = owned.iter().filter(|pod| pods::is_terminating(pod)).count();
        let now = self.cluster.clock.time();
        let failure = managed.as_ref().err().map(|error| (active.len(), error.cause()));
        let status = status(&set, &active, leaving, failure, &now);
        if let Some(patch) = status_patch(&*set, set.status.as_ref(), &status) {
            self.cluster.replica_sets.patch_status(key, &patch).await?;
        }
        managed?;
        Ok(pods::next_availability(&active, min_ready_seconds(&set), now.0))
    }
}

/// The number of pods that a set should have.
pub fn replicas(set: &ReplicaSet) -> usize {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or_default()
}

fn min_ready_seconds(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// The sets that would adopt a pod without an owner.
fn adopters<'a>(sets: &'a [Arc<ReplicaSet>], pod: &'a Pod) -> impl Iterator<Item = Key> + 'a {
    sets.iter()
        .filter(|set| {
            let selector = Selector::compile(set.spec.as_ref().map(|spec| &spec.selector));
            !selector.is_unrestricted() && selector.matches(pod.labels())
        })
        .map(|set| Key::of(&**set))
}

fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    leaving: usize,
    failure: Option<(usize, String)>,
    now: &Time,
) -> ReplicaSetStatus {
    let count = |filter: &dyn Fn(&Pod) -> bool| active.iter().filter(|pod| filter(pod)).count() as i32;
    let template_labels = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.as_ref())
        .map_or(Selector::All(Vec::new()), Selector::of_pairs);
    ReplicaSetStatus {
        replicas: active.len() as i32,
        fully_labeled_replicas: non_zero(count(&|pod| template_labels.matches(pod.labels()))),
        ready_replicas: non_zero(count(&pods::is_ready)),
        available_replicas: non_zero(count(&|pod| pods::is_available(pod, min_ready_seconds(set), now.0))),
        terminating_replicas: Some(leaving as i32),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, failure, now),
    }
}

/// Counters that are zero are left out, as the API server leaves them out.
fn non_zero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

fn conditions(set: &ReplicaSet, failure: Option<(usize, String)>, now: &Time) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let known = conditions.iter().any(|condition| condition.type_ == "ReplicaFailure");
    match failure {
        Some((active, message)) if !known => conditions.push(ReplicaSetCondition {
            type_: "ReplicaFailure".to_owned(),
            status: "True".to_owned(),
            reason: Some(if active < replicas(set) { "FailedCreate" } else { "FailedDelete" }.to_owned()),
            message: Some(message),
            last_transition_time: Some(now.clone()),
        }),
        Some(_) => {}
        None => conditions.retain(|condition| condition.type_ != "ReplicaFailure"),
    }
    (!conditions.is_empty()).then_some(conditions)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ns", "generation": 3},
            "spec": {
                "replicas": 3, "minReadySeconds": 10,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "a"}}},
            },
        }))
        .expect("a set")
    }

    fn pod(labels: serde_json::Value, ready: Option<&str>) -> Arc<Pod> {
        let conditions = ready.map(|since| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]));
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": "p", "labels": labels},
                "status": {"phase": "Running", "conditions": conditions},
            }))
            .expect("a pod"),
        )
    }

    #[test]
    fn the_status_counts() {
        let now = Time("2026-01-01T00:00:20Z".parse().expect("a time"));
        let active = [
            pod(json!({"app": "web", "tier": "a"}), Some("2026-01-01T00:00:05Z")),
            pod(json!({"app": "web"}), Some("2026-01-01T00:00:15Z")),
            pod(json!({"app": "web", "tier": "a"}), None),
        ];
        let got = status(&set(), &active, 1, None, &now);
        assert_eq!(
            serde_json::to_value(&got).expect("json"),
            json!({
                "replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
                "terminatingReplicas": 1, "observedGeneration": 3,
            })
        );
        assert_eq!(pods::next_availability(&active, 10, now.0), Some(Duration::from_secs(5)));
    }

    #[test]
    fn failures_are_told_once_and_taken_back() {
        let now = Time("2026-01-01T00:00:20Z".parse().expect("a time"));
        let mut set = set();
        let first = status(&set, &[], 0, Some((0, "quota".into())), &now);
        let condition = &first.conditions.as_ref().expect("conditions")[0];
        assert_eq!((condition.reason.as_deref(), condition.message.as_deref()), (Some("FailedCreate"), Some("quota")));
        set.status = Some(first.clone());
        let later = Time("2026-01-01T00:09:00Z".parse().expect("a time"));
        assert_eq!(status(&set, &[], 0, Some((0, "other".into())), &later).conditions, first.conditions);
        assert_eq!(status(&set, &[], 0, None, &later).conditions, None);
    }
}
