//! Providers that break one promise each: the suite finds it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use millpond_api::catalog::Catalog;
use millpond_api::node_class::NodeClass;
use millpond_providers::conformance::{Outcome, Stage, run};
use millpond_providers::sim::{Script, SimProvider};
use millpond_providers::{
    Choice, Instance, InstanceEvent, LaunchRequest, Launched, OfferingKey, Provider, ProviderError, RepairPolicy,
};
use tokio::sync::broadcast;

use crate::stage::SimStage;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// Every launch makes an instance.
    ForgetsTokens,
    /// It looks for the token and makes the instance in two steps.
    Hesitates,
    /// The last choice is tried first.
    Reverses,
    /// Only the last offering is named.
    NamesOne,
    /// What was tried in vain is kept quiet.
    HidesUnavailable,
    /// The end of what is not there is fine.
    DeleteIsAlwaysFine,
    /// The listing leaves one out.
    ListsAllButOne,
    /// The listing has no claims.
    ListsWithoutClaims,
    /// Types without stock are not in the catalogue.
    HidesTypes,
    /// Any catalogue will do.
    AnyCatalog,
    /// Nothing ever drifts.
    NeverDrifts,
    /// A gone token makes another instance.
    Resurrects,
}

struct Broken {
    sim: SimProvider,
    defect: Defect,
}

/// So that tokens are made different.
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Broken {
    fn with_other_token(request: &LaunchRequest) -> LaunchRequest {
        let token = format!("{}-{}", request.token, COUNT.fetch_add(1, Ordering::Relaxed));
        LaunchRequest { token, ..request.clone() }
    }

    /// Makes an instance that the caller knows by the token of its request.
    async fn create_other(&self, request: &LaunchRequest) -> Result<Launched, ProviderError> {
        let mut launched = self.sim.create(&Self::with_other_token(request)).await?;
        launched.instance.token.clone_from(&request.token);
        Ok(launched)
    }

    async fn list_by_caller(&self) -> Result<Vec<Instance>, ProviderError> {
        let mut all = self.sim.list().await?;
        if matches!(self.defect, Defect::ForgetsTokens | Defect::Hesitates | Defect::Resurrects) {
            for instance in &mut all {
                instance.token = format!("token-of-{}", instance.claim);
            }
        }
        Ok(all)
    }
}

impl Provider for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn begin_term(&self, term: u64) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.sim.begin_term(term)
    }

    fn create<'a>(&'a self, request: &'a LaunchRequest) -> BoxFuture<'a, Result<Launched, ProviderError>> {
        async move {
            match self.defect {
                Defect::ForgetsTokens => self.create_other(request).await,
                Defect::Hesitates => {
                    let found = self.list_by_caller().await?.into_iter().find(|it| it.token == request.token);
                    match found {
                        Some(instance) => Ok(Launched { instance, unavailable: Vec::new() }),
                        None => self.create_other(request).await,
                    }
                }
                Defect::Reverses => {
                    let choices = request.choices.iter().rev().cloned().collect();
                    self.sim.create(&LaunchRequest { choices, ..request.clone() }).await
                }
                Defect::NamesOne => self.sim.create(request).await.map_err(|error| match error {
                    ProviderError::CapacityUnavailable { mut offerings, message } => {
                        offerings.drain(..offerings.len().saturating_sub(1));
                        ProviderError::CapacityUnavailable { offerings, message }
                    }
                    other => other,
                }),
                Defect::HidesUnavailable => {
                    let launched = self.sim.create(request).await?;
                    Ok(Launched { unavailable: Vec::new(), ..launched })
                }
                Defect::Resurrects => match self.sim.create(request).await {
                    Err(ProviderError::NotFound { .. }) => self.create_other(request).await,
                    other => other,
                },
                _ => self.sim.create(request).await,
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        async move {
            match self.sim.delete(id).await {
                Err(ProviderError::NotFound { .. }) if self.defect == Defect::DeleteIsAlwaysFine => Ok(()),
                other => other,
            }
        }
        .boxed()
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, ProviderError>> {
        self.sim.get(id)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        async {
            let mut all = self.list_by_caller().await?;
            match self.defect {
                Defect::ListsAllButOne if all.len() > 4 => _ = all.pop(),
                Defect::ListsWithoutClaims => all.iter_mut().for_each(|instance| instance.claim.clear()),
                _ => {}
            }
            Ok(all)
        }
        .boxed()
    }

    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        match self.defect {
            Defect::AnyCatalog => {
                let mut class = class.clone();
                class.spec.catalog = None;
                self.sim.catalog(&class)
            }
            Defect::HidesTypes => {
                let mut catalog = Catalog::clone(&*self.sim.catalog(class)?);
                let out: BTreeSet<String> =
                    self.sim.cloud().script().stock_outs.into_iter().map(|rule| rule.instance_type.0).collect();
                catalog.types.retain(|of| !out.contains(&of.name));
                Ok(Arc::new(catalog))
            }
            _ => self.sim.catalog(class),
        }
    }

    fn drifted<'a>(
        &'a self,
        instance: &'a Instance,
        class: &'a NodeClass,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        match self.defect {
            Defect::NeverDrifts => async { Ok(None) }.boxed(),
            _ => self.sim.drifted(instance, class),
        }
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.sim.repair_policies()
    }

    fn events(&self) -> Option<broadcast::Receiver<InstanceEvent>> {
        self.sim.events()
    }
}

struct BrokenStage {
    inner: SimStage,
    defect: Defect,
}

impl Stage for BrokenStage {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(Broken { sim: self.inner.sim(), defect: self.defect })
    }

    fn class(&self) -> NodeClass {
        self.inner.class()
    }

    fn choices(&self) -> Vec<Choice> {
        self.inner.choices()
    }

    fn restarted(&self) -> BoxFuture<'_, Arc<dyn Provider>> {
        async { self.provider() }.boxed()
    }

    fn run_out<'a>(&'a self, offerings: &'a [OfferingKey]) -> BoxFuture<'a, bool> {
        self.inner.run_out(offerings)
    }

    fn drifted_class(&self) -> Option<NodeClass> {
        self.inner.drifted_class()
    }
}

#[tokio::test(start_paused = true)]
async fn each_broken_promise_is_found() {
    for (defect, found) in [
        (Defect::ForgetsTokens, "a second launch with the same token gives the same instance"),
        (Defect::Hesitates, "launches with one token at the same time give one instance"),
        (Defect::Reverses, "a launch gives an instance of the first choice, with token, claim and class"),
        (Defect::NamesOne, "when nothing is available, every choice is named"),
        (Defect::HidesUnavailable, "choices are tried in their order, and unavailable ones are named"),
        (Defect::DeleteIsAlwaysFine, "the end of what was never there is `NotFound`"),
        (Defect::ListsAllButOne, "every instance is listed once"),
        (Defect::ListsWithoutClaims, "every instance is listed once"),
        (Defect::HidesTypes, "the catalogue has types that are out of stock"),
        (Defect::AnyCatalog, "an unknown catalogue is `NotReady`, with a hint"),
        (Defect::NeverDrifts, "a fresh instance has not drifted, and drifts when its class changes"),
        (Defect::Resurrects, "a token whose instance is gone makes no other one"),
    ] {
        let checks = run(async || BrokenStage { inner: SimStage::in_memory(&Script::default()), defect }).await;
        let broken: Vec<&str> =
            checks.iter().filter(|check| matches!(check.outcome, Outcome::Broken(_))).map(|check| check.name).collect();
        assert!(broken.contains(&found), "{defect:?} is not found by `{found}`: {broken:?}");
    }
}
