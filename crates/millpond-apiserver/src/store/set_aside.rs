//! Objects that the log holds and that cannot be read: kept as they are, not served, deletable.
//!
//! No write creates such an object (see `verify`); an older version or a defect may have. If it were not set aside, one
//! of them would keep the server from starting.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

/// An object that cannot be read.
#[derive(Debug)]
pub struct SetAside {
    /// The revision that wrote it.
    pub revision: u64,
    /// Its text as stored.
    pub bytes: Bytes,
    /// Why it cannot be read.
    pub problem: String,
}

/// All unreadable objects, by collection and key.
#[derive(Debug, Default)]
pub(super) struct AllSetAside(HashMap<Arc<str>, BTreeMap<Arc<str>, Arc<SetAside>>>);

impl AllSetAside {
    pub(super) fn insert(&mut self, collection: Arc<str>, key: Arc<str>, object: SetAside) {
        self.0.entry(collection).or_default().insert(key, Arc::new(object));
    }

    pub(super) fn get(&self, collection: &str, key: &str) -> Option<Arc<SetAside>> {
        self.0.get(collection)?.get(key).cloned()
    }

    pub(super) fn remove(&mut self, collection: &str, key: &str) -> Option<Arc<SetAside>> {
        self.0.get_mut(collection)?.remove(key)
    }

    /// Keys of a collection that start with `prefix`.
    pub(super) fn keys(&self, collection: &str, prefix: &str) -> Vec<Arc<str>> {
        let keys = self.0.get(collection).into_iter().flat_map(BTreeMap::keys);
        keys.filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    /// Collection, key and object of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Arc<str>, Arc<str>, &SetAside)> {
        self.0.iter().flat_map(|(collection, objects)| {
            objects.iter().map(|(key, object)| (collection.clone(), key.clone(), &**object))
        })
    }
}
