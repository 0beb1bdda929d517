//! Answers of the web API over records in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::*;
use crate::config::{self, File};
use crate::model::{Json, Node, NodeRequest};
use crate::records::{Build, Image, Images, NodeEntry, RequestEntry, Result as Answer, Upload};

const CONFIG: &str = "
labels: [{name: small}]
diskimages: [{name: fedora}]
tenant-resource-limits: [{tenant-name: acme, max-servers: 3}]
providers:
  - name: rack
    driver: static
    pools: [{name: main, max-servers: 4, nodes: [{name: host-1, labels: small}]}]
";

struct Fixed {
    nodes: Mutex<Vec<NodeEntry>>,
    changed: Mutex<Vec<String>>,
}

impl Source for Fixed {
    fn nodes(&self) -> BoxFuture<'_, Answer<Vec<NodeEntry>>> {
        ready(Ok(self.nodes.lock().clone())).boxed()
    }
    fn requests(&self) -> BoxFuture<'_, Answer<Vec<RequestEntry>>> {
        let request = NodeRequest::new(vec!["small".to_owned()], 0.0);
        ready(Ok(vec![RequestEntry { id: "200-0000000001".to_owned(), request }])).boxed()
    }
    fn labels(&self) -> BoxFuture<'_, Answer<BTreeSet<String>>> {
        ready(Ok(BTreeSet::from(["small".to_owned()]))).boxed()
    }
    fn images(&self) -> BoxFuture<'_, Answer<Images>> {
        let upload = Upload { id: "0000000001".to_owned(), provider: "cloud".to_owned(), ..Upload::default() };
        let build = Build { id: "b1".to_owned(), uploads: vec![upload], ..Build::default() };
        let image = Image { name: "fedora".to_owned(), builds: vec![build], ..Image::default() };
        ready(Ok(Images { images: vec![image] })).boxed()
    }
    fn set_node_state<'a>(&'a self, id: &'a str, state: NodeState) -> BoxFuture<'a, Answer<Change>> {
        let mut nodes = self.nodes.lock();
        let found = nodes.iter_mut().find(|entry| entry.id == id);
        ready(Ok(found.map_or(Change::NotFound, |entry| {
            entry.node.state = state;
            Change::Done
        })))
        .boxed()
    }
    fn set_paused<'a>(&'a self, image: &'a str, paused: bool) -> BoxFuture<'a, Answer<()>> {
        self.changed.lock().push(format!("{image} paused={paused}"));
        ready(Ok(())).boxed()
    }
    fn request_build<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Answer<()>> {
        self.changed.lock().push(format!("{image} build"));
        ready(Ok(())).boxed()
    }
    fn delete_build<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Answer<Change>> {
        ready(Ok(Change::Done)).boxed()
    }
    fn delete_upload<'a>(&'a self, _: &'a str, _: &'a str, _: &'a str, _: &'a str) -> BoxFuture<'a, Answer<Change>> {
        ready(Ok(Change::NotFound)).boxed()
    }
    fn erase_builds<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Answer<()>> {
        ready(Ok(())).boxed()
    }
    fn erase_nodes<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Answer<()>> {
        ready(Ok(())).boxed()
    }
    fn export_images(&self) -> BoxFuture<'_, Answer<Map<String, Value>>> {
        ready(Ok(Map::new())).boxed()
    }
    fn import_images(&self, _: Map<String, Value>) -> BoxFuture<'_, Answer<()>> {
        ready(Ok(())).boxed()
    }
}

struct Fixture {
    web: Web,
    source: Arc<Fixed>,
    changes: watch::Sender<u64>,
    _config: watch::Sender<Arc<Config>>,
}

