//! The controller: watches, puts an estate together, writes answers and reservations. All GPUInfos are looked at in one
//! pass, in the order in which they were made, so that two of them never see the same GPU free.

mod holders;
mod log;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client, ResourceExt as _};
use millpond_api::gpu_info::{GPUInfoStatus, NodeReservation, RESERVATIONS};
use millpond_api::karpenter::DO_NOT_DISRUPT;
use millpond_runtime::clock::Clock;
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::{Key, status_patch};
use millpond_runtime::mirror::{Mirror, Writer};
use millpond_vsphere::live::Wanted;
use millpond_vsphere::{Freshness, Live};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::log::Log;
use crate::answer::{Asking, Keeping, Ranking, kept, status};
use crate::credentials::Sources;
use crate::disturbance::window_status;
use crate::estate::{Estate, Facts, Vcenter};
use crate::kinds::{GPUInfo, MaintenanceWindow, NodeClaim};
use crate::pools::Pools;
use crate::reservations::{self, Change, Claims, Step};
use crate::usage::{self, Usage};

/// The name under which fields are owned.
const FIELD_MANAGER: &str = "millpond-gpu";
/// Writes under way at a time.
const WRITES: usize = 16;
/// The name of the kind's definition.
const DEFINITION: &str = "gpuinfoes.topology.corinternal.com";
/// A pass waits this long after the one before it, so that changes that come together are seen together.
const GATHER: Duration = Duration::from_millis(30);
/// A pass comes at the latest after this: hours run out, windows open.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long the first pass waits for the first inventory of vCenter.
const INVENTORY_WITHIN: Duration = Duration::from_secs(10);
/// A pass that lost a race, or could not write, is repeated after this.
const AGAIN: Duration = Duration::from_millis(250);
/// How long proposals are made from the pools as they were read: a change of a pool is rare, and wakes no pass.
const POOLS_FOR: Duration = Duration::from_secs(50);
/// Marks nodes whose [`DO_NOT_DISRUPT`] is this controller's.
const GUARD: &str = "millpond.dev/gpu-reservations-guard";

/// Settings of the controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// How vCenter is found.
    pub sources: Sources,
    /// Hours that a node without a known event is assumed to stay undisturbed.
    pub assumed_hours: u64,
    /// Namespace of the pods that hold reserved GPUs.
    pub namespace: String,
    /// Image of those pods: it does nothing.
    pub image: String,
    /// The time.
    pub clock: Clock,
}

/// Hours that a node is assumed to stay undisturbed: a year.
pub const ASSUMED_HOURS: u64 = 8760;
/// The image that Kubernetes itself uses for containers that do nothing.
pub const PAUSE_IMAGE: &str = "registry.k8s.io/pause:3.10";

impl Default for Options {
    fn default() -> Self {
        Self {
            sources: Sources::default(),
            assumed_hours: ASSUMED_HOURS,
            namespace: "kube-system".to_owned(),
            image: PAUSE_IMAGE.to_owned(),
            clock: Clock::Machine,
        }
    }
}

/// Starts the controller; it ends with the token.
pub fn start(client: &Client, options: Options, stop: &CancellationToken) -> TaskTracker {
    let tasks = TaskTracker::new();
    let now = options.clock.clone();
    let live = Live::new(Arc::new(move || now.now()));
    let (wanted, receiver) = watch::channel(Wanted::None);
    tasks.spawn(Arc::clone(&live).run(receiver.clone(), stop.clone()));
    let settled = CancellationToken::new();
    let follow = options.sources.clone().follow(client.clone(), wanted, settled.clone(), stop.clone());
    tasks.spawn(follow);
    let controller = Arc::new(Controller::new(client.clone(), options, live, (receiver, settled)));
    controller.watch(&tasks, stop);
    tasks.spawn(controller.run(stop.clone()));
    tasks.close();
    tasks
}

struct Controller {
    client: Client,
    options: Options,
    live: Arc<Live>,
    /// The vCenter to connect to, once that is known.
    wanted: (watch::Receiver<Wanted>, CancellationToken),
    infos: Arc<Mirror<GPUInfo>>,
    nodes: Arc<Mirror<Node>>,
    pods: Arc<Mirror<Pod>>,
    claims: Arc<Mirror<NodeClaim>>,
    windows: Arc<Mirror<MaintenanceWindow>>,
    usage: Usage,
    changed: Arc<Notify>,
    /// When pools were last read.
    pools: Mutex<Option<(Instant, Arc<Pools>)>>,
    log: Log,
}

