//! The loop: wait for a change, decide, start what was decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::act;
use super::backend::{Backend, Key, PoolSpec, Records};
use super::capacity::Capacity;
use super::snapshot::{self, Surroundings};
use super::under_way::{Item, UnderWay};
use super::upkeep;
use crate::config::{Config, Driver, Resources};
use crate::driver::{Drivers, Factory, Sizes, Uploads};
use crate::engine::{self, Decision, Lock, Snapshot, Verdict};
use crate::model::RequestState;

/// How long actions may continue once the launcher is being stopped. The next launcher finds what is left then.
const GRACE: Duration = Duration::from_secs(10);

/// The longest sleep: a clock that was set back must not keep the launcher from its work for long.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Why requests wait, by request.
pub type Waiting = BTreeMap<String, Vec<Verdict>>;

/// The inputs of a launcher.
#[derive(Clone)]
pub struct Settings {
    /// The store.
    pub backend: Arc<dyn Backend>,
    /// The configuration, as it is now.
    pub config: watch::Receiver<Arc<Config>>,
    /// Makes drivers.
    pub drivers: Factory,
    /// The host's name, which nodes carry.
    pub hostname: String,
    /// The newest uploads of disk images; `None` where no builder's records are read: then labels do not wait for one.
    pub uploads: Option<watch::Receiver<Arc<Uploads>>>,
}

/// A launcher.
pub struct Launcher {
    context: Arc<Context>,
    config: watch::Receiver<Arc<Config>>,
    uploads: Option<watch::Receiver<Arc<Uploads>>>,
    factory: Factory,
    /// Providers that work.
    usable: BTreeSet<String>,
    tasks: TaskTracker,
}

/// What the actions of a launcher share.
pub(super) struct Context {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) hostname: String,
    pub(super) under_way: UnderWay,
    pub(super) capacity: Mutex<Capacity>,
    /// Limits that the providers themselves reported.
    pub(super) limits: Mutex<BTreeMap<String, Resources>>,
    /// The usage of nodes of each provider, as the providers report it.
    pub(super) sizes: Mutex<BTreeMap<String, Sizes>>,
    /// The images that servers boot from, if known.
    pub(super) uploads: Mutex<Option<Arc<Uploads>>>,
    /// Notified when a provider reports new sizes.
    pub(super) told: Notify,
    /// Notified when the drivers were replaced.
    pub(super) reconfigured: Notify,
    /// The configuration and its drivers.
    pub(super) current: Mutex<Current>,
    pub(super) waiting: Mutex<Waiting>,
    pub(super) counters: Mutex<Counters>,
    pub(super) ends: CancellationToken,
    pub(super) tasks: TaskTracker,
}

#[derive(Clone)]
pub(super) struct Current {
    pub(super) config: Arc<Config>,
    pub(super) drivers: Arc<Drivers>,
}

/// Counters since the start.
#[derive(Debug, Default, Clone)]
pub(super) struct Counters {
    /// Launches that have ended.
    pub(super) launches: BTreeMap<EndedLaunch, u64>,
    /// Requests by how they ended.
    pub(super) requests: BTreeMap<&'static str, u64>,
    /// Leaked instances that were deleted, by provider.
    pub(super) leaked: BTreeMap<String, u64>,
}

/// A launch as it is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndedLaunch {
    pub(super) provider: String,
    /// Where it is known.
    pub(super) az: String,
    pub(super) requestor: String,
    /// The kind of error; none if the node is ready.
    pub(super) error: Option<&'static str>,
}

/// Access to a running launcher.
#[derive(Clone)]
pub struct Handle {
    context: Arc<Context>,
}

impl Handle {
    /// Why requests wait.
    pub fn waiting(&self) -> Waiting {
        self.context.waiting.lock().clone()
    }

    /// Whether the store answers and was read.
    pub fn is_ready(&self) -> bool {
        self.context.backend.is_connected() && self.context.backend.records().is_complete
    }

