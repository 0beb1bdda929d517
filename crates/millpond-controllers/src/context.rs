//! What controllers act with: the cluster, the providers, and the stock-outs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_api::karpenter;
use millpond_api::node_class as api;
use millpond_plan::market::{Market, Memory};
use millpond_plan::model::Snapshot;
use millpond_providers::{Provider, ProviderError};
use millpond_runtime::meta::Key;
use millpond_state::PoolsOf;
use millpond_state::groups::Use;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::buffers::Fills;
use crate::clouds::Clouds;
use crate::cluster::Cluster;
use crate::decisions;
use crate::events::DedupingRecorder;
use crate::health::Health;
use crate::kinds::{NodeClaim, NodeClass, NodePool};
use crate::launch_backoff::LaunchBackoff;
use crate::leader_provider::LeaderProvider;
use crate::metrics::{Measured, Metrics};
use crate::standings::Standings;
use crate::stock_outs::StockOuts;
use crate::termination::TerminationTracker;
use crate::turn::Turns;

/// The provider of classes that name no provider.
const DEFAULT_PROVIDER: &str = "sim";

/// Outcomes of launches that the provisioner may be behind with; the oldest are dropped, and count as unknown.
const OUTCOMES: usize = 4096;
/// The shortest time between two probes of an offering, whatever its own backoff is: each probe is a claim that may
/// fail.
const SOONEST_PROBE: Duration = Duration::from_mins(1);
/// A pool that is open again is planned for this long after the last round, not sooner.
const SOONEST_OPEN: Duration = Duration::from_secs(1);

/// A pool or offering whose backoff has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reopening {
    pub(crate) at: Instant,
    /// The shortest time since the previous round before a round runs for it.
    pub(crate) spacing: Duration,
}

/// What controllers act with.
pub struct Context {
    /// Mirrors of all kinds.
    pub cluster: Arc<Cluster>,
    /// Offerings that providers could not supply.
    pub stock_outs: StockOuts,
    /// Pools whose claims fail before the launch.
    pub(crate) launch_backoff: Arc<LaunchBackoff>,
    /// Outcomes of launches: the name of a claim, and whether claims like it should be tried.
    pub(crate) launched: broadcast::Sender<(String, bool)>,
    /// The fill of capacity buffers.
    pub fills: Fills,
    /// The launch health of pools.
    pub health: Health,
    /// Why pools can make no node.
    pub(crate) standings: Standings,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Claims that are terminating.
    pub terminations: TerminationTracker,
    /// An event recorder that does not repeat events.
    pub events: DedupingRecorder,
    /// Held while a plan is carried out: one plan after the other, so that none changes what another relies on.
    pub(crate) turns: Turns,
    /// Notified when the provider id of a claim was changed by hand: only a listing of all machines can tell whether
    /// the named one exists.
    pub(crate) collect_garbage_now: tokio::sync::Notify,
    /// The clouds of the providers.
    pub(crate) clouds: Clouds,
    /// The market of the last plan.
    market: Mutex<Memory>,
    providers: BTreeMap<&'static str, Arc<dyn Provider>>,
}

