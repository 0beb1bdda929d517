//! A cache of one vCenter's inventory that keeps itself up to date.
//!
//! ```text
//!   connect ─▶ view + filter ─▶ first set (pages) ─▶ quick stats, tasks ─▶ fresh
//!                  ▲                                                        │ WaitForUpdatesEx, polls
//!                  └──── session ended: again, silently ◀───────────────────┤
//!                  └──── any other error: stale, wait, again ◀──────────────┘
//! ```
//!
//! While vCenter cannot be read, the last inventory stays and [`Freshness`] says why it is not to be trusted.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::error::{Error, Reason, Result};
use crate::inventory::{HOST_STATE, Inventory, KINDS, QUICK_STATS, ScheduledTask, TASK, WATCHED};
use crate::property::{From, ObjectContent, UpdateSet};
use crate::reference::Reference;
use crate::settings::Settings;

/// How often the state of hosts is polled. A host that enters maintenance is seen within this time even if the server
/// does not notify.
const HOST_POLL: Duration = Duration::from_secs(3);
/// How often quick statistics and scheduled tasks are polled; ESXi refreshes the former every 20 s.
const STATS_POLL: Duration = Duration::from_secs(15);
/// Waiting times between attempts while vCenter cannot be read.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the end of a session may take.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Sessions that may end one after the other without a usable inventory in between before that is a fault.
const SILENT_RESTARTS: u32 = 2;

/// The vCenter to connect to.
#[derive(Clone, Debug, Default)]
pub enum Wanted {
    /// No vCenter.
    #[default]
    None,
    /// Settings that cannot be used, with the reason and the message to show.
    Invalid(String),
    /// This one.
    Use(Settings),
}

/// Whether the inventory is what vCenter has now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// No vCenter is configured.
    #[default]
    Unused,
    /// The first inventory is not complete yet.
    Loading,
    /// It is.
    Fresh,
    /// It is not.
    Stale {
        /// The reason, as conditions show it.
        reason: Reason,
        /// The message, without secrets.
        message: String,
    },
}

/// The content of the cache.
#[derive(Debug, Default)]
pub struct State {
    /// The inventory as of `observed_at`.
    pub inventory: Inventory,
    /// Whether it is recent enough to be used.
    pub freshness: Freshness,
    /// When vCenter last answered.
    pub observed_at: Option<Timestamp>,
}

/// The time that `observed_at` shows.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The cache.
pub struct Live {
    state: RwLock<State>,
    revision: watch::Sender<u64>,
    now: Now,
}

/// Results of polls, applied by the loop that owns the inventory.
enum Polled {
    Hosts(Vec<ObjectContent>),
    Stats(Vec<ObjectContent>),
    Tasks(Result<Vec<ScheduledTask>>),
}

impl Live {
    /// An empty cache; [`run`](Self::run) fills it.
    pub fn new(now: Now) -> Arc<Self> {
        Arc::new(Self { state: RwLock::default(), revision: watch::Sender::default(), now })
    }

