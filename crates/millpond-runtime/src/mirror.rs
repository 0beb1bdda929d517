//! A copy of all objects of one kind, kept by a watch, with the writes going through it.
//!
//! The answer of a write is put into the cache at once, so that a controller never repeats what it has just done; the
//! event that the watch delivers later is then ignored. That replaces the expectations that Kubernetes' own controllers
//! keep.
//!
//! This is the typed interface; its implementation is shared by all kinds: `raw_object` talks to the API,
//! `object_cache` stores objects.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{DeleteParams, Preconditions};
use kube::core::ApiResource;
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::kinds::Kind;
use crate::meta::{Key, version};
use crate::object_cache::{self, Object, ObjectCache};
use crate::panics;
use crate::raw_object::{self, RawObject};

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
    /// Limits the concurrent writes under that name.
    pub fn new(client: Client, manager: &'static str, at_a_time: usize) -> Self {
        Self { client, manager, permits: Arc::new(Semaphore::new(at_a_time.max(1))) }
    }
}

/// An own index: the value under which an object is found.
pub type IndexBy<K> = fn(&K) -> Option<String>;

/// A copy of all objects of one kind.
pub struct Mirror<K> {
    writer: Writer,
    /// Writer for the watch and for writes that other work waits for.
    urgent: Writer,
    /// Runtime on which answers of the usual writer are applied to the cache; `None` applies them on the calling task.
    home: Option<Handle>,
    cache: Arc<ObjectCache>,
    labelled: Option<&'static str>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Mirror<K> {
    /// An empty copy.
    pub fn new(writer: Writer, index_by: Option<IndexBy<K>>) -> Self {
        let read: object_cache::Read =
            |text| text.read::<K>().map(|object| Arc::new(without_managed_fields(object)) as Object);
        let index_by = index_by
            .map(|index_by| -> object_cache::IndexBy { Box::new(move |object| index_by(&typed(Arc::clone(object)))) });
        let cache = Arc::new(ObjectCache::new(K::kind(&()), read, index_by));
        Self { urgent: writer.clone(), writer, home: None, cache, labelled: None, kind: PhantomData }
    }

    /// Only of objects with a label.
    #[must_use]
    pub fn labelled(mut self, label: &'static str) -> Self {
        self.labelled = Some(label);
        self
    }

    /// Sends the watch, creates and urgent patches through another writer, so that they do not queue behind other
    /// writes.
    #[must_use]
    pub fn urgent_through(mut self, writer: Writer) -> Self {
        self.urgent = writer;
        self
    }

    /// Applies answers on these threads. The task that applies a change holds the cache's order until all listeners
    /// have run, and others wait for it: it must not run on low-priority threads.
    #[must_use]
    pub fn handle_writes_on(mut self, threads: Handle) -> Self {
        self.home = Some(threads);
        self
    }