impl Context {
    /// With these providers on this cluster.
    pub fn new(cluster: Arc<Cluster>, providers: impl IntoIterator<Item = Arc<dyn Provider>>) -> Arc<Self> {
        let metrics = Arc::new(Metrics::default());
        let leadership = cluster.options.leads.leadership();
        let measured = |provider: Arc<dyn Provider>| {
            let provider = match leadership {
                Some(leadership) => Arc::new(LeaderProvider::new(provider, leadership.clone())),
                None => provider,
            };
            let measured: Arc<dyn Provider> = Arc::new(Measured::new(provider, Arc::clone(&metrics)));
            (measured.name(), measured)
        };
        let providers: BTreeMap<&'static str, Arc<dyn Provider>> = providers.into_iter().map(measured).collect();
        // Registered after the index's own listener, so the index already has every change that this listener sees.
        let (takers, weak): (Vec<Arc<dyn Provider>>, _) =
            (providers.values().cloned().collect(), Arc::downgrade(&cluster));
        cluster.catalogs.on_change(move |_, _| {
            let catalogs = weak.upgrade().map(|cluster| cluster.own_catalogs()).unwrap_or_default();
            takers.iter().for_each(|provider| provider.take_catalogs(&catalogs));
        });
        let stock_outs = StockOuts::new(cluster.options.seed, cluster.clock.clone());
        let launch_backoff = Arc::new(LaunchBackoff::new(cluster.options.seed));
        forget_on_change(&cluster, &launch_backoff);
        let terminations = TerminationTracker::new(cluster.options.leads.is_exclusive());
        let clouds = providers.values().filter_map(|provider| Some((provider.name(), provider.cloud_id()?)));
        let clouds = Clouds::new(clouds);
        let events = DedupingRecorder::new(cluster.recorder.clone());
        let turns = Turns::default();
        let (fills, health) = (Fills::default(), Health::default());
        let collect_garbage_now = tokio::sync::Notify::new();
        let market = Mutex::default();
        Arc::new(Self {
            cluster,
            stock_outs,
            launch_backoff,
            launched: broadcast::channel(OUTCOMES).0,
            fills,
            health,
            standings: Standings::default(),
            metrics,
            terminations,
            events,
            turns,
            collect_garbage_now,
            clouds,
            market,
            providers,
        })
    }

    /// All providers.
    pub fn providers(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.providers.values()
    }

    /// The provider of a class.
    pub fn provider(&self, class: &NodeClass) -> Result<&Arc<dyn Provider>, ProviderError> {
        let name = class.spec.provider.as_deref().unwrap_or(DEFAULT_PROVIDER);
        self.providers.get(name).ok_or_else(|| {
            let known = self.providers.keys().copied();
            let hint = millpond_api::spelling::nearest(name, known.clone()).map_or_else(
                || format!("known are {}", known.collect::<Vec<_>>().join(", ")),
                |near| format!("is `{near}` meant?"),
            );
            ProviderError::NotReady { message: format!("there is no provider `{name}`; {hint}") }
        })
    }

    /// The cloud in which a machine for a claim is made.
    pub(crate) fn cloud_for(&self, claim: &NodeClaim) -> Option<&str> {
        let class = self.class(&claim.spec.node_class_ref.name)?;
        self.clouds.of(self.provider(&class).ok()?.name())
    }

    /// The provider of a machine, by the scheme of its id.
    pub fn provider_of_machine(&self, id: &str) -> Option<&Arc<dyn Provider>> {
        let (scheme, _) = id.split_once("://")?;
        self.providers.values().find(|provider| provider.scheme() == scheme)
    }

    /// The providers that may have made a machine for a claim. The class can be gone, or can have changed.
    pub fn providers_of(&self, claim: &NodeClaim) -> Vec<&Arc<dyn Provider>> {
        if let Some(provider) = self.provider_of_machine(&claim.status.provider_id) {
            return vec![provider];
        }
        let class = self.class(&claim.spec.node_class_ref.name);
        match class.and_then(|class| self.provider(&class).ok()) {
            Some(provider) => vec![provider],
            None => self.providers().collect(),
        }
    }

