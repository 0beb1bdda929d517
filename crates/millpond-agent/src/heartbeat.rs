//! The Lease of the host: the heartbeat by which controllers know that the agent lives, and by which a copy of the
//! machine finds out that it is one.
//!
//! A Lease that another boot of this machine holds is taken over when it is not renewed any more. One that goes on being
//! renewed is held by another machine with the same name and the same credentials.

use std::time::Duration;

use jiff::Timestamp;
use millpond_api::byoh::names::LEASE_NAMESPACE;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::credentials::Credentials;
use crate::session::{Session, SessionError};

/// Time between two heartbeats.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Seconds without a heartbeat after which controllers take the host for lost.
const DURATION_SECONDS: i64 = 40;
/// A holder that missed two heartbeats does not renew any more.
const GONE_AFTER: Duration = Duration::from_secs(25);
/// Time between two looks at a Lease that another holds.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Time to the next attempt after an error.
const RETRY: Duration = Duration::from_secs(3);

/// The session that the agent speaks with; it changes when the certificate is renewed.
#[derive(Clone)]
pub struct Current(watch::Receiver<(Session, Credentials)>);

impl Current {
    /// A session, and the way to replace it.
    pub fn new(session: Session, credentials: Credentials) -> (watch::Sender<(Session, Credentials)>, Self) {
        let (sender, receiver) = watch::channel((session, credentials));
        (sender, Self(receiver))
    }

    /// The session of now.
    pub fn session(&self) -> Session {
        self.0.borrow().0.clone()
    }

    /// The credentials of now.
    pub fn credentials(&self) -> Credentials {
        self.0.borrow().1.clone()
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Lease {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    resource_version: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    renew_time: Option<String>,
    acquire_time: Option<String>,
    lease_transitions: Option<i64>,
}

/// Renews the Lease of a host.
pub struct Heartbeat {
    current: Current,
    host: String,
    holder: String,
    /// The foreign renewal that was seen last, and when it was seen first.
    seen: Option<(Spec, Instant)>,
    version: Option<String>,
}

impl Heartbeat {
    /// The heartbeat of a host that was booted under this id.
    pub fn new(current: Current, host: &str, boot_id: &str) -> Self {
        let holder = format!("{host}/{boot_id}");
        Self { current, host: host.to_owned(), holder, seen: None, version: None }
    }

    /// Renews until the token is cancelled; says whether the Lease is held.
    pub async fn run(mut self, held: watch::Sender<bool>, stop: CancellationToken) {
        loop {
            let pause = match self.beat().await {
                Ok(true) => {
                    held.send_replace(true);
                    INTERVAL
                }
                Ok(false) => {
                    held.send_replace(false);
                    LOOK_AGAIN
                }
                Err(error) => {
                    tracing::warn!(%error, "no heartbeat");
                    self.version = None;
                    RETRY
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.release().await;
    }

    /// One heartbeat; returns false while another agent holds the Lease.
    async fn beat(&mut self) -> Result<bool, SessionError> {
        let session = self.current.session();
        if let Some(version) = &self.version {
            match self.renew(&session, Some(version), None).await {
                Ok(version) => {
                    self.version = Some(version);
                    return Ok(true);
                }
                // Another wrote the Lease.
                Err(error) if matches!(error.code(), Some(404 | 409)) => self.version = None,
                Err(error) => return Err(error),
            }
        }
        let Some(lease) = session.get::<Lease>(&self.path()).await? else {
            let created: Lease = session.create(&collection(), &self.object(None, Some(0))).await?;
            self.version = Some(created.metadata.resource_version);
            return Ok(true);
        };
        if self.is_held_by_another(&lease.spec) {
            return Ok(false);
        }
        let is_new = lease.spec.holder_identity.as_ref() != Some(&self.holder);
        let transitions =
            is_new.then(|| lease.spec.lease_transitions.unwrap_or(0) + i64::from(lease.spec.acquire_time.is_some()));
        match self.renew(&session, Some(&lease.metadata.resource_version), transitions).await {
            Ok(version) => {
                (self.version, self.seen) = (Some(version), None);
                Ok(true)
            }
            Err(error) if error.code() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_held_by_another(&mut self, spec: &Spec) -> bool {
        let Some(holder) = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty()) else { return false };
        if holder == self.holder {
            return false;
        }
        let renewed = spec.renew_time.as_ref().and_then(|time| time.parse::<Timestamp>().ok());
        let age = renewed.map(|time| Timestamp::now().duration_since(time));
        if age.is_some_and(|age| age >= jiff::SignedDuration::try_from(GONE_AFTER).unwrap_or_default()) {
            return false;
        }
        match &self.seen {
            Some((seen, since)) if seen == spec => since.elapsed() < GONE_AFTER,
            Some(_) => {
                tracing::error!(
                    holder,
                    "another machine with the name and the credentials of this host is alive: this one is a copy. \
                     Remove its state directory and register it under a name of its own"
                );
                self.seen = Some((spec.clone(), Instant::now()));
                true
            }
            None => {
                tracing::info!(holder, "waits until the Lease of an earlier boot ends");
                self.seen = Some((spec.clone(), Instant::now()));
                true
            }
        }
    }

    async fn renew(
        &self,
        session: &Session,
        version: Option<&str>,
        transitions: Option<i64>,
    ) -> Result<String, SessionError> {
        let renewed: Lease = session.merge(&self.path(), &self.object(version, transitions)).await?;
        Ok(renewed.metadata.resource_version)
    }

    fn object(&self, version: Option<&str>, transitions: Option<i64>) -> Value {
        let now = format!("{:.6}", Timestamp::now());
        let mut object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.host, "namespace": LEASE_NAMESPACE},
            "spec": {"holderIdentity": self.holder, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": now},
        });
        if let Some(version) = version {
            object["metadata"]["resourceVersion"] = version.into();
        }
        if let Some(transitions) = transitions {
            object["spec"]["leaseTransitions"] = transitions.into();
            object["spec"]["acquireTime"] = now.into();
        }
        object
    }

    /// Gives the Lease back, so that the next boot need not wait for its end.
    async fn release(&self) {
        let Some(version) = &self.version else { return };
        let mut object = self.object(Some(version), None);
        object["spec"]["holderIdentity"] = "".into();
        let released: Result<Value, _> = self.current.session().merge(&self.path(), &object).await;
        if let Err(error) = released {
            tracing::debug!(%error, "the Lease is not given back");
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", collection(), self.host)
    }
}

fn collection() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases")
}
