//! What pages read, and who may.

use millpond_plan::explain::explain_pod;
use millpond_plan::testing::Cluster;
use millpond_runtime::history::{Action, Decision, DecisionKind, ObjectRef};
use serde_json::{Value, json};

use crate::stage::{Stage, small};

#[tokio::test(start_paused = true)]
async fn who_may_not_see_the_whole_cluster_gets_a_sentence() {
    let stage = Stage::new().await;
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]);
    let session = stage.user("half", rules).await;
    let me = stage.get("/me", &session).await.json();
    assert_eq!((&me["can"]["view"], &me["can"]["cordon"]), (&json!(false), &json!(false)));
    assert_eq!(me["whyNot"]["view"], "you may not list pods in the whole cluster");
    for path in ["/overview", "/nodes", "/nodes/a", "/pools", "/pending", "/decisions", "/cost", "/catalog", "/stream"]
    {
        let (code, reason, message) = stage.get(path, &session).await.problem();
        assert_eq!((code, reason.as_str()), (403, "Forbidden"), "{path}");
        assert_eq!(message, "you may not list pods in the whole cluster");
    }
    let me = stage.get("/me", &stage.admin().await).await.json();
    assert_eq!((&me["user"]["name"], &me["mode"], &me["whyNot"]), (&json!("admin"), &json!("acting"), &json!({})));
    assert!(me["can"].as_object().unwrap().values().all(|can| *can == json!(true)), "{me}");
}

#[tokio::test(start_paused = true)]
async fn nodes_are_columns_over_one_dictionary() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let nodes = stage.get("/nodes", &session).await.json();
    let (columns, strings) = (&nodes["columns"], nodes["strings"].as_array().unwrap());
    let text = |column: &str| strings[columns[column][0].as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    assert_eq!((&columns["name"], &columns["state"]), (&json!(["a"]), &json!("r")));
    assert_eq!((text("pool").as_str(), text("type").as_str()), ("general", "small"));
    assert!(!text("why").is_empty());
    assert_eq!((&columns["pods"], &columns["cpuTotal"]), (&json!([1]), &json!([2000])));
    assert_eq!(columns["cpu"], json!([500]));
    assert_eq!(strings[0], "");
    for column in
        ["zone", "capacityType", "mem", "gpu", "memTotal", "priceNanos", "disruptable", "doNotDisrupt", "since"]
    {
        assert_eq!(columns[column].as_array().map(Vec::len), Some(1), "{column}");
    }
    assert_eq!(columns["gpu"], json!([null]), "it has none");
}

#[tokio::test(start_paused = true)]
async fn the_reason_is_the_one_of_explain_with_a_tried_fix() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let cluster = || {
        small().pool("limited", |pool| pool.limit("cpu=2").weight(10).taint("only=this:NoSchedule")).pod(
            "train-1",
            "cpu=2",
            |pod| pod.tolerates("only=this:NoSchedule").needs("pool in limited"),
        )
    };
    let stuck =
        || cluster().node("full", "small", |node| node.pool("limited")).pod("other-1", "cpu=1", |pod| pod.on("full"));
    stage.shown.show(stuck());
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let pending = stage.get("/pending", &session).await.json();
    let group = &pending["groups"][0];
    let snapshot = stuck().snapshot();
    let explained = explain_pod(&snapshot, snapshot.find_pod("default/train-1").unwrap());
    assert!(explained.verdict.is_some(), "the pod was to fit nowhere: {}", explained.message);
    assert_eq!(group["state"], "nobody-fits");
    assert_eq!(group["sentence"], json!(explained.verdict.as_ref().unwrap().message));
    assert_eq!(group["owner"], "Deployment/train");
    let detail = stage.get(&format!("/pending/{}", group["id"].as_str().unwrap()), &session).await.json();
    assert_eq!(detail["explanation"], json!(explained.message), "byte for byte");
    assert_eq!(detail["pools"].as_array().unwrap().len(), 2);
    let suggestion = explained.suggestion.map(|it| it.message);
    assert_eq!(detail["fixes"][0]["sentence"], json!(suggestion));
    assert_eq!(stage.get("/pending/g0", &session).await.problem().0, 404);
}

#[tokio::test(start_paused = true)]
async fn unknown_prices_are_never_zero() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let cluster = small().edit(|snapshot| snapshot.nodes[0].price = None);
    stage.shown.show(cluster);
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let overview = stage.get("/overview", &session).await.json();
    assert_eq!(overview["cost"], json!({"nanos": null, "unpriced": 1, "text": "?"}));
    assert_eq!(overview["bound"], Value::Null);
    let nodes = stage.get("/nodes", &session).await.json();
    assert_eq!(nodes["columns"]["priceNanos"], json!([null]));
    let pools = stage.get("/pools", &session).await.json();
    assert_eq!((&pools["pools"][0]["cost"]["text"], &pools["pools"][0]["idle"]["text"]), (&json!("?"), &json!("?")));
    assert!(!overview.to_string().contains("$0.00"), "{overview}");
}

