//! Pools that people set, scale and delete, and pools that scale themselves, told so that two tellings can be compared.

use std::collections::BTreeSet;

use kube::api::DeleteParams;
use millpond_api::capi::pool_file;
use millpond_api::capi::{Version, names};
use millpond_controllers::capi::client::Connection;
use millpond_controllers::capi::pools::execute::{self, collect};
use millpond_controllers::capi::pools::fetch::fetch;
use millpond_controllers::capi::pools::{Current, Options, Verb, plan, plan_delete, plan_scale};
use serde_json::{Value, json};

use crate::scene::{CORE, Scene, name};
use crate::stories::{Told, pool_status};

/// How long an idle machine stays in these stories.
const UNNEEDED: &str = "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime";

async fn current(connection: &Connection, cluster: &str) -> Current {
    fetch(connection, "default", cluster).await.expect("a cluster")
}

/// `millpond pool set`.
async fn set(connection: &Connection, cluster: &str, text: &str) -> (Verb, bool) {
    let file = pool_file::parse("pool.yaml", text).expect("a node pool file").file;
    let (current, options) = (current(connection, cluster).await, Options::default());
    let made = plan(&current, &file, &options).expect("a plan");
    let rolls_out = made.rolls_out();
    (execute::set(connection, &current, made, &file, &options).await.expect("done").verb, rolls_out)
}

fn names_of(machines: &[Value]) -> BTreeSet<String> {
    machines.iter().map(name).collect()
}

/// Pools are made, changed in place and by a rollout, scaled and deleted, through either version of the API.
pub(crate) async fn verbs(scene: &Scene) -> Told {
    let mut told = verbs_at(scene, Version::V1Beta2).await;
    told.extend(verbs_at(scene, Version::V1Beta1).await);
    told
}

async fn verbs_at(scene: &Scene, version: Version) -> Told {
    let mut told = Told::new();
    let cluster = format!("verbs-{}", version.name());
    let (base, pool) = (format!("{cluster}-md-0"), format!("{cluster}-extra"));
    let connection = Connection::at(version, &scene.client);
    scene.cluster(&cluster).await;
    scene.pool(&cluster, &base, 1).await;
    scene.settled(&base, 1).await;

    let file = "name: extra\nreplicas: 2\nlabels: {node.cluster.x-k8s.io/purpose: web}\n";
    assert_eq!(set(&connection, &cluster, file).await, (Verb::Create, false));
    told.push(("made", pool_status(&scene.settled(&pool, 2).await)));
    let first = scene.machines(&pool).await;
    for machine in &first {
        let node = machine["status"]["nodeRef"]["name"].as_str().expect("a node");
        scene
            .until("its node has the label", async || {
                let found = scene.get("v1", "Node", node).await;
                let label = &found["metadata"]["labels"]["node.cluster.x-k8s.io/purpose"];
                if label == "web" { Ok(()) } else { Err(found["metadata"]["labels"].to_string()) }
            })
            .await;
    }
    assert_eq!(set(&connection, &cluster, file).await, (Verb::Nothing, false), "what is so already is not written");

    // In place: the same machines. What an autoscaler was told stays.
    let bounds = json!({"metadata": {"annotations": {names::MIN_SIZE: "0", names::MAX_SIZE: "5"}}});
    scene.patch("MachineDeployment", &pool, bounds).await;
    assert_eq!(set(&connection, &cluster, "name: extra\nnodeDrainTimeout: 90s\n").await, (Verb::Change, false));
    scene.settled(&pool, 2).await;
    assert_eq!(names_of(&scene.machines(&pool).await), names_of(&first));

    // By a rollout: others.
    assert_eq!(set(&connection, &cluster, "name: extra\naz: zone-b\n").await, (Verb::Change, true));
    let old = names_of(&first);
    scene
        .until("every machine is replaced", async || {
            let now = names_of(&scene.machines(&pool).await);
            if now.is_disjoint(&old) && now.len() == 2 { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    let rolled = scene.settled(&pool, 2).await;
    let annotations = &rolled["metadata"]["annotations"];
    assert_eq!((&annotations[names::MIN_SIZE], &annotations[names::MAX_SIZE]), (&json!("0"), &json!("5")));
    told.push(("rolled out", pool_status(&rolled)));
    let machine = &scene.machines(&pool).await[0];
    told.push((
        "a machine",
        json!([machine["spec"]["failureDomain"], machine["spec"]["deletion"]["nodeDrainTimeoutSeconds"]]),
    ));

    let found = current(&connection, &cluster).await;
    let scaled = plan_scale(&found, "extra", 3).expect("a plan");
    let file = pool_file::PoolFile { name: "extra".to_owned(), replicas: Some(3), ..Default::default() };
    execute::set(&connection, &found, scaled, &file, &Options::default()).await.expect("scaled");
    told.push(("scaled", pool_status(&scene.settled(&pool, 3).await)));
    assert!(plan_scale(&current(&connection, &cluster).await, "extra", 6).is_err(), "beyond the autoscaler's bounds");

    told.push(("deleted", deleted(scene, &connection, &cluster, &pool).await));
    told
}

/// Deletes a pool with a pod on one of its nodes: the node is drained, and all that was made for the pool goes.
async fn deleted(scene: &Scene, connection: &Connection, cluster: &str, pool: &str) -> Value {
    let machines = scene.machines(pool).await;
    let nodes: Vec<&str> = machines.iter().filter_map(|one| one["status"]["nodeRef"]["name"].as_str()).collect();
    assert_eq!(nodes.len(), 3);
    let pod = format!("{cluster}-pod");
    scene
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "default"},
            "spec": {"nodeName": nodes[0], "containers": [{"name": "c", "image": "app:1"}]},
        }))
        .await;
    scene
        .until("the pod runs", async || {
            let found = scene.get("v1", "Pod", &pod).await;
            if found["status"]["phase"] == "Running" { Ok(()) } else { Err(found["status"].to_string()) }
        })
        .await;
    let found = current(connection, cluster).await;
    let made = plan_delete(&found, "extra").expect("a plan");
    assert_eq!(made.machines.len(), 3);
    execute::delete(connection, &found, &made).await.expect("deleted");
    let mut most = 0;
    execute::wait_gone(connection, "default", pool, |left| most = most.max(left.machines.len())).await.expect("gone");
    for node in nodes {
        assert_eq!(scene.get("v1", "Node", node).await, Value::Null, "{node}");
    }
    assert_eq!(scene.get("v1", "Pod", &pod).await, Value::Null, "it was evicted");
    // At a time that is long after: unreferenced templates are old enough to be removed.
    let later = "2100-01-01T00:00:00Z".parse().expect("a time");
    let collected = collect(connection, "default", cluster, Some(pool), later).await.expect("collected");
    let last = plan_delete(&current(connection, cluster).await, "md-0").expect_err("the last pool stays");
    json!([most, collected.len(), last[0].problem.contains("is the last pool")])
}

