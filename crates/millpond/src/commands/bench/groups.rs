//! `millpond bench groups`: measures the time until many node groups of Cluster API have the sizes that many pods need.
//!
//! The pods wait before the controllers start. What is timed begins when the controllers have listed everything and ends
//! with the last group that is written: snapshot, plan and writes. No controller makes machines: a second plan over what was
//! written must find room for every pod, and buy nothing.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use millpond_apiserver::{Embedded, EmbeddedOptions};
use millpond_controllers::cluster::Options;
use millpond_controllers::kinds::MachineDeployment;
use millpond_controllers::run::Controllers;
use millpond_plan::plan::Settings;
use millpond_providers::Provider;
use millpond_sim::capi::bench_objects;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::report::{Goal, Report};
use crate::commands::kinds;

/// Requests that are under way while objects are made.
const IN_FLIGHT: usize = 64;
/// All groups have been written when none was written for this long.
const QUIET: Duration = Duration::from_secs(2);
/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(3);

/// Arguments of `millpond bench groups`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench groups                              a hundred groups, three thousand pods
  millpond bench groups --groups 500 --pods 20000    more of both")]
pub(crate) struct GroupsArgs {
    /// Node groups
    #[arg(long, value_name = "N", default_value_t = 100)]
    groups: usize,
    /// Pods that wait
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    pods: usize,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: &GroupsArgs) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let report = runtime.block_on(measure(args))?;
    std::io::stdout().write_all(report.table().as_bytes()).context("cannot write to stdout")
}

async fn measure(args: &GroupsArgs) -> anyhow::Result<Report> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let embedded = Embedded::start(EmbeddedOptions::new(directory.path())).await.context("cannot start the API")?;
    let client = Client::new(embedded.service(), "default");
    kinds::install(&client).await?;
    let groups = (0..args.groups).map(bench_objects::group);
    let api: Api<MachineDeployment> = Api::default_namespaced(client.clone());
    create(&api, groups).await.context("cannot make the node groups")?;
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    create(&api, (0..args.pods).map(bench_objects::pod)).await.context("cannot make the pods")?;

    let stop = CancellationToken::new();
    let providers: [Arc<dyn Provider>; 0] = [];
    let controllers = Controllers::start(client, Options::default(), providers, &stop);
    let context = Arc::clone(controllers.context());
    let written: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let times = Arc::clone(&written);
    context.cluster.machines.deployments.on_change(move |before, after| {
        if before.zip(after).is_some_and(|(before, after)| before.spec != after.spec) {
            times.lock().push(Instant::now());
        }
    });
    context.cluster.wait_until_ready().await;
    let began = Instant::now();
    let last = loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        ensure!(began.elapsed() < PATIENCE, "the groups did not get their sizes within {PATIENCE:?}");
        let last = written.lock().last().copied();
        if let Some(last) = last.filter(|last| last.elapsed() >= QUIET) {
            break last;
        }
    };
    let snapshot = context.snapshot_for_pods();
    let rest = millpond_plan::plan(&snapshot, &Settings::default());
    ensure!(rest.plan.new_nodes.is_empty(), "{} nodes are lacking", rest.plan.new_nodes.len());
    ensure!(rest.report.unplaced.is_empty(), "{} pods have no place", rest.report.unplaced.len());

    let mut report = Report::default();
    let goal = (args.groups <= 100 && args.pods <= 3_000).then_some(Goal::AtMost(1.0));
    report.add("until the last group is written", (last - began).as_secs_f64(), "s", goal);
    report.add("groups that grew", written.lock().len() as f64, "", None);
    report.add("machines asked for", snapshot.nodes.len() as f64, "", None);
    stop.cancel();
    controllers.ended().await;
    embedded.stop().await;
    Ok(report)
}

async fn create<K>(api: &Api<K>, objects: impl Iterator<Item = Value>) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let create = |object: Value| async move {
        let object: K = serde_json::from_value(object)?;
        api.create(&PostParams::default(), &object).await?;
        anyhow::Ok(())
    };
    stream::iter(objects.map(create)).buffer_unordered(IN_FLIGHT).try_collect::<Vec<()>>().await?;
    Ok(())
}
