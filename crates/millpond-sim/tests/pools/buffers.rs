//! Room that is kept free, own prices and resources, own catalogues, and what LimitRanges add to daemons.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use millpond_controllers::cluster::Cluster;
use serde_json::{Value, json};

use crate::basin::{Basin, key, label, pods_of, running};

const TYPE: &str = "node.kubernetes.io/instance-type";

/// A template of pods of that many cores, under the name `spare`.
async fn template(basin: &Basin, cpu: &str) {
    let container = json!({"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}});
    basin
        .create(json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "spare"},
            "template": {"metadata": {"labels": {"app": "spare"}}, "spec": {"containers": [container]}},
        }))
        .await;
}

async fn buffer(basin: &Basin, replicas: u32) {
    basin
        .create(json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "spare"},
            "spec": {"podTemplateRef": {"name": "spare"}, "replicas": replicas},
        }))
        .await;
}

/// The reason of a condition of an object, with its status.
async fn condition(basin: &Basin, api_version: &str, kind: &str, name: &str, of: &str) -> (String, String, String) {
    let object = basin.get(api_version, kind, name).await;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|one| one["type"] == of).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Waits until a condition of an object is as said; gives its message.
async fn until_condition(basin: &Basin, of: (&str, &str, &str), kind: &str, wanted: (&str, &str)) -> String {
    let give_up = tokio::time::Instant::now() + Duration::from_mins(5);
    loop {
        let (status, reason, message) = condition(basin, of.0, of.1, of.2, kind).await;
        if (status.as_str(), reason.as_str()) == wanted {
            return message;
        }
        let late = tokio::time::Instant::now() > give_up;
        assert!(!late, "{of:?}: {kind} is {status} {reason} {message}\n{}", basin.describe());
        basin.pass(Duration::from_millis(200)).await;
    }
}

fn eager() -> Value {
    json!({"spec": {"disruption": {"consolidateAfter": "10s", "budgets": [{"nodes": "100%"}]}}})
}

/// Cores of all nodes that no pod asks for.
fn free_milli(cluster: &Cluster) -> i64 {
    let cpu = |quantity: &str| millpond_api::amounts::parse("cpu", quantity).expect("a quantity");
    let has = |node: &Node| {
        let status = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        status.and_then(|amounts| amounts.get("cpu")).map_or(0, |quantity| cpu(&quantity.0))
    };
    let asks = |pod: &Pod| -> i64 {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let requests = containers.filter_map(|one| one.resources.as_ref()?.requests.as_ref()?.get("cpu"));
        requests.map(|quantity| cpu(&quantity.0)).sum()
    };
    let all: i64 = cluster.nodes.list().iter().map(|node| has(node)).sum();
    all - cluster.pods.list().iter().map(|pod| asks(pod)).sum::<i64>()
}

const BUFFER: (&str, &str, &str) = ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", "spare");

#[tokio::test(start_paused = true)]
async fn room_is_bought_taken_at_once_and_made_again() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"sim": {"registrationDelay": "30s"}})).await;
    basin.pool("default", eager()).await;
    template(&basin, "1500m").await;
    buffer(&basin, 4).await;
    until_condition(&basin, BUFFER, "Provisioning", ("True", "FitsExistingCapacity")).await;
    assert!(free_milli(basin.cluster()) >= 6000, "{}", basin.describe());
    assert!(basin.cluster().pods.list().is_empty(), "no pod runs in it");
    basin.until_quiet().await;
    let before = basin.nodes().len();
    // Pods that come run long before a machine could boot.
    let begun = basin.now();
    basin.deployment("web", 4, "1500m", json!({})).await;
    basin.until_running("web", 4).await;
    let waited = basin.now().duration_since(begun).as_secs();
    assert!(waited < 20, "pods waited {waited} s beside room for them");
    assert_eq!(pods_of(basin.cluster(), "web").len(), 4);
    // The room is made again.
    basin.until("there is room again", |cluster| free_milli(cluster) >= 6000 && cluster.nodes.len() > before).await;
    until_condition(&basin, BUFFER, "Provisioning", ("True", "FitsExistingCapacity")).await;
    basin.until_quiet().await;
    // Without the buffer, unneeded nodes leave.
    basin.delete(BUFFER.0, BUFFER.1, BUFFER.2).await;
    basin.until("room is given up", |cluster| free_milli(cluster) < 6000).await;
    basin.scale("web", 0).await;
    basin.until("all nodes leave", |cluster| cluster.nodes.is_empty()).await;
    basin.until_quiet().await;
    assert!(basin.instances().is_empty());
}

