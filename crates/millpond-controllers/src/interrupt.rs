//! Handles instance events of providers: spot interruptions, and instances that are gone.
//!
//! Events can be missed: the garbage collector finds the same later, by listing.

use std::sync::Arc;

use jiff::Timestamp;
use millpond_api::karpenter::TERMINATION_TIMESTAMP_ANNOTATION;
use millpond_api::labels;
use millpond_api::time::Time;
use millpond_providers::{InstanceEvent, Provider};
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::{Key, annotation, is_leaving};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::claims::{claim_of_machine, node_of};
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::turn::{Fact, delete_after};

/// Pods have ended this long before their machine does: ending takes a moment, and clocks differ.
const LEAD_S: i64 = 5;

const SPOT_INTERRUPTED: EventReason =
    EventReason { component: "millpond", action: "Interrupt", reason: "SpotInterrupted", warning: true };
const INSTANCE_TERMINATING: EventReason =
    EventReason { component: "millpond", action: "Interrupt", reason: "InstanceTerminating", warning: true };

/// Listens to a provider until the token is cancelled.
pub async fn run(
    context: Arc<Context>,
    provider: Arc<dyn Provider>,
    events: Arc<tokio::sync::Mutex<Receiver<InstanceEvent>>>,
    stop: CancellationToken,
) {
    let mut events = events.lock().await;
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = events.recv() => event,
        };
        match event {
            Ok(event) => {
                if let Err(error) = handle(&context, &event).await {
                    tracing::warn!(instance = event.id(), %error, cause = error.cause(), "news not heeded");
                }
            }
            Err(RecvError::Lagged(count)) => tracing::warn!(provider = provider.name(), count, "news missed"),
            Err(RecvError::Closed) => return,
        }
    }
}

async fn handle(context: &Context, event: &InstanceEvent) -> Result<()> {
    let Some(claim) = claim_of_machine(&context.cluster, event.id()) else { return Ok(()) };
    match event {
        InstanceEvent::Interrupted { id, at } => {
            hurry(context, &claim, *at).await?;
            if is_leaving(&*claim) {
                return Ok(());
            }
            tracing::info!(claim = claim.name(), instance = id, %at, "interrupted");
            record(context, &claim, &format!("The provider takes the machine back at {at}"));
            delete_after(Fact::Interrupted, &context.cluster, &claim).await
        }
        InstanceEvent::Gone { id } => {
            context.terminations.instance_gone(&claim);
            if is_leaving(&*claim) {
                return Ok(());
            }
            tracing::info!(claim = claim.name(), instance = id, "its machine is gone");
            record(context, &claim, "The machine is gone");
            delete_after(Fact::MachineGone, &context.cluster, &claim).await
        }
    }
}

/// Sets the deadline of a drain to the end of the machine, unless it is earlier already: pods that could not be evicted
/// by then are deleted while their kubelet can still stop them.
async fn hurry(context: &Context, claim: &NodeClaim, at: Time) -> Result<()> {
    let Some(deadline) = deadline(claim, at, context.cluster.now()) else { return Ok(()) };
    let patch = json!({"metadata": {"annotations": {TERMINATION_TIMESTAMP_ANNOTATION: deadline.to_string()}}});
    context.cluster.claims.patch(&Key::of(claim), &patch).await.map(drop)
}

/// The time at which the node of an interrupted machine must be empty; `None` if an earlier time is set already.
fn deadline(claim: &NodeClaim, at: Time, now: Time) -> Option<Time> {
    let known = annotation(claim, TERMINATION_TIMESTAMP_ANNOTATION).and_then(|text| text.parse::<Timestamp>().ok());
    let mut deadline = Time(at.0.saturating_sub(LEAD_S).max(now.0));
    if let (None, Some(period)) = (known, claim.spec.termination_grace_period) {
        let deleted = claim.metadata.deletion_timestamp.as_ref().map_or(now.0, |time| time.0.as_second());
        deadline = Time(deadline.0.min(deleted.saturating_add(period.0)));
    }
    known.is_none_or(|known| known.as_second() > deadline.0).then_some(deadline)
}

/// Records an event on the claim and on its node.
fn record(context: &Context, claim: &NodeClaim, note: &str) {
    let capacity = claim.metadata.labels.as_ref().and_then(|labels| labels.get(labels::CAPACITY_TYPE));
    let event_reason =
        if capacity.is_some_and(|capacity| capacity == "spot") { SPOT_INTERRUPTED } else { INSTANCE_TERMINATING };
    context.events.record(claim, event_reason, note);
    if let Some(node) = node_of(&context.cluster, claim) {
        context.events.record(&*node, event_reason, note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(grace: Option<&str>, known: Option<&str>) -> NodeClaim {
        let mut claim = json!({
            "metadata": {"name": "c"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
        });
        if let Some(grace) = grace {
            claim["spec"]["terminationGracePeriod"] = grace.into();
        }
        if let Some(known) = known {
            claim["metadata"]["annotations"] = json!({TERMINATION_TIMESTAMP_ANNOTATION: known});
        }
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn drains_end_before_machines_do() {
        let now = "1970-01-01T00:10:00Z";
        let of = |grace, known| deadline(&claim(grace, known), Time(720), Time(600)).map(|time| time.0);
        assert_eq!(of(None, None), Some(715));
        assert_eq!(of(Some("1h"), None), Some(715));
        assert_eq!(of(Some("30s"), None), Some(630), "a pool that gives less time");
        assert_eq!(of(None, Some("1970-01-01T01:00:00Z")), Some(715), "a drain that is under way is hurried");
        assert_eq!(of(None, Some(now)), None);
        assert_eq!(deadline(&claim(None, None), Time(602), Time(600)), Some(Time(600)), "too late to be gentle");
    }
}
