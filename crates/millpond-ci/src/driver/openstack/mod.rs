//! Servers of an OpenStack cloud: Nova has the servers, Neutron networks and floating addresses, Glance the names of
//! images.
//!
//! ```text
//!   Launch ──▶ servers with its node id ──there is one──▶ follow the oldest, delete the others
//!                    │ none                                        │
//!                    ▼                                             ▼
//!     flavor, image, networks ──▶ create ──────────▶ ACTIVE ──▶ floating address ──▶ host keys ──▶ Launched
//! ```
//!
//! Nova knows no token of its clients: a create whose answer is lost may have made a server. So servers carry the id of
//! their node, and a launch looks for them first. All launches under way share one listing at a time.

mod addresses;
mod client;
mod request;
mod shortages;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep, timeout};

use self::addresses::Addresses;
use self::client::{Cloud, Server};
use super::{Driver, DriverError, Instance, Launch, Launched, Sizes, hostkeys};
use crate::config::{INSTANCES, LabelDetails, OpenStackLabel, OpenStackPool, OpenStackProvider, Provider};
use crate::config::{ProviderDetails, Resources};
use crate::model::Json;
use crate::openstack::Clouds;

/// How old the listing may be that a launch or a deletion follows its server with.
const LOOK: Duration = Duration::from_secs(1);
/// Between two attempts to reach a server that boots.
const KNOCK: Duration = Duration::from_secs(1);
/// How long one attempt to gather host keys may take.
const SCAN: Duration = Duration::from_secs(10);
/// How long a deleted server may stay in the listing.
const DELETED_WITHIN: Duration = Duration::from_mins(10);

/// The metadata by which servers are found again; Nodepool's own names.
const NODE_ID: &str = "nodepool_node_id";
const POOL_NAME: &str = "nodepool_pool_name";
const PROVIDER_NAME: &str = "nodepool_provider_name";

/// The servers of one provider.
pub struct OpenStack {
    provider: Provider,
    details: OpenStackProvider,
    cloud: Cloud,
}

impl OpenStack {
    /// Logs in when it is first used.
    pub fn new(provider: &Provider, clouds: Clouds) -> Result<Self, DriverError> {
        let ProviderDetails::OpenStack(details) = &provider.details else {
            return Err(DriverError::Permanent(format!("the provider `{}` is none of OpenStack", provider.name)));
        };
        let cloud = Cloud::new(clouds, &details.cloud, details.region_name.as_deref(), details.rate);
        Ok(Self { provider: provider.clone(), details: OpenStackProvider::clone(details), cloud })
    }

    async fn launch_server(&self, launch: &Launch) -> Result<Launched, DriverError> {
        let LabelDetails::OpenStack(label) = &launch.details.details else {
            return Err(DriverError::Permanent("the label is none of a cloud".to_owned()));
        };
        let pool = launch.pool.openstack.clone().unwrap_or_default();
        let plan = request::Plan::new(&self.cloud, &self.details, &pool, label, launch).await?;
        let id = match self.existing(&launch.node_id).await? {
            Some(id) => id,
            None => self.cloud.create(&plan.server).await?,
        };
        let server = match self.active(&id).await {
            Ok(server) => server,
            Err(error) => {
                if matches!(error, DriverError::Capacity(_)) {
                    self.cloud.shortages.lacking(&plan.flavor, &plan.zone, Instant::now());
                }
                self.log_console(label, &id).await;
                return Err(error);
            }
        };
        self.cloud.shortages.found(&plan.flavor, &plan.zone);
        let addresses = self.addresses(&server, &pool).await?;
        let mut launched = self.describe(&server, &addresses);
        launched.resources = Some(plan.resources);
        plan.image.write_to(&mut launched);
        let checks = label.host_key_checking.unwrap_or(pool.host_key_checking);
        if checks && matches!(launched.connection_type.as_deref(), Some("ssh" | "network_cli")) {
            let port = launched.connection_port.as_ref().and_then(Json::as_i64).unwrap_or(22);
            launched.host_keys = match self.host_keys(launched.interface_ip.as_deref(), port).await {
                Ok(keys) => keys,
                Err(error) => {
                    self.log_console(label, &id).await;
                    return Err(error);
                }
            };
        }
        Ok(launched)
    }

