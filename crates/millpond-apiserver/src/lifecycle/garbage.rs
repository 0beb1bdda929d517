//! Garbage collection: deletes objects whose owners are gone, with an index from owner to dependents.
//!
//! The index follows the store's history, so it is as true as a read at that revision: no live look-ups and no
//! guesses about owners that are merely not seen yet.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Work, delete_quietly, internal_call, resource_of};
use crate::handlers::delete::{Options, Propagation};
use crate::handlers::update::{Changed, Part, change};
use crate::server::Server;
use crate::store::StoredObject;

type ObjectRef = (Arc<str>, Arc<str>);

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Who owns whom.
#[derive(Default)]
pub(super) struct Garbage {
    /// Uids of all objects there are.
    live: HashSet<Box<str>>,
    /// Owner uid → its dependents.
    dependents: HashMap<Box<str>, HashSet<ObjectRef>>,
    /// Dependent → uids of its owners, to undo the above.
    owners: HashMap<ObjectRef, Vec<Box<str>>>,
}

impl Garbage {
    /// Takes an object into the index.
    pub(super) fn learn(&mut self, collection: &Arc<str>, key: &Arc<str>, object: &StoredObject) {
        self.live.insert(object.index.uid.clone());
        let place = (collection.clone(), key.clone());
        let owners: Vec<Box<str>> = object.index.owners.iter().map(|owner| owner.uid.clone()).collect();
        if self.owners.get(&place).map(Vec::as_slice).unwrap_or_default() == owners.as_slice() {
            return;
        }
        self.unlink(&place);
        for owner in &owners {
            self.dependents.entry(owner.clone()).or_default().insert(place.clone());
        }
        if !owners.is_empty() {
            self.owners.insert(place, owners);
        }
    }

    /// Takes an object out of the index.
    pub(super) fn forget(&mut self, collection: &Arc<str>, key: &Arc<str>, object: &StoredObject) {
        self.live.remove(&object.index.uid);
        self.unlink(&(collection.clone(), key.clone()));
    }

    fn unlink(&mut self, place: &ObjectRef) {
        for owner in self.owners.remove(place).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&owner) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
    }

    /// Checks an existing object: whether it is garbage, or waits for its dependents.
    pub(super) fn consider(&self, work: &mut Work, collection: &Arc<str>, key: &Arc<str>, object: &Arc<StoredObject>) {
        if object.index.deleting && object.index.has_finalizers {
            self.consider_waiting(work, collection, key, object);
        } else if !object.index.deleting && !object.index.owners.is_empty() {
            self.consider_owned(work, collection, key, object);
        }
    }

    fn consider_owned(&self, work: &mut Work, collection: &Arc<str>, key: &Arc<str>, object: &StoredObject) {
        let absent: Vec<Box<str>> = object
            .index
            .owners
            .iter()
            .map(|owner| &owner.uid)
            .filter(|uid| !self.live.contains(*uid))
            .cloned()
            .collect();
        if absent.is_empty() {
            return;
        }
        let (collection, key) = (collection.clone(), key.clone());
        if absent.len() < object.index.owners.len() {
            work.spawn(move |server| async move { drop_owners(&server, &collection, &key, &absent).await });
        } else {
            let uid = object.index.uid.to_string();
            work.spawn(move |server| async move {
                // The uid guards against a new object under the same name.
                let options = Options { uid: Some(uid), ..Options::default() };
                delete_quietly(&server, &collection, &key, &options).await;
            });
        }
    }

    /// An object that is deleted with `orphan` lets its dependents go free; with `foregroundDeletion` it waits
    /// until those that block it are gone.
    fn consider_waiting(&self, work: &mut Work, collection: &Arc<str>, key: &Arc<str>, object: &Arc<StoredObject>) {
        let value = object.to_value();
        let has =
            |name: &str| value["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|f| f == name));
        let (collection, key, uid) = (collection.clone(), key.clone(), object.index.uid.clone());
        let dependents: Vec<ObjectRef> = self.dependents.get(&uid).into_iter().flatten().cloned().collect();
        if has(ORPHAN) {
            work.spawn(move |server| async move {
                for (collection, key) in &dependents {
                    drop_owners(&server, collection, key, std::slice::from_ref(&uid)).await;
                }
                drop_finalizer(&server, &collection, &key, ORPHAN).await;
            });
        } else if has(FOREGROUND) {
            let blocking: Vec<ObjectRef> =
                dependents.into_iter().filter(|place| blocks(&work.server, place, &uid)).collect();
            if blocking.is_empty() {
                work.spawn(move |server| async move { drop_finalizer(&server, &collection, &key, FOREGROUND).await });
                return;
            }
            for (collection, key) in blocking {
                delete_dependent(work, collection, key);
            }
        }
    }

    /// An object is gone: its dependents may be garbage now, and its owners may have waited for it.
    pub(super) fn after_deletion(&self, work: &mut Work, object: &StoredObject) {
        for place in self.dependents.get(&object.index.uid).into_iter().flatten() {
            if let Some(dependent) = work.server.store.get(&place.0, &place.1) {
                self.consider(work, &place.0, &place.1, &dependent);
            }
        }
        for owner in object.index.owners.iter().filter(|owner| owner.blocks_deletion) {
            if let Some((place, found)) = self.find(&work.server, &owner.uid) {
                self.consider(work, &place.0, &place.1, &found);
            }
        }
    }

    /// Finds an owner that waits; only waiting ones are looked for, and they are few.
    fn find(&self, server: &Server, uid: &str) -> Option<(ObjectRef, Arc<StoredObject>)> {
        if !self.live.contains(uid) {
            return None;
        }
        server.store.find_deleting(uid)
    }
}

