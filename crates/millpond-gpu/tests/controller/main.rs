//! The controller on an embedded API: answers, reservations, refusals, faults of vCenter.

mod cluster;
mod reservations;
mod vcsim;
mod vsphere;

use kube::api::{DeleteParams, Patch, PatchParams};
use millpond_api::condition;
use millpond_gpu::controller::Options;
use serde_json::{Value, json};

use cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn a_job_is_answered_from_kubernetes_alone() {
    let mut cluster = Cluster::start_virtual().await;
    cluster.node("busy", 2, json!({})).await;
    cluster.node("free", 1, json!({})).await;
    cluster.node("plain", 0, json!({})).await;
    cluster.pod("other", Some("busy"), 1, json!({})).await;
    cluster.run(Options::default());
    cluster.ask("one", json!({"desAccTime": 100, "gpuRequired": true})).await;
    let status = cluster.until("one", "an answer", |status| !status.suitable_node_name.is_empty()).await;
    // Both have no load; one free GPU is taken rather than one of two.
    assert_eq!((status.suitable_node_name.as_str(), status.suitable_host_name.as_str()), ("busy", "busy"));
    assert_eq!(status.availability.map(|from| from.source).as_deref(), Some("Assumed"));
    assert_eq!(status.rejected.iter().map(|one| one.reason.as_str()).collect::<Vec<_>>(), ["NoGPU"]);
    assert!(
        condition::is_true(&status.conditions, "Ready") && condition::is_true(&status.conditions, "InventoryFresh")
    );
    cluster.ask("two", json!({"desAccTime": 100, "gpuRequired": true, "gpuCount": 2})).await;
    let status = cluster.until_node("two", "None available").await;
    assert_eq!((status.node_cpu_usage, status.available_accelerator_time), (0, 0));
    assert_eq!(condition::find(&status.conditions, "Ready").map(|ready| ready.reason.as_str()), Some("NoFreeGPU"));
    cluster.ask("cpu", json!({"desAccTime": 100, "gpuRequired": false})).await;
    cluster.until_node("cpu", "plain").await;
    cluster.pods().delete("other", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.until_node("two", "busy").await;
    // A window that opens before the job would end.
    let window = json!({
        "apiVersion": "millpond.dev/v1alpha1", "kind": "MaintenanceWindow", "metadata": {"name": "patch"},
        "spec": {"start": "2026-11-18T04:30:00Z", "duration": "2h", "nodes": ["busy"]},
    });
    let windows = kube::Api::<millpond_gpu::kinds::MaintenanceWindow>::all(cluster.client.clone());
    windows.patch("patch", &PatchParams::apply("test"), &Patch::Apply(window)).await.unwrap();
    let status = cluster.until_node("two", "None available").await;
    let busy = status.rejected.iter().find(|one| one.node == "busy").unwrap();
    assert_eq!(busy.reason, "TimeTooShort");
    assert!(busy.message.contains("of 100 hours are left: MaintenanceWindow patch begins"), "{}", busy.message);
    cluster.halt().await;
}

#[tokio::test(start_paused = true)]
async fn what_contradicts_itself_is_refused_with_its_field() {
    let cluster = Cluster::start_virtual().await;
    let check = async |spec: Value, field: &str| {
        let refused = cluster.try_ask("x", spec).await.expect_err(field);
        assert!(refused.to_string().contains(field), "{field}: {refused}");
    };
    check(json!({"desAccTime": -1, "gpuRequired": true}), "spec.desAccTime").await;
    check(json!({"desAccTime": i64::MAX, "gpuRequired": true}), "spec.desAccTime").await;
    check(json!({"desAccTime": 1.5, "gpuRequired": true}), "spec.desAccTime").await;
    check(json!({"gpuRequired": true}), "spec.desAccTime").await;
    check(json!({"desAccTime": 1}), "spec.gpuRequired").await;
    check(json!({"desAccTime": 1, "gpuRequired": false, "gpuCount": 1}), "spec.gpuCount").await;
    check(json!({"desAccTime": 1, "gpuRequired": true, "gpuCount": 0}), "spec.gpuCount").await;
    check(json!({"desAccTime": 1, "gpuRequired": false, "gpuModel": "T4"}), "spec.gpuModel").await;
    check(json!({"desAccTime": 1, "gpuRequired": true, "allowGpuNodes": true}), "spec.allowGpuNodes").await;
    check(json!({"desAccTime": 1, "gpuRequired": false, "reserve": {"ttl": "2h"}}), "spec.reserve").await;
    check(json!({"desAccTime": 1, "gpuRequired": true, "reserve": {"ttl": "0s"}}), "spec.reserve.ttl").await;
    let two = json!({"desAccTime": 1, "gpuRequired": true, "gpuCount": 1, "reserve": {"gpus": 2, "ttl": "2h"}});
    check(two, "spec.reserve.gpus").await;
    cluster.ask("good", json!({"desAccTime": 0, "gpuRequired": true, "reserve": {"gpus": 1, "ttl": "2h"}})).await;
}

#[tokio::test(start_paused = true)]
async fn the_definition_can_go_and_come_back() {
    let mut cluster = Cluster::start_virtual().await;
    cluster.node("a", 1, json!({})).await;
    cluster.run(Options::default());
    cluster.ask("one", json!({"desAccTime": 1, "gpuRequired": true, "reserve": {"ttl": "2h"}})).await;
    cluster.until_reason("one", "Reserved", "Reserved").await;
    let definitions = kube::Api::<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >::all(cluster.client.clone());
    let name = "gpuinfoes.topology.corinternal.com";
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    cluster
        .eventually("the end of the definition", async || {
            definitions.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    cluster
        .eventually("the end of the reservation", async || cluster.reservations().await.is_empty().then_some(()))
        .await;
    cluster.define().await;
    cluster.ask("two", json!({"desAccTime": 1, "gpuRequired": true})).await;
    cluster.until_node("two", "a").await;
    cluster.halt().await;
}
