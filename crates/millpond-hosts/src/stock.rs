//! What the controllers of own hosts watch: hosts, their machines, templates and bootstrap data, and the objects of
//! Cluster API and the Nodes that these belong to.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt};
use millpond_api::byoh::names;
use millpond_api::condition;
use millpond_api::time::Time;
use millpond_runtime::clock::Clock;
use millpond_runtime::events::{EventReason, EventRecorder, Sender};
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::Key;
use millpond_runtime::mirror::{Mirror, Writer};
use millpond_runtime::queue::Queue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::heartbeats::Heartbeats;
use crate::kinds::{
    BootstrapKubeconfig, ByoCluster, ByoHost, ByoMachine, ByoMachineTemplate, Cluster, K8sInstallerConfig,
    K8sInstallerConfigTemplate, Machine, MachineDeployment,
};
use crate::text::text;

/// Name under which the controllers own fields.
pub const FIELD_MANAGER: &str = "millpond-hosts";
/// Component of the events.
pub(crate) const COMPONENT: &str = "millpond-hosts";

/// What can be set.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time that objects show.
    pub clock: Clock,
    /// Objects of a kind that a controller works on at a time.
    pub concurrency: usize,
    /// Writes under way at a time.
    pub writes_in_flight: usize,
    /// Whether watches begin with a streamed list.
    pub streaming_lists: bool,
    /// Whether events are written.
    pub events: bool,
    /// API server that hosts join where a BootstrapKubeconfig names none.
    pub api_server: Option<ApiServer>,
}

/// An API server as hosts reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiServer {
    /// `https://10.0.0.1:6443`.
    pub url: String,
    /// CA certificates in PEM.
    pub ca: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Clock::Machine,
            concurrency: 16,
            writes_in_flight: 64,
            streaming_lists: false,
            events: true,
            api_server: None,
        }
    }
}

/// Everything that is watched.
pub struct Stock {
    /// The API.
    pub client: Client,
    /// The settings.
    pub options: Options,
    /// Writes events.
    pub recorder: EventRecorder,
    /// Leases of hosts.
    pub heartbeats: Arc<Heartbeats>,
    /// Hosts, found by name too: names are unique over namespaces.
    pub hosts: Arc<Mirror<ByoHost>>,
    /// Machines on hosts, found by the host that was chosen.
    pub machines: Arc<Mirror<ByoMachine>>,
    /// What machines are cloned from.
    pub templates: Arc<Mirror<ByoMachineTemplate>>,
    /// Infrastructure of Clusters.
    pub byo_clusters: Arc<Mirror<ByoCluster>>,
    /// Credentials that hosts join with.
    pub bootstrap: Arc<Mirror<BootstrapKubeconfig>>,
    /// How Kubernetes is installed, by machine.
    pub installers: Arc<Mirror<K8sInstallerConfig>>,
    /// What installers are cloned from.
    pub installer_templates: Arc<Mirror<K8sInstallerConfigTemplate>>,
    /// Clusters.
    pub clusters: Arc<Mirror<Cluster>>,
    /// Deployments of machines.
    pub deployments: Arc<Mirror<MachineDeployment>>,
    /// Machines of Cluster API.
    pub capi_machines: Arc<Mirror<Machine>>,
    /// Nodes.
    pub nodes: Arc<Mirror<Node>>,
}

impl Stock {
    /// Nothing is watched yet; the sender writes events.
    pub fn new(client: &Client, options: &Options) -> (Arc<Self>, Sender) {
        let writer = Writer::new(client.clone(), FIELD_MANAGER, options.writes_in_flight);
        let (recorder, sender) = EventRecorder::new(options.events.then(|| client.clone()), options.clock.clone());
        let by_host = |machine: &ByoMachine| Some(machine.status.host.clone()).filter(|host| !host.is_empty());
        let stock = Self {
            client: client.clone(),
            options: options.clone(),
            recorder,
            heartbeats: Heartbeats::new(client.clone()),
            hosts: mirror(&writer, Some(|host: &ByoHost| Some(host.name().to_owned()))),
            machines: mirror(&writer, Some(by_host)),
            templates: mirror(&writer, None),
            byo_clusters: mirror(&writer, None),
            bootstrap: mirror(&writer, None),
            installers: mirror(&writer, None),
            installer_templates: mirror(&writer, None),
            clusters: mirror(&writer, None),
            deployments: mirror(&writer, None),
            capi_machines: mirror(&writer, None),
            nodes: mirror(&writer, None),
        };
        (Arc::new(stock), sender)
    }

    /// Watches the hosts, their machines and Nodes until the token is cancelled.
    pub fn watch(self: &Arc<Self>, tasks: &TaskTracker, token: &CancellationToken) {
        let streaming = self.options.streaming_lists;
        tasks.spawn(Arc::clone(&self.heartbeats).run(token.clone()));
        macro_rules! run {
            ($($mirror:ident),+ $(,)?) => {$(
                tasks.spawn(Arc::clone(&self.$mirror).run(streaming, token.clone()));
            )+};
        }
        run!(
            hosts,
            machines,
            templates,
            byo_clusters,
            bootstrap,
            installers,
            installer_templates,
            nodes,
            clusters,
            deployments,
            capi_machines,
        );
    }