    /// Takes a snapshot of all known objects, with stock-outs marked.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_of(PoolsOf::NodePools)
    }

    /// The same, where pods that wait may go to node groups as well.
    pub fn snapshot_for_pods(&self) -> Snapshot {
        self.snapshot_with(PoolsOf::NodePools, Use::Open)
    }

    /// Like [`Self::snapshot`], with a different selection of pools.
    pub fn snapshot_of(&self, pools: PoolsOf) -> Snapshot {
        // Advice for other pools ignores node groups; their nodes count all the same.
        let groups = if pools == PoolsOf::NodePools { Use::Closed } else { Use::None };
        self.snapshot_with(pools, groups)
    }

    fn snapshot_with(&self, pools: PoolsOf, groups: Use) -> Snapshot {
        let mut options = self.cluster.options.snapshot.clone();
        options.pools_of = pools;
        options.node_groups = self.cluster.machines.as_pools(groups);
        // Classes repeat what the stock says, later and in whole seconds.
        options.ignore_stock = true;
        options.require_classes = true;
        let mut snapshot = self.cluster.snapshot(&options).snapshot;
        self.stock_outs.mark_unavailable(&mut snapshot);
        self.launch_backoff.mark(&mut snapshot);
        self.cluster.machines.planned_placements.apply_to(&mut snapshot);
        snapshot
    }

    /// What made a pod, such as `Deployment/web`.
    pub fn owner_of(&self, namespace: &str, pod: &str) -> Option<String> {
        decisions::owner(&self.cluster, &Key::new(namespace, pod))
    }

    /// Pools and nodes alone, for what pools can make.
    pub(crate) fn snapshot_of_pools(&self) -> Snapshot {
        let mut options = self.cluster.options.snapshot.clone();
        options.pools_of = PoolsOf::NodePools;
        options.ignore_stock = true;
        options.require_classes = true;
        options.without_pods = true;
        let mut snapshot = self.cluster.snapshot(&options).snapshot;
        self.stock_outs.mark_unavailable(&mut snapshot);
        self.launch_backoff.mark(&mut snapshot);
        snapshot
    }

    /// The market of a snapshot taken by [`Self::snapshot`].
    pub(crate) fn market(&self, snapshot: &Snapshot) -> Arc<Market> {
        self.market.lock().market(snapshot)
    }

    /// When something that was left out of plans is let in again, or was a while ago.
    pub(crate) fn reopenings(&self) -> Vec<Reopening> {
        let now = Instant::now();
        let groups = self.cluster.machines.health.next_release().map(|wait| (now + wait, SOONEST_PROBE));
        let offerings = self.stock_outs.reopens().into_iter().map(|(at, wait)| (at, wait.min(SOONEST_PROBE)));
        let pools = self.launch_backoff.reopens().into_iter().map(|at| (at, SOONEST_OPEN));
        let all = offerings.chain(groups).chain(pools);
        all.map(|(at, spacing)| Reopening { at, spacing }).collect()
    }

    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<Arc<NodeClass>> {
        self.cluster.classes.get(&Key::new("", name))
    }

    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<Arc<NodePool>> {
        self.cluster.pools.get(&Key::new("", name))
    }
}

/// A change of a pool or of its class is a new try.
fn forget_on_change(cluster: &Arc<Cluster>, backoff: &Arc<LaunchBackoff>) {
    let pools = Arc::clone(backoff);
    cluster.pools.on_change(move |before, after| {
        let counts =
            |pool: Option<&Arc<NodePool>>| pool.map(|pool| (pool.metadata.uid.clone(), pool.metadata.generation));
        if let Some(pool) = after.or(before).filter(|_| counts(before) != counts(after)) {
            pools.forget(pool.name());
        }
    });
    let (classes, weak) = (Arc::clone(backoff), Arc::downgrade(cluster));
    cluster.classes.on_change(move |before, after| {
        let counts = |class: Option<&Arc<NodeClass>>| {
            class.map(|class| {
                let ready = millpond_api::condition::is_true(&class.status.conditions, millpond_api::condition::READY);
                (class.metadata.uid.clone(), class.metadata.generation, ready)
            })
        };
        let Some(class) = after.or(before).filter(|_| counts(before) != counts(after)) else { return };
        for pool in weak.upgrade().iter().flat_map(|cluster| cluster.pools.list()) {
            if pool.spec.template.spec.node_class_ref.name == class.name() {
                classes.forget(pool.name());
            }
        }
    });
}

/// A class as the planner and providers read it.
pub fn api_class(class: &NodeClass) -> api::NodeClass {
    api::NodeClass { metadata: api_meta(&class.metadata), spec: class.spec.clone(), status: class.status.clone() }
}

/// A claim as the planner reads it.
pub(crate) fn api_claim(claim: &NodeClaim) -> karpenter::NodeClaim {
    karpenter::NodeClaim { metadata: api_meta(&claim.metadata), spec: claim.spec.clone(), status: claim.status.clone() }
}

/// The metadata that planning uses.
pub fn api_meta(meta: &kube::api::ObjectMeta) -> millpond_api::meta::ObjectMeta {
    millpond_api::meta::ObjectMeta {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        labels: meta.labels.clone().unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        creation_timestamp: meta.creation_timestamp.as_ref().map(|time| millpond_api::time::Time(time.0.as_second())),
        deletion_timestamp: meta.deletion_timestamp.as_ref().map(|time| millpond_api::time::Time(time.0.as_second())),
        ..Default::default()
    }
}
