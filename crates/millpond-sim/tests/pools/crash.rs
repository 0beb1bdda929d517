//! A controller that is killed at any of its writes: the next one ends where it would have ended.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use std::time::Duration;

use crate::basin::{Basin, label};
use crate::fuse::Fuse;

/// More writes than a small scale-up can need: the loop ends when one run needs no more.
const MOST_WRITES: i64 = 400;

/// What is there in the end: nodes by type, zone and pool, with their number of pods.
type Ending = BTreeMap<(String, usize), usize>;

async fn pods(basin: &Basin) {
    basin.class("default", json!({})).await;
    basin.pool("default", json!({"spec": {"limits": {"cpu": "100"}}})).await;
    basin.deployment("web", 5, "1500m", json!({})).await;
}

/// Waits for the controllers to die or to have nothing more to do; tells whether they died.
async fn until_dead_or_done(basin: &Basin) -> bool {
    loop {
        let before = basin.server.store().revision();
        basin.pass(Duration::from_secs(20)).await;
        if basin.is_dead() {
            return true;
        }
        if basin.server.store().revision() == before {
            return false;
        }
    }
}

async fn ending(basin: &Basin, what: &str) -> Ending {
    basin.until_running("web", 5).await;
    basin.until_quiet().await;
    let instances = basin.instances();
    let nodes = Api::<Node>::all(basin.client.clone()).list(&ListParams::default()).await.expect("nodes").items;
    assert_eq!(instances.len(), nodes.len(), "{what}: every machine is a node: {}", basin.describe());
    assert_eq!(basin.claims().len(), nodes.len(), "{what}: every node has a claim: {}", basin.describe());
    let spread = basin.spread();
    let mut ending = Ending::new();
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let pods = spread.get(name).copied().unwrap_or_default();
        *ending.entry((label(node, "node.kubernetes.io/instance-type").to_owned(), pods)).or_default() += 1;
    }
    ending
}

#[tokio::test(start_paused = true)]
async fn e2e_a_scale_up_survives_a_kill_at_every_write() {
    let mut undisturbed = Basin::without_controllers().await;
    undisturbed.hire(Fuse::none());
    pods(&undisturbed).await;
    let wanted = ending(&undisturbed, "undisturbed").await;
    drop(undisturbed);
    for write in 0..MOST_WRITES {
        let mut basin = Basin::without_controllers().await;
        basin.hire(Fuse::after(write));
        pods(&basin).await;
        let died = until_dead_or_done(&basin).await;
        basin.kill();
        basin.hire(Fuse::none());
        assert_eq!(ending(&basin, &format!("killed at write {write}")).await, wanted, "killed at write {write}");
        if !died {
            assert!(write > 15, "a scale-up has more than {write} writes");
            return;
        }
    }
    panic!("more than {MOST_WRITES} writes for five pods");
}
