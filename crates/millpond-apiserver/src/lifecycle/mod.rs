//! Background work on objects: CRDs are served and cleaned up after, garbage is collected, namespaces end.
//!
//! One task follows every change in the store. The clean-up of CRDs belongs to the API itself and always runs;
//! garbage collection, the end of namespaces, bootstrap tokens and certificate signing requests are
//! kube-controller-manager's part and run only when asked for.

mod aggregation;
pub(crate) mod bootstrap;
pub(crate) mod definitions;
mod garbage;
mod namespaces;
mod requests;
mod supervised;
mod tokens;

use std::sync::Arc;

use http::{HeaderMap, Method};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::garbage::Garbage;
use self::supervised::{Backoff, has_panicked, keep_running};
use crate::auth::Identity;
use crate::handlers::call::{Call, split_key};
use crate::handlers::delete::{self, Options};
use crate::http::negotiate::Accepted;
use crate::http::path::ResourcePath;
use crate::http::query::Query;
use crate::resource::Resource;
use crate::server::Server;
use crate::store::Event;

/// Deletes and updates under way at once: enough for one group commit to carry many.
const CONCURRENCY: usize = 64;
/// Events looked at in one go.
const BATCH: usize = 1024;

/// The life cycles to run.
#[derive(Debug, Clone, Copy)]
pub struct LifecycleOptions {
    /// Collect objects whose owners are gone, finish the deletion of namespaces, settle certificate signing requests,
    /// remove expired bootstrap tokens.
    pub controllers: bool,
}

/// Runs the life cycles until the server shuts down.
pub async fn run(server: Arc<Server>, options: LifecycleOptions) {
    let shutdown = &server.shutdown;
    let objects = keep_running("objects", shutdown, || follow(server.clone(), options));
    if !options.controllers {
        return objects.await;
    }
    tokio::join!(
        objects,
        keep_running("aggregated roles", shutdown, || aggregation::run(server.clone())),
        keep_running("bootstrap tokens", shutdown, || tokens::run(server.clone())),
        keep_running("certificate requests", shutdown, || requests::run(server.clone())),
    );
}

async fn follow(server: Arc<Server>, options: LifecycleOptions) {
    let mut follower = Follower {
        garbage: Garbage::default(),
        work: Work { limit: Arc::new(Semaphore::new(CONCURRENCY)), running: JoinSet::new(), server: server.clone() },
        options,
    };
    let mut changed = server.store.subscribe_all();
    let mut cursor = follower.start();
    let (mut backoff, mut again) = (Backoff::new(), None);
    loop {
        changed.borrow_and_update();
        match server.store.all_events_after(cursor, BATCH) {
            Ok((events, complete_to)) => {
                let more = events.len() == BATCH;
                for (collection, event) in events {
                    follower.see(&collection, &event);
                }
                cursor = complete_to;
                if more {
                    continue;
                }
            }
            // Too far behind: look at everything anew.
            Err(_) => {
                cursor = follower.start();
                continue;
            }
        }
        tokio::select! {
            _ = changed.changed() => {}
            Some(job) = follower.work.running.join_next() => {
                if has_panicked(job) {
                    again.get_or_insert_with(|| Instant::now() + backoff.wait());
                }
            }
            () = until(again) => {
                again = None;
                cursor = follower.start();
            }
            () = server.shutdown.cancelled() => break,
        }
    }
    follower.work.running.abort_all();
}

/// Completes at a time; never if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

struct Follower {
    garbage: Garbage,
    work: Work,
    options: LifecycleOptions,
}

impl Follower {
    /// Looks at everything that is stored; returns the revision seen.
    fn start(&mut self) -> u64 {
        let (revision, objects) = self.work.server.store.everything();
        self.garbage = Garbage::default();
        for (collection, key, object) in &objects {
            self.garbage.learn(collection, key, object);
        }
        for (collection, key, object) in &objects {
            self.consider(collection, key, object);
        }
        revision
    }

    fn see(&mut self, collection: &Arc<str>, event: &Event) {
        let gone = event.kind == crate::store::EventKind::Deleted;
        if gone {
            self.garbage.forget(collection, &event.key, &event.object);
        } else {
            self.garbage.learn(collection, &event.key, &event.object);
            self.consider(collection, &event.key, &event.object);
        }
        if gone {
            self.after_deletion(collection, event);
        }
    }

    fn consider(&mut self, collection: &Arc<str>, key: &Arc<str>, object: &Arc<crate::store::StoredObject>) {
        if object.index.deleting && &**collection == definitions::COLLECTION {
            definitions::clean_up(&mut self.work, key.clone());
        }
        if !self.options.controllers {
            return;
        }
        if &**collection == "namespaces" {
            if object.index.deleting {
                namespaces::end(&mut self.work, key.clone());
            } else {
                namespaces::furnish(&mut self.work, key.clone());
            }
        }
        self.garbage.consider(&mut self.work, collection, key, object);
    }

    fn after_deletion(&mut self, collection: &Arc<str>, event: &Event) {
        definitions::after_instance_deleted(&mut self.work, collection);
        if !self.options.controllers {
            return;
        }
        if let Some((namespace, _)) = event.key.split_once('/') {
            let ending = self.work.server.store.get("namespaces", namespace).is_some_and(|found| found.index.deleting);
            if ending {
                namespaces::end(&mut self.work, namespace.into());
            }
        }
        self.garbage.after_deletion(&mut self.work, &event.object);
    }
}

/// Runs small jobs, a bounded number at a time.
struct Work {
    server: Arc<Server>,
    limit: Arc<Semaphore>,
    running: JoinSet<()>,
}

impl Work {
    fn spawn<F>(&mut self, job: impl FnOnce(Arc<Server>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let (server, limit) = (self.server.clone(), self.limit.clone());
        self.running.spawn(async move {
            let Ok(_permit) = limit.acquire_owned().await else { return };
            job(server).await;
        });
    }
}

/// The resource of the version in which a collection is stored.
fn resource_of(server: &Server, collection: &str) -> Option<Arc<Resource>> {
    let resources = server.registry.current();
    let found = resources
        .preferred()
        .find(|resource| &*resource.storage == collection && resource.version == resource.storage_version);
    found.or_else(|| resources.preferred().find(|resource| &*resource.storage == collection)).cloned()
}

/// A request of the server to itself.
fn internal_call(server: &Arc<Server>, resource: &Arc<Resource>, key: &str) -> Call {
    let (namespace, name) = split_key(resource, key);
    let mut headers = HeaderMap::new();
    headers.insert(http::header::USER_AGENT, http::HeaderValue::from_static("millpond-lifecycle"));
    Call {
        server: server.clone(),
        path: ResourcePath {
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            namespace: resource.namespaced.then(|| namespace.to_owned()),
            plural: resource.plural.to_string(),
            name: Some(name.to_owned()),
            subresource: None,
        },
        resource: resource.clone(),
        query: Query::default(),
        method: Method::DELETE,
        headers,
        identity: Identity::administrator("system:millpond"),
        accepted: Accepted::JSON,
        body_bytes: 0,
        warnings: Vec::new(),
        annotations: std::collections::BTreeMap::new(),
        raw_query: None,
        upgrade: None,
    }
}

/// Deletes an object; one that is gone already is fine, any other error is logged and retried later.
async fn delete_quietly(server: &Arc<Server>, collection: &str, key: &Arc<str>, options: &Options) {
    let Some(resource) = resource_of(server, collection) else { return };
    let call = internal_call(server, &resource, key);
    if let Err(problem) = delete::delete_object(&call, key, options).await {
        tracing::warn!(%problem, collection, key = &**key, "cannot delete");
    }
}
