//! The real Nodepool and kazoo on the same tree.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use millpond_ci::launcher::{Backend as _, Key, Records};
use millpond_ci::model::{NodeState, RequestState};
use millpond_testkit::{Process, ZooKeeper, real::python};

use crate::fixture::{Requestor, Running, configure, hosts};

/// Runs a program of Nodepool's environment to its end; gives what it printed.
pub(crate) fn run(program: &str, arguments: &[&str], server: &ZooKeeper) -> Result<String> {
    let path = python::nodepool()?.join(program);
    let output = Command::new(path).args(arguments).current_dir(server.folder()).output().context("run a program")?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn write(server: &ZooKeeper, name: &str, text: &str) -> Result<()> {
    std::fs::write(server.file(name), format!("{}{text}", server.nodepool_yaml())).context("write a configuration")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java, ZooKeeper and Nodepool from PyPI"]
async fn real_nodepool_lists_nodes_and_requests() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, &hosts(2));
    write(&server, "nodepool.yaml", &hosts(2))?;
    let launcher = Running::start(config.clone(), Default::default());
    let requestor = Requestor::new(&config).await?;
    requestor.until("two nodes", |records| records.nodes.len() == 2).await?;
    let request = requestor.submit(&["small"], |_| {}).await?;
    let node = requestor.ended(&request).await?.nodes[0].clone();
    let failed = requestor.submit(&["large"], |_| {}).await?;
    requestor.ended(&failed).await?;

    let table = run("nodepool", &["-c", "nodepool.yaml", "list", "--detail"], &server)?;
    let row = table.lines().find(|line| line.contains(&node)).context("no row for the node")?;
    assert!(row.contains("racks") && row.contains("ready") && row.contains(&request), "{table}");
    let table = run("nodepool", &["-c", "nodepool.yaml", "request-list"], &server)?;
    let row = table.lines().find(|line| line.contains(&failed)).context("no row for the request")?;
    assert!(row.contains("failed") && row.contains("PoolWorker.racks-main-"), "{table}");
    // `hold` takes the node's lock and gives it back.
    run("nodepool", &["-c", "nodepool.yaml", "hold", &node], &server)?;
    requestor.until("the hold", |records| records.nodes[&node].record.state == NodeState::Hold).await?;
    launcher.stop().await;
    Ok(())
}

/// A launcher of Nodepool with one host of its own, and one label that Millpond has as well.
const THEIRS: &str = "
labels: [{name: small}, {name: theirs}]
providers:
  - name: old
    driver: static
    priority: 200
    pools:
      - name: main
        nodes:
          - {name: 127.2.0.1, labels: [theirs], host-key-checking: false, host-key: 'ssh-rsa AAAA', username: zuul}
          - {name: 127.2.0.2, labels: [small], host-key-checking: false, host-key: 'ssh-rsa AAAA', username: zuul}
";

fn nodes_of(records: &Records, provider: &str) -> usize {
    records.nodes.values().filter(|node| node.record.provider.as_deref() == Some(provider)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java, ZooKeeper and Nodepool from PyPI"]
async fn real_nodepool_launchers_work_beside() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, &hosts(2));
    write(&server, "theirs.yaml", THEIRS)?;
    let program = python::nodepool()?.join("nodepool-launcher");
    let mut command = Command::new(program);
    command.args(["-d", "-c"]).arg(server.file("theirs.yaml"));
    let _theirs = Process::spawn("nodepool-launcher", &mut command, server.folder())?;
    let launcher = Running::start(config.clone(), Default::default());
    let requestor = Requestor::new(&config).await?;
    let all = |records: &Records| nodes_of(records, "racks") == 2 && nodes_of(records, "old") == 2;
    // Theirs registers its nodes before its pool; until then, no pool has their label.
    requestor.until("nodes and pools of both", |records| all(records) && records.foreign.len() == 2).await?;

    let small = requestor.submit(&["small"], |_| {}).await?;
    let theirs = requestor.submit(&["theirs"], |_| {}).await?;
    let unknown = requestor.submit(&["large"], |_| {}).await?;
    let provider = async |id: &str| -> Result<Option<String>> {
        let request = requestor.ended(id).await?;
        assert_eq!(request.state, RequestState::Fulfilled, "{id}");
        Ok(requestor.store.records().nodes[&request.nodes[0]].record.provider.clone())
    };
    assert_eq!(provider(&small).await?.as_deref(), Some("racks"), "the lower priority number comes first");
    assert_eq!(provider(&theirs).await?.as_deref(), Some("old"));
    let request = requestor.ended(&unknown).await?;
    assert_eq!((request.state, request.declined_by.len()), (RequestState::Failed, 2), "all pools decline");
    for id in [&small, &theirs] {
        let nodes = requestor.take(id).await?;
        requestor.give_back(&nodes).await?;
    }
    requestor.until("nodes of both again", |records| all(records) && records.requests.len() == 1).await?;
    launcher.stop().await;
    Ok(())
}

/// Takes a lock as kazoo does; prints whether it got it. Without `stop` the lock would outlive the process by the
/// timeout of its session.
const KAZOO: &str = "
import sys
from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock
client = KazooClient(hosts='127.0.0.1:' + sys.argv[1])
client.start()
lock = Lock(client, sys.argv[2])
print('taken' if lock.acquire(blocking=False) else 'refused')
sys.stdout.flush()
if len(sys.argv) > 3:
    sys.stdin.read()
client.stop()
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java, ZooKeeper and kazoo from PyPI"]
async fn real_kazoo_respects_our_locks() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, &hosts(1));
    let requestor = Requestor::new(&config).await?;
    let id = requestor.submit(&["small"], |_| {}).await?;
    requestor.until("the request", |records| records.requests.contains_key(&id)).await?;
    let key = Key::Request(id.clone());
    let path = millpond_ci::zk::paths::lock(&key);
    let script = server.file("lock.py");
    std::fs::write(&script, KAZOO)?;
    let try_lock = || run("python", &[&path_text(&script), &server.port().to_string(), &path], &server);
    assert!(requestor.store.lock(&key).await?);
    assert_eq!(try_lock()?.trim(), "refused");
    requestor.store.unlock(&key).await?;
    assert_eq!(try_lock()?.trim(), "taken");

    let mut holder = Command::new(python::nodepool()?.join("python"))
        .args([&path_text(&script), &server.port().to_string(), &path, "hold"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(holder.stdout.take().context("a pipe")?));
    assert_eq!(lines.next().context("a line")??, "taken");
    assert!(!requestor.store.lock(&key).await?, "kazoo holds it");
    drop(holder.stdin.take());
    ensure!(holder.wait()?.success(), "kazoo failed");
    assert!(requestor.store.lock(&key).await?, "kazoo has given it back");
    requestor.store.close().await;
    Ok(())
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
