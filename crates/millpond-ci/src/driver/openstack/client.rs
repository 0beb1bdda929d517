//! The calls to Nova, Neutron and Glance, at most `rate` of them a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep_until};

use super::DriverError;
use super::shortages::Shortages;
use crate::config::{CORES, INSTANCES, RAM, Resources};
use crate::openstack::{Answer, CloudError, CloudSettings, Clouds, Service, Session};

/// How long flavors, networks and names of images are remembered: they change rarely, and by hand.
const REMEMBERED: Duration = Duration::from_mins(5);
/// The most pages of a list of servers.
const LIMIT_PAGES: usize = 1000;
/// Lines of a console that are logged.
const CONSOLE_LINES: u32 = 100;

/// A cloud.
pub(super) struct Cloud {
    clouds: Clouds,
    name: String,
    region: Option<String>,
    interval: Duration,
    next: Mutex<Instant>,
    session: AsyncMutex<Option<(CloudSettings, Arc<Session>)>>,
    servers: AsyncMutex<Option<(Instant, Arc<Vec<Server>>)>>,
    flavors: Remembered<Vec<Flavor>>,
    networks: Remembered<Vec<Network>>,
    images: Remembered<BTreeMap<String, String>>,
    /// Zones without a host for a flavor.
    pub(super) shortages: Shortages,
}

/// A server, as far as nodes need it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Server {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) status: String,
    pub(super) created: String,
    pub(super) fault: Option<String>,
    pub(super) flavor: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) host_id: Option<String>,
    pub(super) access_v4: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) addresses: Vec<Address>,
}

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) network: String,
    pub(super) address: String,
    pub(super) version: u64,
    pub(super) is_floating: bool,
}

/// A size of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flavor {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) cores: u64,
    /// MiB.
    pub(super) ram: u64,
}

impl Flavor {
    pub(super) fn resources(&self) -> Resources {
        Resources::from([(CORES.to_owned(), self.cores), (INSTANCES.to_owned(), 1), (RAM.to_owned(), self.ram)])
    }
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) is_external: bool,
}

/// A value that is fetched again when it is too old.
struct Remembered<T> {
    known: AsyncMutex<Option<(Instant, Arc<T>)>>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { known: AsyncMutex::default() }
    }
}

impl<T> Remembered<T> {
    async fn get(&self, fetch: impl Future<Output = Result<T, DriverError>>) -> Result<Arc<T>, DriverError> {
        let mut known = self.known.lock().await;
        if let Some((began, value)) = known.as_ref().filter(|(began, _)| began.elapsed() < REMEMBERED) {
            let _ = began;
            return Ok(Arc::clone(value));
        }
        let began = Instant::now();
        let value = Arc::new(fetch.await?);
        *known = Some((began, Arc::clone(&value)));
        Ok(value)
    }

    /// Drops the value, because it turned out to be outdated.
    async fn forget(&self) {
        *self.known.lock().await = None;
    }
}

impl Cloud {
    pub(super) fn new(clouds: Clouds, name: &str, region: Option<&str>, rate: f64) -> Self {
        let interval = if rate > 0.0 { Duration::from_secs_f64(1.0 / rate) } else { Duration::ZERO };
        Self {
            clouds,
            name: name.to_owned(),
            region: region.map(ToOwned::to_owned),
            interval,
            next: Mutex::new(Instant::now()),
            session: AsyncMutex::default(),
            servers: AsyncMutex::default(),
            flavors: Remembered::default(),
            networks: Remembered::default(),
            images: Remembered::default(),
            shortages: Shortages::default(),
        }
    }

    /// All servers of the project, from a listing that began at `since` or later.
    pub(super) async fn servers(&self, since: Instant) -> Result<Arc<Vec<Server>>, DriverError> {
        let mut known = self.servers.lock().await;
        if let Some((_, servers)) = known.as_ref().filter(|(began, _)| *began >= since) {
            return Ok(Arc::clone(servers));
        }
        let began = Instant::now();
        let servers = Arc::new(self.list_servers().await?);
        *known = Some((began, Arc::clone(&servers)));
        Ok(servers)
    }

