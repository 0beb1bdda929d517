//! Advice only: what should come and go is told, and nothing else is touched.

use std::sync::Arc;
use std::time::Duration;

use millpond_api::condition;
use millpond_api::scaling_advisor::ScalingAdviceSpec;
use millpond_controllers::kinds::ScalingAdvice;
use millpond_runtime::meta::Key;
use serde_json::{Value, json};

use crate::basin::{Basin, merge};
use crate::fuse::Fuse;

const ADVISOR: &str = "sa.gardener.cloud/v1alpha1";

/// Two kinds of nodes in two zones, the small one cheaper for each core.
async fn constraint(basin: &Basin, more: Value) {
    let template = |name: &str, of: &str, cores: u32| {
        json!({
            "name": name, "architecture": "amd64", "instanceType": of,
            "capacity": {"cpu": cores.to_string(), "memory": format!("{}Gi", cores * 4), "pods": "110"},
            "kubeReservedCapacity": {"cpu": "100m"},
        })
    };
    let mut spec = json!({
        "consumerID": "gardener",
        "defaultBackoffPolicy": {"initialBackoff": "10m", "maxBackoff": "1h"},
        "nodePools": [{
            "name": "web", "region": "us-east-1", "availabilityZones": ["us-east-1a", "us-east-1b"],
            "nodeTemplates": [template("small", "m5.large", 2), template("large", "r5.2xlarge", 8)],
        }],
    });
    merge(&mut spec, &more);
    basin
        .create(json!({"apiVersion": ADVISOR, "kind": "ScalingConstraint", "metadata": {"name": "shop"}, "spec": spec}))
        .await;
}

fn known(basin: &Basin) -> Option<Arc<ScalingAdvice>> {
    basin.cluster().advices.get(&Key::new("default", "shop"))
}

/// The advice once it says something.
async fn advised(basin: &Basin, what: &str, says: impl Fn(&ScalingAdviceSpec) -> bool) -> Arc<ScalingAdvice> {
    let key = Key::new("default", "shop");
    basin.until(what, |cluster| cluster.advices.get(&key).is_some_and(|advice| says(&advice.spec))).await;
    known(basin).expect("it was there")
}

/// Template, zone and number of the nodes to add.
fn coming(spec: &ScalingAdviceSpec) -> Vec<(String, String, i32, i32)> {
    let items = spec.scale_out_plan.iter().flat_map(|plan| &plan.items);
    let row = |item: &millpond_api::scaling_advisor::ScaleOutItem| {
        let place = item.placement.clone();
        (place.template_name, place.availability_zone, item.current_replicas, item.delta)
    };
    items.map(row).collect()
}

fn going(spec: &ScalingAdviceSpec) -> Vec<String> {
    spec.scale_in_plan.iter().flat_map(|plan| &plan.items).map(|item| item.node_name.clone()).collect()
}

fn nothing_was_touched(basin: &Basin) {
    assert!(basin.instances().is_empty() && basin.claims().is_empty(), "{}", basin.describe());
    let nominated = |pod: &Arc<k8s_openapi::api::core::v1::Pod>| {
        pod.status.as_ref().and_then(|status| status.nominated_node_name.clone())
    };
    assert!(basin.cluster().pods.list().iter().all(|pod| nominated(pod).is_none()));
}

