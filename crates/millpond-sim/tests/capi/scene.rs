//! An API server with Cluster API on it, real or simulated.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use millpond_controllers::cluster::Options;
use millpond_controllers::run::Controllers;
use millpond_providers::Provider;
use millpond_sim::clock::Clock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The core group, at the version that everybody writes.
pub(crate) const CORE: &str = "cluster.x-k8s.io/v1beta2";
/// The group of pretended infrastructure.
pub(crate) const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io/v1beta2";
/// The version of Kubernetes that Machines ask for.
const VERSION: &str = "v1.36.3";

/// Kinds that belong to no namespace.
const CLUSTER_SCOPED: [&str; 4] = ["Node", "Namespace", "CustomResourceDefinition", "VolumeAttachment"];

pub(crate) struct Scene {
    pub(crate) client: Client,
    /// How often a story looks, and how long it waits at most.
    pub(crate) look: Duration,
    pub(crate) patience: Duration,
    /// The API server as Cluster API reaches it: port, and a kubeconfig for the secret that leads there.
    pub(crate) port: u16,
    pub(crate) kubeconfig: String,
    /// What time it is; `None` if it is the machine's.
    pub(crate) clock: Option<Clock>,
}

/// Millpond's controllers at work.
pub(crate) struct Crew {
    controllers: Controllers,
    stop: CancellationToken,
}

impl Crew {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.controllers.ended().await;
    }
}

