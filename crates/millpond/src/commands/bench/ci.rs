//! `millpond bench ci`: how soon a launcher fulfils requests through a real ZooKeeper.
//!
//! The launcher runs in this process, on static hosts that are never contacted; the requestor has a session of its own,
//! and does what Zuul does. Everything happens below a chroot that is removed afterwards.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use futures::future::try_join_all;
use millpond_ci::config::{self, Config, File, ZooKeeper};
use millpond_ci::driver::Drivers;
use millpond_ci::launcher::reload::Files;
use millpond_ci::launcher::{Backend, Key, Launcher, Records, Settings};
use millpond_ci::model::{ComponentKind, Node, NodeRequest, NodeState, RequestState, to_bytes};
use millpond_ci::records::{ZooKeeperSource, list_nodes};
use millpond_ci::zk::{CreateMode, Identity, Store, ZkError, paths};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::report::{Goal, Report};

/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(5);
/// The label of every host.
const LABEL: &str = "bench";

/// Arguments of `millpond bench ci`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench ci -c nodepool.yaml                    500 hosts, 500 requests at once
  millpond bench ci -c nodepool.yaml --hosts 100        fewer of both")]
pub(crate) struct CiBenchArgs {
    /// A nodepool.yaml whose `zookeeper-servers` and `zookeeper-tls` are used
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Static hosts, and requests for one of them each
    #[arg(long, value_name = "N", default_value_t = 500)]
    hosts: usize,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: &CiBenchArgs) -> anyhow::Result<()> {
    let (config, errors) = Files { main: args.config.clone(), secure: None }.read();
    let mut zookeeper = config.with_context(|| errors.join("\n"))?.zookeeper;
    ensure!(!zookeeper.servers.is_empty(), "`{}` names no `zookeeper-servers`", args.config.display());
    let root = format!("/millpond-bench-{}", std::process::id());
    let plain = zookeeper.clone();
    for server in &mut zookeeper.servers {
        let outer = server.chroot.as_deref().unwrap_or_default().trim_end_matches('/');
        server.chroot = Some(format!("{outer}{root}"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let report = runtime.context("start the runtime")?.block_on(async {
        let measured = measure(zookeeper, args.hosts).await;
        remove(&plain, &root).await?;
        measured
    })?;
    std::io::stdout().write_all(report.table().as_bytes()).context("cannot write to stdout")
}

/// Static hosts in Nodepool's own words.
fn configuration(zookeeper: ZooKeeper, hosts: usize) -> anyhow::Result<Config> {
    let mut text =
        format!("labels: [{{name: {LABEL}}}]\nproviders:\n  - name: bench\n    driver: static\n    pools:\n");
    text += "      - name: main\n        nodes:\n";
    for index in 0..hosts {
        let name = format!("127.{}.{}.{}", 1 + index / 40_000, index / 200 % 200, index % 200 + 1);
        text += &format!("          - {{name: {name}, labels: {LABEL}, host-key-checking: false}}\n");
    }
    let read = config::read(File { name: "bench", text: &text }, None, &|_| None).valid();
    let config = read.map_err(|errors| anyhow::anyhow!("the benchmark's configuration is wrong: {errors:?}"))?;
    Ok(Config { zookeeper, ..config })
}

async fn measure(zookeeper: ZooKeeper, hosts: usize) -> anyhow::Result<Report> {
    let config = configuration(zookeeper, hosts)?;
    let requestor = Requestor { store: Store::start(&config.zookeeper)? };
    requestor.store.ready(PATIENCE).await.map_err(anyhow::Error::msg)?;

    let mut report = Report::default();
    let began = Instant::now();
    let ends = CancellationToken::new();
    let (store, launcher) = launcher(config)?;
    let running = tokio::spawn(launcher.run(ends.clone()));
    requestor.until(|records| ready(records) == hosts).await?;
    report.add(format!("{hosts} hosts registered"), began.elapsed().as_secs_f64(), "s", None);

    let began = Instant::now();
    let id = requestor.submit().await?;
    requestor.until(|records| is_fulfilled(records, &id)).await?;
    report.add("one idle request", began.elapsed().as_secs_f64() * 1e3, "ms", Some(Goal::AtMost(200.0)));
    requestor.use_up(&id).await?;
    requestor.until(|records| ready(records) == hosts).await?;

    let began = Instant::now();
    let source = ZooKeeperSource::new(requestor.store.client().clone());
    let listing = list_nodes(&source, None, 0.0).await?;
    ensure!(listing.table(None, 0.0).lines().count() > hosts, "the list has all nodes");
    report.add(format!("list of {hosts} nodes"), began.elapsed().as_secs_f64() * 1e3, "ms", Some(Goal::AtMost(100.0)));

    let began = Instant::now();
    let ids = try_join_all((0..hosts).map(|_| requestor.submit())).await?;
    requestor.until(|records| ids.iter().all(|id| is_fulfilled(records, id))).await?;
    report.add(format!("{hosts} requests at once"), began.elapsed().as_secs_f64(), "s", Some(Goal::AtMost(3.0)));

    let began = Instant::now();
    try_join_all(ids.iter().map(|id| requestor.use_up(id))).await?;
    requestor.until(|records| ready(records) == hosts && records.requests.is_empty()).await?;
    report.add(format!("{hosts} nodes used and registered again"), began.elapsed().as_secs_f64(), "s", None);
    if let Some(memory) = memory_mib() {
        report.add("memory, launcher and requestor", memory, "MiB", Some(Goal::AtMost(60.0)));
    }
    ends.cancel();
    running.await.context("the launcher has failed")?;
    store.close().await;
    requestor.store.close().await;
    Ok(report)
}

fn launcher(config: Config) -> anyhow::Result<(Store, Launcher)> {
    let store = Store::start(&config.zookeeper)?;
    let identity =
        Identity { hostname: "bench".to_owned(), version: "bench".to_owned(), kind: ComponentKind::Launcher };
    store.serve_as(identity);
    let settings = Settings {
        backend: Arc::new(store.clone()),
        config: watch::Sender::new(Arc::new(config)).subscribe(),
        drivers: Arc::new(|_| Drivers::new()),
        hostname: "bench".to_owned(),
        uploads: None,
    };
    Ok((store, Launcher::new(settings)))
}

fn ready(records: &Records) -> usize {
    let is_free = |node: &&Node| node.state == NodeState::Ready && node.allocated_to.is_none();
    records.nodes.values().map(|node| &*node.record).filter(is_free).count()
}

fn is_fulfilled(records: &Records, id: &str) -> bool {
    records.requests.get(id).is_some_and(|request| request.record.state == RequestState::Fulfilled)
}

/// Plays Zuul.
struct Requestor {
    store: Store,
}

impl Requestor {
    async fn submit(&self) -> anyhow::Result<String> {
        let mut request = NodeRequest::new(vec![LABEL.to_owned()], 0.0);
        request.requestor = Some("bench".to_owned());
        let path = format!("{}/100-", paths::REQUESTS);
        let path = self.store.client().create(&path, to_bytes(&request), CreateMode::PersistentSequential).await?;
        Ok(path.rsplit('/').next().unwrap_or_default().to_owned())
    }

    async fn until(&self, wanted: impl Fn(&Records) -> bool) -> anyhow::Result<()> {
        let mut changes = self.store.changes();
        let wait = async {
            loop {
                changes.borrow_and_update();
                let records = self.store.records();
                if records.is_complete && wanted(&records) {
                    return Ok(());
                }
                changes.changed().await?;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.context("the launcher takes too long")?
    }

    /// Locks the node, deletes the request, uses the node, gives it back.
    async fn use_up(&self, id: &str) -> anyhow::Result<()> {
        let request = self.store.request(id).context("the request is gone")?;
        for node in &request.record.nodes {
            let key = Key::Node(node.clone());
            ensure!(self.store.lock(&key).await?, "the node {node} is locked");
            self.store.client().delete(&paths::record(&Key::Request(id.to_owned())), None).await?;
            for state in [NodeState::InUse, NodeState::Used] {
                let known = self.store.node(node).context("the node is gone")?;
                let mut record = Node::clone(&known.record);
                record.set_state(state, 0.0);
                self.store.client().set(&paths::record(&key), to_bytes(&record), None).await?;
            }
            self.store.unlock(&key).await?;
        }
        Ok(())
    }
}

/// Removes everything below a path.
async fn remove(zookeeper: &ZooKeeper, root: &str) -> anyhow::Result<()> {
    let store = Store::start(zookeeper)?;
    store.client().connected(PATIENCE).await.map_err(anyhow::Error::msg)?;
    let (mut found, mut next) = (Vec::new(), vec![root.to_owned()]);
    while let Some(path) = next.pop() {
        match store.client().children(&path).await {
            Ok(names) => next.extend(names.into_iter().map(|name| format!("{path}/{name}"))),
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error).context("remove what the benchmark wrote"),
        }
        found.push(path);
    }
    for path in found.into_iter().rev() {
        match store.client().delete(&path, None).await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(error) => return Err(error).context("remove what the benchmark wrote"),
        }
    }
    store.close().await;
    Ok(())
}

/// Memory of this process, in MiB.
fn memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}
