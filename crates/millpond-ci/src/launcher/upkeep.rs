//! What is asked of providers from time to time: their own limits, and instances that belong to no node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::act::delete_instance;
use super::run::Context;
use crate::driver::Driver;

/// Between two looks at a provider. An instance is deleted when two in a row find it without a node, so this is longer
/// than any record takes to be seen.
const INTERVAL: Duration = Duration::from_secs(60);

/// Works until the launcher ends.
pub(super) async fn run(context: Arc<Context>) {
    let mut suspects: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    loop {
        let drivers = Arc::clone(&context.current.lock().drivers);
        let working =
            drivers.iter().filter_map(|(name, driver)| Some((name.clone(), Arc::clone(driver.as_ref().ok()?))));
        for (provider, driver) in working {
            limits(&context, &provider, &*driver).await;
            sizes(&context, &provider, &*driver).await;
            let seen = suspects.entry(provider.clone()).or_default();
            leaks(&context, &provider, &driver, seen).await;
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = context.reconfigured.notified() => {}
            () = context.ends.cancelled() => return,
        }
    }
}

async fn limits(context: &Context, provider: &str, driver: &dyn Driver) {
    match driver.limits().await {
        Ok(limits) => {
            let before = context.limits.lock().insert(provider.to_owned(), limits.clone());
            if before.unwrap_or_default() != limits {
                context.told.notify_one();
            }
        }
        Err(error) => tracing::warn!(provider, %error, "the provider does not tell its limits"),
    }
}

async fn sizes(context: &Context, provider: &str, driver: &dyn Driver) {
    match driver.sizes().await {
        Ok(sizes) => {
            let before = context.sizes.lock().insert(provider.to_owned(), sizes.clone());
            if before.unwrap_or_default() != sizes {
                context.told.notify_one();
            }
        }
        Err(error) => tracing::warn!(provider, %error, "the provider does not tell the sizes of its nodes"),
    }
}

/// Deletes instances that had no node twice in a row.
async fn leaks(context: &Arc<Context>, provider: &str, driver: &Arc<dyn Driver>, suspects: &mut BTreeSet<String>) {
    // Listed before the records are looked at: a node's record is there before its instance.
    let instances = match driver.list().await {
        Ok(instances) => instances,
        Err(error) => return tracing::warn!(provider, %error, "the provider does not list its instances"),
    };
    let records = context.backend.records();
    let leads = records.ours.keys().any(|(name, _)| name == provider);
    if !records.is_complete || !leads {
        return suspects.clear();
    }
    let without_node = instances.into_iter().filter(|instance| !records.nodes.contains_key(&instance.node_id));
    let mut found = BTreeSet::new();
    for instance in without_node {
        let key = instance.external_id.clone().unwrap_or_else(|| instance.node_id.clone());
        if suspects.contains(&key) {
            tracing::warn!(provider, instance = key, node = instance.node_id, "a leaked instance is deleted");
            *context.counters.lock().leaked.entry(provider.to_owned()).or_default() += 1;
            let driver = Arc::clone(driver);
            let ends = context.ends.clone();
            context.tasks.spawn(async move {
                tokio::select! {
                    () = delete_instance(&*driver, &instance) => {}
                    () = ends.cancelled() => {}
                }
            });
        } else {
            found.insert(key);
        }
    }
    *suspects = found;
}