impl Controller {
    fn new(
        client: Client,
        options: Options,
        live: Arc<Live>,
        wanted: (watch::Receiver<Wanted>, CancellationToken),
    ) -> Self {
        let writer = Writer::new(client.clone(), FIELD_MANAGER, WRITES);
        Self {
            infos: Arc::new(Mirror::new(writer.clone(), None)),
            nodes: Arc::new(Mirror::new(writer.clone(), None)),
            pods: Arc::new(Mirror::new(writer.clone(), None)),
            claims: Arc::new(Mirror::new(writer.clone(), None)),
            windows: Arc::new(Mirror::new(writer, None)),
            usage: Usage::default(),
            changed: Arc::new(Notify::new()),
            pools: Mutex::default(),
            log: Log::default(),
            client,
            options,
            live,
            wanted,
        }
    }

    /// Starts everything that tells of changes.
    fn watch(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        fn follow<K: Kind>(
            mirror: &Arc<Mirror<K>>,
            changed: &Arc<Notify>,
            tasks: &TaskTracker,
            stop: &CancellationToken,
        ) {
            listen(mirror, changed);
            tasks.spawn(Arc::clone(mirror).run(false, stop.clone()));
        }
        follow(&self.nodes, &self.changed, tasks, stop);
        follow(&self.pods, &self.changed, tasks, stop);
        follow(&self.claims, &self.changed, tasks, stop);
        follow(&self.windows, &self.changed, tasks, stop);
        listen(&self.infos, &self.changed);
        tasks.spawn(follow_kind(self.client.clone(), Arc::clone(&self.infos), stop.clone()));
        tasks.spawn(usage::follow(
            self.client.clone(),
            Arc::clone(&self.usage),
            Arc::clone(&self.changed),
            stop.clone(),
        ));
        let (mut inventory, changed, stop) = (self.live.changes(), Arc::clone(&self.changed), stop.clone());
        tasks.spawn(async move {
            while let Some(Ok(())) = stop.run_until_cancelled(inventory.changed()).await {
                changed.notify_one();
            }
        });
    }

