//! A provider wrapper that counts and times calls.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use millpond_api::catalog::Catalog;
use millpond_api::node_class::NodeClass;
use millpond_providers::{Instance, InstanceEvent, LaunchRequest, Launched, Provider, ProviderError, RepairPolicy};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::Metrics;

/// Forwards every call and counts it.
pub(crate) struct Measured {
    provider: Arc<dyn Provider>,
    metrics: Arc<Metrics>,
}

impl Measured {
    pub(crate) fn new(provider: Arc<dyn Provider>, metrics: Arc<Metrics>) -> Self {
        Self { provider, metrics }
    }

    fn measure<'a, T: Send + 'a>(
        &'a self,
        method: &'static str,
        call: BoxFuture<'a, Result<T, ProviderError>>,
    ) -> BoxFuture<'a, Result<T, ProviderError>> {
        async move {
            let begun = Instant::now();
            let outcome = call.await;
            let error = outcome.as_ref().err().map(error_name);
            self.metrics.provider_called(self.provider.name(), method, begun.elapsed(), error);
            outcome
        }
        .boxed()
    }
}

/// Karpenter's name of the error in its `error` label, if it has one.
fn error_name(error: &ProviderError) -> &'static str {
    match error {
        ProviderError::CapacityUnavailable { .. } => "InsufficientCapacityError",
        ProviderError::NotFound { .. } => "NodeClaimNotFoundError",
        ProviderError::NotReady { .. } => "NodeClassNotReadyError",
        ProviderError::Quota { .. } => "QuotaError",
        ProviderError::Throttled { .. } => "ThrottledError",
        ProviderError::Denied { .. } => "DeniedError",
        ProviderError::Fenced { .. } => "NotLeadingError",
        ProviderError::Other { .. } => "",
    }
}

impl Provider for Measured {
    fn name(&self) -> &'static str {
        self.provider.name()
    }

    fn scheme(&self) -> &'static str {
        self.provider.scheme()
    }

    fn begin_term(&self, term: u64) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.provider.begin_term(term)
    }

    fn cloud_id(&self) -> Option<String> {
        self.provider.cloud_id()
    }

    fn create<'a>(&'a self, request: &'a LaunchRequest) -> BoxFuture<'a, Result<Launched, ProviderError>> {
        self.measure("Create", self.provider.create(request))
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.measure("Delete", self.provider.delete(id))
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, ProviderError>> {
        self.measure("Get", self.provider.get(id))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        self.measure("List", self.provider.list())
    }

    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        self.provider.catalog(class)
    }

    fn catalog_changes(&self) -> Option<watch::Receiver<u64>> {
        self.provider.catalog_changes()
    }

    fn take_catalogs(&self, catalogs: &[Arc<Catalog>]) {
        self.provider.take_catalogs(catalogs);
    }

    fn drifted<'a>(
        &'a self,
        instance: &'a Instance,
        class: &'a NodeClass,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        self.measure("IsDrifted", self.provider.drifted(instance, class))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.provider.repair_policies()
    }

    fn events(&self) -> Option<broadcast::Receiver<InstanceEvent>> {
        self.provider.events()
    }
}
