//! The YAML of the guide does what the guide says.

use millpond_sim::cluster::Cluster;
use millpond_sim::meta::Key;
use serde_json::Value;

use crate::pond::{Pond, is_node_ready};

const GUIDE: &str = include_str!("../../../../docs/guides/stand-ins.md");

/// The fenced YAML blocks of the guide.
fn blocks() -> Vec<Value> {
    let fences = GUIDE.split("```yaml ").skip(1);
    fences
        // Behind the line that opens the fence, up to the one that closes it.
        .filter_map(|rest| rest.split_once('\n')?.1.split("```").next())
        .map(|text| serde_saphyr::from_str(text).expect("YAML"))
        .collect()
}

fn reason(cluster: &Cluster, job: &str, type_: &str) -> Option<String> {
    let job = cluster.jobs.get(&Key::new("default", job))?;
    let conditions = job.status.as_ref()?.conditions.clone()?;
    conditions.into_iter().find(|one| one.type_ == type_ && one.status == "True")?.reason
}

#[tokio::test(start_paused = true)]
async fn the_guide_is_true() {
    let pond = Pond::start().await;
    let start = pond.cluster.clock.now();
    let blocks = blocks();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        pond.create(block).await;
    }
    pond.until("the node is ready", |cluster| cluster.nodes.list().iter().any(|node| is_node_ready(node))).await;
    assert!(pond.cluster.clock.now().duration_since(start).as_secs() >= 2, "it takes 2 s");
    pond.until("the jobs end", |cluster| {
        reason(cluster, "render", "Complete").is_some() && reason(cluster, "doomed", "Failed").is_some()
    })
    .await;
    assert_eq!(reason(&pond.cluster, "doomed", "Failed").as_deref(), Some("BackoffLimitExceeded"));
    let doomed = pond.cluster.jobs.get(&Key::new("default", "doomed")).expect("a job");
    assert_eq!(doomed.status.as_ref().and_then(|status| status.failed), Some(2));
    pond.stop().await;
}
