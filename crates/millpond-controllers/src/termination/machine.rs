//! The machine of a terminating claim: finding it, asking whether it still exists, deleting it.

use std::sync::Arc;
use std::time::Duration;

use millpond_api::karpenter::NodeClaimStatus;
use millpond_api::time::Time;
use millpond_providers::{Instance, ProviderError};
use millpond_runtime::error::Result;
use tokio::time::Instant;

use crate::claims::write_status;
use crate::context::Context;
use crate::kinds::NodeClaim;

/// A machine that was made just before a crash is listed within this time; one that is listed later still is
/// collected as an orphan.
const LISTED_WITHIN: Duration = Duration::from_secs(30);
/// A machine is known to those who ask for it when its claim is this old.
const KNOWN_WITHIN: Duration = Duration::from_mins(1);
/// A provider that does not know a machine whose node says that it works is asked once more, after this long.
const CONFIRMED_AFTER: Duration = Duration::from_secs(5);
/// While a node is drained, its provider is asked so often whether the machine still is.
const LOOKED_EVERY: Duration = Duration::from_secs(30);
/// The same for a node that does not say that it works.
const LOOKED_EVERY_UNREADY: Duration = Duration::from_secs(5);
/// Waits after the first requests for the end of a machine, and after all further ones. Small clouds are quick; what
/// large ones do takes minutes. Providers that tell when a machine is gone are not waited for.
const ASKED_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// The longest wait after an error.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// What is known of the machine of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its id.
    Machine(String),
    /// There is none.
    Nothing,
    /// Not known yet; check again after this time.
    Unclear(Duration),
}

/// The machine of a claim. What a crash kept from being written down is found again by the claim's token, and
/// written down.
pub(super) async fn find(context: &Context, claim: &mut Arc<NodeClaim>) -> Result<Found> {
    if !claim.status.provider_id.is_empty() {
        return Ok(Found::Machine(claim.status.provider_id.clone()));
    }
    if context.terminations.never_launched(claim) {
        return Ok(Found::Nothing);
    }
    let token = claim.metadata.uid.clone().unwrap_or_default();
    for provider in context.providers_of(claim) {
        let instances = match provider.list().await {
            Ok(instances) => instances,
            Err(error) => {
                tracing::warn!(claim = claim.name(), %error, "cannot tell whether it has a machine");
                return Ok(Found::Unclear(retry(context, claim, &error)));
            }
        };
        if let Some(instance) = instances.into_iter().find(|instance| instance.token == token) {
            tracing::info!(
                claim = claim.name(),
                instance = instance.id,
                "found a machine whose id was not in its claim"
            );
            let note = |status: &mut NodeClaimStatus| {
                status.provider_id.clone_from(&instance.id);
                status.capacity.clone_from(&instance.capacity);
                status.allocatable.clone_from(&instance.allocatable);
            };
            if let Some(written) = write_status(&context.cluster, claim, note, []).await? {
                *claim = written;
            }
            return Ok(Found::Machine(instance.id));
        }
    }
    let first = context.terminations.of(claim, |leaving| *leaving.unlisted.get_or_insert_with(Instant::now));
    match LISTED_WITHIN.saturating_sub(first.elapsed()) {
        left if left.is_zero() => Ok(Found::Nothing),
        left => Ok(Found::Unclear(left)),
    }
}

/// Whether a claim that names a missing machine has another one, under its idempotency token: its provider id was
/// changed by hand. The right id is written then. A provider that accepted the request to delete the named machine knew
/// it.
pub(super) async fn is_misnamed(context: &Context, claim: &mut Arc<NodeClaim>, id: &str) -> Result<Option<Duration>> {
    if context.terminations.of(claim, |leaving| leaving.asked > 0) {
        return Ok(None);
    }
    let token = claim.metadata.uid.clone().unwrap_or_default();
    // The provider of the class launched the machine, whatever the id says; the others cannot hold the claim up.
    let class = context.class(&claim.spec.node_class_ref.name);
    let own = class.and_then(|class| context.provider(&class).ok());
    let asked: Vec<_> = own.map_or_else(|| context.providers().collect(), |own| vec![own]);
    for provider in asked {
        let instances = match provider.list().await {
            Ok(instances) => instances,
            Err(error) => {
                tracing::warn!(claim = claim.name(), %error, "cannot tell whether it has another machine");
                return Ok(Some(retry(context, claim, &error)));
            }
        };
        let is_other = |instance: &Instance| instance.token == token && instance.id != id;
        if let Some(instance) = instances.into_iter().find(is_other) {
            *claim = rename(context, claim, &instance).await?;
            return Ok(Some(Duration::ZERO));
        }
    }
    Ok(None)
}