    /// Passes, one after the other.
    async fn run(self: Arc<Self>, stop: CancellationToken) {
        let ready = async {
            tokio::join!(self.nodes.wait_until_ready(), self.pods.wait_until_ready(), self.infos.wait_until_ready())
        };
        let ready = async {
            ready.await;
            // An answer from Kubernetes alone would be replaced a moment later.
            let _ = tokio::time::timeout(INVENTORY_WITHIN, self.first_inventory()).await;
        };
        if stop.run_until_cancelled(ready).await.is_none() {
            return;
        }
        loop {
            let begun = Instant::now();
            // A pass that is cut off is taken up by the next controller, after whichever write it was.
            let Some(pause) = stop.run_until_cancelled(self.pass()).await else { return };
            // A large cluster changes all the time; most of it is for others to use.
            let gather = GATHER.max(begun.elapsed());
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(gather) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                () = tokio::time::sleep(pause.saturating_sub(gather)) => {}
            }
        }
    }

    /// Waits until vCenter was read once, or cannot be read, or is not wanted.
    async fn first_inventory(&self) {
        let (wanted, settled) = &self.wanted;
        settled.cancelled().await;
        if matches!(*wanted.borrow(), Wanted::None) {
            return;
        }
        let mut changes = self.live.changes();
        let loads = || self.live.read(|state| matches!(state.freshness, Freshness::Unused | Freshness::Loading));
        while loads() && changes.changed().await.is_ok() {}
    }

    fn facts(&self) -> Facts {
        let mut infos = self.infos.list();
        let made = |info: &GPUInfo| info.metadata.creation_timestamp.as_ref().map(|time| time.0);
        infos.sort_by_cached_key(|info| (made(info), info.namespace(), info.name_any()));
        Facts {
            nodes: self.nodes.list(),
            pods: self.pods.list(),
            infos,
            claims: self.claims.list(),
            windows: self.windows.list(),
            usage: self.usage.read().clone(),
            now: self.options.clock.now().as_second(),
            assumed_s: self.options.assumed_hours.saturating_mul(3600),
        }
    }

    /// Looks at everything once; tells when to do so again without a change.
    async fn pass(&self) -> Duration {
        let facts = self.facts();
        self.write_windows(&facts).await;
        if facts.infos.is_empty() && !self.has_reservations(&facts) {
            self.log.forget_all();
            return LONGEST_PAUSE;
        }
        let mut estate = self.live.read(|state| {
            let observed_at = state.observed_at.map(jiff::Timestamp::as_second);
            Estate::build(
                &facts,
                Some(&Vcenter { freshness: &state.freshness, inventory: &state.inventory, observed_at }),
            )
        });
        let claims = Claims::new(&facts);
        let mut failed = false;
        for change in reservations::sweep(&estate, &facts, &claims) {
            failed |= !self.write_reservations(&mut estate, change).await;
        }
        let mut answers = Vec::new();
        for info in facts.infos.iter().filter(|info| info.metadata.deletion_timestamp.is_none()) {
            match self.answer(&mut estate, info, &claims).await {
                Some(status) => answers.push((Arc::clone(info), status)),
                None => failed = true,
            }
        }
        // The writer bounds how many are under way.
        let mut writes = Vec::new();
        for (info, status) in answers {
            writes.push(self.write_status(info, status));
        }
        failed |= join_all(writes).await.contains(&false);
        self.log.forget(&crate::estate::uids(&facts));
        failed |= !holders::keep(self, &estate, &facts, &claims).await;
        if failed { AGAIN } else { self.pause(&estate) }
    }

    fn has_reservations(&self, facts: &Facts) -> bool {
        let is_kept = |node: &Arc<Node>| node.annotations().contains_key(RESERVATIONS);
        let holds = |pod: &Arc<Pod>| pod.labels().contains_key(millpond_api::gpu_info::HOLDER_LABEL);
        facts.nodes.iter().any(is_kept) || facts.pods.iter().any(holds)
    }

    /// The time until the next change without an event: a reservation ends, or an hour is over.
    fn pause(&self, estate: &Estate) -> Duration {
        let until = |moment: i64| Duration::from_secs(u64::try_from(moment - estate.now).unwrap_or_default());
        reservations::next_end(estate).map_or(LONGEST_PAUSE, until).clamp(AGAIN, LONGEST_PAUSE)
    }

    /// The new status of a GPUInfo; `None` if its reservation could not be written.
    async fn answer(&self, estate: &mut Estate, info: &Arc<GPUInfo>, claims: &Claims<'_>) -> Option<GPUInfoStatus> {
        let uid = info.uid().unwrap_or_default();
        let last = info.status.as_ref();
        let kept = kept(estate, last);
        let held = reservations::held(estate, &uid, last).map(|(node, _)| node);
        let ranking = self.rank(estate, info, held.as_deref());
        let step = reservations::step(estate, info, &ranking, claims, kept.as_ref());
        let fits_none = kept.is_none() && ranking.best().is_none();
        let (keeping, pinned) = match step {
            Step::Keep(keeping) => (keeping, held),
            Step::Write(change, entry) => {
                let node = change.node.clone();
                if !self.write_reservations(estate, change).await {
                    return None;
                }
                (Keeping::Held(node.clone(), entry), Some(node))
            }
        };
        if fits_none && estate.pools.is_none() {
            estate.pools = Some(self.pools().await);
        }
        let ranking = self.rank(estate, info, pinned.as_deref());
        let generation = info.metadata.generation.unwrap_or_default();
        let asking = Asking { uid: &uid, generation, last };
        let status = status(estate, &info.spec, &asking, &ranking, &keeping);
        self.log.tell(info, estate.nodes.len(), &ranking, kept.is_some());
        Some(status)
    }

    /// What the pools could add; read again after a while.
    async fn pools(&self) -> Arc<Pools> {
        let mut known = self.pools.lock().await;
        match &*known {
            Some((read, pools)) if read.elapsed() < POOLS_FOR => Arc::clone(pools),
            _ => {
                let pools = Pools::fetch(&self.client).await;
                *known = Some((Instant::now(), Arc::clone(&pools)));
                pools
            }
        }
    }

    fn rank<'e>(&self, estate: &'e Estate, info: &GPUInfo, pinned: Option<&str>) -> Ranking<'e> {
        let last = info.status.as_ref().map(|status| status.suitable_node_name.as_str());
        Ranking::new(estate, &info.spec, info.metadata.uid.as_deref(), last, pinned)
    }

    /// Writes the reservations of a node if it is still as it was read; the estate follows.
    async fn write_reservations(&self, estate: &mut Estate, change: Change) -> bool {
        let key = Key::new("", &change.node);
        let Some(node) = self.nodes.get(&key) else { return false };
        // The reservations must still be those that the decision was based on.
        let known = millpond_api::gpu_info::read_reservations(node.annotations().get(RESERVATIONS).map(String::as_str));
        if estate.node(&change.node).is_none_or(|view| view.reservations != known) {
            return false;
        }
        let patch = reservations_patch(&node, &change.entries);
        match self.nodes.patch(&key, &patch).await {
            Ok(_) => {
                if let Some(view) = estate.node_mut(&change.node) {
                    view.reservations = change.entries;
                }
                true
            }
            Err(error) => tell_failure("reservations", &key, &error),
        }
    }

    /// Writes to each window whether its schedule is valid. Failed writes are left to the next pass.
    async fn write_windows(&self, facts: &Facts) {
        for window in &facts.windows {
            let status = window_status(window, facts.now);
            let Some(patch) = status_patch(&**window, window.status.as_ref(), &status) else { continue };
            let key = Key::of(&**window);
            if let Some(ready) = status.conditions.iter().find(|one| one.is_false() && one.reason != "Suspended") {
                tracing::warn!(window = %key, problem = ready.message, "a MaintenanceWindow is not understood");
            }
            if let Err(error) = self.windows.patch_status(&key, &patch).await {
                tell_failure("status", &key, &error);
            }
        }
    }

    async fn write_status(&self, info: Arc<GPUInfo>, status: GPUInfoStatus) -> bool {
        let Some(patch) = status_patch(&*info, info.status.as_ref(), &status) else { return true };
        let key = Key::of(&*info);
        match self.infos.patch_status(&key, &patch).await {
            Ok(_) => true,
            Err(error) => tell_failure("status", &key, &error),
        }
    }
}

