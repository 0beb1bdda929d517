//! The status of a deployment: counters and the story of its progress.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::rollout::Limits;
use crate::clock::after_seconds;

/// Default of `progressDeadlineSeconds`.
const DEFAULT_DEADLINE_S: i32 = 600;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The latest event of the new ReplicaSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewReplicaSet {
    /// It was created in this step.
    Created(String),
    /// It existed already.
    Found(String),
    /// It does not exist yet.
    None,
}

/// Everything a status is computed from.
pub struct Facts<'a> {
    /// The deployment.
    pub deployment: &'a Deployment,
    /// All its sets.
    pub sets: &'a [&'a ReplicaSet],
    /// The set with the current template.
    pub new: Option<&'a ReplicaSet>,
    /// The latest event of the new set.
    pub news: NewReplicaSet,
    /// Whether a rollout is under way; while paused or scaling only counters move.
    pub rolling_out: bool,
    /// The time.
    pub now: Time,
    /// The collision counter to write.
    pub collisions: Option<i32>,
}

/// Computes the status, and when to look again for a rollout that stands still.
pub fn compute(facts: &Facts<'_>) -> (DeploymentStatus, Option<Duration>) {
    let old = facts.deployment.status.clone().unwrap_or_default();
    let mut status = counters(facts, &old);
    let limits = Limits::of(facts.deployment);
    let mut conditions = Conditions { list: old.conditions.clone().unwrap_or_default(), now: facts.now.clone() };
    let deadline = deadline_seconds(facts.deployment);
    if deadline.is_some() {
        tell_pause(&mut conditions, is_paused(facts.deployment));
        match &facts.news {
            NewReplicaSet::Created(name) => {
                let message = format!("Created new replica set \"{name}\"");
                conditions.set(PROGRESSING, "True", "NewReplicaSetCreated", &message);
            }
            NewReplicaSet::Found(name) if conditions.get(PROGRESSING).is_none() => {
                let message = format!("Found new replica set \"{name}\"");
                conditions.set(PROGRESSING, "True", "FoundNewReplicaSet", &message);
            }
            NewReplicaSet::Found(_) | NewReplicaSet::None => {}
        }
    } else if facts.rolling_out {
        conditions.remove(PROGRESSING);
    }
    if status.available_replicas.unwrap_or_default() >= limits.replicas - limits.max_unavailable {
        conditions.set(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
    } else {
        let message = "Deployment does not have minimum availability.";
        conditions.set(AVAILABLE, "False", "MinimumReplicasUnavailable", message);
    }
    let mut recheck = None;
    if facts.rolling_out {
        if let Some(deadline) = deadline {
            recheck = tell_progress(facts, &old, &status, &mut conditions, deadline);
        }
        tell_failure(facts, &mut conditions);
    }
    status.conditions = Some(conditions.list);
    (status, recheck)
}

/// Whether a rollout has reached its end.
pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = Some(Limits::of(deployment).replicas).filter(|replicas| *replicas != 0);
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether a deployment is paused.
pub fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or_default()
}

fn deadline_seconds(deployment: &Deployment) -> Option<i32> {
    let seconds = deployment.spec.as_ref().and_then(|spec| spec.progress_deadline_seconds);
    Some(seconds.unwrap_or(DEFAULT_DEADLINE_S)).filter(|seconds| *seconds != i32::MAX)
}

fn counters(facts: &Facts<'_>, old: &DeploymentStatus) -> DeploymentStatus {
    let sum = |sets: &[&ReplicaSet], read: fn(&ReplicaSet) -> i32| {
        Some(sets.iter().map(|set| read(set)).sum::<i32>()).filter(|sum| *sum != 0)
    };
    let status = |set: &ReplicaSet| set.status.clone().unwrap_or_default();
    let available = sum(facts.sets, |set| set.status.as_ref().and_then(|s| s.available_replicas).unwrap_or_default());
    let wanted: i32 = facts.sets.iter().map(|set| super::wanted(set)).sum();
    let leaving: Option<i32> = facts
        .sets
        .iter()
        .map(|set| if set.status.is_some() { status(set).terminating_replicas } else { Some(0) })
        .sum();
    DeploymentStatus {
        observed_generation: facts.deployment.metadata.generation,
        replicas: sum(facts.sets, |set| set.status.as_ref().map_or(0, |s| s.replicas)),
        updated_replicas: sum(&facts.new.into_iter().collect::<Vec<_>>(), |set| {
            set.status.as_ref().map_or(0, |s| s.replicas)
        }),
        ready_replicas: sum(facts.sets, |set| set.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default()),
        available_replicas: available,
        unavailable_replicas: Some(wanted - available.unwrap_or_default()).filter(|pods| *pods > 0),
        terminating_replicas: leaving,
        collision_count: facts.collisions.or(old.collision_count),
        conditions: None,
    }
}

