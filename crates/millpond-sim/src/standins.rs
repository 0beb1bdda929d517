//! Chooses, starts and stops stand-ins.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::capi::Capi;
use crate::capi::cluster::Clusters;
use crate::capi::cluster::tanzu::{self, TanzuClusters};
use crate::capi::deployment::Deployments as MachineDeployments;
use crate::capi::health_check::HealthChecks;
use crate::capi::infrastructure::Infrastructure;
use crate::capi::infrastructure::shared::SharedInfrastructure;
use crate::capi::machine::Machines;
use crate::capi::machine_set::MachineSets;
use crate::cluster::Cluster;
use crate::kinds::Kind;
use crate::kubelet::Kubelets;
use crate::kubelet::leases::Leases;
use crate::lifecycle::eviction::TaintEviction;
use crate::lifecycle::node_taints::NodeTaints;
use crate::lifecycle::pod_gc::PodCollector;
use crate::lifecycle::volumes::Volumes;
use crate::meta::Key;
use crate::mirror::Mirror;
use crate::options::Options;
use crate::queue::Queue;
use crate::scheduler::Scheduler;
use crate::worker::{self, Reconcile};
use crate::workloads::budget::Budgets;
use crate::workloads::daemon_set::DaemonSets;
use crate::workloads::deployment::Deployments;
use crate::workloads::job::Jobs;
use crate::workloads::replica_set::ReplicaSets;
use crate::workloads::stateful_set::StatefulSets;

/// Workers for pods and nodes do nothing but wait for writes, so that they may be many.
const KUBELET_CONCURRENCY: usize = 64;

/// A part of a cluster that can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Deployments.
    Deployments,
    /// ReplicaSets.
    ReplicaSets,
    /// StatefulSets.
    StatefulSets,
    /// DaemonSets.
    DaemonSets,
    /// Jobs.
    Jobs,
    /// Status of disruption budgets.
    Budgets,
    /// Binding pods to nodes.
    Scheduler,
    /// Nodes that become ready and pods that run.
    Kubelets,
    /// Taints from node conditions, and eviction by taints.
    NodeLifecycle,
    /// Removal of pods whose node is gone.
    PodCollector,
    /// Volumes for claims.
    Volumes,
    /// The core of Cluster API: MachineDeployments, MachineSets, Machines, Clusters.
    ClusterApi,
    /// Providers of Cluster API: machines, their bootstrap data, their Nodes.
    Infrastructure,
}

impl Part {
    /// The stand-ins of every cluster.
    pub const ALL: [Self; 11] = [
        Self::Deployments,
        Self::ReplicaSets,
        Self::StatefulSets,
        Self::DaemonSets,
        Self::Jobs,
        Self::Budgets,
        Self::Scheduler,
        Self::Kubelets,
        Self::NodeLifecycle,
        Self::PodCollector,
        Self::Volumes,
    ];
    /// The stand-ins that need the CRDs of Cluster API on the server.
    pub const CLUSTER_API: [Self; 2] = [Self::ClusterApi, Self::Infrastructure];
}

/// Builds stand-ins: which parts, with which options.
#[derive(Clone)]
pub struct Builder {
    client: Client,
    parts: BTreeSet<Part>,
    options: Options,
}

impl Builder {
    /// Plays a part too.
    pub fn with(mut self, part: Part) -> Self {
        self.parts.insert(part);
        self
    }

    /// Plays these parts too.
    pub fn with_all(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.parts.extend(parts);
        self
    }

    /// Does not play this part.
    pub fn without(mut self, part: Part) -> Self {
        self.parts.remove(&part);
        self
    }

    /// Plays these parts and no others.
    pub fn only(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.parts = parts.into_iter().collect();
        self
    }

