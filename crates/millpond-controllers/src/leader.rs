//! Leader election: of several controllers one leads, and only that one calls providers.
//!
//! The rules are those of Kubernetes' own controllers, so that the Lease reads as people are used to. On top of them:
//!
//! - **A term has a number.** `leaseTransitions` grows with every change of the leader, also when a process takes over
//!   from its own predecessor. The number goes to the provider before the first call ([`Provider::begin_term`]), and
//!   calls with a lower number are refused there.
//! - **Leadership is checked at each call.** [`Leadership::holds`] compares the time of the last renewal with two
//!   clocks, so that a process that was stopped, or whose machine was suspended, does not call a provider when it wakes
//!   up. What slips between check and call is what the number is for.
//! - **A dead predecessor is not waited for**, where its death is certain ([`Candidate::succeeds`]).
//!
//! [`Provider::begin_term`]: millpond_providers::Provider::begin_term

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use millpond_runtime::clock::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often a standby reads the Lease.
const LOOK: Duration = Duration::from_secs(2);

/// Durations of the election.
#[derive(Debug, Clone, Copy)]
struct LeaderTimings {
    /// How long the Lease is valid without a renewal.
    lasts: Duration,
    /// When it could not renew for this long, it no longer leads.
    renewed_within: Duration,
    /// Time between renewals.
    every: Duration,
}

/// The values of Kubernetes' own controllers.
const USUAL: LeaderTimings = LeaderTimings {
    lasts: Duration::from_secs(15),
    renewed_within: Duration::from_secs(10),
    every: Duration::from_secs(2),
};
/// For a leader that stops and sleeps together with its API server: standbys can take over only after a restart, and
/// frequent renewals would keep an idle store busy.
const SELDOM: LeaderTimings = LeaderTimings {
    lasts: Duration::from_mins(3),
    renewed_within: Duration::from_mins(2),
    every: Duration::from_mins(1),
};

/// What a process knows about other processes that may act on the same cluster.
#[derive(Debug, Clone, Default)]
pub enum Leads {
    /// Nothing: others may act at the same time, and may have acted before.
    #[default]
    Unknown,
    /// Leader election is off: there is no other process.
    Alone,
    /// It was elected.
    Elected(Leadership),
}

impl Leads {
    /// Whether providers are called by no other process.
    pub fn is_exclusive(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// The leadership that calls require.
    pub fn leadership(&self) -> Option<&Leadership> {
        match self {
            Self::Elected(leadership) => Some(leadership),
            Self::Unknown | Self::Alone => None,
        }
    }
}

/// The right to act, as long as the Lease is renewed. Clones share it.
#[derive(Debug, Clone)]
pub struct Leadership {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    pace: LeaderTimings,
    /// The number of the term; the Lease has it as `leaseTransitions`.
    term: watch::Sender<u64>,
    /// A number that the term must reach, because a provider has seen a higher one.
    wanted: AtomicU64,
    wanted_changed: Notify,
    /// When the last successful renewal was requested.
    renewed: Mutex<Renewal>,
    ended: AtomicBool,
}

/// A moment by the runtime's clock and by the wall clock: the first does not count the time that a machine is
/// suspended, the second can be set.
#[derive(Debug, Clone, Copy)]
struct Renewal {
    at: Instant,
    wall: Timestamp,
}

impl Renewal {
    fn now(clock: &Clock) -> Self {
        Self { at: Instant::now(), wall: clock.now() }
    }