    async fn list_servers(&self) -> Result<Vec<Server>, DriverError> {
        let (mut servers, mut path) = (Vec::new(), "/servers/detail".to_owned());
        for _ in 0..LIMIT_PAGES {
            let page = self.get(Service::Compute, "list servers", &path).await?;
            servers.extend(array(&page, "servers").iter().filter_map(server));
            let links = array(&page, "servers_links").iter();
            let next = links.filter(|link| link["rel"] == "next").find_map(|link| link["href"].as_str());
            // Only the question is taken from the link: its host may be one that is reached from inside alone.
            match next.and_then(|link| link.split_once('?')) {
                Some((_, query)) => path = format!("/servers/detail?{query}"),
                None => return Ok(servers),
            }
        }
        Err(DriverError::Permanent(format!("the list of servers has more than {LIMIT_PAGES} pages")))
    }

    pub(super) async fn flavors(&self) -> Result<Arc<Vec<Flavor>>, DriverError> {
        let fetch = async {
            let page = self.get(Service::Compute, "list flavors", "/flavors/detail").await?;
            Ok(array(&page, "flavors").iter().filter_map(flavor).collect())
        };
        self.flavors.get(fetch).await
    }

    pub(super) async fn networks(&self) -> Result<Arc<Vec<Network>>, DriverError> {
        let fetch = async {
            let page = self.get(Service::Network, "list networks", "/networks").await?;
            Ok(array(&page, "networks").iter().filter_map(network).collect())
        };
        self.networks.get(fetch).await
    }

    /// Networks whose addresses are reachable from outside; empty if the cloud has no Neutron.
    pub(super) async fn external_networks(&self) -> Result<Vec<Network>, DriverError> {
        if !self.session().await?.has(Service::Network).await.map_err(error)? {
            return Ok(Vec::new());
        }
        Ok(self.networks().await?.iter().filter(|network| network.is_external).cloned().collect())
    }

    /// The id of an image by its name or id.
    pub(super) async fn image(&self, name: &str) -> Result<String, DriverError> {
        let fetch = async {
            let mut images = BTreeMap::new();
            let (mut path, mut pages) = ("/images?status=active&limit=500".to_owned(), 0);
            while pages < LIMIT_PAGES {
                let page = self.get(Service::Image, "list images", &path).await?;
                for image in array(&page, "images") {
                    let Some(id) = image["id"].as_str() else { continue };
                    images.insert(id.to_owned(), id.to_owned());
                    if let Some(name) = image["name"].as_str() {
                        images.insert(name.to_owned(), id.to_owned());
                    }
                }
                let Some(next) = page["next"].as_str() else { break };
                // As `/v2/images?marker=…`.
                path = next.trim_start_matches("/v2").to_owned();
                pages += 1;
            }
            Ok(images)
        };
        let images = self.images.get(fetch).await?;
        if let Some(id) = images.get(name) {
            return Ok(id.clone());
        }
        self.images.forget().await;
        Err(DriverError::Permanent(format!("the cloud has no image `{name}`")))
    }

    /// Creates a server; gives its id.
    pub(super) async fn create(&self, server: &Value) -> Result<String, DriverError> {
        let answer = self.call(Service::Compute, Method::POST, "/servers", Some(server)).await?;
        if answer.status == StatusCode::BAD_REQUEST {
            // A flavor, a network or an image may be another one now.
            self.flavors.forget().await;
            self.networks.forget().await;
            self.images.forget().await;
        }
        let answer = accepted(Service::Compute, "create the server", answer)?;
        let id = answer.json()["server"]["id"].as_str().map(ToOwned::to_owned);
        id.ok_or_else(|| DriverError::Transient("Nova gives no id of the server".to_owned()))
    }