    // Reading

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.cache.get(key).map(typed)
    }

    /// All objects, by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        all_typed(self.cache.list())
    }

    /// All objects of a namespace, by name.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        all_typed(self.cache.list_in(namespace))
    }

    /// The objects that a controller owns, by name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        all_typed(self.cache.owned_by(uid))
    }

    /// How many objects a controller owns.
    pub fn count_owned_by(&self, uid: &str) -> usize {
        self.cache.count_owned_by(uid)
    }

    /// The objects of a namespace that no controller owns, by name.
    pub fn ownerless(&self, namespace: &str) -> Vec<Arc<K>> {
        all_typed(self.cache.ownerless(namespace))
    }

    /// The objects under a value of the own index.
    pub fn indexed(&self, value: &str) -> Vec<Arc<K>> {
        all_typed(self.cache.indexed(value))
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `listener` on every later change.
    pub fn on_change(&self, listener: impl Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync + 'static) {
        let of = |object: Option<&Object>| object.map(|object| typed(Arc::clone(object)));
        self.cache.on_change(Box::new(move |before, after| listener(of(before).as_ref(), of(after).as_ref())));
    }

    /// Waits until the first listing is complete.
    pub async fn wait_until_ready(&self) {
        self.cache.wait_until_ready().await;
    }

    /// Whether the API server does not serve the kind: its definition is not installed.
    pub fn is_absent(&self) -> bool {
        self.cache.is_absent()
    }

    /// The newest resource version that the watch has delivered.
    pub fn observed_version(&self) -> u64 {
        self.cache.observed_version()
    }

    /// Waits until the watch has delivered a version that was written: other watchers have most likely seen it too.
    pub async fn wait_until_observed(&self, written: &K) {
        self.cache.wait_until_observed(version(written.meta())).await;
    }

    /// The same for all that were written. A watch tells in order, so that only the last one is waited for: of a crowd
    /// that waits for one each, all would be woken by every event.
    pub async fn wait_until_all_observed(&self, written: &[Arc<K>]) {
        let last = written.iter().map(|object| version(object.meta())).max();
        self.cache.wait_until_observed(last.unwrap_or_default()).await;
    }

    /// Keeps the copy up to date until the token is cancelled.
    ///
    /// Objects are read one by one: one that cannot be read would otherwise end every list and watch of its kind.
    pub fn run(self: Arc<Self>, streaming: bool, token: CancellationToken) -> BoxFuture<'static, ()> {
        if let Some(home) = &self.home {
            // A panic goes on in the task that waits.
            let running = home.spawn(panics::handled(self.watch(streaming, token)));
            return async move {
                if let Err(error) = running.await
                    && error.is_panic()
                {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
            .boxed();
        }
        self.watch(streaming, token)
    }

    fn watch(&self, streaming: bool, token: CancellationToken) -> BoxFuture<'static, ()> {
        let config = if streaming { Config::default().streaming_lists() } else { Config::default() };
        let config = match self.labelled {
            Some(label) => config.labels(label),
            None => config,
        };
        let everywhere = Api::all_with(self.urgent.client.clone(), &ApiResource::erase::<K>(&()));
        Arc::clone(&self.cache).run(everywhere, config, token)
    }

    // Writing

    /// Creates an object.
    pub async fn create(&self, object: &K) -> Result<Arc<K>> {
        let key = Key::of(object);
        let created = match RawObject::of(object) {
            Ok(object) => self.urgent.create(K::api(&self.urgent.client, &key.namespace), object).await,
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        take(&self.cache, "create", &key, created.and_then(read))
    }

    /// Merges a patch into an object.
    pub async fn patch(&self, key: &Key, patch: &Value) -> Result<Arc<K>> {
        let patched = self.writer.patch(self.api(key), &key.name, None, patch).await;
        self.written("patch", key, patched).await
    }

    /// [`Self::patch`] through the urgent writer, ahead of background writes.
    pub async fn patch_urgently(&self, key: &Key, patch: &Value) -> Result<Arc<K>> {
        let patched = self.urgent.patch(K::api(&self.urgent.client, &key.namespace), &key.name, None, patch).await;
        take(&self.cache, "patch", key, patched.and_then(read))
    }

    /// Merges a patch into the status of an object.
    pub async fn patch_status(&self, key: &Key, patch: &Value) -> Result<Arc<K>> {
        let patched = self.writer.patch(self.api(key), &key.name, Some("status"), patch).await;
        self.written("patch the status of", key, patched).await
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
        let deleted = self.writer.delete(self.api(&key), &key.name, params).await;
        self.on_write_threads(move |cache| {
            record_deletion(cache, &key, &uid, deleted.and_then(|left| left.map(read::<K>).transpose()))
        })
        .await
    }

    /// Reads the object from the server: the cache lags behind other writers.
    pub async fn fetch(&self, key: &Key) -> Result<K> {
        let fetched = raw_object::fetch(self.api(key), &key.name).await;
        fetched.and_then(read).map_err(|source| Self::failed("read", key, source))
    }

    fn api(&self, key: &Key) -> Api<RawObject> {
        K::api(&self.writer.client, &key.namespace)
    }

    async fn written(&self, verb: &'static str, key: &Key, outcome: kube::Result<RawObject>) -> Result<Arc<K>> {
        let key = key.clone();
        self.on_write_threads(move |cache| take(cache, verb, &key, outcome.and_then(read))).await
    }

    /// Does something with the objects where changes are taken.
    async fn on_write_threads<T: Send + 'static>(&self, work: impl FnOnce(&ObjectCache) -> T + Send + 'static) -> T {
        let Some(home) = &self.home else { return work(&self.cache) };
        let cache = Arc::clone(&self.cache);
        match home.spawn(panics::handled(async move { work(&cache) })).await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The threads have ended, and with them all that this is for.
            Err(_) => std::future::pending().await,
        }
    }

    fn failed(verb: &'static str, key: &Key, source: kube::Error) -> Error {
        failed::<K>(verb, key, source)
    }
}

