//! What all stand-ins share: a mirror of each kind, the clock, names and events.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;

use crate::clock::Clock;
use crate::events::{EventRecorder, Sender};
use crate::kinds::Kind;
use crate::meta::node_name;
use crate::mirror::{Mirror, Writer};
use crate::name_generator::NameGenerator;
use crate::options::Options;

/// The name under which stand-ins own fields.
const FIELD_MANAGER: &str = "millpond-sim";

/// What all stand-ins share.
pub struct Cluster {
    /// The client, for what goes past the mirrors (bindings).
    pub client: Client,
    /// The writer that all mirrors use.
    pub writer: Writer,
    /// The settings.
    pub options: Options,
    /// The time.
    pub clock: Clock,
    /// Names and chance.
    pub names: NameGenerator,
    /// Events.
    pub recorder: EventRecorder,
    /// Pods, also found by their node.
    pub pods: Arc<Mirror<Pod>>,
    /// Nodes, also found by the id of their machine.
    pub nodes: Arc<Mirror<Node>>,
    /// Namespaces.
    pub namespaces: Arc<Mirror<Namespace>>,
    /// Services, whose selectors decide the default spreading of pods.
    pub services: Arc<Mirror<Service>>,
    /// Deployments.
    pub deployments: Arc<Mirror<Deployment>>,
    /// ReplicaSets.
    pub replica_sets: Arc<Mirror<ReplicaSet>>,
    /// StatefulSets.
    pub stateful_sets: Arc<Mirror<StatefulSet>>,
    /// DaemonSets.
    pub daemon_sets: Arc<Mirror<DaemonSet>>,
    /// Revisions of StatefulSets and DaemonSets.
    pub revisions: Arc<Mirror<ControllerRevision>>,
    /// Jobs.
    pub jobs: Arc<Mirror<Job>>,
    /// Disruption budgets.
    pub budgets: Arc<Mirror<PodDisruptionBudget>>,
    /// Claims of volumes.
    pub claims: Arc<Mirror<PersistentVolumeClaim>>,
    /// Volumes.
    pub volumes: Arc<Mirror<PersistentVolume>>,
    /// Classes of volumes.
    pub storage_classes: Arc<Mirror<StorageClass>>,
    /// Classes of priority.
    pub priority_classes: Arc<Mirror<PriorityClass>>,
    /// Leases of nodes.
    pub leases: Arc<Mirror<Lease>>,
}

impl Cluster {
    /// The shared parts, and the task that sends events. Nothing is watched yet.
    pub fn new(client: Client, options: Options) -> (Arc<Self>, Sender) {
        let writer = Writer::new(client.clone(), FIELD_MANAGER, options.writes_in_flight);
        let clock = options.virtual_start.map_or(Clock::Machine, Clock::virtual_from);
        let (recorder, sender) = EventRecorder::new(options.events.then(|| client.clone()), clock.clone());
        let by_node = |pod: &Pod| node_name(pod).map(str::to_owned);
        let by_provider_id = |node: &Node| node.spec.as_ref()?.provider_id.clone();
        let cluster = Self {
            names: NameGenerator::new(options.seed),
            clock,
            recorder,
            pods: Arc::new(Mirror::new(writer.clone(), Some(by_node))),
            nodes: Arc::new(Mirror::new(writer.clone(), Some(by_provider_id))),
            namespaces: plain(&writer),
            services: plain(&writer),
            deployments: plain(&writer),
            replica_sets: plain(&writer),
            stateful_sets: plain(&writer),
            daemon_sets: plain(&writer),
            revisions: plain(&writer),
            jobs: plain(&writer),
            budgets: plain(&writer),
            claims: plain(&writer),
            volumes: plain(&writer),
            storage_classes: plain(&writer),
            priority_classes: plain(&writer),
            leases: plain(&writer),
            writer,
            client,
            options,
        };
        (Arc::new(cluster), sender)
    }
}

fn plain<K: Kind>(writer: &Writer) -> Arc<Mirror<K>> {
    Arc::new(Mirror::new(writer.clone(), None))
}
