//! What settings of pools do on a real cluster, each in short; in depth they are tested under virtual time.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::rights;
use crate::stack::{PATIENCE, Stack, World, holds, label, merge, requirements};

const POOL: &str = "karpenter.sh/nodepool";

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_pools_do_what_their_settings_say() -> Result<()> {
    let mut stack = Stack::start().await?;
    weight_breaks_ties(&mut stack).await.context("weight")?;
    stack.clear().await?;
    taints_keep_pods_away(&mut stack).await.context("taints")?;
    stack.clear().await?;
    requirements_meet_those_of_pods(&mut stack).await.context("requirements")?;
    stack.clear().await?;
    empty_nodes_leave_after_a_while(&mut stack).await.context("WhenEmpty")?;
    stack.clear().await?;
    budgets_let_nodes_go_one_by_one(&mut stack).await.context("budgets")?;
    stack.clear().await?;
    drains_end_in_time(&mut stack).await.context("terminationGracePeriod")?;
    stack.clear().await?;
    reserved_resources_are_not_for_pods(&mut stack).await.context("reserved resources")?;
    stack.clear().await?;
    limits_hold_at_every_instant(&mut stack).await.context("limits")?;
    stack.clear().await?;
    the_next_best_comes_when_the_cheapest_are_gone(&mut stack).await.context("stock-outs")?;
    stack.clear().await?;
    advice_is_written_and_kept_true(&mut stack).await.context("advice")?;
    stack.clear().await?;
    buffers_overlays_and_limits_are_answered(&mut stack).await.context("buffers, overlays and limits")?;
    stack.clear().await?;
    assert_eq!(stack.machines()?, [""; 0], "machines leaked");
    rights::ensure_exact(&stack.gate)
}

fn of_two_cores(more: Value) -> Value {
    let mut pool = json!({"spec": {"template": {"spec": {"requirements": requirements(&["2"])}}}});
    merge(&mut pool, &more);
    pool
}

async fn weight_breaks_ties(stack: &mut Stack) -> Result<()> {
    stack.class("default", json!({})).await?;
    for (name, weight) in [("light", 10), ("heavy", 50), ("middling", 20)] {
        let template = json!({"spec": {"expireAfter": "Never"}});
        stack.pool(name, of_two_cores(json!({"spec": {"weight": weight, "template": template}}))).await?;
    }
    stack.deployment("web", 3, "1500m", json!({})).await?;
    stack.until_running("web", 3).await?;
    for node in stack.world.nodes.values() {
        ensure!(label(node, POOL) == "heavy", "a node of {}", label(node, POOL));
    }
    for claim in stack.world.claims.values() {
        let expires = &claim.data["spec"]["expireAfter"];
        ensure!(expires == "Never", "expires after {expires}");
    }
    Ok(())
}

fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == key)
}

async fn taints_keep_pods_away(stack: &mut Stack) -> Result<()> {
    stack.class("default", json!({})).await?;
    let taint = json!({"key": "team", "value": "a", "effect": "NoSchedule"});
    let startup = json!({"key": "agent", "effect": "NoSchedule"});
    let template = json!({"spec": {"taints": [taint], "startupTaints": [startup]}});
    stack.pool("default", of_two_cores(json!({"spec": {"template": template}}))).await?;
    let tolerations = json!([{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}]);
    stack.deployment("strangers", 1, "1", json!({})).await?;
    stack.deployment("web", 1, "1", json!({"tolerations": tolerations})).await?;
    let is_registered = |world: &World| world.claims.values().any(|claim| holds(claim, "Registered"));
    stack.until("a node registers", is_registered).await?;
    let nodes: Vec<&Node> = stack.world.nodes.values().collect();
    ensure!(nodes.len() == 1 && has_taint(nodes[0], "team") && has_taint(nodes[0], "agent"), "{nodes:?}");
    ensure!(stack.world.running("web") == 0, "a startup taint holds pods back");
    ensure!(!stack.world.claims.values().any(|claim| holds(claim, "Initialized")), "not before it is gone");
    let name = nodes[0].metadata.name.clone().unwrap_or_default();
    stack.patch(("v1", "Node", &name), json!({"spec": {"taints": [taint]}})).await?;
    stack.until_running("web", 1).await?;
    let is_ready = |world: &World| world.claims.values().any(|claim| holds(claim, "Initialized"));
    stack.until("it is initialized", is_ready).await?;
    ensure!(stack.world.nodes.len() == 1 && stack.world.running("strangers") == 0, "strangers stay away");
    Ok(())
}