/// Takes over what a write answered; gives it back as it is kept.
fn take<K: Kind>(cache: &ObjectCache, verb: &'static str, key: &Key, outcome: kube::Result<K>) -> Result<Arc<K>> {
    match outcome {
        // Removing the last finalizer of a deleted object ends it; the answer shows its last state.
        Ok(object) if object.meta().deletion_timestamp.is_some() && !has_finalizers(&object) => {
            cache.forget_deleted(key, object.meta().uid.as_deref().unwrap_or_default());
            Ok(Arc::new(object))
        }
        Ok(object) => Ok(put(cache, object, true)),
        Err(source) => Err(failed::<K>(verb, key, source)),
    }
}

/// Takes over what came of deleting an object of this uid: what is left of it, if something is.
fn record_deletion<K: Kind>(cache: &ObjectCache, key: &Key, uid: &str, left: kube::Result<Option<K>>) -> Result<()> {
    match left {
        Ok(left) => {
            match left.filter(has_finalizers) {
                Some(leaving) => drop(put(cache, leaving, true)),
                None => cache.forget_deleted(key, uid),
            }
            Ok(())
        }
        Err(source) => {
            let error = failed::<K>("delete", key, source);
            // Another object of that name is a conflict on the uid: ours is gone as well.
            if error.is_not_found() || error.is_conflict() {
                cache.forget_deleted(key, uid);
                return Ok(());
            }
            Err(error)
        }
    }
}

/// Takes over an object unless a newer version is known; gives it back as it would be kept.
fn put<K: Kind>(cache: &ObjectCache, object: K, written: bool) -> Arc<K> {
    let object = Arc::new(without_managed_fields(object));
    cache.put(&(Arc::clone(&object) as Object), written);
    object
}

fn failed<K: Kind>(verb: &'static str, key: &Key, source: kube::Error) -> Error {
    Error::Api { verb, kind: K::kind(&()).into_owned(), key: key.clone(), source: Box::new(source) }
}

/// An object without its managed fields, which no controller reads.
fn without_managed_fields<K: Kind>(mut object: K) -> K {
    object.managed_fields_mut().clear();
    object
}

fn typed<K: Kind>(object: Object) -> Arc<K> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().unwrap_or_else(|_| unreachable!("a mirror holds objects of its kind"))
}

fn all_typed<K: Kind>(objects: Vec<Object>) -> Vec<Arc<K>> {
    objects.into_iter().map(typed).collect()
}

/// Whether a deleted object waits for a grace period or for finalizers.
fn has_finalizers<K: Kind>(object: &K) -> bool {
    let meta = object.meta();
    let has_grace = meta.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
    meta.deletion_timestamp.is_some() && (has_grace || !object.finalizers().is_empty())
}