    fn is_older_than(&self, time: Duration, clock: &Clock) -> bool {
        let by_wall_clock = Duration::try_from(clock.now().duration_since(self.wall)).unwrap_or_default();
        self.at.elapsed().max(by_wall_clock) >= time
    }
}

impl Leadership {
    fn begin(term: u64, renewed: Renewal, clock: Clock, pace: LeaderTimings) -> Self {
        let shared = Shared {
            clock,
            pace,
            term: watch::Sender::new(term),
            wanted: AtomicU64::new(0),
            wanted_changed: Notify::new(),
            renewed: Mutex::new(renewed),
            ended: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The number of the term.
    pub fn term(&self) -> u64 {
        *self.shared.term.borrow()
    }

    /// Whether this process still leads, as far as it can know without asking.
    pub fn holds(&self) -> bool {
        let shared = &self.shared;
        let renewed = *shared.renewed.lock();
        !shared.ended.load(Ordering::Acquire) && !renewed.is_older_than(shared.pace.renewed_within, &shared.clock)
    }

    /// Gives the term a number above one that a provider has seen: the Lease was deleted, and began at zero again.
    /// Returns once the Lease has it; false when the leadership ended before.
    pub async fn exceed(&self, seen: u64) -> bool {
        let mut term = self.shared.term.subscribe();
        self.shared.wanted.fetch_max(seen.saturating_add(1), Ordering::AcqRel);
        self.shared.wanted_changed.notify_one();
        let raised = term.wait_for(|term| *term > seen || self.shared.ended.load(Ordering::Acquire)).await;
        raised.is_ok_and(|term| *term > seen)
    }

    fn wanted(&self) -> u64 {
        self.shared.wanted.load(Ordering::Acquire)
    }

    fn renewed(&self, at: Renewal, term: u64) {
        *self.shared.renewed.lock() = at;
        self.shared.term.send_replace(term);
    }

    fn end(&self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.term.send_modify(|_| {});
    }
}

/// A process that takes part in the election.
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: Clock,
    pace: LeaderTimings,
    /// Holders whose identity has this prefix are known to be dead.
    predecessors: Option<String>,
    /// The version of the Lease that was seen last, and since when: other machines' clocks are not trusted.
    seen: Option<(Option<String>, Instant)>,
    /// The holder that was last reported as the leader.
    reported: Option<String>,
}

/// The result of a renewal.
enum Renewed {
    Yes,
    /// Another write came in between: read the Lease again.
    Raced,
    /// The Lease belongs to another process, or is gone.
    Lost,
}

impl Candidate {
    /// Stands for the Lease of that name. No other process may have the same identity.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, clock: Clock) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            clock,
            pace: USUAL,
            predecessors: None,
            seen: None,
            reported: None,
        }
    }

    /// Takes the Lease at once from holders whose identity has this prefix. The caller must know that they are dead,
    /// for instance because it holds an exclusive lock that each of them held for its lifetime.
    #[must_use]
    pub fn succeeds(self, prefix: &str) -> Self {
        Self { predecessors: Some(prefix.to_owned()), ..self }
    }

    /// Renews once a minute only. For a process that serves the API itself: while it sleeps or is dead, no process can
    /// take the Lease, and the next process that serves the API knows so ([`Self::succeeds`]).
    #[must_use]
    pub fn renews_seldom(self) -> Self {
        Self { pace: SELDOM, ..self }
    }

