//! Controllers that panic: a key is tried again, a loop is started again, and one that panics again and again is given up, so
//! that its process can end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use millpond_api::catalog::Catalog;
use millpond_api::node_class::NodeClass;
use millpond_controllers::metrics;
use millpond_providers::{Instance, InstanceEvent, LaunchRequest, Launched, Provider, ProviderError, RepairPolicy};
use serde_json::json;
use tokio::sync::broadcast;

use crate::basin::Basin;
use crate::disruption::apart;

/// A provider whose first calls panic.
struct Shaky {
    provider: Arc<dyn Provider>,
    creates: AtomicUsize,
    lists: AtomicUsize,
}

impl Shaky {
    fn on(provider: Arc<dyn Provider>, creates: usize, lists: usize) -> Arc<dyn Provider> {
        Arc::new(Self { provider, creates: AtomicUsize::new(creates), lists: AtomicUsize::new(lists) })
    }
}

fn panic_while(left: &AtomicUsize) {
    let one_less = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    assert!(one_less.is_err(), "on purpose");
}

impl Provider for Shaky {
    fn name(&self) -> &'static str {
        self.provider.name()
    }

    fn cloud_id(&self) -> Option<String> {
        self.provider.cloud_id()
    }

    fn create<'a>(&'a self, request: &'a LaunchRequest) -> BoxFuture<'a, Result<Launched, ProviderError>> {
        panic_while(&self.creates);
        self.provider.create(request)
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.provider.delete(id)
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, ProviderError>> {
        self.provider.get(id)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        panic_while(&self.lists);
        self.provider.list()
    }

    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        self.provider.catalog(class)
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

async fn pond(provider: fn(Arc<dyn Provider>) -> Arc<dyn Provider>) -> Basin {
    let mut basin = Basin::without_controllers().await;
    basin.hire_with(provider);
    basin.class("default", json!({})).await;
    basin.pool("default", json!({})).await;
    basin
}

#[tokio::test(start_paused = true)]
async fn claims_whose_work_panics_are_tried_again() {
    let basin = pond(|provider| Shaky::on(provider, 6, 0)).await;
    basin.deployment("web", 3, "1", apart("web")).await;
    basin.until_running("web", 3).await;
    assert_eq!(basin.instances().len(), 3, "each claim has one machine");
    let scraped = metrics::text(basin.context());
    let line = "controller_runtime_reconcile_panics_total{controller=\"claims\"}";
    assert!(scraped.contains(line), "{scraped}");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_panics_goes_on() {
    let basin = pond(|provider| Shaky::on(provider, 0, 3)).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    basin.pass(Duration::from_mins(10)).await;
    assert!(basin.cluster().supervisor.given_up().is_none());
    // The collector works: a machine whose claim is gone is found.
    let machine = basin.instances().pop().expect("it runs");
    basin.patch("karpenter.sh/v1", "NodeClaim", &machine.claim, json!({"metadata": {"finalizers": null}})).await;
    basin.delete("karpenter.sh/v1", "NodeClaim", &machine.claim).await;
    basin.until("it is collected", |_| basin.instances().iter().all(|one| one.id != machine.id)).await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_panics_again_and_again_is_given_up() {
    let basin = pond(|provider| Shaky::on(provider, 0, usize::MAX)).await;
    let failed = tokio::time::timeout(Duration::from_mins(2), basin.failed()).await;
    assert_eq!(failed.expect("in time"), ("garbage collection", "on purpose".to_owned()));
    assert_eq!(basin.cluster().supervisor.restarts(), [("garbage collection", 5)]);
}