#[tokio::test(start_paused = true)]
async fn hostile_names_stay_text_in_json() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let name = "<img src=x onerror=alert(1)>";
    let cluster = Cluster::new()
        .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
        .pool("general", |pool| pool)
        .node(name, "small", |node| node.pool("general"));
    stage.shown.show(cluster);
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let nodes = stage.get("/nodes", &session).await;
    assert_eq!(nodes.headers["content-type"], "application/json");
    assert_eq!(nodes.json()["columns"]["name"], json!([name]));
    let path = "/nodes/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E";
    assert_eq!(stage.get(path, &session).await.json()["name"], name);
}

#[tokio::test(start_paused = true)]
async fn decisions_are_paged_filtered_and_found_by_node() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    for number in 0..5 {
        let kind = if number % 2 == 0 { DecisionKind::Provision } else { DecisionKind::Drift };
        let mut decision = Decision::new(kind, "test", 1000 + number, format!("decision {number}"));
        let object = ObjectRef::new("NodeClaim", "", &format!("n{number}"));
        decision.actions.push(Action { verb: "create".to_owned(), object, ..Action::default() });
        stage.shown.history.record(decision);
    }
    let ids = async |path: &str| -> Vec<String> {
        let page = stage.get(path, &session).await.json();
        page["decisions"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("/decisions").await, ["d-5", "d-4", "d-3", "d-2", "d-1"]);
    assert_eq!(ids("/decisions?kind=drift").await, ["d-4", "d-2"]);
    assert_eq!(ids("/decisions?object=node/n2").await, ["d-3"]);
    assert_eq!(ids("/decisions?from=1001&to=1002").await, ["d-3", "d-2"]);
    let page = stage.get("/decisions?limit=2", &session).await.json();
    assert_eq!((&page["next"], &page["total"]), (&json!("4"), &json!(5)));
    assert_eq!(ids("/decisions?limit=2&cursor=4").await, ["d-3", "d-2"]);
    let one = stage.get("/decisions/d-3", &session).await.json();
    assert_eq!((&one["hasSnapshot"], &one["actions"][0]["object"]["name"]), (&json!(false), &json!("n2")));
    stage.shown.history.keep_snapshot(&[3], "the snapshot");
    let file = stage.get("/decisions/d-3/snapshot", &session).await;
    assert_eq!(
        (file.text.as_str(), &file.headers["content-disposition"]),
        ("the snapshot", &http::HeaderValue::from_static("attachment; filename=\"d-3.json\""))
    );
    assert_eq!(stage.get("/decisions/d-4/snapshot", &session).await.problem().0, 404);
    let gone = stage.get("/nodes/n2", &session).await.json();
    assert_eq!((&gone["gone"], gone["decisions"].as_array().unwrap().len()), (&json!(true), 1));
    for path in ["/decisions?object=n2", "/decisions?kind=none", "/decisions?limit=many", "/cost?by=none"] {
        assert_eq!(stage.get(path, &session).await.problem().0, 400, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_pages_answer() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    for definition in millpond_api::crd::all() {
        stage.create(definition).await;
    }
    for path in
        ["/overview", "/pools", "/pools/karpenter/-/general", "/nodes/a", "/cost", "/health", "/catalog?pool=general"]
    {
        let answer = stage.get(path, &session).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    let overview = stage.get("/overview", &session).await.json();
    assert!(overview["sentence"].as_str().unwrap().starts_with("The one pod has a place."), "{overview}");
    let node = stage.get("/nodes/a", &session).await.json();
    assert_eq!((&node["pods"][0]["name"], &node["resources"][0]["permille"]), (&json!("web-1"), &json!(500)));
    assert_eq!(stage.get("/nodes/b", &session).await.problem().0, 404);
    assert_eq!(stage.get("/pools/karpenter/-/none", &session).await.problem().0, 404);
    let hosts = stage.get("/hosts", &session).await.json();
    let columns = json!(["NAME", "STATE", "POOL", "MACHINE", "CPU", "MEMORY", "GPUS", "AGE"]);
    assert_eq!((&hosts["columns"], &hosts["rows"]), (&columns, &json!([])));
    assert_eq!(stage.get("/ci/nothing", &session).await.problem().0, 404);
}
