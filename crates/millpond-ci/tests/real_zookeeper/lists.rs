//! The lists of Nodepool's own command line and web API beside ours, over one tree: tables byte for byte, JSON but for
//! white space, which Python writes and we do not. Ages are not compared.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use millpond_ci::launcher::Records;
use millpond_ci::model::{Json, NodeState};
use millpond_ci::records::{
    Source, ZooKeeperSource, info, list_builds, list_nodes, list_requests, list_status, list_uploads,
};
use millpond_ci::view::{Listing, NODE_FIELDS};
use millpond_ci::web::Web;
use millpond_testkit::{Process, ZooKeeper, free_port, real::python};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::fixture::{PATIENCE, Requestor, Running, configure, hosts};
use crate::nodepool::{run, write};

/// Their launcher answers from a cache of its own, which follows the tree.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
const PATHS: [&str; 8] = [
    "/node-list",
    "/node-list?fields=id,state,locked,label",
    "/request-list",
    "/label-list",
    "/image-list",
    "/dib-image-list",
    "/dib-image-list?fields=id,none",
    "/image-status",
];

fn theirs(port: u16) -> String {
    format!(
        "webapp: {{port: {port}, listen_address: 127.0.0.1}}\nlabels: [{{name: small}}, {{name: theirs}}, {{name: other}}]\nproviders:\n  \
         - name: old\n    driver: static\n    pools:\n      - name: main\n        nodes:\n          \
         - {{name: 127.2.0.1, labels: [theirs, other], host-key-checking: false, host-key: 'ssh-rsa AAAA', username: zuul}}\n"
    )
}

/// Images as a builder leaves them: one with a build and uploads, one that is paused.
fn images() -> Map<String, Value> {
    let build = "/nodepool/images/fedora/builds/0123456789abcdef0123456789abcdef";
    let record = |value: Value| Value::String(value.to_string());
    let built = json!({
        "state": "ready", "state_time": 1000.5, "builder": "nb01", "builder_id": "1", "formats": "qcow2,raw",
        "username": "zuul", "python_path": "auto", "shell_type": null,
    });
    let upload = |state: &str, id: Value| {
        json!({
            "state": state, "state_time": 1001.5, "external_id": id, "external_name": "fedora-1", "format": "qcow2",
            "username": "zuul", "python_path": "auto", "shell_type": null,
        })
    };
    Map::from_iter([
        (build.to_owned(), record(built)),
        (format!("{build}/providers/one/images/0000000001"), record(upload("ready", json!("abc")))),
        (format!("{build}/providers/two/images/0000000002"), record(upload("uploading", Value::Null))),
        ("/nodepool/images/debian/pause".to_owned(), "".into()),
    ])
}

/// A text in which every `DD:HH:MM:SS` is the same.
fn ageless(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_digit() || letter == ':';
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|letter| is_part(letter) != is_part(first)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        let is_age = run.split(':').count() == 4 && run.split(':').all(|part| part.len() >= 2);
        out.push_str(if is_age { "00:00:00:00" } else { run });
        rest = after;
    }
    out
}

/// A table with its rows in order: neither side promises one.
fn rows(table: &str) -> Vec<String> {
    let mut lines: Vec<String> = ageless(table).lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

/// A list of objects, their keys in the order in which they were written.
fn objects(text: &str) -> Result<Vec<String>> {
    let objects: Vec<Box<RawValue>> = serde_json::from_str(text).with_context(|| format!("JSON: {text}"))?;
    let compact = |object: &RawValue| {
        let (mut in_text, mut escaped) = (false, false);
        let mut out = String::new();
        for letter in object.get().chars() {
            if letter == '"' && !escaped {
                in_text = !in_text;
            }
            escaped = in_text && letter == '\\' && !escaped;
            if in_text || !letter.is_whitespace() {
                out.push(letter);
            }
        }
        ageless(&out)
    };
    let mut objects: Vec<String> = objects.iter().map(|object| compact(object)).collect();
    objects.sort();
    Ok(objects)
}

/// What their web API answers: status and body.
fn ask(port: u16, path: &str, accept: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("connect to their web API")?;
    write!(stream, "GET {path} HTTP/1.0\r\nAccept: {accept}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).context("a status")?;
    Ok((status, body.to_owned()))
}

struct Ours {
    web: Web,
    _senders: (watch::Sender<Arc<millpond_ci::config::Config>>, watch::Sender<u64>),
}

impl Ours {
    fn new(source: Arc<dyn Source>, config: millpond_ci::config::Config) -> Self {
        let (config, changes) = (watch::Sender::new(Arc::new(config)), watch::Sender::new(0));
        let web = Web {
            source,
            config: config.subscribe(),
            changes: changes.subscribe(),
            ready: Arc::new(|| true),
            counters: Arc::new(String::new),
            authorize: Arc::new(|_, _, _| std::future::ready(Ok(())).boxed()),
            reads_need_token: false,
        };
        Self { web, _senders: (config, changes) }
    }

    async fn ask(&self, path: &str, accept: &str) -> Result<(u16, String)> {
        let request = http::Request::get(path).header("accept", accept).body(())?;
        let response = self.web.answer(&request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.to_vec())?))
    }
}

