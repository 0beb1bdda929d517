//! The launcher with static hosts.

use std::collections::BTreeSet;

use anyhow::Result;
use millpond_ci::launcher::{Backend as _, Records};
use millpond_ci::model::{NodeState, RequestState};
use millpond_testkit::ZooKeeper;

use crate::fixture::{Requestor, Running, configure, hosts};

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
