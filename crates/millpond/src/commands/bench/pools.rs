//! `millpond bench pools`: how soon pods that wait have nodes, on the embedded API with the simulated cloud.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use millpond_api::catalog::Catalog;
use millpond_api::node_class::NodeClass;
use millpond_apiserver::{Embedded, EmbeddedOptions};
use millpond_controllers::cluster::{Cluster, Options};
use millpond_controllers::run::Controllers;
use millpond_providers::sim::{Cloud, SimProvider};
use millpond_providers::{Instance, InstanceEvent, LaunchRequest, Launched, Provider, ProviderError, RepairPolicy};
use millpond_runtime::clock::Clock;
use millpond_runtime::meta::node_name;
use millpond_sim::{Nodes, StandIns};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use super::report::{Goal, Report};
use crate::commands::kinds;

/// Pods of so many sizes.
const SIZES: usize = 20;
/// Requests that are under way while pods arrive at once.
const IN_FLIGHT: usize = 64;
/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(3);

/// Arguments of `millpond bench pools`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench pools                          a thousand pods at once, then a thousand a second
  millpond bench pools --pods 5000 --seconds 0  more at once, and nothing else")]
pub(crate) struct PoolsArgs {
    /// Pods that arrive at once
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pods: usize,
    /// Then, pods that arrive each second
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    rate: usize,
    /// For so many seconds
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: usize,
    /// Catalogue of instance types
    #[arg(long, value_name = "NAME", default_value = "aws")]
    catalog: String,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: &PoolsArgs) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let report = runtime.block_on(measure(args))?;
    std::io::stdout().write_all(report.table().as_bytes()).context("cannot write to stdout")
}

async fn measure(args: &PoolsArgs) -> anyhow::Result<Report> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let embedded = Embedded::start(EmbeddedOptions::new(directory.path())).await.context("cannot start the API")?;
    let client = Client::new(embedded.service(), "default");
    kinds::install(&client).await?;
    let stop = CancellationToken::new();
    let options = millpond_sim::Options { nodes: Nodes::All, ..millpond_sim::Options::default() };
    let stand_ins = StandIns::builder(client.clone()).options(options).spawn(stop.clone());
    let cloud = Arc::new(Cloud::open(directory.path().join("cloud.json")).context("cannot make a cloud")?);
    let provider = Arc::new(SimProvider::new(cloud, client.clone(), Clock::Machine));
    let booting = tokio::spawn(Arc::clone(&provider).run(stop.clone()));
    let timed = Arc::new(Timed { provider, calls: Mutex::default() });
    let controllers =
        Controllers::start(client.clone(), Options::default(), [Arc::clone(&timed) as Arc<dyn Provider>], &stop);
    let cluster = Arc::clone(&controllers.context().cluster);
    pool(&client, &args.catalog).await?;

    let mut report = Report::default();
    at_once(&client, &cluster, args, &mut report).await?;
    if args.seconds > 0 {
        steadily(&client, &cluster, &timed, args, &mut report).await?;
    }
    stop.cancel();
    controllers.ended().await;
    let _ = booting.await;
    stand_ins.ended().await;
    embedded.stop().await;
    Ok(report)
}

async fn at_once(client: &Client, cluster: &Cluster, args: &PoolsArgs, report: &mut Report) -> anyhow::Result<()> {
    let begun = Instant::now();
    let pods = (0..args.pods).map(|index| create(client, format!("burst-{index}"), index));
    let created: Vec<anyhow::Result<()>> = stream::iter(pods).buffer_unordered(IN_FLIGHT).collect().await;
    created.into_iter().collect::<anyhow::Result<()>>()?;
    until_bound(cluster, "burst-", args.pods).await?;
    let took = begun.elapsed().as_secs_f64();
    report.add(format!("{} pods at once: all bound", args.pods), took, "s", Some(Goal::AtMost(5.0)));
    report.add("nodes", cluster.nodes.len() as f64, "", None);
    Ok(())
}