    /// The server of a node, from a call before this one. Of several the oldest stays.
    async fn existing(&self, node_id: &str) -> Result<Option<String>, DriverError> {
        let servers = self.cloud.servers(Instant::now()).await?;
        let mut ours: Vec<&Server> = servers.iter().filter(|server| self.is_of(server, node_id)).collect();
        ours.sort_by(|one, other| (&one.created, &one.id).cmp(&(&other.created, &other.id)));
        let mut ours = ours.into_iter();
        let oldest = ours.next().map(|server| server.id.clone());
        for extra in ours {
            tracing::warn!(node = node_id, server = extra.id, "a second server of the node is deleted");
            self.cloud.delete(&extra.id).await?;
        }
        Ok(oldest)
    }

    fn is_of(&self, server: &Server, node_id: &str) -> bool {
        self.is_ours(server) && server.metadata.get(NODE_ID).is_some_and(|id| id == node_id)
    }

    fn is_ours(&self, server: &Server) -> bool {
        server.metadata.get(PROVIDER_NAME).is_some_and(|name| *name == self.provider.name)
    }

    /// Waits until a server works.
    async fn active(&self, id: &str) -> Result<Server, DriverError> {
        let mut since = Instant::now();
        loop {
            let servers = self.cloud.servers(since).await?;
            let gone = || DriverError::Transient("the server is gone while it boots".to_owned());
            let server = servers.iter().find(|server| server.id == id).ok_or_else(gone)?;
            match server.status.as_str() {
                "ACTIVE" => return Ok(server.clone()),
                "ERROR" => return Err(failed(server)),
                "DELETED" | "SOFT_DELETED" => return Err(gone()),
                _ => {}
            }
            sleep(LOOK).await;
            since = Instant::now() - LOOK;
        }
    }

    /// The addresses of a server, with a floating one if it needs one.
    async fn addresses(&self, server: &Server, pool: &OpenStackPool) -> Result<Addresses, DriverError> {
        let external = self.cloud.external_networks().await?;
        let mut addresses = Addresses::of(server, &external);
        if pool.auto_floating_ip
            && addresses.needs_floating()
            && let Some(network) = external.first()
        {
            addresses.public_v4 = Some(self.cloud.float(&server.id, &network.id).await?);
        }
        Ok(addresses)
    }

    fn describe(&self, server: &Server, addresses: &Addresses) -> Launched {
        Launched {
            external_id: Some(server.id.clone()),
            cloud: Some(self.details.cloud.clone()),
            az: server.zone.clone(),
            region: self.details.region_name.clone(),
            host_id: server.host_id.clone(),
            hostname: Some(server.name.clone()),
            interface_ip: addresses.interface().map(ToOwned::to_owned),
            public_ipv4: addresses.public_v4.clone(),
            // As Nodepool has it where there is no private one.
            private_ipv4: addresses.private_v4.clone().or_else(|| addresses.public_v4.clone()),
            public_ipv6: addresses.public_v6.clone(),
            ..Launched::default()
        }
    }

    /// The keys that a server shows within `boot-timeout`.
    async fn host_keys(&self, address: Option<&str>, port: i64) -> Result<Vec<String>, DriverError> {
        let within = Duration::from_secs(self.details.boot_timeout_s);
        let address = address.ok_or_else(|| DriverError::Transient("the server has no address".to_owned()))?;
        let port = u16::try_from(port).map_err(|_| DriverError::Permanent(format!("{port} is no port")))?;
        let mut last = String::new();
        let keys = timeout(within, async {
            loop {
                match scan(address, port).await {
                    Ok(keys) => return keys,
                    Err(error) => last = error.to_string(),
                }
                sleep(KNOCK).await;
            }
        });
        let keys = keys.await;
        keys.map_err(|_| {
            DriverError::Transient(format!("{address} shows no host key within {} s: {last}", within.as_secs()))
        })
    }

    /// Logs the console of a server that does not become ready, if the label asks for that.
    async fn log_console(&self, label: &OpenStackLabel, id: &str) {
        if !label.console_log {
            return;
        }
        match self.cloud.console(id).await {
            Ok(text) => tracing::info!(server = id, console = text, "the console of a server that does not come"),
            Err(error) => tracing::info!(server = id, %error, "the console of the server cannot be read"),
        }
    }

