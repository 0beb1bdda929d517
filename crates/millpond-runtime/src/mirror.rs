//! A copy of all objects of one kind, kept by a watch, with the writes going through it.
//!
//! The answer of a write is put into the copy at once, so that a controller never acts twice on
//! what it has just done; the event that the watch brings later is then old news. That replaces
//! the expectations that Kubernetes' own controllers keep.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, pin_mut};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::kinds::Kind;
use crate::meta::{Key, controller_uid};

/// What all writes of a process share.
#[derive(Clone)]
pub struct Writer {
    /// Where they go.
    pub client: Client,
    /// The name under which fields are owned.
    pub manager: &'static str,
    /// Bounds the writes under way over all kinds.
    pub permits: Arc<Semaphore>,
}

impl Writer {
    /// At most so many writes at a time under that name.
    pub fn new(client: Client, manager: &'static str, at_a_time: usize) -> Self {
        Self { client, manager, permits: Arc::new(Semaphore::new(at_a_time.max(1))) }
    }
}

/// Told about every change: the object before and after.
type Listener<K> = Box<dyn Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync>;
/// An own index: the value under which an object is found.
pub type IndexBy<K> = fn(&K) -> Option<String>;

struct Entry<K> {
    object: Arc<K>,
    version: u64,
    /// The listing during which a write put it here; such an object may be newer than the list.
    written_in: Option<u64>,
}

/// Uids of objects that are gone, the latest ones.
///
/// The answer of a write can come in after the news that its object is gone: taken over, it would stay
/// for as long as the watch goes on. A uid is never used again, so that no harm is in remembering it.
#[derive(Default)]
struct Gone {
    uids: HashSet<String>,
    in_order: VecDeque<String>,
}

