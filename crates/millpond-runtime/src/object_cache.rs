//! The cached objects of a mirror, independent of their kind: by name, owner and custom index, with change listeners.
//!
//! This module is not generic: otherwise every mirrored kind would add a copy of the code to the binary.

use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource as _};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::kinds::Kind;
use crate::meta::{Key, version};
use crate::raw_object::{self, RawObject};

/// An object of some kind.
pub(crate) trait Held: Any {
    fn head(&self) -> &ObjectMeta;
}

impl<K: Kind> Held for K {
    fn head(&self) -> &ObjectMeta {
        self.meta()
    }
}

pub(crate) type Object = Arc<dyn Held + Send + Sync>;
/// Called with every change: the object before and after.
pub(crate) type Listener = Box<dyn Fn(Option<&Object>, Option<&Object>) + Send + Sync>;
/// The value under which an object is found.
pub(crate) type IndexBy = Box<dyn Fn(&Object) -> Option<String> + Send + Sync>;
/// Reads an object of the kind that is held here.
pub(crate) type Read = fn(&RawObject) -> serde_json::Result<Object>;

/// All objects of one kind.
pub(crate) struct ObjectCache {
    kind: Cow<'static, str>,
    read: Read,
    index_by: Option<IndexBy>,
    state: RwLock<State>,
    /// Held from a change until all listeners have run, so that they see changes in order. A listener must not change
    /// the mirror that it listens to.
    turn: Mutex<()>,
    listeners: RwLock<Vec<Listener>>,
    ready: watch::Sender<bool>,
    /// Whether the API server does not serve the kind, as of the last list.
    absent: AtomicBool,
    /// The newest resource version that the watch delivered.
    told: watch::Sender<u64>,
}

struct Entry {
    object: Object,
    version: u64,
    /// The listing during which a write put it here; such an object may be newer than the list.
    written_in: Option<u64>,
}

impl Entry {
    fn uid(&self) -> &str {
        uid(&self.object)
    }
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Entry>,
    by_owner: HashMap<String, BTreeSet<Key>>,
    ownerless: HashMap<String, BTreeSet<Key>>,
    by_index: HashMap<String, BTreeSet<Key>>,
    /// Uids that this process saw deleted before the watch delivered the deletion.
    buried: HashSet<String>,
    /// Uids that the watch reported as deleted.
    gone: DeletedUids,
    /// Counts listings, to tell objects that came during one from those that it should have had.
    listing: u64,
    listed: BTreeSet<Key>,
}

/// Uids of objects that are gone, the latest ones.
///
/// Uids of deleted objects. The response of a write can arrive after the deletion of its object; if it were applied,
/// the object would stay until the watch is restarted. A uid is never reused, so remembering it is safe.
#[derive(Default)]
struct DeletedUids {
    uids: HashSet<String>,
    in_order: VecDeque<String>,
}

impl DeletedUids {
    /// Far more than can go while one write is under way.
    const REMEMBERED: usize = 4096;

    fn add(&mut self, uid: &str) {
        if uid.is_empty() || !self.uids.insert(uid.to_owned()) {
            return;
        }
        self.in_order.push_back(uid.to_owned());
        if self.in_order.len() > Self::REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}

impl ObjectCache {
    pub(crate) fn new(kind: Cow<'static, str>, read: Read, index_by: Option<IndexBy>) -> Self {
        Self {
            kind,
            read,
            index_by,
            state: RwLock::default(),
            turn: Mutex::new(()),
            listeners: RwLock::new(Vec::new()),
            ready: watch::Sender::new(false),
            absent: AtomicBool::new(false),
            told: watch::Sender::new(0),
        }
    }

    // Reading

    pub(crate) fn get(&self, key: &Key) -> Option<Object> {
        self.state.read().objects.get(key).map(|entry| Arc::clone(&entry.object))
    }

    pub(crate) fn list(&self) -> Vec<Object> {
        self.state.read().objects.values().map(|entry| Arc::clone(&entry.object)).collect()
    }

    pub(crate) fn list_in(&self, namespace: &str) -> Vec<Object> {
        let state = self.state.read();
        let first = Key::new(namespace, "");
        state
            .objects
            .range(first..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, entry)| Arc::clone(&entry.object))
            .collect()
    }

    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Object> {
        let state = self.state.read();
        state.collect(state.by_owner.get(uid))
    }

    pub(crate) fn count_owned_by(&self, uid: &str) -> usize {
        self.state.read().by_owner.get(uid).map_or(0, BTreeSet::len)
    }