fn fixture() -> Fixture {
    let mut node = Node::new(NodeState::Ready, now());
    node.provider = Some("rack".to_owned());
    node.pool = Some("main".to_owned());
    node.labels = vec!["small".to_owned()];
    let mut pod = Node::new(NodeState::InUse, now());
    pod.set_port(Json::of(&json!({"token": "hunter2"})));
    let entry = |id: &str, node: &Node, locked| NodeEntry { id: id.to_owned(), node: node.clone(), locked };
    let nodes = vec![entry("0000000001", &node, false), entry("0000000002", &pod, true)];
    let source = Arc::new(Fixed { nodes: Mutex::new(nodes), changed: Mutex::default() });
    let read = config::read(File { name: "nodepool.yaml", text: CONFIG }, None, &|_| None).valid().unwrap();
    let (changes, config) = (watch::Sender::new(0), watch::Sender::new(Arc::new(read)));
    let authorize: Authorize = Arc::new(|token, _, _| {
        let allowed = match token.as_deref() {
            Some("good") => Ok(()),
            Some(_) => Err((StatusCode::FORBIDDEN, "the token is not good".to_owned())),
            None => Err((StatusCode::UNAUTHORIZED, "a bearer token is needed".to_owned())),
        };
        ready(allowed).boxed()
    });
    let web = Web {
        source: Arc::clone(&source) as Arc<dyn Source>,
        config: config.subscribe(),
        changes: changes.subscribe(),
        ready: Arc::new(|| true),
        counters: Arc::new(String::new),
        authorize,
        reads_need_token: false,
    };
    Fixture { web, source, changes, _config: config }
}

