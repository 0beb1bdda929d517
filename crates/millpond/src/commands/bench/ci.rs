//! `millpond bench ci`: how soon a launcher fulfils requests through a real ZooKeeper, and as objects of the embedded API.
//!
//! The launcher runs in this process, on static hosts that are never contacted; the requestor has a session of its own,
//! and does what Zuul does. In ZooKeeper everything happens below a chroot that is removed afterwards.

mod objects;

use std::io::Write as _;
use std::path::{Path, PathBuf};
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
  millpond bench ci -c nodepool.yaml                    500 hosts, 500 requests at once; with and without ZooKeeper
  millpond bench ci                                     without ZooKeeper alone
  millpond bench ci -c nodepool.yaml --hosts 100        fewer of both")]
pub(crate) struct CiBenchArgs {
    /// A nodepool.yaml whose `zookeeper-servers` and `zookeeper-tls` are used; without it only the embedded API is measured
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Static hosts, and requests for one of them each
    #[arg(long, value_name = "N", default_value_t = 500)]
    hosts: usize,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: &CiBenchArgs) -> anyhow::Result<()> {
    let zookeeper = args.config.as_deref().map(zookeeper_of).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let report = runtime.context("start the runtime")?.block_on(async {
        let mut report = Report::default();
        // First, so that the memory is that of a launcher in ZooKeeper.
        if let Some(zookeeper) = zookeeper {
            in_zookeeper(zookeeper, args.hosts, &mut report).await?;
        }
        objects::measure(args.hosts, &mut report).await?;
        anyhow::Ok(report)
    })?;
    std::io::stdout().write_all(report.table().as_bytes()).context("cannot write to stdout")
}

/// The servers that a file names.
fn zookeeper_of(file: &Path) -> anyhow::Result<ZooKeeper> {
    let (config, errors) = Files { main: file.to_owned(), secure: None }.read();
    let zookeeper = config.with_context(|| errors.join("\n"))?.zookeeper;
    ensure!(!zookeeper.servers.is_empty(), "`{}` names no `zookeeper-servers`", file.display());
    Ok(zookeeper)
}

/// Measures below a chroot of its own.
async fn in_zookeeper(plain: ZooKeeper, hosts: usize, report: &mut Report) -> anyhow::Result<()> {
    let root = format!("/millpond-bench-{}", std::process::id());
    let mut zookeeper = plain.clone();
    for server in &mut zookeeper.servers {
        let outer = server.chroot.as_deref().unwrap_or_default().trim_end_matches('/');
        server.chroot = Some(format!("{outer}{root}"));
    }
    let measured = measure(zookeeper, hosts, report).await;
    remove(&plain, &root).await?;
    measured
}

/// Static hosts in Nodepool's own words.
fn configuration(hosts: usize) -> anyhow::Result<Config> {
    let mut text =
        format!("labels: [{{name: {LABEL}}}]\nproviders:\n  - name: bench\n    driver: static\n    pools:\n");
    text += "      - name: main\n        nodes:\n";
    for index in 0..hosts {
        let name = format!("127.{}.{}.{}", 1 + index / 40_000, index / 200 % 200, index % 200 + 1);
        text += &format!("          - {{name: {name}, labels: {LABEL}, host-key-checking: false}}\n");
    }
    let read = config::read(File { name: "bench", text: &text }, None, &|_| None).valid();
    read.map_err(|errors| anyhow::anyhow!("the benchmark's configuration is wrong: {errors:?}"))
}

async fn measure(zookeeper: ZooKeeper, hosts: usize, report: &mut Report) -> anyhow::Result<()> {
    let config = Config { zookeeper, ..configuration(hosts)? };
    let requestor = Requestor { store: Store::start(&config.zookeeper)? };
    requestor.store.ready(PATIENCE).await.map_err(anyhow::Error::msg)?;

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
    Ok(())
}

fn launcher(config: Config) -> anyhow::Result<(Store, Launcher)> {
    let store = Store::start(&config.zookeeper)?;
    let identity =
        Identity { hostname: "bench".to_owned(), version: "bench".to_owned(), kind: ComponentKind::Launcher };
    store.serve_as(identity);
    let launcher = launcher_on(Arc::new(store.clone()), config);
    Ok((store, launcher))
}

/// A launcher with static hosts alone.
fn launcher_on(backend: Arc<dyn Backend>, config: Config) -> Launcher {
    Launcher::new(Settings {
        backend,
        config: watch::Sender::new(Arc::new(config)).subscribe(),
        drivers: Arc::new(|_| Drivers::new()),
        hostname: "bench".to_owned(),
        uploads: None,
    })
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
        until(&self.store, wanted).await
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

/// Waits until the records of a store are as wanted.
async fn until(store: &dyn Backend, wanted: impl Fn(&Records) -> bool) -> anyhow::Result<()> {
    let mut changes = store.changes();
    let wait = async {
        loop {
            changes.borrow_and_update();
            let records = store.records();
            if records.is_complete && wanted(&records) {
                return Ok(());
            }
            changes.changed().await?;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.context("the launcher takes too long")?
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
