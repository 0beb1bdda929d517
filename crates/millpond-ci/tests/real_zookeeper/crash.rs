//! Launchers that end at any write, and a ZooKeeper that goes away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use futures::future::BoxFuture;
use millpond_ci::config::Config;
use millpond_ci::driver::{Driver as _, FakeCloud};
use millpond_ci::launcher::{Backend, BackendError, Key, PoolSpec, Records, Stored, Write};
use millpond_ci::model::{Node, NodeState, RequestState};
use millpond_ci::zk::Store;
use millpond_testkit::ZooKeeper;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::fixture::{CLOUD, Requestor, Running, cloud, configure, hosts};

/// A store that a launcher can use so many times; then it is as if the process were killed: nothing ever returns.
struct Mortal {
    store: Store,
    left: AtomicUsize,
    died: Arc<Notify>,
    /// Whether the last use still has its effect.
    is_done: bool,
}

impl Mortal {
    /// What a use becomes: itself, its effect without an answer, or nothing.
    fn use_up<'a, T: Send + 'a>(
        &'a self,
        call: BoxFuture<'a, Result<T, BackendError>>,
    ) -> BoxFuture<'a, Result<T, BackendError>> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let is_done = self.is_done;
        Box::pin(async move {
            match left {
                Ok(0) | Err(_) => std::future::pending().await,
                Ok(1) => {
                    if is_done {
                        drop(call.await);
                    }
                    self.died.notify_one();
                    std::future::pending().await
                }
                Ok(_) => call.await,
            }
        })
    }
}

impl Backend for Mortal {
    fn records(&self) -> Records {
        self.store.records()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.store.changes()
    }

    fn announce(&self, pools: Vec<PoolSpec>) {
        self.store.announce(pools);
    }

    fn lock<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool, BackendError>> {
        self.use_up(self.store.lock(key))
    }

    fn unlock<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), BackendError>> {
        self.use_up(self.store.unlock(key))
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<String>, BackendError>> {
        self.use_up(self.store.commit(writes))
    }

    fn is_connected(&self) -> bool {
        self.store.is_connected()
    }
}

/// Fails if a node is in two requests, or in one that it does not know of.
fn check_owners(records: &Records) {
    let mut owners = BTreeMap::new();
    for (id, request) in &records.requests {
        for node in &request.record.nodes {
            assert_eq!(owners.insert(node.clone(), id), None, "{node} is in two requests");
        }
        if request.record.state == RequestState::Fulfilled {
            for node in &request.record.nodes {
                let owner = records.nodes.get(node).and_then(|node| node.record.allocated_to.as_ref());
                assert_eq!(owner, Some(id), "{node}");
            }
        }
    }
}

fn in_chroot(config: &Config, name: &str) -> Config {
    let mut config = config.clone();
    config.zookeeper.servers[0].chroot = Some(name.to_owned());
    config
}

/// A launcher ends after so many uses of the store, and the next one finishes.
async fn crash(config: &Config, uses: usize, is_done: bool) -> Result<()> {
    let (cloud, drivers) = cloud(config);
    let died = Arc::new(Notify::new());
    let mortal = |store: &Store| -> Arc<dyn Backend> {
        let left = AtomicUsize::new(uses);
        Arc::new(Mortal { store: store.clone(), left, died: Arc::clone(&died), is_done })
    };
    let first = Running::start_on(config.clone(), drivers.clone(), mortal);
    let requestor = Requestor::new(config).await?;
    let two = requestor.submit(&["vm", "vm"], |_| {}).await?;
    let one = requestor.submit(&["vm"], |_| {}).await?;
    tokio::select! {
        () = died.notified() => {}
        ended = requestor.ended(&two) => drop(ended?),
    }
    // In half of the cases two launchers are alive when one ends.
    let standby = uses.is_multiple_of(2).then(|| Running::start(config.clone(), drivers.clone()));
    first.kill().await;

    let second = standby.unwrap_or_else(|| Running::start(config.clone(), drivers));
    for id in [&two, &one] {
        let request = requestor.ended(id).await?;
        assert_eq!(request.state, RequestState::Fulfilled, "after {uses} uses");
        check_owners(&requestor.store.records());
        let nodes = requestor.take(id).await?;
        requestor.give_back(&nodes).await?;
    }
    let settled = |records: &Records| {
        let ready = records.nodes.values().filter(|node| node.record.state == NodeState::Ready).count();
        ready == 2 && records.nodes.len() == 2 && records.requests.is_empty()
    };
    let records = requestor.until("two ready nodes and no others", settled).await?;
    assert_eq!(servers(&cloud).await?, records.nodes.into_keys().collect(), "nothing leaks");
    second.stop().await;
    requestor.store.close().await;
    Ok(())
}

async fn servers(cloud: &FakeCloud) -> Result<BTreeSet<String>> {
    Ok(cloud.list().await?.into_iter().map(|instance| instance.node_id).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and ZooKeeper"]
async fn real_launchers_that_end_at_any_write_leave_nothing_behind() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, CLOUD);
    for uses in 1..24 {
        for is_done in [false, true] {
            crash(&in_chroot(&config, &format!("/crash-{uses}-{is_done}")), uses, is_done).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and ZooKeeper"]
async fn real_zookeeper_may_go_away_and_come_back() -> Result<()> {
    let mut server = ZooKeeper::start()?;
    let config = configure(&server, &hosts(20));
    let launcher = Running::start(config.clone(), Default::default());
    let requestor = Requestor::new(&config).await?;
    requestor.until("nodes", |records| records.nodes.len() == 20).await?;
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(requestor.submit(&["small"], |_| {}).await?);
    }
    server.restart()?;
    requestor.store.ready(crate::fixture::PATIENCE).await.map_err(anyhow::Error::msg)?;
    for id in &ids {
        assert_eq!(requestor.ended(id).await?.state, RequestState::Fulfilled);
    }
    check_owners(&requestor.store.records());
    let again = requestor.submit(&["small"], |_| {}).await?;
    assert_eq!(requestor.ended(&again).await?.state, RequestState::Fulfilled);
    launcher.stop().await;
    Ok(())
}

/// A way to ZooKeeper that can be cut.
struct Line {
    port: u16,
    is_open: watch::Sender<bool>,
}

impl Line {
    async fn to(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, is_open) = (listener.local_addr()?.port(), watch::Sender::new(true));
        let seen = is_open.subscribe();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut seen = seen.clone();
                if !*seen.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(("127.0.0.1", server)).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = seen.wait_for(|is_open| !*is_open) => {}
                    }
                });
            }
        });
        Ok(Self { port, is_open })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and ZooKeeper"]
