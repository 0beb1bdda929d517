//! Deployments: ReplicaSets that replace one another.

pub mod revision;
pub mod rollout;
pub mod status;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::claim::claim;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::events::EventReason;
use crate::meta::{Key, annotation, controller_of, has_ended, is_leaving, status_patch};
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;
use rollout::{Limits, Size};
use status::{Facts, NewReplicaSet};

const COMPONENT: &str = "deployment-controller";
/// Default of `revisionHistoryLimit`.
const DEFAULT_HISTORY: i32 = 10;

/// The Deployment controller.
pub struct Deployments {
    cluster: Arc<Cluster>,
}

/// The sets of a deployment, sorted out.
struct Sets {
    new: Option<Arc<ReplicaSet>>,
    old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    fn all(&self) -> Vec<&ReplicaSet> {
        self.old.iter().chain(&self.new).map(|set| &**set).collect()
    }

    fn total(&self) -> i32 {
        self.all().into_iter().map(wanted).sum()
    }
}

/// The pods that a set should have.
fn wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn size(set: &ReplicaSet) -> Size {
    Size {
        replicas: wanted(set),
        available: set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default(),
        created: set.creation_timestamp().map_or(Timestamp::MIN, |time| time.0),
        most_before: annotation(set, revision::MOST).and_then(|text| text.parse().ok()),
    }
}

impl Deployments {
    /// The controller, and the work queue that watches fill.
    pub fn new(cluster: Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        cluster.deployments.on_change(move |_, new| {
            if let Some(deployment) = new {
                own.add(Key::of(&**deployment));
            }
        });
        let (sets, all) = (Arc::clone(&queue), Arc::clone(&cluster.deployments));
        cluster.replica_sets.on_change(move |old, new| {
            for set in old.into_iter().chain(new) {
                let namespace = set.namespace().unwrap_or_default();
                match controller_of(&**set) {
                    Some(owner) if owner.kind == "Deployment" => sets.add(Key::new(&namespace, &owner.name)),
                    Some(_) => {}
                    None => all
                        .list_in(&namespace)
                        .iter()
                        .filter(|deployment| selector(deployment).matches(set.labels()))
                        .for_each(|deployment| sets.add(Key::of(&**deployment))),
                }
            }
        });
        let (pods, all) = (Arc::clone(&queue), Arc::clone(&cluster.replica_sets));
        cluster.pods.on_change(move |old, new| {
            // A deployment that recreates waits for the last old pod to go.
            if let (Some(pod), None) = (old, new)
                && let Some(owner) = controller_of(&**pod).filter(|owner| owner.kind == "ReplicaSet")
                && let Some(set) = all.get(&Key::new(&pod.namespace().unwrap_or_default(), &owner.name))
                && let Some(owner) = controller_of(&*set).filter(|owner| owner.kind == "Deployment")
            {
                pods.add(Key::new(&set.namespace().unwrap_or_default(), &owner.name));
            }
        });
        (Arc::new(Self { cluster }), queue)
    }

    fn record_event(&self, deployment: &Deployment, reason: &'static str, warning: bool, note: String) {
        let event_reason = EventReason { component: COMPONENT, action: "Scaling", reason, warning };
        self.cluster.recorder.record(deployment, event_reason, note);
    }

    async fn sets(&self, deployment: &Deployment) -> Result<Sets> {
        let all = claim(&self.cluster.replica_sets, deployment, &selector(deployment), |_| true).await?;
        let new = revision::find_new(deployment, &all).cloned();
        let mut old = all;
        old.retain(|set| new.as_ref().is_none_or(|new| new.name_any() != set.name_any()));
        Ok(Sets { new, old })
    }

