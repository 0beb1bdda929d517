//! Revisions and statuses from objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;

fn deployment(more: Value) -> Deployment {
    let mut value = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "d", "generation": 2},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "a"}]}},
        },
    });
    for (pointer, change) in more.as_object().expect("an object") {
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        value.pointer_mut(parent).expect("a parent")[field] = change.clone();
    }
    serde_json::from_value(value).expect("a deployment")
}

fn set(deployment: &Deployment, name: &str, replicas: i32, status: Value) -> ReplicaSet {
    let mut set = revision::make(deployment, None);
    set.metadata.name = Some(name.to_owned());
    set.spec.as_mut().expect("a spec").replicas = Some(replicas);
    set.status = Some(serde_json::from_value(status).expect("a status"));
    set
}

fn at(seconds: i64) -> Time {
    Time(Timestamp::from_second(1_800_000_000 + seconds).expect("a time"))
}

fn compute(
    deployment: &Deployment,
    sets: &[&ReplicaSet],
    new: Option<&ReplicaSet>,
    seconds: i64,
) -> (Value, Option<Duration>) {
    let facts = Facts {
        deployment,
        sets,
        new,
        news: new.map_or(NewReplicaSet::None, |new| NewReplicaSet::Found(new.name_any())),
        rolling_out: true,
        now: at(seconds),
        collisions: None,
    };
    let (status, recheck) = status::compute(&facts);
    (serde_json::to_value(status).expect("json"), recheck)
}

fn reasons(status: &Value) -> Vec<String> {
    let list = status["conditions"].as_array().expect("conditions");
    list.iter()
        .map(|one| {
            format!(
                "{}={} {}",
                one["type"].as_str().unwrap(),
                one["status"].as_str().unwrap(),
                one["reason"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn equal_templates_make_equal_hashes_and_are_found_again() {
    let first = deployment(json!({}));
    let made = revision::make(&first, None);
    assert_eq!(made.name_any(), revision::make(&first, None).name_any());
    assert_ne!(made.name_any(), revision::make(&first, Some(1)).name_any());
    let hash = made.name_any().strip_prefix("web-").expect("a prefix").to_owned();
    let spec = made.spec.clone().expect("a spec");
    assert_eq!(spec.selector.match_labels.expect("labels")[revision::HASH_LABEL], hash);
    let sets = [Arc::new(made)];
    assert!(revision::find_new(&first, &sets).is_some());
    let changed = deployment(json!({"/spec/template/spec/containers": [{"name": "c", "image": "b"}]}));
    assert!(revision::find_new(&changed, &sets).is_none());
    assert_ne!(revision::make(&changed, None).name_any(), sets[0].name_any());
    // What the server writes for an empty list and what it leaves out are the same.
    let padded = deployment(json!({"/spec/template/spec/volumes": []}));
    assert!(revision::find_new(&padded, &sets).is_some());
}

#[test]
fn revisions_count_up_and_remember_rollbacks() {
    let deployment = deployment(json!({"/metadata/annotations": {"team": "red", revision::REVISION: "9"}}));
    let mut set = revision::make(&deployment, None);
    set.metadata.annotations = Some(revision::annotations(&deployment, &set, 0));
    assert_eq!(set.annotations()[revision::REVISION], "1");
    assert_eq!(set.annotations()["team"], "red");
    assert_eq!(revision::annotations(&deployment, &set, 0), *set.annotations(), "nothing to do");
    // Rolled back to after two newer ones.
    set.metadata.annotations = Some(revision::annotations(&deployment, &set, 3));
    assert_eq!(set.annotations()[revision::REVISION], "4");
    assert_eq!(set.annotations()[revision::REVISION_HISTORY], "1");
    let again = revision::annotations(&deployment, &set, 5);
    assert_eq!(again[revision::REVISION_HISTORY], "1,4");
}

#[test]
fn progress_is_told_step_by_step() {
    let mut deployment = deployment(json!({}));
    let new = set(&deployment, "web-1", 3, json!({"replicas": 0}));
    let (fresh, recheck) = compute(&deployment, &[&new], Some(&new), 0);
    assert_eq!(reasons(&fresh), ["Progressing=True FoundNewReplicaSet", "Available=False MinimumReplicasUnavailable"]);
    assert_eq!(fresh["unavailableReplicas"], 3);
    assert_eq!(recheck, Some(Duration::from_secs(601)));
    deployment.status = serde_json::from_value(fresh).expect("a status");

    let new = set(&deployment, "web-1", 3, json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 2}));
    let (moving, _) = compute(&deployment, &[&new], Some(&new), 10);
    assert_eq!(reasons(&moving), ["Available=False MinimumReplicasUnavailable", "Progressing=True ReplicaSetUpdated"]);
    deployment.status = serde_json::from_value(moving).expect("a status");

    let new = set(
        &deployment,
        "web-1",
        3,
        json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "terminatingReplicas": 0}),
    );
    let (done, recheck) = compute(&deployment, &[&new], Some(&new), 20);
    assert_eq!(
        done,
        json!({
            "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3, "terminatingReplicas": 0,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                 "message": "Deployment has minimum availability.",
                 "lastUpdateTime": "2027-01-15T08:00:20Z", "lastTransitionTime": "2027-01-15T08:00:20Z"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
                 "message": "ReplicaSet \"web-1\" has successfully progressed.",
                 "lastUpdateTime": "2027-01-15T08:00:20Z", "lastTransitionTime": "2027-01-15T08:00:00Z"},
            ],
        })
    );
    assert_eq!(recheck, None);
    deployment.status = serde_json::from_value(done.clone()).expect("a status");
    let (later, recheck) = compute(&deployment, &[&new], Some(&new), 9000);
    assert_eq!((later, recheck), (done, None), "nothing moves any more");
}

#[test]
fn a_rollout_that_stands_still_times_out() {
    let mut deployment = deployment(json!({"/spec/progressDeadlineSeconds": 60}));
    let new = set(&deployment, "web-1", 3, json!({"replicas": 3}));
    let (first, _) = compute(&deployment, &[&new], Some(&new), 0);
    deployment.status = serde_json::from_value(first).expect("a status");
    let (_, recheck) = compute(&deployment, &[&new], Some(&new), 30);
    assert_eq!(recheck, Some(Duration::from_secs(31)));
    let (late, recheck) = compute(&deployment, &[&new], Some(&new), 61);
    assert_eq!(reasons(&late)[1], "Progressing=False ProgressDeadlineExceeded");
    assert_eq!(recheck, None);
    deployment.status = serde_json::from_value(late.clone()).expect("a status");
    assert_eq!(compute(&deployment, &[&new], Some(&new), 500).0, late);
}

#[test]
fn pausing_and_resuming_are_told() {
    let mut deployment = deployment(json!({"/spec/paused": true}));
    let new = set(&deployment, "web-1", 3, json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}));
    let paused = status::compute(&Facts {
        deployment: &deployment,
        sets: &[&new],
        new: Some(&new),
        news: NewReplicaSet::Found("web-1".into()),
        rolling_out: false,
        now: at(0),
        collisions: None,
    });
    let status = serde_json::to_value(&paused.0).expect("json");
    assert_eq!(reasons(&status), ["Progressing=Unknown DeploymentPaused", "Available=True MinimumReplicasAvailable"]);
    deployment.status = Some(paused.0);
    deployment.spec.as_mut().expect("a spec").paused = Some(false);
    let (resumed, _) = compute(&deployment, &[&new], Some(&new), 5);
    assert_eq!(reasons(&resumed)[1], "Progressing=True NewReplicaSetAvailable");
}
