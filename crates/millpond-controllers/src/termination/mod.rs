//! Termination of a claim: its node is drained, its machine is deleted, then both objects are removed.
//!
//! ```text
//! claim deleted ─▶ deadline ─▶ node tainted, deleted ─▶ pods leave ─▶ volumes detached ─▶ machine ends ─▶ node gone ─▶ claim gone
//!                  (grace        (its finalizer           tier by       Drained             Volumes-        Instance-
//!                   period)       holds it)               tier                              Detached        Terminating
//! ```
//!
//! Every step can be repeated, and what is done next follows from what the API and the provider say: a process that
//! dies anywhere in between loses nothing but patience. A machine that is gone already is not mourned: its node goes
//! at once.

mod evict;
mod machine;
mod pods;
mod tracker;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use millpond_api::condition::{find, is_true};
use millpond_api::karpenter::{
    DISRUPTED_TAINT, REGISTERED_LABEL, TERMINATION_FINALIZER, TERMINATION_TIMESTAMP_ANNOTATION, conditions,
};
use millpond_api::meta::Condition;
use millpond_api::time::Time;
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::{Key, annotation, is_leaving, node_name};
use millpond_runtime::queue::Queue;
use serde_json::{Value, json};
use tokio::time::Instant;

pub use self::tracker::TerminationTracker;

use self::evict::Answer;
use self::machine::{Deletion, Found, Presence};
use crate::claims::write_status;
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::nodes;

/// Load balancers leave nodes with this label out.
const EXCLUDED_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// A scheduler that has not seen the taint yet may still place a pod: a node that was tainted only now is not called
/// empty before this has passed.
const TAINT_SEEN_WITHIN: Duration = Duration::from_secs(1);
/// Pods that are named in an event.
const NAMED: usize = 5;

macro_rules! event_reason {
    ($name:ident, $reason:literal, $warning:literal) => {
        const $name: EventReason =
            EventReason { component: "millpond", action: "Terminate", reason: $reason, warning: $warning };
    };
}
event_reason!(EXPIRING, "TerminationGracePeriodExpiring", true);
event_reason!(FAILED_DRAINING, "FailedDraining", true);
event_reason!(EVICTED, "Evicted", false);
event_reason!(DISRUPTED, "Disrupted", false);
event_reason!(MISSPELT, "InvalidDoNotDisruptAnnotation", true);
event_reason!(AWAITING_VOLUMES, "AwaitingVolumeDetachment", false);
event_reason!(FAILED_TERMINATION, "FailedTermination", true);

/// Asks for work on a leaving claim whenever something changes on its node, or a budget that held it up has room.
pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) {
    context.terminations.wakes(queue);
    let cluster = &context.cluster;
    let weak = Arc::downgrade(context);
    cluster.pods.on_change(move |before, after| {
        let Some(context) = weak.upgrade() else { return };
        if let Some(node) = after.or(before).and_then(|pod| node_name(pod)) {
            context.terminations.changed_on(node);
        }
    });
    let weak = Arc::downgrade(context);
    cluster.attachments.on_change(move |before, after| {
        let (Some(context), Some(attachment)) = (weak.upgrade(), after.or(before)) else { return };
        context.terminations.changed_on(&attachment.spec.node_name);
    });
    let weak = Arc::downgrade(context);
    cluster.budgets.on_change(move |before, after| {
        let Some(context) = weak.upgrade() else { return };
        match (before, after) {
            (_, Some(budget)) => unblock(&context, budget, room(budget)),
            (Some(budget), None) => unblock(&context, budget, usize::MAX),
            (None, None) => {}
        }
    });
    let weak = Arc::downgrade(context);
    cluster.claims.on_change(move |before, after| {
        if let (Some(context), Some(claim), None) = (weak.upgrade(), before, after) {
            context.terminations.forget(claim.name());
        }
    });
}

/// How many pods a budget lets go now.
fn room(budget: &PodDisruptionBudget) -> usize {
    let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0);
    usize::try_from(allowed).unwrap_or(0)
}

