//! Pools on the embedded API: what is written, by whom, and what is left when something fails.

use http::{Method, Request, Response};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use millpond_api::capi::pool_file::{self, PoolFile};
use millpond_api::capi::{Version, names};
use millpond_api::crd;
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{Server, ServerOptions};
use millpond_controllers::capi::client::{self, Connection};
use millpond_controllers::capi::pools::execute::{self, collect};
use millpond_controllers::capi::pools::fetch::{PoolError, fetch};
use millpond_controllers::capi::pools::{
    ChangePlan, MADE_FOR, MANAGER, Options, Verb, name_of, plan, plan_delete, views,
};
use serde_json::{Value, json};

use super::text::Pools;
use crate::commands::input::values;
use crate::commands::kinds;
use crate::commands::list_output::List as _;

const EXAMPLE: &str = include_str!("../../../../../../examples/cluster-api/cluster.yaml");
const POOL: &str = include_str!("../../../../../../examples/cluster-api/pool.yaml");
const GPU: &str = include_str!("../../../../../../examples/cluster-api/gpu.yaml");

async fn api_server() -> Client {
    let clock = Clock::System;
    let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap();
    millpond_apiserver::bootstrap(&server, 443).await.unwrap();
    Client::new(server.service_for(Identity::administrator("test")), "default")
}

fn api(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), "default", &resource)
}

async fn create(client: &Client, object: Value) -> kube::Result<DynamicObject> {
    let (version, kind) =
        (object["apiVersion"].as_str().unwrap().to_owned(), object["kind"].as_str().unwrap().to_owned());
    api(client, &version, &kind).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
}

/// A server with the cluster of the example.
async fn example() -> Connection {
    let client = api_server().await;
    kinds::install(&client).await.unwrap();
    for object in values("cluster.yaml", EXAMPLE.as_bytes()).unwrap() {
        create(&client, object).await.unwrap();
    }
    client::connect(&client).await.unwrap().unwrap()
}

fn file(text: &str) -> PoolFile {
    pool_file::parse("pool.yaml", text).unwrap().file
}

async fn set(connection: &Connection, text: &str) -> Result<ChangePlan, PoolError> {
    let current = fetch(connection, "default", "my-cluster").await?;
    let (file, options) = (file(text), Options::default());
    let made = plan(&current, &file, &options).map_err(PoolError::Refused)?;
    execute::set(connection, &current, made, &file, &options).await
}

const CORE: &str = "cluster.x-k8s.io/v1beta2";

async fn deployment(connection: &Connection, name: &str) -> Value {
    let found = api(&connection.client, CORE, "MachineDeployment").get(name).await.unwrap();
    serde_json::to_value(found).unwrap()
}

/// Templates that were made for pools, by name.
async fn templates(connection: &Connection) -> Vec<String> {
    let mut all = Vec::new();
    let kinds = [
        ("infrastructure.cluster.x-k8s.io/v1beta2", "VSphereMachineTemplate"),
        ("bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfigTemplate"),
    ];
    for (version, kind) in kinds {
        let list = api(&connection.client, version, kind).list(&ListParams::default().labels(MADE_FOR)).await.unwrap();
        all.extend(list.items.into_iter().filter_map(|it| it.metadata.name));
    }
    all.sort();
    all
}

