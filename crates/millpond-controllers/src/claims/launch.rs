//! Launch: creates the machine of a claim, with the cheapest available offering that satisfies it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use millpond_api::condition;
use millpond_api::karpenter::{Taint, TaintEffect, UNREGISTERED_TAINT, conditions};
use millpond_api::labels;
use millpond_api::meta::Condition;
use millpond_providers::{Choice, LaunchRequest, Launched, OfferingKey, ProviderError, choices};
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::{Key, annotation};
use parking_lot::Mutex;
use serde_json::json;

use super::Claims;
use crate::clouds::CLOUD_ANNOTATION;
use crate::cluster::pool_name;
use crate::context::api_class;
use crate::health::Launch;
use crate::kinds::{NodeClaim, NodeClass};
use crate::limits;
use crate::metrics::disrupted_by;
use crate::stock_outs::Backoff;

/// A claim that could not be launched for this long is given up, as Karpenter does.
const LAUNCH_TIMEOUT: Duration = Duration::from_mins(5);
/// The wait after the first failure that is no stock-out; it doubles with every further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait, so that a repaired fault is noticed soon.
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// Limit on the offerings that one call may try.
const MOST_CHOICES: usize = 60;

const OUT_OF_STOCK: EventReason =
    EventReason { component: "millpond", action: "Launch", reason: "InsufficientCapacityError", warning: true };
const CLASS_NOT_READY: EventReason =
    EventReason { component: "millpond", action: "Launch", reason: "NodeClassNotReady", warning: true };
const TIMED_OUT: EventReason =
    EventReason { component: "millpond", action: "Launch", reason: "LaunchTimeout", warning: true };
const OVER_LIMITS: EventReason =
    EventReason { component: "millpond", action: "Launch", reason: "LimitsExceeded", warning: true };
const LAUNCH_FAILED: EventReason =
    EventReason { component: "millpond", action: "Launch", reason: "LaunchFailed", warning: true };
/// A launch that failed so often in a row, for a reason that may pass, speaks of the whole pool.
const FAILURES_OF_POOL: u32 = 3;
/// Limit on the pods of a claim that get an event of its launch.
const PODS_REPORTED: usize = 10;

/// The progress of claims that are being launched.
#[derive(Default)]
pub(super) struct Launches(Mutex<HashMap<Key, Launching>>);

#[derive(Default)]
struct Launching {
    /// Consecutive failures.
    failures: u32,
    /// The launched instance, by the uid of the claim, until it is in the claim's status. A process that loses it asks
    /// the provider again, with the same token, and gets the same instance.
    made: Option<(String, Launched)>,
}

impl Launches {
    pub(super) fn forget(&self, claim: &Key) {
        self.0.lock().remove(claim);
    }

    /// Counts a failure; gives the number of failures in a row, and the wait before the next try.
    fn failed(&self, claim: &Key) -> (u32, Duration) {
        let mut launches = self.0.lock();
        let failures = &mut launches.entry(claim.clone()).or_default().failures;
        *failures += 1;
        (*failures, FIRST_RETRY.saturating_mul(1 << (*failures - 1).min(16)).min(LONGEST_RETRY))
    }

    fn keep(&self, claim: &NodeClaim, launched: Launched) {
        let made = Some((claim.metadata.uid.clone().unwrap_or_default(), launched));
        self.0.lock().insert(Key::of(claim), Launching { failures: 0, made });
    }

    fn made(&self, claim: &NodeClaim) -> Option<Launched> {
        let launches = self.0.lock();
        let (uid, launched) = launches.get(&Key::of(claim))?.made.as_ref()?;
        (claim.metadata.uid.as_ref() == Some(uid)).then(|| launched.clone())
    }
}

