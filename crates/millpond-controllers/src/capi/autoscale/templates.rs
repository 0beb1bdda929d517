//! Infrastructure templates that groups refer to. Their kinds are not known beforehand, so they are fetched one by one.
//! Their specs never change; `status.capacity` can come later, so they are fetched again now and then.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery;
use millpond_api::capi::{Bootstrap, Deployment, Reference};
use millpond_runtime::meta::Key;
use millpond_state::objects::Kind as StateKind;
use millpond_state::objects::cluster_api::ApiKind;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Machines;
use crate::cluster::Cluster;

/// A template is fetched again after this time.
const FETCH_AGAIN: Duration = Duration::from_mins(5);
/// After a change, others that belong to it are waited for.
const GATHER: Duration = Duration::from_millis(100);
/// Limit on concurrent fetches.
const AT_A_TIME: usize = 16;

/// A template that a group refers to, and the group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    kind: ApiKind,
    namespace: String,
    reference: Reference,
}

/// Fetches templates.
pub(super) struct Templates {
    machines: Arc<Machines>,
    cluster: Weak<Cluster>,
    /// Templates that were looked up.
    known: Mutex<HashSet<Wanted>>,
    /// By group and kind, the served resource; `None` if the server does not serve it.
    served: tokio::sync::Mutex<HashMap<(String, String), Option<ApiResource>>>,
    changed: Arc<Notify>,
}

impl Templates {
    pub(super) fn new(machines: Arc<Machines>, cluster: &Arc<Cluster>) -> Self {
        let changed = Arc::new(Notify::new());
        macro_rules! listen {
            ($($mirror:ident),+) => {$(
                let news = Arc::clone(&changed);
                machines.$mirror.on_change(move |_, _| news.notify_one());
            )+};
        }
        listen!(deployments, sets, pools);
        let cluster = Arc::downgrade(cluster);
        Self { machines, cluster, known: Mutex::default(), served: tokio::sync::Mutex::default(), changed }
    }

    /// Fetches what is new whenever a group changes, and all now and then.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut all = tokio::time::interval(FETCH_AGAIN);
        all.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        all.tick().await;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = all.tick() => {
                    // A kind that was not served may be served by now.
                    self.served.lock().await.retain(|_, served| served.is_some());
                    self.fetch_all().await;
                }
                () = self.changed.notified() => {
                    tokio::time::sleep(GATHER).await;
                    self.fetch_new().await;
                }
            }
        }
    }

    /// Fetches the templates of all groups.
    pub(super) async fn fetch_all(&self) {
        let wanted = self.wanted();
        self.known.lock().retain(|known| wanted.contains(known));
        self.fetch(wanted.into_iter().collect()).await;
    }

    async fn fetch_new(&self) {
        let known = self.known.lock().clone();
        self.fetch(self.wanted().into_iter().filter(|wanted| !known.contains(wanted)).collect()).await;
    }

    async fn fetch(&self, wanted: Vec<Wanted>) {
        if wanted.is_empty() {
            return;
        }
        for some in wanted.chunks(AT_A_TIME) {
            let fetched = join_all(some.iter().map(|wanted| self.fetch_one(wanted))).await;
            let found = some.iter().zip(fetched).filter(|(_, found)| *found).map(|(wanted, _)| wanted.clone());
            self.known.lock().extend(found);
        }
        self.machines.notify();
    }

    /// Fetches a template; false if it should be tried again soon.
    async fn fetch_one(&self, wanted: &Wanted) -> bool {
        let Some(kind) = self.kind(&wanted.reference).await else { return true };
        let namespace = wanted.reference.namespace.as_deref().unwrap_or(&wanted.namespace);
        let api: Api<DynamicObject> = Api::namespaced_with(self.machines.client.clone(), namespace, &kind);
        match api.get_opt(&wanted.reference.name).await {
            Ok(Some(object)) => {
                if let Some(cluster) = self.cluster.upgrade() {
                    cluster.apply_raw(
                        StateKind::ClusterApi(wanted.kind),
                        &Key::new(namespace, &wanted.reference.name),
                        &object,
                    );
                }
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(%error, template = wanted.reference.name, "cannot read a template, will try again");
                false
            }
        }
    }

    /// The served resource of a kind.
    async fn kind(&self, reference: &Reference) -> Option<ApiResource> {
        let key = (reference.group.clone(), reference.kind.clone());
        let mut served = self.served.lock().await;
        if let Some(known) = served.get(&key) {
            return known.clone();
        }
        let client = &self.machines.client;
        let found = match &reference.version {
            Some(version) => {
                let gvk = GroupVersionKind::gvk(&reference.group, version, &reference.kind);
                discovery::pinned_kind(client, &gvk).await.ok().map(|(kind, _)| kind)
            }
            None => None,
        };
        let found = match found {
            Some(kind) => Some(kind),
            // If the version is not served, or none is named, use the one that the server prefers.
            None => match discovery::group(client, &reference.group).await {
                Ok(group) => best_version(&group, &reference.kind),
                Err(_) => None,
            },
        };
        served.insert(key, found.clone());
        found
    }

    fn wanted(&self) -> HashSet<Wanted> {
        let mut all = HashSet::new();
        let mut add = |metadata: &kube::api::ObjectMeta, spec: &serde_json::Value| {
            let template = Deployment::of(spec).template;
            let namespace = metadata.namespace.clone().unwrap_or_default();
            let bootstrap = match template.bootstrap {
                Bootstrap::Config(reference) => Some((ApiKind::ConfigTemplate, reference)),
                _ => None,
            };
            let infrastructure = template.infrastructure.map(|reference| (ApiKind::MachineTemplate, reference));
            for (kind, reference) in bootstrap.into_iter().chain(infrastructure) {
                all.insert(Wanted { kind, namespace: namespace.clone(), reference });
            }
        };
        self.machines.deployments.list().iter().for_each(|it| add(&it.metadata, &it.spec));
        self.machines.sets.list().iter().for_each(|it| {
            // A MachineSet of a MachineDeployment has the same template, or one that is being replaced.
            if millpond_runtime::meta::controller_of(&**it).is_none() {
                add(&it.metadata, &it.spec);
            }
        });
        self.machines.pools.list().iter().for_each(|it| add(&it.metadata, &it.spec));
        all
    }
}

/// A kind in its own best version: not every kind of a group is in all of them.
fn best_version(group: &kube::discovery::ApiGroup, kind: &str) -> Option<ApiResource> {
    group.resources_by_stability().into_iter().map(|(resource, _)| resource).find(|resource| resource.kind == kind)
}