#[tokio::test(start_paused = true)]
async fn buffers_keep_to_limits_and_make_way_for_pods() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("default", json!({"spec": {"limits": {"cpu": "9"}}})).await;
    template(&basin, "1500m").await;
    buffer(&basin, 20).await;
    let message = until_condition(&basin, BUFFER, "Provisioning", ("False", "RequiresNewCapacity")).await;
    basin.until("what may be had is there", |cluster| free_milli(cluster) >= 4500).await;
    basin.pass(Duration::from_mins(3)).await;
    let cores: i64 = basin.claims().iter().filter_map(|claim| claim.status.capacity.get("cpu")).sum();
    assert!(cores <= 9000, "{cores}");
    assert!(message.contains("of 20 pods"), "{message}");
    // Real pods come first.
    basin.deployment("web", 3, "1500m", json!({})).await;
    basin.until_running("web", 3).await;
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_buffer_of_nothing_says_so() {
    let basin = Basin::start().await;
    buffer(&basin, 2).await;
    let message = until_condition(&basin, BUFFER, "ReadyForProvisioning", ("False", "PodTemplateNotFound")).await;
    assert!(message.contains("spare"), "{message}");
    basin.until_quiet().await;
    assert!(basin.nodes().is_empty());
    template(&basin, "1").await;
    until_condition(&basin, BUFFER, "Provisioning", ("True", "FitsExistingCapacity")).await;
    assert!(free_milli(basin.cluster()) >= 2000, "{}", basin.describe());
}

async fn overlay(basin: &Basin, name: &str, spec: Value) {
    basin
        .create(json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec}))
        .await;
}

fn of_type(name: &str) -> Value {
    json!([{"key": TYPE, "operator": "In", "values": [name]}])
}

#[tokio::test(start_paused = true)]
async fn own_prices_change_what_is_chosen() {
    let basin = Basin::start().await;
    overlay(&basin, "gift", json!({"requirements": of_type("m-16x-arm64-linux"), "price": "0.0001"})).await;
    let of = ("karpenter.sh/v1alpha1", "NodeOverlay", "gift");
    until_condition(&basin, of, "ValidationSucceeded", ("True", "ValidationSucceeded")).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    assert_eq!(label(&basin.nodes()[0], TYPE), "m-16x-arm64-linux");
    // A class that names its overlays has no others.
    overlay(&basin, "other", json!({"requirements": of_type("c-8x-arm64-linux"), "price": "0.0002"})).await;
    basin.class("picky", json!({"overlays": ["other"]})).await;
    let class = json!({"nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "picky"}});
    basin.pool("picky", json!({"spec": {"template": {"spec": class}}})).await;
    basin.deployment("picky", 1, "1", json!({"nodeSelector": {"karpenter.sh/nodepool": "picky"}})).await;
    basin.until_running("picky", 1).await;
    let nodes = basin.nodes();
    let picky = nodes.iter().find(|node| label(node, "karpenter.sh/nodepool") == "picky").expect("its node");
    assert_eq!(label(picky, TYPE), "c-8x-arm64-linux");
}

#[tokio::test(start_paused = true)]
async fn own_resources_are_on_the_nodes_that_have_them() {
    let basin = Basin::start().await;
    let spec = json!({"requirements": of_type("c-4x-amd64-linux"), "capacity": {"example.com/fpga": "2"}});
    overlay(&basin, "fpga", spec).await;
    let ask = json!({"containers": [{"name": "c", "image": "app:1", "resources": {
        "requests": {"cpu": "500m", "example.com/fpga": "1"}, "limits": {"example.com/fpga": "1"},
    }}]});
    basin.deployment("web", 3, "1", ask).await;
    basin.until_running("web", 3).await;
    let nodes = basin.nodes();
    assert_eq!(nodes.len(), 2, "two of them share a node: {}", basin.describe());
    for node in nodes {
        assert_eq!(label(&node, TYPE), "c-4x-amd64-linux");
        let status = node.status.as_ref().expect("a status");
        let capacity = status.capacity.as_ref().and_then(|all| all.get("example.com/fpga"));
        let allocatable = status.allocatable.as_ref().and_then(|all| all.get("example.com/fpga"));
        assert_eq!(capacity.map(|it| it.0.as_str()), Some("2"));
        assert_eq!(allocatable, capacity);
    }
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn overlays_that_contradict_each_other_are_not_used() {
    let basin = Basin::bare().await;
    overlay(&basin, "a-cheap", json!({"requirements": of_type("m-16x-arm64-linux"), "price": "0.0001"})).await;
    overlay(&basin, "b-dear", json!({"requirements": of_type("m-16x-arm64-linux"), "price": "9"})).await;
    basin.class("default", json!({})).await;
    basin.pool("default", json!({})).await;
    let (a, b) = ("a-cheap", "b-dear");
    let of = |name: &'static str| ("karpenter.sh/v1alpha1", "NodeOverlay", name);
    let message = until_condition(&basin, of(a), "ValidationSucceeded", ("False", "Conflict")).await;
    assert!(message.contains(b), "{message}");
    until_condition(&basin, of(b), "ValidationSucceeded", ("True", "ValidationSucceeded")).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    assert_ne!(label(&basin.nodes()[0], TYPE), "m-16x-arm64-linux");
    // Without the other one it holds.
    basin.delete("karpenter.sh/v1alpha1", "NodeOverlay", b).await;
    until_condition(&basin, of(a), "ValidationSucceeded", ("True", "ValidationSucceeded")).await;
    basin.deployment("more", 1, "6", json!({})).await;
    basin.until_running("more", 1).await;
    assert!(basin.nodes().iter().any(|node| label(node, TYPE) == "m-16x-arm64-linux"), "{}", basin.describe());
}

const CLASS: (&str, &str, &str) = ("millpond.dev/v1alpha1", "NodeClass", "default");

#[tokio::test(start_paused = true)]
async fn an_overlay_that_is_not_there_is_told_with_a_like_one() {
    let basin = Basin::bare().await;
    let requirements = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]);
    overlay(&basin, "half", json!({"requirements": requirements, "priceAdjustment": "-50%"})).await;
    basin.class("default", json!({"overlays": ["hlaf"]})).await;
    basin.pool("default", json!({})).await;
    let message = until_condition(&basin, CLASS, "Ready", ("False", "NotReady")).await;
    assert_eq!(message, "spec.overlays[0]: there is no price overlay `hlaf`; is `half` meant?");
    basin.deployment("web", 1, "1", json!({})).await;
    basin.pass(Duration::from_mins(1)).await;
    assert!(basin.claims().is_empty());
    // It comes later.
    let requirements = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]);
    overlay(&basin, "hlaf", json!({"requirements": requirements, "priceAdjustment": "-40%", "weight": 2})).await;
    basin.until_running("web", 1).await;
    until_condition(&basin, CLASS, "Ready", ("True", "Ready")).await;
}

