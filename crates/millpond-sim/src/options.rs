//! Options of the stand-ins.

use std::time::Duration;

use jiff::Timestamp;

/// The nodes that the kubelets play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// Marked nodes: [`crate::annotations::NODE`] as a label or annotation, or kwok's `kwok.x-k8s.io/node: fake`.
    #[default]
    Marked,
    /// Every node.
    All,
}

/// The infrastructure, bootstrap and control plane providers of Cluster API that are played, by the kinds that they
/// look after: `VSphereMachine`, `KubeadmConfig`, `VSphereCluster` …
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Providers {
    /// Every kind.
    #[default]
    All,
    /// These kinds.
    Only(Vec<String>),
    /// All kinds except these.
    AllBut(Vec<String>),
}

/// The settings of the stand-ins, with defaults that suit an embedded API.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides names and jitter; the same seed gives the same run under virtual time.
    pub seed: u64,
    /// Under virtual time: what the clock shows at the start; it then follows `tokio::time`.
    /// Without it objects show the machine's time.
    pub virtual_start: Option<Timestamp>,
    /// The nodes that the kubelets play.
    pub nodes: Nodes,
    /// How long a new node takes to become ready.
    pub node_startup: Duration,
    /// How long a pod takes from binding to running; up to half of it is added by chance.
    pub pod_startup: Duration,
    /// How long a container takes to end when it is asked to; never longer than its grace.
    pub pod_shutdown: Duration,
    /// How long a pod of a job works, unless its annotations say something else.
    pub job_duration: Duration,
    /// How long a machine of Cluster API takes to boot, unless its annotations say something else.
    pub machine_boot: Duration,
    /// The providers of Cluster API that are played.
    pub providers: Providers,
    /// How often each kubelet renews its lease. Off by default: nothing in embedded mode reads
    /// leases, and an idle cluster should not write. Needed beside a real node life-cycle
    /// controller, which declares nodes unreachable without them.
    pub lease_interval: Option<Duration>,
    /// Whether events are written.
    pub events: bool,
    /// Changes of pods are gathered for this long before their owner looks at them, so that
    /// hundreds of pods that start together cost their owner one status write.
    pub batch: Duration,
    /// How many objects of a kind a controller works on at a time.
    pub concurrency: usize,
    /// How many writes all stand-ins together have under way.
    pub writes_in_flight: usize,
    /// Whether watches begin with a streamed list (`sendInitialEvents`).
    pub streaming_lists: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: Timestamp::now().as_nanosecond() as u64,
            virtual_start: None,
            nodes: Nodes::Marked,
            node_startup: Duration::ZERO,
            pod_startup: Duration::from_secs(1),
            pod_shutdown: Duration::from_secs(1),
            job_duration: Duration::from_secs(10),
            machine_boot: Duration::from_secs(2),
            providers: Providers::All,
            lease_interval: None,
            events: true,
            batch: Duration::from_millis(100),
            concurrency: 8,
            writes_in_flight: 64,
            streaming_lists: false,
        }
    }
}