    /// Brings the new set's annotations up to date.
    async fn sync_revision(&self, deployment: &Deployment, sets: &mut Sets) -> Result<()> {
        let newest_old = sets.old.iter().map(|set| revision::number(set)).max().unwrap_or_default();
        let Some(new) = &sets.new else {
            return Ok(());
        };
        let annotations = revision::annotations(deployment, new, newest_old);
        let seconds = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
        let known = new.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
        if annotations != *new.annotations() || seconds != known {
            let patch = json!({
                "metadata": {"annotations": annotations, "resourceVersion": new.metadata.resource_version},
                "spec": {"minReadySeconds": seconds},
            });
            sets.new = Some(self.cluster.replica_sets.patch(&Key::of(&**new), &patch).await?);
        }
        Ok(())
    }

    /// Creates the set for the current template; `None` when the name is taken by another set,
    /// in which case the collision counter was raised.
    async fn create_set(&self, deployment: &Deployment, sets: &mut Sets, limits: &Limits) -> Result<bool> {
        let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
        let mut set = revision::make(deployment, collisions);
        let newest_old = sets.old.iter().map(|set| revision::number(set)).max().unwrap_or_default();
        let mut annotations = revision::annotations(deployment, &set, newest_old);
        annotations.extend(revision::scale_annotations(limits).map(|(key, value)| (key.to_owned(), value)));
        set.metadata.annotations = Some(annotations);
        let pods = rollout::grow(limits, 0, sets.total());
        set.spec.get_or_insert_default().replicas = Some(pods);
        let name = set.name_any();
        match self.cluster.replica_sets.create(&set).await {
            Ok(created) => {
                if pods > 0 {
                    let note = format!("Scaled up replica set {name} from 0 to {pods}");
                    self.record_event(deployment, "ScalingReplicaSet", false, note);
                }
                sets.new = Some(created);
                Ok(true)
            }
            Err(error) if error.is_already_exists() => {
                let raised = collisions.unwrap_or_default() + 1;
                let patch = json!({"status": {"collisionCount": raised}});
                self.cluster.deployments.patch_status(&Key::of(deployment), &patch).await?;
                Ok(false)
            }
            Err(error) => {
                let note = format!("Failed to create new replica set \"{name}\": {}", error.cause());
                self.record_event(deployment, "ReplicaSetCreateError", true, note);
                Err(error)
            }
        }
    }