    /// Waits until hosts, machines, Nodes and Leases were listed.
    pub async fn wait_until_hosts_ready(&self) {
        self.hosts.wait_until_ready().await;
        self.machines.wait_until_ready().await;
        self.nodes.wait_until_ready().await;
        self.heartbeats.wait_until_ready().await;
    }

    /// Whether hosts, machines, Nodes and Leases were listed.
    pub fn is_hosts_ready(&self) -> bool {
        self.wait_until_hosts_ready().now_or_never().is_some()
    }

    /// Waits until everything else was listed too; without Cluster API that is never.
    pub async fn wait_until_ready(&self) {
        self.wait_until_hosts_ready().await;
        self.templates.wait_until_ready().await;
        self.byo_clusters.wait_until_ready().await;
        self.bootstrap.wait_until_ready().await;
        self.installers.wait_until_ready().await;
        self.installer_templates.wait_until_ready().await;
        self.clusters.wait_until_ready().await;
        self.deployments.wait_until_ready().await;
        self.capi_machines.wait_until_ready().await;
    }

    /// The time for conditions.
    pub fn now(&self) -> Time {
        Time(self.options.clock.now().as_second())
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> Option<Arc<ByoHost>> {
        self.hosts.indexed(name).into_iter().next()
    }

    /// Time until the Lease of a host runs out: zero when it has, `None` if the host has no Lease.
    pub fn lease_left(&self, host: &ByoHost) -> Option<Duration> {
        let healthy = condition::find(&host.status.conditions, names::host::HEALTHY);
        let was_unhealthy = healthy.is_some_and(millpond_api::meta::Condition::is_false);
        Some(self.heartbeats.get(host.name())?.left(was_unhealthy, Instant::now()))
    }

    /// Whether the agent of a host renews its Lease.
    pub fn is_alive(&self, host: &ByoHost) -> bool {
        self.lease_left(host).is_some_and(|left| !left.is_zero())
    }

    /// The Machine that owns a ByoMachine.
    pub fn owner_of(&self, machine: &ByoMachine) -> Option<Arc<Machine>> {
        let owner = machine.owner_references().iter().find(|owner| owner.kind == "Machine")?;
        let found = self.capi_machines.get(&Key::new(machine.namespace(), &owner.name))?;
        (found.uid() == owner.uid).then_some(found)
    }

    /// The host that a machine holds, or held until it was released.
    pub fn host_of(&self, machine: &ByoMachine) -> Option<Arc<ByoHost>> {
        let host = self.host(&machine.status.host)?;
        let claimed = host.spec.claim.as_ref().is_some_and(|claim| claim.machine_uid == machine.uid());
        let referred = host.status.machine_ref.as_ref().is_some_and(|held| held.uid == machine.uid());
        (claimed || referred).then_some(host)
    }

    /// The Node that a host has become: of its name and, unless the Node has none yet, its provider ID.
    pub fn node_of(&self, host: &str) -> Option<Arc<Node>> {
        let node = self.nodes.get(&Key::new("", host))?;
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
        (id.is_empty() || names::host_of_provider_id(id) == Some(host)).then_some(node)
    }

    /// Records an event.
    pub(crate) fn record<K: kube::Resource<DynamicType = ()>>(
        &self,
        about: &K,
        reason: &'static str,
        warning: bool,
        note: impl Into<String>,
    ) {
        self.recorder.record(about, EventReason { component: COMPONENT, action: "Reconcile", reason, warning }, note);
    }
}

fn mirror<K: Kind>(writer: &Writer, index_by: Option<fn(&K) -> Option<String>>) -> Arc<Mirror<K>> {
    Arc::new(Mirror::new(writer.clone(), index_by))
}

/// Adds the key of every object that comes or changes.
pub(crate) fn enqueue<K: Kind>(mirror: &Arc<Mirror<K>>, queue: &Arc<Queue<Key>>) {
    let queue = Arc::clone(queue);
    mirror.on_change(move |_, after| {
        if let Some(object) = after {
            queue.add(Key::of(&**object));
        }
    });
}

/// The pool of a machine: its MachineDeployment, or else its MachineSet; empty for a machine of its own.
pub fn pool_of(machine: &Machine) -> String {
    let label = |key: &str| machine.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    label(millpond_api::capi::names::DEPLOYMENT_NAME)
        .or_else(|| label(millpond_api::capi::names::SET_NAME))
        .unwrap_or_default()
}

/// The name of the ByoMachine that a Machine refers to.
pub(crate) fn infrastructure_of(machine: &Machine) -> Option<&str> {
    let is_ours = text(&machine.spec, &["infrastructureRef", "kind"]) == Some("ByoMachine");
    is_ours.then(|| text(&machine.spec, &["infrastructureRef", "name"])).flatten()
}