impl Scene {
    pub(crate) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if CLUSTER_SCOPED.contains(&kind) {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), "default", &resource)
        }
    }

    pub(crate) async fn create(&self, object: Value) -> Value {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let types = object.types.clone().expect("a kind");
        let api = self.api(&types.api_version, &types.kind);
        let created = api.create(&PostParams::default(), &object).await;
        let created = created.unwrap_or_else(|error| panic!("cannot create {object:?}: {error}"));
        serde_json::to_value(created).expect("json")
    }

    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) {
        let api = self.api(CORE, kind);
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.unwrap_or_else(|error| panic!("cannot patch {kind} {name} with {patch}: {error}"));
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        self.api(CORE, kind).delete(name, &DeleteParams::background()).await.expect("deleted");
    }

    /// Scales through the subresource, as `kubectl scale` does.
    pub(crate) async fn scale(&self, api_version: &str, name: &str, replicas: i64) {
        let api = self.api(api_version, "MachineDeployment");
        let patch = json!({"spec": {"replicas": replicas}});
        api.patch_scale(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("scaled");
    }

    /// An object; null when it is not there.
    pub(crate) async fn get(&self, api_version: &str, kind: &str, name: &str) -> Value {
        let found = self.api(api_version, kind).get_opt(name).await.expect("an answer");
        serde_json::to_value(found).expect("json")
    }

    pub(crate) async fn list(&self, api_version: &str, kind: &str, labels: &str) -> Vec<Value> {
        let found = self.api(api_version, kind).list(&ListParams::default().labels(labels)).await.expect("a list");
        let mut found: Vec<DynamicObject> = found.items;
        found.sort_by_key(ResourceExt::name_any);
        found.into_iter().map(|object| serde_json::to_value(object).expect("json")).collect()
    }

    /// The Machines of a pool.
    pub(crate) async fn machines(&self, pool: &str) -> Vec<Value> {
        self.list(CORE, "Machine", &format!("cluster.x-k8s.io/deployment-name={pool}")).await
    }

    /// Waits until `check` has an answer.
    pub(crate) async fn until<T>(&self, what: &str, check: impl AsyncFn() -> Result<T, String>) -> T {
        let give_up = tokio::time::Instant::now() + self.patience;
        loop {
            match check().await {
                Ok(found) => return found,
                Err(instead) => {
                    assert!(tokio::time::Instant::now() < give_up, "never: {what}; instead {instead}");
                    tokio::time::sleep(self.look).await;
                }
            }
        }
    }

    /// Waits until a pool has so many Machines, all of them up to date and available, and no other.
    pub(crate) async fn settled(&self, pool: &str, replicas: i64) -> Value {
        self.until(&format!("{pool} settles at {replicas}"), async || {
            let found = self.get(CORE, "MachineDeployment", pool).await;
            let status = &found["status"];
            let counted = ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"]
                .iter()
                .all(|counter| status[*counter].as_i64().unwrap_or_default() == replicas);
            let older = &status["deprecated"]["v1beta1"];
            let older = ["updatedReplicas", "readyReplicas", "availableReplicas"]
                .iter()
                .all(|counter| older[*counter].as_i64().unwrap_or_default() == replicas);
            let quiet = ["RollingOut", "ScalingUp", "ScalingDown"].iter().all(|kind| answer(&found, kind) == "False");
            let holds =
                ["Available", "MachinesReady", "MachinesUpToDate"].iter().all(|kind| answer(&found, kind) == "True");
            let sets = self.list(CORE, "MachineSet", &format!("cluster.x-k8s.io/deployment-name={pool}")).await;
            let settled = counted && older && quiet && holds && sets.len() == 1 && status["phase"] == "Running";
            if settled { Ok(found.clone()) } else { Err(format!("{status:#}, {} sets", sets.len())) }
        })
        .await
    }

    /// A Cluster with all that its Machines share.
    pub(crate) async fn cluster(&self, name: &str) {
        let metadata = json!({"name": name, "namespace": "default"});
        let labelled = |secret: &str| json!({"name": secret, "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": name}});
        self.create(json!({
            "apiVersion": INFRASTRUCTURE, "kind": "FakeCluster", "metadata": metadata,
            "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": self.port}},
        }))
        .await;
        self.create(json!({
            "apiVersion": CONTROL_PLANE, "kind": "FakeControlPlane", "metadata": metadata, "spec": {"version": VERSION},
        }))
        .await;
        self.create(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": labelled(&format!("{name}-kubeconfig")), "stringData": {"value": self.kubeconfig},
        }))
        .await;
        self.create(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": labelled(&format!("{name}-bootstrap")),
            "stringData": {"value": "#cloud-config", "format": "cloud-config"},
        }))
        .await;
        for (template, size) in [("t1", "small"), ("t2", "large")] {
            self.create(json!({
                "apiVersion": INFRASTRUCTURE, "kind": "FakeMachineTemplate",
                "metadata": {"name": format!("{name}-{template}"), "namespace": "default"},
                "spec": {"template": {"spec": {"size": size}}},
            }))
            .await;
        }
        let reference = |group: &str, kind: &str| json!({"apiGroup": group, "kind": kind, "name": name});
        self.create(json!({
            "apiVersion": CORE, "kind": "Cluster", "metadata": metadata,
            "spec": {
                "infrastructureRef": reference("infrastructure.cluster.x-k8s.io", "FakeCluster"),
                "controlPlaneRef": reference("controlplane.cluster.x-k8s.io", "FakeControlPlane"),
            },
        }))
        .await;
    }

    /// Starts Millpond's controllers, without a cloud of their own.
    pub(crate) async fn hire(&self) -> Crew {
        let stop = CancellationToken::new();
        let virtual_start = self.clock.as_ref().map(Clock::now);
        let options = Options { seed: 7, virtual_start, ..Options::default() };
        let providers: [Arc<dyn Provider>; 0] = [];
        let controllers = Controllers::start(self.client.clone(), options, providers, &stop);
        controllers.context().cluster.wait_until_ready().await;
        Crew { controllers, stop }
    }

    /// A pool of a Cluster, from its first template.
    pub(crate) async fn pool(&self, cluster: &str, name: &str, replicas: i64) {
        self.annotated_pool(cluster, name, replicas, json!({})).await;
    }

    /// The same with annotations.
    pub(crate) async fn annotated_pool(&self, cluster: &str, name: &str, replicas: i64, annotations: Value) {
        self.create(json!({
            "apiVersion": CORE, "kind": "MachineDeployment",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {
                "clusterName": cluster, "replicas": replicas,
                "template": {"spec": {
                    "clusterName": cluster, "version": VERSION,
                    "bootstrap": {"dataSecretName": format!("{cluster}-bootstrap")},
                    "infrastructureRef": template_reference(cluster, "t1"),
                }},
            },
        }))
        .await;
    }
}

pub(crate) fn template_reference(cluster: &str, template: &str) -> Value {
    json!({
        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeMachineTemplate",
        "name": format!("{cluster}-{template}"),
    })
}

/// The status of a condition.
pub(crate) fn answer<'v>(object: &'v Value, kind: &str) -> &'v str {
    condition(object, kind)["status"].as_str().unwrap_or("none")
}

/// A condition; null when it is not there.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> &'v Value {
    static NOTHING: Value = Value::Null;
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&NOTHING)
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Definitions of the kinds that pretend.
pub(crate) fn fake_kinds() -> Vec<Value> {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let kinds = [
        ("infrastructure", "FakeCluster"),
        ("infrastructure", "FakeMachine"),
        ("infrastructure", "FakeMachineTemplate"),
        ("controlplane", "FakeControlPlane"),
    ];
    let define = |(group, kind): (&str, &str)| {
        let (group, singular) = (format!("{group}.cluster.x-k8s.io"), kind.to_lowercase());
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{singular}s.{group}"),
                // Which contract it keeps, and in which of its versions.
                "labels": {"cluster.x-k8s.io/v1beta2": "v1beta2"},
            },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular},
                "versions": [{
                    "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
                }],
            },
        })
    };
    kinds.into_iter().map(define).collect()
}
