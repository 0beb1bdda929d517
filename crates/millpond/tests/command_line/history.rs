//! `millpond history` and the dashboard, on a running `millpond up` that is killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config};
use millpond_testkit::EmbeddedServer;
use serde_json::{Value, json};

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");
const PATIENCE: Duration = Duration::from_mins(2);

/// The command's output.
fn millpond(server: &EmbeddedServer, words: &str) -> Result<String> {
    let mut command = Command::new(MILLPOND);
    command.env("MILLPOND_DATA_DIR", server.data_folder()).args(words.split_whitespace());
    let output = command.output()?;
    ensure!(output.status.success(), "`{words}`: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| text.to_owned())
}

async fn create(client: &Client, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("a kind")?;
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let kind = GroupVersionKind::gvk(group, version, &types.kind);
    let plural =
        if types.kind == "NodeClass" { "nodeclasses".to_owned() } else { format!("{}s", types.kind.to_lowercase()) };
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// A pool, and a pod that needs a node; gives the name of the claim once its node is ready.
async fn buy_a_node(client: &Client) -> Result<String> {
    let class = json!({"group": "millpond.dev", "kind": "NodeClass", "name": "default"});
    let linux = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]);
    create(
        client,
        json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "default"},
            "spec": {"provider": "sim", "catalog": "kwok"},
        }),
    )
    .await?;
    create(
        client,
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": linux}}},
        }),
    )
    .await?;
    let requests = json!({"requests": {"cpu": "1"}});
    let container = json!({"name": "c", "image": "app:1", "resources": requests});
    let spec = json!({
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
    });
    let metadata = json!({"name": "web", "namespace": "default"});
    create(client, json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})).await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim"));
    let claims: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut events = std::pin::pin!(claims.watch(&kube::api::WatchParams::default(), "0").await?);
    let name = loop {
        use futures::StreamExt as _;
        let event = events.next().await.context("the watch goes on")??;
        if let kube::api::WatchEvent::Added(claim) = event {
            break claim.metadata.name.context("a name")?;
        }
    };
    let is_ready = |claim: Option<&DynamicObject>| {
        let conditions = claim.and_then(|claim| claim.data["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|it| it["type"] == "Initialized" && it["status"] == "True")
    };
    tokio::time::timeout(PATIENCE, await_condition(claims, &name, is_ready)).await??;
    Ok(name)
}

/// The address of the dashboard, and the code behind it.
fn dashboard(server: &mut EmbeddedServer) -> Result<(String, String)> {
    let _ = server.process().wait_for(PATIENCE, |printed| printed.contains("logs you in once"))?;
    let printed = server.process().printed();
    let line = printed.lines().rev().find_map(|line| line.strip_prefix("Dashboard: ")).context(printed.clone())?;
    let address = line.split_whitespace().next().context("an address")?;
    let (url, code) = address.split_once("/#code=").context("a code")?;
    Ok((url.to_owned(), code.to_owned()))
}

async fn log_in(url: &str, code: &str) -> Result<Client> {
    let client = Client::try_from(Config::new(url.parse()?))?;
    let request = Request::post("/ui/api/v1/session").header("content-type", "application/json");
    let answer = client.request_text(request.body(json!({ "code": code }).to_string().into_bytes())?).await?;
    let session = parsed(&answer)?["session"].as_str().context("a session")?.to_owned();
    let mut config = Config::new(url.parse()?);
    config.auth_info.token = Some(session.into());
    Ok(Client::try_from(config)?)
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    parsed(&client.request_text(Request::get(format!("/ui/api/v1{path}")).body(Vec::new())?).await?)
}

#[tokio::test]
async fn decisions_outlive_a_kill_and_are_planned_again() -> Result<()> {
    let mut server = EmbeddedServer::start(Path::new(MILLPOND), &["--ui-port", "0"])?;
    let node = buy_a_node(&server.client().await?).await?;
    let (url, code) = dashboard(&mut server)?;
    let page = log_in(&url, &code).await?;
    assert!(log_in(&url, &code).await.is_err(), "a code is good once");
    let overview = get(&page, "/overview").await?;
    assert_eq!(overview["nodes"]["all"], 1, "{overview}");
    let shown = get(&page, &format!("/nodes/{node}")).await?;
    assert_eq!(shown["decisions"][0]["kind"], "provision", "{shown}");
    let what_if = Request::post("/ui/api/v1/what-if").header("content-type", "application/json");
    let body = json!({"patches": [{
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "general",
        "patch": {"spec": {"weight": 7}},
    }]});
    let answer = parsed(&page.request_text(what_if.body(body.to_string().into_bytes())?).await?)?;
    assert_eq!((&answer["plan"]["summary"]["unplaced"], &answer["canApply"]), (&json!(0), &json!(true)), "{answer}");
    assert!(answer["plan"]["actions"].as_array().is_some_and(Vec::is_empty), "nothing new is bought: {answer}");

    server.kill()?;
    let text = millpond(&server, &format!("history node/{node}"))?;
    assert!(text.contains("provision, by provisioner\n1 node for 1 pod of Deployment/web\n"), "{text}");
    assert!(text.contains("ready after"), "{text}");
    let items = parsed(&millpond(&server, "history -o json --kind provision")?)?;
    let decision = &items["items"][0];
    let file = server.folder().join("decision.json");
    millpond(&server, &format!("history {} --save {}", decision["id"].as_str().context("an id")?, file.display()))?;
    let plan = |_| millpond(&server, &format!("plan -f {} -o json --check", file.display()));
    let plans = [0, 1].map(plan).into_iter().collect::<Result<Vec<_>>>()?;
    assert_eq!(plans[0], plans[1], "byte for byte");
    let plan = parsed(&plans[0])?;
    assert_eq!(plan["revision"], decision["revision"]);
    for field in ["instanceType", "zone", "capacityType", "pods"] {
        assert_eq!(plan["actions"][0][field], decision["actions"][0][field], "{field}");
    }

    server.restart()?;
    let (url, code) = dashboard(&mut server)?;
    let page = log_in(&url, &code).await?;
    let decisions = get(&page, &format!("/decisions?object=node/{node}")).await?;
    assert_eq!(decisions["decisions"][0]["id"], decision["id"]);
    server.stop()?;
    Ok(())
}
