//! Discovers whether Cluster API is installed, and watches its kinds from then on.

use std::sync::Arc;
use std::time::Duration;

use millpond_state::objects::Kind as StateKind;
use millpond_state::objects::cluster_api::ApiKind;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::templates::Templates;
use super::{Machines, Presence};
use crate::capi::client::{Served, served};
use crate::cluster::Cluster;

/// Where Cluster API is not installed, its kinds are looked up again after this long: it may be installed later.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

impl Machines {
    /// Feeds every change into the planner's index.
    pub(crate) fn feed(self: &Arc<Self>, cluster: &Arc<Cluster>) {
        let kind = StateKind::ClusterApi;
        cluster.feed(&self.deployments, kind(ApiKind::MachineDeployment), |_| true);
        cluster.feed(&self.sets, kind(ApiKind::MachineSet), |_| true);
        cluster.feed(&self.pools, kind(ApiKind::MachinePool), |_| true);
        cluster.feed(&self.machines, kind(ApiKind::Machine), |_| true);
        cluster.feed(&self.clusters, kind(ApiKind::Cluster), |_| true);
        macro_rules! listen {
            ($($mirror:ident),+) => {$(
                let machines = Arc::downgrade(self);
                self.$mirror.on_change(move |_, _| {
                    if let Some(machines) = machines.upgrade() {
                        machines.notify();
                    }
                });
            )+};
        }
        // Clusters are not fed: their groups carry whether they are paused.
        listen!(deployments, sets, pools, machines, clusters);
    }

    /// Watches until the token is cancelled, once there is something to watch.
    pub(crate) fn watch(self: &Arc<Self>, cluster: &Arc<Cluster>, tracker: &TaskTracker, stop: &CancellationToken) {
        if let Some(sender) = self.sender.lock().take() {
            tracker.spawn(sender.run(stop.clone()));
        }
        let (machines, cluster, tasks, stop) = (Arc::clone(self), Arc::clone(cluster), tracker.clone(), stop.clone());
        tracker.spawn(async move {
            let found = tokio::select! {
                () = stop.cancelled() => return,
                found = machines.look() => found,
            };
            machines.run(&cluster, &tasks, &stop, found).await;
        });
    }

    /// Waits until Cluster API is installed, and uses its version from then on; returns whether MachinePools are
    /// served.
    async fn look(&self) -> bool {
        loop {
            match served(&self.plain).await {
                Ok(Some(Served { version, pools })) => {
                    self.switch.set(version);
                    tracing::debug!(version = version.name(), "Cluster API is served");
                    return pools;
                }
                Ok(None) => drop(self.presence.send_replace(Presence::Absent)),
                Err(error) => tracing::debug!(%error, "cannot tell whether Cluster API is there, will look again"),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn run(self: &Arc<Self>, cluster: &Arc<Cluster>, tasks: &TaskTracker, stop: &CancellationToken, pools: bool) {
        let streaming = cluster.options.streaming_lists;
        let templates = Templates::new(Arc::clone(self), cluster);
        tasks.spawn(Arc::clone(&self.deployments).run(streaming, stop.clone()));
        tasks.spawn(Arc::clone(&self.sets).run(streaming, stop.clone()));
        tasks.spawn(Arc::clone(&self.machines).run(streaming, stop.clone()));
        tasks.spawn(Arc::clone(&self.clusters).run(streaming, stop.clone()));
        if pools {
            tasks.spawn(Arc::clone(&self.pools).run(streaming, stop.clone()));
        }
        let ready = async {
            self.deployments.wait_until_ready().await;
            self.sets.wait_until_ready().await;
            self.machines.wait_until_ready().await;
            self.clusters.wait_until_ready().await;
            if pools {
                self.pools.wait_until_ready().await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = ready => {}
        }
        templates.fetch_all().await;
        self.presence.send_replace(Presence::Present);
        self.notify();
        tracing::info!(groups = self.deployments.len(), machines = self.machines.len(), "Cluster API is there");
        templates.run(stop.clone()).await;
    }
}