/// A tree with nodes, requests and images in several states.
async fn furnish(requestor: &Requestor, source: &ZooKeeperSource) -> Result<()> {
    let two = |records: &Records| {
        let of = |provider: &str| {
            records.nodes.values().filter(|node| node.record.provider.as_deref() == Some(provider)).count()
        };
        of("racks") == 2 && of("old") == 1
    };
    requestor.until("nodes of both", two).await?;
    let used = requestor.submit(&["small"], |_| {}).await?;
    let node = requestor.take(&used).await?.remove(0);
    let waits = requestor
        .submit(&["small", "small"], |request| {
            request.event_id = Some("an-event".to_owned());
            request.requestor_data = Some(Json::of(&json!({"job": "unit-tests"})));
            request.relative_priority = 3;
        })
        .await?;
    let failed = requestor.submit(&["large"], |_| {}).await?;
    requestor.ended(&failed).await?;
    let seen = |records: &Records| {
        records.requests.contains_key(&waits) && records.nodes[&node].record.state == NodeState::InUse
    };
    requestor.until("the request that waits", seen).await?;
    source.import_images(images()).await?;
    source.request_build("fedora").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java, ZooKeeper and Nodepool from PyPI"]
async fn real_lists_are_those_of_the_original() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, &hosts(2));
    let port = free_port()?;
    write(&server, "theirs.yaml", &theirs(port))?;
    let mut command = Command::new(python::nodepool()?.join("nodepool-launcher"));
    command.args(["-d", "-c"]).arg(server.file("theirs.yaml"));
    let original = Process::spawn("nodepool-launcher", &mut command, server.folder())?;
    let launcher = Running::start(config.clone(), Default::default());
    let requestor = Requestor::new(&config).await?;
    let source = Arc::new(ZooKeeperSource::new(requestor.store.client().clone()));
    furnish(&requestor, &source).await.with_context(|| original.log_tail())?;
    let ours = Ours::new(Arc::clone(&source) as Arc<dyn Source>, config);

    for path in PATHS {
        for accept in ["text/plain", "application/json"] {
            let began = tokio::time::Instant::now();
            loop {
                let (one, other) = (ask(port, path, accept)?, ours.ask(path, accept).await?);
                assert_eq!((one.0, other.0), (200, 200), "{path}");
                let (one, other) = match accept {
                    "application/json" => (objects(&one.1)?, objects(&other.1)?),
                    _ => (rows(&one.1), rows(&other.1)),
                };
                if one == other {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "{path} {accept}\n{one:#?}\n{other:#?}\n{}", original.log_tail());
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }
    for path in ["/none", "/", "/ready"] {
        assert_eq!(ask(port, path, "*/*")?.0, ours.ask(path, "*/*").await?.0, "{path}");
    }

    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let table = |listing: Listing, fields: Option<&[&str]>| listing.table(fields, now) + "\n";
    let compared = [
        ("list", table(list_nodes(&*source, None, now).await?, Some(NODE_FIELDS))),
        ("list --detail", table(list_nodes(&*source, None, now).await?, None)),
        ("request-list", table(list_requests(&*source).await?, None)),
        ("image-list", table(list_uploads(&*source).await?, None)),
        ("dib-image-list", table(list_builds(&*source).await?, None)),
        ("image-status", table(list_status(&*source).await?, None)),
    ];
    for (verb, ours) in compared {
        let words: Vec<&str> = ["-c", "theirs.yaml"].into_iter().chain(verb.split(' ')).collect();
        assert_eq!(rows(&run("nodepool", &words, &server)?), rows(&ours), "{verb}");
    }
    let (images, nodes) = info(&*source, "racks").await?;
    let told = format!(
        "ZooKeeper data for provider racks\n\nImage data:\n{}\n\nNodes:\n{}\n",
        images.table(None, now),
        nodes.table(None, now)
    );
    assert_eq!(rows(&run("nodepool", &["-c", "theirs.yaml", "info", "racks"], &server)?), rows(&told));

    // The export of one is the export of the other, and each reads it.
    run("nodepool", &["-c", "theirs.yaml", "export-image-data", "theirs.json"], &server)?;
    let exported: Map<String, Value> = serde_json::from_str(&std::fs::read_to_string(server.file("theirs.json"))?)?;
    assert_eq!(exported, source.export_images().await?);
    run("nodepool", &["-c", "theirs.yaml", "import-image-data", "theirs.json"], &server)?;
    assert_eq!(exported, source.export_images().await?);
    launcher.stop().await;
    Ok(())
}
