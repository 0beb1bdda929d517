//! Deployments, StatefulSets, DaemonSets and Jobs from beginning to end.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::DeleteParams;
use millpond_sim::cluster::Cluster;
use millpond_sim::meta::{Key, is_leaving, node_name, phase};
use millpond_sim::workloads::deployment::status::is_complete;
use millpond_sim::workloads::pods::is_ready;
use serde_json::json;

use crate::pond::{Pond, available, is_node_ready, template};

fn is_rolled_out(cluster: &Cluster, name: &str) -> bool {
    cluster
        .deployments
        .get(&Key::new("default", name))
        .is_some_and(|deployment| deployment.status.as_ref().is_some_and(|status| is_complete(&deployment, status)))
}

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_available_on_its_nodes() {
    let pond = Pond::start().await;
    pond.nodes(5).await;
    pond.until("5 ready nodes without taints", |cluster| {
        let nodes = cluster.nodes.list();
        nodes.len() == 5
            && nodes
                .iter()
                .all(|node| is_node_ready(node) && node.spec.as_ref().is_none_or(|spec| spec.taints.is_none()))
    })
    .await;
    pond.deployment("web", 50, json!({})).await;
    pond.until("50 available", |cluster| available(cluster, "web") == 50).await;
    let spread = pond.spread();
    assert_eq!(spread.values().sum::<usize>(), 50);
    // Two nodes share a zone and one has its own, so that it gets somewhat more.
    assert!(spread.len() == 5 && spread.values().all(|pods| (8..=14).contains(pods)), "{spread:?}");
    let deployment = pond.cluster.deployments.get(&Key::new("default", "web")).expect("a deployment");
    assert_eq!(deployment.annotations()["deployment.kubernetes.io/revision"], "1");
    let addresses: BTreeSet<String> = pond
        .pods_of("web")
        .iter()
        .map(|pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone()).expect("an address"))
        .collect();
    assert_eq!(addresses.len(), 50, "every pod has its own address");
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_keeps_its_promises() {
    let pond = Pond::start().await;
    pond.nodes(5).await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}});
    pond.deployment("web", 10, json!({"strategy": strategy})).await;
    pond.until("rolled out", |cluster| is_rolled_out(cluster, "web")).await;
    let mut new = template("web", "100m");
    new["spec"]["containers"][0]["image"] = json!("app:2");
    pond.patch("apps/v1", "Deployment", "web", json!({"spec": {"template": new}})).await;
    let is_new = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some("app:2"))
    };
    pond.until("the new revision only", |cluster| {
        let pods = cluster.pods.list();
        let alive = pods.iter().filter(|pod| !is_leaving(&***pod)).count();
        let ready = pods.iter().filter(|pod| is_ready(pod) && !is_leaving(&***pod)).count();
        assert!(alive <= 12, "{alive} pods with a surge of 2");
        assert!(ready >= 9, "{ready} ready with at most 1 unavailable");
        is_rolled_out(cluster, "web") && pods.len() == 10 && pods.iter().all(|pod| is_new(pod))
    })
    .await;
    let revisions: BTreeSet<String> = pond
        .cluster
        .replica_sets
        .list()
        .iter()
        .map(|set| set.annotations()["deployment.kubernetes.io/revision"].clone())
        .collect();
    assert_eq!(revisions, BTreeSet::from(["1".into(), "2".into()]));

    pond.patch("apps/v1", "Deployment", "web", json!({"spec": {"replicas": 3}})).await;
    pond.until("scaled down", |cluster| cluster.pods.len() == 3 && is_rolled_out(cluster, "web")).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn recreation_lets_the_old_go_first() {
    let pond = Pond::start().await;
    pond.nodes(2).await;
    pond.deployment("web", 4, json!({"strategy": {"type": "Recreate", "rollingUpdate": null}})).await;
    pond.until("rolled out", |cluster| is_rolled_out(cluster, "web")).await;
    let mut new = template("web", "100m");
    new["spec"]["containers"][0]["image"] = json!("app:2");
    pond.patch("apps/v1", "Deployment", "web", json!({"spec": {"template": new}})).await;
    pond.until("the new revision", |cluster| {
        let pods = cluster.pods.list();
        let images: BTreeSet<_> =
            pods.iter().filter_map(|pod| pod.spec.as_ref()?.containers[0].image.clone()).collect();
        assert!(images.len() <= 1, "old and new together: {images:?}");
        images.contains("app:2") && is_rolled_out(cluster, "web")
    })
    .await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stuck_rollouts_time_out_and_say_so() {
    let pond = Pond::start().await;
    pond.nodes(1).await;
    pond.deployment("huge", 1, json!({"progressDeadlineSeconds": 30, "template": template("huge", "64")})).await;
    pond.until("timed out", |cluster| {
        let deployment = cluster.deployments.get(&Key::new("default", "huge"));
        let conditions = deployment.and_then(|deployment| deployment.status.as_ref()?.conditions.clone());
        conditions.iter().flatten().any(|condition| {
            condition.type_ == "Progressing" && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
        })
    })
    .await;
    pond.until_quiet().await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn old_revisions_are_cleaned_up() {
    let pond = Pond::start().await;
    pond.nodes(1).await;
    pond.deployment("web", 1, json!({"revisionHistoryLimit": 2})).await;
    for version in 2..7 {
        pond.until("rolled out", |cluster| is_rolled_out(cluster, "web")).await;
        let mut new = template("web", "100m");
        new["spec"]["containers"][0]["image"] = json!(format!("app:{version}"));
        pond.patch("apps/v1", "Deployment", "web", json!({"spec": {"template": new}})).await;
        pond.pass(Duration::from_secs(1)).await;
    }
    pond.until("three sets", |cluster| is_rolled_out(cluster, "web") && cluster.replica_sets.len() == 3).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replica_sets_adopt_and_release() {
    let pond = Pond::start().await;
    pond.nodes(1).await;
    pond.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stray", "labels": {"app": "set"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }))
    .await;
    pond.create(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "set"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "set"}}, "template": template("set", "10m")},
    }))
    .await;
    let ready = |cluster: &Cluster| {
        let set = cluster.replica_sets.get(&Key::new("default", "set"));
        set.and_then(|set| set.status.as_ref()?.ready_replicas) == Some(2)
    };
    pond.until("two ready", ready).await;
    assert_eq!(pond.pods_of("set").len(), 2, "the stray pod was adopted");
    pond.patch("v1", "Pod", "stray", json!({"metadata": {"labels": {"app": "free"}}})).await;
    pond.until("a replacement", |cluster| cluster.pods.len() == 3 && ready(cluster)).await;
    assert!(pond.get_pod("stray").expect("a pod").owner_references().is_empty(), "it was released");
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stateful_sets_go_in_order() {
    let pond = Pond::start().await;
    pond.nodes(3).await;
    pond.create(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": template("db", "100m"),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
        },
    }))
    .await;
    let in_order = |cluster: &Cluster| {
        let pod = |ordinal: i32| cluster.pods.get(&Key::new("default", &format!("db-{ordinal}")));
        for ordinal in 1..3 {
            if pod(ordinal).is_some() {
                let before = pod(ordinal - 1).expect("the one before");
                assert!(is_ready(&before), "db-{ordinal} exists before db-{} is ready", ordinal - 1);
            }
        }
        (0..3).all(|ordinal| pod(ordinal).is_some_and(|pod| is_ready(&pod)))
    };
    pond.until("three in order", in_order).await;
    let claims: Vec<String> = pond.cluster.claims.list().iter().map(|claim| claim.name_any()).collect();
    assert_eq!(claims, ["data-db-0", "data-db-1", "data-db-2"]);
    let first = pond.get_pod("db-0").expect("a pod");
    assert_eq!(first.spec.as_ref().and_then(|spec| spec.hostname.clone()).as_deref(), Some("db-0"));

    let uids =
        |pond: &Pond| (0..3).map(|n| pond.get_pod(&format!("db-{n}")).and_then(|pod| pod.uid())).collect::<Vec<_>>();
    let before = uids(&pond);
    let mut new = template("db", "100m");
    new["spec"]["containers"][0]["image"] = json!("app:2");
    let partition = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    pond.patch("apps/v1", "StatefulSet", "db", json!({"spec": {"template": new, "updateStrategy": partition}})).await;
    let updated = |cluster: &Cluster| {
        let set = cluster.stateful_sets.get(&Key::new("default", "db")).and_then(|set| set.status.clone());
        set.map(|status| (status.updated_replicas.unwrap_or_default(), status.ready_replicas.unwrap_or_default()))
    };
    pond.until("two updated", |cluster| updated(cluster) == Some((2, 3))).await;
    pond.until_quiet().await;
    let after = uids(&pond);
    assert_eq!(after[0], before[0], "below the partition nothing changes");
    assert!(after[1] != before[1] && after[2] != before[2]);

    pond.patch("apps/v1", "StatefulSet", "db", json!({"spec": {"replicas": 1}})).await;
    pond.until("one left", |cluster| cluster.pods.len() == 1).await;
    assert_eq!(pond.cluster.claims.len(), 3, "claims are kept");
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn daemon_sets_follow_nodes() {
    let pond = Pond::start().await;
    pond.nodes(4).await;
    pond.node("gpu", json!({"accelerator": "yes"}), json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]})).await;
    let spec = |image: &str| {
        let mut template = template("agent", "10m");
        template["spec"]["containers"][0]["image"] = json!(image);
        template
    };
    pond.create(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": spec("agent:1")},
    }))
    .await;
    let ready = |cluster: &Cluster| {
        let set = cluster.daemon_sets.get(&Key::new("default", "agent")).and_then(|set| set.status.clone());
        set.map_or((0, 0), |status| (status.desired_number_scheduled, status.number_ready))
    };
    pond.until("four ready", |cluster| ready(cluster) == (4, 4)).await;
    assert!(!pond.spread().contains_key("gpu"), "the taint keeps it away");
    pond.patch("v1", "Node", "node-0000", json!({"spec": {"unschedulable": true}})).await;
    pond.nodes_more("late").await;
    pond.until("five ready", |cluster| ready(cluster) == (5, 5)).await;

    pond.patch("apps/v1", "DaemonSet", "agent", json!({"spec": {"template": spec("agent:2")}})).await;
    pond.until("all updated", |cluster| {
        let pods = cluster.pods.list();
        let up = pods.iter().filter(|pod| is_ready(pod) && !is_leaving(&***pod)).count();
        assert!(up >= 4, "{up} up with at most one down");
        pods.len() == 5
            && pods.iter().all(|pod| {
                pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref()) == Some("agent:2")
                    && is_ready(pod)
            })
    })
    .await;
    pond.stop().await;
}

