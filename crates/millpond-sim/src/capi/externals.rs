//! Objects of foreign kinds that Cluster API's objects refer to: templates, infrastructure, bootstrap configurations,
//! control planes. Their kinds are known only from the references.
//!
//! They are read from the server each time, so that a write is never based on a stale copy. A watch of each kind,
//! started with the first reference to it, only triggers reconciliation.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{TryStreamExt, pin_mut};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt, discovery};
use millpond_api::capi::Reference;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};
use crate::meta::Key;

/// The name under which fields of these objects are owned.
const FIELD_MANAGER: &str = "millpond-sim";

type Listener = Box<dyn Fn(&ApiResource, &DynamicObject) + Send + Sync>;

/// Objects of other people's kinds.
pub struct Externals {
    client: Client,
    /// Resources by group and kind; kinds that are not served are looked up again.
    known: Mutex<HashMap<(String, String), ApiResource>>,
    listeners: RwLock<Vec<Listener>>,
    tasks: TaskTracker,
    token: CancellationToken,
}

/// An object that was referred to.
#[derive(Clone, Debug)]
pub struct External {
    /// Its kind.
    pub resource: ApiResource,
    /// The object.
    pub object: DynamicObject,
}

impl External {
    /// A value within it; null when it is not there.
    pub fn at(&self, path: &[&str]) -> &Value {
        static NOTHING: Value = Value::Null;
        path.iter().try_fold(&self.object.data, |value, key| value.get(key)).unwrap_or(&NOTHING)
    }

    /// Whether a value within it is true.
    pub fn is(&self, path: &[&str]) -> bool {
        self.at(path).as_bool().unwrap_or(false)
    }

    /// Its namespace and name.
    pub fn key(&self) -> Key {
        Key::new(&self.object.namespace().unwrap_or_default(), &self.object.name_any())
    }

    /// Whether it is being deleted.
    pub fn is_leaving(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

impl Externals {
    /// Without any known kind.
    pub fn new(client: Client, tasks: TaskTracker, token: CancellationToken) -> Arc<Self> {
        let (known, listeners) = (Mutex::default(), RwLock::default());
        Arc::new(Self { client, known, listeners, tasks, token })
    }

    /// Calls `listener` with every object that comes, changes or goes, of kinds that were referred to; and with its
    /// kind, which objects of a list do not tell.
    pub fn on_change(&self, listener: impl Fn(&ApiResource, &DynamicObject) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Where objects of a kind are; `None` when the server does not serve it.
    pub async fn resource(self: &Arc<Self>, group: &str, kind: &str) -> Result<Option<ApiResource>> {
        let id = (group.to_owned(), kind.to_owned());
        if let Some(known) = self.known.lock().get(&id) {
            return Ok(Some(known.clone()));
        }
        let found = match discovery::group(&self.client, group).await {
            // Each kind in its own best version: not every kind of a group is in all of them.
            Ok(found) => found.resources_by_stability().into_iter().find(|(resource, _)| resource.kind == kind),
            Err(error) if is_unknown_group(&error) => None,
            Err(error) => return Err(failed("discover", kind, &Key::default(), error)),
        };
        let Some((resource, _)) = found else { return Ok(None) };
        if self.known.lock().insert(id, resource.clone()).is_none() {
            self.watch(resource.clone());
        }
        Ok(Some(resource))
    }

    /// The object that is referred to; `None` when it, or its kind, is not there.
    pub async fn get(self: &Arc<Self>, reference: &Reference, namespace: &str) -> Result<Option<External>> {
        let Some(resource) = self.resource(&reference.group, &reference.kind).await? else { return Ok(None) };
        self.read(&resource, &Key::new(namespace, &reference.name)).await
    }

    /// An object of a known kind.
    pub async fn read(&self, resource: &ApiResource, key: &Key) -> Result<Option<External>> {
        match self.api(resource, &key.namespace).get_opt(&key.name).await {
            Ok(object) => Ok(object.map(|object| External { resource: resource.clone(), object })),
            Err(error) => Err(failed("get", &resource.kind, key, error)),
        }
    }

    /// Creates an object.
    pub async fn create(&self, resource: &ApiResource, object: &DynamicObject) -> Result<External> {
        let key = Key::new(&object.namespace().unwrap_or_default(), &object.name_any());
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match self.api(resource, &key.namespace).create(&params, object).await {
            Ok(object) => Ok(External { resource: resource.clone(), object }),
            Err(error) => Err(failed("create", &resource.kind, &key, error)),
        }
    }

    /// Merges a patch into an object.
    pub async fn patch(&self, external: &External, patch: &Value) -> Result<External> {
        let key = external.key();
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(&external.resource, &key.namespace);
        match api.patch(&key.name, &params, &Patch::Merge(patch)).await {
            Ok(object) => Ok(External { resource: external.resource.clone(), object }),
            Err(error) => Err(failed("patch", &external.resource.kind, &key, error)),
        }
    }

    /// Merges a patch into the status of an object.
    pub async fn patch_status(&self, external: &External, patch: &Value) -> Result<External> {
        let key = external.key();
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(&external.resource, &key.namespace);
        match api.patch_status(&key.name, &params, &Patch::Merge(patch)).await {
            Ok(object) => Ok(External { resource: external.resource.clone(), object }),
            Err(error) => Err(failed("patch the status of", &external.resource.kind, &key, error)),
        }
    }

    /// Deletes an object; one that is gone already counts as deleted.
    pub async fn delete(&self, external: &External) -> Result<()> {
        let key = external.key();
        let preconditions = Preconditions { uid: external.object.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match self.api(&external.resource, &key.namespace).delete(&key.name, &params).await {
            Ok(_) => Ok(()),
            Err(error) => match failed("delete", &external.resource.kind, &key, error) {
                error if error.is_not_found() || error.is_conflict() => Ok(()),
                error => Err(error),
            },
        }
    }

    fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, resource)
        }
    }

    fn watch(self: &Arc<Self>, resource: ApiResource) {
        let (own, api) = (Arc::clone(self), self.api(&resource, ""));
        self.tasks.spawn(async move {
            let ended = own.token.clone();
            let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
            let events = futures::StreamExt::take_until(events, ended.cancelled());
            pin_mut!(events);
            loop {
                match events.try_next().await {
                    Ok(Some(Event::Apply(object) | Event::Delete(object) | Event::InitApply(object))) => {
                        own.listeners.read().iter().for_each(|listener| listener(&resource, &object));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return,
                    Err(error) => tracing::debug!(kind = resource.kind, %error, "watch interrupted"),
                }
            }
        });
    }
}

/// Whether discovery failed because the group is not served, which it reports with a specific error.
fn is_unknown_group(error: &kube::Error) -> bool {
    match error {
        kube::Error::Discovery(_) => true,
        kube::Error::Api(status) => status.is_not_found(),
        _ => false,
    }
}

fn failed(verb: &'static str, kind: &str, key: &Key, source: kube::Error) -> Error {
    Error::Api { verb, kind: kind.to_owned(), key: key.clone(), source: Box::new(source) }
}
