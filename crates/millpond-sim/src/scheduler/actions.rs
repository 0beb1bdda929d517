//! The scheduler's writes: binding, conditions and events, eviction.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::SCHEDULER_NAME;
use super::fit::PodKey;
use super::storage::{SELECTED_NODE, volume_name};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::events::EventReason;
use crate::meta::{Key, is_leaving, node_name, pod_condition};

/// How long a pod's volumes may take to be made.
const VOLUMES_WITHIN: Duration = Duration::from_mins(10);
/// How often a status is written again after a conflict.
const STATUS_TRIES: usize = 5;

/// What happens to a pod's nomination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Nominate {
    /// It stays as it is.
    Keep,
    /// It is removed.
    Nowhere,
    /// It goes to this node.
    To(String),
}

/// The result of a binding.
pub(super) struct Bound {
    pub(super) key: Key,
    pub(super) uid: PodKey,
    pub(super) outcome: Result<()>,
}

/// The scheduler's writes to the cluster.
pub(super) struct Actions {
    cluster: Arc<Cluster>,
    claims_changed: watch::Receiver<u64>,
}

impl Actions {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        let (sender, claims_changed) = watch::channel(0);
        cluster.claims.on_change(move |_, _| sender.send_modify(|count| *count += 1));
        Self { cluster, claims_changed }
    }

    /// Binds a pod to a node, after its volumes were made for that node.
    pub(super) async fn bind(&self, pod: &Pod, node: &str, claims: &[Key]) -> Result<()> {
        let key = Key::of(pod);
        for claim in claims {
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            self.cluster.claims.patch(claim, &patch).await?;
        }
        self.wait_for_volumes(&key, claims).await?;
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                uid: pod.uid(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let api: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &key.namespace);
        let posted: kube::Result<Value> =
            api.create_subresource("binding", &key.name, &PostParams::default(), &binding).await;
        if let Err(source) = posted {
            return Err(Error::Api { verb: "bind", kind: "Pod".to_owned(), key, source: Box::new(source) });
        }
        let event_reason =
            EventReason { component: SCHEDULER_NAME, action: "Binding", reason: "Scheduled", warning: false };
        self.cluster.recorder.record(pod, event_reason, format!("Successfully assigned {key} to {node}"));
        Ok(())
    }

    async fn wait_for_volumes(&self, pod: &Key, claims: &[Key]) -> Result<()> {
        let mut changed = self.claims_changed.clone();
        let all_bound =
            || claims.iter().all(|key| self.cluster.claims.get(key).is_some_and(|claim| volume_name(&claim).is_some()));
        let waited =
            tokio::time::timeout(VOLUMES_WITHIN, async { while !all_bound() && changed.changed().await.is_ok() {} })
                .await;
        waited.map_err(|_| Error::Malformed {
            kind: "Pod",
            key: pod.clone(),
            problem: "its volumes were not made in time".to_owned(),
        })
    }

    /// Writes why a pod is unschedulable, if its condition does not say so yet. `nominate` changes its nomination.
    pub(super) async fn record_failure(&self, pod: &Pod, message: &str, nominate: &Nominate) {
        let known = pod_condition(pod, "PodScheduled");
        if known.and_then(|condition| condition.message.as_deref()) != Some(message) {
            let event_reason = EventReason {
                component: SCHEDULER_NAME,
                action: "Scheduling",
                reason: "FailedScheduling",
                warning: true,
            };
            self.cluster.recorder.record(pod, event_reason, message);
        }
        let now = self.cluster.clock.time();
        let outcome = self
            .update_status(&Key::of(pod), pod.uid().as_deref(), |pod| {
                if node_name(pod).is_some() {
                    return None;
                }
                let fresh = PodCondition {
                    reason: Some("Unschedulable".to_owned()),
                    message: Some(message.to_owned()),
                    ..condition(pod, "PodScheduled", "False", &now)
                };
                let mut status = serde_json::Map::new();
                if let Some(conditions) = with_condition(pod, fresh) {
                    status.insert("conditions".to_owned(), json!(conditions));
                }
                let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
                let wanted = match nominate {
                    Nominate::Keep => nominated.clone(),
                    Nominate::Nowhere => None,
                    Nominate::To(node) => Some(node.clone()),
                };
                if wanted != nominated {
                    status.insert("nominatedNodeName".to_owned(), json!(wanted));
                }
                (!status.is_empty()).then_some(Value::Object(status))
            })
            .await;
        if let Err(error) = outcome {
            tracing::debug!(pod = %Key::of(pod), %error, "refusal not written");
        }
    }

    /// Evicts the victims of a pod, and takes the node away from lesser pods that were to go there.
    pub(super) async fn evict(&self, pod: &Pod, node: &str, victims: &[Key], lesser: &[Key]) {
        for key in victims {
            if let Err(error) = self.evict_one(pod, node, key).await {
                tracing::warn!(pod = %Key::of(pod), victim = %key, %error, "victim not evicted");
            }
        }
        for key in lesser {
            let cleared = self
                .update_status(key, None, |pod| {
                    let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
                    (nominated == Some(node)).then(|| json!({"nominatedNodeName": null}))
                })
                .await;
            if let Err(error) = cleared {
                tracing::debug!(pod = %key, %error, "nomination not cleared");
            }
        }
    }

    async fn evict_one(&self, pod: &Pod, node: &str, key: &Key) -> Result<()> {
        let Some(victim) = self.cluster.pods.get(key).filter(|victim| !is_leaving(&**victim)) else {
            return Ok(());
        };
        let now = self.cluster.clock.time();
        let marked = self
            .update_status(key, victim.uid().as_deref(), |victim| {
                let fresh = PodCondition {
                    reason: Some("PreemptionByScheduler".to_owned()),
                    message: Some(format!("{SCHEDULER_NAME}: preempting to accommodate a higher priority pod")),
                    ..condition(victim, "DisruptionTarget", "True", &now)
                };
                with_condition(victim, fresh).map(|conditions| json!({"conditions": conditions}))
            })
            .await;
        match marked {
            Err(error) if error.is_not_found() => return Ok(()),
            outcome => outcome?,
        }
        self.cluster.pods.delete(&victim, None).await?;
        let event_reason =
            EventReason { component: SCHEDULER_NAME, action: "Preempting", reason: "Preempted", warning: false };
        let note = format!("Preempted by pod {} on node {node}", pod.uid().unwrap_or_default());
        self.cluster.recorder.record(&*victim, event_reason, note);
        Ok(())
    }

    /// Writes a change of a pod's status; it is computed again after a conflict.
    async fn update_status(&self, key: &Key, uid: Option<&str>, change: impl Fn(&Pod) -> Option<Value>) -> Result<()> {
        let mut tries = 0;
        loop {
            let Some(pod) =
                self.cluster.pods.get(key).filter(|pod| uid.is_none_or(|uid| pod.uid().as_deref() == Some(uid)))
            else {
                return Ok(());
            };
            let Some(status) = change(&pod) else {
                return Ok(());
            };
            let version = &pod.metadata.resource_version;
            let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
            tries += 1;
            match self.cluster.pods.patch_status(key, &patch).await {
                Err(error) if error.is_conflict() && tries < STATUS_TRIES => {
                    // The watch brings what the other one wrote.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                outcome => return outcome.map(drop),
            }
        }
    }
}

fn condition(pod: &Pod, type_: &str, status: &str, now: &Time) -> PodCondition {
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        observed_generation: pod.metadata.generation,
        last_transition_time: Some(now.clone()),
        ..PodCondition::default()
    }
}

/// The conditions of a pod with one set; `None` if it is set already.
fn with_condition(pod: &Pod, mut fresh: PodCondition) -> Option<Vec<PodCondition>> {
    let mut conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    match conditions.iter_mut().find(|condition| condition.type_ == fresh.type_) {
        Some(known) => {
            if known.status == fresh.status {
                fresh.last_transition_time.clone_from(&known.last_transition_time);
            }
            let says_same = known.status == fresh.status
                && known.reason == fresh.reason
                && known.message == fresh.message
                && known.observed_generation == fresh.observed_generation;
            if says_same {
                return None;
            }
            *known = fresh;
        }
        None => conditions.push(fresh),
    }
    Some(conditions)
}