    /// Looks at the cache. Keep it short: updates wait meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read())
    }

    /// Tells of every change of the inventory or its freshness.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Follows what is wanted until the token is cancelled.
    pub async fn run(self: Arc<Self>, mut wanted: watch::Receiver<Wanted>, stop: CancellationToken) {
        loop {
            let current = wanted.borrow_and_update().clone();
            let client = self.connect(&current);
            let stops = tokio::select! {
                () = stop.cancelled() => true,
                () = changed(&mut wanted) => false,
                () = self.keep(&current, client.as_ref()) => false,
            };
            if let Some(client) = client {
                // An open session counts against the server's limit; one that cannot be closed expires in time.
                let _ = tokio::time::timeout(LOGOUT_TIMEOUT, client.logout()).await;
            }
            if stops {
                return;
            }
        }
    }

    /// A client for what is wanted, if it can be used.
    fn connect(&self, wanted: &Wanted) -> Option<Client> {
        let settings = match wanted {
            Wanted::None => {
                self.update(|state| *state = State::default());
                return None;
            }
            Wanted::Invalid(message) => {
                self.set_stale(Reason::LoginFailed, message.clone());
                return None;
            }
            Wanted::Use(settings) => settings,
        };
        match Client::new(settings) {
            Ok(client) => {
                if self.read(|state| state.freshness == Freshness::Unused) {
                    self.update(|state| state.freshness = Freshness::Loading);
                }
                Some(client)
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
                self.set_stale(Reason::CertificateNotTrusted, format!("{error}{cause}"));
                None
            }
        }
    }

    /// Keeps the cache up to date with one client, for ever. Without a client it ends where another one is worth a try.
    async fn keep(&self, wanted: &Wanted, client: Option<&Client>) {
        let (settings, client) = match (wanted, client) {
            (Wanted::Use(settings), Some(client)) => (settings, client),
            // A file of CA certificates that is missing can come.
            (Wanted::Use(_), None) => return tokio::time::sleep(LONGEST_PAUSE).await,
            (Wanted::None | Wanted::Invalid(_), _) => return std::future::pending().await,
        };
        let (mut pause, mut restarts) = (FIRST_PAUSE, 0);
        loop {
            let before = *self.revision.borrow();
            let Err(error) = self.watch(client).await;
            let was_fresh = self.read(|state| state.freshness == Freshness::Fresh) && *self.revision.borrow() > before;
            if was_fresh {
                (pause, restarts) = (FIRST_PAUSE, 0);
            }
            if error.ends_session() && restarts < SILENT_RESTARTS {
                restarts += 1;
                tracing::debug!(error = error.chain(), "the session ended; reading the inventory again");
                continue;
            }
            let wait = match &error {
                Error::LoginHeldBack { seconds, .. } => Duration::from_secs(*seconds),
                _ => pause,
            };
            self.report(&error);
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if matches!(error, Error::Certificate { .. })
                && let Err(error) = client.trust_anew(settings)
            {
                tracing::debug!(%error, "the certificates that are trusted stay as they were");
            }
        }
    }

    /// Reads everything, then follows changes until an error.
    async fn watch(&self, client: &Client) -> Result<std::convert::Infallible> {
        let collector = client.create_collector().await?;
        let outcome = match client.create_view(&KINDS).await {
            Ok(view) => {
                let outcome = self.watch_view(client, &collector, &view).await;
                clean_up(client, "DestroyView", &view, outcome.as_ref().err()).await;
                outcome
            }
            Err(error) => Err(error),
        };
        clean_up(client, "DestroyPropertyCollector", &collector, outcome.as_ref().err()).await;
        outcome
    }

    async fn watch_view(
        &self,
        client: &Client,
        collector: &Reference,
        view: &Reference,
    ) -> Result<std::convert::Infallible> {
        client.create_filter(collector, From::View(view), &WATCHED).await?;
        let mut version = String::new();
        let inventory = first_inventory(client, collector, view, &mut version).await?;
        self.update(|state| {
            state.inventory = inventory;
            state.freshness = Freshness::Fresh;
            state.observed_at = Some((self.now)());
        });
        self.follow_changes(client, collector, view, version).await
    }

    async fn follow_changes(
        &self,
        client: &Client,
        collector: &Reference,
        view: &Reference,
        version: String,
    ) -> Result<std::convert::Infallible> {
        let (mut host_poll, mut stats_poll) = (every(HOST_POLL), every(STATS_POLL));
        let mut polls: FuturesUnordered<BoxFuture<'_, Result<Polled>>> = FuturesUnordered::new();
        let (mut hosts_asked, mut stats_asked) = (false, 0);
        let mut updates = next_updates(client, collector, version);
        loop {
            tokio::select! {
                answer = &mut updates => {
                    let (set, version) = answer?;
                    if let Some(set) = set {
                        self.take_updates(client, set).await?;
                    }
                    self.answered();
                    updates = next_updates(client, collector, version);
                }
                Some(polled) = polls.next(), if !polls.is_empty() => {
                    match &polled {
                        Ok(Polled::Hosts(_)) => hosts_asked = false,
                        _ => stats_asked -= 1,
                    }
                    self.take_polled(polled?)?;
                    self.answered();
                }
                _ = host_poll.tick(), if !hosts_asked => {
                    hosts_asked = true;
                    polls.push(async { poll(client, view, &HOST_STATE).await.map(Polled::Hosts) }.boxed());
                }
                _ = stats_poll.tick(), if stats_asked == 0 => {
                    stats_asked = 2;
                    polls.push(async { poll(client, view, &QUICK_STATS).await.map(Polled::Stats) }.boxed());
                    polls.push(async { Ok(Polled::Tasks(scheduled_tasks(client).await)) }.boxed());
                }
            }
        }
    }

    async fn take_updates(&self, client: &Client, set: UpdateSet) -> Result<()> {
        let mut incomplete = Vec::new();
        self.update_if(|state| {
            let mut changed = false;
            for update in set.updates {
                let object = update.object.clone();
                let applied = state.inventory.apply(update);
                changed |= applied.changed;
                if applied.incomplete {
                    incomplete.push(object);
                }
            }
            changed
        });
        if incomplete.is_empty() {
            return Ok(());
        }
        let mut contents = Vec::new();
        client.retrieve(From::Objects(&incomplete), &WATCHED, |content| contents.push(content)).await?;
        self.refresh(&contents);
        Ok(())
    }

    fn take_polled(&self, polled: Polled) -> Result<()> {
        match polled {
            Polled::Hosts(contents) | Polled::Stats(contents) => self.refresh(&contents),
            Polled::Tasks(outcome) => {
                // A session that ended concerns everything; any other fault only the tasks.
                if let Err(error @ (Error::SessionEnded | Error::Unreachable { .. } | Error::Timeout { .. })) = outcome
                {
                    return Err(error);
                }
                self.update_if(|state| set_tasks(&mut state.inventory, outcome));
            }
        }
        Ok(())
    }

    fn refresh(&self, contents: &[ObjectContent]) {
        self.update_if(|state| {
            contents.iter().fold(false, |changed, content| state.inventory.refresh(content) | changed)
        });
    }

    /// Notes that vCenter answered; wakes no reader.
    fn answered(&self) {
        self.state.write().observed_at = Some((self.now)());
    }

    fn report(&self, error: &Error) {
        // The client's wait before another login follows from a refusal, so the refusal stays the reported reason.
        let known = self.read(|state| matches!(&state.freshness, Freshness::Stale { reason: Reason::LoginFailed, .. }));
        if matches!(error, Error::LoginHeldBack { .. }) && known {
            return;
        }
        self.set_stale(error.reason(), error.chain());
    }

    fn set_stale(&self, reason: Reason, message: String) {
        let stale = Freshness::Stale { reason, message };
        self.update_if(|state| {
            if state.freshness == stale {
                return false;
            }
            if let Freshness::Stale { message, .. } = &stale {
                tracing::warn!(%reason, message, "the vSphere inventory is not fresh");
            }
            state.freshness = stale;
            true
        });
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        self.update_if(|state| {
            change(state);
            true
        });
    }

    fn update_if(&self, change: impl FnOnce(&mut State) -> bool) {
        let changed = change(&mut self.state.write());
        if changed {
            self.revision.send_modify(|revision| *revision += 1);
        }
    }
}

