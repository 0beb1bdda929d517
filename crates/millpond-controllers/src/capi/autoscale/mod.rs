//! Autoscaling of Cluster API's node groups, by the cluster-autoscaler's annotations.
//!
//! ```text
//!  management cluster                       workload cluster (often the same)
//!  MachineDeployments … ─▶ mirrors ─┐              pods, nodes
//!  templates ─▶ templates ──────────┴▶ State ◀────────┘
//!                                       │
//!       provision: a round plans pods over all pools ─▶ grow: replicas += n
//!       shrink: idle nodes, unneeded for long enough ─▶ delete-machine on the Machine, replicas −1
//!       tend: machines that failed (health), least sizes, misspelt annotations, sizes to remember
//! ```
//!
//! Nothing here creates or drains machines: Cluster API does. A group is written on condition that its size has not
//! changed since it was planned with, so two controllers can never both take the last machine that the maximum allows.
//! If Cluster API is not installed, this module is idle.

mod health;
pub mod log;
mod maintain;
mod planned_placements;
mod replicas;
mod scale_down;
mod scale_up;
mod standing;
mod templates;
mod unneeded;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use millpond_runtime::clock::Clock;
use millpond_runtime::events::{EventRecorder, Sender};
use millpond_runtime::mirror::{Mirror, Writer};
use millpond_state::groups::{Discovery, NodeGroups, Use};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch::Sender as Watch;

pub(crate) use health::Health;
pub(crate) use maintain::GroupMaintenance;
pub(crate) use planned_placements::PlannedPlacements;
pub(crate) use scale_down::ScaleDown;
pub(crate) use scale_up::{ObservedSizes, is_group, scale_up};
pub use standing::{GroupNodeStanding, standings};

use crate::capi::client::Switch;
use crate::cluster::FIELD_MANAGER;
use crate::events::DedupingRecorder;
use crate::kinds::{CapiCluster, Machine, MachineDeployment, MachinePool, MachineSet};

/// Settings of node groups.
#[derive(Clone, Default)]
pub struct GroupOptions {
    /// Where the machines are, if that is another cluster than the one that their nodes are in.
    pub management: Option<Client>,
    /// Which groups are scaled; if empty, all groups with autoscaler annotations.
    pub discovery: Vec<Discovery>,
    /// Groups below their least size are brought up to it.
    pub enforce_min: bool,
}

impl fmt::Debug for GroupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupOptions")
            .field("management", &self.management.is_some())
            .field("discovery", &self.discovery)
            .field("enforce_min", &self.enforce_min)
            .finish()
    }
}

/// Whether Cluster API is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// Not checked yet.
    Unknown,
    /// It is not installed.
    Absent,
    /// It is installed, and all objects were listed.
    Present,
}

type Listener = Box<dyn Fn() + Send + Sync>;

/// Machines, and groups of them, as they are in the management cluster.
pub struct Machines {
    /// The settings.
    pub options: GroupOptions,
    /// A client of the management cluster. It uses v1beta2 types whatever version is served.
    pub client: Client,
    /// MachineDeployments.
    pub deployments: Arc<Mirror<MachineDeployment>>,
    /// MachineSets.
    pub sets: Arc<Mirror<MachineSet>>,
    /// MachinePools.
    pub pools: Arc<Mirror<MachinePool>>,
    /// Machines.
    pub machines: Arc<Mirror<Machine>>,
    /// Clusters.
    pub clusters: Arc<Mirror<CapiCluster>>,
    /// Groups that are backing off.
    pub(crate) health: Health,
    /// The pods that the last plan put on the same new node of a group.
    pub(crate) planned_placements: PlannedPlacements,
    /// Events about machines and groups, written to the management cluster.
    pub(crate) recorder: EventRecorder,
    /// Like `recorder`, but does not repeat an event.
    pub(crate) events: DedupingRecorder,
    /// Log of node groups, in the words of the cluster-autoscaler.
    pub log: log::GroupLog,
    /// Number of unneeded nodes at the last check.
    pub(crate) unneeded: std::sync::atomic::AtomicUsize,
    /// Clock of the log.
    clock: Clock,
    /// The same cluster, spoken to as it is, to ask what is served.
    plain: Client,
    switch: Switch,
    sender: Mutex<Option<Sender>>,
    presence: Watch<Presence>,
    listeners: RwLock<Vec<Listener>>,
}

impl Machines {
    /// Without watches, which start later.
    pub(crate) fn new(
        workload: &Client,
        options: &crate::cluster::Options,
        recorder: &EventRecorder,
        clock: &Clock,
    ) -> Self {
        let groups = options.node_groups.clone();
        let plain = groups.management.clone().unwrap_or_else(|| workload.clone());
        let switch = Switch::default();
        let client = switch.around(&plain);
        let writer = Writer::new(client.clone(), FIELD_MANAGER, options.writes_in_flight);
        let (recorder, sender) = match &groups.management {
            Some(management) => {
                let (recorder, sender) = EventRecorder::new(options.events.then(|| management.clone()), clock.clone());
                (recorder, Some(sender))
            }
            None => (recorder.clone(), None),
        };
        Self {
            deployments: Arc::new(Mirror::new(writer.clone(), None)),
            sets: Arc::new(Mirror::new(writer.clone(), None)),
            pools: Arc::new(Mirror::new(writer.clone(), None)),
            machines: Arc::new(Mirror::new(writer.clone(), None)),
            clusters: Arc::new(Mirror::new(writer, None)),
            health: Health::new(options.seed),
            planned_placements: PlannedPlacements::default(),
            events: DedupingRecorder::new(recorder.clone()),
            log: log::GroupLog::default(),
            recorder,
            unneeded: std::sync::atomic::AtomicUsize::new(0),
            clock: clock.clone(),
            sender: Mutex::new(sender),
            presence: Watch::new(Presence::Unknown),
            listeners: RwLock::default(),
            client,
            plain,
            switch,
            options: groups,
        }
    }

    /// Calls `listener` when something changed that may let a group take pods.
    pub(crate) fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    pub(crate) fn notify(&self) {
        self.listeners.read().iter().for_each(|listener| listener());
    }

    /// How groups become pools: open for pods, or as they are.
    pub(crate) fn as_pools(&self, used: Use) -> NodeGroups {
        NodeGroups { used, discovery: self.options.discovery.clone(), held: self.health.held() }
    }

    /// Whether any node group is known.
    pub(crate) fn is_present(&self) -> bool {
        *self.presence.borrow() == Presence::Present
    }

    /// Waits until the node groups are listed or Cluster API is known to be missing. Gives up after a while, since a
    /// separate management cluster may be unreachable.
    pub(crate) async fn wait_until_settled(&self) {
        let mut presence = self.presence.subscribe();
        let settled = presence.wait_for(|presence| *presence != Presence::Unknown);
        let _ = tokio::time::timeout(SETTLED_WITHIN, settled).await;
    }

    /// Waits until Cluster API is installed.
    pub(crate) async fn wait_until_present(&self) {
        // An error would mean that the sender is gone, but it lives as long as `self`.
        let _ = self.presence.subscribe().wait_for(|presence| *presence == Presence::Present).await;
    }
}

/// Startup waits no longer than this for a management cluster that does not answer.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