fn blocks(server: &Server, place: &ObjectRef, owner: &str) -> bool {
    server.store.get(&place.0, &place.1).is_some_and(|dependent| {
        dependent.index.owners.iter().any(|reference| &*reference.uid == owner && reference.blocks_deletion)
    })
}

/// Deletes a dependent in the foreground too, so that a tree goes leaves first.
fn delete_dependent(work: &mut Work, collection: Arc<str>, key: Arc<str>) {
    if work.server.store.get(&collection, &key).is_none_or(|dependent| dependent.index.deleting) {
        return;
    }
    work.spawn(move |server| async move {
        let options = Options { propagation: Some(Propagation::Foreground), ..Options::default() };
        delete_quietly(&server, &collection, &key, &options).await;
    });
}

async fn drop_owners(server: &Arc<Server>, collection: &str, key: &str, uids: &[Box<str>]) {
    edit_metadata(server, collection, key, |metadata| {
        retain(metadata, "ownerReferences", |owner| !uids.iter().any(|uid| owner["uid"] == **uid));
    })
    .await;
}

async fn drop_finalizer(server: &Arc<Server>, collection: &str, key: &str, name: &str) {
    edit_metadata(server, collection, key, |metadata| retain(metadata, "finalizers", |finalizer| finalizer != name))
        .await;
}

fn retain(metadata: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    let kept: Vec<Value> = metadata[list].as_array().into_iter().flatten().filter(|item| keep(item)).cloned().collect();
    if kept.is_empty() {
        if let Value::Object(fields) = metadata {
            fields.remove(list);
        }
    } else {
        metadata[list] = json!(kept);
    }
}

async fn edit_metadata(server: &Arc<Server>, collection: &str, key: &str, edit: impl Fn(&mut Value)) {
    let Some(resource) = resource_of(server, collection) else { return };
    let mut call = internal_call(server, &resource, key);
    let result = change(&mut call, Part::Other(""), |_, old| {
        let mut object = old.clone();
        edit(&mut object["metadata"]);
        Ok(Changed { object, precondition: None, track: true })
    })
    .await;
    if let Err(problem) = result
        && problem.reason != "NotFound"
    {
        tracing::warn!(%problem, collection, key, "cannot update metadata");
    }
}