    async fn delete_server(&self, instance: &Instance) -> Result<(), DriverError> {
        let servers = self.cloud.servers(Instant::now()).await?;
        let is_it = |server: &&Server| match &instance.external_id {
            Some(id) => server.id == *id,
            None => self.is_of(server, &instance.node_id),
        };
        let ids: Vec<String> = servers.iter().filter(is_it).map(|server| server.id.clone()).collect();
        for id in &ids {
            self.cloud.unfloat(id).await?;
            self.cloud.delete(id).await?;
        }
        let gone = timeout(DELETED_WITHIN, async {
            let mut since = Instant::now();
            loop {
                let servers = self.cloud.servers(since).await?;
                match servers.iter().find(|server| ids.contains(&server.id)) {
                    None => return Ok(()),
                    Some(server) if server.status == "ERROR" => {
                        return Err(DriverError::Transient(format!("the server {} cannot be deleted", server.id)));
                    }
                    Some(_) => {}
                }
                sleep(LOOK).await;
                since = Instant::now() - LOOK;
            }
        });
        gone.await.unwrap_or_else(|_| Err(DriverError::Transient("the server is still there".to_owned())))
    }

    async fn list_servers(&self) -> Result<Vec<Instance>, DriverError> {
        let servers = self.cloud.servers(Instant::now()).await?;
        let ours = servers.iter().filter(|server| self.is_ours(server));
        let instances = ours.filter_map(|server| {
            Some(Instance {
                node_id: server.metadata.get(NODE_ID)?.clone(),
                pool: server.metadata.get(POOL_NAME).cloned(),
                external_id: Some(server.id.clone()),
            })
        });
        Ok(instances.collect())
    }

    /// The part of the project's quota that nodes can use: its limits less the usage of other servers.
    async fn quota(&self) -> Result<Resources, DriverError> {
        let (limits, used) = self.cloud.limits().await?;
        let flavors = self.cloud.flavors().await?;
        let mut ours = Resources::new();
        for server in self.cloud.servers(Instant::now() - LOOK).await?.iter().filter(|server| self.is_ours(server)) {
            let flavor = flavors.iter().find(|flavor| Some(&flavor.id) == server.flavor.as_ref());
            let size = flavor.map_or_else(|| Resources::from([(INSTANCES.to_owned(), 1)]), client::Flavor::resources);
            for (name, amount) in size {
                *ours.entry(name).or_default() += amount;
            }
        }
        let left = limits.into_iter().map(|(name, limit)| {
            let own = ours.get(&name).copied().unwrap_or_default();
            let others = used.get(&name).copied().unwrap_or_default().saturating_sub(own);
            let left = limit.saturating_sub(others);
            (name, left)
        });
        Ok(left.collect())
    }

    /// The usage of a node of each label.
    async fn label_sizes(&self) -> Result<Sizes, DriverError> {
        let flavors = self.cloud.flavors().await?;
        let mut sizes = Sizes::new();
        for pool in &self.provider.pools {
            for (name, label) in &pool.labels {
                let LabelDetails::OpenStack(label) = &label.details else { continue };
                // A label without a flavor fails at its launch, with the reason.
                if let Ok(flavor) = request::choose_flavor(&flavors, label) {
                    sizes.insert((pool.name.clone(), name.clone()), request::resources(flavor, label));
                }
            }
        }
        Ok(sizes)
    }
}

async fn scan(address: &str, port: u16) -> std::io::Result<Vec<String>> {
    let address = lookup_host((address, port)).await?.next();
    let address = address.ok_or_else(|| std::io::Error::other("no address"))?;
    hostkeys::scan(address, SCAN).await
}

/// Why a server is broken.
fn failed(server: &Server) -> DriverError {
    let fault = server.fault.as_deref().unwrap_or("no reason is given");
    let problem = format!("Nova made the server ERROR: {fault}");
    let lower = fault.to_lowercase();
    if lower.contains("no valid host") || lower.contains("quota") || lower.contains("exceeded") {
        return DriverError::Capacity(problem);
    }
    DriverError::Transient(problem)
}

impl Driver for OpenStack {
    fn launch<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<Launched, DriverError>> {
        Box::pin(self.launch_server(launch))
    }

    fn delete<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(self.delete_server(instance))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, DriverError>> {
        Box::pin(self.list_servers())
    }

    fn limits(&self) -> BoxFuture<'_, Result<Resources, DriverError>> {
        Box::pin(self.quota())
    }

    fn sizes(&self) -> BoxFuture<'_, Result<Sizes, DriverError>> {
        Box::pin(self.label_sizes())
    }
}

/// The properties of a launch that are texts in Nova.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