async fn real_sessions_that_expire_lose_no_node() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, CLOUD);
    let line = Line::to(server.secure_port()).await?;
    let mut own = config.clone();
    own.zookeeper.servers[0].port = line.port;
    own.zookeeper.timeout_s = 1.0;
    let (cloud, drivers) = cloud(&own);
    let launcher = Running::start(own, drivers);
    let requestor = Requestor::new(&config).await?;
    let before = requestor.submit(&["vm", "vm"], |_| {}).await?;
    let used = requestor.take(&before).await?;
    let waiting = requestor.submit(&["vm", "vm"], |_| {}).await?;

    // The launcher's pool is gone with its session.
    line.is_open.send_replace(false);
    requestor.until("the session has expired", |records| records.foreign.is_empty()).await?;
    requestor.give_back(&used).await?;
    let meanwhile = requestor.submit(&["vm"], |_| {}).await?;
    line.is_open.send_replace(true);

    for id in [&waiting, &meanwhile] {
        assert_eq!(requestor.ended(id).await?.state, RequestState::Fulfilled, "{id}");
        check_owners(&requestor.store.records());
        assert!(cloud.list().await?.len() <= 3, "the limit holds");
        let nodes = requestor.take(id).await?;
        requestor.give_back(&nodes).await?;
    }
    let settled = |records: &Records| {
        let is_ready = |node: &Stored<Node>| node.record.state == NodeState::Ready;
        records.nodes.len() == 2 && records.nodes.values().all(is_ready) && records.requests.is_empty()
    };
    let records = requestor.until("two ready nodes and no others", settled).await?;
    assert_eq!(servers(&cloud).await?, records.nodes.into_keys().collect(), "nothing leaks");
    launcher.stop().await;
    Ok(())
}

/// Ten hosts with one label, and a tenant that may have three nodes of any launcher.
fn limited(label: &str, network: u8) -> String {
    let mut text = format!(
        "tenant-resource-limits: [{{tenant-name: acme, max-servers: 3}}]\nlabels: [{{name: {label}}}]\nproviders:\n  \
         - name: {label}\n    driver: static\n    pools:\n      - name: main\n        nodes:\n"
    );
    for host in 1..=10 {
        text += &format!("          - {{name: 127.{network}.0.{host}, labels: {label}, host-key-checking: false}}\n");
    }
    text
}

/// Each launcher leads a provider of its own, and neither may give what the other one has just given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and ZooKeeper"]
async fn real_limits_of_tenants_hold_over_launchers() -> Result<()> {
    let server = ZooKeeper::start()?;
    let configs = [configure(&server, &limited("one", 3)), configure(&server, &limited("two", 4))];
    let launchers = configs.clone().map(|config| Running::start(config, Default::default()));
    let requestor = Requestor::new(&configs[0]).await?;
    requestor.until("hosts of both", |records| records.nodes.len() == 20 && records.foreign.len() == 2).await?;
    let mut waiting = BTreeSet::new();
    for index in 0..40 {
        let label = if index % 2 == 0 { "one" } else { "two" };
        waiting.insert(requestor.submit(&[label], |request| request.tenant_name = Some("acme".to_owned())).await?);
    }
    while !waiting.is_empty() {
        let mut most = 0;
        let some_ended = |records: &Records| {
            let is_tenants = |node: &&Stored<Node>| node.record.tenant_name.as_deref() == Some("acme");
            most = most.max(records.nodes.values().filter(is_tenants).count());
            records.requests.values().any(|request| request.record.state == RequestState::Fulfilled)
        };
        let records = requestor.until("a fulfilled request", some_ended).await?;
        assert!(most <= 3, "the tenant has {most} nodes");
        for (id, request) in records.requests {
            if request.record.state == RequestState::Fulfilled && waiting.remove(&id) {
                let nodes = requestor.take(&id).await?;
                requestor.give_back(&nodes).await?;
            }
        }
    }
    for launcher in launchers {
        launcher.stop().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and ZooKeeper"]
async fn real_launchers_share_no_node() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, &hosts(30));
    let launchers = [0, 1].map(|_| Running::start(config.clone(), Default::default()));
    let requestor = Requestor::new(&config).await?;
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(requestor.submit(&["small"], |_| {}).await?);
    }
    let [first, second] = launchers;
    for id in &ids {
        assert_eq!(requestor.ended(id).await?.state, RequestState::Fulfilled);
        let records = requestor.store.records();
        check_owners(&records);
        assert!(records.nodes.len() <= 30, "a host is registered twice");
        let nodes = requestor.take(id).await?;
        requestor.give_back(&nodes).await?;
    }
    first.kill().await;
    let last = requestor.submit(&["small"], |_| {}).await?;
    assert_eq!(requestor.ended(&last).await?.state, RequestState::Fulfilled, "the other launcher takes over");
    second.stop().await;
    Ok(())
}