    /// Deletes a server. One that is gone is no error.
    pub(super) async fn delete(&self, id: &str) -> Result<(), DriverError> {
        let answer = self.call(Service::Compute, Method::DELETE, &format!("/servers/{id}"), None).await?;
        gone(Service::Compute, "delete the server", answer)
    }

    /// Gives a server a floating address.
    pub(super) async fn float(&self, server: &str, network: &str) -> Result<String, DriverError> {
        for known in self.floating(server).await? {
            if let Some(address) = known["floating_ip_address"].as_str() {
                return Ok(address.to_owned());
            }
        }
        let port = self.ports(server).await?.into_iter().next();
        let port = port.ok_or_else(|| DriverError::Transient("the server has no port".to_owned()))?;
        let body = json!({"floatingip": {"floating_network_id": network, "port_id": port}});
        let answer = self.call(Service::Network, Method::POST, "/floatingips", Some(&body)).await?;
        let answer = accepted(Service::Network, "create the floating address", answer)?;
        let address = answer.json()["floatingip"]["floating_ip_address"].as_str().map(ToOwned::to_owned);
        address.ok_or_else(|| DriverError::Transient("Neutron gives no address".to_owned()))
    }

    /// Deletes the floating addresses of a server.
    pub(super) async fn unfloat(&self, server: &str) -> Result<(), DriverError> {
        if !self.session().await?.has(Service::Network).await.map_err(error)? {
            return Ok(());
        }
        for known in self.floating(server).await? {
            let Some(id) = known["id"].as_str() else { continue };
            let answer = self.call(Service::Network, Method::DELETE, &format!("/floatingips/{id}"), None).await?;
            gone(Service::Network, "delete the floating address", answer)?;
        }
        Ok(())
    }

    async fn floating(&self, server: &str) -> Result<Vec<Value>, DriverError> {
        let mut found = Vec::new();
        for port in self.ports(server).await? {
            let path = format!("/floatingips?port_id={port}");
            let page = self.get(Service::Network, "list floating addresses", &path).await?;
            found.extend(array(&page, "floatingips").iter().cloned());
        }
        Ok(found)
    }

    async fn ports(&self, server: &str) -> Result<Vec<String>, DriverError> {
        let page = self.get(Service::Network, "list ports", &format!("/ports?device_id={server}")).await?;
        Ok(array(&page, "ports").iter().filter_map(|port| Some(port["id"].as_str()?.to_owned())).collect())
    }

    /// The project's limits, and what is used of them by any server.
    pub(super) async fn limits(&self) -> Result<(Resources, Resources), DriverError> {
        let page = self.get(Service::Compute, "read limits", "/limits").await?;
        let absolute = &page["limits"]["absolute"];
        let of = |names: [(&str, &str); 3]| -> Resources {
            // A negative limit is none.
            names.into_iter().filter_map(|(key, name)| Some((name.to_owned(), absolute[key].as_u64()?))).collect()
        };
        let limits = of([("maxTotalCores", CORES), ("maxTotalInstances", INSTANCES), ("maxTotalRAMSize", RAM)]);
        let used = of([("totalCoresUsed", CORES), ("totalInstancesUsed", INSTANCES), ("totalRAMUsed", RAM)]);
        Ok((limits, used))
    }

    /// The end of a server's console.
    pub(super) async fn console(&self, id: &str) -> Result<String, DriverError> {
        let body = json!({"os-getConsoleOutput": {"length": CONSOLE_LINES}});
        let path = format!("/servers/{id}/action");
        let answer = self.call(Service::Compute, Method::POST, &path, Some(&body)).await?;
        let answer = accepted(Service::Compute, "read the console", answer)?;
        Ok(answer.json()["output"].as_str().unwrap_or_default().to_owned())
    }

    async fn get(&self, service: Service, what: &str, path: &str) -> Result<Value, DriverError> {
        let answer = self.call(service, Method::GET, path, None).await?;
        Ok(accepted(service, what, answer)?.json())
    }