/// Pods that wait bring Machines, and no more than are needed; the very Machine that is idle goes.
pub(crate) async fn autoscale(scene: &Scene) -> Told {
    let mut told = Told::new();
    scene.cluster("auto").await;
    let annotations = json!({
        names::MIN_SIZE: "0", names::MAX_SIZE: "3", names::CAPACITY_CPU: "4", names::CAPACITY_MEMORY: "16Gi",
        names::CAPACITY_LABELS: "pool=auto", UNNEEDED: "5s",
    });
    scene.annotated_pool("auto", "auto-md", 0, annotations).await;
    scene.settled("auto-md", 0).await;
    let crew = scene.hire().await;
    let pod = |number: usize| format!("auto-{number}");
    for number in 0..4 {
        let requests = json!({"cpu": "1500m", "memory": "1Gi"});
        scene
            .create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod(number), "namespace": "default", "labels": {"app": "auto"}},
                "spec": {"nodeSelector": {"pool": "auto"}, "containers": [
                    {"name": "c", "image": "app:1", "resources": {"requests": requests}}]},
            }))
            .await;
    }
    let pods = async || scene.list("v1", "Pod", "app=auto").await;
    let running = scene
        .until("all pods run", async || {
            let found = pods().await;
            let running = found.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            if running == 4 { Ok(found) } else { Err(format!("{running} run")) }
        })
        .await;
    told.push(("grown", pool_status(&scene.settled("auto-md", 2).await)));
    // The pods of one node go; that node is not the one that would go unmarked.
    let machines = scene.machines("auto-md").await;
    let node_of = |machine: &Value| machine["status"]["nodeRef"]["name"].as_str().expect("a node").to_owned();
    let idle = machines.iter().max_by_key(|machine| name(machine)).expect("machines");
    for pod in running.iter().filter(|pod| pod["spec"]["nodeName"] == node_of(idle).as_str()) {
        scene.api("v1", "Pod").delete(&name(pod), &DeleteParams::default()).await.expect("deleted");
    }
    told.push(("shrunk", pool_status(&scene.settled("auto-md", 1).await)));
    let left = names_of(&scene.machines("auto-md").await);
    assert_eq!(left, names_of(&machines).into_iter().filter(|one| *one != name(idle)).collect());
    for pod in pods().await {
        scene.api("v1", "Pod").delete(&name(&pod), &DeleteParams::default()).await.expect("deleted");
    }
    told.push(("empty", pool_status(&scene.settled("auto-md", 0).await)));
    let nodes = scene.list("v1", "Node", "pool=auto").await;
    assert!(nodes.is_empty(), "{nodes:?}");
    let pool = scene.get(CORE, "MachineDeployment", "auto-md").await;
    told.push(("bounds", json!([pool["metadata"]["annotations"][names::MIN_SIZE], pool["spec"]["replicas"]])));
    crew.stop().await;
    told
}
