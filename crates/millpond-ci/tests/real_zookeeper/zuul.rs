//! Zuul's own classes as the requestor.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use millpond_ci::launcher::{Backend as _, Records};
use millpond_ci::model::NodeState;
use millpond_testkit::{ZooKeeper, real::python};

use crate::fixture::{Requestor, Running, configure, hosts};

/// What a scheduler of Zuul does with three nodes, and what it prints.
const SCHEDULER: &str = include_str!("zuul.py");
const PRINTED: &str = "labels ['small']
two fulfilled 2 racks
node in-use small ssh 22 zuul ['ssh-rsa AAAA'] acme zuul
node in-use small ssh 22 zuul ['ssh-rsa AAAA'] acme zuul
never failed
revised 1
first fulfilled new nodes: True
hold hold acme project unit-tests .* look at it
";

fn ready(records: &Records) -> usize {
    records.nodes.values().filter(|node| node.record.state == NodeState::Ready).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java, ZooKeeper and Zuul from PyPI"]
async fn real_zuul_requests_uses_holds_and_returns_nodes() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, &hosts(3));
    let launcher = Running::start(config.clone(), Default::default());
    let requestor = Requestor::new(&config).await?;
    requestor.until("three nodes", |records| ready(records) == 3).await?;
    let before: BTreeSet<String> = requestor.store.records().nodes.into_keys().collect();

    let script = server.file("scheduler.py");
    std::fs::write(&script, SCHEDULER)?;
    let mut command = Command::new(python::zuul()?.join("python"));
    command.arg(&script).arg(format!("127.0.0.1:{}", server.secure_port()));
    command.args(["client.pem", "client.key", "ca.pem"].map(|name| server.file(name)));
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("run Zuul's scheduler")?;
    ensure!(output.status.success(), "Zuul failed: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout)?, PRINTED, "{}", String::from_utf8_lossy(&output.stderr));

    // All came back: used hosts under new ids, held ones once the hold was given up.
    let settled = |records: &Records| ready(records) == 3 && records.nodes.len() == 3 && records.requests.is_empty();
    let records = requestor.until("three ready nodes and no request", settled).await?;
    let after: BTreeSet<String> = records.nodes.into_keys().collect();
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
    launcher.stop().await;
    Ok(())
}