fn tell_pause(conditions: &mut Conditions, paused: bool) {
    let reason = conditions.get(PROGRESSING).and_then(|known| known.reason.as_deref());
    if reason == Some(TIMED_OUT) {
        return;
    }
    match (paused, reason == Some(PAUSED)) {
        (true, false) => conditions.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused"),
        (false, true) => conditions.set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed"),
        _ => {}
    }
}

fn tell_progress(
    facts: &Facts<'_>,
    old: &DeploymentStatus,
    status: &DeploymentStatus,
    conditions: &mut Conditions,
    deadline: i32,
) -> Option<Duration> {
    let known = conditions.get(PROGRESSING).cloned();
    let reason = known.as_ref().and_then(|known| known.reason.as_deref());
    if status.replicas == status.updated_replicas && reason == Some(NEW_SET_AVAILABLE) {
        return None;
    }
    let subject = match facts.new {
        Some(set) => format!("ReplicaSet \"{}\"", set.name_any()),
        None => format!("Deployment \"{}\"", facts.deployment.name_any()),
    };
    if is_complete(facts.deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        conditions.set(PROGRESSING, "True", NEW_SET_AVAILABLE, &message);
        return None;
    }
    if is_moving(old, status) {
        let message = format!("{subject} is progressing.");
        conditions.renew(PROGRESSING, "True", "ReplicaSetUpdated", &message);
    } else if has_timed_out(known.as_ref(), deadline, facts.now.0) {
        let message = format!("{subject} has timed out progressing.");
        conditions.set(PROGRESSING, "False", TIMED_OUT, &message);
        return None;
    }
    let known = conditions.get(PROGRESSING)?;
    if known.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    let due = after_seconds(known.last_update_time.as_ref()?.0, i64::from(deadline) + 1);
    Some(Duration::try_from(due.duration_since(facts.now.0)).unwrap_or_default().max(Duration::from_secs(1)))
}

fn is_moving(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let n = Option::unwrap_or_default;
    let outdated = |status: &DeploymentStatus| n(status.replicas) - n(status.updated_replicas);
    n(new.updated_replicas) > n(old.updated_replicas)
        || outdated(new) < outdated(old)
        || n(new.ready_replicas) > n(old.ready_replicas)
        || n(new.available_replicas) > n(old.available_replicas)
}

fn has_timed_out(known: Option<&DeploymentCondition>, deadline: i32, now: Timestamp) -> bool {
    let Some(known) = known else {
        return false;
    };
    match known.reason.as_deref() {
        Some(NEW_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => known.last_update_time.as_ref().is_some_and(|since| after_seconds(since.0, i64::from(deadline)) < now),
    }
}

fn tell_failure(facts: &Facts<'_>, conditions: &mut Conditions) {
    let failures = |set: &ReplicaSet| {
        let list = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        list.into_iter().find(|condition| condition.type_ == REPLICA_FAILURE)
    };
    let newest = facts.new.and_then(failures);
    match newest.or_else(|| facts.sets.iter().find_map(|set| failures(set))) {
        Some(failure) => {
            let reason = failure.reason.unwrap_or_default();
            conditions.set(REPLICA_FAILURE, &failure.status, &reason, &failure.message.unwrap_or_default());
        }
        None => conditions.remove(REPLICA_FAILURE),
    }
}

struct Conditions {
    list: Vec<DeploymentCondition>,
    now: Time,
}

impl Conditions {
    fn get(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.list.iter().find(|condition| condition.type_ == type_)
    }

    fn remove(&mut self, type_: &str) {
        self.list.retain(|condition| condition.type_ != type_);
    }

    /// Sets a condition; one with the same status and reason stays as it is.
    fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let same = |known: &DeploymentCondition| known.status == status && known.reason.as_deref() == Some(reason);
        if !self.get(type_).is_some_and(same) {
            self.renew(type_, status, reason, message);
        }
    }

    /// Sets a condition with the time of this update in any case.
    fn renew(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let since = self
            .get(type_)
            .filter(|known| known.status == status)
            .and_then(|known| known.last_transition_time.clone())
            .unwrap_or_else(|| self.now.clone());
        self.remove(type_);
        self.list.push(DeploymentCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(self.now.clone()),
            last_transition_time: Some(since),
        });
    }
}