    async fn call(
        &self,
        service: Service,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, DriverError> {
        let turn = {
            let mut next = self.next.lock();
            let turn = (*next).max(Instant::now());
            *next = turn + self.interval;
            turn
        };
        sleep_until(turn).await;
        self.session().await?.call(service, method, path, body).await.map_err(error)
    }

    /// A session with the credentials of now: they may change at any time.
    async fn session(&self) -> Result<Arc<Session>, DriverError> {
        let settings = self.clouds.cloud(&self.name).map_err(error)?;
        let mut session = self.session.lock().await;
        if let Some((_, session)) = session.as_ref().filter(|(known, _)| *known == settings) {
            return Ok(Arc::clone(session));
        }
        let new = Arc::new(Session::new(settings.clone(), self.region.as_deref()).map_err(error)?);
        *session = Some((settings, Arc::clone(&new)));
        Ok(new)
    }
}

fn error(error: CloudError) -> DriverError {
    match error {
        CloudError::Transient(problem) => DriverError::Transient(problem),
        CloudError::Permanent(problem) => DriverError::Permanent(problem),
    }
}

fn accepted(service: Service, what: &str, answer: Answer) -> Result<Answer, DriverError> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let problem = answer.problem(service, what);
    let text = problem.to_lowercase();
    let is_full = text.contains("quota") || text.contains("limit exceeded") || text.contains("no more ip addresses");
    Err(match answer.status {
        StatusCode::FORBIDDEN | StatusCode::CONFLICT | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::NOT_FOUND
            if is_full =>
        {
            DriverError::Capacity(problem)
        }
        StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => DriverError::Permanent(problem),
        _ => DriverError::Transient(problem),
    })
}

fn gone(service: Service, what: &str, answer: Answer) -> Result<(), DriverError> {
    match answer.status {
        StatusCode::NOT_FOUND => Ok(()),
        _ => accepted(service, what, answer).map(drop),
    }
}

fn array<'a>(page: &'a Value, name: &str) -> &'a [Value] {
    page[name].as_array().map_or(&[], Vec::as_slice)
}

fn owned(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}

fn server(found: &Value) -> Option<Server> {
    let metadata = found["metadata"].as_object().into_iter().flatten();
    let networks = found["addresses"].as_object().into_iter().flatten();
    let addresses = networks.flat_map(|(network, addresses)| {
        addresses.as_array().into_iter().flatten().filter_map(|address| {
            Some(Address {
                network: network.clone(),
                address: owned(&address["addr"])?,
                version: address["version"].as_u64().unwrap_or(4),
                is_floating: address["OS-EXT-IPS:type"] == "floating",
            })
        })
    });
    Some(Server {
        id: owned(&found["id"])?,
        name: owned(&found["name"]).unwrap_or_default(),
        status: owned(&found["status"]).unwrap_or_default(),
        created: owned(&found["created"]).unwrap_or_default(),
        fault: owned(&found["fault"]["message"]),
        flavor: owned(&found["flavor"]["id"]),
        zone: owned(&found["OS-EXT-AZ:availability_zone"]),
        host_id: owned(&found["hostId"]),
        access_v4: owned(&found["accessIPv4"]),
        metadata: metadata.filter_map(|(name, value)| Some((name.clone(), owned(value)?))).collect(),
        addresses: addresses.collect(),
    })
}

fn flavor(found: &Value) -> Option<Flavor> {
    let (id, name) = (owned(&found["id"])?, owned(&found["name"])?);
    Some(Flavor { id, name, cores: found["vcpus"].as_u64()?, ram: found["ram"].as_u64()? })
}

fn network(found: &Value) -> Option<Network> {
    let id = owned(&found["id"])?;
    Some(Network { id, name: owned(&found["name"]).unwrap_or_default(), is_external: found["router:external"] == true })
}
