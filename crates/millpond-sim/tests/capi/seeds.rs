//! What people have, taken as it stands: the document about pools of own hosts, command by command, with an autoscaler;
//! node pool files with GPUs.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::DeleteParams;
use millpond_api::capi::pool_file;
use millpond_controllers::capi::client::connect;
use millpond_controllers::capi::pools::fetch::fetch;
use millpond_controllers::capi::pools::{Options, execute, plan};
use serde_json::{Map, Value, json};

use crate::pond::Pond;
use crate::scene::{CORE, Scene, name};

const MULTI_POOL: &str = include_str!("multi_pool.md");

/// Code blocks of a document, with their language.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(language) => {
                open = !open;
                if open {
                    blocks.push((language, String::new()));
                }
            }
            None if open => {
                let (_, block) = blocks.last_mut().expect("a block is open");
                block.push_str(line);
                block.push('\n');
            }
            None => {}
        }
    }
    blocks
}

/// Does what a block of commands says: `kubectl apply` of what follows, and `kubectl annotate`.
async fn run(scene: &Scene, commands: &str) {
    let joined = commands.replace("\\\n", " ");
    let mut lines = joined.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    while let Some(line) = lines.next() {
        if line == "kubectl apply -f - <<EOF" {
            let yaml: Vec<&str> = lines.by_ref().take_while(|line| *line != "EOF").collect();
            scene.create(serde_saphyr::from_str(&yaml.join("\n")).expect("YAML")).await;
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["kubectl", "annotate", "machinedeployment", pool, "-n", "default", annotations @ ..] = words.as_slice()
        else {
            panic!("what is `{line}`?");
        };
        let pair = |text: &&str| text.split_once('=').map(|(key, value)| (key.to_owned(), Value::from(value)));
        let annotations: Map<String, Value> = annotations.iter().filter_map(pair).collect();
        scene.patch("MachineDeployment", pool, json!({"metadata": {"annotations": annotations}})).await;
    }
}

/// What hosts of a template really have: no object of the document says it.
async fn hosts(scene: &Scene, template: &str, offers: &str) {
    let annotations = json!({millpond_sim::capi::infrastructure::OFFERS: offers});
    let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    let api = scene.api("infrastructure.cluster.x-k8s.io/v1beta1", "ByoMachineTemplate");
    api.patch(template, &Default::default(), &kube::api::Patch::Merge(&patch)).await.expect("patched");
}

async fn until_running(scene: &Scene, pod: &str) -> Value {
    scene
        .until(&format!("{pod} runs"), async || {
            let found = scene.get("v1", "Pod", pod).await;
            if found["status"]["phase"] == "Running" { Ok(found) } else { Err(found["status"].to_string()) }
        })
        .await
}

async fn until_machines(scene: &Scene, pool: &str, count: usize) {
    scene
        .until(&format!("{pool} has {count} machines"), async || {
            let machines = scene.machines(pool).await;
            let replicas = scene.get(CORE, "MachineDeployment", pool).await["spec"]["replicas"].clone();
            let same = machines.len() == count && replicas == count;
            if same { Ok(()) } else { Err(format!("{replicas} wanted, {} there", machines.len())) }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn pools_of_own_hosts_scale_as_the_document_says() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    let cluster = json!({"apiVersion": CORE, "kind": "Cluster", "metadata": {"name": "my-cluster", "namespace": "default"}, "spec": {}});
    scene.create(cluster).await;
    let crew = scene.hire().await;
    let blocks = blocks(MULTI_POOL);
    let of = |language: &str| blocks.iter().filter(|block| block.0 == language).map(|block| block.1.as_str()).collect();
    let (commands, pods): (Vec<&str>, Vec<&str>) = (of("bash"), of("yaml"));
    assert_eq!((commands.len(), pods.len()), (5, 2), "two templates, two pools, the annotations; two pods");
    for (number, commands) in commands.iter().enumerate() {
        run(scene, commands).await;
        if number == 1 {
            hosts(scene, "worker-template", "cpu=4,memory=16Gi").await;
            hosts(scene, "gpu-template", "cpu=8,memory=32Gi,nvidia.com/gpu=1").await;
        }
    }
    // As many as the document says, until they are known to be unneeded.
    scene.settled("worker-pool", 2).await;
    scene.settled("gpu-pool", 1).await;
    until_machines(scene, "worker-pool", 0).await;
    until_machines(scene, "gpu-pool", 0).await;
    // Either pod of the document brings a machine with a GPU, and takes it along. Both have one name.
    for pod in pods {
        let pod: Value = serde_saphyr::from_str(pod).expect("YAML");
        assert_eq!(pod["metadata"]["name"], "gpu-workload");
        scene.create(pod).await;
        let running = until_running(scene, "gpu-workload").await;
        let machines = scene.machines("gpu-pool").await;
        assert_eq!(machines.len(), 1);
        let node = scene.get("v1", "Node", running["spec"]["nodeName"].as_str().expect("a node")).await;
        assert_eq!(machines[0]["status"]["nodeRef"]["name"], node["metadata"]["name"]);
        assert_eq!(node["metadata"]["labels"]["purpose"], "gpu");
        assert_eq!(scene.machines("worker-pool").await.len(), 0, "the other pool has no part in it");
        scene.api("v1", "Pod").delete("gpu-workload", &DeleteParams::default()).await.expect("deleted");
        until_machines(scene, "gpu-pool", 0).await;
    }
    // Seven workers of two cores need four hosts of four; twenty need ten, and five are the most.
    let labels = json!({"app": "web"});
    let containers = json!([{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "2"}}}]);
    scene
        .create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 7, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"nodeSelector": {"purpose": "worker"}, "containers": containers},
            }},
        }))
        .await;
    let deployments = scene.api("apps/v1", "Deployment");
    let web = async |replicas: i64| {
        let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": replicas}}));
        deployments.patch("web", &Default::default(), &patch).await.expect("scaled");
    };
    until_machines(scene, "worker-pool", 4).await;
    scene.settled("worker-pool", 4).await;
    web(20).await;
    until_machines(scene, "worker-pool", 5).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    until_machines(scene, "worker-pool", 5).await;
    web(0).await;
    until_machines(scene, "worker-pool", 0).await;
    pond.until_quiet().await;
    crew.stop().await;
    pond.stop().await;
}