async fn requirements_meet_those_of_pods(stack: &mut Stack) -> Result<()> {
    stack.class("default", json!({})).await?;
    let mut zones = requirements(&["2", "4", "8"]);
    let zone =
        json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a", "test-zone-b"]});
    zones.as_array_mut().context("a list")?.push(zone);
    let template = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"requirements": zones}});
    stack.pool("default", json!({"spec": {"template": template}})).await?;
    let cores = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "Gt", "values": ["3"]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [cores]}],
    }}});
    let chosen = json!({"topology.kubernetes.io/zone": "test-zone-b", "team": "a"});
    stack.deployment("web", 1, "500m", json!({"nodeSelector": chosen, "affinity": affinity})).await?;
    // Beside it, by affinity to it.
    let beside = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}});
    stack.deployment("friend", 1, "500m", json!({"affinity": beside})).await?;
    // Nowhere: the pool has no such zone.
    let nowhere = json!({"nodeSelector": {"topology.kubernetes.io/zone": "test-zone-c"}});
    stack.deployment("lost", 1, "500m", nowhere).await?;
    stack.until_running("web", 1).await?;
    stack.until_running("friend", 1).await?;
    let node = stack.world.node_of("web")?;
    ensure!(label(node, "topology.kubernetes.io/zone") == "test-zone-b", "{node:?}");
    ensure!(label(node, "karpenter.kwok.sh/instance-cpu") == "4", "{node:?}");
    ensure!(label(node, "team") == "a", "{node:?}");
    ensure!(stack.world.node_of("friend")?.metadata.name == node.metadata.name, "friends stay together");
    ensure!(stack.world.running("lost") == 0);
    Ok(())
}

async fn empty_nodes_leave_after_a_while(stack: &mut Stack) -> Result<()> {
    const AFTER_S: i64 = 8;
    stack.class("default", json!({})).await?;
    let policy = json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": format!("{AFTER_S}s"),
                        "budgets": [{"nodes": "100%"}]});
    let template = json!({"spec": {"requirements": requirements(&["8"])}});
    stack.pool("default", json!({"spec": {"disruption": policy, "template": template}})).await?;
    // Each has a node of its own, far too large for it.
    for app in ["stays", "goes"] {
        let other = if app == "goes" { "stays" } else { "goes" };
        let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": other}}},
        ]}}});
        stack.deployment(app, 1, "100m", apart).await?;
        stack.until_running(app, 1).await?;
    }
    ensure!(stack.world.nodes.len() == 2, "{} nodes", stack.world.nodes.len());
    stack.scale("goes", 0).await?;
    stack.until("its pod is gone", |world| world.of_app("goes").count() == 0).await?;
    let emptied = Timestamp::now();
    let is_leaving = |world: &World| world.claims.values().any(|claim| claim.metadata.deletion_timestamp.is_some());
    stack.until("its node leaves", is_leaving).await?;
    // Both clocks are in whole seconds.
    let waited = Timestamp::now().as_second() - emptied.as_second();
    ensure!(waited >= AFTER_S - 2, "it left after {waited} s");
    stack.until("it is gone", |world| world.nodes.len() == 1 && world.claims.len() == 1).await?;
    ensure!(stack.world.running("stays") == 1 && !is_leaving(&stack.world), "the other one is not empty");
    Ok(())
}

async fn budgets_let_nodes_go_one_by_one(stack: &mut Stack) -> Result<()> {
    stack.class("default", json!({})).await?;
    let policy = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]});
    stack.pool("default", of_two_cores(json!({"spec": {"disruption": policy}}))).await?;
    stack.deployment("web", 4, "1500m", json!({})).await?;
    stack.until_running("web", 4).await?;
    let is_ready = |world: &World| world.claims.values().all(|claim| holds(claim, "Initialized"));
    stack.until("all nodes are ready", is_ready).await?;
    stack.scale("web", 0).await?;
    let one_by_one = |world: &World| {
        // Drained, and its machine told to end: with Karpenter, too, it does not count any more.
        let is_draining = |claim: &&kube::api::DynamicObject| {
            claim.metadata.deletion_timestamp.is_some() && !holds(claim, "InstanceTerminating")
        };
        let leaving = world.claims.values().filter(is_draining).count();
        ensure!(leaving <= 1, "{leaving} nodes leave at once");
        Ok(())
    };
    stack.until_and("all nodes leave", |world| world.claims.is_empty(), one_by_one).await
}