fn catalog(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("catalog-{name}"), "labels": {"millpond.dev/catalog": name}},
        "data": {"catalog": text},
    })
}

#[tokio::test(start_paused = true)]
async fn machines_of_an_own_catalogue_come_up() {
    let basin = Basin::bare().await;
    basin.class("default", json!({"catalog": "lab"})).await;
    let requirements = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]);
    basin.pool("default", json!({"spec": {"template": {"spec": {"requirements": requirements}}}})).await;
    basin.deployment("web", 3, "1500m", json!({})).await;
    let message = until_condition(&basin, CLASS, "Ready", ("False", "NotReady")).await;
    assert!(message.starts_with("spec.catalog: there is no catalogue `lab`"), "{message}");
    basin.create(catalog("lab", "millpond-catalog 1\nzones here\ntypes\nbox\n")).await;
    basin
        .until("it is told why", |cluster| {
            let class = cluster.classes.get(&key("default")).expect("a class");
            class.status.conditions.iter().any(|one| one.message.contains("default/catalog-lab"))
        })
        .await;
    let text = "millpond-catalog 1\nzones here\ntypes\nbox amd64 4 8Gi 20 0.25\n";
    basin.patch("v1", "ConfigMap", "catalog-lab", json!({"data": {"catalog": text}})).await;
    basin.until_running("web", 3).await;
    assert!(basin.nodes().iter().all(|node| label(node, TYPE) == "box"));
    assert_eq!(basin.nodes().len(), 2);
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn limit_ranges_count_for_daemons_that_say_nothing() {
    let basin = Basin::start().await;
    basin
        .create(json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1", "memory": "64Mi"}}]},
        }))
        .await;
    basin
        .create(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": "agent:1"}]},
            }},
        }))
        .await;
    // A node of one core would do for the pod alone, one of two for both.
    basin.deployment("web", 1, "800m", json!({})).await;
    basin.until("both run", |cluster| running(cluster, "web") == 1 && running(cluster, "agent") == 1).await;
    basin.until_quiet().await;
    let nodes = basin.nodes();
    assert_eq!(nodes.len(), 1, "one node, and no second try: {}", basin.describe());
    assert_eq!(label(&nodes[0], "karpenter.kwok.sh/instance-cpu"), "2");
    let agent = &pods_of(basin.cluster(), "agent")[0];
    let containers = agent.spec.as_ref().map(|spec| spec.containers.clone()).unwrap_or_default();
    let asked = containers[0].resources.as_ref().and_then(|it| it.requests.as_ref()?.get("cpu").cloned());
    assert_eq!(asked.map(|it| it.0), Some("1".to_owned()), "{}", agent.name_any());
}
