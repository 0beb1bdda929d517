//! Keeps launcher and builder of every SoftwareFactory in place, and says when they are ready. Other parts of a deployment
//! are not managed, which a condition says.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment as LauncherDeployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, NamespaceResourceScope};
use kube::{Api, Client};
use millpond_api::ci::SoftwareFactoryStatus;
use millpond_api::condition::Conditions;
use millpond_api::meta::Condition;
use millpond_api::time::Time;
use millpond_runtime::clock::Clock;
use millpond_runtime::error::{Error, Result};
use millpond_runtime::meta::{Key, controller_reference, status_patch};
use millpond_runtime::mirror::{Mirror, Writer};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::{self, Reconcile};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::manifests::{BUILDER, Deployment, LAUNCHER, configuration, manifests};
use crate::builder::ssh;
use crate::objects::kinds::SoftwareFactory;

const MANAGER: &str = "millpond-ci";
/// Writes at a time; there are a handful of deployments in a cluster.
const WRITES: usize = 4;
/// Launchers of a deployment: one may go while another works.
const REPLICAS: u32 = 2;
/// Fields of a deployment's spec that are not parts of their own.
const NOT_PARTS: [&str; 3] = ["storageDefault", "config-location", "hostaliases"];

struct Controller {
    client: Client,
    image: String,
    clock: Clock,
    factories: Arc<Mirror<SoftwareFactory>>,
    launchers: Arc<Mirror<LauncherDeployment>>,
    builders: Arc<Mirror<StatefulSet>>,
}

/// Starts the controller; it ends with the token. Launchers and builders run this image.
pub fn start(client: &Client, image: &str, clock: Clock, term: &CancellationToken, tasks: &TaskTracker) {
    let writer = Writer::new(client.clone(), MANAGER, WRITES);
    let controller = Arc::new(Controller {
        client: client.clone(),
        image: image.to_owned(),
        clock,
        factories: Arc::new(Mirror::new(writer.clone(), None)),
        launchers: Arc::new(Mirror::new(writer.clone(), None).labelled("app=sf")),
        builders: Arc::new(Mirror::new(writer, None).labelled("app=sf")),
    });
    let queue: Arc<Queue<Key>> = Arc::default();
    let listener = Arc::clone(&queue);
    controller.factories.on_change(move |_, after| {
        if let Some(factory) = after {
            listener.add(Key::of(&**factory));
        }
    });
    let (listener, factories) = (Arc::clone(&queue), Arc::clone(&controller.factories));
    let in_namespace = move |namespace: Option<&String>| {
        for factory in factories.list_in(namespace.map_or("", String::as_str)) {
            listener.add(Key::of(&*factory));
        }
    };
    let told = in_namespace.clone();
    controller.launchers.on_change(move |before, after| {
        told(after.or(before).and_then(|it| it.metadata.namespace.as_ref()));
    });
    controller.builders.on_change(move |before, after| {
        in_namespace(after.or(before).and_then(|it| it.metadata.namespace.as_ref()));
    });
    tasks.spawn(Arc::clone(&controller.factories).run(false, term.clone()));
    tasks.spawn(Arc::clone(&controller.launchers).run(false, term.clone()));
    tasks.spawn(Arc::clone(&controller.builders).run(false, term.clone()));
    let term = term.clone();
    tasks.spawn(async move {
        let listed = async {
            controller.factories.wait_until_ready().await;
            controller.launchers.wait_until_ready().await;
            controller.builders.wait_until_ready().await;
        };
        if term.run_until_cancelled(listed).await.is_some() {
            worker::run(controller, queue, 1, term).await;
        }
    });
}

impl Reconcile for Controller {
    const NAME: &'static str = "softwarefactory";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(factory) = self.factories.get(key) else { return Ok(None) };
        if factory.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let generation = factory.metadata.generation.unwrap_or(1);
        let named = |name: &str| Key::new(&key.namespace, name);
        // A newer controller brings a newer image.
        let runs = |pod: Option<&PodSpec>| {
            let image = pod.and_then(|pod| pod.containers.first()?.image.as_ref());
            image == Some(&self.image)
        };
        let launcher = self.launchers.get(&named(LAUNCHER));
        let launcher = launcher.as_ref().and_then(|it| it.spec.as_ref()?.template.spec.as_ref());
        let builder = self.builders.get(&named(BUILDER));
        let builder = builder.as_ref().and_then(|it| it.spec.as_ref()?.template.spec.as_ref());
        let is_placed = factory.status.observed_generation == generation && runs(launcher) && runs(builder);
        if !is_placed {
            self.apply(&factory, key).await?;
        }
        let status = self.status(&factory, key, generation);
        if let Some(patch) = status_patch(&*factory, Some(&factory.status), &status) {
            self.factories.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}

impl Controller {
    async fn apply(&self, factory: &SoftwareFactory, key: &Key) -> Result<()> {
        let deployment = Deployment {
            namespace: key.namespace.clone(),
            image: self.image.clone(),
            fqdn: Some(factory.spec.fqdn.clone()).filter(|fqdn| !fqdn.is_empty()),
            replicas: REPLICAS,
            nodepool: factory.spec.nodepool.clone(),
            extra_labels: factory.spec.extra_labels.clone(),
            builder: true,
        };
        let owned = |mut object: Value| {
            object["metadata"]["ownerReferences"] = json!([controller_reference(factory)]);
            object
        };
        self.ensure::<ConfigMap>(owned(configuration(&key.namespace, &[])), key).await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let failed = |source| failed("get", "Secret", &Key::new(&key.namespace, ssh::SECRET), source);
        if secrets.get_metadata_opt(ssh::SECRET).await.map_err(failed)?.is_none() {
            self.ensure::<Secret>(owned(builder_key(key)?), key).await?;
        }
        for object in manifests(&deployment) {
            self.apply_one(&owned(object), key).await?;
        }
        Ok(())
    }