async fn drains_end_in_time(stack: &mut Stack) -> Result<()> {
    const PERIOD_S: i64 = 12;
    const GRACE_S: i64 = 4;
    stack.class("default", json!({})).await?;
    let template = json!({"spec": {"terminationGracePeriod": format!("{PERIOD_S}s")}});
    stack.pool("default", of_two_cores(json!({"spec": {"template": template}}))).await?;
    stack
        .create(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                       "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}}))
        .await?;
    stack.deployment("web", 1, "1", json!({"terminationGracePeriodSeconds": GRACE_S})).await?;
    stack.until_running("web", 1).await?;
    let pod = stack.world.of_app("web").next().and_then(|pod| pod.metadata.name.clone()).context("a pod")?;
    let claim = stack.world.claims.keys().next().cloned().context("a claim")?;
    let begun = Timestamp::now();
    stack.delete(("karpenter.sh/v1", "NodeClaim", &claim)).await?;
    let is_leaving = |world: &World| world.pods.get(&pod).is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
    stack.until("its pod must go", is_leaving).await?;
    let waited = Timestamp::now().as_second() - begun.as_second();
    ensure!(waited >= PERIOD_S - GRACE_S - 2, "a pod under a budget was deleted after {waited} s");
    stack.until("the node is gone", |world| !world.claims.contains_key(&claim)).await?;
    stack.until_running("web", 1).await?;
    // Nothing of it runs for ever: the budget would hold up the end of the next node as well.
    stack.delete(("policy/v1", "PodDisruptionBudget", "web")).await
}

async fn reserved_resources_are_not_for_pods(stack: &mut Stack) -> Result<()> {
    let kubelet = json!({"maxPods": 5, "systemReserved": {"cpu": "500m"}, "kubeReserved": {"cpu": "250m"}});
    stack.class("default", json!({"kubelet": kubelet})).await?;
    let template = json!({"spec": {"requirements": requirements(&["2", "4"])}});
    stack.pool("default", json!({"spec": {"template": template}})).await?;
    // It would fit onto two cores.
    stack.deployment("web", 1, "1500m", json!({})).await?;
    stack.until_running("web", 1).await?;
    let node = stack.world.node_of("web")?;
    ensure!(label(node, "karpenter.kwok.sh/instance-cpu") == "4", "{node:?}");
    let status = node.status.as_ref().context("a status")?;
    let amount = |of: &Option<std::collections::BTreeMap<String, _>>, name: &str| {
        let quantity: Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
            of.as_ref().and_then(|all| all.get(name).cloned());
        quantity.map(|quantity| quantity.0).unwrap_or_default()
    };
    ensure!(amount(&status.capacity, "cpu") == "4", "{status:?}");
    ensure!(amount(&status.allocatable, "cpu") == "3250m", "{status:?}");
    ensure!(amount(&status.allocatable, "pods") == "5", "{status:?}");
    Ok(())
}

async fn limits_hold_at_every_instant(stack: &mut Stack) -> Result<()> {
    const NODES: usize = 3;
    stack.class("default", json!({})).await?;
    stack.pool("default", of_two_cores(json!({"spec": {"limits": {"cpu": (2 * NODES).to_string()}}}))).await?;
    // Several batches: none of them may overlook what another one has just decided.
    for app in ["a", "b", "c"] {
        stack.deployment(app, 3, "1500m", json!({})).await?;
    }
    let within = |world: &World| {
        ensure!(world.claims.len() <= NODES, "{} claims of two cores each", world.claims.len());
        Ok(())
    };
    let running = |world: &World| ["a", "b", "c"].map(|app| world.running(app)).iter().sum::<usize>();
    stack.until_and("what fits runs", |world| running(world) == NODES, within).await?;
    // One more batch finds the pool full; a node that is freed is used again.
    let freed = ["a", "b", "c"].into_iter().find(|app| stack.world.running(app) > 0).context("a pod runs")?;
    let before = stack.world.running(freed);
    stack.scale(freed, 0).await?;
    let others = |world: &World| running(world) - world.running(freed);
    stack.until_and("others take the place", |world| others(world) == NODES, within).await?;
    ensure!(before > 0 && stack.world.nodes.len() <= NODES, "{} nodes", stack.world.nodes.len());
    Ok(())
}

async fn the_next_best_comes_when_the_cheapest_are_gone(stack: &mut Stack) -> Result<()> {
    // All but the types of 16 cores and more, in all zones: far more than forty offerings.
    let out: Vec<Value> =
        ["1x", "2x", "4x", "8x"].iter().map(|size| json!({"instanceType": format!("*-{size}-*")})).collect();
    stack.class("default", json!({"sim": {"stockOuts": out}})).await?;
    stack.pool("default", json!({})).await?;
    stack.deployment("web", 6, "900m", json!({})).await?;
    let mut seen = BTreeSet::new();
    let note = |world: &World| {
        seen.extend(world.claims.keys().cloned());
        Ok(())
    };
    stack.until_and("all pods run", |world| world.running("web") == 6, note).await?;
    let came = stack.world.claims.values().filter(|claim| holds(claim, "Launched")).count();
    ensure!(seen.len() <= 2 * came, "{} claims for {came} nodes", seen.len());
    Ok(())
}

/// No pool is there: pods wait, and what would help them is advised.
async fn advice_is_written_and_kept_true(stack: &mut Stack) -> Result<()> {
    const VERSION: &str = "sa.gardener.cloud/v1alpha1";
    const GROUP: &str = "sa.gardener.cloud";
    let template = json!({
        "name": "small", "architecture": "amd64", "instanceType": "m5.large",
        "capacity": {"cpu": "2", "memory": "8Gi", "pods": "110"},
    });
    stack
        .create(json!({
            "apiVersion": VERSION, "kind": "ScalingConstraint",
            "metadata": {"name": "shop", "annotations": {"sa.gardener.cloud/enable-scaling-diagnostics": "true"}},
            "spec": {
                "consumerID": "gardener",
                "defaultBackoffPolicy": {"initialBackoff": "10m", "maxBackoff": "1h"},
                "nodePools": [{
                    "name": "web", "region": "us-east-1", "availabilityZones": ["us-east-1a"],
                    "nodeTemplates": [template],
                }],
            },
        }))
        .await?;
    stack.deployment("web", 1, "1500m", json!({})).await?;
    let written = [
        (GROUP, "scalingadvices", "create"),
        (GROUP, "scalingadvices/status", "patch"),
        (GROUP, "scalingconstraints/status", "patch"),
    ];
    stack.gate.until_used(&written, PATIENCE).await?;
    stack.scale("web", 2).await?;
    stack.gate.until_used(&[(GROUP, "scalingadvices", "patch")], PATIENCE).await?;
    ensure!(stack.world.nodes.is_empty(), "advice changes no node");
    stack.delete((VERSION, "ScalingConstraint", "shop")).await
}

async fn buffers_overlays_and_limits_are_answered(stack: &mut Stack) -> Result<()> {
    let container = json!({"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}});
    let objects = [
        ("v1", "PodTemplate", json!({"template": {"spec": {"containers": [container]}}})),
        (
            "autoscaling.x-k8s.io/v1beta1",
            "CapacityBuffer",
            json!({"spec": {"podTemplateRef": {"name": "beside"}, "replicas": 1}}),
        ),
        (
            "karpenter.sh/v1alpha1",
            "NodeOverlay",
            json!({"spec": {
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}],
                "priceAdjustment": "+10%",
            }}),
        ),
        ("millpond.dev/v1alpha1", "ClusterLimits", json!({"spec": {"limits": {"cpu": "8"}}})),
    ];
    for (version, kind, mut object) in objects.clone() {
        merge(&mut object, &json!({"apiVersion": version, "kind": kind, "metadata": {"name": "beside"}}));
        stack.create(object).await?;
    }
    stack.class("default", json!({})).await?;
    stack.pool("default", of_two_cores(json!({}))).await?;
    stack.deployment("web", 1, "1500m", json!({})).await?;
    stack.until_running("web", 1).await?;
    let written = [
        ("autoscaling.x-k8s.io", "capacitybuffers/status", "patch"),
        ("karpenter.sh", "nodeoverlays/status", "patch"),
        ("millpond.dev", "clusterlimits", "get"),
        ("millpond.dev", "clusterlimits", "patch"),
    ];
    stack.gate.until_used(&written, PATIENCE).await?;
    for (version, kind, _) in objects {
        stack.delete((version, kind, "beside")).await?;
    }
    Ok(())
}
