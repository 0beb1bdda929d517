//! ScalingFeedback: types that the consumer of advice could not get lately are out of stock, as the controller that
//! reads the same objects has it, but for the jitter of its waits.

use std::collections::BTreeMap;

use millpond_api::scaling_advisor::{BackoffPolicy, ScalingFeedback};
use millpond_plan::model::{CapacityType, Seconds};

use super::SnapshotBuilder;

/// Doublings of a wait; the longest wait is reached long before.
const MOST_DOUBLINGS: u32 = 16;

impl SnapshotBuilder<'_> {
    /// Marks what could not be had lately, unless the caller knows the stock better.
    pub(super) fn mark_feedback(&mut self) {
        if self.options.ignore_stock || self.state.feedbacks.is_empty() {
            return;
        }
        let now = self.snapshot.now;
        let missing: Vec<(String, String)> =
            self.waits().into_iter().filter(|(_, wait)| wait.until > now).map(|(offering, _)| offering).collect();
        let symbols = &self.snapshot.symbols;
        for of in &mut self.snapshot.types {
            let name = symbols.text(of.name);
            for (_, zone) in missing.iter().filter(|(instance_type, _)| instance_type == name) {
                let on_demand = of.offerings.iter_mut().filter(|it| it.capacity_type == CapacityType::OnDemand);
                let here = on_demand.filter(|it| symbols.text(it.zone) == zone);
                here.for_each(|offering| offering.available = false);
            }
        }
    }

    /// Until when each type is left alone in each zone: longer after each failure in a row.
    fn waits(&self) -> BTreeMap<(String, String), Wait> {
        let created = |feedback: &ScalingFeedback| feedback.metadata.creation_timestamp.map_or(0, |time| time.0);
        let all = self.state.feedbacks.iter();
        let mut all: Vec<(&str, &ScalingFeedback)> =
            all.flat_map(|(namespace, names)| names.values().map(move |it| (&**namespace, it))).collect();
        all.sort_by_key(|(_, feedback)| created(feedback));
        let mut waits: BTreeMap<(String, String), Wait> = BTreeMap::new();
        for (own, feedback) in all {
            let about = &feedback.spec.constraint_ref;
            let namespace = if about.namespace.is_empty() { own } else { &about.namespace };
            let constraint = self.state.constraints.get(namespace).and_then(|names| names.get(about.name.as_str()));
            let time = created(feedback);
            for error in &feedback.spec.scale_out_error_infos {
                let policy = constraint.and_then(|(constraint, _)| constraint.spec.backoff_of(&error.instance_type));
                let offering = (error.instance_type.clone(), error.availability_zone.clone());
                waits.entry(offering).or_default().fail(time, policy.unwrap_or_default());
            }
        }
        waits
    }
}

/// How long an offering is left alone.
#[derive(Debug, Default)]
struct Wait {
    failures: u32,
    until: Seconds,
}

impl Wait {
    fn fail(&mut self, time: Seconds, policy: BackoffPolicy) {
        if self.failures > 0 && self.until > time {
            return;
        }
        let longest = policy.max_backoff.0.max(policy.initial_backoff.0);
        let wait = policy.initial_backoff.0.saturating_mul(1 << self.failures.min(MOST_DOUBLINGS)).min(longest);
        (self.failures, self.until) = (self.failures + 1, time.saturating_add(wait));
    }
}