/// What the consumer does: a node of a template.
async fn node(basin: &Basin, name: &str, template: &str, of: &str, zone: &str, cpu: &str) {
    basin
        .create(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "sa.gardener.cloud/node-pool-name": "web", "sa.gardener.cloud/node-template-name": template,
                "node.kubernetes.io/instance-type": of, "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": "us-east-1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
            }},
            "status": {"capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
                       "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
        }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn nodes_to_add_and_remove_are_advised_and_nothing_is_touched() {
    let basin = Basin::bare().await;
    constraint(&basin, json!({})).await;
    basin.deployment("web", 3, "900m", json!({})).await;
    basin.deployment("huge", 1, "40", json!({})).await;
    let advice = advised(&basin, "three pods are helped", |spec| {
        coming(spec).iter().map(|item| item.3).sum::<i32>() == 2
            && spec.scale_out_plan.as_ref().is_some_and(|plan| plan.unsatisfied_pod_names.len() == 1)
    })
    .await;
    let item = &advice.spec.scale_out_plan.as_ref().unwrap().items[0].placement;
    assert_eq!((&*item.pool_name, &*item.instance_type, &*item.region), ("web", "m5.large", "us-east-1"));
    assert_eq!(advice.spec.constraint_ref.name, "shop");
    assert_eq!(advice.metadata.labels.as_ref().unwrap()["sa.gardener.cloud/consumer-id"], "gardener");
    assert_eq!(advice.metadata.owner_references.as_ref().unwrap()[0].kind, "ScalingConstraint");
    assert!(advice.status.diagnostic.is_none());
    assert_eq!(
        basin.events("Advised").await.last().unwrap(),
        "add 2 nodes, remove 0 nodes; 1 pod would still have no place"
    );
    nothing_was_touched(&basin);

    // As long as the advice is not acted on, it is not given again. Deployments exceed their progress deadline after
    // ten minutes, and report it.
    basin.pass(Duration::from_mins(11)).await;
    let before = basin.server.store().revision();
    basin.pass(Duration::from_mins(10)).await;
    assert_eq!(basin.server.store().revision(), before, "converged is quiet");

    // The consumer does half of it, then the rest.
    let zone = coming(&advice.spec)[0].1.clone();
    node(&basin, "n1", "small", "m5.large", &zone, "1900m").await;
    advised(&basin, "one is left", |spec| coming(spec).iter().map(|item| item.3).sum::<i32>() == 1).await;
    node(&basin, "n2", "small", "m5.large", &zone, "1900m").await;
    basin.until_running("web", 3).await;
    advised(&basin, "none is left", |spec| coming(spec).is_empty()).await;

    // And what is empty should go.
    basin.scale("web", 0).await;
    advised(&basin, "both should go", |spec| going(spec) == ["n1", "n2"]).await;
    assert_eq!(basin.nodes().len(), 2, "the consumer of the advice removes them");
    nothing_was_touched(&basin);
    basin.delete(ADVISOR, "ScalingConstraint", "shop").await;
    basin.until("advice goes with its constraint", |cluster| cluster.advices.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn feedback_is_heeded_for_as_long_as_the_constraint_says() {
    let mut basin = Basin::bare().await;
    constraint(&basin, json!({})).await;
    basin.deployment("web", 1, "900m", json!({"nodeSelector": {"topology.kubernetes.io/zone": "us-east-1a"}})).await;
    advised(&basin, "a small one", |spec| coming(spec) == [("small".into(), "us-east-1a".into(), 0, 1)]).await;
    basin
        .create(json!({
            "apiVersion": ADVISOR, "kind": "ScalingFeedback", "metadata": {"name": "shop-1"},
            "spec": {"constraintRef": {"name": "shop"}, "scaleOutErrorInfos": [{
                "availabilityZone": "us-east-1a", "instanceType": "m5.large",
                "errorType": "ResourceExhaustedError", "failCount": 1,
            }]},
        }))
        .await;
    advised(&basin, "a large one", |spec| coming(spec) == [("large".into(), "us-east-1a".into(), 0, 1)]).await;
    // A controller that starts anew knows it, too.
    basin.pass(Duration::from_mins(2)).await;
    basin.kill();
    basin.hire(Fuse::none());
    basin.until("everything is known", |cluster| !cluster.advices.is_empty()).await;
    basin.until_quiet().await;
    assert_eq!(coming(&known(&basin).unwrap().spec)[0].0, "large");
    basin.pass(Duration::from_mins(12)).await;
    advised(&basin, "the small one again", |spec| coming(spec)[0].0 == "small").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_could_not_go_are_left_alone_for_a_while() {
    let basin = Basin::bare().await;
    constraint(&basin, json!({})).await;
    node(&basin, "n1", "small", "m5.large", "us-east-1a", "1900m").await;
    advised(&basin, "it should go", |spec| going(spec) == ["n1"]).await;
    basin
        .create(json!({
            "apiVersion": ADVISOR, "kind": "ScalingFeedback", "metadata": {"name": "shop-1"},
            "spec": {"constraintRef": {"name": "shop"}, "scaleInErrorInfo": {"nodeNames": ["n1"]}},
        }))
        .await;
    advised(&basin, "it may stay", |spec| going(spec).is_empty()).await;
    basin.pass(Duration::from_mins(9)).await;
    assert!(going(&known(&basin).unwrap().spec).is_empty());
    advised(&basin, "it should go after all", |spec| going(spec) == ["n1"]).await;
}

#[tokio::test(start_paused = true)]
async fn greater_priorities_come_first_whatever_they_cost() {
    let basin = Basin::bare().await;
    let template = |name: &str, of: &str, priority: u32| {
        json!({"name": name, "architecture": "amd64", "instanceType": of, "priority": priority,
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}})
    };
    let pool = |name: &str, priority: u32, templates: Value| {
        json!({"name": name, "region": "us-east-1", "availabilityZones": ["us-east-1a"], "priority": priority,
            "quota": {"cpu": "8"}, "nodeTemplates": templates})
    };
    let pools = json!([
        pool("cheap", 1, json!([template("t", "t3.medium", 9)])),
        pool("dear", 7, json!([template("less", "m5.large", 1), template("more", "m5.24xlarge", 2)])),
    ]);
    constraint(&basin, json!({"nodePools": pools})).await;
    let placements = |spec: &ScalingAdviceSpec| -> Vec<(String, String, i32)> {
        let items = spec.scale_out_plan.iter().flat_map(|plan| &plan.items);
        items.map(|item| (item.placement.pool_name.clone(), item.placement.template_name.clone(), item.delta)).collect()
    };
    basin.deployment("web", 2, "3", json!({})).await;
    let want = [("dear".to_owned(), "more".to_owned(), 2)];
    advised(&basin, "the first template of the first pool", |spec| placements(spec) == want).await;
    // Its quota is used up: the rest is for the other pool.
    basin.scale("web", 3).await;
    let want = [("cheap".to_owned(), "t".to_owned(), 1), ("dear".to_owned(), "more".to_owned(), 2)];
    advised(&basin, "the next pool", |spec| placements(spec) == want).await;
}

#[tokio::test(start_paused = true)]
async fn diagnostics_are_given_on_demand() {
    let basin = Basin::bare().await;
    constraint(&basin, json!({})).await;
    let annotation = json!({"metadata": {"annotations": {"sa.gardener.cloud/enable-scaling-diagnostics": "true"}}});
    basin.patch(ADVISOR, "ScalingConstraint", "shop", annotation).await;
    basin.deployment("web", 2, "900m", json!({})).await;
    let key = Key::new("default", "shop");
    let score = |advice: &ScalingAdvice| {
        let results = advice.status.diagnostic.iter().flat_map(|diagnostic| diagnostic.sim_run_results.clone());
        let mut results: Vec<_> = results.collect();
        results.sort_by_key(|result| -result.node_score);
        results
    };
    basin
        .until("every template in every zone", |cluster| {
            cluster.advices.get(&key).is_some_and(|advice| {
                let results = score(&advice);
                results.len() == 4 && results[0].scheduled_pod_names.len() == 2 && results[0].num_unscheduled_pods == 0
            })
        })
        .await;
    let results = score(&known(&basin).unwrap());
    assert_eq!((results[0].node_template_name.as_str(), results[0].node_score), ("small", 94));
    assert!(results[1..].iter().all(|result| result.node_score == 0 && result.num_unscheduled_pods == 2));
}

#[tokio::test(start_paused = true)]
async fn a_constraint_that_cannot_be_says_why_and_stops_no_other() {
    let basin = Basin::bare().await;
    constraint(&basin, json!({"nodePools": [{
        "name": "web", "region": "us-east-1", "availabilityZones": ["us-east-1a"], "labels": {"not a key!": "x"},
        "nodeTemplates": [{"name": "t", "architecture": "amd64", "instanceType": "m5.large", "capacity": {"cpu": "2"}}],
    }]}))
    .await;
    let key = Key::new("default", "shop");
    let ready = |cluster: &millpond_controllers::cluster::Cluster| {
        let constraint = cluster.constraints.get(&key)?;
        condition::find(&constraint.status.conditions, condition::READY).cloned()
    };
    basin.until("it is not ready", |cluster| ready(cluster).is_some_and(|ready| ready.is_false())).await;
    let constraint = basin.cluster().constraints.get(&key).unwrap();
    let message = &condition::find(&constraint.status.conditions, "ValidationSucceeded").unwrap().message;
    assert!(message.contains("not a key!"), "{message}");
    assert!(known(&basin).is_none());
    let labels = json!({"spec": {"nodePools": [{
        "name": "web", "region": "us-east-1", "availabilityZones": ["us-east-1a"],
        "nodeTemplates": [{"name": "t", "architecture": "amd64", "instanceType": "m5.large", "capacity": {"cpu": "2"}}],
    }]}});
    basin.patch(ADVISOR, "ScalingConstraint", "shop", labels).await;
    basin.until("it is ready", |cluster| ready(cluster).is_some_and(|ready| ready.is_true())).await;
}

#[tokio::test(start_paused = true)]
async fn node_pools_can_be_advised_about_too() {
    let mut basin = Basin::without_controllers().await;
    basin.hire_advisor();
    basin.class("default", json!({})).await;
    basin.pool("default", json!({})).await;
    basin.deployment("web", 3, "900m", json!({})).await;
    let key = Key::new("millpond-system", "nodepools");
    basin
        .until("it is advised", |cluster| {
            cluster.advices.get(&key).is_some_and(|advice| !coming(&advice.spec).is_empty())
        })
        .await;
    let advice = basin.cluster().advices.get(&key).unwrap();
    assert_eq!(advice.spec.scale_out_plan.as_ref().unwrap().items[0].placement.pool_name, "default");
    basin.pass(Duration::from_mins(5)).await;
    nothing_was_touched(&basin);
    assert!(basin.nodes().is_empty());
    assert!(basin.cluster().pools.list()[0].status.conditions.is_empty(), "nor are pools and classes");
}