/// Waits until something else is wanted; for ever if the sender is gone.
async fn changed(wanted: &mut watch::Receiver<Wanted>) {
    if wanted.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Removes a view or a collector from a session that goes on: each attempt makes new ones, and the server keeps all of
/// them until the session ends.
async fn clean_up(client: &Client, method: &'static str, object: &Reference, error: Option<&Error>) {
    let session_goes_on = match error {
        Some(Error::Unreachable { .. } | Error::Timeout { .. } | Error::Http { .. }) => false,
        Some(error) => !error.ends_session(),
        None => true,
    };
    if session_goes_on && let Err(error) = client.call(method, object, "").await {
        tracing::debug!(method, error = error.chain(), "cleaning up failed");
    }
}

/// All pages of the first set, quick statistics and scheduled tasks.
async fn first_inventory(
    client: &Client,
    collector: &Reference,
    view: &Reference,
    version: &mut String,
) -> Result<Inventory> {
    let mut inventory = Inventory::default();
    loop {
        let Some(set) = client.wait_for_updates(collector, version).await? else { break };
        *version = set.version;
        for update in set.updates {
            inventory.apply(update);
        }
        if !set.truncated {
            break;
        }
    }
    if inventory.hosts.is_empty() && inventory.vms.is_empty() {
        // An account without privileges sees an empty vCenter.
        let root = client.session().await?.content.root_folder.to_string();
        return Err(Error::Permission { object: root, privilege: "System.View".to_owned() });
    }
    let stats = poll(client, view, &QUICK_STATS).await?;
    for content in &stats {
        inventory.refresh(content);
    }
    match scheduled_tasks(client).await {
        Err(error @ Error::SessionEnded) => return Err(error),
        outcome => set_tasks(&mut inventory, outcome),
    };
    Ok(inventory)
}

fn set_tasks(inventory: &mut Inventory, outcome: Result<Vec<ScheduledTask>>) -> bool {
    let (tasks, unreadable) = match outcome {
        Ok(tasks) => (tasks, None),
        Err(error) => (inventory.tasks.clone(), Some(error.chain())),
    };
    if let Some(problem) = unreadable.as_ref().filter(|_| inventory.tasks_unreadable != unreadable) {
        tracing::warn!(problem, "scheduled tasks of vCenter cannot be read; times until a disturbance leave them out");
    }
    let changed = inventory.tasks != tasks || inventory.tasks_unreadable != unreadable;
    (inventory.tasks, inventory.tasks_unreadable) = (tasks, unreadable);
    changed
}

async fn poll(client: &Client, view: &Reference, sets: &[crate::property::PropertySet]) -> Result<Vec<ObjectContent>> {
    let mut contents = Vec::new();
    client.retrieve(From::View(view), sets, |content| contents.push(content)).await?;
    Ok(contents)
}

async fn scheduled_tasks(client: &Client) -> Result<Vec<ScheduledTask>> {
    let session = client.session().await?;
    let Some(manager) = &session.content.scheduled_task_manager else { return Ok(Vec::new()) };
    let answer = client.call("RetrieveEntityScheduledTask", manager, "").await?;
    let tasks: Vec<Reference> = answer.all("returnval").filter_map(crate::xml::Element::reference).collect();
    let mut found = Vec::new();
    if !tasks.is_empty() {
        client.retrieve(From::Objects(&tasks), &TASK, |content| found.extend(Inventory::read_task(&content))).await?;
    }
    found.sort_by(|one, other| {
        (one.next_run, &one.name, &one.entity).cmp(&(other.next_run, &other.name, &other.entity))
    });
    Ok(found)
}

type Updates<'a> = BoxFuture<'a, Result<(Option<UpdateSet>, String)>>;

fn next_updates<'a>(client: &'a Client, collector: &'a Reference, version: String) -> Updates<'a> {
    async move {
        let set = client.wait_for_updates(collector, &version).await?;
        let version = set.as_ref().map_or(version, |set| set.version.clone());
        Ok((set, version))
    }
    .boxed()
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