    async fn resize(&self, deployment: &Deployment, set: &ReplicaSet, to: i32, limits: &Limits) -> Result<()> {
        let from = wanted(set);
        let annotations: Map<String, Value> = revision::scale_annotations(limits)
            .into_iter()
            .filter(|(key, value)| annotation(set, key) != Some(value))
            .map(|(key, value)| (key.to_owned(), Value::String(value)))
            .collect();
        if from == to && annotations.is_empty() {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"annotations": annotations, "resourceVersion": set.metadata.resource_version},
            "spec": {"replicas": to},
        });
        self.cluster.replica_sets.patch(&Key::of(set), &patch).await?;
        if from != to {
            let direction = if from < to { "up" } else { "down" };
            let note = format!("Scaled {direction} replica set {} from {from} to {to}", set.name_any());
            self.record_event(deployment, "ScalingReplicaSet", false, note);
        }
        Ok(())
    }

    /// Follows a change of `replicas` without moving the rollout on; says whether sets changed.
    async fn scale(&self, deployment: &Deployment, sets: &Sets, limits: &Limits) -> Result<()> {
        let all = sets.all();
        let active: Vec<&ReplicaSet> = all.iter().copied().filter(|set| wanted(set) > 0).collect();
        if active.len() <= 1 {
            let newest_old = sets.old.iter().max_by_key(|set| size(set).created).map(|set| &**set);
            let only = active.first().copied().or(sets.new.as_deref()).or(newest_old);
            return match only.filter(|set| wanted(set) != limits.replicas) {
                Some(set) => self.resize(deployment, set, limits.replicas, limits).await,
                None => Ok(()),
            };
        }
        if sets.new.as_deref().is_some_and(|new| is_saturated(new, limits)) {
            for set in sets.old.iter().filter(|set| wanted(set) > 0) {
                self.resize(deployment, set, 0, limits).await?;
            }
            return Ok(());
        }
        if limits.rolling {
            let sizes: Vec<Size> = active.iter().map(|set| size(set)).collect();
            let known = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
            for (index, to) in rollout::proportionally(limits, &sizes, known) {
                self.resize(deployment, active[index], to, limits).await?;
            }
        }
        Ok(())
    }

    /// Moves a rolling update by one step.
    async fn roll(&self, deployment: &Deployment, sets: &Sets, limits: &Limits) -> Result<()> {
        let Some(new) = &sets.new else {
            return Ok(());
        };
        let grown = rollout::grow(limits, wanted(new), sets.total());
        if grown != wanted(new) {
            return self.resize(deployment, new, grown, limits).await;
        }
        let sizes: Vec<Size> = sets.old.iter().map(|set| size(set)).collect();
        for (index, to) in rollout::shrink(limits, &size(new), &sizes) {
            self.resize(deployment, &sets.old[index], to, limits).await?;
        }
        Ok(())
    }

    /// Moves a recreation by one step; says whether a new set was made.
    async fn recreate(&self, deployment: &Deployment, sets: &mut Sets, limits: &Limits) -> Result<bool> {
        let active: Vec<_> = sets.old.iter().filter(|set| wanted(set) > 0).cloned().collect();
        if !active.is_empty() {
            for set in active {
                self.resize(deployment, &set, 0, limits).await?;
            }
            return Ok(false);
        }
        if self.old_pods_run(&sets.old) {
            return Ok(false);
        }
        match &sets.new {
            None => self.create_set(deployment, sets, limits).await,
            Some(new) => {
                self.resize(deployment, new, limits.replicas, limits).await?;
                Ok(false)
            }
        }
    }

    fn old_pods_run(&self, old: &[Arc<ReplicaSet>]) -> bool {
        old.iter().any(|set| {
            set.status.as_ref().is_some_and(|status| status.replicas > 0)
                || self.cluster.pods.owned_by(&set.uid().unwrap_or_default()).iter().any(|pod| !has_ended(pod))
        })
    }

    /// Deletes old sets beyond the history limit.
    async fn clean_up(&self, deployment: &Deployment, old: &[Arc<ReplicaSet>]) -> Result<()> {
        let limit = deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(DEFAULT_HISTORY);
        if limit == i32::MAX {
            return Ok(());
        }
        let mut idle: Vec<_> = old.iter().filter(|set| !is_leaving(&***set)).collect();
        idle.sort_by_key(|set| (revision::number(set), size(set).created));
        let excess = idle.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        for set in idle.into_iter().take(excess) {
            let status = set.status.clone().unwrap_or_default();
            let is_settled = set.metadata.generation <= status.observed_generation;
            if wanted(set) == 0 && status.replicas == 0 && is_settled {
                self.cluster.replica_sets.delete(set, None).await?;
            }
        }
        Ok(())
    }

    async fn step(&self, deployment: &Deployment, sets: &mut Sets) -> Result<(NewReplicaSet, bool)> {
        let limits = Limits::of(deployment);
        let found =
            |sets: &Sets| sets.new.as_ref().map_or(NewReplicaSet::None, |new| NewReplicaSet::Found(new.name_any()));
        if is_leaving(deployment) {
            return Ok((found(sets), false));
        }
        self.sync_revision(deployment, sets).await?;
        if status::is_paused(deployment) {
            self.scale(deployment, sets, &limits).await?;
            self.clean_up(deployment, &sets.old).await?;
            return Ok((found(sets), false));
        }
        if is_scaling(sets, &limits) {
            self.scale(deployment, sets, &limits).await?;
            return Ok((found(sets), false));
        }
        let created = if !limits.rolling {
            self.recreate(deployment, sets, &limits).await?
        } else if sets.new.is_none() {
            self.create_set(deployment, sets, &limits).await?
        } else {
            self.roll(deployment, sets, &limits).await?;
            false
        };
        if status::is_complete(deployment, &deployment.status.clone().unwrap_or_default()) {
            self.clean_up(deployment, &sets.old).await?;
        }
        let news = match &sets.new {
            Some(new) if created => NewReplicaSet::Created(new.name_any()),
            _ => found(sets),
        };
        Ok((news, true))
    }
}

