//! Seed files taken literally, and the other two ways in which Tanzu keeps node pools.

use serde_json::{Value, json};

use crate::pond::Pond;
use crate::scene::{CORE, Scene, name};

const BYO: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

/// A pool as own hosts' users write it: a selector that all pools of the cluster share, `apiGroup` with a version, and
/// a bootstrap reference to something that is no template.
async fn own_hosts(scene: &Scene, pool: &str, purpose: &str, replicas: i64) {
    let template = format!("{purpose}-template");
    scene
        .create(json!({
            "apiVersion": BYO, "kind": "ByoMachineTemplate", "metadata": {"name": template, "namespace": "default"},
            "spec": {"template": {"spec": {"selector": {"matchLabels": {"purpose": purpose}}, "joinMode": "tlsBootstrap"}}},
        }))
        .await;
    let reference = |kind: &str, name: &str| json!({"apiGroup": BYO, "kind": kind, "name": name});
    scene
        .create(json!({
            "apiVersion": CORE, "kind": "MachineDeployment",
            "metadata": {"name": pool, "namespace": "default", "labels": {"cluster-autoscaler-enabled": "true"}},
            "spec": {
                "clusterName": "my-cluster", "replicas": replicas,
                "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "my-cluster"}},
                "template": {
                    "metadata": {"labels": {
                        "cluster-autoscaler-enabled": "true", "cluster.x-k8s.io/cluster-name": "my-cluster", "purpose": purpose,
                    }},
                    "spec": {
                        "clusterName": "my-cluster", "version": "v1.34.1",
                        "bootstrap": {"configRef": reference("BootstrapKubeconfig", "my-cluster-workers-bootstrap-kubeconfig")},
                        "infrastructureRef": reference("ByoMachineTemplate", &template),
                    },
                },
            },
        }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn two_pools_of_own_hosts_with_one_selector_stay_apart() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    let cluster = json!({"apiVersion": CORE, "kind": "Cluster", "metadata": {"name": "my-cluster", "namespace": "default"}, "spec": {}});
    scene.create(cluster).await;
    own_hosts(scene, "worker-pool", "worker", 2).await;
    own_hosts(scene, "gpu-pool", "gpu", 1).await;
    for (key, value) in [("gpu-type", "nvidia.com/gpu"), ("gpu-count", "1"), ("cpu", "8"), ("memory", "32Gi")] {
        let key = format!("capacity.cluster-autoscaler.kubernetes.io/{key}");
        scene.patch("MachineDeployment", "gpu-pool", json!({"metadata": {"annotations": {key: value}}})).await;
    }
    scene.settled("worker-pool", 2).await;
    scene.settled("gpu-pool", 1).await;
    scene.scale(CORE, "gpu-pool", 0).await;
    scene.settled("gpu-pool", 0).await;
    scene.scale(CORE, "gpu-pool", 1).await;
    scene.settled("gpu-pool", 1).await;
    assert_eq!(scene.machines("worker-pool").await.len(), 2);
    scene
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gpu-workload", "namespace": "default"},
            "spec": {"nodeSelector": {"purpose": "gpu"}, "containers": [
                {"name": "gpu-container", "image": "nvidia/cuda:11.0", "resources": {"limits": {"nvidia.com/gpu": 1}}},
            ]},
        }))
        .await;
    let pod = scene
        .until("the pod runs", async || {
            let found = scene.get("v1", "Pod", "gpu-workload").await;
            if found["status"]["phase"] == "Running" { Ok(found) } else { Err(found["status"].to_string()) }
        })
        .await;
    let machine = name(&scene.machines("gpu-pool").await[0]);
    assert_eq!(pod["spec"]["nodeName"], machine.as_str());
    pond.until_quiet().await;
    pond.stop().await;
}

/// Pools of a Cluster by the label that holds their name in a list.
async fn pools(scene: &Scene, label: &str) -> Vec<Value> {
    scene.list(CORE, "MachineDeployment", label).await
}

