//! Node groups of Cluster API that grow and shrink with their pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use millpond_api::capi::{Version, names};
use millpond_controllers::capi::client;
use millpond_controllers::kinds::MachineDeployment;
use millpond_plan::plan::Settings;
use millpond_runtime::meta::Key;
use millpond_sim::capi::bench_objects;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::basin::{Basin, merge};
use crate::fuse::Fuse;
use crate::yard::{Kind, Yard};

const API: &str = "cluster.x-k8s.io/v1beta2";

/// A cluster with Cluster API's kinds, and controllers.
async fn start() -> (Basin, Arc<Yard>) {
    let mut basin = Basin::without_controllers().await;
    for definition in millpond_api::crd::cluster_api() {
        basin.create(definition).await;
    }
    let yard = Yard::open(&basin.client);
    basin.hire(Fuse::none());
    (basin, yard)
}

/// A MachineDeployment as seed 004 writes it.
fn machine_deployment(name: &str, replicas: i64, purpose: &str) -> Value {
    json!({
        "apiVersion": API, "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"cluster-autoscaler-enabled": "true"}},
        "spec": {
            "clusterName": "my-cluster", "replicas": replicas,
            "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "my-cluster"}},
            "template": {
                "metadata": {"labels": {
                    "cluster-autoscaler-enabled": "true", "cluster.x-k8s.io/cluster-name": "my-cluster", "purpose": purpose}},
                "spec": {
                    "clusterName": "my-cluster", "version": "v1.34.1",
                    "bootstrap": {"configRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "BootstrapKubeconfig",
                        "name": "my-cluster-workers-bootstrap-kubeconfig"}},
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ByoMachineTemplate",
                        "name": format!("{purpose}-template")},
                },
            },
        },
    })
}

/// What `kubectl annotate` writes in seed 004.
async fn annotate(basin: &Basin, name: &str, min: &str, max: &str, more: Value) {
    let mut annotations = json!({names::MIN_SIZE: min, names::MAX_SIZE: max});
    merge(&mut annotations, &more);
    basin.patch(API, "MachineDeployment", name, json!({"metadata": {"annotations": annotations}})).await;
}

fn sized(cpu: &str, memory: &str) -> Value {
    json!({names::CAPACITY_CPU: cpu, names::CAPACITY_MEMORY: memory})
}

fn group(basin: &Basin, name: &str) -> Option<Arc<MachineDeployment>> {
    basin.cluster().machines.deployments.get(&Key::new("default", name))
}

fn replicas(basin: &Basin, name: &str) -> i64 {
    group(basin, name).and_then(|group| group.spec["replicas"].as_i64()).unwrap_or(-1)
}

