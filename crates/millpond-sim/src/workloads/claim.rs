//! Ownership: adopts objects that a selector matches, releases those that it no longer matches.

use std::sync::Arc;

use serde_json::json;

use crate::error::Result;
use crate::kinds::Kind;
use crate::meta::{Key, controller_reference, is_leaving};
use crate::mirror::Mirror;
use crate::scheduler::fit::labels::{Labels, Selector};

/// The objects that `owner` controls after adopting and releasing.
///
/// Objects that are not `eligible` (such as pods that have ended) are neither adopted, released
/// nor returned. An owner that is being deleted leaves everything as it is.
pub async fn claim<O: Kind, K: Kind>(
    mirror: &Mirror<K>,
    owner: &O,
    selector: &Selector,
    eligible: impl Fn(&K) -> bool,
) -> Result<Vec<Arc<K>>> {
    let uid = owner.meta().uid.as_deref().unwrap_or_default();
    let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
    let mut claimed = Vec::new();
    for object in mirror.owned_by(uid) {
        if !eligible(&object) {
            continue;
        }
        if selects(selector, &*object) {
            claimed.push(object);
        } else if !is_leaving(owner) {
            unless_gone(release(mirror, &*object, uid).await)?;
        }
    }
    if is_leaving(owner) {
        return Ok(claimed);
    }
    for object in mirror.ownerless(namespace) {
        if eligible(&object) && !is_leaving(&*object) && selects(selector, &*object) {
            claimed.extend(unless_gone(adopt(mirror, &*object, owner).await)?);
        }
    }
    claimed.sort_by_key(|object| Key::of(&**object));
    Ok(claimed)
}

fn selects<K: Kind>(selector: &Selector, object: &K) -> bool {
    match &object.meta().labels {
        Some(labels) => selector.matches(labels),
        None => selector.matches(&Labels::new()),
    }
}

async fn adopt<O: Kind, K: Kind>(mirror: &Mirror<K>, object: &K, owner: &O) -> Result<Arc<K>> {
    let mut owners = object.meta().owner_references.clone().unwrap_or_default();
    owners.push(controller_reference(owner));
    set_owners(mirror, object, &json!(owners)).await
}

async fn release<K: Kind>(mirror: &Mirror<K>, object: &K, uid: &str) -> Result<Arc<K>> {
    let mut owners = object.meta().owner_references.clone().unwrap_or_default();
    owners.retain(|owner| owner.uid != uid);
    set_owners(mirror, object, &json!(owners)).await
}

async fn set_owners<K: Kind>(mirror: &Mirror<K>, object: &K, owners: &serde_json::Value) -> Result<Arc<K>> {
    let meta = object.meta();
    let patch = json!({"metadata": {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "ownerReferences": owners,
    }});
    mirror.patch(&Key::of(object), &patch).await
}

/// An object that went away meanwhile needs no owner.
fn unless_gone<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