async fn steadily(
    client: &Client,
    cluster: &Cluster,
    timed: &Timed,
    args: &PoolsArgs,
    report: &mut Report,
) -> anyhow::Result<()> {
    let promised = promises(cluster);
    let total = args.rate * args.seconds;
    let begun = Instant::now();
    let mut made = HashMap::with_capacity(total);
    let mut writes = tokio::task::JoinSet::new();
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    for index in 0..total {
        let due = begun + Duration::from_secs_f64(index as f64 / args.rate as f64);
        tokio::time::sleep_until(due.into()).await;
        let name = format!("steady-{index}");
        made.insert(name.clone(), Instant::now());
        let (client, permits) = (client.clone(), Arc::clone(&permits));
        writes.spawn(async move {
            let _permit = permits.acquire().await;
            create(&client, name, index).await
        });
    }
    while let Some(written) = writes.join_next().await {
        written.context("a write failed")??;
    }
    until_bound(cluster, "steady-", total).await?;
    let calls = timed.calls.lock();
    let promised = promised.lock();
    let waits = promised.iter().filter_map(|(pod, claim)| Some((made.get(pod)?, calls.get(claim)?)));
    // A pod that came after its node was asked for did not wait for that call.
    let mut waits: Vec<Duration> =
        waits.filter(|(made, called)| called > made).map(|(made, called)| *called - *made).collect();
    waits.sort_unstable();
    if waits.is_empty() {
        bail!("no pod of the second part needed a node");
    }
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    report.add(format!("{} pods a second: pending → provider call, median", args.rate), at(0.5), "ms", None);
    report.add("the same, 99th percentile", at(0.99), "ms", Some(Goal::AtMost(100.0)));
    report.add("pods that waited for a call", waits.len() as f64, "", None);
    Ok(())
}

/// The claim that each pod was first promised.
fn promises(cluster: &Cluster) -> Arc<Mutex<HashMap<String, String>>> {
    let promised: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    let all = Arc::clone(&promised);
    cluster.pods.on_change(move |_, after| {
        let Some(pod) = after else { return };
        let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
        if let (Some(name), Some(claim)) = (pod.metadata.name.clone(), nominated) {
            all.lock().entry(name).or_insert(claim);
        }
    });
    promised
}

async fn until_bound(cluster: &Cluster, prefix: &str, count: usize) -> anyhow::Result<()> {
    let mut changes = cluster.changes();
    let bound = || {
        let of_prefix = |pod: &Arc<Pod>| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix));
        cluster.pods.list().iter().filter(|pod| of_prefix(pod) && node_name(pod).is_some()).count()
    };
    let all = async {
        while bound() < count {
            let _ = changes.changed().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        bail!("only {} of {count} pods are bound after {PATIENCE:?}", bound());
    }
    Ok(())
}

async fn create(client: &Client, name: String, index: usize) -> anyhow::Result<()> {
    let size = index % SIZES;
    let requests = json!({"cpu": format!("{}m", 100 + 150 * (size % 7)), "memory": format!("{}Mi", 128 << (size % 5))});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": format!("app-{size}")}},
        "spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}]},
    });
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = serde_json::from_value(pod).context("a pod")?;
    api.create(&PostParams::default(), &pod).await.context("cannot create a pod")?;
    Ok(())
}

async fn pool(client: &Client, catalog: &str) -> anyhow::Result<()> {
    let class = json!({
        "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "default"},
        "spec": {"provider": "sim", "catalog": catalog},
    });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                ],
            }},
            "disruption": {"consolidateAfter": "Never"},
        },
    });
    for (group, version, object) in [("millpond.dev", "v1alpha1", class), ("karpenter.sh", "v1", pool)] {
        let kind = object["kind"].as_str().unwrap_or_default();
        let plural = if kind == "NodeClass" { "nodeclasses" } else { "nodepools" };
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let object: DynamicObject = serde_json::from_value::<Value>(object).and_then(serde_json::from_value)?;
        api.create(&PostParams::default(), &object).await.context("cannot create the pool")?;
    }
    Ok(())
}

/// A provider that notes when it was first asked for each claim.
struct Timed {
    provider: Arc<SimProvider>,
    calls: Mutex<HashMap<String, Instant>>,
}

impl Provider for Timed {
    fn name(&self) -> &'static str {
        self.provider.name()
    }

    fn create<'a>(&'a self, request: &'a LaunchRequest) -> BoxFuture<'a, Result<Launched, ProviderError>> {
        self.calls.lock().entry(request.claim.clone()).or_insert_with(Instant::now);
        self.provider.create(request)
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.provider.delete(id)
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, ProviderError>> {
        self.provider.get(id)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        self.provider.list()
    }

    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError> {
        self.provider.catalog(class)
    }

    fn drifted<'a>(
        &'a self,
        instance: &'a Instance,
        class: &'a NodeClass,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        self.provider.drifted(instance, class)
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        self.provider.repair_policies()
    }

    fn events(&self) -> Option<broadcast::Receiver<InstanceEvent>> {
        self.provider.events()
    }
}
