//! The stories, and what only the embedded mode is asked for, against the stand-in.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::pond::Pond;
use crate::scene::{CORE, Scene, answer, condition, name, template_reference};
use crate::{stories, verbs};

macro_rules! embedded {
    ($($room:ident::$story:ident),+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $story() {
            let pond = Pond::start().await;
            $room::$story(&pond.scene).await;
            pond.until_quiet().await;
            pond.stop().await;
        }
    )+};
}

embedded!(
    stories::scale,
    stories::marked,
    stories::rollout,
    stories::versions,
    stories::paused,
    stories::end,
    verbs::verbs,
    verbs::autoscale
);

/// Patches the spec of a pool.
async fn change(scene: &Scene, pool: &str, spec: Value) {
    scene.patch("MachineDeployment", pool, json!({"spec": spec})).await;
}

#[tokio::test(start_paused = true)]
async fn on_delete_waits_for_a_user_to_delete() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    scene.cluster("c").await;
    scene.pool("c", "md", 3).await;
    scene.settled("md", 3).await;
    let old: BTreeSet<String> = scene.machines("md").await.iter().map(name).collect();
    let template = json!({"spec": {"infrastructureRef": template_reference("c", "t2")}});
    change(
        scene,
        "md",
        json!({"rollout": {"strategy": {"type": "OnDelete", "rollingUpdate": null}}, "template": template}),
    )
    .await;
    pond.until_quiet().await;
    let same: BTreeSet<String> = scene.machines("md").await.iter().map(name).collect();
    assert_eq!(same, old, "nothing by itself");
    let pool = scene.get(CORE, "MachineDeployment", "md").await;
    assert_eq!(answer(&pool, "RollingOut"), "True");
    for machine in &old {
        scene.delete("Machine", machine).await;
        pond.until_quiet().await;
        let now: BTreeSet<String> = scene.machines("md").await.iter().map(name).collect();
        assert!(now.len() == 3 && !now.contains(machine), "{now:?}");
    }
    scene.settled("md", 3).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_oldest_or_the_newest_leaves() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    scene.cluster("c").await;
    scene.pool("c", "md", 1).await;
    let mut by_age: Vec<String> = Vec::new();
    for replicas in 1..=3 {
        scene.scale(CORE, "md", replicas).await;
        scene.settled("md", replicas).await;
        let all = scene.machines("md").await;
        by_age.extend(all.iter().map(name).filter(|one| !by_age.contains(one)).collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    for (order, replicas, expected) in [("Oldest", 2, vec![1, 2]), ("Newest", 1, vec![1])] {
        change(scene, "md", json!({"deletion": {"order": order}, "replicas": replicas})).await;
        scene.settled("md", replicas).await;
        let left: BTreeSet<String> = scene.machines("md").await.iter().map(name).collect();
        assert_eq!(left, expected.iter().map(|index: &usize| by_age[*index].clone()).collect(), "{order}");
    }
    pond.stop().await;
}

/// Puts a Deployment of pods on the nodes, with a budget that allows none of them to leave.
async fn stubborn_pods(scene: &Scene) {
    let labels = json!({"app": "stubborn"});
    scene
        .create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "stubborn", "namespace": "default"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            }},
        }))
        .await;
    scene
        .create(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "stubborn", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        }))
        .await;
    scene
        .until("the pod runs and the budget knows", async || {
            let pods = scene.list("v1", "Pod", "app=stubborn").await;
            let budget = scene.get("policy/v1", "PodDisruptionBudget", "stubborn").await;
            let running = pods.iter().any(|pod| pod["status"]["phase"] == "Running");
            if running && budget["status"]["currentHealthy"] == 1 { Ok(()) } else { Err(format!("{pods:?}")) }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_respects_budgets_until_its_time_is_up() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    scene.cluster("c").await;
    scene.pool("c", "md", 1).await;
    scene.settled("md", 1).await;
    stubborn_pods(scene).await;
    let machine = name(&scene.machines("md").await[0]);
    scene.delete("Machine", &machine).await;
    let draining = scene
        .until("it drains", async || {
            let found = scene.get(CORE, "Machine", &machine).await;
            if condition(&found, "Deleting")["reason"] == "DrainingNode" { Ok(found) } else { Err(found.to_string()) }
        })
        .await;
    let message = condition(&draining, "Deleting")["message"].as_str().unwrap_or_default();
    assert!(message.contains("disruption budget"), "{message}");
    assert_eq!(draining["status"]["phase"], "Deleting");
    let node = draining["status"]["nodeRef"]["name"].as_str().expect("a node").to_owned();
    assert_eq!(scene.get("v1", "Node", &node).await["spec"]["unschedulable"], true);
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert!(!scene.get(CORE, "Machine", &machine).await.is_null(), "for ever, without a limit");
    // A limit that has passed already.
    change(scene, "md", json!({"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}}}})).await;
    scene
        .until("it goes", async || match scene.get(CORE, "Machine", &machine).await {
            Value::Null => Ok(()),
            found => Err(found["status"].to_string()),
        })
        .await;
    assert!(scene.get("v1", "Node", &node).await.is_null());
    scene.settled("md", 1).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hooks_and_volumes_are_waited_for() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    scene.cluster("c").await;
    scene.pool("c", "md", 1).await;
    scene.settled("md", 1).await;
    let machine = scene.machines("md").await.remove(0);
    let (machine, node) = (name(&machine), machine["status"]["nodeRef"]["name"].as_str().expect("a node").to_owned());
    let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup";
    scene.patch("Machine", &machine, json!({"metadata": {"annotations": {hook: "me"}}})).await;
    scene
        .create(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"},
            "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "v"}},
        }))
        .await;
    scene.delete("Machine", &machine).await;
    let stage = async |reason: &str| {
        scene
            .until(reason, async || {
                let found = scene.get(CORE, "Machine", &machine).await;
                let now = &condition(&found, "Deleting")["reason"];
                if now == reason { Ok(()) } else { Err(now.to_string()) }
            })
            .await;
    };
    stage("WaitingForVolumeDetach").await;
    let attachments = scene.api("storage.k8s.io/v1", "VolumeAttachment");
    attachments.delete("a", &kube::api::DeleteParams::default()).await.expect("deleted");
    stage("WaitingForPreTerminateHook").await;
    scene.patch("Machine", &machine, json!({"metadata": {"annotations": {hook: null}}})).await;
    scene
        .until("it goes", async || match scene.get(CORE, "Machine", &machine).await {
            Value::Null => Ok(()),
            found => Err(found["status"].to_string()),
        })
        .await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_comes_late_is_waited_for() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    scene.cluster("c").await;
    scene.pool("c", "md", 1).await;
    change(scene, "md", json!({"template": {"spec": {"infrastructureRef": {"name": "late"}}}})).await;
    let waiting = scene
        .until("it says what is missing", async || {
            let found = scene.get(CORE, "MachineDeployment", "md").await;
            let message = condition(&found, "ScalingUp")["message"].as_str().unwrap_or_default().to_owned();
            if message.contains("does not exist") { Ok(message) } else { Err(found["status"].to_string()) }
        })
        .await;
    assert!(waiting.contains("FakeMachineTemplate"), "{waiting}");
    scene
        .create(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "FakeMachineTemplate",
            "metadata": {"name": "late", "namespace": "default"}, "spec": {"template": {"spec": {"size": "late"}}},
        }))
        .await;
    scene.settled("md", 1).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_ill_is_replaced() {
    let pond = Pond::start().await;
    let scene = &pond.scene;
    scene.cluster("c").await;
    scene.pool("c", "md", 2).await;
    scene.settled("md", 2).await;
    scene
        .create(json!({
            "apiVersion": CORE, "kind": "MachineHealthCheck", "metadata": {"name": "check", "namespace": "default"},
            "spec": {
                "clusterName": "c", "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "md"}},
                "checks": {"unhealthyNodeConditions": [{"type": "Broken", "status": "True", "timeoutSeconds": 300}]},
            },
        }))
        .await;
    let ill = scene.machines("md").await.remove(0);
    let node = ill["status"]["nodeRef"]["name"].as_str().expect("a node");
    let mut found = scene.get("v1", "Node", node).await;
    let broken = json!({"type": "Broken", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"});
    found["status"]["conditions"].as_array_mut().expect("conditions").push(broken);
    let patch = json!({"status": {"conditions": found["status"]["conditions"]}});
    let nodes = scene.api("v1", "Node");
    nodes.patch_status(node, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&patch)).await.expect("ill");
    scene
        .until("it is replaced", async || {
            let machines = scene.machines("md").await;
            let gone = !machines.iter().any(|one| name(one) == name(&ill));
            if gone && machines.len() == 2 { Ok(()) } else { Err(format!("{machines:?}")) }
        })
        .await;
    scene.settled("md", 2).await;
    pond.stop().await;
}
