//! The dashboard of `millpond up --memory` in Chromium: what a user does, and what the page then has, without a reload.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use millpond_testkit::{Browser, EmbeddedServer, Waited};
use serde_json::{Value, json};

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");
/// For the line with the address: it is printed when the API answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Every page that a list leads to.
const PAGES: &[&str] = &[
    "/",
    "/pools",
    "/nodes",
    "/nodes?view=table",
    "/pending",
    "/plan",
    "/timeline",
    "/hosts",
    "/gpus",
    "/ci",
    "/catalog",
    "/health",
];
/// A text that a page which does not escape would run.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// A running Millpond, a browser that is logged in, and a client.
struct Stage {
    server: EmbeddedServer,
    browser: Browser,
    /// With the code, which is used up.
    address: String,
}

impl Stage {
    fn start(args: &[&str]) -> Result<Self> {
        let args = [&["--memory", "--ui-port", "0"], args].concat();
        let mut server = EmbeddedServer::start(Path::new(MILLPOND), &args)?;
        let found = server.process().wait_for(PATIENCE, |printed| printed.contains("#code="))?;
        anyhow::ensure!(found == Waited::Satisfied, "no address of a dashboard was printed");
        let printed = server.process().printed();
        let address = printed.split_whitespace().find(|word| word.contains("#code=")).context("no address")?.to_owned();
        let browser = Browser::start(1400, 900)?;
        browser.open(&address)?;
        browser.until("document.querySelector('.fresh.good') !== null")?;
        Ok(Self { server, browser, address })
    }

    /// Goes to a page as a link does: a session is kept.
    fn go(&self, path: &str) -> Result<()> {
        let script = "history.pushState(null, '', arguments[0]); dispatchEvent(new PopStateEvent('popstate'))";
        self.browser.run(script, &[json!(path)]).map(drop)
    }

    async fn client(&self) -> Result<Client> {
        self.server.client().await
    }
}

async fn create(client: &Client, object: Value) -> Result<()> {
    let (group, version) = object["apiVersion"].as_str().and_then(|it| it.split_once('/')).unwrap_or(("", "v1"));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().context("no kind")?);
    let object: DynamicObject = serde_json::from_value(object)?;
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

async fn create_pool(client: &Client, limit: &str) -> Result<()> {
    create(
        client,
        json!({ "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": { "name": "default" },
        "spec": { "provider": "sim", "catalog": "aws" } }),
    )
    .await?;
    create(client, json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" }, "spec": {
        "limits": { "cpu": limit },
        "template": { "spec": { "nodeClassRef": { "group": "millpond.dev", "kind": "NodeClass", "name": "default" },
            "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }] } } } })).await
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default", "annotations": { "hostile": HOSTILE } },
        "spec": { "containers": [{ "name": "main", "image": HOSTILE, "resources": { "requests": { "cpu": cpu } } }] } })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium"]
async fn browser_shows_why_a_pod_waits_and_the_fix_gives_it_a_node() -> Result<()> {
    let stage = Stage::start(&[])?;
    let client = stage.client().await?;
    create_pool(&client, "2").await?;
    stage.go("/pending")?;
    create(&client, pod("stuck", "4")).await?;
    // Without a reload: the stream brings it.
    stage.browser.until("document.querySelector('.group .state.bad') !== null")?;
    stage.browser.click(".group .summary")?;
    stage.browser.until("document.querySelector('.fixes .tried.yes') !== null")?;
    stage.browser.click(".fixes button.primary")?;
    stage.browser.until("document.querySelector('.plan .headline') !== null")?;
    stage.browser.until("!document.querySelector('.plan button.primary').disabled")?;
    stage.browser.click(".plan button.primary")?;
    stage.browser.until("document.querySelector('.outcome').innerText.includes('Applied')")?;
    stage.go("/nodes?view=table")?;
    stage.browser.until("document.querySelectorAll('.table .body .row').length === 1")?;
    assert_eq!(stage.browser.console_errors()?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium"]
async fn browser_removes_the_node_that_was_chosen() -> Result<()> {
    let stage = Stage::start(&[])?;
    let client = stage.client().await?;
    create_pool(&client, "1000").await?;
    create(&client, pod("a", "3")).await?;
    stage.go("/nodes?view=table")?;
    let ready =
        "document.querySelector('.table .row .state.good') && document.querySelector('.table .body .row').dataset.key";
    let name = stage.browser.until(ready)?.as_str().context("no name")?.to_owned();
    let nodes: Api<Node> = Api::all(client);
    let node = nodes.get(&name).await?;
    stage.go(&format!("/nodes/{name}"))?;
    stage.browser.until(
        "(() => { const it = [...document.querySelectorAll('.title button')].find((it) => it.textContent.startsWith('Remove')); \
         if (!it || it.disabled) return false; it.click(); return true; })()",
    )?;
    stage.browser.until("document.querySelector('dialog .steps') !== null")?;
    stage.browser.until("!document.querySelector('dialog button.danger').disabled")?;
    stage.browser.click("dialog button.danger")?;
    let is_gone = kube::runtime::wait::conditions::is_deleted(node.metadata.uid.as_deref().context("no uid")?);
    tokio::time::timeout(PATIENCE, kube::runtime::wait::await_condition(nodes, &name, is_gone)).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium"]
async fn browser_has_no_error_on_any_page_and_every_empty_page_teaches() -> Result<()> {
    let stage = Stage::start(&[])?;
    for dark in [false, true] {
        stage.browser.set_dark(dark)?;
        for page in PAGES {
            stage.go(page)?;
            stage
                .browser
                .until("document.querySelector('h1') !== null && document.querySelector('.loading') === null")?;
            if *page != "/health" {
                stage
                    .browser
                    .until("document.querySelector('main .command') !== null")
                    .with_context(|| (*page).to_owned())?;
            }
        }
    }
    assert_eq!(stage.browser.console_errors()?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium"]
async fn browser_logs_in_by_a_code_once_and_says_when_the_server_is_gone() -> Result<()> {
    let mut stage = Stage::start(&[])?;
    assert_eq!(stage.browser.run("return location.hash + document.cookie", &[])?, json!(""));
    let replayed = Browser::start(800, 600)?;
    replayed.open(&stage.address)?;
    replayed.until("document.querySelector('#proof') !== null")?;
    assert_eq!(replayed.run("return document.querySelector('.frame')", &[])?, Value::Null);
    stage.server.kill()?;
    stage.browser.until("document.querySelector('.fresh.bad') !== null")?;
    Ok(())
}