    /// Sets the options.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Starts. Cancelling the token ends everything; what is under way is finished first.
    pub fn spawn(self, token: CancellationToken) -> StandIns {
        let (cluster, events) = Cluster::new(self.client, self.options);
        let (all_known, known) = watch::channel(false);
        let tasks = TaskTracker::new();
        let capi = Part::CLUSTER_API.iter().any(|part| self.parts.contains(part));
        let capi = capi.then(|| Capi::new(&cluster, &tasks, &token));
        let start = Start { cluster: Arc::clone(&cluster), capi, token: token.clone(), tasks: tasks.clone(), known };
        tasks.spawn(events.run(token.clone()));
        // Controllers first: they register for changes, so that none is missed.
        for part in &self.parts {
            start.part(*part);
        }
        start.watch(&self.parts, all_known);
        let ended = tasks.clone();
        let handle = tokio::spawn(async move {
            token.cancelled().await;
            ended.close();
            ended.wait().await;
        });
        StandIns { cluster, capi: start.capi, handle }
    }
}

/// Running stand-ins.
pub struct StandIns {
    cluster: Arc<Cluster>,
    capi: Option<Arc<Capi>>,
    handle: JoinHandle<()>,
}

impl StandIns {
    /// Stand-ins with all parts and default options, to be changed and started.
    pub fn builder(client: Client) -> Builder {
        Builder { client, parts: Part::ALL.into_iter().collect(), options: Options::default() }
    }

    /// The mirrors and the clock that they share.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// What the stand-ins of Cluster API share, if they run.
    pub fn capi(&self) -> Option<&Arc<Capi>> {
        self.capi.as_ref()
    }

    /// Waits until they have ended, which they do once their token is cancelled.
    pub async fn ended(self) {
        // A panic in the waiting task has been reported by the runtime already.
        let _ = self.handle.await;
    }
}

struct Start {
    cluster: Arc<Cluster>,
    capi: Option<Arc<Capi>>,
    token: CancellationToken,
    tasks: TaskTracker,
    known: watch::Receiver<bool>,
}

