//! Of several controllers one leads: who holds a Lease, and renews it.
//!
//! The rules are those of Kubernetes' own controllers, so that a Lease reads as people are used to. Who leads stops
//! before its Lease can lapse: the renewal deadline is shorter than the Lease lasts. Nothing depends on that alone:
//! limits are reserved in the API (`limits`), and every launch carries its claim's token.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use millpond_runtime::clock::Clock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a Lease holds without being renewed.
const LASTS: Duration = Duration::from_secs(15);
/// Who could not renew for this long leads no more.
const RENEWED_WITHIN: Duration = Duration::from_secs(10);
/// How often it is renewed, or looked at.
const EVERY: Duration = Duration::from_secs(2);

/// Somebody who would lead.
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: Clock,
    /// The Lease as it was last seen to change, and when: other machines' clocks are not trusted.
    seen: Option<(Option<String>, Instant)>,
}

impl Candidate {
    /// Stands for the Lease of that name.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, clock: Clock) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            clock,
            seen: None,
        }
    }

    /// Waits until this one leads; false when it was stopped before.
    pub async fn elected(&mut self, stop: &CancellationToken) -> bool {
        loop {
            match self.try_hold().await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "cannot look at the lease"),
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    /// Renews until that fails for too long, or it is stopped.
    pub async fn lead(&mut self, stop: &CancellationToken) {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            let left = (renewed + RENEWED_WITHIN).saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.try_hold()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => {
                    tracing::warn!("somebody else leads");
                    return;
                }
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease"),
                Err(_) => {}
            }
            if renewed.elapsed() >= RENEWED_WITHIN {
                tracing::warn!("the lease could not be renewed in time");
                return;
            }
        }
    }

    /// Lets others lead at once.
    pub async fn resign(&mut self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        if let Err(error) = self.api.replace(&self.name, &PostParams::default(), &lease).await {
            tracing::debug!(%error, "the lease was not given back");
        }
    }

    /// Takes or renews the Lease, if nobody else holds it.
    async fn try_hold(&mut self) -> kube::Result<bool> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.held(None)),
            };
            return lost_race(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let version = lease.metadata.resource_version.clone();
        if self.seen.as_ref().is_none_or(|(known, _)| *known != version) {
            self.seen = Some((version, Instant::now()));
        }
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let ours = holder == self.identity;
        let lasts = spec.lease_duration_seconds.map_or(LASTS, |seconds| Duration::from_secs(seconds.max(0) as u64));
        let lapsed = self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() >= lasts);
        if !ours && !holder.is_empty() && !lapsed {
            return Ok(false);
        }
        lease.spec = Some(self.held(Some(&spec).filter(|_| ours)));
        let transitions = spec.lease_transitions.unwrap_or_default() + i32::from(!ours);
        if let Some(held) = &mut lease.spec {
            held.lease_transitions = Some(transitions);
        }
        // The resource version goes along: who wrote meanwhile wins.
        lost_race(self.api.replace(&self.name, &PostParams::default(), &lease).await)
    }

    fn held(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now: Timestamp = self.clock.now();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LASTS.as_secs() as i32),
            acquire_time: before.and_then(|before| before.acquire_time.clone()).or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }
    }
}

fn lost_race(written: kube::Result<Lease>) -> kube::Result<bool> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}