/// Always false: it did not succeed.
fn tell_failure(what: &str, key: &Key, error: &millpond_runtime::error::Error) -> bool {
    if error.is_not_found() {
        // The object was deleted, and the watch will report that.
        return true;
    }
    if error.is_expected() {
        tracing::debug!(what, %key, %error, "lost a race, will try again");
    } else {
        tracing::warn!(what, %key, %error, cause = error.cause(), "not written, will try again");
    }
    false
}

/// The annotations of a node with these reservations. While there are some, the controllers of node pools leave the node
/// alone.
fn reservations_patch(node: &Node, entries: &[NodeReservation]) -> Value {
    let has = |name: &str| node.annotations().contains_key(name);
    let mut annotations = json!({});
    if entries.is_empty() {
        annotations[RESERVATIONS] = Value::Null;
        if has(GUARD) {
            annotations[GUARD] = Value::Null;
            annotations[DO_NOT_DISRUPT] = Value::Null;
        }
    } else {
        annotations[RESERVATIONS] = serde_json::to_string(entries).unwrap_or_default().into();
        if !has(DO_NOT_DISRUPT) {
            annotations[GUARD] = "true".into();
            annotations[DO_NOT_DISRUPT] = "true".into();
        }
    }
    json!({"metadata": {"resourceVersion": node.metadata.resource_version, "annotations": annotations}})
}

fn listen<K: Kind>(mirror: &Arc<Mirror<K>>, changed: &Arc<Notify>) {
    let changed = Arc::clone(changed);
    mirror.on_change(move |_, _| changed.notify_one());
}

/// Mirrors GPUInfos, also when their definition is removed and comes back: a watch of a kind that is not served waits
/// longer and longer, so that it is begun anew when the definition is there again.
async fn follow_kind(client: Client, infos: Arc<Mirror<GPUInfo>>, stop: CancellationToken) {
    let definitions = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client);
    let config = Config::default().fields(&format!("metadata.name={DEFINITION}"));
    let events = watcher::watcher(definitions, config).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut watching = (stop.child_token(), None);
    loop {
        let (token, uid) = &mut watching;
        let run = Arc::clone(&infos).run(false, token.clone());
        tokio::pin!(run);
        let new = loop {
            tokio::select! {
                () = &mut run => return,
                event = events.next() => match event {
                    Some(Ok(Event::Apply(found) | Event::InitApply(found))) if found.metadata.uid != *uid => {
                        break Some(found.metadata.uid);
                    }
                    Some(Ok(Event::Delete(_))) => *uid = None,
                    Some(_) => {}
                    None => {
                        run.await;
                        return;
                    }
                },
            }
        };
        token.cancel();
        run.await;
        watching = (stop.child_token(), new.flatten());
    }
}