    /// Creates an object that others change afterwards; one that is there is left as it is.
    async fn ensure<K>(&self, object: Value, key: &Key) -> Result<()>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let name = Key::new(&key.namespace, object["metadata"]["name"].as_str().unwrap_or_default());
        let object: K = serde_json::from_value(object).map_err(|error| malformed(key, error.to_string()))?;
        let api = Api::<K>::namespaced(self.client.clone(), &key.namespace);
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => created.map(drop).map_err(|source| failed("create", &K::kind(&()), &name, source)),
        }
    }

    async fn apply_one(&self, object: &Value, key: &Key) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind, name) =
            (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        let params = PatchParams::apply(MANAGER).force();
        let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
        applied.map(drop).map_err(|source| failed("apply", &kind, &Key::new(&key.namespace, &name), source))
    }

    fn status(&self, factory: &SoftwareFactory, key: &Key, generation: i64) -> SoftwareFactoryStatus {
        let named = |name: &str| Key::new(&key.namespace, name);
        let launcher = self.launchers.get(&named(LAUNCHER)).is_some_and(|it| launcher_ready(&it));
        let builder = self.builders.get(&named(BUILDER)).is_some_and(|it| builder_ready(&it));
        let mut status = factory.status.clone();
        status.ready = launcher && builder;
        status.observed_generation = generation;
        status.reconciled_by = "millpond".to_owned();
        let now = Time(self.clock.now().as_second());
        let mut conditions = Conditions::new(&mut status.conditions, &[], generation, now);
        conditions.set(ready(LAUNCHER, launcher));
        conditions.set(ready(BUILDER, builder));
        match unmanaged(factory) {
            Some(condition) => conditions.set(condition),
            None => conditions.clear("Unmanaged"),
        };
        // `kubectl get sf` shows the message of the first condition: that of a part that is not ready, if there is one.
        status.conditions.sort_by_key(|condition| {
            let is_part = [LAUNCHER, BUILDER].contains(&condition.kind.as_str());
            (!is_part, condition.status == "True", condition.kind != BUILDER)
        });
        status
    }
}

fn failed(verb: &'static str, kind: &str, key: &Key, source: kube::Error) -> Error {
    Error::Api { verb, kind: kind.to_owned(), key: key.clone(), source: Box::new(source) }
}

fn malformed(key: &Key, problem: String) -> Error {
    Error::Malformed { kind: "SoftwareFactory", key: key.clone(), problem }
}

/// The Secret with the key pair by which the builder logs in to image-builders.
fn builder_key(key: &Key) -> Result<Value> {
    let pair = ssh::generate().map_err(|error| malformed(key, error.to_string()))?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": ssh::SECRET, "namespace": key.namespace, "labels": {"app": "sf"}},
        "stringData": {ssh::PUBLIC: pair.public, ssh::PRIVATE: pair.private},
    }))
}

fn launcher_ready(deployment: &LauncherDeployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let current = status.observed_generation == deployment.metadata.generation;
    current && status.updated_replicas.unwrap_or(0) >= wanted && status.ready_replicas.unwrap_or(0) >= wanted
}

fn builder_ready(set: &StatefulSet) -> bool {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation == set.metadata.generation && status.ready_replicas.unwrap_or(0) >= wanted
}

fn ready(part: &str, is_ready: bool) -> Condition {
    if is_ready {
        Condition::new(part, "True", "Ready", format!("{part} is ready"))
    } else {
        Condition::new(part, "False", "Awaiting", format!("{part} is not ready yet"))
    }
}

/// Names the parts of a deployment that something else has to provide.
fn unmanaged(factory: &SoftwareFactory) -> Option<Condition> {
    let parts: Vec<&str> =
        factory.spec.others.keys().map(String::as_str).filter(|part| !NOT_PARTS.contains(part)).collect();
    let message = format!("not managed by Millpond: {}", parts.join(", "));
    (!parts.is_empty()).then(|| Condition::new("Unmanaged", "True", "OnlyNodepool", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_not_managed_are_named() {
        let factory = |spec: Value| -> SoftwareFactory {
            serde_json::from_value(json!({"metadata": {"name": "my-sf"}, "spec": spec})).unwrap()
        };
        assert_eq!(unmanaged(&factory(json!({"fqdn": "x", "nodepool": {}, "storageDefault": {}}))), None);
        let condition = unmanaged(&factory(json!({"fqdn": "x", "zuul": {}, "logserver": {}}))).unwrap();
        assert_eq!(condition.message, "not managed by Millpond: logserver, zuul");
    }

    #[test]
    fn ready_means_that_what_is_wanted_now_is_there() {
        let of = |observed: i64, updated: i32, ready: i32| -> LauncherDeployment {
            serde_json::from_value(json!({
                "metadata": {"generation": 2},
                "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": {"observedGeneration": observed, "updatedReplicas": updated, "readyReplicas": ready},
            }))
            .unwrap()
        };
        assert!(launcher_ready(&of(2, 2, 2)));
        assert!(!launcher_ready(&of(1, 2, 2)));
        assert!(!launcher_ready(&of(2, 1, 2)));
        assert!(!launcher_ready(&of(2, 2, 1)));
    }
}