impl Gone {
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

struct State<K> {
    objects: BTreeMap<Key, Entry<K>>,
    by_owner: HashMap<String, BTreeSet<Key>>,
    ownerless: HashMap<String, BTreeSet<Key>>,
    by_index: HashMap<String, BTreeSet<Key>>,
    /// Uids that this process saw deleted before the watch told.
    buried: HashSet<String>,
    /// What the watch told is gone.
    gone: Gone,
    /// Counts listings, to tell objects that came during one from those that it should have had.
    listing: u64,
    listed: BTreeSet<Key>,
}

/// A copy of all objects of one kind.
pub struct Mirror<K> {
    writer: Writer,
    state: RwLock<State<K>>,
    listeners: RwLock<Vec<Listener<K>>>,
    ready: watch::Sender<bool>,
    index_by: Option<IndexBy<K>>,
    labelled: Option<&'static str>,
}

impl<K: Kind> Mirror<K> {
    /// An empty copy.
    pub fn new(writer: Writer, index_by: Option<IndexBy<K>>) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            by_owner: HashMap::new(),
            ownerless: HashMap::new(),
            by_index: HashMap::new(),
            buried: HashSet::new(),
            gone: Gone::default(),
            listing: 0,
            listed: BTreeSet::new(),
        };
        Self {
            writer,
            state: RwLock::new(state),
            listeners: RwLock::new(Vec::new()),
            ready: watch::Sender::new(false),
            index_by,
            labelled: None,
        }
    }

    /// Only of objects with a label.
    #[must_use]
    pub fn labelled(mut self, label: &'static str) -> Self {
        self.labelled = Some(label);
        self
    }

    // Reading

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.state.read().objects.get(key).map(|entry| Arc::clone(&entry.object))
    }

    /// All objects, by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.state.read().objects.values().map(|entry| Arc::clone(&entry.object)).collect()
    }

    /// All objects of a namespace, by name.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        let first = Key::new(namespace, "");
        state
            .objects
            .range(first..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, entry)| Arc::clone(&entry.object))
            .collect()
    }

    /// The objects that a controller owns, by name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        state.collect(state.by_owner.get(uid))
    }

    /// The objects of a namespace that no controller owns, by name.
    pub fn ownerless(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        state.collect(state.ownerless.get(namespace))
    }

    /// The objects under a value of the own index.
    pub fn indexed(&self, value: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        state.collect(state.by_index.get(value))
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `listener` on every later change.
    pub fn on_change(&self, listener: impl Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Waits until the first listing is complete.
    pub async fn wait_until_ready(&self) {
        // An error would mean that the sender is gone, but it lives as long as `self`.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    // Watching

    /// Keeps the copy up to date until the token is cancelled.
    ///
    /// One object that cannot be read would end every list and watch of its kind. From the first such object on,
    /// objects are read one by one, which costs more, and those that cannot be read are set aside.
    pub async fn run(self: Arc<Self>, streaming: bool, token: CancellationToken) {
        let config = || {
            let config = if streaming { Config::default().streaming_lists() } else { Config::default() };
            match self.labelled {
                Some(label) => config.labels(label),
                None => config,
            }
        };
        let client = &self.writer.client;
        let unreadable = self.follow(Api::<K>::all(client.clone()), config(), &token, Self::take_event).await;
        if unreadable {
            let guarded = Api::<DeserializeGuard<K>>::all(client.clone());
            self.follow(guarded, config(), &token, Self::take_guarded).await;
        }
    }

    /// Hands on the events of a watch until the token is cancelled; or, with true, until an object could not be read.
    async fn follow<O>(
        &self,
        api: Api<O>,
        config: Config,
        token: &CancellationToken,
        take: impl Fn(&Self, Event<O>),
    ) -> bool
    where
        O: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let events = watcher::watcher(api, config).default_backoff().take_until(token.cancelled());
        pin_mut!(events);
        loop {
            match events.try_next().await {
                Ok(Some(event)) => take(self, event),
                Ok(None) => return false,
                Err(error) => {
                    tracing::debug!(kind = %K::kind(&()), %error, "watch interrupted");
                    if is_unreadable(&error) {
                        return true;
                    }
                }
            }
        }
    }

    /// Takes an event of objects that may be unreadable. Such a one is as if it were not there, whatever it was
    /// before: acting on what it no longer says would be worse, and nothing could be written to it.
    fn take_guarded(&self, event: Event<DeserializeGuard<K>>) {
        let read = |object: DeserializeGuard<K>| object.0.map_err(|invalid| self.set_aside(&invalid)).ok();
        let event = match event {
            Event::Init => Some(Event::Init),
            Event::InitDone => Some(Event::InitDone),
            Event::InitApply(object) => read(object).map(Event::InitApply),
            Event::Apply(object) => read(object).map(Event::Apply),
            Event::Delete(object) => read(object).map(Event::Delete),
        };
        if let Some(event) = event {
            self.take_event(event);
        }
    }

    fn set_aside(&self, invalid: &InvalidObject) {
        let meta = &invalid.metadata;
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        tracing::warn!(kind = %K::kind(&()), namespace, name, error = %invalid.error, "an object that cannot be read is set aside");
        self.remove(&Key::new(namespace, name), |_| true);
    }

    fn take_event(&self, event: Event<K>) {
        match event {
            Event::Init => {
                let mut state = self.state.write();
                state.listing += 1;
                state.listed.clear();
            }
            Event::InitApply(object) => {
                self.state.write().listed.insert(Key::of(&object));
                self.put(object, false);
            }
            Event::InitDone => {
                self.drop_unlisted();
                self.ready.send_replace(true);
            }
            Event::Apply(object) => drop(self.put(object, false)),
            Event::Delete(object) => self.take_end(&object),
        }
    }

    fn take_end(&self, object: &K) {
        let (key, uid, version) = (Key::of(object), object.uid().unwrap_or_default(), version(object));
        let is_same = |entry: &Entry<K>| entry.object.uid().unwrap_or_default() == uid;
        self.remove(&key, |entry| is_same(entry) && entry.version <= version);
        let mut state = self.state.write();
        state.buried.remove(&uid);
        if !state.objects.get(&key).is_some_and(is_same) {
            state.gone.add(&uid);
        }
    }

    fn drop_unlisted(&self) {
        let (listing, gone) = {
            let mut state = self.state.write();
            state.buried.clear();
            let listed = std::mem::take(&mut state.listed);
            let listing = state.listing;
            let is_gone =
                |(key, entry): &(&Key, &Entry<K>)| !listed.contains(*key) && entry.written_in != Some(listing);
            let gone = state.objects.iter().filter(is_gone);
            let gone: Vec<(Key, String)> =
                gone.map(|(key, entry)| (key.clone(), entry.object.uid().unwrap_or_default())).collect();
            gone.iter().for_each(|(_, uid)| state.gone.add(uid));
            (listing, gone)
        };
        for (key, _) in gone {
            self.remove(&key, |entry| entry.written_in != Some(listing));
        }
    }

    /// Takes over an object unless a newer version is known; gives it back as it would be kept.
    fn put(&self, mut object: K, written: bool) -> Arc<K> {
        object.managed_fields_mut().clear();
        let key = Key::of(&object);
        let version = version(&object);
        let object = Arc::new(object);
        let before = {
            let mut state = self.state.write();
            let uid = object.meta().uid.as_deref().unwrap_or_default();
            if state.buried.contains(uid) || state.gone.contains(uid) {
                return object;
            }
            if state.objects.get(&key).is_some_and(|known| known.version >= version) {
                return object;
            }
            let written_in = written.then_some(state.listing);
            let entry = Entry { object: Arc::clone(&object), version, written_in };
            let before = state.objects.insert(key.clone(), entry).map(|entry| entry.object);
            if let Some(before) = &before {
                state.unindex(&key, before, self.index_by);
            }
            state.index(&key, &object, self.index_by);
            before
        };
        self.tell(before.as_ref(), Some(&object));
        object
    }

    fn remove(&self, key: &Key, applies: impl Fn(&Entry<K>) -> bool) {
        let before = {
            let mut state = self.state.write();
            if !state.objects.get(key).is_some_and(applies) {
                return;
            }
            let Some(entry) = state.objects.remove(key) else {
                return;
            };
            state.unindex(key, &entry.object, self.index_by);
            entry.object
        };
        self.tell(Some(&before), None);
    }

    fn tell(&self, before: Option<&Arc<K>>, after: Option<&Arc<K>>) {
        for listener in self.listeners.read().iter() {
            listener(before, after);
        }
    }

    // Writing

    /// Creates an object.
    pub async fn create(&self, object: &K) -> Result<Arc<K>> {
        let key = Key::of(object);
        let params = PostParams { field_manager: Some(self.writer.manager.to_owned()), ..PostParams::default() };
        let api = K::api(&self.writer.client, &key.namespace);
        let created = self.limited(api.create(&params, object)).await;
        self.written("create", &key, created)
    }

    /// Merges a patch into an object.
    pub async fn patch(&self, key: &Key, patch: &Value) -> Result<Arc<K>> {
        let api = K::api(&self.writer.client, &key.namespace);
        let params = PatchParams { field_manager: Some(self.writer.manager.to_owned()), ..PatchParams::default() };
        let patched = self.limited(api.patch(&key.name, &params, &Patch::Merge(patch))).await;
        self.written("patch", key, patched)
    }

    /// Merges a patch into the status of an object.
    pub async fn patch_status(&self, key: &Key, patch: &Value) -> Result<Arc<K>> {
        let api = K::api(&self.writer.client, &key.namespace);
        let params = PatchParams { field_manager: Some(self.writer.manager.to_owned()), ..PatchParams::default() };
        let patched = self.limited(api.patch_subresource("status", &key.name, &params, &Patch::Merge(patch))).await;
        self.written("patch the status of", key, patched)
    }

    /// Deletes an object of this uid; one that is gone already counts as deleted.
    pub async fn delete(&self, object: &K, grace_seconds: Option<u32>) -> Result<()> {
        let key = Key::of(object);
        let uid = object.uid().unwrap_or_default();
        let params = DeleteParams {
            grace_period_seconds: grace_seconds,
            preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
            ..DeleteParams::background()
        };
        let api = K::api(&self.writer.client, &key.namespace);
        let deleted = self.limited(api.delete(&key.name, &params)).await;
        match deleted {
            Ok(either) => {
                match either.left().filter(lives_on) {
                    Some(leaving) => drop(self.put(leaving, true)),
                    None => self.bury(&key, &uid),
                }
                Ok(())
            }
            Err(source) => {
                let error = Self::failed("delete", &key, source);
                // Another object of that name is a conflict on the uid: ours is gone as well.
                if error.is_not_found() || error.is_conflict() {
                    self.bury(&key, &uid);
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Removes an object that is known to be gone before the watch says so.
    fn bury(&self, key: &Key, uid: &str) {
        let is_same = |entry: &Entry<K>| entry.object.uid().as_deref() == Some(uid);
        {
            let mut state = self.state.write();
            if state.objects.get(key).is_some_and(is_same) {
                state.buried.insert(uid.to_owned());
            }
        }
        self.remove(key, is_same);
    }

    async fn limited<T>(&self, call: impl Future<Output = T>) -> T {
        let _permit = self.writer.permits.acquire().await;
        call.await
    }

    fn written(&self, verb: &'static str, key: &Key, outcome: kube::Result<K>) -> Result<Arc<K>> {
        match outcome {
            // Whoever takes away the last finalizer of what was deleted ends it, and is told how it looked.
            Ok(object) if object.meta().deletion_timestamp.is_some() && !lives_on(&object) => {
                self.bury(key, object.meta().uid.as_deref().unwrap_or_default());
                Ok(Arc::new(object))
            }
            Ok(object) => Ok(self.put(object, true)),
            Err(source) => Err(Self::failed(verb, key, source)),
        }
    }

    fn failed(verb: &'static str, key: &Key, source: kube::Error) -> Error {
        Error::Api { verb, kind: K::kind(&()).into_owned(), key: key.clone(), source: Box::new(source) }
    }
}

impl<K: Kind> State<K> {
    fn collect(&self, keys: Option<&BTreeSet<Key>>) -> Vec<Arc<K>> {
        keys.into_iter()
            .flatten()
            .filter_map(|key| self.objects.get(key))
            .map(|entry| Arc::clone(&entry.object))
            .collect()
    }

    fn index(&mut self, key: &Key, object: &K, index_by: Option<IndexBy<K>>) {
        let owners = match controller_uid(object) {
            Some(uid) => self.by_owner.entry(uid.to_owned()).or_default(),
            None => self.ownerless.entry(key.namespace.clone()).or_default(),
        };
        owners.insert(key.clone());
        if let Some(value) = index_by.and_then(|index_by| index_by(object)) {
            self.by_index.entry(value).or_default().insert(key.clone());
        }
    }

    fn unindex(&mut self, key: &Key, object: &K, index_by: Option<IndexBy<K>>) {
        match controller_uid(object) {
            Some(uid) => forget(&mut self.by_owner, uid, key),
            None => forget(&mut self.ownerless, &key.namespace, key),
        }
        if let Some(value) = index_by.and_then(|index_by| index_by(object)) {
            forget(&mut self.by_index, &value, key);
        }
    }
}

/// Whether a deleted object waits for a grace period or for finalizers.
fn lives_on<K: Kind>(object: &K) -> bool {
    let meta = object.meta();
    let has_grace = meta.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
    meta.deletion_timestamp.is_some() && (has_grace || !object.finalizers().is_empty())
}

fn forget(index: &mut HashMap<String, BTreeSet<Key>>, value: &str, key: &Key) {
    if let Some(keys) = index.get_mut(value) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(value);
        }
    }
}

/// Whether the answer came and an object in it could not be read. In a watch such an event looks like a status that
/// says nothing.
fn is_unreadable(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(source) | WatchFailed(source) | WatchStartFailed(source)) = error else { return false };
    match source {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0 && status.reason.is_empty() && status.message.is_empty(),
        _ => false,
    }
}

/// Resource versions are ordered numbers (guaranteed since Kubernetes 1.35).
fn version<K: Kind>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn mirror() -> Mirror<Pod> {
        let service = tower_service_that_refuses();
        Mirror::new(Writer::new(service, "test", 1), Some(|pod: &Pod| pod.spec.as_ref()?.node_name.clone()))
    }

    /// A client that must not be used.
    fn tower_service_that_refuses() -> Client {
        Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().expect("a url"))).expect("a client")
    }

    fn pod(name: &str, uid: &str, version: u64, node: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"containers": [], "nodeName": node},
        }))
        .expect("a pod")
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<String> {
        pods.iter().map(|pod| pod.name_any()).collect()
    }

    #[tokio::test]
    async fn older_news_are_ignored() {
        let mirror = mirror();
        mirror.put(pod("a", "1", 10, Some("n2")), true);
        mirror.take_event(Event::Apply(pod("a", "1", 8, Some("n1"))));
        assert_eq!(names(&mirror.indexed("n2")), ["a"]);
        assert!(mirror.indexed("n1").is_empty());
        mirror.take_event(Event::Delete(pod("a", "1", 9, None)));
        assert_eq!(mirror.len(), 1, "a deletion before the last write is of an older object");
        mirror.take_event(Event::Delete(pod("a", "1", 11, None)));
        assert!(mirror.is_empty());
    }

    #[tokio::test]
    async fn buried_objects_do_not_come_back() {
        let mirror = mirror();
        mirror.put(pod("a", "1", 10, None), false);
        mirror.bury(&Key::new("ns", "a"), "1");
        mirror.take_event(Event::Apply(pod("a", "1", 12, None)));
        assert!(mirror.is_empty());
        mirror.take_event(Event::Apply(pod("a", "2", 20, None)));
        assert_eq!(mirror.len(), 1, "a new object of that name is another one");
        mirror.take_event(Event::Delete(pod("a", "1", 13, None)));
        assert_eq!(mirror.len(), 1, "the late news of the old one do not touch it");
    }

    #[tokio::test]
    async fn an_answer_that_comes_late_does_not_bring_back_what_is_gone() {
        let mirror = mirror();
        let key = Key::new("ns", "a");
        mirror.take_event(Event::Apply(pod("a", "1", 10, None)));
        mirror.take_event(Event::Delete(pod("a", "1", 12, None)));
        mirror.written("patch", &key, Ok(pod("a", "1", 11, None))).unwrap();
        assert!(mirror.is_empty(), "the write was before the end");
        mirror.written("create", &key, Ok(pod("a", "2", 20, None))).unwrap();
        assert_eq!(mirror.len(), 1, "another object of that name");
    }

    #[tokio::test]
    async fn whoever_takes_the_last_finalizer_away_knows_that_it_is_gone() {
        let mirror = mirror();
        let key = Key::new("ns", "a");
        let leaving = |version, finalizers: &[&str]| {
            let mut pod = pod("a", "1", version, None);
            pod.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
            pod.metadata.deletion_grace_period_seconds = Some(0);
            pod.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
            pod
        };
        mirror.take_event(Event::Apply(leaving(10, &["mine", "yours"])));
        mirror.written("patch", &key, Ok(leaving(11, &["yours"]))).unwrap();
        assert_eq!(mirror.len(), 1);
        mirror.written("patch", &key, Ok(leaving(12, &[]))).unwrap();
        assert!(mirror.is_empty());
        mirror.take_event(Event::Apply(leaving(11, &["yours"])));
        assert!(mirror.is_empty(), "old news");
        mirror.take_event(Event::Delete(leaving(12, &[])));
        mirror.written("patch", &key, Ok(leaving(12, &[]))).unwrap();
        assert!(mirror.is_empty());
    }

    #[test]
    fn only_so_many_of_the_gone_are_remembered() {
        let mut gone = Gone::default();
        (0..=Gone::REMEMBERED).for_each(|uid| gone.add(&uid.to_string()));
        assert!(!gone.contains("0") && gone.contains("1") && gone.contains(&Gone::REMEMBERED.to_string()));
        assert_eq!(gone.uids.len(), gone.in_order.len());
    }

    #[tokio::test]
    async fn a_new_listing_drops_what_is_gone_but_not_what_was_just_written() {
        let mirror = mirror();
        for name in ["old", "kept"] {
            mirror.put(pod(name, name, 5, None), false);
        }
        mirror.take_event(Event::Init);
        mirror.take_event(Event::InitApply(pod("kept", "kept", 5, None)));
        mirror.put(pod("fresh", "fresh", 30, None), true);
        mirror.take_event(Event::InitDone);
        assert_eq!(names(&mirror.list()), ["fresh", "kept"]);
        mirror.wait_until_ready().await;
    }

    #[tokio::test]
    async fn owners_are_indexed() {
        let mirror = mirror();
        let mut owned = pod("a", "1", 1, None);
        owned.metadata.owner_references = Some(vec![crate::meta::controller_reference(&ConfigMap {
            metadata: kube::api::ObjectMeta { name: Some("o".into()), uid: Some("u".into()), ..Default::default() },
            ..Default::default()
        })]);
        mirror.put(owned, false);
        mirror.put(pod("b", "2", 1, None), false);
        assert_eq!(names(&mirror.owned_by("u")), ["a"]);
        assert_eq!(names(&mirror.ownerless("ns")), ["b"]);
        assert_eq!(names(&mirror.list_in("ns")), ["a", "b"]);
        assert!(mirror.list_in("other").is_empty());
        mirror.put(pod("a", "1", 2, None), false);
        assert!(mirror.owned_by("u").is_empty());
    }
}
