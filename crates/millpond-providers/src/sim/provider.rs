//! The simulated cloud as a [`Provider`].

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use millpond_api::catalog::{CapacityType, Catalog, CatalogSet};
use millpond_api::meta::Invalid;
use millpond_api::node_class::NodeClass;
use millpond_api::sim_script::Verb;
use millpond_runtime::clock::Clock;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::broadcast;

use super::calls;
use super::cloud::Cloud;
use crate::{Instance, InstanceEvent, LaunchRequest, Launched, OfferingKey, Provider, ProviderError, RepairPolicy};

/// The word in `spec.provider` of a NodeClass.
pub const NAME: &str = "sim";

/// How long a node may be unready before its machine counts as broken.
const REPAIR_AFTER: Duration = Duration::from_secs(600);

/// The simulated cloud as a provider. See the [module](super).
pub struct SimProvider {
    pub(super) cloud: Arc<Cloud>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    shelf: Mutex<CatalogSet>,
    /// The term that calls are of.
    term: Mutex<Option<u64>>,
    /// Held by the task that syncs on behalf of all waiting tasks.
    syncing: tokio::sync::Mutex<()>,
}

impl SimProvider {
    /// A provider of a cloud's instances, whose nodes are made through the client.
    pub fn new(cloud: Arc<Cloud>, client: Client, clock: Clock) -> Self {
        let (shelf, term, syncing) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { cloud, client, clock, shelf, term, syncing }
    }

    /// With own catalogues.
    pub fn with_shelf(self, shelf: CatalogSet) -> Self {
        self.set_shelf(shelf);
        self
    }

    /// Takes other catalogues from now on.
    pub fn set_shelf(&self, shelf: CatalogSet) {
        *self.shelf.lock() = shelf;
    }

    /// The cloud behind it.
    pub fn cloud(&self) -> &Arc<Cloud> {
        &self.cloud
    }

    /// One call to the cloud, with the faults that its script has for it.
    ///
    /// A slow call spends half of its time on the way to the cloud and half on the way back: a caller that gives up in the
    /// meantime does not know on which.
    async fn call<R>(
        &self,
        verb: Verb,
        class: Option<&str>,
        perform: impl FnOnce(&Cloud, Option<u64>, Timestamp) -> Result<R, ProviderError>,
    ) -> Result<R, ProviderError> {
        // A slow call arrives with the number that it was sent with.
        let term = *self.term.lock();
        let fault = self.cloud.begin(verb, class, self.clock.now());
        travel(fault.delay / 2).await;
        let result = match fault.error {
            Some(error) => Err(error),
            None => {
                let answer = perform(&self.cloud, term, self.clock.now());
                self.settle().await.and(answer)
            }
        };
        travel(fault.delay - fault.delay / 2).await;
        if fault.lost {
            let message = format!("no answer to `{}`: it may have been done", calls::name(verb));
            return Err(ProviderError::Other { message });
        }
        result
    }

    /// Waits until what was done, or seen, survives a power cut; others may go on meanwhile.
    async fn settle(&self) -> Result<(), ProviderError> {
        if self.cloud.is_durable() {
            return Ok(());
        }
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return self.cloud.sync();
        }
        let _turn = self.syncing.lock().await;
        if self.cloud.is_durable() {
            return Ok(());
        }
        let cloud = Arc::clone(&self.cloud);
        let synced = tokio::task::spawn_blocking(move || cloud.sync()).await;
        synced.unwrap_or_else(|_| Err(ProviderError::Other { message: "the cloud is being stopped".to_owned() }))
    }

    fn catalog_of(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        self.shelf.lock().of_class(class).cloned().map_err(|invalid| not_ready(&invalid))
    }

    /// The catalogue of a usable class. Also applies the class's script to the cloud.
    fn usable(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        if let Some(other) = class.spec.provider.as_deref().filter(|name| *name != NAME) {
            let message = format!("spec.provider: `{other}` is not `{NAME}`");
            return Err(ProviderError::NotReady { message });
        }
        let catalog = self.catalog_of(class)?;
        if let Some(script) = &class.spec.sim {
            let wrong =
                script.validate("spec.sim").into_iter().chain(script.unknown_names("spec.sim", &catalog)).next();
            if let Some(invalid) = wrong {
                return Err(not_ready(&invalid));
            }
        }
        self.cloud.set_class(class, self.clock.now())?;
        Ok(catalog)
    }
}

impl Provider for SimProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn begin_term(&self, term: u64) -> BoxFuture<'_, Result<(), ProviderError>> {
        async move {
            let begun = self.cloud.begin_term(term);
            self.settle().await.and(begun)?;
            *self.term.lock() = Some(term);
            Ok(())
        }
        .boxed()
    }

    fn cloud_id(&self) -> Option<String> {
        Some(self.cloud.id())
    }

    fn create<'a>(&'a self, request: &'a LaunchRequest) -> BoxFuture<'a, Result<Launched, ProviderError>> {
        async move {
            let catalog = self.usable(&request.class)?;
            let class = Some(request.class.metadata.name.as_str());
            let most = |offering: &OfferingKey| most(&catalog, offering);
            self.call(Verb::Create, class, |cloud, term, now| cloud.launch(request, most, term, now)).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.call(Verb::Delete, class_of(id), move |cloud, term, now| cloud.end(id, term, now)).boxed()
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, ProviderError>> {
        self.call(Verb::Get, class_of(id), move |cloud, term, now| cloud.find(id, term, now)).boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        self.call(Verb::List, None, Cloud::find_all).boxed()
    }

    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        self.usable(class)
    }

    fn take_catalogs(&self, catalogs: &[Arc<Catalog>]) {
        self.shelf.lock().catalogs = catalogs.to_vec();
    }

    fn drifted<'a>(
        &'a self,
        instance: &'a Instance,
        class: &'a NodeClass,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        async move {
            self.usable(class)?;
            if instance.image != self.cloud.image(&class.metadata.name) {
                return Ok(Some("ImageDrift".to_owned()));
            }
            let record = self.cloud.record(&instance.id);
            let changed = record.is_some_and(|record| record.kubelet != class.spec.kubelet);
            Ok(changed.then(|| "KubeletDrift".to_owned()))
        }
        .boxed()
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
        Some(self.cloud.subscribe())
    }
}

/// The delay to or from the cloud. Even the fastest call can be cancelled there.
async fn travel(time: Duration) {
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}

/// The class in a provider id.
fn class_of(id: &str) -> Option<&str> {
    id.strip_prefix("sim://")?.split_once('/').map(|(class, _)| class)
}

/// How many of an offering there are, where that is limited: as many as are reserved, and none of what is not in the
/// catalogue or is unavailable there.
fn most(catalog: &Catalog, offering: &OfferingKey) -> Option<u32> {
    let of = catalog.find(&offering.instance_type);
    let found = of.and_then(|of| {
        of.offerings.iter().find(|it| *it.zone == *offering.zone && it.capacity_type.name() == offering.capacity_type)
    });
    match found.filter(|found| found.available) {
        None => Some(0),
        Some(found) if found.capacity_type == CapacityType::Reserved => found.reservation_count,
        Some(_) => None,
    }
}

fn not_ready(invalid: &Invalid) -> ProviderError {
    ProviderError::NotReady { message: invalid.to_string() }
}
