//! Own hosts as a provider of NodeClaims: a NodeClass with `provider: hosts` lets a NodePool buy from the stock of hosts.
//!
//! ```text
//!  NodeClass (selector, price) ─▶ catalog: hosts that are alike are one type, the free ones are left of it
//!  NodeClaim ─▶ create: the first choice with a free host ─▶ claim by compare-and-swap ─▶ the agent joins
//!  delete ─▶ release ─▶ the agent resets the host ─▶ the host is free: the instance is gone
//! ```
//!
//! An instance is an annotation of its host, so it outlives the process; the controllers of [`crate::hosts`] remove it
//! when the host is free again. Which hosts exist, which are free and how they join is not decided here.

mod catalog;
mod record;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::ResourceExt as _;
use millpond_api::byoh::{self, BootstrapKubeconfigSpec, JoinMode, names};
use millpond_api::catalog::Catalog;
use millpond_api::node_class::{HOSTS_PROVIDER, NodeClass, OwnHosts};
use millpond_plan::matching::Availability;
use millpond_providers::{
    Choice, Instance, InstanceEvent, InstanceState, LaunchRequest, Launched, OfferingKey, Provider, ProviderError,
    RepairPolicy,
};
use millpond_runtime::error::Error;
use millpond_runtime::meta::Key;
use serde_json::json;
use tokio::sync::{broadcast, watch};

use self::catalog::Stocked;
use self::record::Record;
use crate::assign::{Joining, claim_patch, label_value};
use crate::bootstrap::kubelet_configs;
use crate::hosts::life;
use crate::inventory;
use crate::join::{self, Credentials, Endpoint};
use crate::kinds::ByoHost;
use crate::release::{NODE_CLAIM, release_patch};
use crate::state::availability;
use crate::stock::Stock;

/// The word in `spec.provider` of a NodeClass.
pub const NAME: &str = HOSTS_PROVIDER;
/// What a host was given to a NodeClaim as, while the NodeClaim has it (annotation, on a ByoHost).
pub const INSTANCE: &str = "millpond.dev/instance";
/// The value of the label that says which cluster a host belongs to, on hosts of NodeClaims: these have no Cluster.
const CLUSTER: &str = "karpenter.sh";
/// The beginning of provider ids.
const SCHEME: &str = "byoh";
/// How long a node may be unready before its host is given back.
const REPAIR_AFTER: Duration = Duration::from_mins(10);

/// Own hosts as a provider. See the [module](self).
pub struct HostProvider(Arc<Hosts>);

struct Hosts {
    stock: Arc<Stock>,
    /// Held while a host is given away: two calls with one token must not find two hosts.
    turn: tokio::sync::Mutex<()>,
    changes: watch::Sender<u64>,
}

impl HostProvider {
    pub(crate) fn new(stock: &Arc<Stock>) -> Arc<Self> {
        let (stock, turn) = (Arc::clone(stock), tokio::sync::Mutex::default());
        let hosts = Arc::new(Hosts { stock, turn, changes: watch::Sender::new(0) });
        let weak = Arc::downgrade(&hosts);
        hosts.stock.hosts.on_change(move |before, after| {
            let counts = |host: Option<&Arc<ByoHost>>| host.map(|host| what_counts(host));
            if let Some(hosts) = weak.upgrade().filter(|_| counts(before) != counts(after)) {
                hosts.changes.send_modify(|count| *count += 1);
            }
        });
        Arc::new(Self(hosts))
    }
}

/// What decides which offering a host is, and whether it is free.
fn what_counts(host: &ByoHost) -> impl PartialEq + use<> {
    let phase = host.status.plan.as_ref().map(|plan| plan.phase.clone());
    let spec = (host.spec.claim.is_some(), host.spec.quarantine.clone(), host.spec.capacity.clone());
    let is_held = (host.status.machine_ref.is_some(), host.metadata.deletion_timestamp.is_some());
    (
        host.labels().clone(),
        host.annotations().clone(),
        spec,
        is_held,
        (host.status.state, host.status.capacity.clone(), phase),
    )
}

