//! What happens to machines by itself: the cloud takes one back, or one is gone.
//!
//! News can be missed. Nothing depends on it: `collect` finds the same by looking, later.

use std::sync::Arc;

use millpond_api::labels;
use millpond_providers::{InstanceEvent, Provider};
use millpond_runtime::error::Result;
use millpond_runtime::events::Voice;
use millpond_runtime::meta::is_leaving;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::claims::{claim_of_machine, node_of};
use crate::context::Context;
use crate::kinds::NodeClaim;

const SPOT_INTERRUPTED: Voice =
    Voice { component: "millpond", action: "Interrupt", reason: "SpotInterrupted", warning: true };
const INSTANCE_TERMINATING: Voice =
    Voice { component: "millpond", action: "Interrupt", reason: "InstanceTerminating", warning: true };

/// Listens to a provider until the token is cancelled.
pub async fn run(
    context: Arc<Context>,
    provider: Arc<dyn Provider>,
    mut news: Receiver<InstanceEvent>,
    stop: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = news.recv() => event,
        };
        match event {
            Ok(event) => {
                if let Err(error) = heed(&context, &event).await {
                    tracing::warn!(instance = event.id(), %error, cause = error.cause(), "news not heeded");
                }
            }
            Err(RecvError::Lagged(count)) => tracing::warn!(provider = provider.name(), count, "news missed"),
            Err(RecvError::Closed) => return,
        }
    }
}

async fn heed(context: &Context, event: &InstanceEvent) -> Result<()> {
    let Some(claim) = claim_of_machine(&context.cluster, event.id()) else { return Ok(()) };
    match event {
        InstanceEvent::Interrupted { id, at } => {
            if is_leaving(&*claim) {
                return Ok(());
            }
            tracing::info!(claim = claim.name(), instance = id, %at, "interrupted");
            tell(context, &claim, &format!("The provider takes the machine back at {at}"));
            context.cluster.claims.delete(&claim, None).await
        }
        InstanceEvent::Gone { id } => {
            context.endings.told_gone(&claim);
            if is_leaving(&*claim) {
                return Ok(());
            }
            tracing::info!(claim = claim.name(), instance = id, "its machine is gone");
            tell(context, &claim, "The machine is gone");
            context.cluster.claims.delete(&claim, None).await
        }
    }
}

/// Tells it of the claim and of its node.
fn tell(context: &Context, claim: &NodeClaim, note: &str) {
    let capacity = claim.metadata.labels.as_ref().and_then(|labels| labels.get(labels::CAPACITY_TYPE));
    let voice =
        if capacity.is_some_and(|capacity| capacity == "spot") { SPOT_INTERRUPTED } else { INSTANCE_TERMINATING };
    context.news.tell(claim, voice, note);
    if let Some(node) = node_of(&context.cluster, claim) {
        context.news.tell(&*node, voice, note);
    }
}