impl Start {
    /// Starts a stand-in once the whole cluster is listed. Before that, a controller would create pods that exist
    /// already, and the scheduler would fill nodes that are full.
    fn begin(&self, part: impl Future<Output = ()> + Send + 'static) {
        let (mut known, token) = (self.known.clone(), self.token.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                _ = known.wait_for(|known| *known) => {}
            }
            part.await;
        });
    }

    fn run<R: Reconcile>(&self, (controller, queue): (Arc<R>, Arc<Queue<Key>>), concurrency: usize) {
        self.begin(worker::run(controller, queue, concurrency, self.token.clone()));
    }

    fn part(&self, part: Part) {
        let cluster = Arc::clone(&self.cluster);
        let usual = cluster.options.concurrency;
        match part {
            Part::Deployments => self.run(Deployments::new(cluster), usual),
            Part::ReplicaSets => self.run(ReplicaSets::new(cluster), usual),
            Part::StatefulSets => self.run(StatefulSets::new(cluster), usual),
            Part::DaemonSets => self.run(DaemonSets::new(cluster), usual),
            Part::Jobs => self.run(Jobs::new(cluster), usual),
            Part::Budgets => self.run(Budgets::new(cluster), usual),
            Part::Scheduler => self.begin(Scheduler::new(cluster).run(self.token.clone())),
            Part::Kubelets => {
                let kubelets = Kubelets::new(&cluster);
                self.run(kubelets.nodes, KUBELET_CONCURRENCY);
                self.run(kubelets.pods, KUBELET_CONCURRENCY);
                if let Some(interval) = cluster.options.lease_interval {
                    self.run(Leases::new(&cluster, interval), usual);
                }
            }
            Part::NodeLifecycle => {
                self.run(NodeTaints::new(&cluster), usual);
                self.run(TaintEviction::new(&cluster), usual);
            }
            Part::PodCollector => self.run(PodCollector::new(&cluster), 1),
            Part::Volumes => self.run(Volumes::new(&cluster), usual),
            Part::ClusterApi | Part::Infrastructure => {
                if let Some(capi) = &self.capi {
                    self.cluster_api(part, capi);
                }
            }
        }
    }

    fn cluster_api(&self, part: Part, capi: &Arc<Capi>) {
        let usual = self.cluster.options.concurrency;
        if part == Part::Infrastructure {
            self.run(Infrastructure::new(capi), KUBELET_CONCURRENCY);
            self.run(SharedInfrastructure::new(capi), usual);
            return;
        }
        self.run(Clusters::new(capi), usual);
        self.run(MachineDeployments::new(capi), usual);
        self.run(MachineSets::new(capi), usual);
        self.run(Machines::new(capi), KUBELET_CONCURRENCY);
        self.run(HealthChecks::new(capi), 1);
        self.run(TanzuClusters::new(capi), 1);
        // No object refers to Tanzu's clusters, so their watch is started by looking up the kind.
        let externals = Arc::clone(&capi.externals);
        self.begin(async move {
            if let Err(error) = externals.resource(tanzu::GROUP, tanzu::KIND).await {
                tracing::warn!(%error, "TanzuKubernetesClusters are not looked after");
            }
        });
    }

    fn mirror<K: Kind>(&self, mirror: &Arc<Mirror<K>>, waits: &mut Vec<BoxFuture<'static, ()>>) {
        let streaming = self.cluster.options.streaming_lists;
        self.tasks.spawn(Arc::clone(mirror).run(streaming, self.token.clone()));
        let mirror = Arc::clone(mirror);
        waits.push(async move { mirror.wait_until_ready().await }.boxed());
    }

    /// Watches the kinds that the chosen parts look at, and tells when all of them are known.
    fn watch(&self, parts: &BTreeSet<Part>, all_known: watch::Sender<bool>) {
        let cluster = &self.cluster;
        let mut waits = Vec::new();
        let any = |wanted: &[Part]| wanted.iter().any(|part| parts.contains(part));
        self.mirror(&cluster.nodes, &mut waits);
        if any(&[Part::Deployments, Part::ReplicaSets, Part::Budgets, Part::Scheduler]) {
            self.mirror(&cluster.replica_sets, &mut waits);
        }
        if any(&[Part::Deployments, Part::Budgets]) {
            self.mirror(&cluster.deployments, &mut waits);
        }
        if any(&[Part::StatefulSets, Part::Budgets, Part::Scheduler]) {
            self.mirror(&cluster.stateful_sets, &mut waits);
        }
        if any(&[Part::DaemonSets]) {
            self.mirror(&cluster.daemon_sets, &mut waits);
        }
        if any(&[Part::DaemonSets, Part::StatefulSets]) {
            self.mirror(&cluster.revisions, &mut waits);
        }
        if any(&[Part::Jobs]) {
            self.mirror(&cluster.jobs, &mut waits);
        }
        if any(&[Part::Budgets, Part::Scheduler]) {
            self.mirror(&cluster.budgets, &mut waits);
        }
        if any(&[Part::Scheduler]) {
            self.mirror(&cluster.namespaces, &mut waits);
            self.mirror(&cluster.services, &mut waits);
            self.mirror(&cluster.priority_classes, &mut waits);
        }
        if any(&[Part::Scheduler, Part::Volumes]) {
            self.mirror(&cluster.volumes, &mut waits);
            self.mirror(&cluster.storage_classes, &mut waits);
        }
        if any(&[Part::Scheduler, Part::Volumes, Part::StatefulSets]) {
            self.mirror(&cluster.claims, &mut waits);
        }
        if let Some(capi) = &self.capi {
            self.mirror(&capi.clusters, &mut waits);
            self.mirror(&capi.sets, &mut waits);
            self.mirror(&capi.machines, &mut waits);
            if any(&[Part::ClusterApi]) {
                self.mirror(&capi.deployments, &mut waits);
                self.mirror(&capi.health_checks, &mut waits);
            }
        }
        self.mirror(&cluster.pods, &mut waits);
        let token = self.token.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                _ = join_all(waits) => {
                    all_known.send_replace(true);
                }
            }
        });
    }
}