impl Reconcile for Deployments {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(deployment) = self.cluster.deployments.get(key) else {
            return Ok(None);
        };
        if selector(&deployment).is_unrestricted() {
            return self.refuse_to_select_all(&deployment).await;
        }
        let mut sets = self.sets(&deployment).await?;
        let (news, rolling_out) = self.step(&deployment, &mut sets).await?;
        // The steps above wrote through the mirrors: count on what they left behind.
        let (Some(deployment), sets) = (self.cluster.deployments.get(key), self.fresh(sets)) else {
            return Ok(None);
        };
        let all = sets.all();
        let facts = Facts {
            deployment: &deployment,
            sets: &all,
            new: sets.new.as_deref(),
            news,
            rolling_out,
            now: self.cluster.clock.time(),
            collisions: None,
        };
        let (status, recheck) = status::compute(&facts);
        let mut patch = status_patch(&*deployment, deployment.status.as_ref(), &status);
        let number = sets.new.as_deref().and_then(|new| annotation(new, revision::REVISION));
        if let Some(number) = number.filter(|number| annotation(&*deployment, revision::REVISION) != Some(*number)) {
            // Written through the status, because a change of annotations would increase the generation.
            let patch = patch.get_or_insert_with(|| json!({"metadata": {}}));
            patch["metadata"]["annotations"] = json!({revision::REVISION: number});
        }
        if let Some(patch) = patch {
            self.cluster.deployments.patch_status(key, &patch).await?;
        }
        Ok(recheck)
    }
}

impl Deployments {
    fn fresh(&self, sets: Sets) -> Sets {
        let latest = |set: Arc<ReplicaSet>| self.cluster.replica_sets.get(&Key::of(&*set));
        Sets { new: sets.new.and_then(latest), old: sets.old.into_iter().filter_map(latest).collect() }
    }

    async fn refuse_to_select_all(&self, deployment: &Deployment) -> Result<Option<Duration>> {
        let status = deployment.status.clone().unwrap_or_default();
        if status.observed_generation < deployment.metadata.generation {
            let note = "This deployment is selecting all pods. A non-empty selector is required.";
            self.record_event(deployment, "SelectingAll", true, note.to_owned());
            let patch = json!({"status": {"observedGeneration": deployment.metadata.generation}});
            self.cluster.deployments.patch_status(&Key::of(deployment), &patch).await?;
        }
        Ok(None)
    }
}

fn selector(deployment: &Deployment) -> Selector {
    Selector::compile(deployment.spec.as_ref().map(|spec| &spec.selector))
}

/// Whether `replicas` changed since the sets were last scaled.
fn is_scaling(sets: &Sets, limits: &Limits) -> bool {
    sets.all().into_iter().filter(|set| wanted(set) > 0).any(|set| {
        annotation(set, revision::DESIRED)
            .and_then(|text| text.parse::<i32>().ok())
            .is_some_and(|desired| desired != limits.replicas)
    })
}

/// Whether a set has the size of the deployment, was meant to have it, and is available.
fn is_saturated(set: &ReplicaSet, limits: &Limits) -> bool {
    let desired = annotation(set, revision::DESIRED).and_then(|text| text.parse::<i32>().ok());
    wanted(set) == limits.replicas && desired == Some(limits.replicas) && size(set).available == limits.replicas
}

#[cfg(test)]
mod tests;
