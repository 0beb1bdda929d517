//! What happens, told so that two tellings can be compared: counters, phases, conditions; no times, no random names.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::scene::{CORE, INFRASTRUCTURE, Scene, answer, name, template_reference};

/// What was seen, step by step.
pub(crate) type Told = Vec<(&'static str, Value)>;

/// The status of a pool, without what differs from run to run.
pub(crate) fn pool_status(pool: &Value) -> Value {
    let status = &pool["status"];
    let counters = ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas", "phase"];
    let mut told: Value = counters.iter().map(|key| ((*key).to_owned(), status[*key].clone())).collect();
    let older = ["updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];
    // Zero is left out by one and written by the other.
    let count = |value: &Value| json!(value.as_i64().unwrap_or_default());
    told["deprecated"] =
        older.iter().map(|key| ((*key).to_owned(), count(&status["deprecated"]["v1beta1"][*key]))).collect();
    told["conditions"] = conditions(pool);
    told
}

fn conditions(object: &Value) -> Value {
    let told = |one: &Value| {
        let word = |key: &str| one[key].as_str().unwrap_or_default();
        format!("{}={} {}", word("type"), word("status"), word("reason"))
    };
    let all: Vec<String> = object["status"]["conditions"].as_array().into_iter().flatten().map(told).collect();
    json!(all)
}

/// A Machine that runs: everything that another program may look at.
fn machine(machine: &Value) -> Value {
    let meta = &machine["metadata"];
    let keys = |value: &Value| json!(value.as_object().into_iter().flatten().map(|(key, _)| key).collect::<Vec<_>>());
    let owners = |value: &Value| -> Vec<Value> {
        let owner = |one: &Value| json!([one["kind"], one["controller"]]);
        value["ownerReferences"].as_array().into_iter().flatten().map(owner).collect()
    };
    json!({
        "phase": machine["status"]["phase"],
        "conditions": conditions(machine),
        "labels": keys(&meta["labels"]),
        "finalizers": meta["finalizers"],
        "owners": owners(meta),
        "infrastructure": [&machine["spec"]["infrastructureRef"]["kind"], &machine["spec"]["infrastructureRef"]["apiGroup"]],
        "same name": machine["spec"]["infrastructureRef"]["name"] == meta["name"],
        "initialization": machine["status"]["initialization"],
    })
}

/// From no Machine to three, and down to one.
pub(crate) async fn scale(scene: &Scene) -> Told {
    let mut told = Told::new();
    scene.cluster("scale").await;
    scene.pool("scale", "scale-md", 0).await;
    let empty = scene.settled("scale-md", 0).await;
    told.push(("none", pool_status(&empty)));
    told.push(("selector", empty["spec"]["selector"]["matchLabels"].clone()));
    told.push(("strategy", empty["spec"]["rollout"]["strategy"].clone()));
    scene.scale(CORE, "scale-md", 3).await;
    let three = scene.settled("scale-md", 3).await;
    told.push(("three", pool_status(&three)));
    let machines = scene.machines("scale-md").await;
    assert_eq!(machines.len(), 3);
    for one in &machines {
        let node = scene.get("v1", "Node", one["status"]["nodeRef"]["name"].as_str().expect("a node")).await;
        assert_eq!(node["spec"]["providerID"], one["spec"]["providerID"]);
        let annotations = &node["metadata"]["annotations"];
        assert_eq!(annotations["cluster.x-k8s.io/machine"], one["metadata"]["name"]);
        assert_eq!(annotations["cluster.x-k8s.io/owner-kind"], "MachineSet");
        let machine_object = scene.get(INFRASTRUCTURE, "FakeMachine", &name(one)).await;
        assert_eq!(machine_object["spec"]["size"], "small", "cloned from the template");
    }
    told.push(("a machine", machine(&machines[0])));
    scene.scale(CORE, "scale-md", 1).await;
    told.push(("one", pool_status(&scene.settled("scale-md", 1).await)));
    let left = scene.machines("scale-md").await;
    let (kept, gone): (Vec<&Value>, Vec<&Value>) =
        machines.iter().partition(|one| left.iter().any(|it| name(it) == name(one)));
    assert_eq!((kept.len(), gone.len()), (1, 2));
    for one in gone {
        let node = one["status"]["nodeRef"]["name"].as_str().expect("a node");
        scene
            .until("the node of a deleted machine goes", async || match scene.get("v1", "Node", node).await {
                Value::Null => Ok(()),
                found => Err(found.to_string()),
            })
            .await;
        assert_eq!(scene.get(INFRASTRUCTURE, "FakeMachine", &name(one)).await, Value::Null);
    }
    told
}

/// The Machine that is marked for deletion leaves, and no other.
pub(crate) async fn marked(scene: &Scene) -> Told {
    scene.cluster("marked").await;
    scene.pool("marked", "marked-md", 3).await;
    scene.settled("marked-md", 3).await;
    for replicas in [2, 1] {
        let before = scene.machines("marked-md").await;
        let chosen = name(before.last().expect("machines"));
        scene
            .patch("Machine", &chosen, json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}}))
            .await;
        scene.scale(CORE, "marked-md", replicas).await;
        scene.settled("marked-md", replicas).await;
        let after: BTreeSet<String> = scene.machines("marked-md").await.iter().map(name).collect();
        let expected: BTreeSet<String> = before.iter().map(name).filter(|one| *one != chosen).collect();
        assert_eq!(after, expected, "{chosen} was marked");
    }
    Told::new()
}

