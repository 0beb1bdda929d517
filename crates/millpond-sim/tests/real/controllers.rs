//! What workloads look like in the end: kube-controller-manager against the stand-ins.

use anyhow::Result;
use millpond_sim::Part;
use millpond_testkit::RealCluster;
use serde_json::{Value, json};

use crate::party::Party;

fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": "10m"}}}]},
    })
}

fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let mut base = json!({"selector": {"matchLabels": {"app": name}}, "template": template(name, "app:1")});
    for (key, value) in spec.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": base})
}

fn job(name: &str, spec: Value, annotations: Value) -> Value {
    let mut base = json!({"template": {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }});
    for (key, value) in spec.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": base})
}

/// Removes what differs from run to run: times, versions, hashes in names.
fn normalized(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| !key.ends_with("Time") && *key != "collisionCount" && *key != "uncountedTerminatedPods")
            .map(|(key, value)| (key.clone(), normalized(value)))
            .collect(),
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().map(normalized).collect();
            list.sort_by_key(|item| item["type"].as_str().unwrap_or_default().to_owned());
            Value::Array(list)
        }
        Value::String(text) => {
            let words = text.split(' ').map(|word| {
                let bare = word.trim_matches('"');
                let (head, tail) = bare.rsplit_once('-').unwrap_or((bare, ""));
                let is_hash = tail.len() >= 8 && tail.bytes().all(|byte| byte.is_ascii_alphanumeric());
                if is_hash { word.replace(bare, &format!("{head}-HASH")) } else { word.to_owned() }
            });
            Value::String(words.collect::<Vec<_>>().join(" "))
        }
        other => other.clone(),
    }
}

struct Story {
    party: Party,
    told: Vec<(String, Value)>,
}

impl Story {
    /// Waits for an object to be as wanted and notes its status.
    async fn tell(&mut self, what: &str, object: (&str, &str, &str), wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = self.party.read_until(object, wanted).await?;
        self.told.push((what.to_owned(), normalized(&found["status"])));
        Ok(found)
    }
}

fn is_at(object: &Value, fields: &[(&str, i64)]) -> bool {
    let is_observed = object["status"]["observedGeneration"] == object["metadata"]["generation"];
    is_observed && fields.iter().all(|(field, number)| object["status"][field].as_i64().unwrap_or_default() == *number)
}

fn condition(object: &Value, type_: &str) -> Option<Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == type_ && one["status"] == "True").cloned()
}

async fn story(party: Party) -> Result<Vec<(String, Value)>> {
    for name in ["n1", "n2", "n3"] {
        party.node(name, "8", json!({}), json!({}), json!({})).await?;
    }
    let mut story = Story { party, told: Vec::new() };
    deployments(&mut story).await?;
    stateful_sets(&mut story).await?;
    daemon_sets(&mut story).await?;
    jobs(&mut story).await?;
    let Story { party, told } = story;
    party.stop().await;
    Ok(told)
}

async fn deployments(story: &mut Story) -> Result<()> {
    let web = ("apps/v1", "Deployment", "web");
    story
        .party
        .create(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .await?;
    story.party.create(workload("Deployment", "web", json!({"replicas": 4}))).await?;
    let is_complete = |replicas: i64| {
        move |object: &Value| {
            is_at(
                object,
                &[
                    ("replicas", replicas),
                    ("updatedReplicas", replicas),
                    ("availableReplicas", replicas),
                    ("terminatingReplicas", 0),
                ],
            ) && condition(object, "Progressing").is_some_and(|one| one["reason"] == "NewReplicaSetAvailable")
        }
    };
    let first = story.tell("deployment available", web, is_complete(4)).await?;
    story.told.push(("its annotations".into(), first["metadata"]["annotations"].clone()));
    story
        .tell("budget", ("policy/v1", "PodDisruptionBudget", "web"), |object| {
            is_at(object, &[("disruptionsAllowed", 1)])
        })
        .await?;
    story.party.patch("apps/v1", "Deployment", "web", json!({"spec": {"template": template("web", "app:2")}})).await?;
    let second = story.tell("deployment updated", web, is_complete(4)).await?;
    story.told.push(("its revision".into(), second["metadata"]["annotations"].clone()));
    story.party.patch("apps/v1", "Deployment", "web", json!({"spec": {"replicas": 2, "paused": true}})).await?;
    story
        .tell("deployment paused and scaled", web, |object| {
            is_at(object, &[("replicas", 2), ("terminatingReplicas", 0)])
        })
        .await?;
    let sets = story.party.cluster.replica_sets.list();
    let mut sizes: Vec<Value> = sets
        .iter()
        .map(|set| json!({"replicas": set.spec.as_ref().and_then(|spec| spec.replicas), "annotations": set.metadata.annotations}))
        .collect();
    sizes.sort_by_key(ToString::to_string);
    story.told.push(("its sets".into(), Value::Array(sizes)));
    story.party.create(workload("Deployment", "stuck", json!({"replicas": 1, "progressDeadlineSeconds": 3,
        "template": {"metadata": {"labels": {"app": "stuck"}}, "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": "i"}]}}}))).await?;
    story
        .tell("deployment stuck", ("apps/v1", "Deployment", "stuck"), |object| {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["reason"] == "ProgressDeadlineExceeded")
        })
        .await?;
    Ok(())
}