impl Claims {
    pub(super) async fn launch(&self, claim: &NodeClaim) -> Result<Option<Duration>> {
        if let Some(launched) = self.launches.made(claim) {
            self.launched(claim, launched).await?;
            self.launches.forget(&Key::of(claim));
            return Ok(None);
        }
        let left = self.time_left(claim, LAUNCH_TIMEOUT);
        if left.is_zero() {
            let why = "no machine could be had in 5 minutes";
            self.refuse_pool(claim, last_failure(claim).map_or(why, |failed| failed.message.as_str()));
            self.give_up_launch(claim, TIMED_OUT, disrupted_by::LIVENESS, why).await?;
            self.context.health.note(&self.context.cluster, claim, failure(claim, why));
            return Ok(None);
        }
        if limits::is_overrun(&self.context, claim).await? {
            let why = "limits leave no room for it any more: it was written so late that what was reserved for it may have \
                       gone to others";
            self.refuse_pool(claim, why);
            return self.give_up_launch(claim, OVER_LIMITS, disrupted_by::LIMITS_EXCEEDED, why).await;
        }
        let outcome = self.try_launch(claim).await;
        match outcome {
            // The status is written in the normal lane; urgent work is for claims that still need their call.
            Ok(launched) => {
                self.report_outcome(claim, true);
                if let Some(pool) = pool_name(claim) {
                    self.context.launch_backoff.forget(pool);
                }
                self.launches.keep(claim, launched);
                Ok(Some(Duration::ZERO))
            }
            Err(error) => self.not_launched(claim, error, left).await,
        }
    }

    async fn try_launch(&self, claim: &NodeClaim) -> Result<Launched, ProviderError> {
        let class = self.class_of(claim)?;
        let provider = self.context.provider(&class)?;
        let backoff = backoff(&class);
        let request = self.request(claim, &class, provider.as_ref())?;
        let taken: Vec<OfferingKey> = request.choices.iter().map(|choice| choice.offering.clone()).collect();
        self.context.terminations.launch_started(claim);
        let outcome = provider.create(&request).await;
        // A provider that has created an instance for this token returns that one; these errors say that there is none.
        use ProviderError::{CapacityUnavailable, NotFound, Quota};
        if matches!(&outcome, Err(CapacityUnavailable { .. } | Quota { .. } | NotFound { .. })) {
            self.context.terminations.launch_failed(claim);
        }
        let stock = &self.context.stock_outs;
        let missing: &[OfferingKey] = match &outcome {
            Ok(launched) => &launched.unavailable,
            Err(ProviderError::CapacityUnavailable { offerings, .. } | ProviderError::Quota { offerings, .. }) => {
                offerings
            }
            Err(_) => &[],
        };
        taken.iter().filter(|offering| !missing.contains(offering)).for_each(|offering| stock.release(offering));
        stock.failed(missing, backoff);
        if let Ok(launched) = &outcome {
            stock.succeeded(&launched.instance.offering);
        }
        outcome
    }

    fn class_of(&self, claim: &NodeClaim) -> Result<std::sync::Arc<NodeClass>, ProviderError> {
        let name = &claim.spec.node_class_ref.name;
        let missing = || ProviderError::NotReady { message: format!("there is no node class `{name}`") };
        let class = self.context.class(name).ok_or_else(missing)?;
        if class.metadata.deletion_timestamp.is_some() {
            return Err(ProviderError::NotReady { message: format!("the node class `{name}` is being deleted") });
        }
        match api_class(&class).not_ready() {
            Some(condition) => {
                let message = format!("the node class `{name}` is not ready: {}", condition.message);
                Err(ProviderError::NotReady { message })
            }
            None => Ok(class),
        }
    }