async fn ask(web: &Web, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = web.answer(&request.body(()).unwrap()).await;
    let status = response.status().as_u16();
    if status == 200 {
        assert_eq!(response.headers()["access-control-allow-origin"], "*", "{path}");
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

const JSON: &[(&str, &str)] = &[("accept", "application/json")];

#[tokio::test]
async fn lists_are_tables_or_json_below_both_paths() {
    let Fixture { web, .. } = &fixture();
    for prefix in ["", "/nodepool/api"] {
        let (status, text) = ask(web, "GET", &format!("{prefix}/node-list?fields=id,state,locked"), &[]).await;
        assert_eq!(status, 200);
        assert!(text.starts_with("+----"), "{text}");
        assert!(text.contains("| ID         | State  | Locked   |"), "{text}");
        let (_, text) = ask(web, "GET", &format!("{prefix}/node-list"), JSON).await;
        let nodes: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((nodes[0]["id"].as_str(), nodes[0]["label"][0].as_str()), (Some("0000000001"), Some("small")));
        assert_eq!(nodes[1]["connection_port"], "redacted");
        assert!(!text.contains("hunter2"));
    }
    let (_, text) = ask(web, "GET", "/node-list?node_id=0000000002", JSON).await;
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().len(), 1);
    assert_eq!(ask(web, "GET", "/node-list?node_id=none", JSON).await, (200, "[]".to_owned()));
    assert_eq!(ask(web, "GET", "/label-list", JSON).await.1, r#"[{"label":"small"}]"#);
    assert!(ask(web, "GET", "/image-list", JSON).await.1.contains(r#""upload_id":"0000000001""#));
    assert!(ask(web, "GET", "/dib-image-list", JSON).await.1.contains(r#""id":"fedora-b1""#));
    assert!(ask(web, "GET", "/image-status", &[]).await.1.contains("| fedora | False  |"));
    assert!(ask(web, "GET", "/request-list", &[]).await.1.contains("200-0000000001"));
}

#[tokio::test]
async fn ready_and_unknown_paths() {
    let Fixture { mut web, .. } = fixture();
    assert_eq!(ask(&web, "GET", "/ready", &[]).await, (200, "OK".to_owned()));
    assert_eq!(ask(&web, "GET", "/nodepool/api/ready", &[]).await.0, 200);
    for path in ["/", "/none", "/nodepool/api", "/nodepool/api/none", "/nodepool/apinode-list"] {
        assert_eq!(ask(&web, "GET", path, &[]).await.0, 404, "{path}");
    }
    assert_eq!(ask(&web, "PUT", "/node-list", &[]).await.0, 405);
    web.ready = Arc::new(|| false);
    assert_eq!(ask(&web, "GET", "/ready", &[]).await.0, 503);
}

#[tokio::test]
async fn changes_need_a_token() {
    let Fixture { mut web, source, .. } = fixture();
    let good = &[("authorization", "Bearer good")];
    assert_eq!(ask(&web, "POST", "/node/0000000001/hold", &[]).await.0, 401);
    assert_eq!(ask(&web, "POST", "/node/0000000001/hold", &[("authorization", "Bearer bad")]).await.0, 403);
    assert_eq!(source.nodes.lock()[0].node.state, NodeState::Ready);
    assert_eq!(ask(&web, "POST", "/node/0000000001/hold", good).await.0, 200);
    assert_eq!(source.nodes.lock()[0].node.state, NodeState::Hold);
    assert_eq!(ask(&web, "DELETE", "/nodepool/api/node/0000000001", good).await.0, 200);
    assert_eq!(source.nodes.lock()[0].node.state, NodeState::Deleting);
    assert_eq!(ask(&web, "DELETE", "/node/none", good).await.0, 404);
    for verb in ["build", "pause", "unpause"] {
        assert_eq!(ask(&web, "POST", &format!("/image/fedora/{verb}"), good).await.0, 200);
        assert_eq!(ask(&web, "POST", &format!("/image/none/{verb}"), good).await.0, 404);
    }
    assert_eq!(*source.changed.lock(), ["fedora build", "fedora paused=true", "fedora paused=false"]);
    // Beyond loopback, reading needs one too; probes send none.
    web.reads_need_token = true;
    assert_eq!(ask(&web, "GET", "/node-list", &[]).await.0, 401);
    assert_eq!(ask(&web, "GET", "/metrics", &[]).await.0, 401);
    assert_eq!(ask(&web, "GET", "/node-list", good).await.0, 200);
    assert_eq!(ask(&web, "GET", "/ready", &[]).await.0, 200);
}

#[tokio::test]
async fn metrics_have_the_names_of_software_factory() {
    let Fixture { web, .. } = &fixture();
    let (status, text) = ask(web, "GET", "/metrics", &[]).await;
    assert_eq!(status, 200);
    for line in [
        r#"nodepool_nodes{state="ready"} 1"#,
        r#"nodepool_nodes{state="deleting"} 0"#,
        r#"nodepool_label_nodes{label="small",state="ready"} 1"#,
        r#"nodepool_provider_nodes{provider="rack",state="in-use"} 0"#,
        r#"nodepool_provider_max_servers{provider="rack"} 4"#,
        r#"nodepool_tenant_limits{tenant="acme",limit="instances"} 3"#,
        r#"nodepool_provider_pool_addressable_requests{provider="rack",pool="main"} 1"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn a_watch_tells_what_is_there_and_what_changes() {
    let Fixture { web, source, changes, .. } = fixture();
    let request = Request::builder().uri("/node-list?watch=true").body(()).unwrap();
    let mut body = web.answer(&request).await.into_body();
    let mut line = async || {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        serde_json::from_slice::<Value>(&frame).unwrap()
    };
    let told = |event: Value| (event["type"].as_str().unwrap().to_owned(), event["object"]["id"].clone());
    assert_eq!(told(line().await), ("ADDED".to_owned(), "0000000001".into()));
    assert_eq!(told(line().await), ("ADDED".to_owned(), "0000000002".into()));
    source.nodes.lock()[0].node.state = NodeState::Hold;
    source.nodes.lock().pop();
    changes.send_modify(|count| *count += 1);
    let event = line().await;
    assert_eq!(event["object"]["state"], "hold");
    assert_eq!(told(event), ("MODIFIED".to_owned(), "0000000001".into()));
    assert_eq!(told(line().await), ("DELETED".to_owned(), "0000000002".into()));
}
