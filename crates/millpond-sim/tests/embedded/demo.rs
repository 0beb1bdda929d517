//! The demo comes alive, moves and keeps moving.

use std::collections::BTreeSet;
use std::time::Duration;

use millpond_sim::demo::{self, DemoOptions, NAMESPACE};
use millpond_sim::meta::{Key, phase};
use tokio_util::sync::CancellationToken;

use crate::pond::Pond;

#[tokio::test(start_paused = true)]
async fn the_demo_moves() {
    let pond = Pond::start().await;
    let token = CancellationToken::new();
    let playing = tokio::spawn(demo::run(pond.client.clone(), DemoOptions::default(), token.clone()));
    pond.until("everything runs", |cluster| {
        let running = cluster.pods.list().iter().filter(|pod| phase(pod) == "Running").count();
        cluster.nodes.len() == 10 && running >= 18
    })
    .await;
    let (mut sizes, mut jobs, mut finished) = (BTreeSet::new(), BTreeSet::new(), 0);
    for _ in 0..60 {
        pond.pass(Duration::from_secs(15)).await;
        let web = pond.cluster.deployments.get(&Key::new(NAMESPACE, "web")).expect("a deployment");
        sizes.insert(web.spec.as_ref().and_then(|spec| spec.replicas));
        for job in pond.cluster.jobs.list() {
            jobs.insert(job.metadata.name.clone());
            finished += usize::from(job.status.as_ref().is_some_and(|status| status.completion_time.is_some()));
        }
    }
    assert!(sizes.len() > 5, "web changed its size: {sizes:?}");
    assert!(jobs.len() > 10 && finished > 10, "{} jobs came, {finished} times one was seen finished", jobs.len());
    assert!(pond.cluster.jobs.len() < 10, "old jobs are forgotten");
    token.cancel();
    playing.await.expect("the demo ends");
    pond.stop().await;
}
