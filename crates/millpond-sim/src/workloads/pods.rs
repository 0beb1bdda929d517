//! Making and removing the pods of a workload, and judging whether they do their work.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::clock::after_seconds;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::events::EventReason;
use crate::kinds::Kind;
use crate::meta::{controller_reference, has_ended, is_leaving, pod_condition};

/// A controller changes at most this many pods before it looks again.
pub const BURST: usize = 500;
/// How often a random name is drawn again when it is taken.
const NAME_TRIES: usize = 8;

/// Whether a pod counts as a replica.
pub fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && !is_leaving(pod)
}

/// Whether a pod is on its way out but not yet there.
pub fn is_terminating(pod: &Pod) -> bool {
    !has_ended(pod) && is_leaving(pod)
}

/// When a pod became ready, if it is.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let condition = pod_condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    Some(condition.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// Whether a pod has been ready for long enough.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    ready_since(pod)
        .is_some_and(|since| min_ready_seconds == 0 || after_seconds(since, i64::from(min_ready_seconds)) <= now)
}

/// How long until the next ready pod counts as available.
pub fn next_availability<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if min_ready_seconds == 0 {
        return None;
    }
    pods.into_iter()
        .filter_map(|pod| ready_since(pod))
        .map(|since| after_seconds(since, i64::from(min_ready_seconds)))
        .filter(|moment| *moment > now)
        .min()
        .map(|moment| Duration::try_from(moment.duration_since(now)).unwrap_or_default())
}

/// A pod from a template, owned by a workload; it has no name yet.
pub fn from_template<O: Kind>(template: &PodTemplateSpec, owner: &O) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            namespace: owner.meta().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Makes and removes pods in the name of one controller.
pub struct PodControl<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The controller, in events.
    pub component: &'static str,
}

impl PodControl<'_> {
    fn event_reason(&self, reason: &'static str, warning: bool) -> EventReason {
        EventReason { component: self.component, action: "Managing", reason, warning }
    }

    /// Creates a pod under its own name.
    pub async fn create<O: Kind>(&self, owner: &O, pod: &Pod) -> Result<Arc<Pod>> {
        let created = self.cluster.pods.create(pod).await;
        match &created {
            Ok(pod) => {
                let note = format!("Created pod: {}", pod.name_any());
                self.cluster.recorder.record(owner, self.event_reason("SuccessfulCreate", false), note);
            }
            Err(error) if error.is_already_exists() => {}
            Err(error) => {
                let note = format!("Error creating: {}", error.cause());
                self.cluster.recorder.record(owner, self.event_reason("FailedCreate", true), note);
            }
        }
        created
    }

    /// Creates a pod under a random name that begins like its owner's.
    pub async fn create_generated<O: Kind>(&self, owner: &O, mut pod: Pod) -> Result<Arc<Pod>> {
        let prefix = match &pod.metadata.generate_name {
            Some(prefix) => prefix.clone(),
            None => format!("{}-", owner.name_any()),
        };
        let mut tries = 0;
        loop {
            pod.metadata.name = Some(self.cluster.names.generate(&prefix));
            pod.metadata.generate_name = Some(prefix.clone());
            tries += 1;
            match self.create(owner, &pod).await {
                Err(error) if error.is_already_exists() && tries < NAME_TRIES => {}
                outcome => return outcome,
            }
        }
    }

    /// Creates pods in growing batches, so that a refusal costs few calls; the first failure
    /// ends it. Says how many were made.
    pub async fn create_all<O: Kind>(&self, owner: &O, pods: Vec<Pod>) -> (usize, Result<()>) {
        let mut made = 0;
        let mut pods = pods.into_iter();
        let mut batch = 1;
        loop {
            let mut calls: FuturesUnordered<_> =
                pods.by_ref().take(batch).map(|pod| self.create_generated(owner, pod)).collect();
            if calls.is_empty() {
                return (made, Ok(()));
            }
            let mut failure = None;
            while let Some(outcome) = calls.next().await {
                match outcome {
                    Ok(_) => made += 1,
                    Err(error) => failure = Some(error),
                }
            }
            if let Some(error) = failure {
                return (made, Err(error));
            }
            batch *= 2;
        }
    }

    /// Asks a pod to leave.
    pub async fn delete<O: Kind>(&self, owner: &O, pod: &Pod) -> Result<()> {
        if is_leaving(pod) {
            return Ok(());
        }
        let deleted = self.cluster.pods.delete(pod, None).await;
        match &deleted {
            Ok(()) => {
                let note = format!("Deleted pod: {}", pod.name_any());
                self.cluster.recorder.record(owner, self.event_reason("SuccessfulDelete", false), note);
            }
            Err(error) => {
                let note = format!("Error deleting: {}", error.cause());
                self.cluster.recorder.record(owner, self.event_reason("FailedDelete", true), note);
            }
        }
        deleted
    }

    /// Asks pods to leave, all at once.
    pub async fn delete_all<O: Kind>(&self, owner: &O, pods: &[Arc<Pod>]) -> Result<()> {
        let mut calls: FuturesUnordered<_> = pods.iter().map(|pod| self.delete(owner, pod)).collect();
        let mut failure = Ok(());
        while let Some(outcome) = calls.next().await {
            if let Err(error) = outcome {
                failure = Err(error);
            }
        }
        failure
    }
}
