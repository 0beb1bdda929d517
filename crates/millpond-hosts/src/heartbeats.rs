//! Leases of hosts: when each was last renewed, measured on this process's clock alone.
//!
//! Clocks of hosts may be off, so `renewTime` is never compared with the time here: a Lease is alive for its duration
//! after this process saw it change. A Lease that was seen once only, since the watch began, says nothing yet; what an
//! earlier process found out stands in the condition `AgentHealthy` of the host.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client, ResourceExt};
use millpond_api::byoh::names::LEASE_NAMESPACE;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The duration of a Lease that specifies none.
const DEFAULT_DURATION: Duration = Duration::from_secs(40);

/// The observed renewals of a host's Lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Heartbeat {
    renewed: Option<MicroTime>,
    holder: String,
    duration: Duration,
    seen: Instant,
    /// Number of changes since the Lease was first seen.
    changes: u64,
}

impl Heartbeat {
    fn of(lease: &Lease, now: Instant) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.filter(|seconds| *seconds > 0).map_or(DEFAULT_DURATION, Duration::from_secs);
        let holder = spec.holder_identity.unwrap_or_default();
        Self { renewed: spec.renew_time, holder, duration, seen: now, changes: 0 }
    }

    /// Time until the Lease runs out; zero when it has. A Lease that did not change since the watch began counts as
    /// run out if the host was known to be unhealthy, and for hosts that nothing renews (no holder).
    pub fn left(&self, was_unhealthy: bool, now: Instant) -> Duration {
        if self.holder.is_empty() || (self.changes == 0 && was_unhealthy) {
            return Duration::ZERO;
        }
        self.duration.saturating_sub(now.saturating_duration_since(self.seen))
    }

    /// Time since the last observed change.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.seen)
    }
}

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// The Leases of all hosts.
pub struct Heartbeats {
    client: Client,
    seen: Mutex<HashMap<String, Heartbeat>>,
    listeners: RwLock<Vec<Listener>>,
    ready: watch::Sender<bool>,
}

impl Heartbeats {
    /// Without watches, which start later.
    pub fn new(client: Client) -> Arc<Self> {
        let (seen, listeners) = (Mutex::default(), RwLock::default());
        Arc::new(Self { client, seen, listeners, ready: watch::Sender::new(false) })
    }

    /// The Lease of a host.
    pub fn get(&self, host: &str) -> Option<Heartbeat> {
        self.seen.lock().get(host).cloned()
    }

    /// Calls `listener` with the host of every Lease that comes, goes, or is renewed after it ran out.
    pub fn on_change(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Waits until all Leases were listed once.
    pub async fn wait_until_ready(&self) {
        // The sender lives as long as `self`.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Watches until the token is cancelled.
    pub async fn run(self: Arc<Self>, token: CancellationToken) {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let events = watcher::watcher(api, Config::default()).default_backoff().take_until(token.cancelled());
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(lease)) => self.take(&lease, Instant::now(), false),
                Ok(Event::InitApply(lease)) => self.take(&lease, Instant::now(), true),
                Ok(Event::Delete(lease)) => self.forget(&lease.name_any()),
                Ok(Event::InitDone) => drop(self.ready.send_replace(true)),
                Ok(Event::Init) => {}
                Err(error) => tracing::debug!(%error, "watch of host Leases interrupted"),
            }
        }
    }

    /// Takes over a Lease; `listed` ones were there before the watch began.
    fn take(&self, lease: &Lease, now: Instant, listed: bool) {
        let (host, mut fresh) = (lease.name_any(), Heartbeat::of(lease, now));
        let changed = {
            let mut seen = self.seen.lock();
            match seen.get(&host) {
                Some(known) if (&known.renewed, &known.holder) == (&fresh.renewed, &fresh.holder) => false,
                known => {
                    let had_run_out = known.is_none_or(|known| known.changes == 0 || known.age(now) >= known.duration);
                    fresh.changes = known.map_or(u64::from(!listed), |known| known.changes + 1);
                    seen.insert(host.clone(), fresh);
                    had_run_out
                }
            }
        };
        if changed {
            self.tell(&host);
        }
    }

    fn forget(&self, host: &str) {
        if self.seen.lock().remove(host).is_some() {
            self.tell(host);
        }
    }

    fn tell(&self, host: &str) {
        self.listeners.read().iter().for_each(|listener| listener(host));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(renewed: &str) -> Lease {
        let spec = json!({"holderIdentity": "node10/boot1", "renewTime": renewed, "leaseDurationSeconds": 40});
        serde_json::from_value(json!({"metadata": {"name": "node10"}, "spec": spec})).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_lives_on_the_clock_of_this_process() {
        let beats =
            Heartbeats::new(Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap());
        let left = |was_unhealthy| beats.get("node10").map(|beat| beat.left(was_unhealthy, Instant::now()).as_secs());
        assert_eq!(left(false), None);
        // The host's clock is years off.
        beats.take(&lease("1999-01-01T00:00:00.000000Z"), Instant::now(), true);
        assert_eq!((left(false), left(true)), (Some(40), Some(0)), "seen once: what was known before counts");
        tokio::time::advance(Duration::from_secs(10)).await;
        beats.take(&lease("1999-01-01T00:00:00.000000Z"), Instant::now(), true);
        assert_eq!(left(false), Some(30), "not renewed");
        beats.take(&lease("1999-01-01T00:00:10.000000Z"), Instant::now(), false);
        assert_eq!((left(false), left(true)), (Some(40), Some(40)));
        tokio::time::advance(Duration::from_secs(41)).await;
        assert_eq!(left(false), Some(0));
    }
}
