//! The status of NodeClasses: whether they can be used (their provider is known, their settings are valid, their
//! catalogue exists), and which offerings are out of stock.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use millpond_api::catalog::{Catalog, config_map};
use millpond_api::condition::{Conditions, READY};
use millpond_api::meta::{Condition, Invalid};
use millpond_api::node_class::{LIMIT_UNAVAILABLE, UnavailableOffering};
use millpond_providers::ProviderError;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use millpond_state::objects::Kind as StateKind;

use crate::context::{Context, api_class};
use crate::kinds::NodeClass;
use crate::stock_outs::StockOut;

/// Changes of the stock are gathered for this long: forty launches that fail together cost a class one write.
const GATHER: Duration = Duration::from_secs(1);
/// A provider that does not know its catalogue yet is asked again after this long.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// A condition that another controller wrote on a class is left alone for this long.
const CONTRADICT_AFTER: Duration = Duration::from_secs(10);

/// Maintains the status of classes.
pub struct Classes {
    context: Arc<Context>,
}

impl Classes {
    /// Works on this cluster.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Enqueues a class whenever it changes, and all classes when the stock-outs change. Stock-outs in the status of a
    /// class that is seen for the first time are taken over: an earlier controller process recorded them.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) {
        let (classes, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.classes.on_change(move |before, after| {
            let (Some(context), Some(class)) = (weak.upgrade(), after) else { return };
            if before.is_none() {
                context.stock_outs.restore(&class.status.unavailable);
            }
            let generation = |class: &Arc<NodeClass>| class.metadata.generation;
            if before.map(generation) == Some(generation(class)) {
                // Only its status is another. If a second controller wrote it, which knows another stock, contradicting
                // it at once would never end.
                classes.add_after(Key::of(&**class), CONTRADICT_AFTER);
            } else {
                classes.add(Key::of(&**class));
            }
        });
        let (overlays, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.overlays.on_change(move |before, after| {
            if before.is_some() != after.is_some() {
                all(&weak, |class| overlays.add(class));
            }
        });
        let (catalogs, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.catalogs.on_change(move |_, _| all(&weak, |class| catalogs.add(class)));
        let provided = Arc::clone(queue);
        context.cluster.on_provided(move |class| provided.add(Key::new("", class)));
        let (stock, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.stock_outs.on_change(move || {
            all(&weak, |class| stock.add_after(class, GATHER));
        });
    }

    /// The catalogue, or the condition that says why there is none.
    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, Condition> {
        let of = api_class(class);
        if let Some(invalid) = of.validate().into_iter().next() {
            return Err(Condition::fails(READY, "ValidationFailed", invalid.to_string()));
        }
        let unknown = self.unreadable(class).or_else(|| self.unknown_overlay(class));
        if let Some(invalid) = unknown {
            return Err(Condition::fails(READY, "NotReady", invalid.to_string()));
        }
        let catalog = self.context.provider(class).and_then(|provider| provider.catalog(&of));
        catalog.map_err(|error| Condition::fails(READY, "NotReady", error.to_string()))
    }

    /// Whether the provider reports its own catalogue and does not know it yet.
    fn is_too_early(&self, class: &NodeClass) -> bool {
        self.context.provider(class).is_ok_and(|provider| {
            provider.catalog_changes().is_some()
                && matches!(provider.catalog(&api_class(class)), Err(ProviderError::Other { .. }))
        })
    }

    /// Why the catalogue that a class names is invalid, if it exists and cannot be read.
    fn unreadable(&self, class: &NodeClass) -> Option<Invalid> {
        let (cluster, name) = (&self.context.cluster, class.spec.catalog.as_deref()?);
        if cluster.own_catalogs().iter().any(|catalog| catalog.name == name) {
            return None;
        }
        let holds = |map: &Arc<ConfigMap>| map.labels().get(config_map::LABEL).is_some_and(|label| label == name);
        let map = cluster.catalogs.list().into_iter().find(holds)?;
        let invalid = cluster.refused(StateKind::ConfigMap, &Key::of(&*map))?;
        Some(Invalid::new("spec.catalog", format!("the ConfigMap `{}`: {invalid}", Key::of(&*map))))
    }

    fn unknown_overlay(&self, class: &NodeClass) -> Option<Invalid> {
        let cluster = &self.context.cluster;
        let of_cluster = cluster.overlays.list();
        let own = cluster.options.snapshot.overlays.iter().map(|overlay| overlay.name.as_str());
        class.spec.unknown_overlay(own.chain(of_cluster.iter().map(|overlay| overlay.name())))
    }
}

impl Reconcile for Classes {
    const NAME: &'static str = "classes";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(class) = cluster.classes.get(key) else { return Ok(None) };
        if self.is_too_early(&class) {
            // The condition stays as it is until the provider knows its catalogue.
            return Ok(Some(ASK_AGAIN));
        }
        let mut status = class.status.clone();
        let catalog = self.catalog(&class);
        status.instance_types = catalog.as_ref().ok().map(|catalog| catalog.types.len() as i64);
        status.unavailable = match &catalog {
            Ok(catalog) => unavailable(catalog, self.context.stock_outs.list()),
            Err(_) => Vec::new(),
        };
        let ready = catalog.map_or_else(|why| why, |_| Condition::holds(READY));
        let generation = class.metadata.generation.unwrap_or_default();
        Conditions::new(&mut status.conditions, &[], generation, cluster.now()).set(ready);
        if let Some(patch) = status_patch(&*class, Some(&class.status), &status) {
            cluster.classes.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}

/// Does something with each class.
fn all(context: &Weak<Context>, what: impl Fn(Key)) {
    let classes = context.upgrade().map(|context| context.cluster.classes.list()).unwrap_or_default();
    classes.iter().for_each(|class| what(Key::of(&**class)));
}

/// The offerings of a catalogue that are out of stock; if there are too many, those that are retried last.
fn unavailable(catalog: &Catalog, missing: Vec<StockOut>) -> Vec<UnavailableOffering> {
    let has = |missing: &StockOut| {
        let of = catalog.find(&missing.offering.instance_type);
        of.is_some_and(|of| {
            of.offerings.iter().any(|offering| {
                *offering.zone == *missing.offering.zone
                    && offering.capacity_type.name() == missing.offering.capacity_type
            })
        })
    };
    let mut missing: Vec<StockOut> = missing.into_iter().filter(has).collect();
    missing.sort_by_key(|missing| Reverse(missing.until));
    missing.truncate(LIMIT_UNAVAILABLE);
    missing.sort_by(|a, b| a.offering.cmp(&b.offering));
    missing.iter().map(StockOut::to_status).collect()
}

#[cfg(test)]
mod tests {
    use millpond_api::catalog::built_in;
    use millpond_api::time::Time;
    use millpond_providers::OfferingKey;

    use super::*;

    #[test]
    fn a_class_tells_of_its_own_catalogue_and_not_of_everything() {
        let catalog = built_in("kwok").unwrap();
        let all = catalog.types.iter().flat_map(|of| {
            let offerings = of.offerings.iter();
            offerings.map(|one| OfferingKey::new(&*of.name, &*one.zone, one.capacity_type.name()))
        });
        let missing =
            |offering: OfferingKey, until| StockOut { offering, failures: 2, wait: Duration::ZERO, until: Time(until) };
        let mut known: Vec<StockOut> =
            all.zip(0..).take(300).map(|(offering, until)| missing(offering, until)).collect();
        known.push(missing(OfferingKey::new("m5.large", "us-east-1a", "spot"), 1000));
        let told = unavailable(catalog, known);
        assert_eq!(told.len(), LIMIT_UNAVAILABLE);
        assert!(
            told.iter().all(|one| one.until.0 >= 200 && one.until.0 < 300),
            "those that end last, of this catalogue"
        );
        assert!(told.is_sorted_by_key(|one| (one.instance_type.clone(), one.zone.clone(), one.capacity_type.clone())));
        assert_eq!(told[0].failures, 2);
    }
}
