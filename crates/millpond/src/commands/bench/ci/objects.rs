//! Without ZooKeeper: requests are objects of the embedded API, made and watched by a client of their own.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt as _};
use millpond_api::ci::{NodeRequestSpec, RequestPhase};
use millpond_apiserver::{Embedded, EmbeddedOptions};
use millpond_ci::launcher::Backend;
use millpond_ci::objects::ObjectBackend;
use millpond_ci::objects::kinds::NodeRequest;
use millpond_runtime::clock::Clock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{LABEL, PATIENCE, configuration, launcher_on, ready, until};
use crate::commands::bench::report::{Goal, Report};
use crate::commands::kinds;

/// Requests that are made at a time.
const IN_FLIGHT: usize = 64;

/// Lets as many requests wait at once as there are hosts.
pub(super) async fn measure(hosts: usize, report: &mut Report) -> anyhow::Result<()> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let embedded = Embedded::start(EmbeddedOptions::new(directory.path())).await.context("cannot start the API")?;
    let client = Client::new(embedded.service(), "default");
    kinds::install(&client).await?;
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let backend = ObjectBackend::start(client.clone(), "default", Clock::Machine, &stop, &tasks);
    let began = Instant::now();
    let launcher = launcher_on(Arc::clone(&backend) as Arc<dyn Backend>, configuration(hosts)?);
    tasks.spawn(launcher.run(stop.clone()));
    until(&*backend, |records| ready(records) == hosts).await?;
    report.add(format!("objects: {hosts} hosts registered"), began.elapsed().as_secs_f64(), "s", None);

    let requests = Api::<NodeRequest>::namespaced(client, "default");
    let began = Instant::now();
    request(&requests, "idle", 1).await?;
    report.add("objects: one idle request", began.elapsed().as_secs_f64() * 1e3, "ms", Some(Goal::AtMost(200.0)));
    requests.delete("idle-0", &Default::default()).await.context("cannot delete a request")?;
    until(&*backend, |records| ready(records) == hosts).await?;
    let began = Instant::now();
    request(&requests, "job", hosts).await?;
    let took = began.elapsed().as_secs_f64();
    report.add(format!("objects: {hosts} requests at once"), took, "s", Some(Goal::AtMost(1.0)));
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    embedded.stop().await;
    Ok(())
}

/// Makes requests and waits until all are fulfilled.
async fn request(api: &Api<NodeRequest>, prefix: &str, count: usize) -> anyhow::Result<()> {
    let create = |index: usize| async move {
        let metadata = ObjectMeta { name: Some(format!("{prefix}-{index}")), ..ObjectMeta::default() };
        let spec = NodeRequestSpec { labels: vec![LABEL.to_owned()], ..NodeRequestSpec::default() };
        api.create(&PostParams::default(), &NodeRequest::new(metadata, spec)).await.context("cannot create a request")
    };
    let create = stream::iter(0..count).map(create).buffer_unordered(IN_FLIGHT).try_for_each(|_| async { Ok(()) });
    let fulfilled = async {
        let mut events = pin!(watcher(api.clone(), watcher::Config::default()));
        let mut seen = BTreeSet::new();
        while seen.len() < count {
            let event = events.try_next().await.context("the watch failed")?.context("the watch ended")?;
            if let watcher::Event::Apply(request) | watcher::Event::InitApply(request) = event
                && request.status.state == Some(RequestPhase::Fulfilled)
                && request.name_any().starts_with(prefix)
            {
                seen.insert(request.name_any());
            }
        }
        anyhow::Ok(())
    };
    let both = futures::future::try_join(create, fulfilled);
    tokio::time::timeout(PATIENCE, both).await.context("the launcher takes too long")?.map(drop)
}