    pub(crate) fn ownerless(&self, namespace: &str) -> Vec<Object> {
        let state = self.state.read();
        state.collect(state.ownerless.get(namespace))
    }

    pub(crate) fn indexed(&self, value: &str) -> Vec<Object> {
        let state = self.state.read();
        state.collect(state.by_index.get(value))
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    pub(crate) fn on_change(&self, listener: Listener) {
        self.listeners.write().push(listener);
    }

    pub(crate) async fn wait_until_ready(&self) {
        // An error would mean that the sender is gone, but it lives as long as `self`.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.absent.load(Ordering::Relaxed)
    }

    pub(crate) fn observed_version(&self) -> u64 {
        *self.told.borrow()
    }

    pub(crate) async fn wait_until_observed(&self, version: u64) {
        // An error would mean that the sender is gone, but it lives as long as `self`.
        let _ = self.told.subscribe().wait_for(|told| *told >= version).await;
    }

    // Watching

    /// Keeps the objects up to date until the token is cancelled.
    pub(crate) fn run(
        self: Arc<Self>,
        everywhere: Api<RawObject>,
        config: Config,
        token: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        async move {
            let take = |event| self.apply_raw_event(event);
            raw_object::follow(everywhere, config, self.kind.clone(), &token, &self.absent, &take).await;
        }
        .boxed()
    }

    /// Takes an event of an object that may be unreadable. Such a one is as if it were not there, whatever it was
    /// before: acting on what it no longer says would be worse, and nothing could be written to it.
    fn apply_raw_event(&self, event: Event<RawObject>) {
        if let Event::Apply(object) = &event
            && self.knows(object.meta())
        {
            // The answer of an own write was sooner: it need not be read again.
            return self.publish_version(version(object.meta()));
        }
        let read = |object: RawObject| (self.read)(&object).map_err(|error| self.skip_unreadable(&object, &error)).ok();
        let event = match event {
            Event::Init => Some(Event::Init),
            Event::InitDone => Some(Event::InitDone),
            Event::InitApply(object) => read(object).map(Event::InitApply),
            Event::Apply(object) => read(object).map(Event::Apply),
            Event::Delete(object) => read(object).map(Event::Delete),
        };
        if let Some(event) = event {
            self.apply_event(event);
        }
    }

    fn skip_unreadable(&self, object: &RawObject, error: &serde_json::Error) {
        let key = Key::of(object);
        tracing::warn!(kind = %self.kind, %key, %error, "an object that cannot be read is set aside");
        self.remove(&key, &|_| true);
    }

    pub(crate) fn apply_event(&self, event: Event<Object>) {
        match event {
            Event::Init => {
                let mut state = self.state.write();
                state.listing += 1;
                state.listed.clear();
            }
            Event::InitApply(object) => {
                self.state.write().listed.insert(Key::of_meta(object.head()));
                self.put(&object, false);
            }
            Event::InitDone => {
                self.drop_unlisted();
                self.ready.send_replace(true);
            }
            Event::Apply(object) => {
                self.put(&object, false);
                self.publish_version(version(object.head()));
            }
            Event::Delete(object) => self.record_deletion(&object),
        }
    }

    /// Whether an object is held in this version, or a newer one.
    fn knows(&self, head: &ObjectMeta) -> bool {
        let known = |entry: &Entry| Some(entry.uid()) == head.uid.as_deref() && entry.version >= version(head);
        self.state.read().objects.get(&Key::of_meta(head)).is_some_and(known)
    }

    /// Publishes the newest version that the watch has delivered.
    fn publish_version(&self, version: u64) {
        self.told.send_if_modified(|told| std::mem::replace(told, version.max(*told)) < version);
    }

    fn record_deletion(&self, object: &Object) {
        let (key, uid, version) = (Key::of_meta(object.head()), uid(object), version(object.head()));
        let is_same = |entry: &Entry| entry.uid() == uid;
        self.remove(&key, &|entry| is_same(entry) && entry.version <= version);
        let mut state = self.state.write();
        state.buried.remove(uid);
        if !state.objects.get(&key).is_some_and(is_same) {
            state.gone.add(uid);
        }
    }

    fn drop_unlisted(&self) {
        let (listing, gone) = {
            let mut state = self.state.write();
            state.buried.clear();
            let listed = std::mem::take(&mut state.listed);
            let listing = state.listing;
            let is_gone = |(key, entry): &(&Key, &Entry)| !listed.contains(*key) && entry.written_in != Some(listing);
            let gone = state.objects.iter().filter(is_gone);
            let gone: Vec<(Key, String)> = gone.map(|(key, entry)| (key.clone(), entry.uid().to_owned())).collect();
            gone.iter().for_each(|(_, uid)| state.gone.add(uid));
            (listing, gone)
        };
        for (key, _) in gone {
            self.remove(&key, &|entry| entry.written_in != Some(listing));
        }
    }

    // Changing

    /// Takes over an object unless a newer version is known.
    pub(crate) fn put(&self, object: &Object, written: bool) {
        let key = Key::of_meta(object.head());
        let version = version(object.head());
        let _turn = self.turn.lock();
        let before = {
            let mut state = self.state.write();
            let uid = uid(object);
            if state.buried.contains(uid) || state.gone.contains(uid) {
                return;
            }
            if state.objects.get(&key).is_some_and(|known| known.version >= version) {
                return;
            }
            let written_in = written.then_some(state.listing);
            let entry = Entry { object: Arc::clone(object), version, written_in };
            let before = state.objects.insert(key.clone(), entry).map(|entry| entry.object);
            if let Some(before) = &before {
                state.unindex(&key, before, self.index_by.as_ref());
            }
            state.index(&key, object, self.index_by.as_ref());
            before
        };
        self.notify(before.as_ref(), Some(object));
    }

    /// Removes an object that was deleted before the watch reports it.
    pub(crate) fn forget_deleted(&self, key: &Key, uid: &str) {
        let is_same = |entry: &Entry| entry.object.head().uid.as_deref() == Some(uid);
        {
            let mut state = self.state.write();
            if state.objects.get(key).is_some_and(is_same) {
                state.buried.insert(uid.to_owned());
            }
        }
        self.remove(key, &is_same);
    }

    fn remove(&self, key: &Key, applies: &dyn Fn(&Entry) -> bool) {
        let _turn = self.turn.lock();
        let before = {
            let mut state = self.state.write();
            if !state.objects.get(key).is_some_and(applies) {
                return;
            }
            let Some(entry) = state.objects.remove(key) else {
                return;
            };
            state.unindex(key, &entry.object, self.index_by.as_ref());
            entry.object
        };
        self.notify(Some(&before), None);
    }

    fn notify(&self, before: Option<&Object>, after: Option<&Object>) {
        for listener in self.listeners.read().iter() {
            listener(before, after);
        }
    }
}

impl State {
    fn collect(&self, keys: Option<&BTreeSet<Key>>) -> Vec<Object> {
        keys.into_iter()
            .flatten()
            .filter_map(|key| self.objects.get(key))
            .map(|entry| Arc::clone(&entry.object))
            .collect()
    }