async fn until_size(basin: &Basin, name: &str, size: i64) {
    let what = format!("{name} has {size} machines");
    let key = Key::new("default", name);
    basin
        .until(&what, |cluster| {
            cluster.machines.deployments.get(&key).and_then(|it| it.spec["replicas"].as_i64()) == Some(size)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_pools_of_the_seed_go_from_nothing_to_some_and_back() {
    let (basin, yard) = start().await;
    yard.set("worker-pool", Kind { labels: json!({"purpose": "worker"}), ..Kind::new("4", "16Gi") });
    let gpus = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "1"});
    yard.set("gpu-pool", Kind { capacity: gpus, labels: json!({"purpose": "gpu"}), ..Kind::new("8", "32Gi") });
    basin.create(machine_deployment("worker-pool", 2, "worker")).await;
    basin.create(machine_deployment("gpu-pool", 1, "gpu")).await;
    annotate(&basin, "worker-pool", "0", "5", json!({})).await;
    annotate(&basin, "gpu-pool", "0", "2", json!({})).await;
    // They are unneeded: after ten minutes they are gone, and their capacity is remembered.
    until_size(&basin, "worker-pool", 0).await;
    until_size(&basin, "gpu-pool", 0).await;
    basin.until("all nodes are gone", |cluster| cluster.nodes.is_empty()).await;
    // The pod of the seed, twice.
    for number in 0..2 {
        basin
            .create(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("gpu-workload-{number}"), "labels": {"app": "gpu"}},
                "spec": {
                    "nodeSelector": {"purpose": "gpu"},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [{"name": "gpu-container", "image": "nvidia/cuda:11.0",
                        "resources": {"limits": {"nvidia.com/gpu": 1}}}],
                },
            }))
            .await;
    }
    basin.deployment("web", 6, "1500m", json!({"nodeSelector": {"purpose": "worker"}})).await;
    basin.until_running("gpu", 2).await;
    basin.until_running("web", 6).await;
    assert_eq!((replicas(&basin, "gpu-pool"), replicas(&basin, "worker-pool")), (2, 3));
    let events = basin.events("ScaledUpGroup").await;
    assert_eq!(events.len(), 2, "one for each decision: {events:?}");
    basin.scale("web", 0).await;
    for number in 0..2 {
        basin.delete("v1", "Pod", &format!("gpu-workload-{number}")).await;
    }
    until_size(&basin, "worker-pool", 0).await;
    until_size(&basin, "gpu-pool", 0).await;
    basin.until("all nodes are gone", |cluster| cluster.nodes.is_empty()).await;
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_for_machines_are_not_planned_for_twice() {
    let (basin, yard) = start().await;
    yard.set("w", Kind { boot: Duration::from_mins(5), ..Kind::new("4", "16Gi") });
    basin.create(machine_deployment("w", 0, "worker")).await;
    annotate(&basin, "w", "0", "10", sized("4", "16Gi")).await;
    basin.deployment("web", 4, "1500m", json!({})).await;
    until_size(&basin, "w", 2).await;
    basin.pass(Duration::from_mins(4)).await;
    assert_eq!(replicas(&basin, "w"), 2);
    // More pods need more machines, while the first are still coming.
    basin.scale("web", 7).await;
    until_size(&basin, "w", 4).await;
    basin.until_running("web", 7).await;
    basin.pass(Duration::from_mins(2)).await;
    assert_eq!((replicas(&basin, "w"), yard.book.lock().most["w"]), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn the_maximum_holds_with_two_controllers() {
    let (mut basin, yard) = start().await;
    basin.hire_rival(Fuse::none());
    for (name, max) in [("a", "3"), ("b", "4")] {
        yard.set(name, Kind::new("4", "16Gi"));
        basin.create(machine_deployment(name, 0, name)).await;
        annotate(&basin, name, "0", max, sized("4", "16Gi")).await;
    }
    basin.deployment("web", 40, "1500m", json!({})).await;
    until_size(&basin, "a", 3).await;
    until_size(&basin, "b", 4).await;
    basin.until_running("web", 14).await;
    basin.pass(Duration::from_mins(5)).await;
    let most = yard.book.lock().most.clone();
    assert_eq!((most["a"], most["b"]), (3, 4));
    // Where few are needed, two controllers do not ask for them twice.
    basin.scale("web", 0).await;
    until_size(&basin, "a", 0).await;
    until_size(&basin, "b", 0).await;
    basin.until("all nodes are gone", |cluster| cluster.nodes.is_empty()).await;
    basin.deployment("few", 2, "1500m", json!({})).await;
    basin.until_running("few", 2).await;
    assert_eq!(replicas(&basin, "a") + replicas(&basin, "b"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_very_machine_that_is_idle_goes_and_never_below_the_least() {
    let (basin, yard) = start().await;
    yard.set("w", Kind::new("4", "16Gi"));
    basin.create(machine_deployment("w", 3, "worker")).await;
    let soon = json!({"cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": "2m"});
    annotate(&basin, "w", "1", "5", soon).await;
    basin.until("three nodes", |cluster| cluster.nodes.len() == 3).await;
    // One pod that cannot be moved, on the node that would otherwise be removed first.
    let busy = "node-w-0000";
    basin
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone", "labels": {"app": "alone"}},
            "spec": {"nodeName": busy, "containers": [{"name": "c", "image": "app:1",
                "resources": {"requests": {"cpu": "100m"}}}]},
        }))
        .await;
    basin.until_running("alone", 1).await;
    until_size(&basin, "w", 1).await;
    basin.until("two nodes are gone", |cluster| cluster.nodes.len() == 1).await;
    assert_eq!(basin.nodes()[0].metadata.name.as_deref(), Some(busy));
    let removed = yard.book.lock().removed.clone();
    assert_eq!(removed.len(), 2);
    assert!(!removed.contains(&"w-0000".to_owned()), "{removed:?}");
    basin.pass(Duration::from_mins(30)).await;
    assert_eq!(replicas(&basin, "w"), 1);
    // Also not when nothing runs there any more.
    basin.delete("v1", "Pod", "alone").await;
    basin.pass(Duration::from_mins(30)).await;
    assert_eq!(replicas(&basin, "w"), 1, "the least size holds");
}

#[tokio::test(start_paused = true)]
async fn pods_move_together_where_there_is_room_and_budgets_hold() {
    let (basin, yard) = start().await;
    yard.set("w", Kind::new("4", "16Gi"));
    basin.create(machine_deployment("w", 0, "worker")).await;
    let mut more = sized("4", "16Gi");
    more["cluster.x-k8s.io/autoscaling-options-scaledownunneededtime"] = "3m".into();
    annotate(&basin, "w", "0", "5", more).await;
    basin
        .create(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .await;
    basin.deployment("web", 3, "1000m", json!({})).await;
    basin.deployment("filler", 3, "2500m", json!({})).await;
    basin.until_running("web", 3).await;
    basin.until_running("filler", 3).await;
    assert_eq!(replicas(&basin, "w"), 3);
    // What is left fits on one node; the pods of a budget go one after the other.
    basin.scale("filler", 0).await;
    until_size(&basin, "w", 1).await;
    basin.until("one node is left", |cluster| cluster.nodes.len() == 1).await;
    basin.until_running("web", 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_machines_fail_is_left_out_and_another_helps() {
    let (basin, yard) = start().await;
    yard.set("cheap", Kind { fails: Some("vCPU quota exceeded".to_owned()), ..Kind::new("4", "16Gi") });
    yard.set("dear", Kind::new("4", "16Gi"));
    for (name, price) in [("cheap", "0.1"), ("dear", "0.9")] {
        basin.create(machine_deployment(name, 0, name)).await;
        let mut more = sized("4", "16Gi");
        more[names::PRICE] = price.into();
        annotate(&basin, name, "0", "5", more).await;
    }
    basin.deployment("web", 4, "1500m", json!({})).await;
    basin.until_running("web", 4).await;
    assert_eq!(replicas(&basin, "dear"), 2);
    until_size(&basin, "cheap", 0).await;
    let events = basin.events("BackedOff").await;
    assert!(events.iter().any(|note| note.starts_with("Quota: ") && note.contains("quota exceeded")), "{events:?}");
    // It is mended: once its time is over, it is the cheapest again.
    yard.set("cheap", Kind::new("4", "16Gi"));
    basin.pass(Duration::from_mins(15)).await;
    basin.scale("web", 8).await;
    basin.until_running("web", 8).await;
    assert_eq!(replicas(&basin, "cheap"), 2);
}

#[tokio::test(start_paused = true)]
async fn machines_that_are_not_created_are_given_up() {
    let (basin, yard) = start().await;
    yard.set("cheap", Kind { stalled: true, ..Kind::new("4", "16Gi") });
    yard.set("dear", Kind::new("4", "16Gi"));
    for (name, price) in [("cheap", "0.1"), ("dear", "0.9")] {
        basin.create(machine_deployment(name, 0, name)).await;
        let mut more = sized("4", "16Gi");
        more[names::PRICE] = price.into();
        more["cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime"] = "3m".into();
        annotate(&basin, name, "0", "5", more).await;
    }
    basin.deployment("web", 2, "1500m", json!({})).await;
    until_size(&basin, "cheap", 1).await;
    basin.until_running("web", 2).await;
    assert_eq!((replicas(&basin, "dear"), replicas(&basin, "cheap")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn misspelt_annotations_are_reported_and_paused_groups_rest() {
    let (basin, yard) = start().await;
    yard.set("w", Kind::new("4", "16Gi"));
    basin.create(machine_deployment("w", 0, "worker")).await;
    let mut more = sized("4", "16Gi");
    more["capacity.cluster-autoscaler.kubernetes.io/gpu-cout"] = "1".into();
    more[names::PAUSED] = "true".into();
    annotate(&basin, "w", "0", "5", more).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.pass(Duration::from_mins(2)).await;
    assert_eq!(replicas(&basin, "w"), 0);
    let events = basin.events("InvalidAnnotation").await;
    assert!(events.iter().any(|note| note.contains(names::CAPACITY_GPU_COUNT)), "{events:?}");
    let why = basin.events("FailedScheduling").await;
    assert!(why.iter().any(|note| note.contains("default/w") && note.contains("paused")), "{why:?}");
    basin.patch(API, "MachineDeployment", "w", json!({"metadata": {"annotations": {names::PAUSED: null}}})).await;
    basin.until_running("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn node_pools_and_node_groups_serve_pods_together() {
    let (basin, yard) = start().await;
    basin.class("default", json!({})).await;
    basin.pool("default", json!({})).await;
    yard.set("w", Kind { labels: json!({"purpose": "worker"}), ..Kind::new("4", "16Gi") });
    basin.create(machine_deployment("w", 0, "worker")).await;
    annotate(&basin, "w", "0", "5", sized("4", "16Gi")).await;
    basin.deployment("machines", 2, "1", json!({"nodeSelector": {"purpose": "worker"}})).await;
    basin.deployment("claims", 2, "1", json!({"nodeSelector": {"karpenter.sh/nodepool": "default"}})).await;
    basin.until_running("machines", 2).await;
    basin.until_running("claims", 2).await;
    let of_machines = basin.nodes().len() - basin.claims().len();
    assert_eq!((replicas(&basin, "w"), of_machines), (1, 1), "each serves those that ask for it");
    assert!(!basin.claims().is_empty());
}

/// Counts how often each group was given another size.
fn sizes_written(basin: &Basin) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let written: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let counts = Arc::clone(&written);
    basin.cluster().machines.deployments.on_change(move |before, after| {
        if let Some((before, after)) = before.zip(after)
            && before.spec["replicas"] != after.spec["replicas"]
        {
            *counts.lock().entry(Key::of(&**after).name).or_default() += 1;
        }
    });
    written
}

/// What a plan over all that is there now would buy, and how many pods it would leave without a place.
fn lacking(basin: &Basin) -> (usize, usize) {
    let outcome = millpond_plan::plan(&basin.context().snapshot_for_pods(), &Settings::default());
    (outcome.plan.new_nodes.len(), outcome.report.unplaced.len())
}

/// Machines that the hundred groups should have.
fn machines(basin: &Basin) -> i64 {
    (0..100).map(|number| replicas(basin, &format!("group-{number:03}"))).sum()
}

/// A hundred groups and three thousand pending pods, before any controller is there.
async fn bench_objects() -> Basin {
    let basin = Basin::without_controllers().await;
    for definition in millpond_api::crd::cluster_api() {
        basin.create(definition).await;
    }
    let objects = (0..100).map(bench_objects::group).chain((0..3_000).map(bench_objects::pod));
    stream::iter(objects).map(|object| basin.create(object)).buffer_unordered(64).for_each(async |_| ()).await;
    basin
}

#[tokio::test(start_paused = true)]
async fn a_hundred_groups_get_their_sizes_at_once_and_none_twice() {
    let mut basin = bench_objects().await;
    basin.hire(Fuse::none());
    let written = sizes_written(&basin);
    basin.until("groups grow", |_| !written.lock().is_empty()).await;
    // Cluster API makes no machines: for minutes the same pods wait for the same machines, and are planned for again
    // and again.
    basin.pass(Duration::from_mins(2)).await;
    let most = written.lock().values().copied().max();
    assert_eq!((lacking(&basin), most), ((0, 0), Some(1)));
    // Filled class by class, without a word of what was meant for whom, the same nodes do not hold the same pods.
    let mut untold = basin.context().snapshot_for_pods();
    untold.planned_placements.clear();
    // With a limit, the plan does not count them a second time either.
    untold.limits.nodes = Some(u64::MAX);
    let outcome = millpond_plan::plan(&untold, &Settings::default());
    assert!(!outcome.plan.new_nodes.is_empty(), "then all of this would be for nothing");
    // A few more pods bring a few more machines, not another packing of all.
    let before = machines(&basin);
    for number in 3_000..3_020 {
        basin.create(bench_objects::pod(number)).await;
    }
    basin.pass(Duration::from_mins(1)).await;
    let after = machines(&basin);
    assert!(after - before <= 20, "{before} → {after}");
    assert_eq!(lacking(&basin), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn another_controller_asks_for_nothing_twice() {
    let mut basin = bench_objects().await;
    basin.hire(Fuse::none());
    let written = sizes_written(&basin);
    basin.until("groups grow", |_| !written.lock().is_empty()).await;
    basin.pass(Duration::from_secs(5)).await;
    assert_eq!(lacking(&basin), (0, 0));
    // It knows what is written, and not what was meant by it.
    basin.kill();
    basin.hire_another(Fuse::none());
    let again = sizes_written(&basin);
    basin.pass(Duration::from_mins(2)).await;
    assert_eq!((again.lock().clone(), lacking(&basin)), (BTreeMap::new(), (0, 0)));
}

const OLD_API: &str = "cluster.x-k8s.io/v1beta1";

/// A cluster whose Cluster API is of before v1beta2, and controllers.
async fn start_old() -> (Basin, Arc<Yard>) {
    let mut basin = Basin::without_controllers().await;
    for mut definition in millpond_api::crd::cluster_api() {
        let versions = definition["spec"]["versions"].as_array_mut().expect("versions");
        versions.retain(|version| version["name"] != "v1beta2");
        versions[0]["storage"] = true.into();
        basin.create(definition).await;
    }
    let connection = loop {
        if let Some(connection) = client::connect(&basin.client).await.expect("an answer") {
            break connection;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(connection.version, Version::V1Beta1);
    let yard = Yard::open(&connection.client);
    basin.hire(Fuse::none());
    (basin, yard)
}

#[tokio::test(start_paused = true)]
async fn groups_are_scaled_where_only_the_old_version_is_served() {
    let (basin, yard) = start_old().await;
    yard.set("w", Kind { labels: json!({"purpose": "worker"}), ..Kind::new("4", "16Gi") });
    let mut group = machine_deployment("w", 0, "worker");
    group["apiVersion"] = OLD_API.into();
    for path in ["/infrastructureRef", "/bootstrap/configRef"] {
        let reference = group["spec"]["template"]["spec"].pointer_mut(path).expect("a reference");
        reference["apiVersion"] = reference["apiGroup"].take();
    }
    let mut annotations = sized("4", "16Gi");
    merge(&mut annotations, &json!({names::MIN_SIZE: "0", names::MAX_SIZE: "5"}));
    group["metadata"]["annotations"] = annotations;
    basin.create(group).await;
    basin.deployment("web", 4, "1500m", json!({})).await;
    basin.until_running("web", 4).await;
    assert_eq!(basin.get(OLD_API, "MachineDeployment", "w").await["spec"]["replicas"], 2);
    basin.scale("web", 1).await;
    until_size(&basin, "w", 1).await;
    basin.scale("web", 0).await;
    until_size(&basin, "w", 0).await;
    basin.until("all nodes are gone", |cluster| cluster.nodes.is_empty()).await;
    basin.until_quiet().await;
}
