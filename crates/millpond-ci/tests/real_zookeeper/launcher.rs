//! The launcher with static hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use millpond_ci::driver::{Driver, Drivers, Metastatic};
use millpond_ci::launcher::{Backend, Records};
use millpond_ci::model::{NodeState, RequestState};
use millpond_testkit::ZooKeeper;

use crate::fixture::{CLOUD, Requestor, Running, cloud, configure, hosts};

fn ready(records: &Records) -> usize {
    records.nodes.values().filter(|node| node.record.state == NodeState::Ready).count()
}

#[tokio::test]
#[ignore = "needs Java and ZooKeeper"]
async fn real_requests_for_static_hosts_are_fulfilled() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, &hosts(3));
    let launcher = Running::start(config.clone(), Default::default());
    let requestor = Requestor::new(&config).await?;
    requestor.until("three nodes", |records| ready(records) == 3).await?;

    let two = requestor.submit(&["small", "small"], |request| request.tenant_name = Some("t".into())).await?;
    let request = requestor.ended(&two).await?;
    assert_eq!((request.state, request.nodes.len()), (RequestState::Fulfilled, 2));
    let records = requestor.store.records();
    let node = &records.nodes[&request.nodes[0]].record;
    assert_eq!(node.allocated_to.as_deref(), Some(two.as_str()));
    assert_eq!((node.tenant_name.as_deref(), node.requestor.as_deref()), (Some("t"), Some("test")));
    assert_eq!(node.hostname, node.interface_ip);
    assert_eq!(node.host_keys, ["ssh-rsa AAAA"]);

    assert!(launcher.handle.is_ready());
    let waiting = requestor.submit(&["small", "small"], |_| {}).await?;
    let unknown = requestor.submit(&["large"], |_| {}).await?;
    let request = requestor.ended(&unknown).await?;
    assert_eq!(request.state, RequestState::Failed);
    let ours: BTreeSet<String> = launcher.store.records().ours.into_values().collect();
    assert_eq!(request.declined_by.into_iter().collect::<BTreeSet<_>>(), ours);

    let used = requestor.take(&two).await?;
    requestor.give_back(&used).await?;
    let request = requestor.ended(&waiting).await?;
    assert!(request.nodes.iter().all(|node| !used.contains(node)), "hosts are registered under new ids");
    let taken = requestor.take(&waiting).await?;
    requestor.give_back(&taken).await?;
    let records = requestor.until("three nodes again", |records| ready(records) == 3).await?;
    let hosts: BTreeSet<_> = records.nodes.values().map(|node| node.record.hostname.clone()).collect();
    assert_eq!((hosts.len(), records.nodes.len()), (3, 3));
    launcher.stop().await;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Java and ZooKeeper"]
async fn real_servers_are_launched_kept_ready_and_limited() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, CLOUD);
    let (cloud, drivers) = cloud(&config);
    let launcher = Running::start(config.clone(), drivers);
    let requestor = Requestor::new(&config).await?;
    requestor.until("two ready nodes", |records| ready(records) == 2 && records.nodes.len() == 2).await?;

    let three = requestor.submit(&["vm", "vm", "vm"], |_| {}).await?;
    let request = requestor.ended(&three).await?;
    assert_eq!((request.state, request.nodes.len()), (RequestState::Fulfilled, 3));
    let records = requestor.store.records();
    let node = &records.nodes[&request.nodes[2]].record;
    assert_eq!(node.hostname.as_deref(), Some(format!("np{}", request.nodes[2]).as_str()));
    assert_eq!((node.interface_ip.as_deref(), node.username.as_deref()), (Some("fake"), Some("zuul")));

    let counters = launcher.handle.counters();
    for line in [
        "nodepool_launch_ready 3",
        "nodepool_launch_provider_ready{az=\"az1\",provider=\"fake-cloud\"} 3",
        "nodepool_launch_requestor_ready{requestor=\"NodePool:min-ready\"} 2",
        "nodepool_launch_requestor_ready{requestor=\"test\"} 1",
    ] {
        assert!(counters.lines().any(|it| it == line), "{line} is not in\n{counters}");
    }

    let waiting = requestor.submit(&["vm"], |_| {}).await?;
    let four = requestor.submit(&["vm"; 4], |_| {}).await?;
    assert_eq!(requestor.ended(&four).await?.state, RequestState::Failed, "more than the limit allows at any time");
    let nodes = requestor.take(&three).await?;
    assert!(requestor.store.records().nodes.len() <= 3, "the limit holds");
    requestor.give_back(&nodes).await?;
    let request = requestor.ended(&waiting).await?;
    assert!(request.nodes.iter().all(|node| !nodes.contains(node)), "a used server is not used again");
    assert!(cloud.list().await?.len() <= 3);
    launcher.stop().await;
    Ok(())
}

const SLOTS: &str = "
  - name: slots
    driver: metastatic
    pools:
      - name: main
        max-servers: 10
        labels: [{name: slot, backing-label: small, max-parallel-jobs: 2, grace-time: 600}]
";

#[tokio::test]
#[ignore = "needs Java and ZooKeeper"]
async fn real_slots_share_a_backing_node() -> Result<()> {
    let server = ZooKeeper::start()?;
    let config = configure(&server, &(hosts(2) + SLOTS));
    let mut drivers = Drivers::new();
    let provider = config.providers[1].clone();
    let launcher = Running::start_on(config.clone(), Drivers::new(), |store| Arc::new(store.clone()));
    // The driver speaks to the same store as the launcher.
    let driver: Arc<dyn Driver> = Arc::new(Metastatic::new(&provider, Arc::new(launcher.store.clone())));
    drivers.insert("slots".to_owned(), Ok(driver));
    launcher.drivers.send_replace(drivers);
    launcher.config.send_replace(Arc::new(config.clone()));
    let requestor = Requestor::new(&config).await?;
    // Before that, the label would be unknown to every pool.
    requestor.until("both pools", |records| records.foreign.len() == 2).await?;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(requestor.submit(&["slot"], |_| {}).await?);
    }
    let mut backing = BTreeSet::new();
    for id in &ids {
        let request = requestor.ended(id).await?;
        assert_eq!(request.state, RequestState::Fulfilled);
        let records = requestor.store.records();
        let node = &records.nodes[&request.nodes[0]].record;
        assert!(node.interface_ip.as_deref().is_some_and(|ip| ip.starts_with("127.1.")), "{node:?}");
        backing.insert(node.interface_ip.clone());
    }
    assert_eq!(backing.len(), 2, "two slots each");
    let records = requestor.store.records();
    let held = records.nodes.values().filter(|node| node.record.state == NodeState::InUse).count();
    assert_eq!(held, 2, "backing nodes are held");
    launcher.stop().await;
    Ok(())
}
