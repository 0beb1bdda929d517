//! A ZooKeeper, a launcher on it, and a requestor.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use millpond_ci::config::{self, Config, File};
use millpond_ci::driver::{Driver, Drivers, FakeCloud};
use millpond_ci::launcher::{Backend, Handle, Key, Launcher, Records, Settings};
use millpond_ci::model::{ComponentKind, Node, NodeRequest, NodeState, RequestState, parse, to_bytes};
use millpond_ci::zk::{CreateMode, Identity, Store, paths};
use millpond_testkit::ZooKeeper;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long something may take that is only a matter of course. Far above what it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A configuration with this text behind the connection to ZooKeeper.
pub(crate) fn configure(server: &ZooKeeper, text: &str) -> Config {
    let text = format!("{}{text}", server.nodepool_yaml());
    config::read(File { name: "nodepool.yaml", text: &text }, None, &|_| None).valid().unwrap()
}

/// Static hosts that are not looked at.
pub(crate) fn hosts(count: usize) -> String {
    let mut text = "labels: [{name: small}]\nproviders:\n  - name: racks\n    driver: static\n    pools:\n      - name: main\n        nodes:\n".to_owned();
    for index in 0..count {
        let (high, low) = (index / 200, index % 200 + 1);
        text += &format!(
            "          - {{name: 127.1.{high}.{low}, labels: [small], host-key-checking: false, host-key: [\"ssh-rsa AAAA\"]}}\n"
        );
    }
    text
}

/// A simulated cloud with at most three servers, two of them kept ready.
pub(crate) const CLOUD: &str = "labels: [{name: vm, min-ready: 2}]
providers:
  - name: fake-cloud
    driver: fake
    cloud: fake
    cloud-images: [{name: image, username: zuul}]
    pools:
      - name: main
        max-servers: 3
        labels: [{name: vm, cloud-image: image, min-ram: 1024}]
";

/// The simulated cloud, which outlives launchers.
pub(crate) fn cloud(config: &Config) -> (Arc<FakeCloud>, Drivers) {
    let cloud = Arc::new(FakeCloud::new(&config.providers[0]));
    let driver: Arc<dyn Driver> = cloud.clone();
    (cloud, Drivers::from([(config.providers[0].name.clone(), Ok(driver))]))
}

/// A launcher in this process.
pub(crate) struct Running {
    pub(crate) store: Store,
    pub(crate) handle: Handle,
    pub(crate) config: watch::Sender<Arc<Config>>,
    /// What the launcher gets with its next configuration.
    pub(crate) drivers: watch::Sender<Drivers>,
    ends: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(config: Config, drivers: Drivers) -> Self {
        Self::start_on(config, drivers, |store| Arc::new(store.clone()))
    }

    /// With a store that fails in some way.
    pub(crate) fn start_on(config: Config, drivers: Drivers, wrap: impl FnOnce(&Store) -> Arc<dyn Backend>) -> Self {
        let store = Store::start(&config.zookeeper).unwrap();
        let backend = wrap(&store);
        store.serve_as(Identity {
            hostname: "millpond.example.com".to_owned(),
            version: "1".to_owned(),
            kind: ComponentKind::Launcher,
        });
        let (config, receiver) = watch::channel(Arc::new(config));
        let (drivers, given) = watch::channel(drivers);
        let settings = Settings {
            backend,
            config: receiver,
            drivers: Arc::new(move |_| given.borrow().clone()),
            hostname: "millpond.example.com".to_owned(),
            uploads: None,
        };
        let launcher = Launcher::new(settings);
        let (handle, ends) = (launcher.handle(), CancellationToken::new());
        let task = tokio::spawn(launcher.run(ends.clone()));
        Self { store, handle, config, drivers, ends, task }
    }

    /// Ends like a launcher that is stopped.
    pub(crate) async fn stop(self) {
        self.ends.cancel();
        self.task.await.unwrap();
        self.store.close().await;
    }

    /// Ends the launcher where it is, and its session.
    pub(crate) async fn kill(self) {
        self.task.abort();
        self.store.close().await;
    }
}

/// A client like Zuul.
pub(crate) struct Requestor {
    pub(crate) store: Store,
}

impl Requestor {
    pub(crate) async fn new(config: &Config) -> Result<Self> {
        let store = Store::start(&config.zookeeper)?;
        store.ready(PATIENCE).await.map_err(anyhow::Error::msg)?;
        Ok(Self { store })
    }

    /// Submits a request; gives its id.
    pub(crate) async fn submit(&self, labels: &[&str], change: impl FnOnce(&mut NodeRequest)) -> Result<String> {
        let mut request = NodeRequest::new(labels.iter().map(|label| (*label).to_owned()).collect(), 1.0);
        request.requestor = Some("test".to_owned());
        change(&mut request);
        self.store.client().ensure(paths::REQUESTS).await?;
        let path = format!("{}/100-", paths::REQUESTS);
        let path = self.store.client().create(&path, to_bytes(&request), CreateMode::PersistentSequential).await?;
        Ok(path.rsplit('/').next().context("a path has a name")?.to_owned())
    }

    /// Waits until the records are as wanted; shows them if that takes too long.
    pub(crate) async fn until(&self, what: &str, mut wanted: impl FnMut(&Records) -> bool) -> Result<Records> {
        let mut changes = self.store.changes();
        let wait = async {
            loop {
                changes.borrow_and_update();
                let records = self.store.records();
                if records.is_complete && wanted(&records) {
                    return records;
                }
                changes.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(records) => Ok(records),
            Err(_) => anyhow::bail!("not seen: {what}\n{:#?}", self.store.records()),
        }
    }

    pub(crate) async fn ended(&self, id: &str) -> Result<NodeRequest> {
        let ended = |records: &Records| {
            let state = records.requests.get(id).map(|request| request.record.state);
            matches!(state, Some(RequestState::Fulfilled | RequestState::Failed))
        };
        let records = self.until(&format!("the end of {id}"), ended).await?;
        Ok(NodeRequest::clone(&records.requests[id].record))
    }

    /// Takes the nodes of a fulfilled request, as Zuul does, and deletes the request.
    pub(crate) async fn take(&self, id: &str) -> Result<Vec<String>> {
        let request = self.ended(id).await?;
        for node in &request.nodes {
            let key = Key::Node(node.clone());
            self.until("the node", |records| records.nodes.contains_key(node)).await?;
            anyhow::ensure!(self.store.lock(&key).await?, "{node} is locked");
            self.write(node, NodeState::InUse).await?;
        }
        self.store.client().delete(&paths::record(&Key::Request(id.to_owned())), None).await?;
        Ok(request.nodes)
    }

    /// Gives nodes back after use.
    pub(crate) async fn give_back(&self, nodes: &[String]) -> Result<()> {
        for node in nodes {
            self.write(node, NodeState::Used).await?;
            self.store.unlock(&Key::Node(node.clone())).await?;
        }
        Ok(())
    }

    async fn write(&self, node: &str, state: NodeState) -> Result<()> {
        let path = paths::record(&Key::Node(node.to_owned()));
        let (data, _) = self.store.client().get(&path).await?;
        let mut record: Node = parse(&path, &data)?;
        record.set_state(state, 2.0);
        self.store.client().set(&path, to_bytes(&record), None).await?;
        Ok(())
    }
}