impl Hosts {
    /// The hosts of a class that can be used.
    fn of_class<'c>(&self, class: &'c NodeClass) -> Result<(Vec<Arc<ByoHost>>, &'c OwnHosts), ProviderError> {
        static EVERY_HOST: OwnHosts = OwnHosts {
            namespace: String::new(),
            selector: None,
            price_per_hour: None,
            bootstrap_kubeconfig: String::new(),
        };
        if let Some(other) = class.spec.provider.as_deref().filter(|name| *name != NAME) {
            return Err(not_ready(format!("spec.provider: `{other}` is not `{NAME}`")));
        }
        if let Some(other) = class.spec.catalog.as_deref().filter(|name| *name != NAME) {
            return Err(not_ready(format!("spec.catalog: there is no catalogue `{other}`; own hosts are `{NAME}`")));
        }
        let own = class.spec.hosts.as_ref().unwrap_or(&EVERY_HOST);
        let selector = own.selector.clone().unwrap_or_default();
        let spec = byoh::ByoMachineSpec { selector: Some(selector), ..byoh::ByoMachineSpec::default() };
        let wanted =
            inventory::requirements(&spec).map_err(|invalid| not_ready(format!("spec.hosts.selector.{invalid}")))?;
        if !self.stock.is_hosts_ready() {
            return Err(ProviderError::Other { message: "the hosts were not listed yet".to_owned() });
        }
        let mut hosts = self.stock.hosts.list_in(own.namespace());
        let name = class.metadata.name.as_str();
        // A host that a NodeClaim of the class has stays one of the class.
        hosts.retain(|host| {
            let selected = || {
                let label = |key: &str| host.labels().get(key).map(String::as_str);
                wanted.iter().all(|one| one.holds(label(&one.key)))
            };
            record::of(host).map_or_else(selected, |record| record.instance.class == name)
        });
        Ok((hosts, own))
    }

    fn catalog(&self, class: &NodeClass) -> Result<Catalog, ProviderError> {
        let (hosts, _) = self.of_class(class)?;
        let views: Vec<byoh::ByoHost> = hosts.iter().map(|host| host.view()).collect();
        let registered = hosts.iter().zip(&views).filter(|(_, view)| crate::state::is_registered(view));
        let stocked: Vec<Stocked<'_>> = registered
            .map(|(host, view)| Stocked {
                host: view,
                is_free: availability(view, life(&self.stock, host)) == Availability::Free,
                given_as: record::of(host).map(|record| record.instance.offering),
            })
            .collect();
        Ok(catalog::catalog(class, &stocked))
    }

    /// The instance of a token.
    fn find(&self, token: &str) -> Option<Instance> {
        let all = self.stock.hosts.list();
        all.iter().filter_map(|host| record::of(host)).find(|it| it.instance.token == token).map(|it| it.instance)
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Launched, ProviderError> {
        let _turn = self.turn.lock().await;
        let (hosts, own) = self.of_class(&request.class)?;
        if let Some(instance) = self.find(&request.token) {
            return Ok(Launched { instance, unavailable: Vec::new() });
        }
        if self.stock.hosts.list().iter().any(|host| record::has_served(host, &request.token)) {
            return Err(not_found(format!("the host of NodeClaim {} was given back", request.claim)));
        }
        let endpoint = self.endpoint(own).await?;
        let mut unavailable: Vec<OfferingKey> = Vec::new();
        for choice in &request.choices {
            for host in self.candidates(&hosts, choice) {
                if let Some(instance) = self.claim(request, choice, &host, own, &endpoint).await? {
                    return Ok(Launched { instance, unavailable });
                }
            }
            unavailable.push(choice.offering.clone());
        }
        let message = match unavailable.first() {
            Some(first) => format!("no host that is `{first}` or another choice is free"),
            None => "there is no choice".to_owned(),
        };
        Err(ProviderError::CapacityUnavailable { offerings: unavailable, message })
    }

    /// Free hosts of an offering, the best one first.
    fn candidates(&self, hosts: &[Arc<ByoHost>], choice: &Choice) -> Vec<Arc<ByoHost>> {
        let fits = |host: &&Arc<ByoHost>| {
            let view = host.view();
            availability(&view, life(&self.stock, host)) == Availability::Free
                && catalog::offering(&view) == choice.offering
        };
        let mut free: Vec<Arc<ByoHost>> = hosts.iter().filter(fits).cloned().collect();
        free.sort_by_key(|host| (std::cmp::Reverse(host.spec.priority), host.name().to_owned()));
        free
    }

    async fn endpoint(&self, own: &OwnHosts) -> Result<Endpoint, ProviderError> {
        let (namespace, name) = (own.namespace(), own.bootstrap_kubeconfig.as_str());
        let spec = if name.is_empty() {
            BootstrapKubeconfigSpec::default()
        } else {
            let found = self.stock.bootstrap.get(&Key::new(namespace, name));
            let missing =
                || format!("spec.hosts.bootstrapKubeconfig: there is no BootstrapKubeconfig `{namespace}/{name}`");
            found.ok_or_else(|| not_ready(missing()))?.spec.clone()
        };
        join::endpoint(&self.stock, namespace, &spec).await.map_err(|error| failed(&error))?.map_err(|why| {
            not_ready(format!("where the API server is cannot be told to hosts: {why}; name a BootstrapKubeconfig in spec.hosts.bootstrapKubeconfig"))
        })
    }

    /// Claims a host for a NodeClaim; `None` if another client claimed the host first.
    async fn claim(
        &self,
        request: &LaunchRequest,
        choice: &Choice,
        host: &ByoHost,
        own: &OwnHosts,
        endpoint: &Endpoint,
    ) -> Result<Option<Instance>, ProviderError> {
        let stock = &self.stock;
        let key = Key::new(host.namespace(), &request.claim);
        let mut kubelet = kubelet_configs(&Key::new(own.namespace(), &own.bootstrap_kubeconfig));
        // A class that names no BootstrapKubeconfig has no ConfigMap of that name either.
        kubelet.retain(|key| !key.name.is_empty());
        let credentials = Credentials {
            key: Key::new(&key.namespace, &join::secret_name(&key.name)),
            owner: host,
            cluster: None,
            host: Some(host),
            kubelet,
            settings: request.class.spec.kubelet.clone(),
        };
        join::ensure(stock, endpoint, credentials).await.map_err(|error| failed(&error))?;
        let instance = instance(request, choice, host, stock.now());
        let patch = patch(request, choice, host, &key, &instance, stock.now());
        match stock.hosts.patch(&Key::of(host), &patch).await {
            Ok(_) => {
                tracing::info!(claim = request.claim, host = host.name(), offering = %choice.offering, "claims a host");
                Ok(Some(instance))
            }
            Err(error) if error.is_expected() => {
                // The last writer may have been an earlier call with this token.
                let now = stock.hosts.fetch(&Key::of(host)).await.map_err(|error| failed(&error))?;
                Ok(record::of(&now).map(|record| record.instance).filter(|it| it.token == request.token))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// The host of an instance.
    fn host(&self, id: &str) -> Result<(Arc<ByoHost>, Record), ProviderError> {
        let host = names::host_of_provider_id(id).and_then(|name| self.stock.host(name));
        let found = host.and_then(|host| record::of(&host).map(|record| (host, record)));
        found
            .filter(|(_, record)| record.instance.id == id)
            .ok_or_else(|| not_found(format!("no host is the instance `{id}`")))
    }

    async fn end(&self, id: &str) -> Result<(), ProviderError> {
        let _turn = self.turn.lock().await;
        let (host, record) = self.host(id)?;
        let token = &record.instance.token;
        let key = Key::of(&*host);
        if host.spec.claim.as_ref().is_some_and(|claim| claim.machine_uid == *token) {
            let secret = Key::new(host.namespace(), &join::secret_name(&record.instance.claim));
            join::revoke(&self.stock, &secret).await.map_err(|error| failed(&error))?;
            self.stock.hosts.patch(&key, &release_patch(&host)).await.map_err(|error| failed(&error))?;
            return Ok(());
        }
        if self.stock.is_alive(&host) {
            return Ok(());
        }
        // The agent resets the host when it returns, and no machine uses it before. The NodeClaim is deleted without
        // waiting for that.
        tracing::warn!(claim = record.instance.claim, host = host.name(), "lets a host go that does not answer");
        let patch = json!({"metadata": {
            "resourceVersion": host.metadata.resource_version, "annotations": {INSTANCE: null},
        }});
        self.stock.hosts.patch(&key, &patch).await.map_err(|error| failed(&error))?;
        self.stock.delete_node(host.name()).await.map_err(|error| failed(&error))?;
        Err(not_found(format!("the host of `{id}` does not answer; it was let go")))
    }
}

fn instance(request: &LaunchRequest, choice: &Choice, host: &ByoHost, now: millpond_api::time::Time) -> Instance {
    Instance {
        id: names::provider_id(host.name()),
        token: request.token.clone(),
        claim: request.claim.clone(),
        class: request.class.metadata.name.clone(),
        offering: choice.offering.clone(),
        image: host.status.host_info.os_image.clone(),
        capacity: choice.shape.capacity.clone(),
        allocatable: choice.shape.allocatable.clone(),
        labels: choice.labels(),
        created: now,
        state: InstanceState::Pending,
    }
}

/// The claim of a host, on condition that the host is as it was read.
fn patch(
    request: &LaunchRequest,
    choice: &Choice,
    host: &ByoHost,
    key: &Key,
    instance: &Instance,
    now: millpond_api::time::Time,
) -> serde_json::Value {
    let mut labels = request.labels.clone();
    labels.extend(choice.labels());
    let joining = Joining {
        uid: request.token.clone(),
        cluster: CLUSTER.to_owned(),
        mode: JoinMode::TlsBootstrap,
        labels,
        taints: request.taints.clone(),
        ..Joining::default()
    };
    let mut patch = claim_patch(host, key, &joining, now);
    let record = Record { instance: instance.clone(), kubelet: request.class.spec.kubelet.clone() };
    let (served, tokens) = record::with_served(host, &request.token);
    patch["metadata"]["labels"][NODE_CLAIM] = json!(label_value(&request.claim));
    patch["metadata"]["labels"][names::BYO_MACHINE] = json!(null);
    patch["metadata"]["annotations"] = json!({INSTANCE: json!(record).to_string(), served: tokens});
    patch
}

impl Provider for HostProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn create<'a>(&'a self, request: &'a LaunchRequest) -> BoxFuture<'a, Result<Launched, ProviderError>> {
        // A claim that has begun is written to its end, also when the caller gives up: the next call finds it.
        let (hosts, request) = (Arc::clone(&self.0), request.clone());
        async move { detached(async move { hosts.launch(&request).await }).await }.boxed()
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        let (hosts, id) = (Arc::clone(&self.0), id.to_owned());
        async move { detached(async move { hosts.end(&id).await }).await }.boxed()
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, ProviderError>> {
        std::future::ready(self.0.host(id).map(|(_, record)| record.instance)).boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        let listed = if self.0.stock.is_hosts_ready() {
            let hosts = self.0.stock.hosts.list();
            Ok(hosts.iter().filter_map(|host| record::of(host)).map(|record| record.instance).collect())
        } else if self.0.stock.hosts.is_absent() {
            // A cluster without the kind has no hosts. An error would hold up claims whose provider is not known.
            Ok(Vec::new())
        } else {
            Err(not_ready("the hosts were not listed yet".to_owned()))
        };
        std::future::ready(listed).boxed()
    }

    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        self.0.catalog(class).map(Arc::new)
    }

    fn catalog_changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.0.changes.subscribe())
    }

    fn drifted<'a>(
        &'a self,
        instance: &'a Instance,
        class: &'a NodeClass,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        // A host whose labels no longer match stays where it is, as hosts of machines do.
        let drift = self.0.of_class(class).and_then(|_| self.0.host(&instance.id)).map(|(_, record)| {
            let is_other = record.kubelet != class.spec.kubelet;
            is_other.then(|| "KubeletDrift".to_owned())
        });
        std::future::ready(drift).boxed()
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        let unready = |status: &str| RepairPolicy {
            condition: "Ready".to_owned(),
            status: status.to_owned(),
            toleration: REPAIR_AFTER,
        };
        vec![unready("False"), unready("Unknown")]
    }

    fn events(&self) -> Option<broadcast::Receiver<InstanceEvent>> {
        None
    }
}

/// Runs to its end, whatever becomes of the caller.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, ProviderError>> + Send + 'static,
) -> Result<T, ProviderError> {
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|_| Err(ProviderError::Other { message: "the process is being stopped".to_owned() }))
}

fn not_ready(message: String) -> ProviderError {
    ProviderError::NotReady { message }
}

fn not_found(message: String) -> ProviderError {
    ProviderError::NotFound { message }
}

/// The API server refused a write, or another writer was first.
fn failed(error: &Error) -> ProviderError {
    let message = match error.status() {
        Some(status) => format!("{error}: {}", status.message),
        None => error.to_string(),
    };
    match error.status() {
        Some(status) if status.is_forbidden() => ProviderError::Denied { message },
        _ => ProviderError::Other { message },
    }
}