    /// Counters in Prometheus' text format.
    pub fn counters(&self) -> String {
        use std::fmt::Write as _;
        let counters = self.context.counters.lock().clone();
        let mut out = String::new();
        let mut family = |name: &str, help: &str, samples: Vec<(String, u64)>| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
            for (labels, value) in samples {
                let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        };
        let groupings: [(&str, fn(&EndedLaunch) -> String); 3] = [
            ("nodepool_launch", |_| String::new()),
            ("nodepool_launch_provider", |it| format!("az={},provider={}", quoted(&it.az), quoted(&it.provider))),
            ("nodepool_launch_requestor", |it| format!("requestor={}", quoted(&it.requestor))),
        ];
        for (name, labels) in groupings {
            let (mut ready, mut failed) = (BTreeMap::new(), BTreeMap::new());
            for (launch, count) in &counters.launches {
                let labels = labels(launch);
                let of = match launch.error {
                    None => ready.entry(labels).or_insert(0),
                    Some(error) => {
                        let separator = if labels.is_empty() { "" } else { "," };
                        failed.entry(format!("{labels}{separator}error={}", quoted(error))).or_insert(0)
                    }
                };
                *of += *count;
            }
            family(&format!("{name}_ready"), "Launches of nodes that became ready", ready.into_iter().collect());
            family(
                &format!("{name}_error"),
                "Launches that failed, by the kind of error",
                failed.into_iter().collect(),
            );
        }
        let requests = counters.requests.iter().map(|(state, count)| (format!("state={}", quoted(state)), *count));
        family("nodepool_requests_total", "Requests by how they ended", requests.collect());
        let leaked = counters.leaked.iter().map(|(provider, count)| (format!("provider={}", quoted(provider)), *count));
        family("nodepool_provider_leaked_instances", "Leaked instances that were deleted", leaked.collect());
        out
    }
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

impl Launcher {
    /// A launcher that has not begun.
    pub fn new(settings: Settings) -> Self {
        let config = settings.config.borrow().clone();
        let drivers = Arc::new((settings.drivers)(&config));
        let tasks = TaskTracker::new();
        let context = Context {
            backend: settings.backend,
            hostname: settings.hostname,
            under_way: UnderWay::default(),
            capacity: Mutex::default(),
            limits: Mutex::default(),
            sizes: Mutex::default(),
            uploads: Mutex::new(settings.uploads.as_ref().map(|uploads| Arc::clone(&uploads.borrow()))),
            told: Notify::new(),
            reconfigured: Notify::new(),
            current: Mutex::new(Current { config, drivers }),
            waiting: Mutex::default(),
            counters: Mutex::default(),
            ends: CancellationToken::new(),
            tasks: tasks.clone(),
        };
        Self {
            context: Arc::new(context),
            config: settings.config,
            uploads: settings.uploads,
            factory: settings.drivers,
            usable: BTreeSet::new(),
            tasks,
        }
    }

    /// The access to this launcher.
    pub fn handle(&self) -> Handle {
        Handle { context: Arc::clone(&self.context) }
    }