#[tokio::test(start_paused = true)]
async fn a_topology_makes_pools() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    let reference = |kind: &str, name: &str| {
        let group = if kind.starts_with("Kubeadm") { "bootstrap" } else { "infrastructure" };
        json!({"apiVersion": format!("{group}.cluster.x-k8s.io/v1beta2"), "kind": kind, "name": name})
    };
    for (kind, spec) in [
        (
            "VSphereMachineTemplate",
            json!({"numCPUs": 2, "memoryMiB": 4096, "template": "photon", "network": {"devices": []}}),
        ),
        ("KubeadmConfigTemplate", json!({})),
    ] {
        let mut object = reference(kind, "base");
        object.as_object_mut().expect("an object").remove("name");
        object["metadata"] = json!({"name": "base", "namespace": "default"});
        object["spec"] = json!({"template": {"spec": spec}});
        scene.create(object).await;
    }
    scene
        .create(json!({
            "apiVersion": CORE, "kind": "ClusterClass", "metadata": {"name": "tkg", "namespace": "default"},
            "spec": {"workers": {"machineDeployments": [{
                "class": "tkg-worker",
                "infrastructure": {"templateRef": reference("VSphereMachineTemplate", "base")},
                "bootstrap": {"templateRef": reference("KubeadmConfigTemplate", "base")},
            }]}},
        }))
        .await;
    let gpu = json!({
        "name": "gpu", "class": "tkg-worker", "replicas": 1,
        "variables": {"overrides": [
            {"name": "worker", "value": {"machine": {"numCPUs": 8}}},
            {"name": "pci", "value": {"worker": {"devices": [{"vendorId": 4318, "deviceId": 7864}], "hardwareVersion": "vmx-17"}}},
            {"name": "nodePoolLabels", "value": [{"key": "purpose", "value": "gpu"}]},
            {"name": "nodePoolTaints", "value": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
        ]},
    });
    let plain = json!({"name": "md-0", "class": "tkg-worker", "replicas": 1});
    let topology = |pools: Value| {
        json!({"topology": {
            "classRef": {"name": "tkg"}, "version": "v1.34.1", "workers": {"machineDeployments": pools},
        }})
    };
    scene
        .create(json!({
            "apiVersion": CORE, "kind": "Cluster", "metadata": {"name": "c", "namespace": "default"},
            "spec": topology(json!([plain, gpu])),
        }))
        .await;
    let label = |pool: &str| format!("topology.cluster.x-k8s.io/deployment-name={pool}");
    let made = scene
        .until("the pools are there", async || {
            let (first, second) = (pools(scene, &label("md-0")).await, pools(scene, &label("gpu")).await);
            if first.len() == 1 && second.len() == 1 {
                Ok(name(&second[0]))
            } else {
                Err(format!("{first:?} {second:?}"))
            }
        })
        .await;
    assert!(made.starts_with("c-gpu-") && made.len() == "c-gpu-".len() + 5, "{made}");
    scene.settled(&made, 1).await;
    let machine = name(&scene.machines(&made).await[0]);
    let node = scene.get("v1", "Node", &machine).await;
    let capacity = &node["status"]["capacity"];
    assert_eq!(
        (&capacity["cpu"], &capacity["memory"], &capacity["nvidia.com/gpu"]),
        (&json!("8"), &json!("4Gi"), &json!("1"))
    );
    assert_eq!(node["metadata"]["labels"]["purpose"], "gpu");
    assert_eq!(node["spec"]["taints"][0]["key"], "gpu");
    // The list changes: one pool grows, the other goes.
    let more = json!({"name": "md-0", "class": "tkg-worker", "replicas": 2});
    scene.patch("Cluster", "c", json!({"spec": topology(json!([more]))})).await;
    scene
        .until("the pool that is no longer listed goes", async || {
            let left = pools(scene, &label("gpu")).await;
            if left.is_empty() { Ok(()) } else { Err(left[0]["status"].to_string()) }
        })
        .await;
    let kept = name(&pools(scene, &label("md-0")).await[0]);
    scene.settled(&kept, 2).await;
    pond.until_quiet().await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tanzu_cluster_makes_pools() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    let tanzu = "run.tanzu.vmware.com/v1alpha3";
    scene
        .create(json!({
            "apiVersion": tanzu, "kind": "TanzuKubernetesCluster", "metadata": {"name": "tkc", "namespace": "default"},
            "spec": {"topology": {
                "controlPlane": {"replicas": 1, "vmClass": "best-effort-small"},
                "nodePools": [{"name": "workers", "replicas": 2, "vmClass": "best-effort-large", "labels": {"purpose": "web"}}],
            }},
        }))
        .await;
    let label = "sim.millpond.dev/node-pool=workers";
    let pool = scene
        .until("the pool is there", async || {
            let found = pools(scene, label).await;
            if found.len() == 1 { Ok(name(&found[0])) } else { Err(format!("{found:?}")) }
        })
        .await;
    assert!(pool.starts_with("tkc-workers-"), "{pool}");
    scene.settled(&pool, 2).await;
    let node = scene.get("v1", "Node", &name(&scene.machines(&pool).await[0])).await;
    assert_eq!(
        (&node["status"]["capacity"]["cpu"], &node["metadata"]["labels"]["purpose"]),
        (&json!("4"), &json!("web"))
    );
    let api = scene.api(tanzu, "TanzuKubernetesCluster");
    let patch = json!([{"op": "replace", "path": "/spec/topology/nodePools/0/replicas", "value": 1}]);
    let patch = kube::api::Patch::<()>::Json(serde_json::from_value(patch).expect("a patch"));
    api.patch("tkc", &kube::api::PatchParams::default(), &patch).await.expect("scaled");
    scene.settled(&pool, 1).await;
    api.delete("tkc", &kube::api::DeleteParams::background()).await.expect("deleted");
    scene
        .until("all of it goes", async || {
            let left = scene.list(CORE, "Machine", "").await.len() + scene.list(CORE, "Cluster", "").await.len();
            if left == 0 { Ok(()) } else { Err(format!("{left} objects")) }
        })
        .await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_example_lives() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    let text = include_str!("../../../../examples/cluster-api/cluster.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
    for object in objects {
        scene.create(object).await;
    }
    scene.settled("my-cluster-md-0", 1).await;
    for machine in scene.machines("my-cluster-md-0").await {
        let node = scene.get("v1", "Node", &name(&machine)).await;
        let capacity = &node["status"]["capacity"];
        assert_eq!((&capacity["cpu"], &capacity["memory"]), (&json!("4"), &json!("8Gi")));
        assert_eq!(machine["spec"]["bootstrap"]["dataSecretName"], name(&machine));
    }
    pond.until_quiet().await;
    pond.stop().await;
}