const CLUSTER: &str = include_str!("../../../../examples/cluster-api/cluster.yaml");
const POOL: &str = include_str!("../../../../examples/cluster-api/pool.yaml");
const GPU: &str = include_str!("../../../../examples/cluster-api/gpu.yaml");

/// `millpond pool set my-cluster -f FILE --base-machine-deployment md-0`; the warnings of the file.
async fn set(scene: &Scene, text: &str) -> Vec<String> {
    let reading = pool_file::parse("pool.yaml", text).expect("a node pool file");
    let connection = connect(&scene.client).await.expect("an answer").expect("Cluster API");
    let current = fetch(&connection, "default", "my-cluster").await.expect("the cluster");
    let options = Options { base: Some("md-0".to_owned()), ..Options::default() };
    let made = plan(&current, &reading.file, &options).expect("a plan");
    execute::set(&connection, &current, made, &reading.file, &options).await.expect("done");
    reading.warnings.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn node_pool_files_become_nodes_that_pods_run_on() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    let objects: Vec<Value> = serde_saphyr::from_multiple(CLUSTER).expect("YAML");
    for object in objects {
        scene.create(object).await;
    }
    assert_eq!(set(scene, POOL).await, [""; 0]);
    let warnings = set(scene, GPU).await;
    assert!(warnings.len() == 1 && warnings[0].contains("vendorId and deviceId are exchanged"), "{warnings:?}");
    scene.settled("my-cluster-workers", 2).await;
    scene.settled("my-cluster-gpu", 1).await;
    let node = |machine: &Value| machine["status"]["nodeRef"]["name"].as_str().expect("a node").to_owned();
    for machine in scene.machines("my-cluster-workers").await {
        let node = scene.get("v1", "Node", &node(&machine)).await;
        let offers = ["cpu", "memory", "ephemeral-storage"].map(|it| node["status"]["capacity"][it].clone());
        assert_eq!(offers, [json!("8"), json!("16Gi"), json!("60Gi")]);
        assert_eq!(node["metadata"]["labels"]["purpose"], "worker");
    }
    let machines = scene.machines("my-cluster-gpu").await;
    let machine = scene.get("infrastructure.cluster.x-k8s.io/v1beta2", "VSphereMachine", &name(&machines[0])).await;
    let devices = &machine["spec"]["pciDevices"];
    assert_eq!((&devices[0]["vendorId"], &devices[0]["deviceId"]), (&json!(0x10de), &json!(0x1eb8)), "as it is meant");
    let keys: BTreeMap<String, String> =
        serde_json::from_value(machine["spec"]["customVMXKeys"].clone()).expect("texts");
    assert_eq!((machine["spec"]["hardwareVersion"].as_str(), keys.len()), (Some("vmx-17"), 4));
    let gpu = scene.get("v1", "Node", &node(&machines[0])).await;
    assert_eq!(gpu["status"]["capacity"]["nvidia.com/gpu"], "1");
    assert_eq!(gpu["metadata"]["labels"]["purpose"], "gpu");
    let taint = json!({"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"});
    assert!(gpu["spec"]["taints"].as_array().is_some_and(|all| all.contains(&taint)), "{}", gpu["spec"]);
    // A pod that asks for a GPU, and does not mind the taint, runs there.
    scene
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cuda", "namespace": "default"},
            "spec": {
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [{"name": "c", "image": "nvidia/cuda:11.0", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
            },
        }))
        .await;
    assert_eq!(until_running(scene, "cuda").await["spec"]["nodeName"], gpu["metadata"]["name"]);
    pond.until_quiet().await;
    pond.stop().await;
}