    /// Works until the token is cancelled; then waits for actions that end soon.
    pub async fn run(mut self, ends: CancellationToken) {
        let mut changes = self.context.backend.changes();
        self.configure();
        let upkeep = self.tasks.spawn(upkeep::run(Arc::clone(&self.context)));
        loop {
            changes.borrow_and_update();
            let (began, deadline) = (Instant::now(), self.round());
            // At most half of the time is spent on decisions: under load one decision covers more changes.
            let pause = began.elapsed();
            tokio::select! {
                () = ends.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            tokio::select! {
                () = ends.cancelled() => break,
                changed = changes.changed() => if changed.is_err() { break },
                () = next(&mut self.config) => self.configure(),
                () = next_of(&mut self.uploads) => self.take_uploads(),
                () = self.context.told.notified() => {}
                () = self.context.under_way.ended() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        }
        upkeep.abort();
        self.context.ends.cancel();
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            tracing::info!(actions = self.context.under_way.len(), "ends before all actions are done");
        }
    }

    /// Takes over the uploads of disk images as they are now.
    fn take_uploads(&mut self) {
        let uploads = self.uploads.as_mut().map(|uploads| Arc::clone(&uploads.borrow_and_update()));
        *self.context.uploads.lock() = uploads;
    }

    /// Takes over the configuration as it is now.
    fn configure(&mut self) {
        let config = self.config.borrow_and_update().clone();
        let drivers = (self.factory)(&config);
        self.usable = config
            .providers
            .iter()
            .filter(|provider| match drivers.get(&provider.name) {
                Some(Ok(_)) => true,
                Some(Err(error)) => {
                    tracing::error!(provider = provider.name, %error, "the provider cannot be used");
                    false
                }
                None => provider.driver == Driver::Static,
            })
            .map(|provider| provider.name.clone())
            .collect();
        let pools = snapshot::pools(&config, &self.usable);
        let specs = pools.into_iter().map(|pool| PoolSpec {
            provider: pool.provider,
            name: pool.name,
            priority: pool.priority,
            labels: match &pool.hosts {
                Some(hosts) => {
                    let labels: BTreeSet<&String> = hosts.iter().flat_map(|host| &host.labels).collect();
                    labels.into_iter().cloned().collect()
                }
                None => pool.labels.into_keys().collect(),
            },
        });
        self.context.backend.announce(specs.collect());
        *self.context.current.lock() = Current { config, drivers: Arc::new(drivers) };
        self.context.reconfigured.notify_one();
    }

    /// Decides once; gives the time of the next decision if nothing changes.
    fn round(&mut self) -> Instant {
        let latest = Instant::now() + LONGEST_SLEEP;
        let records = self.context.backend.records();
        if !records.is_complete || !self.context.backend.is_connected() {
            return latest;
        }
        let items = self.context.under_way.items();
        self.cancel_orphans(&items);
        self.drop_idle_locks(&records, &items);
        let current = self.context.current.lock().clone();
        let moment = Instant::now();
        let snapshot = {
            let (limits, sizes) = (self.context.limits.lock(), self.context.sizes.lock());
            let uploads = self.context.uploads.lock().clone();
            let around = Surroundings {
                now: now(),
                config: &current.config,
                provider_limits: &limits,
                sizes: &sizes,
                uploads: uploads.as_deref(),
                out_of_capacity: self.context.capacity.lock().backing_off(moment),
                usable: &self.usable,
                launcher: &self.context.hostname,
            };
            snapshot::snapshot(&records, &items, &around)
        };
        let decision = engine::decide(&snapshot);
        self.note(&decision);
        self.start(decision, snapshot, &records, current)
            .into_iter()
            .chain(self.context.capacity.lock().next(moment))
            .min()
            .map_or(latest, |next| next.min(latest))
    }

    /// Ends work that depends on a lock which this process has no more: its node is for the next launcher to delete.
    fn cancel_orphans(&self, items: &[Item]) {
        for item in items {
            let Some(Key::Node(id)) = &item.depends_on else { continue };
            // Read the record again: the job may be newer than the records of this round.
            if self.context.backend.node(id).is_none_or(|node| node.lock != Lock::Ours) {
                item.cancelled.cancel();
            }
        }
    }

    /// Gives back locks that no work needs: an action that was cut off by a lost connection may leave some. Then the
    /// engine decides about their records as about those of a launcher that is gone.
    fn drop_idle_locks(&self, records: &Records, items: &[Item]) {
        let busy: BTreeSet<&Key> = items.iter().flat_map(|item| &item.keys).collect();
        let is_pending = |id: &String| {
            let request = records.requests.get(id);
            request.is_some_and(|it| it.record.state == RequestState::Pending && it.lock == Lock::Ours)
        };
        let requests = records.requests.iter().filter(|(id, it)| it.lock == Lock::Ours && !is_pending(id));
        let nodes = records
            .nodes
            .iter()
            .filter(|(_, it)| it.lock == Lock::Ours && !it.record.allocated_to.as_ref().is_some_and(is_pending));
        let keys = requests.map(|(id, _)| Key::Request(id.clone())).chain(nodes.map(|(id, _)| Key::Node(id.clone())));
        for key in keys.filter(|key| !busy.contains(key)) {
            let backend = Arc::clone(&self.context.backend);
            self.tasks.spawn(async move {
                tracing::debug!(?key, "a lock that no work needs is given back");
                // A lock that cannot be given back is lost with the connection.
                drop(backend.unlock(&key).await);
            });
        }
    }

    fn note(&self, decision: &Decision) {
        let mut waiting = self.context.waiting.lock();
        for (request, verdicts) in &decision.waiting {
            if waiting.get(request) != Some(verdicts) {
                for verdict in verdicts {
                    tracing::debug!(request, pool = verdict.pool, reason = %verdict.reason, "the request waits");
                }
            }
        }
        waiting.clone_from(&decision.waiting);
        drop(waiting);
        self.context.backend.decided(decision);
    }

    /// Starts the actions of a decision; gives the time at which ages change what is decided.
    fn start(&self, decision: Decision, snapshot: Snapshot, records: &Records, current: Current) -> Option<Instant> {
        let deadline = snapshot::next_deadline(&snapshot);
        let round = act::Round { context: &self.context, snapshot: &snapshot, records, current };
        for action in decision.actions {
            round.start(action);
        }
        let seconds = deadline? - snapshot.now;
        Some(Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_SLEEP.as_secs_f64())))
    }
}

/// Waits for another value. There is none any more once its sender is gone.
async fn next<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The same of a receiver that may be absent.
async fn next_of<T>(receiver: &mut Option<watch::Receiver<T>>) {
    match receiver {
        Some(receiver) => next(receiver).await,
        None => std::future::pending().await,
    }
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