/// Another template: Machines are replaced one by one, one more at a time.
pub(crate) async fn rollout(scene: &Scene) -> Told {
    let mut told = Told::new();
    scene.cluster("rollout").await;
    scene.pool("rollout", "rollout-md", 3).await;
    scene.settled("rollout-md", 3).await;
    let before: BTreeSet<String> = scene.machines("rollout-md").await.iter().map(name).collect();
    let reference = template_reference("rollout", "t2");
    scene
        .patch(
            "MachineDeployment",
            "rollout-md",
            json!({"spec": {"template": {"spec": {"infrastructureRef": reference}}}}),
        )
        .await;
    let most = std::cell::Cell::new(0);
    scene
        .until("every machine is replaced", async || {
            let machines = scene.machines("rollout-md").await;
            most.set(most.get().max(machines.len()));
            let old = machines.iter().filter(|one| before.contains(&name(one))).count();
            if old == 0 && machines.len() == 3 { Ok(()) } else { Err(format!("{old} old of {}", machines.len())) }
        })
        .await;
    assert!(most.get() <= 4, "{} machines at a time", most.get());
    let done = scene.settled("rollout-md", 3).await;
    told.push(("done", pool_status(&done)));
    told.push(("revision", done["metadata"]["annotations"]["machinedeployment.clusters.x-k8s.io/revision"].clone()));
    for one in scene.machines("rollout-md").await {
        assert_eq!(scene.get(INFRASTRUCTURE, "FakeMachine", &name(&one)).await["spec"]["size"], "large");
    }
    let sets = scene.list(CORE, "MachineSet", "cluster.x-k8s.io/deployment-name=rollout-md").await;
    let annotations: Vec<&String> =
        sets[0]["metadata"]["annotations"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
    told.push(("annotations of the set", json!(annotations)));
    // A change of labels is no rollout.
    let labels = json!({"metadata": {"labels": {"node.cluster.x-k8s.io/team": "a"}}});
    scene.patch("MachineDeployment", "rollout-md", json!({"spec": {"template": labels}})).await;
    scene
        .until("labels reach nodes", async || {
            let machines = scene.machines("rollout-md").await;
            for one in &machines {
                let node = scene.get("v1", "Node", one["status"]["nodeRef"]["name"].as_str().unwrap_or_default()).await;
                if node["metadata"]["labels"]["node.cluster.x-k8s.io/team"] != "a" {
                    return Err(node["metadata"]["labels"].to_string());
                }
            }
            Ok(())
        })
        .await;
    let after = scene.settled("rollout-md", 3).await;
    assert_eq!(after["metadata"]["annotations"], done["metadata"]["annotations"], "no new revision");
    told
}

/// Both versions of the API read and scale the same pool.
pub(crate) async fn versions(scene: &Scene) -> Told {
    let mut told = Told::new();
    scene.cluster("versions").await;
    scene.pool("versions", "versions-md", 1).await;
    scene.settled("versions-md", 1).await;
    for version in ["v1beta1", "v1beta2"] {
        let found = scene.get(&format!("cluster.x-k8s.io/{version}"), "MachineDeployment", "versions-md").await;
        assert_eq!(found["apiVersion"], format!("cluster.x-k8s.io/{version}"));
        told.push((
            "read",
            json!([found["spec"]["replicas"], found["status"]["replicas"], found["spec"]["clusterName"]]),
        ));
    }
    scene.scale("cluster.x-k8s.io/v1beta1", "versions-md", 2).await;
    told.push(("scaled by v1beta1", pool_status(&scene.settled("versions-md", 2).await)));
    told
}

/// A paused Cluster is left alone, and catches up afterwards.
pub(crate) async fn paused(scene: &Scene) -> Told {
    let mut told = Told::new();
    for cluster in ["paused", "awake"] {
        scene.cluster(cluster).await;
        scene.pool(cluster, &format!("{cluster}-md"), 1).await;
        scene.settled(&format!("{cluster}-md"), 1).await;
    }
    scene.patch("Cluster", "paused", json!({"spec": {"paused": true}})).await;
    scene
        .until("the pool knows", async || {
            let found = scene.get(CORE, "MachineDeployment", "paused-md").await;
            if answer(&found, "Paused") == "True" { Ok(()) } else { Err(found["status"].to_string()) }
        })
        .await;
    scene.scale(CORE, "paused-md", 3).await;
    // What is asked for later and happens tells that this would have happened too.
    scene.scale(CORE, "awake-md", 3).await;
    scene.settled("awake-md", 3).await;
    assert_eq!(scene.machines("paused-md").await.len(), 1, "nothing happens while paused");
    told.push(("paused", conditions(&scene.machines("paused-md").await[0])));
    scene.patch("Cluster", "paused", json!({"spec": {"paused": false}})).await;
    told.push(("awake again", pool_status(&scene.settled("paused-md", 3).await)));
    told
}

/// A Cluster takes everything along.
pub(crate) async fn end(scene: &Scene) -> Told {
    scene.cluster("end").await;
    scene.pool("end", "end-md", 2).await;
    scene.settled("end-md", 2).await;
    let nodes: Vec<String> = scene
        .machines("end-md")
        .await
        .iter()
        .map(|one| one["status"]["nodeRef"]["name"].as_str().expect("a node").to_owned())
        .collect();
    scene.delete("Cluster", "end").await;
    scene
        .until("everything of the cluster goes", async || {
            let mut left = Vec::new();
            for kind in ["Cluster", "MachineDeployment", "MachineSet", "Machine"] {
                let found = scene.list(CORE, kind, "").await;
                let of_end = |one: &&Value| {
                    one["spec"]["clusterName"] == "end" || (kind == "Cluster" && one["metadata"]["name"] == "end")
                };
                left.extend(found.iter().filter(of_end).map(|one| format!("{kind} {}: {}", name(one), one["status"])));
            }
            for kind in ["FakeCluster", "FakeMachine", "FakeMachineTemplate"] {
                let found = scene.list(INFRASTRUCTURE, kind, "").await;
                // The second template was never in use, and so has no owner.
                let of_end = |one: &&Value| name(one).starts_with("end") && name(one) != "end-t2";
                left.extend(found.iter().filter(of_end).map(|one| format!("{kind} {}", name(one))));
            }
            for node in &nodes {
                if !scene.get("v1", "Node", node).await.is_null() {
                    left.push(format!("Node {node}"));
                }
            }
            if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
        })
        .await;
    Told::new()
}
