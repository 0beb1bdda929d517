//! The life of namespaces: each has a default service account; one that ends takes its content along.

use std::sync::Arc;

use serde_json::json;

use super::{Work, delete_quietly, internal_call, resource_of};
use crate::handlers::create;
use crate::handlers::delete::Options;
use crate::handlers::update::{Changed, Part, change};
use crate::server::Server;

/// Makes sure that a namespace has what pods expect.
pub(super) fn furnish(work: &mut Work, namespace: Arc<str>) {
    let key = format!("{namespace}/default");
    if work.server.store.get("serviceaccounts", &key).is_some() {
        return;
    }
    work.spawn(move |server| async move {
        let Some(resource) = resource_of(&server, "serviceaccounts") else { return };
        let mut call = internal_call(&server, &resource, &key);
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": &*namespace},
        });
        match create::create_object(&mut call, account, true).await {
            Err(problem) if !matches!(problem.reason, "AlreadyExists" | "Forbidden" | "NotFound") => {
                tracing::warn!(%problem, namespace = &*namespace, "cannot create the default service account");
            }
            _ => {}
        }
    });
}

/// Deletes what a namespace holds; the namespace itself goes with the last object.
pub(super) fn end(work: &mut Work, namespace: Arc<str>) {
    let content = content(&work.server, &namespace);
    if content.is_empty() {
        work.spawn(move |server| async move { finalize(&server, &namespace).await });
        return;
    }
    for (collection, key) in
        content.into_iter().filter_map(|(collection, key, deleting)| (!deleting).then_some((collection, key)))
    {
        work.spawn(move |server| async move {
            delete_quietly(&server, &collection, &key, &Options::default()).await;
        });
    }
}

/// Every object in a namespace, and whether it is on its way out already.
fn content(server: &Server, namespace: &str) -> Vec<(Arc<str>, Arc<str>, bool)> {
    let resources = server.registry.current();
    let prefix = format!("{namespace}/");
    let mut collections: Vec<Arc<str>> =
        resources.preferred().filter(|resource| resource.namespaced).map(|resource| resource.storage.clone()).collect();
    collections.sort();
    collections.dedup();
    let mut content = Vec::new();
    for collection in collections {
        let listing = server.store.list(&collection, &prefix, None, 0, |_, _| true);
        content.extend(listing.items.into_iter().map(|(key, object)| (collection.clone(), key, object.index.deleting)));
        let unreadable = server.store.set_aside_keys(&collection, &prefix);
        content.extend(unreadable.into_iter().map(|key| (collection.clone(), key, false)));
    }
    content
}

async fn finalize(server: &Arc<Server>, namespace: &str) {
    let Some(resource) = resource_of(server, "namespaces") else { return };
    let mut call = internal_call(server, &resource, namespace);
    let result = change(&mut call, Part::Other("finalize"), |_, old| {
        let mut object = old.clone();
        let finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        let others: Vec<_> = finalizers.into_iter().filter(|finalizer| finalizer != "kubernetes").collect();
        object["spec"]["finalizers"] = json!(others);
        Ok(Changed { object, precondition: None, track: false })
    })
    .await;
    if let Err(problem) = result
        && problem.reason != "NotFound"
    {
        tracing::warn!(%problem, namespace, "cannot finalize the namespace");
    }
}
