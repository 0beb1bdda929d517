//! A provider whose calls fail unless this process leads.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use millpond_api::catalog::Catalog;
use millpond_api::node_class::NodeClass;
use millpond_providers::{Instance, InstanceEvent, LaunchRequest, Launched, Provider, ProviderError, RepairPolicy};
use tokio::sync::broadcast;

use crate::leader::Leadership;

/// Checks the leadership before every call that changes something.
pub(crate) struct LeaderProvider {
    provider: Arc<dyn Provider>,
    leadership: Leadership,
}

impl LeaderProvider {
    pub(crate) fn new(provider: Arc<dyn Provider>, leadership: Leadership) -> Self {
        Self { provider, leadership }
    }

    /// Makes the call, or refuses it. The check is made when the call is first polled, not when it is prepared.
    fn guard<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce() -> BoxFuture<'a, Result<T, ProviderError>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, ProviderError>> {
        async move {
            if self.leadership.holds() {
                return call().await;
            }
            let message = "this controller could not renew its lease, and may lead no more".to_owned();
            Err(ProviderError::Fenced { seen: None, message })
        }
        .boxed()
    }
}

impl Provider for LeaderProvider {
    fn name(&self) -> &'static str {
        self.provider.name()
    }

    fn begin_term(&self, term: u64) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.provider.begin_term(term)
    }

    fn cloud_id(&self) -> Option<String> {
        self.provider.cloud_id()
    }

    fn create<'a>(&'a self, request: &'a LaunchRequest) -> BoxFuture<'a, Result<Launched, ProviderError>> {
        self.guard(move || self.provider.create(request))
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.guard(move || self.provider.delete(id))
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, ProviderError>> {
        self.provider.get(id)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        self.provider.list()
    }

    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        self.provider.catalog(class)
    }

    fn take_catalogs(&self, catalogs: &[Arc<Catalog>]) {
        self.provider.take_catalogs(catalogs);
    }

    fn drifted<'a>(
        &'a self,
        instance: &'a Instance,
        class: &'a NodeClass,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        self.provider.drifted(instance, class)
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.provider.repair_policies()
    }

    fn events(&self) -> Option<broadcast::Receiver<InstanceEvent>> {
        self.provider.events()
    }
}
