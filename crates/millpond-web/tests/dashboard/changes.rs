//! What users change through the dashboard: as themselves, and exactly what was shown.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};

use crate::stage::Stage;

const ACTIONS: &str = "/ui/api/v1/actions";
const WHAT_IF: &str = "/ui/api/v1/what-if";

/// A cluster of objects: a pool with a limit that is used up, a node of it, and a pod that waits.
async fn objects(stage: &Stage) {
    for definition in millpond_api::crd::all() {
        stage.create(definition).await;
    }
    stage
        .create(json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "default"},
            "spec": {"provider": "sim", "catalog": "kwok"},
        }))
        .await;
    stage
        .create(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
            "spec": {
                "limits": {"cpu": "0"},
                "template": {"spec": {
                    "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    ],
                }},
            },
        }))
        .await;
    stage.create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}})).await;
    stage.create(pod("web-1")).await;
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]},
    })
}

async fn node(stage: &Stage, name: &str) {
    stage.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})).await;
}

fn raise(limit: &str) -> Value {
    json!({"patches": [{
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "general",
        "patch": {"spec": {"limits": {"cpu": limit}}},
    }]})
}

async fn limit(stage: &Stage, session: &str) -> Value {
    let pool = stage.get("/pools/karpenter/-/general", session).await.json();
    pool["object"]["spec"]["limits"]["cpu"].clone()
}

#[tokio::test(start_paused = true)]
async fn what_is_applied_is_what_was_shown() {
    let stage = Stage::new().await;
    objects(&stage).await;
    let session = stage.admin().await;
    let answer = stage.post(WHAT_IF, Some(&session), &raise("100")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let shown = answer.json();
    assert_eq!(shown["plan"]["summary"]["unplaced"], 0, "{shown}");
    assert_eq!(shown["groups"][0]["sign"], "+");
    let fields = json!([{"path": "spec.limits.cpu", "before": "0", "after": "100"}]);
    assert_eq!((&shown["diff"][0]["fields"], &shown["canApply"]), (&fields, &json!(true)));
    assert_eq!(limit(&stage, &session).await, "0", "nothing is written by asking");
    let path = format!("{WHAT_IF}/{}/apply", shown["id"].as_str().unwrap());
    let applied = stage.post(&path, Some(&session), &json!({})).await;
    assert_eq!(applied.status, 200, "{}", applied.text);
    assert_eq!(applied.json()["applied"][0]["object"]["name"], "general");
    assert_eq!(limit(&stage, &session).await, "100");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_moved_on_is_a_conflict_with_the_difference() {
    let stage = Stage::new().await;
    objects(&stage).await;
    let session = stage.admin().await;
    let shown = stage.post(WHAT_IF, Some(&session), &raise("100")).await.json();
    let mut large = pod("large");
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("30");
    stage.create(large).await;
    let path = format!("{WHAT_IF}/{}/apply", shown["id"].as_str().unwrap());
    let refused = stage.post(&path, Some(&session), &json!({})).await;
    assert_eq!(refused.problem().0, 409);
    let details = &refused.json()["details"];
    assert!(!details["difference"].as_array().unwrap().is_empty(), "{details}");
    assert_eq!(limit(&stage, &session).await, "0", "nothing was written");
    let path = format!("{WHAT_IF}/{}/apply", details["whatIf"]["id"].as_str().unwrap());
    assert_eq!(stage.post(&path, Some(&session), &json!({})).await.status, 200, "the new plan was shown");
    assert_eq!(stage.post(&format!("{WHAT_IF}/w-999/apply"), Some(&session), &json!({})).await.problem().0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_viewer_and_a_read_only_dashboard_change_nothing() {
    let stage = Stage::new().await;
    objects(&stage).await;
    node(&stage, "a").await;
    let session = stage.viewer().await;
    let me = stage.get("/me", &session).await.json();
    assert_eq!(me["can"]["view"], true);
    for button in ["cordon", "drain", "hold", "deleteNode", "editPools"] {
        assert_eq!(me["can"][button], false, "{button}");
    }
    for verb in ["cordon", "uncordon", "drain", "hold", "release"] {
        let body = json!({"verb": verb, "object": "node/a"});
        let (code, _, message) = stage.post(ACTIONS, Some(&session), &body).await.problem();
        assert_eq!(code, 403, "{verb}");
        assert!(message.contains("User \"viewer\" cannot"), "the API server's own words: {message}");
    }
    let shown = stage.post(WHAT_IF, Some(&session), &raise("100")).await.json();
    let path = format!("{WHAT_IF}/{}/apply", shown["id"].as_str().unwrap());
    assert_eq!(stage.post(&path, Some(&session), &json!({})).await.problem().0, 403);
    // What another user asked is not for this one.
    let admin = stage.admin().await;
    assert_eq!(stage.post(&path, Some(&admin), &json!({})).await.problem().0, 404);

    let stage = Stage::read_only().await;
    objects(&stage).await;
    node(&stage, "a").await;
    let admin = stage.admin().await;
    assert_eq!(stage.get("/me", &admin).await.json()["mode"], "read-only");
    let body = json!({"verb": "cordon", "object": "node/a"});
    assert_eq!(stage.post(ACTIONS, Some(&admin), &body).await.problem().2, "this dashboard is read-only");
    let shown = stage.post(WHAT_IF, Some(&admin), &raise("100")).await.json();
    assert_eq!(shown["canApply"], false);
    let path = format!("{WHAT_IF}/{}/apply", shown["id"].as_str().unwrap());
    assert_eq!(stage.post(&path, Some(&admin), &json!({})).await.problem().0, 403);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_cordoned_after_its_preview() {
    let stage = Stage::new().await;
    node(&stage, "a").await;
    let session = stage.admin().await;
    let preview = json!({"verb": "cordon", "object": "node/a", "dryRun": true});
    let shown = stage.post(ACTIONS, Some(&session), &preview).await.json();
    let nodes: Api<Node> = Api::all(stage.client());
    let cordoned = async || nodes.get("a").await.unwrap().spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    assert!(!cordoned().await, "a preview changes nothing");
    let body = json!({"verb": "cordon", "object": "node/a", "uid": shown["uid"]});
    let done = stage.post(ACTIONS, Some(&session), &body).await.json();
    assert!(cordoned().await);
    assert_eq!((&done["steps"], &done["sentence"]), (&shown["steps"], &shown["sentence"]));
    // The node was made anew meanwhile: another node is not touched.
    nodes.delete("a", &Default::default()).await.unwrap();
    node(&stage, "a").await;
    assert_eq!(stage.post(ACTIONS, Some(&session), &body).await.problem().0, 409);
    assert!(!cordoned().await);
}

#[tokio::test(start_paused = true)]
async fn removing_a_node_removes_that_node_or_refuses() {
    let stage = Stage::new().await;
    objects(&stage).await;
    node(&stage, "unmanaged").await;
    let machine = json!({"cluster.x-k8s.io/machine": "m1"});
    stage
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "machine", "annotations": machine}}))
        .await;
    for name in ["one", "two"] {
        stage
            .create(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "general"}},
                "spec": {
                    "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                    "requirements": [],
                },
            }))
            .await;
    }
    let claims = async || -> Vec<String> {
        let kind = kube::core::GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim");
        let api: Api<kube::api::DynamicObject> =
            Api::all_with(stage.client(), &kube::core::ApiResource::from_gvk(&kind));
        let all = api.list(&Default::default()).await.unwrap().items;
        let standing = all.into_iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
        standing.filter_map(|claim| claim.metadata.name).collect()
    };
    let kind = kube::core::GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim");
    let api: Api<kube::api::DynamicObject> = Api::all_with(stage.client(), &kube::core::ApiResource::from_gvk(&kind));
    let uid = api.get("one").await.unwrap().metadata.uid.unwrap();
    let owner = json!([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "one", "uid": uid}]);
    stage
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one", "ownerReferences": owner}}))
        .await;
    let session = stage.admin().await;
    let remove = async |name: &str, dry_run: bool| {
        let body = json!({"verb": "delete", "object": format!("node/{name}"), "dryRun": dry_run});
        stage.post(ACTIONS, Some(&session), &body).await
    };
    assert!(remove("unmanaged", false).await.problem().2.contains("belongs to no pool"));
    assert!(remove("machine", false).await.problem().2.contains("might lose another node"));
    assert_eq!(remove("none", false).await.problem().0, 404);
    assert_eq!(remove("one", true).await.json()["steps"][0]["object"]["name"], "one");
    assert_eq!(claims().await, ["one", "two"], "nothing was removed");
    assert_eq!(remove("one", false).await.status, 200);
    assert_eq!(claims().await, ["two"]);
}

