//! ScalingFeedback: types that the consumer of advice could not get, and nodes that it could not remove.
//!
//! A ScalingFeedback reports one failure, at the time of its creation. The advisor writes nothing about it: after a
//! restart it reads all existing objects again and comes to the same result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use millpond_api::scaling_advisor::{BackoffPolicy, ScalingAdviceSpec};
use millpond_plan::model::CapacityType;
use millpond_providers::OfferingKey;
use millpond_runtime::meta::Key;
use tokio::time::Instant;

use crate::context::Context;
use crate::kinds::{ScalingConstraint, ScalingFeedback};
use crate::stock_outs::Backoff;

/// What the feedbacks read so far say.
pub(super) struct Feedback {
    context: Arc<Context>,
    /// By uid, the generation of each feedback that was read.
    read: HashMap<String, i64>,
    /// Nodes that could not go, and until when they are not asked for.
    stuck: HashMap<String, Instant>,
}

impl Feedback {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { context, read: HashMap::new(), stuck: HashMap::new() }
    }

    /// Reads new feedbacks, the oldest first.
    pub(super) fn learn(&mut self) {
        let mut all = self.context.cluster.feedbacks.list();
        all.sort_by_key(|feedback| feedback.metadata.creation_timestamp.as_ref().map(|time| time.0));
        let mut read = HashMap::with_capacity(all.len());
        for feedback in all {
            let uid = feedback.metadata.uid.clone().unwrap_or_default();
            let generation = feedback.metadata.generation.unwrap_or_default();
            let before = self.read.get(&uid).copied();
            if before != Some(generation) {
                let created = feedback.metadata.creation_timestamp.as_ref().map(|time| time.0);
                let now = self.context.cluster.clock.now();
                // A feedback that was changed counts from now.
                let time = created.filter(|_| before.is_none()).unwrap_or(now);
                self.take(&feedback, time);
            }
            read.insert(uid, generation);
        }
        self.read = read;
        self.stuck.retain(|_, until| *until > Instant::now());
    }

    fn take(&mut self, feedback: &ScalingFeedback, time: Timestamp) {
        let context = Arc::clone(&self.context);
        let about = &feedback.spec.constraint_ref;
        let own = feedback.metadata.namespace.as_deref().unwrap_or_default();
        let namespace = if about.namespace.is_empty() { own } else { &about.namespace };
        let constraint = context.cluster.constraints.get(&Key::new(namespace, &about.name));
        for error in &feedback.spec.scale_out_error_infos {
            let backoff = backoff(constraint.as_deref(), &error.instance_type);
            let capacity_type = CapacityType::OnDemand.name();
            let offering = OfferingKey::new(&*error.instance_type, &*error.availability_zone, capacity_type);
            tracing::info!(%offering, constraint = about.name, why = ?error.error_type, "could not be had, by feedback");
            context.stock_outs.failed_at(time, [&offering], backoff);
        }
        let wait = backoff(constraint.as_deref(), "").initial;
        let ago = Duration::try_from(context.cluster.clock.now().duration_since(time)).unwrap_or_default();
        let until = Instant::now() + wait.saturating_sub(ago);
        for node in &feedback.spec.scale_in_error_info.node_names {
            self.stuck.insert(node.clone(), until);
        }
    }

    /// How long until the next node may be asked for again.
    pub(super) fn next_release(&self) -> Option<Duration> {
        let now = Instant::now();
        self.stuck.values().map(|until| until.saturating_duration_since(now)).filter(|wait| !wait.is_zero()).min()
    }

    /// Advice without nodes that could not go just now.
    pub(super) fn without_stuck(&self, mut spec: ScalingAdviceSpec) -> ScalingAdviceSpec {
        let now = Instant::now();
        if let Some(plan) = &mut spec.scale_in_plan {
            plan.items.retain(|item| self.stuck.get(&item.node_name).is_none_or(|until| *until <= now));
        }
        spec
    }
}

/// How long a type is left alone: by the pool that has it, else by the constraint, else as for all others.
fn backoff(constraint: Option<&ScalingConstraint>, instance_type: &str) -> Backoff {
    let policy: Option<BackoffPolicy> = constraint.and_then(|constraint| constraint.spec.backoff_of(instance_type));
    let seconds =
        |duration: millpond_api::duration::Duration| Duration::from_secs(u64::try_from(duration.0).unwrap_or(0));
    policy.map_or_else(Backoff::default, |policy| Backoff {
        initial: seconds(policy.initial_backoff),
        longest: seconds(policy.max_backoff).max(seconds(policy.initial_backoff)),
    })
}