fn unblock(context: &Context, budget: &PodDisruptionBudget, room: usize) {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    let Some(selector) = selector.and_then(|selector| Selector::try_from(selector).ok()).filter(|_| room > 0) else {
        return;
    };
    let namespace = budget.namespace().unwrap_or_default();
    context.terminations.unblock(room, |pod| {
        let found = (pod.namespace == namespace).then(|| context.cluster.pods.get(pod)).flatten();
        found.is_some_and(|pod| selector.matches(pod.labels()))
    });
}

/// Brings a claim that is being deleted to its end.
pub async fn reconcile(context: &Arc<Context>, claim: &Arc<NodeClaim>) -> Result<Option<Duration>> {
    if !has_finalizer(claim.finalizers()) {
        return Ok(None);
    }
    let ending = Termination { context, claim: Arc::clone(claim), deadline: None, said: Vec::new(), again: None };
    ending.run().await
}

/// One look at a claim that is leaving.
struct Termination<'c> {
    context: &'c Context,
    claim: Arc<NodeClaim>,
    /// When the node must be gone.
    deadline: Option<Timestamp>,
    /// Conditions to be written.
    said: Vec<Condition>,
    /// When to look again.
    again: Option<Duration>,
}

/// Whether a step is done.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    Waits,
}

impl Termination<'_> {
    async fn run(mut self) -> Result<Option<Duration>> {
        self.set_deadline().await?;
        let id = match machine::find(self.context, &mut self.claim).await? {
            Found::Machine(id) => id,
            Found::Nothing => return self.release().await,
            Found::Unclear(wait) => return Ok(Some(wait)),
        };
        let nodes = self.hold_nodes(&id).await?;
        let is_ending = is_true(&self.claim.status.conditions, conditions::INSTANCE_TERMINATING);
        if !nodes.is_empty() && !is_ending && self.empty(&id, &nodes).await? == Step::Waits {
            self.write().await?;
            return Ok(self.again);
        }
        match machine::delete(self.context, &self.claim, &id).await {
            Deletion::Gone => {
                if let Some(wait) = machine::is_misnamed(self.context, &mut self.claim, &id).await? {
                    return Ok(Some(wait));
                }
            }
            Deletion::Under(wait) => {
                if !is_ending {
                    tracing::info!(claim = self.claim.name(), instance = id, "its machine ends");
                    self.said.push(Condition::holds(conditions::INSTANCE_TERMINATING));
                }
                self.write().await?;
                return Ok(Some(wait));
            }
            Deletion::Fenced(wait) => return Ok(Some(wait)),
            Deletion::Refused(wait, why) => {
                tracing::warn!(claim = self.claim.name(), instance = id, error = why, "its machine cannot be ended");
                let note = format!("Failed to terminate the machine `{id}`, {why}");
                self.context.events.record(&*self.claim, FAILED_TERMINATION, note);
                self.write().await?;
                return Ok(Some(wait));
            }
        }
        for node in &nodes {
            if release_node(self.context, node).await? {
                self.context.metrics.node_terminated(&self.claim);
            }
        }
        let cluster = &self.context.cluster;
        let kept = |node: &Arc<Node>| is_leaving(&**node) && !node.finalizers().is_empty();
        if cluster.nodes.indexed(&id).iter().any(kept) {
            // Another controller's finalizer keeps the node; its claim stays with it, and no longer counts for
            // anything.
            if !is_ending {
                self.said.push(Condition::holds(conditions::INSTANCE_TERMINATING));
            }
            self.write().await?;
            return Ok(None);
        }
        self.release().await
    }

    /// Writes down when the node must be gone; what stands there already holds.
    async fn set_deadline(&mut self) -> Result<()> {
        if let Some(known) = annotation(&*self.claim, TERMINATION_TIMESTAMP_ANNOTATION).map(str::parse::<Timestamp>) {
            match known {
                Ok(deadline) => {
                    self.deadline = Some(deadline);
                    return Ok(());
                }
                Err(error) => tracing::warn!(claim = self.claim.name(), %error, "its deadline cannot be read"),
            }
        }
        let deleted = self.claim.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second());
        let (Some(period), Some(deleted)) = (self.claim.spec.termination_grace_period, deleted) else { return Ok(()) };
        let deadline = Time(deleted.saturating_add(period.0));
        let patch = json!({"metadata": {
            "resourceVersion": self.claim.metadata.resource_version,
            "annotations": {TERMINATION_TIMESTAMP_ANNOTATION: deadline.to_string()},
        }});
        self.claim = self.context.cluster.claims.patch(&Key::of(&*self.claim), &patch).await?;
        self.deadline = Timestamp::from_second(deadline.0).ok();
        self.context.events.record(&*self.claim, EXPIRING, expires(deadline));
        Ok(())
    }

    /// Nodes of the machine: no pod comes to them any more, and they stay until the machine is gone.
    async fn hold_nodes(&mut self, id: &str) -> Result<Vec<Arc<Node>>> {
        let cluster = &self.context.cluster;
        let mut held = Vec::new();
        for node in cluster.nodes.indexed(id) {
            if is_leaving(&*node) && !has_finalizer(node.finalizers()) {
                // Nothing of this claim's business keeps it.
                continue;
            }
            let mut node = node;
            if let Some(patch) = hold(&node) {
                let is_new = !is_tainted(&node) && node.labels().get(REGISTERED_LABEL).is_some_and(|it| it == "true");
                node = cluster.nodes.patch(&Key::of(&*node), &patch).await?;
                if is_new {
                    self.context.terminations.of(&self.claim, |leaving| leaving.tainted = Some(Instant::now()));
                }
                if let Some(deadline) = self.deadline {
                    self.context.events.record(&*node, EXPIRING, expires(Time(deadline.as_second())));
                }
            }
            if !is_leaving(&*node) {
                tracing::info!(claim = self.claim.name(), node = node.name_any(), "its node leaves");
                cluster.nodes.delete(&node, None).await?;
            }
            held.push(node);
        }
        self.context.terminations.set_nodes(&self.claim, held.iter().map(|node| node.name_any()).collect());
        Ok(held)
    }

    /// Waits for pods and volumes to leave, unless there is no machine that they could leave.
    async fn empty(&mut self, id: &str, nodes: &[Arc<Node>]) -> Result<Step> {
        let is_ready = nodes.iter().any(|node| nodes::is_ready(node));
        match machine::presence(self.context, &self.claim, id, is_ready).await {
            Presence::Gone => {
                tracing::info!(claim = self.claim.name(), instance = id, "its machine is gone: nothing to drain");
                return Ok(Step::Done);
            }
            Presence::There(wait) => self.requeue_after(wait),
        }
        for node in nodes {
            if self.drain(node).await? == Step::Waits {
                return Ok(Step::Waits);
            }
        }
        self.said.push(Condition::holds(conditions::DRAINED));
        if !is_true(&self.claim.status.conditions, conditions::DRAINED) {
            self.context.metrics.node_drained(&self.claim);
        }
        for node in nodes {
            if self.detach(node) == Step::Waits {
                return Ok(Step::Waits);
            }
        }
        Ok(Step::Done)
    }

    async fn drain(&mut self, node: &Node) -> Result<Step> {
        let now = self.context.cluster.clock.now();
        let all = self.context.cluster.pods.indexed(&node.name_any());
        let drain = pods::drain(&all, now, self.deadline);
        let Some(tier) = drain.tier else {
            let tainted = self.context.terminations.of(&self.claim, |leaving| leaving.tainted);
            let left = tainted.map_or(Duration::ZERO, |at| TAINT_SEEN_WITHIN.saturating_sub(at.elapsed()));
            if left.is_zero() {
                return Ok(Step::Done);
            }
            self.requeue_after(left);
            return Ok(Step::Waits);
        };
        self.set_draining_condition(&format!("{} are leaving", tier.describe()));
        if let Some(again) = drain.again {
            self.requeue_after(self.context.cluster.clock.until(again));
        }
        self.record_blocked_pods(node, &drain.held);
        for (pod, seconds) in &drain.delete {
            self.delete_pod(pod, *seconds).await?;
        }
        self.evict_all(node, drain.evict).await;
        Ok(Step::Waits)
    }

    fn set_draining_condition(&mut self, message: &str) {
        let known = find(&self.claim.status.conditions, conditions::DRAINED);
        if known.is_none_or(|known| known.message != message) {
            self.said.push(Condition::unknown(conditions::DRAINED, "Draining", message));
        }
    }

    /// Says why a node is not drained.
    fn record_blocked_pods(&self, node: &Node, held: &[Arc<Pod>]) {
        if held.is_empty() {
            return;
        }
        let names = listed(held.iter().map(|pod| Key::of(&**pod).to_string()));
        let note = format!("Failed to drain node, annotated `karpenter.sh/do-not-disrupt`: {names}");
        self.context.events.record(node, FAILED_DRAINING, note);
    }

    /// Deletes a pod, whatever it or its budget wants: the node must be gone soon.
    async fn delete_pod(&self, pod: &Pod, seconds: u32) -> Result<()> {
        let deadline = self.deadline.map(|at| Time(at.as_second()).to_string()).unwrap_or_default();
        tracing::info!(claim = self.claim.name(), pod = %Key::of(pod), seconds, deadline, "pod deleted");
        let note = format!(
            "Deleting the pod, its node must be gone by {deadline}: it has {seconds} of its {} seconds. Neither its \
             disruption budget nor `karpenter.sh/do-not-disrupt` counts any more",
            pods::grace_seconds(pod)
        );
        self.context.events.record(pod, DISRUPTED, note);
        self.context.cluster.pods.delete(pod, Some(seconds)).await
    }

    async fn evict_all(&mut self, node: &Node, pods: Vec<Arc<Pod>>) {
        for pod in pods.iter().filter(|pod| pods::is_misspelt(pod)) {
            let text = annotation(&**pod, millpond_api::karpenter::DO_NOT_DISRUPT).unwrap_or_default();
            let note = format!("`karpenter.sh/do-not-disrupt: {text}` is neither `true` nor a duration, ignored");
            self.context.events.record(&**pod, MISSPELT, note);
        }
        let (due, _) = self.context.terminations.due(&self.claim, pods.clone());
        let reason = find(&self.claim.status.conditions, conditions::DISRUPTION_REASON);
        let reason = reason.filter(|reason| reason.is_true()).map_or("Forceful Termination", |one| one.reason.as_str());
        let context = self.context;
        let ask = |pod: Arc<Pod>| async move {
            let _place = context.terminations.evictions.acquire().await;
            let answer = evict::evict(&context.cluster.client, &context.metrics, &pod).await;
            (pod, answer)
        };
        let answers: Vec<(Arc<Pod>, Answer)> = join_all(due.into_iter().map(ask)).await;
        for (pod, answer) in answers {
            self.context.terminations.answered(&self.claim, &pod, &answer);
            let key = Key::of(&*pod);
            match answer {
                Answer::Leaves => self.context.events.record(&*pod, EVICTED, format!("Evicted pod: {reason}")),
                Answer::Blocked(why) => {
                    let note = format!("Failed to drain node, evicting pod `{key}` violates a budget: {why}");
                    self.context.events.record(node, FAILED_DRAINING, note);
                }
                Answer::Failed(why) => {
                    tracing::warn!(claim = self.claim.name(), pod = %key, error = why, "pod not evicted");
                    let note = format!("Failed to drain node, evicting pod `{key}`: {why}");
                    self.context.events.record(node, FAILED_DRAINING, note);
                }
            }
        }
        if let (_, Some(wait)) = self.context.terminations.due(&self.claim, pods) {
            self.requeue_after(wait);
        }
    }

    fn detach(&mut self, node: &Node) -> Step {
        let cluster = &self.context.cluster;
        let (name, now) = (node.name_any(), cluster.clock.now());
        let attachments = cluster.attachments.indexed(&name);
        let pods = cluster.pods.indexed(&name);
        let awaited = volumes::awaited(&attachments, &pods, now, |key| cluster.volume_claims.get(key));
        if awaited.is_empty() {
            self.said.push(Condition::holds(conditions::VOLUMES_DETACHED));
            return Step::Done;
        }
        match self.deadline {
            Some(deadline) if deadline <= now => {
                let message = format!("the time for it is over: {}", listed(awaited.into_iter()));
                let reason = "TerminationGracePeriodElapsed";
                self.said.push(Condition::fails(conditions::VOLUMES_DETACHED, reason, message));
                return Step::Done;
            }
            Some(deadline) => self.requeue_after(cluster.clock.until(deadline)),
            None => {}
        }
        let note = format!("Awaiting deletion of volumeattachments ({})", listed(awaited.into_iter()));
        self.context.events.record(node, AWAITING_VOLUMES, note);
        let message = "volumes are yet to be detached";
        self.said.push(Condition::unknown(conditions::VOLUMES_DETACHED, "AwaitingVolumeDetachment", message));
        Step::Waits
    }

    fn requeue_after(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |known| known.min(wait)));
    }

    /// Writes what was said.
    async fn write(&mut self) -> Result<()> {
        let said = std::mem::take(&mut self.said);
        if let Some(written) = write_status(&self.context.cluster, &self.claim, |_| {}, said).await? {
            self.claim = written;
        }
        Ok(())
    }

    /// Nothing is left of it: lets the claim go.
    async fn release(self) -> Result<Option<Duration>> {
        let claim = &self.claim;
        crate::limits::release(self.context, claim).await;
        let patch = without_finalizer(claim.finalizers(), claim.metadata.resource_version.as_deref());
        match self.context.cluster.claims.patch(&Key::of(&**claim), &patch).await {
            Err(error) if !error.is_not_found() => return Err(error),
            outcome if outcome.is_ok() => self.context.metrics.claim_terminated(claim),
            _ => {}
        }
        tracing::info!(claim = claim.name(), "claim gone");
        Ok(None)
    }
}

