//! Starting the controllers of own hosts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use millpond_api::byoh::names::LEASE_NAMESPACE;
use millpond_runtime::events::Sender;
use millpond_runtime::worker;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::assign::{Assigner, WaitingMachines};
use crate::bootstrap::Bootstraps;
use crate::capacity::Capacity;
use crate::clusters::Clusters;
use crate::hosts::Hosts;
use crate::installer::Installers;
use crate::machines::Machines;
use crate::provider::HostProvider;
use crate::stock::{Options, Stock};
use crate::{access, approval};

/// Starts all controllers; they end with the token.
pub fn start(client: &Client, options: &Options, token: &CancellationToken) -> TaskTracker {
    Prepared::new(client, options).start(token)
}

/// Controllers that have not started, and the provider of NodeClaims that acts on the same stock of hosts.
pub struct Prepared {
    stock: Arc<Stock>,
    events: Sender,
    provider: Arc<HostProvider>,
}

impl Prepared {
    /// Nothing runs yet.
    pub fn new(client: &Client, options: &Options) -> Self {
        let (stock, events) = Stock::new(client, options);
        let provider = HostProvider::new(&stock);
        Self { stock, events, provider }
    }

    /// Own hosts as a provider. It answers once the controllers run.
    pub fn provider(&self) -> Arc<HostProvider> {
        Arc::clone(&self.provider)
    }

    /// Starts all controllers; they end with the token.
    pub fn start(self, token: &CancellationToken) -> TaskTracker {
        start_on(&self.stock, self.events, token)
    }
}

fn start_on(stock: &Arc<Stock>, events: Sender, token: &CancellationToken) -> TaskTracker {
    let (client, stock) = (stock.client.clone(), Arc::clone(stock));
    let tasks = TaskTracker::new();
    tasks.spawn(events.run(token.clone()));
    let concurrency = stock.options.concurrency;
    // Controllers listen before the watches begin, so that they miss nothing.
    let waiting = Arc::new(WaitingMachines::default());
    let (hosts, of_hosts) = Hosts::new(&stock);
    let (machines, of_machines) = Machines::new(&stock, &waiting);
    let assigner = Assigner::new(&stock, &waiting);
    let (bootstraps, of_bootstraps) = Bootstraps::new(&stock);
    let (installers, of_installers) = Installers::new(&stock);
    let (clusters, of_clusters) = Clusters::new(&stock);
    let capacity = Capacity::new(&stock);
    tasks.spawn(ensure_namespace(client));
    tasks.spawn(approval::run(&stock, token.clone()));
    tasks.spawn(access::run(&stock, token.clone()));
    stock.watch(&tasks, token);
    let (shared, stop) = (Arc::clone(&stock), token.clone());
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => return,
            () = shared.wait_until_hosts_ready() => {}
        }
        worker::run(hosts, of_hosts, concurrency, stop).await;
    });
    // The rest belongs to Cluster API, which may not be installed.
    let stop = token.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => return,
            () = stock.wait_until_ready() => {}
        }
        tokio::join!(
            worker::run(machines, of_machines, concurrency, stop.clone()),
            worker::run(bootstraps, of_bootstraps, concurrency, stop.clone()),
            worker::run(installers, of_installers, concurrency, stop.clone()),
            worker::run(clusters, of_clusters, concurrency, stop.clone()),
            assigner.run(stop.clone()),
            capacity.run(stop.clone()),
        );
    });
    tasks.close();
    tasks
}

/// Makes the namespace of the hosts' Leases. Where that is not allowed, an administrator has made it.
async fn ensure_namespace(client: Client) {
    let metadata = ObjectMeta { name: Some(LEASE_NAMESPACE.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    match Api::<Namespace>::all(client).create(&PostParams::default(), &namespace).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => tracing::warn!(%error, namespace = LEASE_NAMESPACE, "cannot make the namespace of host Leases"),
    }
}