    fn request(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        provider: &dyn millpond_providers::Provider,
    ) -> Result<LaunchRequest, ProviderError> {
        let catalog = provider.catalog(&api_class(class))?;
        let labels = claim.metadata.labels.iter().flatten();
        let labels = labels.map(|(key, value)| (key.clone(), vec![value.clone()])).collect();
        let overlaid = self.context.cluster.overlaid(&catalog, &labels, class);
        let class = api_class(class);
        let requests = &claim.spec.resources.requests;
        let mut all = choices(&overlaid, &class, &claim.spec.requirements, requests);
        // Types, zones and capacity types of a claim make more pairs than were planned.
        let reserved = limits::ReservedCapacity::of(&self.context, claim);
        all.retain(|choice| reserved.covers(&choice.shape.capacity, choice.price_nanos_hour));
        if all.is_empty() {
            let message = "no instance type of the catalogue satisfies the requirements and holds the requests";
            return Err(ProviderError::CapacityUnavailable { offerings: Vec::new(), message: message.to_owned() });
        }
        let stock = &self.context.stock_outs;
        let closed: Vec<OfferingKey> = all.iter().map(|choice| choice.offering.clone()).collect();
        let open: Vec<Choice> =
            all.into_iter().filter(|choice| stock.acquire(&choice.offering)).take(MOST_CHOICES).collect();
        if open.is_empty() {
            let message = "every offering that would do was out of stock a short while ago";
            return Err(ProviderError::CapacityUnavailable { offerings: closed, message: message.to_owned() });
        }
        let unregistered =
            Taint { key: UNREGISTERED_TAINT.to_owned(), value: String::new(), effect: TaintEffect::NoExecute };
        let cloud = annotation(claim, CLOUD_ANNOTATION);
        let taints = claim.spec.taints.iter().chain(&claim.spec.startup_taints).cloned();
        Ok(LaunchRequest {
            token: claim.metadata.uid.clone().unwrap_or_default(),
            claim: claim.name().to_owned(),
            choices: open,
            labels: claim.metadata.labels.clone().unwrap_or_default(),
            annotations: cloud.map(|cloud| (CLOUD_ANNOTATION.to_owned(), cloud.to_owned())).into_iter().collect(),
            taints: taints.chain([unregistered]).collect(),
            class,
        })
    }

    /// Writes down what was launched: labels first, the condition that all else waits for last.
    async fn launched(&self, claim: &NodeClaim, launched: Launched) -> Result<()> {
        let instance = launched.instance;
        tracing::info!(claim = claim.name(), instance = instance.id, offering = %instance.offering, "launched");
        let mut labels: BTreeMap<&str, &str> =
            instance.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        labels.insert(labels::INSTANCE_TYPE, &instance.offering.instance_type);
        labels.insert(labels::ZONE, &instance.offering.zone);
        labels.insert(labels::CAPACITY_TYPE, &instance.offering.capacity_type);
        let known = claim.metadata.labels.clone().unwrap_or_default();
        labels.retain(|key, value| known.get(*key).is_none_or(|known| known != value));
        let key = Key::of(claim);
        let mut claim = std::sync::Arc::new(claim.clone());
        if !labels.is_empty() {
            claim = self.context.cluster.claims.patch(&key, &json!({"metadata": {"labels": labels}})).await?;
        }
        let waits = |kind: &str| Condition::unknown(kind, "NodeNotFound", "the node has not registered yet");
        let conditions =
            [Condition::holds(conditions::LAUNCHED), waits(conditions::REGISTERED), waits(conditions::INITIALIZED)];
        let note = |status: &mut millpond_api::karpenter::NodeClaimStatus| {
            status.provider_id.clone_from(&instance.id);
            status.image_id.clone_from(&instance.image);
            status.capacity.clone_from(&instance.capacity);
            status.allocatable.clone_from(&instance.allocatable);
        };
        self.write_status(&claim, note, conditions).await?;
        Ok(())
    }