fn job(cluster: &Cluster, name: &str) -> Option<Job> {
    cluster.jobs.get(&Key::new("default", name)).map(|job| (*job).clone())
}

fn has_condition(cluster: &Cluster, name: &str, type_: &str) -> Option<String> {
    let conditions = job(cluster, name)?.status?.conditions?;
    let found = conditions.into_iter().find(|condition| condition.type_ == type_ && condition.status == "True")?;
    found.reason
}

fn job_object(name: &str, spec: serde_json::Value, annotations: serde_json::Value) -> serde_json::Value {
    let mut base = json!({
        "template": {
            "metadata": {"annotations": annotations, "labels": {"app": name}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        },
    });
    crate::pond::merge(&mut base, &spec);
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": base})
}

#[tokio::test(start_paused = true)]
async fn jobs_complete() {
    let pond = Pond::start().await;
    pond.nodes(2).await;
    let spec = json!({"completions": 6, "parallelism": 2, "ttlSecondsAfterFinished": 60});
    pond.create(job_object("sum", spec, json!({"sim.millpond.dev/run-for": "30s"}))).await;
    pond.until("complete", |cluster| {
        let active = cluster.pods.list().iter().filter(|pod| phase(pod) == "Running").count();
        assert!(active <= 2, "{active} at a time");
        has_condition(cluster, "sum", "Complete").is_some()
    })
    .await;
    let status = job(&pond.cluster, "sum").and_then(|job| job.status).expect("a status");
    assert_eq!((status.succeeded, status.failed, status.active), (Some(6), None, None));
    assert!(status.completion_time.is_some());
    pond.until("gone with its pods", |cluster| cluster.jobs.is_empty() && cluster.pods.is_empty()).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn indexed_jobs_complete_every_index() {
    let pond = Pond::start().await;
    pond.nodes(2).await;
    let spec = json!({"completions": 5, "parallelism": 3, "completionMode": "Indexed"});
    pond.create(job_object("render", spec, json!({"sim.millpond.dev/run-for": "5s"}))).await;
    pond.until("complete", |cluster| has_condition(cluster, "render", "Complete").is_some()).await;
    let status = job(&pond.cluster, "render").and_then(|job| job.status).expect("a status");
    assert_eq!((status.completed_indexes.as_deref(), status.succeeded), (Some("0-4"), Some(5)));
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failing_jobs_give_up() {
    let pond = Pond::start().await;
    pond.nodes(2).await;
    let failing = json!({"sim.millpond.dev/run-for": "1s", "sim.millpond.dev/exit-code": "3"});
    pond.create(job_object("doomed", json!({"backoffLimit": 2}), failing)).await;
    pond.until("failed", |cluster| has_condition(cluster, "doomed", "Failed").is_some()).await;
    assert_eq!(has_condition(&pond.cluster, "doomed", "Failed").as_deref(), Some("BackoffLimitExceeded"));
    let status = job(&pond.cluster, "doomed").and_then(|job| job.status).expect("a status");
    assert_eq!(status.failed, Some(3));

    let endless = json!({"sim.millpond.dev/run-for": "1h"});
    pond.create(job_object("late", json!({"activeDeadlineSeconds": 60}), endless)).await;
    pond.until("past its deadline", |cluster| has_condition(cluster, "late", "Failed").is_some()).await;
    assert_eq!(has_condition(&pond.cluster, "late", "Failed").as_deref(), Some("DeadlineExceeded"));
    pond.until("its pod is gone", |_| pond.pods_of("late").is_empty()).await;
    pond.until_quiet().await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn suspended_jobs_wait() {
    let pond = Pond::start().await;
    pond.nodes(1).await;
    pond.create(job_object("nap", json!({"suspend": true}), json!({"sim.millpond.dev/run-for": "10s"}))).await;
    pond.until("suspended", |cluster| has_condition(cluster, "nap", "Suspended").is_some()).await;
    assert!(pond.cluster.pods.is_empty());
    pond.patch("batch/v1", "Job", "nap", json!({"spec": {"suspend": false}})).await;
    pond.until("running", |cluster| cluster.pods.list().iter().any(|pod| phase(pod) == "Running")).await;
    pond.patch("batch/v1", "Job", "nap", json!({"spec": {"suspend": true}})).await;
    pond.until("stopped", |cluster| cluster.pods.is_empty()).await;
    pond.patch("batch/v1", "Job", "nap", json!({"spec": {"suspend": false}})).await;
    pond.until("complete", |cluster| has_condition(cluster, "nap", "Complete").is_some()).await;
    pond.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_owned_and_go_with_their_owner() {
    let pond = Pond::start().await;
    pond.nodes(1).await;
    pond.deployment("web", 3, json!({})).await;
    pond.until("running", |cluster| available(cluster, "web") == 3).await;
    let deployment = Pond::create_ref("apps/v1", "Deployment", "web");
    pond.api(&deployment).delete("web", &DeleteParams::default()).await.expect("deleted");
    pond.until("all gone", |cluster| cluster.pods.is_empty() && cluster.replica_sets.is_empty()).await;
    assert!(pond.spread().is_empty() && pond.cluster.pods.list().iter().all(|pod| node_name(pod).is_none()));
    pond.stop().await;
}