#[tokio::test(start_paused = true)]
async fn absurd_questions_are_refused() {
    let stage = Stage::new().await;
    objects(&stage).await;
    let session = stage.admin().await;
    for (body, code) in [
        (json!({"add": [{"like": "default/web-1", "count": 1_000_000}]}), 422),
        (json!({"add": [{"like": "default/none", "count": 1}]}), 422),
        (json!({"remove": ["none"]}), 422),
        (json!({"policy": "none"}), 422),
        (json!({"objects": [{"kind": "Pod"}]}), 422),
        (json!({"patches": [{"apiVersion": "v1", "kind": "Pod", "name": "none", "patch": {}}]}), 422),
        (json!({"unknown": 1}), 400),
    ] {
        let answer = stage.post(WHAT_IF, Some(&session), &body).await;
        assert_eq!(answer.problem().0, code, "{body}: {}", answer.text);
    }
    let large = json!({"objects": ["x".repeat(2 << 20)]});
    assert_eq!(stage.post(WHAT_IF, Some(&session), &large).await.problem().0, 413);
    let more = json!({"add": [{"like": "default/web-1", "count": 40}], "patches": raise("100")["patches"]});
    let shown = stage.post(WHAT_IF, Some(&session), &more).await.json();
    assert_eq!((&shown["plan"]["summary"]["pods"], &shown["canApply"]), (&json!(41), &json!(false)));
}