fn read<K: Kind>(object: RawObject) -> kube::Result<K> {
    object.read().map_err(kube::Error::SerdeError)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::watcher::Event;
    use parking_lot::Mutex;
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

    fn hear(mirror: &Mirror<Pod>, event: Event<Pod>) {
        let held = |pod| Arc::new(without_managed_fields(pod)) as Object;
        mirror.cache.apply_event(match event {
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::InitApply(pod) => Event::InitApply(held(pod)),
            Event::Apply(pod) => Event::Apply(held(pod)),
            Event::Delete(pod) => Event::Delete(held(pod)),
        });
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<String> {
        pods.iter().map(|pod| pod.name_any()).collect()
    }

    #[tokio::test]
    async fn listeners_hear_of_changes_in_order() {
        let mirror = mirror();
        let heard: Arc<Mutex<Vec<u64>>> = Arc::default();
        let hears = Arc::clone(&heard);
        mirror.on_change(move |before, after| {
            let version = |pod: Option<&Arc<Pod>>| pod.map_or(0, |pod| version(&pod.metadata));
            let before = version(before);
            // If the other thread overtakes, it does so here.
            std::thread::yield_now();
            let mut heard = hears.lock();
            assert_eq!(heard.last().copied().unwrap_or_default(), before);
            heard.push(version(after));
        });
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let mirror = &mirror;
                scope.spawn(move || {
                    for step in 1..=500 {
                        put(&mirror.cache, pod("a", "1", step * 4 + thread, None), thread % 2 == 0);
                    }
                });
            }
        });
        assert!(heard.lock().is_sorted());
    }

    #[tokio::test]
    async fn older_events_are_ignored() {
        let mirror = mirror();
        put(&mirror.cache, pod("a", "1", 10, Some("n2")), true);
        hear(&mirror, Event::Apply(pod("a", "1", 8, Some("n1"))));
        assert_eq!(names(&mirror.indexed("n2")), ["a"]);
        assert!(mirror.indexed("n1").is_empty());
        hear(&mirror, Event::Delete(pod("a", "1", 9, None)));
        assert_eq!(mirror.len(), 1, "a deletion before the last write is of an older object");
        hear(&mirror, Event::Delete(pod("a", "1", 11, None)));
        assert!(mirror.is_empty());
    }

    #[tokio::test]
    async fn buried_objects_do_not_come_back() {
        let mirror = mirror();
        put(&mirror.cache, pod("a", "1", 10, None), false);
        mirror.cache.forget_deleted(&Key::new("ns", "a"), "1");
        hear(&mirror, Event::Apply(pod("a", "1", 12, None)));
        assert!(mirror.is_empty());
        hear(&mirror, Event::Apply(pod("a", "2", 20, None)));
        assert_eq!(mirror.len(), 1, "a new object of that name is another one");
        hear(&mirror, Event::Delete(pod("a", "1", 13, None)));
        assert_eq!(mirror.len(), 1, "the late news of the old one do not touch it");
    }

    #[tokio::test]
    async fn an_answer_that_comes_late_does_not_bring_back_what_is_gone() {
        let mirror = mirror();
        let key = Key::new("ns", "a");
        hear(&mirror, Event::Apply(pod("a", "1", 10, None)));
        hear(&mirror, Event::Delete(pod("a", "1", 12, None)));
        take(&mirror.cache, "patch", &key, Ok(pod("a", "1", 11, None))).unwrap();
        assert!(mirror.is_empty(), "the write was before the end");
        take(&mirror.cache, "create", &key, Ok(pod("a", "2", 20, None))).unwrap();
        assert_eq!(mirror.len(), 1, "another object of that name");
    }

    #[tokio::test]
    async fn removing_the_last_finalizer_ends_the_object() {
        let mirror = mirror();
        let key = Key::new("ns", "a");
        let leaving = |version, finalizers: &[&str]| {
            let mut pod = pod("a", "1", version, None);
            pod.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
            pod.metadata.deletion_grace_period_seconds = Some(0);
            pod.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
            pod
        };
        hear(&mirror, Event::Apply(leaving(10, &["mine", "yours"])));
        take(&mirror.cache, "patch", &key, Ok(leaving(11, &["yours"]))).unwrap();
        assert_eq!(mirror.len(), 1);
        take(&mirror.cache, "patch", &key, Ok(leaving(12, &[]))).unwrap();
        assert!(mirror.is_empty());
        hear(&mirror, Event::Apply(leaving(11, &["yours"])));
        assert!(mirror.is_empty(), "old news");
        hear(&mirror, Event::Delete(leaving(12, &[])));
        take(&mirror.cache, "patch", &key, Ok(leaving(12, &[]))).unwrap();
        assert!(mirror.is_empty());
    }

    #[tokio::test]
    async fn a_new_listing_drops_what_is_gone_but_not_what_was_just_written() {
        let mirror = mirror();
        for name in ["old", "kept"] {
            put(&mirror.cache, pod(name, name, 5, None), false);
        }
        hear(&mirror, Event::Init);
        hear(&mirror, Event::InitApply(pod("kept", "kept", 5, None)));
        put(&mirror.cache, pod("fresh", "fresh", 30, None), true);
        hear(&mirror, Event::InitDone);
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
        put(&mirror.cache, owned, false);
        put(&mirror.cache, pod("b", "2", 1, None), false);
        assert_eq!(names(&mirror.owned_by("u")), ["a"]);
        assert_eq!(names(&mirror.ownerless("ns")), ["b"]);
        assert_eq!(names(&mirror.list_in("ns")), ["a", "b"]);
        assert!(mirror.list_in("other").is_empty());
        put(&mirror.cache, pod("a", "1", 2, None), false);
        assert!(mirror.owned_by("u").is_empty());
    }
}