    async fn not_launched(&self, claim: &NodeClaim, error: ProviderError, left: Duration) -> Result<Option<Duration>> {
        let message = error.to_string();
        match &error {
            // The stock-outs were recorded for each of these offerings.
            ProviderError::CapacityUnavailable { offerings, .. } | ProviderError::Quota { offerings, .. }
                if !offerings.is_empty() =>
            {
                return self.give_up_launch(claim, OUT_OF_STOCK, disrupted_by::INSUFFICIENT_CAPACITY, &message).await;
            }
            // With `NotFound` the machine of the token is gone already, and with it everything that this claim
            // represents.
            ProviderError::CapacityUnavailable { .. }
            | ProviderError::Quota { .. }
            | ProviderError::NotFound { .. } => {
                self.refuse_pool(claim, &message);
                return self.give_up_launch(claim, OUT_OF_STOCK, disrupted_by::INSUFFICIENT_CAPACITY, &message).await;
            }
            ProviderError::NotReady { .. } => {
                self.refuse_pool(claim, &message);
                return self.give_up_launch(claim, CLASS_NOT_READY, disrupted_by::CLASS_NOT_READY, &message).await;
            }
            // The new leader launches it.
            ProviderError::Fenced { .. } => {
                tracing::info!(claim = claim.name(), why = message, "not launched");
                return Ok(Some(FIRST_RETRY));
            }
            ProviderError::Throttled { .. } | ProviderError::Denied { .. } | ProviderError::Other { .. } => {}
        }
        let (failures, mut wait) = self.launches.failed(&Key::of(claim));
        let is_denied = matches!(error, ProviderError::Denied { .. });
        if is_denied || failures >= FAILURES_OF_POOL {
            self.refuse_pool(claim, &message);
        }
        // An error that may pass with the next try is no evidence about other claims.
        self.report_outcome(claim, !is_denied);
        if let ProviderError::Throttled { retry_after: Some(after), .. } = &error {
            wait = wait.max(*after);
        }
        tracing::warn!(claim = claim.name(), error = message, "launch failed, will try again");
        self.report_launch(claim, LAUNCH_FAILED, &message);
        let failed = Condition::unknown(conditions::LAUNCHED, "LaunchFailed", message);
        self.write_status(claim, |_| {}, [failed]).await?;
        Ok(Some(wait.min(left)))
    }

    /// A claim that was never launched is given up; its pods learn why.
    async fn give_up_launch(
        &self,
        claim: &NodeClaim,
        event_reason: EventReason,
        reason: &'static str,
        why: &str,
    ) -> Result<Option<Duration>> {
        self.report_to_pods(claim, event_reason, why);
        let given_up = self.give_up(claim, event_reason, reason, why).await;
        self.report_outcome(claim, false);
        given_up
    }

    /// Leaves the pool of a claim out of plans for a while.
    fn refuse_pool(&self, claim: &NodeClaim, why: &str) {
        if let Some(pool) = pool_name(claim) {
            self.context.launch_backoff.failed(pool, why);
        }
    }

    /// Says what came of a launch to those that wait to launch the same.
    fn report_outcome(&self, claim: &NodeClaim, others_too: bool) {
        // An error only means that no task is waiting for the outcome.
        let _ = self.context.launched.send((claim.name().to_owned(), others_too));
    }

    /// Records the outcome of a launch on a claim and on the pods nominated to its node; not for every attempt.
    fn report_launch(&self, claim: &NodeClaim, event_reason: EventReason, why: &str) {
        self.context.events.record(claim, event_reason, why);
        self.report_to_pods(claim, event_reason, why);
    }

    fn report_to_pods(&self, claim: &NodeClaim, event_reason: EventReason, why: &str) {
        let cluster = &self.context.cluster;
        let note = format!("nodeclaim/{} could not be launched: {why}", claim.name());
        let pods = cluster.nominations.pods_of(claim);
        for pod in pods.iter().take(PODS_REPORTED).filter_map(|pod| cluster.pods.get(pod)) {
            self.context.events.record(&*pod, event_reason, note.clone());
        }
    }
}

/// The condition of the last failed launch of a claim.
fn last_failure(claim: &NodeClaim) -> Option<&Condition> {
    let tried = condition::find(&claim.status.conditions, conditions::LAUNCHED);
    tried.filter(|tried| !tried.message.is_empty())
}

/// The outcome that a pool records when a launch is given up: the last failure, if there was one.
fn failure(claim: &NodeClaim, why: &str) -> Launch {
    let (reason, message) = match last_failure(claim) {
        Some(tried) => (tried.reason.as_str(), tried.message.as_str()),
        None => (TIMED_OUT.reason, why),
    };
    Launch::Failed { reason: reason.to_owned(), message: message.to_owned() }
}

/// How long offerings of a class are left out after a failure.
fn backoff(class: &NodeClass) -> Backoff {
    let default = Backoff::default();
    let seconds =
        |duration: millpond_api::duration::Duration| Duration::from_secs(u64::try_from(duration.0).unwrap_or_default());
    class.spec.backoff.as_ref().map_or(default, |own| Backoff {
        initial: own.initial.map_or(default.initial, seconds),
        longest: own.max.map_or(default.longest, seconds),
    })
}