/// Writes down which machine is a claim's.
async fn rename(context: &Context, claim: &Arc<NodeClaim>, instance: &Instance) -> Result<Arc<NodeClaim>> {
    tracing::warn!(
        claim = claim.name(),
        named = claim.status.provider_id,
        instance = instance.id,
        "names a wrong machine"
    );
    let note = |status: &mut NodeClaimStatus| {
        status.provider_id.clone_from(&instance.id);
        status.capacity.clone_from(&instance.capacity);
        status.allocatable.clone_from(&instance.allocatable);
    };
    let written = write_status(&context.cluster, claim, note, []).await?;
    Ok(written.unwrap_or_else(|| Arc::clone(claim)))
}

/// Whether a machine still exists. It counts as gone at once if the provider reported so by itself, or if the node is
/// not Ready; else the provider must say so twice.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Gone,
    /// As far as is known; look again.
    There(Duration),
}

/// Whether a machine still exists. It counts as gone at once if the provider reported so by itself, or if the node is
/// not Ready; else the provider must say so twice.
pub(super) async fn presence(context: &Context, claim: &NodeClaim, id: &str, is_ready: bool) -> Presence {
    let every = if is_ready { LOOKED_EVERY } else { LOOKED_EVERY_UNREADY };
    let age = age(context, claim);
    let (instance_gone, wait) = context.terminations.of(claim, |leaving| {
        let every = if leaving.unknown.is_some() { every.min(CONFIRMED_AFTER) } else { every };
        let looked = match leaving.looked {
            Some(last) => every.saturating_sub(last.elapsed()),
            None if !is_ready => Duration::ZERO,
            None => {
                // Most nodes that work are drained before it is worth a call.
                leaving.looked = Some(Instant::now());
                every
            }
        };
        (leaving.instance_gone, looked.max(KNOWN_WITHIN.saturating_sub(age)))
    });
    if instance_gone {
        return Presence::Gone;
    }
    if !wait.is_zero() {
        return Presence::There(wait);
    }
    let is_unknown = match get(context, claim, id).await {
        Ok(()) => false,
        Err(ProviderError::NotFound { .. }) => true,
        Err(error) => {
            tracing::warn!(claim = claim.name(), %error, "cannot tell whether its machine is still there");
            false
        }
    };
    context.terminations.of(claim, |leaving| {
        leaving.looked = Some(Instant::now());
        if !is_unknown {
            leaving.unknown = None;
            return Presence::There(every);
        }
        let first = *leaving.unknown.get_or_insert_with(Instant::now);
        if !is_ready || first.elapsed() >= CONFIRMED_AFTER {
            return Presence::Gone;
        }
        Presence::There(CONFIRMED_AFTER)
    })
}

fn age(context: &Context, claim: &NodeClaim) -> Duration {
    let created = claim.metadata.creation_timestamp.as_ref();
    created.map_or(Duration::ZERO, |time| context.cluster.since(Time(time.0.as_second())))
}

/// Asks every provider that could know a machine.
async fn get(context: &Context, claim: &NodeClaim, id: &str) -> Result<(), ProviderError> {
    let mut answer = Err(ProviderError::NotFound { message: format!("no provider knows `{id}`") });
    for provider in context.providers_of(claim) {
        match provider.get(id).await {
            Ok(_) => return Ok(()),
            Err(ProviderError::NotFound { .. }) => {}
            Err(error) => answer = Err(error),
        }
    }
    answer
}

/// How the end of a machine goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    Gone,
    /// It was asked for; look again.
    Under(Duration),
    /// This process does not lead any more; look again.
    Fenced(Duration),
    /// The provider did not take the request, and why; look again.
    Refused(Duration, String),
}

/// Asks for the end of a machine.
pub(super) async fn delete(context: &Context, claim: &NodeClaim, id: &str) -> Deletion {
    let mut refusal = None;
    for provider in context.providers_of(claim) {
        match provider.delete(id).await {
            Ok(()) => {
                let asked = context.terminations.of(claim, |leaving| {
                    leaving.failures = 0;
                    leaving.asked = leaving.asked.saturating_add(1);
                    leaving.asked
                });
                return Deletion::Under(ASKED_AFTER[asked.min(ASKED_AFTER.len()) - 1]);
            }
            Err(ProviderError::NotFound { .. }) => {}
            Err(error) => refusal = Some(error),
        }
    }
    match refusal {
        None => Deletion::Gone,
        Some(error @ ProviderError::Fenced { .. }) => Deletion::Fenced(retry(context, claim, &error)),
        Some(error) => Deletion::Refused(retry(context, claim, &error), error.to_string()),
    }
}

/// How long to wait after an error, longer each time.
fn retry(context: &Context, claim: &NodeClaim, error: &ProviderError) -> Duration {
    let failures = context.terminations.of(claim, |leaving| {
        leaving.failures = leaving.failures.saturating_add(1);
        leaving.failures
    });
    let wait = Duration::from_secs(1 << (failures - 1).min(6)).min(LONGEST_RETRY);
    match error {
        ProviderError::Throttled { retry_after: Some(after), .. } => wait.max(*after),
        _ => wait,
    }
}
