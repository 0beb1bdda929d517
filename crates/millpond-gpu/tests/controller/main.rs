//! The controller on an embedded API: answers, reservations, refusals, faults of vCenter.

mod cluster;
mod log;
mod reservations;
mod vcsim;
mod vsphere;

use kube::api::{DeleteParams, Patch, PatchParams};
use millpond_api::condition;
use millpond_gpu::controller::Options;
use millpond_gpu::kinds::MaintenanceWindow;
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
    let windows = kube::Api::<MaintenanceWindow>::all(cluster.client.clone());
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
async fn a_window_that_is_not_understood_says_so_and_disturbs_nothing() {
    let mut cluster = Cluster::start_virtual().await;
    cluster.node("a", 1, json!({})).await;
    cluster.run(Options::default());
    let windows = kube::Api::<MaintenanceWindow>::all(cluster.client.clone());
    let write = async |schedule: &str| {
        let window = json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "MaintenanceWindow", "metadata": {"name": "patch"},
            "spec": {"schedule": schedule, "duration": "4h", "nodes": ["a"]},
        });
        windows.patch("patch", &PatchParams::apply("test"), &Patch::Apply(window)).await.unwrap();
    };
    let ready = async |status: &str| {
        let look = async || {
            let window = windows.get("patch").await.expect("the window");
            let found = condition::find(&window.status.unwrap_or_default().conditions, "Ready").cloned();
            found.filter(|found| found.status == status)
        };
        cluster.eventually("the condition", look).await
    };
    // Every day at 61 minutes past four: no such time.
    write("61 4 * * *").await;
    let refused = ready("False").await;
    assert_eq!(refused.reason, "InvalidSchedule");
    assert!(refused.message.contains("spec.schedule") && refused.message.contains("61 4 * * *"), "{}", refused.message);
    cluster.ask("job", json!({"desAccTime": 100, "gpuRequired": true})).await;
    cluster.until_node("job", "a").await;
    write("0 5 * * *").await;
    assert_eq!(ready("True").await.reason, "Scheduled");
    let status = cluster.until_node("job", "None available").await;
    assert_eq!(status.rejected[0].reason, "TimeTooShort");
    cluster.halt().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_can_bring_a_node_is_proposed_with_its_price() {
    let mut cluster = Cluster::start_virtual().await;
    cluster.node("a", 1, json!({})).await;
    cluster
        .create(json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "default"},
            "spec": {"provider": "sim", "catalog": "aws"},
        }))
        .await;
    let requirement = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let requirements = [
        requirement("karpenter.sh/capacity-type", &["on-demand"]),
        requirement("node.kubernetes.io/instance-type", &["g4dn.12xlarge", "g4dn.metal"]),
    ];
    let class = json!({"group": "millpond.dev", "kind": "NodeClass", "name": "default"});
    cluster
        .create(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpu"},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": requirements, "expireAfter": "720h"}}},
        }))
        .await;
    cluster.run(Options::default());
    cluster.ask("job", json!({"desAccTime": 100, "gpuRequired": true, "gpuCount": 4})).await;
    let proposal = cluster.until("job", "a proposal", |status| status.proposal.is_some()).await.proposal.expect("one");
    assert_eq!(proposal.message, "one node of pool gpu (g4dn.12xlarge, $3.912 an hour) would fit the job");
    let (pool, kind, price) = (proposal.pool, proposal.instance_type, proposal.price_per_hour);
    assert_eq!([pool, kind, price].map(Option::unwrap_or_default), ["gpu", "g4dn.12xlarge", "3.912"]);
    assert_eq!(proposal.nodes, 1);
    // A node of that pool would be replaced before the job ends.
    cluster.ask("long", json!({"desAccTime": 1000, "gpuRequired": true, "gpuCount": 4})).await;
    assert_eq!(cluster.until_node("long", "None available").await.proposal, None);
    cluster.halt().await;
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
