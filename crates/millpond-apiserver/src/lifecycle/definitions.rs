//! The life of CRDs: what they define is served as soon as they are written; what is left of it is deleted with them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Work, delete_quietly, internal_call, resource_of};
use crate::clock::rfc3339;
use crate::crd;
use crate::handlers::call::Call;
use crate::handlers::delete::Options;
use crate::handlers::update::{Changed, Part, change};
use crate::server::Server;
use crate::store::StoredObject;

/// The collection of CRDs.
pub(crate) const COLLECTION: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Keeps a CRD until its instances are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Before a CRD is written: its names are accepted or not, and it is established at once.
pub(crate) fn on_write(call: &Call, definition: &mut Value, old: Option<&Value>) {
    let now = rfc3339(call.server.clock.now());
    crd::prepare(definition, old, &others(&call.server, definition), &now);
    if old.is_none() {
        definition["metadata"]["finalizers"] = json!([CLEANUP]);
    }
}

/// Warnings about a valid CRD for its author.
pub(crate) fn warnings(definition: &Value, old: Option<&Value>) -> Vec<String> {
    crd::warnings(definition, old)
}

/// All other CRDs, to find conflicts of names.
fn others(server: &Server, definition: &Value) -> Vec<Value> {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let listing = server.store.list(COLLECTION, "", None, 0, |_, key| key != name);
    listing.items.into_iter().map(|(_, object)| object.to_value()).collect()
}

/// After a CRD was written or removed: serves what the stored one defines.
pub(crate) fn after_write(server: &Server, object: &StoredObject) {
    let definition = object.to_value();
    refresh(server, definition["metadata"]["name"].as_str().unwrap_or_default());
}

fn refresh(server: &Server, name: &str) {
    server.registry.refresh(name, || {
        let definition = server.store.get(COLLECTION, name)?.to_value();
        match crd::resources(&definition) {
            Ok(resources) => Some(resources),
            Err(errors) => {
                let problem = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                tracing::error!(crd = name, problem, "a stored CRD cannot be served");
                None
            }
        }
    });
}

/// Serves what the stored CRDs define.
pub(crate) fn register_stored(server: &Server) {
    for (key, _) in server.store.list(COLLECTION, "", None, 0, |_, _| true).items {
        refresh(server, &key);
    }
}

/// A CRD is being deleted: deletes its instances, then lets it go.
pub(super) fn clean_up(work: &mut Work, name: Arc<str>) {
    let instances = work.server.store.list(&name, "", None, 0, |_, _| true).items;
    let unreadable = work.server.store.set_aside_keys(&name, "");
    if instances.is_empty() && unreadable.is_empty() {
        work.spawn(move |server| async move { let_go(&server, &name).await });
        return;
    }
    let readable = instances.into_iter().filter_map(|(key, object)| (!object.index.deleting).then_some(key));
    for key in readable.chain(unreadable) {
        let collection = name.clone();
        work.spawn(move |server| async move {
            delete_quietly(&server, &collection, &key, &Options::default()).await;
        });
    }
}

/// An instance of some kind is gone: its CRD may have waited for that.
pub(super) fn after_instance_deleted(work: &mut Work, collection: &Arc<str>) {
    let waits = work.server.store.get(COLLECTION, collection).is_some_and(|definition| definition.index.deleting);
    if waits {
        clean_up(work, collection.clone());
    }
}

async fn let_go(server: &Arc<Server>, name: &str) {
    let Some(resource) = resource_of(server, COLLECTION) else { return };
    let mut call = internal_call(server, &resource, name);
    let result = change(&mut call, Part::Other("finalize"), |_, old| {
        let mut object = old.clone();
        let kept: Vec<Value> = object["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|f| *f != CLEANUP)
            .cloned()
            .collect();
        object["metadata"]["finalizers"] = json!(kept);
        Ok(Changed { object, precondition: None, track: false })
    })
    .await;
    if let Err(problem) = result
        && problem.reason != "NotFound"
    {
        tracing::warn!(%problem, crd = name, "cannot finish the deletion of the CRD");
    }
}