async fn stateful_sets(story: &mut Story) -> Result<()> {
    let db = ("apps/v1", "StatefulSet", "db");
    story.party.create(workload("StatefulSet", "db", json!({"replicas": 3, "serviceName": "db"}))).await?;
    let is_settled = |updated: i64| {
        move |object: &Value| {
            is_at(
                object,
                &[("replicas", 3), ("readyReplicas", 3), ("availableReplicas", 3), ("updatedReplicas", updated)],
            )
        }
    };
    story.tell("stateful set", db, is_settled(3)).await?;
    let partition = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    story
        .party
        .patch(
            "apps/v1",
            "StatefulSet",
            "db",
            json!({"spec": {"template": template("db", "app:2"), "updateStrategy": partition}}),
        )
        .await?;
    story.tell("stateful set updated in part", db, is_settled(1)).await?;
    let mut pods: Vec<Value> = Vec::new();
    for pod in story.party.cluster.pods.list() {
        let meta = &pod.metadata;
        if meta.name.as_deref().is_some_and(|name| name.starts_with("db-")) {
            pods.push(normalized(&json!({"name": meta.name, "labels": meta.labels,
                "hostname": pod.spec.as_ref().and_then(|spec| spec.hostname.clone()),
                "subdomain": pod.spec.as_ref().and_then(|spec| spec.subdomain.clone())})));
        }
    }
    story.told.push(("its pods".into(), Value::Array(pods)));
    Ok(())
}

async fn daemon_sets(story: &mut Story) -> Result<()> {
    let agent = ("apps/v1", "DaemonSet", "agent");
    story.party.create(workload("DaemonSet", "agent", json!({}))).await?;
    let is_settled = |object: &Value| {
        is_at(object, &[("desiredNumberScheduled", 3), ("numberAvailable", 3), ("updatedNumberScheduled", 3)])
    };
    story.tell("daemon set", agent, is_settled).await?;
    story
        .party
        .patch("apps/v1", "DaemonSet", "agent", json!({"spec": {"template": template("agent", "app:2")}}))
        .await?;
    story.tell("daemon set updated", agent, is_settled).await?;
    let pods = story.party.cluster.pods.list();
    let pod = pods.iter().find(|pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with("agent-")));
    let spec = pod.and_then(|pod| pod.spec.clone()).unwrap_or_default();
    let mut tolerations = serde_json::to_value(&spec.tolerations)?;
    if let Some(list) = tolerations.as_array_mut() {
        list.sort_by_key(ToString::to_string);
    }
    story.told.push(("its tolerations".into(), tolerations));
    Ok(())
}

async fn jobs(story: &mut Story) -> Result<()> {
    let quick = json!({"sim.millpond.dev/run-for": "200ms"});
    let failing = json!({"sim.millpond.dev/run-for": "200ms", "sim.millpond.dev/exit-code": "1"});
    let endless = json!({"sim.millpond.dev/run-for": "1h"});
    let complete = |object: &Value| condition(object, "Complete").is_some();
    let failed = |object: &Value| condition(object, "Failed").is_some();
    story.party.create(job("sum", json!({"completions": 3, "parallelism": 2}), quick.clone())).await?;
    story.tell("job", ("batch/v1", "Job", "sum"), complete).await?;
    story
        .party
        .create(job("grid", json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"}), quick))
        .await?;
    story.tell("indexed job", ("batch/v1", "Job", "grid"), complete).await?;
    story.party.create(job("doomed", json!({"backoffLimit": 0}), failing)).await?;
    story.tell("failing job", ("batch/v1", "Job", "doomed"), failed).await?;
    story.party.create(job("late", json!({"activeDeadlineSeconds": 2}), endless.clone())).await?;
    story.tell("late job", ("batch/v1", "Job", "late"), failed).await?;
    story.party.create(job("nap", json!({"suspend": true}), endless)).await?;
    story.tell("suspended job", ("batch/v1", "Job", "nap"), |object| condition(object, "Suspended").is_some()).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs the real parts"]
async fn real_controllers_end_where_the_stand_ins_end() -> Result<()> {
    let manager = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,\
                   job-controller,disruption-controller,garbage-collector-controller";
    let helpers = [Part::Kubelets, Part::NodeLifecycle, Part::Scheduler];
    let theirs = Party::start(&RealCluster::builder().controller_manager(manager), &helpers).await?;
    let theirs = story(theirs).await?;
    let ours = Party::start(&RealCluster::builder(), &Part::ALL).await?;
    let ours = story(ours).await?;
    let different: Vec<String> = theirs
        .iter()
        .zip(&ours)
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| format!("{}\n  theirs: {}\n  ours:   {}", theirs.0, theirs.1, ours.1))
        .collect();
    assert!(different.is_empty(), "{} of {} differ:\n{}", different.len(), theirs.len(), different.join("\n"));
    Ok(())
}