#[tokio::test]
async fn a_pool_is_made_by_one_manager_and_then_left_alone() {
    let connection = example().await;
    assert_eq!(set(&connection, POOL).await.unwrap().verb, Verb::Create);
    let made = deployment(&connection, "my-cluster-workers").await;
    let managers = made["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1);
    assert_eq!((&managers[0]["manager"], &managers[0]["operation"]), (&json!(MANAGER), &json!("Apply")));
    assert_eq!(templates(&connection).await.len(), 2);
    assert_eq!(set(&connection, POOL).await.unwrap().verb, Verb::Nothing);
    let again = deployment(&connection, "my-cluster-workers").await;
    assert_eq!(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn what_somebody_else_does_at_the_same_time_is_kept() {
    let connection = example().await;
    set(&connection, POOL).await.unwrap();
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    let (file, options) = (file("name: workers\nreplicas: 5\n"), Options::default());
    let made = plan(&current, &file, &options).unwrap();
    // An autoscaler is told its bounds in between.
    let bounds = json!({"metadata": {"annotations": {names::MIN_SIZE: "0", names::MAX_SIZE: "9"}}});
    let other = api(&connection.client, CORE, "MachineDeployment");
    other.patch("my-cluster-workers", &PatchParams::default(), &Patch::Merge(&bounds)).await.unwrap();
    execute::set(&connection, &current, made, &file, &options).await.unwrap();
    let after = deployment(&connection, "my-cluster-workers").await;
    assert_eq!(
        (&after["spec"]["replicas"], &after["metadata"]["annotations"][names::MAX_SIZE]),
        (&json!(5), &json!("9"))
    );
}

#[tokio::test]
async fn labels_go_even_if_somebody_else_owns_them_and_machines_are_replaced_once() {
    let connection = example().await;
    set(&connection, "name: workers\nlabels: {a: '1', b: '2'}\n").await.unwrap();
    // kubectl edit owns everything that it writes.
    let label = json!({"spec": {"template": {"metadata": {"labels": {"b": "3"}}}}});
    let other = api(&connection.client, CORE, "MachineDeployment");
    other.patch("my-cluster-workers", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    let before = deployment(&connection, "my-cluster-workers").await;
    set(&connection, "name: workers\nlabels: {a: '1'}\n").await.unwrap();
    let after = deployment(&connection, "my-cluster-workers").await;
    let labels = &after["spec"]["template"]["metadata"]["labels"];
    assert_eq!((labels.get("b"), &labels["a"]), (None, &json!("1")));
    let generation = |it: &Value| it["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(generation(&after), generation(&before) + 1);
}

#[tokio::test]
async fn nothing_is_left_of_a_pool_that_could_not_be_made() {
    let whole = example().await;
    let inner = whole.client.clone();
    let broken = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            let is_pool = request.uri().path().contains("/machinedeployments/");
            if request.method() == Method::PATCH && is_pool {
                let status =
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": 500});
                return Ok(Response::builder().status(500).body(Body::from(status.to_string().into_bytes())).unwrap());
            }
            inner.send(request).await
        }
    });
    let connection = Connection { client: Client::new(broken, "default"), version: Version::V1Beta2 };
    let problem = set(&connection, GPU).await.unwrap_err();
    assert!(problem.to_string().contains("cannot write MachineDeployment `my-cluster-gpu`"), "{problem}");
    assert_eq!(templates(&whole).await, [""; 0]);
    // And the next try does not stumble over anything.
    assert_eq!(set(&whole, GPU).await.unwrap().verb, Verb::Create);
}

#[tokio::test]
async fn templates_stay_while_a_set_needs_them_and_go_after_that() {
    let connection = example().await;
    set(&connection, POOL).await.unwrap();
    let first = templates(&connection).await;
    let now = || jiff::Timestamp::now();
    // A MachineSet of the first template still has machines.
    let pool = deployment(&connection, "my-cluster-workers").await;
    let old = json!({
        "apiVersion": CORE, "kind": "MachineSet",
        "metadata": {"name": "my-cluster-workers-old", "namespace": "default"},
        "spec": {"clusterName": "my-cluster", "replicas": 1, "selector": pool["spec"]["selector"], "template": pool["spec"]["template"]},
    });
    create(&connection.client, old).await.unwrap();
    set(&connection, "name: workers\nvsphere: {memoryMiB: 32768}\n").await.unwrap();
    assert_eq!(templates(&connection).await.len(), 3);
    let collected = collect(&connection, "default", "my-cluster", Some("my-cluster-workers"), now()).await.unwrap();
    assert_eq!(collected, [""; 0]);
    api(&connection.client, CORE, "MachineSet").delete("my-cluster-workers-old", &Default::default()).await.unwrap();
    // Another run may be about to name what is young; that of a pool that is known to be through goes.
    assert_eq!(collect(&connection, "default", "my-cluster", None, now()).await.unwrap(), [""; 0]);
    let collected = collect(&connection, "default", "my-cluster", Some("my-cluster-workers"), now()).await.unwrap();
    assert_eq!(collected.len(), 1, "{collected:?}");
    let left = templates(&connection).await;
    assert_eq!(
        left.iter().filter(|name| first.contains(name)).count(),
        1,
        "the bootstrap template is still named: {left:?}"
    );
}

#[tokio::test]
async fn a_pool_goes_with_all_that_was_made_for_it_but_never_the_last() {
    let connection = example().await;
    set(&connection, POOL).await.unwrap();
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    let made = plan_delete(&current, "workers").unwrap();
    execute::delete(&connection, &current, &made).await.unwrap();
    let mut told = Vec::new();
    execute::wait_gone(&connection, "default", "my-cluster-workers", |left| told.push(left.clone())).await.unwrap();
    assert_eq!(told.last().map(|left| (left.machines.len(), left.deployment)), Some((0, false)));
    let now = jiff::Timestamp::now();
    assert_eq!(collect(&connection, "default", "my-cluster", Some("my-cluster-workers"), now).await.unwrap().len(), 2);
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    assert!(plan_delete(&current, "md-0").is_err());
}

#[tokio::test]
async fn an_entry_goes_out_of_the_list_as_it_is_by_then() {
    let client = api_server().await;
    kinds::install(&client).await.unwrap();
    let entry = |name: &str| json!({"name": name, "class": "worker", "replicas": 1});
    let topology = |names: &[&str]| {
        let entries: Vec<Value> = names.iter().map(|name| entry(name)).collect();
        json!({"topology": {"classRef": {"name": "tkg"}, "version": "v1.34.1", "workers": {"machineDeployments": entries}}})
    };
    let metadata = json!({"name": "my-cluster", "namespace": "default"});
    create(
        &client,
        json!({"apiVersion": CORE, "kind": "Cluster", "metadata": metadata, "spec": topology(&["a", "b"])}),
    )
    .await
    .unwrap();
    let connection = client::connect(&client).await.unwrap().unwrap();
    let clusters = api(&client, CORE, "Cluster");
    let somebody_else = async |names: &[&str]| {
        let patch = json!({"spec": topology(names)});
        clusters.patch("my-cluster", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    let left = async || -> Vec<String> {
        let found = clusters.get("my-cluster").await.unwrap();
        let list = found.data["spec"]["topology"]["workers"]["machineDeployments"].as_array().cloned();
        list.unwrap_or_default().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    // A pool is added after the plan was made: it stays.
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    let made = plan_delete(&current, "a").unwrap();
    somebody_else(&["a", "b", "c"]).await;
    execute::delete(&connection, &current, &made).await.unwrap();
    assert_eq!(left().await, ["b", "c"]);
    // Another client was faster: everything is as wanted.
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    let made = plan_delete(&current, "b").unwrap();
    somebody_else(&["c", "d"]).await;
    execute::delete(&connection, &current, &made).await.unwrap();
    assert_eq!(left().await, ["c", "d"]);
    // It became the last one meanwhile.
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    let made = plan_delete(&current, "c").unwrap();
    somebody_else(&["c"]).await;
    let problem = execute::delete(&connection, &current, &made).await.unwrap_err().to_string();
    assert!(problem.contains("`c` is the last pool of cluster `my-cluster`"), "{problem}");
    assert_eq!(left().await, ["c"]);
}

#[tokio::test]
async fn a_server_with_the_old_version_alone_is_spoken_to_in_its_own() {
    let client = api_server().await;
    let definitions = api_of_definitions(&client);
    for mut definition in crd::cluster_api() {
        let versions = definition["spec"]["versions"].as_array_mut().unwrap();
        versions.retain(|version| version["name"] != "v1beta2");
        versions[0]["storage"] = true.into();
        let name = crd::name(&definition).to_owned();
        definitions.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&definition)).await.unwrap();
        kube::runtime::wait::await_condition(
            Api::all(client.clone()),
            &name,
            kube::runtime::wait::conditions::is_crd_established(),
        )
        .await
        .unwrap();
    }
    for mut object in values("cluster.yaml", EXAMPLE.as_bytes()).unwrap() {
        let old = object["apiVersion"].as_str().unwrap().replace("v1beta2", "v1beta1");
        object["apiVersion"] = old.into();
        if object["kind"] == "MachineDeployment" {
            let spec = &mut object["spec"]["template"]["spec"];
            for (path, group) in [("/infrastructureRef", "infrastructure"), ("/bootstrap/configRef", "bootstrap")] {
                let reference = spec.pointer_mut(path).unwrap().as_object_mut().unwrap();
                reference.remove("apiGroup");
                reference.insert("apiVersion".to_owned(), format!("{group}.cluster.x-k8s.io/v1beta1").into());
            }
        }
        create(&client, object).await.unwrap();
    }
    let connection = client::connect(&client).await.unwrap().unwrap();
    assert_eq!(connection.version, Version::V1Beta1);
    assert_eq!(set(&connection, GPU).await.unwrap().verb, Verb::Create);
    let made = api(&client, "cluster.x-k8s.io/v1beta1", "MachineDeployment").get("my-cluster-gpu").await.unwrap();
    let spec = &made.data["spec"];
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxSurge"], 0);
    assert_eq!(spec["template"]["spec"]["infrastructureRef"]["apiVersion"], "infrastructure.cluster.x-k8s.io/v1beta1");
    assert_eq!(set(&connection, GPU).await.unwrap().verb, Verb::Nothing);
}

fn api_of_definitions(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

#[tokio::test]
async fn exchanged_ids_are_refused_at_the_door_with_what_would_be_right() {
    let connection = example().await;
    let template = |device: Value| {
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "VSphereMachineTemplate",
            "metadata": {"name": "t", "namespace": "default"}, "spec": {"template": {"spec": {"pciDevices": [device]}}}})
    };
    let problem =
        create(&connection.client, template(json!({"vendorId": 0x1eb8, "deviceId": 0x10de}))).await.unwrap_err();
    let text = problem.to_string();
    assert!(
        text.contains("vendorId and deviceId are exchanged; for a NVIDIA T4 write {vendorId: 4318, deviceId: 7864}"),
        "{text}"
    );
    let problem = create(&connection.client, template(json!({"vendorId": 0x10de}))).await.unwrap_err().to_string();
    assert!(problem.contains("give either vGPUProfile alone, or vendorId and deviceId together"), "{problem}");
    create(&connection.client, template(json!({"vendorId": 0x10de, "deviceId": 0x1eb8}))).await.unwrap();
}

#[tokio::test]
async fn pools_are_listed_as_the_original_lists_them() {
    let connection = example().await;
    set(&connection, GPU).await.unwrap();
    let status = json!({"status": {"phase": "Running", "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "upToDateReplicas": 1}});
    let deployments = api(&connection.client, CORE, "MachineDeployment");
    deployments.patch_status("my-cluster-md-0", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    let pools = Pools { cluster: "my-cluster", all: views(&current), now: 0 };
    insta::assert_snapshot!(pools.grid(false).page(), @r"
    NAME   NAMESPACE   PHASE     REPLICAS   READY   UPDATED   UNAVAILABLE
    gpu    default     Unknown          0       0         0             0
    md-0   default     Running          1       1         1             0

    2 pools of cluster my-cluster, 1 machine
    ");
    let gpu = millpond_controllers::capi::pools::view(&current, "gpu").unwrap();
    insta::assert_snapshot!(super::text::page(&current, &gpu, true).replace(&gpu.template.clone().unwrap(), "TEMPLATE"), @r"
    pool/gpu of cluster default/my-cluster: Unknown
      machines: 1 wanted, 0 there, 0 ready, 0 up to date, 0 unavailable
      MachineDeployment/my-cluster-gpu, by MachineDeployment, Kubernetes v1.34.1
      machines are made from TEMPLATE, replaced in turn (maxSurge 0, maxUnavailable 1)

    A node of this pool offers to the scheduler:
      cpu: 8
      ephemeral-storage: 40Gi
      memory: 32Gi
      nvidia.com/gpu: 1
      pods: 110
      label cluster-api/accelerator=nvidia-t4
      label purpose=gpu
      taint nvidia.com/gpu=true:NoSchedule
    ");
    assert_eq!(
        pools.names(),
        ["machinedeployment.cluster.x-k8s.io/my-cluster-gpu", "machinedeployment.cluster.x-k8s.io/my-cluster-md-0"]
    );
    assert_eq!(name_of(&pools.all[0].raw), "my-cluster-gpu");
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_told_with_those_that_are() {
    let connection = example().await;
    let problem = fetch(&connection, "default", "my-clutser").await.unwrap_err();
    let told = crate::failure::describe(&super::failed(problem));
    assert_eq!(
        told,
        "error: there is no cluster `my-clutser` in namespace `default`\nhint: did you mean `my-cluster`?"
    );
}

/// What happens to writes of MachineDeployments on their way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// After each, before its answer comes, a controller writes the same object.
    Overtaken,
    /// The first is done, and its answer is lost.
    Unanswered,
}

/// A connection whose writes of MachineDeployments meet something.
fn on_the_way(connection: &Connection, way: Way) -> (Connection, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let writes: std::sync::Arc<std::sync::atomic::AtomicUsize> = std::sync::Arc::default();
    let (inner, counted) = (connection.client.clone(), std::sync::Arc::clone(&writes));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, counted) = (inner.clone(), std::sync::Arc::clone(&counted));
        async move {
            let is_write = request.method() == Method::PATCH && request.uri().path().contains("/machinedeployments/");
            let answer = inner.send(request).await?;
            if !is_write {
                return Ok::<Response<Body>, kube::Error>(answer);
            }
            let number = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            match way {
                Way::Overtaken => {
                    let mark = json!({"metadata": {"annotations": {"controller": number.to_string()}}});
                    let other = api(&inner, CORE, "MachineDeployment");
                    other.patch("my-cluster-workers", &PatchParams::default(), &Patch::Merge(&mark)).await?;
                }
                Way::Unanswered if number == 0 => {
                    let lost = http::StatusCode::GATEWAY_TIMEOUT;
                    return Ok(Response::builder().status(lost).body(Body::from(b"{}".to_vec())).unwrap());
                }
                Way::Unanswered => {}
            }
            Ok(answer)
        }
    });
    (Connection { client: Client::new(service, "default"), version: connection.version }, writes)
}

/// Templates that the pool names.
async fn named(connection: &Connection) -> Vec<String> {
    let made = deployment(connection, "my-cluster-workers").await;
    let spec = &made["spec"]["template"]["spec"];
    let names = [&spec["infrastructureRef"]["name"], &spec["bootstrap"]["configRef"]["name"]];
    names.into_iter().filter_map(|name| name.as_str().map(ToOwned::to_owned)).collect()
}

#[tokio::test]
async fn a_change_that_removes_something_is_one_write_whoever_writes_meanwhile() {
    let connection = example().await;
    set(&connection, "name: workers\nlabels: {a: '1', b: '2'}\n").await.unwrap();
    let (disturbed, writes) = on_the_way(&connection, Way::Overtaken);
    set(&disturbed, "name: workers\nlabels: {a: '1'}\nvsphere: {memoryMiB: 32768}\n").await.unwrap();
    assert_eq!(writes.load(std::sync::atomic::Ordering::SeqCst), 1);
    let there = templates(&connection).await;
    for template in named(&connection).await.iter().filter(|name| name.starts_with("my-cluster-workers")) {
        assert!(there.contains(template), "{template} is named and gone: {there:?}");
    }
    let after = deployment(&connection, "my-cluster-workers").await;
    assert_eq!(after["spec"]["template"]["metadata"]["labels"].get("b"), None);
}

#[tokio::test]
async fn templates_that_the_pool_names_stay_when_the_answer_to_its_write_is_lost() {
    let connection = example().await;
    set(&connection, "name: workers\nlabels: {a: '1', b: '2'}\n").await.unwrap();
    let (disturbed, _) = on_the_way(&connection, Way::Unanswered);
    let lost = set(&disturbed, "name: workers\nlabels: {a: '1'}\nvsphere: {memoryMiB: 32768}\n").await;
    assert!(matches!(lost, Err(PoolError::Api { .. })), "{lost:?}");
    let (there, named) = (templates(&connection).await, named(&connection).await);
    let made: Vec<&String> = named.iter().filter(|name| name.contains("-mt-") || name.contains("-kct-")).collect();
    assert!(!made.is_empty() && made.iter().all(|name| there.contains(name)), "{named:?} of {there:?}");
}

#[tokio::test]
async fn another_plan_than_the_one_that_was_agreed_to_is_given_back() {
    let connection = example().await;
    set(&connection, "name: workers\nreplicas: 1\nvsphere: {memoryMiB: 32768}\n").await.unwrap();
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    let (wanted, options) = (file("name: workers\nreplicas: 3\nvsphere: {memoryMiB: 32768}\n"), Options::default());
    let agreed = plan(&current, &wanted, &options).unwrap();
    assert!(!agreed.rolls_out());
    // Another client gives the pool less memory: to give it back replaces machines.
    set(&connection, "name: workers\nvsphere: {memoryMiB: 16384}\n").await.unwrap();
    let before = deployment(&connection, "my-cluster-workers").await;
    let Err(PoolError::Differs(now)) = execute::set(&connection, &current, agreed.clone(), &wanted, &options).await
    else {
        panic!("machines are replaced without a question");
    };
    assert!(now.rolls_out() && !now.is_as_agreed(&agreed));
    let after = deployment(&connection, "my-cluster-workers").await;
    assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    // What was agreed to now is done.
    let current = fetch(&connection, "default", "my-cluster").await.unwrap();
    assert_eq!(execute::set(&connection, &current, *now, &wanted, &options).await.unwrap().verb, Verb::Change);
}

#[test]
fn a_plan_that_changed_meanwhile_is_a_conflict() {
    let plan = ChangePlan {
        pool: "gpu".to_owned(),
        object: "MachineDeployment/c-gpu".to_owned(),
        verb: Verb::Change,
        created: vec![],
        changes: vec![],
        ignored: vec![],
        warnings: vec![],
        writes: vec![],
    };
    insta::assert_snapshot!(crate::failure::describe(&super::failed(PoolError::Differs(Box::new(plan)))), @r"
    error: MachineDeployment/c-gpu was changed meanwhile, and what would be done now is not what was shown
    hint: look at it with `--dry-run`, and run the command again
    ");
}