    /// Waits until this process leads; `None` if `stop` was cancelled before.
    pub async fn elected(&mut self, stop: &CancellationToken) -> Option<Leadership> {
        loop {
            if let Some(leadership) = self.elected_at_once().await {
                return Some(leadership);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Takes the Lease if that is possible now.
    pub async fn elected_at_once(&mut self) -> Option<Leadership> {
        let asked = Renewal::now(&self.clock);
        match self.try_acquire().await {
            Ok(term) => term.map(|term| Leadership::begin(term, asked, self.clock.clone(), self.pace)),
            Err(error) => {
                tracing::warn!(%error, "cannot read or write the lease");
                None
            }
        }
    }

    /// Renews until that fails for too long, another process leads, or it is stopped. The leadership has ended then.
    pub async fn lead(&mut self, leadership: &Leadership, stop: &CancellationToken) {
        self.renew_until(leadership, stop).await;
        leadership.end();
    }

    async fn renew_until(&mut self, leadership: &Leadership, stop: &CancellationToken) {
        loop {
            let wanted = leadership.shared.wanted_changed.notified();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = wanted => {}
                () = tokio::time::sleep(self.pace.every) => {}
            }
            let renewed_at = leadership.shared.renewed.lock().at;
            let left = (renewed_at + self.pace.renewed_within).saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.renew(leadership)).await {
                Ok(Ok(Renewed::Yes)) => {}
                Ok(Ok(Renewed::Raced)) => tracing::debug!("the lease changed while it was renewed"),
                Ok(Ok(Renewed::Lost)) => {
                    tracing::warn!("another controller leads");
                    return;
                }
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease"),
                Err(_) => tracing::warn!("the lease was not renewed in time"),
            }
            if !leadership.holds() {
                tracing::warn!(after = ?self.pace.renewed_within, "the lease could not be renewed in time");
                return;
            }
        }
    }

    /// Releases the Lease, so that another process can lead at once.
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

    /// Takes the Lease if no living process holds it; gives the number of the term.
    async fn try_acquire(&mut self) -> kube::Result<Option<u64>> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.held(None, 0)),
            };
            let created = won(self.api.create(&PostParams::default(), &lease).await)?;
            return Ok(created.then_some(0));
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if !self.is_free(&lease, &spec) {
            return Ok(None);
        }
        let term = term_of(&spec).saturating_add(1);
        lease.spec = Some(self.held(None, term));
        // The resource version goes along: of two candidates one gets a conflict.
        Ok(won(self.api.replace(&self.name, &PostParams::default(), &lease).await)?.then_some(term))
    }

    /// Whether no living process holds the Lease.
    fn is_free(&mut self, lease: &Lease, spec: &LeaseSpec) -> bool {
        let version = lease.metadata.resource_version.clone();
        if self.seen.as_ref().is_none_or(|(known, _)| *known != version) {
            self.seen = Some((version, Instant::now()));
        }
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        // The caller does not lead: an earlier term of this process has ended.
        let is_dead = holder == self.identity
            || self.predecessors.as_ref().is_some_and(|prefix| holder.starts_with(prefix.as_str()));
        let lasts =
            spec.lease_duration_seconds.map_or(USUAL.lasts, |seconds| Duration::from_secs(seconds.max(0) as u64));
        let lapsed = self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() >= lasts);
        let is_free = holder.is_empty() || is_dead || lapsed;
        if !is_free && self.reported.as_deref() != Some(holder) {
            tracing::info!(leader = holder, "another controller leads, this one waits");
            self.reported = Some(holder.to_owned());
        }
        is_free
    }

    async fn renew(&mut self, leadership: &Leadership) -> kube::Result<Renewed> {
        let asked = Renewal::now(&self.clock);
        let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(Renewed::Lost) };
        let spec = lease.spec.clone().unwrap_or_default();
        // A write whose response was lost may have raised the number already.
        let is_ours = spec.holder_identity.as_deref() == Some(&self.identity)
            && [leadership.term(), leadership.wanted()].contains(&term_of(&spec));
        if !is_ours {
            return Ok(Renewed::Lost);
        }
        let term = leadership.term().max(leadership.wanted());
        lease.spec = Some(self.held(Some(&spec), term));
        if !won(self.api.replace(&self.name, &PostParams::default(), &lease).await)? {
            return Ok(Renewed::Raced);
        }
        leadership.renewed(asked, term);
        Ok(Renewed::Yes)
    }

    fn held(&self, before: Option<&LeaseSpec>, term: u64) -> LeaseSpec {
        let now: Timestamp = self.clock.now();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(self.pace.lasts.as_secs() as i32),
            acquire_time: before.and_then(|before| before.acquire_time.clone()).or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(i32::try_from(term).unwrap_or(i32::MAX)),
            ..LeaseSpec::default()
        }
    }
}

fn term_of(spec: &LeaseSpec) -> u64 {
    u64::try_from(spec.lease_transitions.unwrap_or_default()).unwrap_or_default()
}

/// Whether a write succeeded; a conflict means that another process was first.
fn won(written: kube::Result<Lease>) -> kube::Result<bool> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}