/// Lets a node go; tells whether anything of ours had kept it.
pub(crate) async fn release_node(context: &Context, node: &Node) -> Result<bool> {
    let cluster = &context.cluster;
    let key = Key::of(node);
    let Some(node) = cluster.nodes.get(&key).filter(|known| known.uid() == node.uid()) else { return Ok(false) };
    if !has_finalizer(node.finalizers()) {
        return Ok(false);
    }
    let patch = without_finalizer(node.finalizers(), node.metadata.resource_version.as_deref());
    match cluster.nodes.patch(&key, &patch).await {
        Err(error) if !error.is_not_found() => Err(error),
        outcome => {
            tracing::info!(node = key.name, "node gone");
            Ok(outcome.is_ok())
        }
    }
}

pub(crate) fn has_finalizer(finalizers: &[String]) -> bool {
    finalizers.iter().any(|name| name == TERMINATION_FINALIZER)
}

fn without_finalizer(finalizers: &[String], version: Option<&str>) -> Value {
    let left: Vec<&String> = finalizers.iter().filter(|name| *name != TERMINATION_FINALIZER).collect();
    json!({"metadata": {"finalizers": left, "resourceVersion": version}})
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == DISRUPTED_TAINT && taint.effect == "NoSchedule")
}

/// What a node that is to leave lacks: the taint, the label, and what keeps it until its machine is gone.
pub(crate) fn hold(node: &Node) -> Option<Value> {
    let lacks_label = node.labels().get(EXCLUDED_LABEL).is_none_or(|value| value != "karpenter");
    let lacks_finalizer = !is_leaving(node) && !has_finalizer(node.finalizers());
    if is_tainted(node) && !lacks_label && !lacks_finalizer {
        return None;
    }
    let mut metadata = json!({
        "resourceVersion": node.metadata.resource_version,
        "labels": {EXCLUDED_LABEL: "karpenter"},
    });
    if lacks_finalizer {
        let finalizers = node.finalizers().iter().map(String::as_str).chain([TERMINATION_FINALIZER]);
        metadata["finalizers"] = finalizers.collect();
    }
    let mut patch = json!({"metadata": metadata});
    if !is_tainted(node) {
        let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        taints.retain(|taint| taint.key != DISRUPTED_TAINT);
        taints.push(Taint { key: DISRUPTED_TAINT.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() });
        patch["spec"] = json!({"taints": taints});
    }
    Some(patch)
}

fn expires(deadline: Time) -> String {
    format!("All pods will be deleted by {deadline}")
}

/// The first few names, and how many more there are.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let mut text = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests;