    fn index(&mut self, key: &Key, object: &Object, index_by: Option<&IndexBy>) {
        let owners = match controller_uid(object) {
            Some(uid) => self.by_owner.entry(uid.to_owned()).or_default(),
            None => self.ownerless.entry(key.namespace.clone()).or_default(),
        };
        owners.insert(key.clone());
        if let Some(value) = index_by.and_then(|index_by| index_by(object)) {
            self.by_index.entry(value).or_default().insert(key.clone());
        }
    }

    fn unindex(&mut self, key: &Key, object: &Object, index_by: Option<&IndexBy>) {
        match controller_uid(object) {
            Some(uid) => forget(&mut self.by_owner, uid, key),
            None => forget(&mut self.ownerless, &key.namespace, key),
        }
        if let Some(value) = index_by.and_then(|index_by| index_by(object)) {
            forget(&mut self.by_index, &value, key);
        }
    }
}

fn forget(index: &mut HashMap<String, BTreeSet<Key>>, value: &str, key: &Key) {
    if let Some(keys) = index.get_mut(value) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(value);
        }
    }
}

fn uid(object: &Object) -> &str {
    object.head().uid.as_deref().unwrap_or_default()
}

fn controller_uid(object: &Object) -> Option<&str> {
    crate::meta::controller_in(object.head()).map(|owner| owner.uid.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_of_the_gone_are_remembered() {
        let mut gone = DeletedUids::default();
        (0..=DeletedUids::REMEMBERED).for_each(|uid| gone.add(&uid.to_string()));
        assert!(!gone.contains("0") && gone.contains("1") && gone.contains(&DeletedUids::REMEMBERED.to_string()));
        assert_eq!(gone.uids.len(), gone.in_order.len());
    }
}
