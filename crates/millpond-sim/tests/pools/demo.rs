//! The demo comes alive, moves and keeps moving: nodes come and go with the load.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::ResourceExt;
use millpond_sim::demo::{self, DemoOptions, NAMESPACE};
use millpond_sim::meta::{Key, phase};
use tokio_util::sync::CancellationToken;

use crate::basin::Basin;

#[tokio::test(start_paused = true)]
async fn the_demo_moves() {
    let basin = Basin::bare().await;
    let token = CancellationToken::new();
    let playing = tokio::spawn(demo::run(basin.client.clone(), DemoOptions::default(), token.clone()));
    basin
        .until("everything runs", |cluster| {
            let is_up = |pod: &k8s_openapi::api::core::v1::Pod| phase(pod) == "Running";
            let running = cluster.pods.list().iter().filter(|pod| is_up(pod)).count();
            let databases = cluster.pods.list().iter().filter(|pod| pod.name_any().starts_with("db-")).count();
            running >= 8 && databases == 3
        })
        .await;
    let (mut sizes, mut nodes, mut jobs, mut graphics) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), 0);
    for _ in 0..24 {
        basin.pass(Duration::from_secs(15)).await;
        let web = basin.cluster().deployments.get(&Key::new(NAMESPACE, "web")).expect("a deployment");
        sizes.insert(web.spec.as_ref().and_then(|spec| spec.replicas));
        nodes.insert(basin.nodes().len());
        jobs.extend(basin.cluster().pods.list().iter().filter_map(|pod| pod.labels().get("job-name").cloned()));
        graphics += usize::from(basin.claims().iter().any(|claim| claim.name().starts_with("demo-gpu-")));
    }
    assert!(sizes.len() > 5, "web changed its size: {sizes:?}");
    assert!(nodes.len() > 3, "nodes come and go: {nodes:?}");
    assert!(jobs.len() > 5, "{} jobs came", jobs.len());
    assert!(graphics > 0, "a pod asked for a graphics card");
    token.cancel();
    playing.await.expect("the demo ends");
}
