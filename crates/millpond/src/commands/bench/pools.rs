//! `millpond bench pools`: how soon pods that wait have nodes, on the embedded API with the simulated cloud.

mod timeline;

use std::collections::{BTreeMap, HashMap};
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
use kube::{Api, Client, ResourceExt};
use millpond_api::catalog::Catalog;
use millpond_api::node_class::NodeClass;
use millpond_apiserver::{Embedded, EmbeddedOptions};
use millpond_controllers::cluster::{Cluster, Options, Urgent};
use millpond_controllers::nominations::NOMINATED_PODS_ANNOTATION;
use millpond_controllers::run::Controllers;
use millpond_providers::sim::{Cloud, SimProvider};
use millpond_providers::{Instance, InstanceEvent, LaunchRequest, Launched, Provider, ProviderError, RepairPolicy};
use millpond_runtime::clock::Clock;
use millpond_runtime::kinds::Kind as _;
use millpond_runtime::meta::node_name;
use millpond_runtime::raw_object::RawObject;
use millpond_sim::{Nodes, StandIns};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::report::{Goal, Report};
use crate::commands::kinds;
use crate::commands::threads::{self, Threads};
use timeline::{Step, Timeline};

/// Number of different pod sizes.
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
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: usize,
    /// Catalogue of instance types
    #[arg(long, value_name = "NAME", default_value = "aws")]
    catalog: String,
    /// Also count requests to the API by client, verb and kind
    #[arg(long)]
    requests: bool,
    /// Also show the time of each step of pods and nodes, and what they waited for
    #[arg(long)]
    timeline: bool,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: &PoolsArgs) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    // With the threads of `millpond up`.
    let (threads, of_stand_ins) = (Threads::of_embedded()?, threads::of_stand_ins()?);
    let requests = Requests::default();
    let (report, times) = runtime.block_on(measure(args, &requests, &threads, of_stand_ins.handle()))?;
    let counts = if args.requests { requests.table() } else { String::new() };
    let text = format!("{}{times}{counts}", report.table());
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
}

/// The figures, and when what happened.
async fn measure(
    args: &PoolsArgs,
    requests: &Requests,
    threads: &Threads,
    of_stand_ins: &Handle,
) -> anyhow::Result<(Report, String)> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let embedded = Embedded::start(EmbeddedOptions::new(directory.path())).await.context("cannot start the API")?;
    let client = requests.counted(&embedded, "pods");
    let own_client = |threads: &Handle, who: &'static str| {
        let _theirs = threads.enter();
        requests.counted(&embedded, who)
    };
    kinds::install(&client).await?;
    let stop = CancellationToken::new();
    let options = millpond_sim::Options { nodes: Nodes::All, ..millpond_sim::Options::default() };
    let own = own_client(of_stand_ins, "stand-ins");
    let theirs = of_stand_ins.enter();
    let stand_ins = StandIns::builder(own).options(options).spawn(stop.clone());
    drop(theirs);
    let cloud = Arc::new(Cloud::open(directory.path().join("cloud.json")).context("cannot make a cloud")?);
    let urgent = own_client(threads.urgent(), "controllers, urgently");
    let options =
        Options { urgent: Some(Urgent { client: urgent, threads: threads.urgent().clone() }), ..Options::default() };
    let theirs = threads.controllers().enter();
    let provider = Arc::new(SimProvider::new(cloud, requests.counted(&embedded, "cloud"), Clock::Machine));
    let booting = tokio::spawn(Arc::clone(&provider).run(stop.clone()));
    let timed = Arc::new(Timed { provider, calls: Mutex::default() });
    let own_client = requests.counted(&embedded, "controllers");
    let controllers = Controllers::start(own_client, options, [Arc::clone(&timed) as Arc<dyn Provider>], &stop);
    drop(theirs);
    let cluster = Arc::clone(&controllers.context().cluster);
    pool(&client, &args.catalog).await?;

    let timeline = args.timeline.then(|| Timeline::of(&cluster));
    let times = |title: &str, since: Instant| {
        let Some(timeline) = &timeline else { return String::new() };
        timed.calls.lock().iter().for_each(|(claim, at)| timeline.note_at(Step::ProviderCalled, claim, *at));
        timeline.table(title, since)
    };
    let mut report = Report::default();
    let begun = Instant::now();
    at_once(&client, &cluster, args, &mut report).await?;
    let mut text = times("AT ONCE, SECONDS", begun);
    if args.seconds > 0 {
        let begun = Instant::now();
        steadily(&client, &cluster, &timed, args, &mut report).await?;
        text += &times("STEADILY, SECONDS", begun);
    }
    stop.cancel();
    controllers.ended().await;
    let _ = booting.await;
    stand_ins.ended().await;
    embedded.stop().await;
    Ok((report, text))
}

async fn at_once(client: &Client, cluster: &Cluster, args: &PoolsArgs, report: &mut Report) -> anyhow::Result<()> {
    let bound = bound(cluster, "burst-");
    let begun = Instant::now();
    let pods = (0..args.pods).map(|index| create(client, format!("burst-{index}"), index));
    let created: Vec<anyhow::Result<()>> = stream::iter(pods).buffer_unordered(IN_FLIGHT).collect().await;
    created.into_iter().collect::<anyhow::Result<()>>()?;
    until_bound(cluster, bound, args.pods).await?;
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
    let (promised, bound) = (promises(cluster), bound(cluster, "steady-"));
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
    until_bound(cluster, bound, total).await?;
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

/// The claim that each pod was first nominated to.
fn promises(cluster: &Cluster) -> Arc<Mutex<HashMap<String, String>>> {
    let promised: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    let all = Arc::clone(&promised);
    cluster.claims.on_change(move |_, after| {
        let Some(claim) = after else { return };
        let pods =
            claim.annotations().get(NOMINATED_PODS_ANNOTATION).map_or("", String::as_str).split_ascii_whitespace();
        let mut all = all.lock();
        for (_, name) in pods.filter_map(|pod| pod.split_once('/')) {
            all.entry(name.to_owned()).or_insert_with(|| claim.name_any());
        }
    });
    promised
}

/// Counts the pods with a prefix that are bound, from changes: scanning all pods repeatedly would be work of its own.
fn bound(cluster: &Cluster, prefix: &'static str) -> watch::Receiver<usize> {
    let (sender, receiver) = watch::channel(0);
    cluster.pods.on_change(move |before, after| {
        let of_prefix = |pod: &&Arc<Pod>| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix));
        let is_bound = |pod: Option<&Arc<Pod>>| pod.filter(of_prefix).is_some_and(|pod| node_name(pod).is_some());
        if is_bound(after) && !is_bound(before) {
            sender.send_modify(|count| *count += 1);
        }
    });
    receiver
}

async fn until_bound(cluster: &Cluster, mut bound: watch::Receiver<usize>, count: usize) -> anyhow::Result<()> {
    let all = bound.wait_for(|bound| *bound >= count);
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        let waits = cluster.pods.list().into_iter().find(|pod| node_name(pod).is_none());
        let why = waits.map(|pod| format!("; `{}` is {}", pod.name_any(), json!(pod.status))).unwrap_or_default();
        bail!("only {} of {count} pods are bound after {PATIENCE:?}{why}", *bound.borrow());
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
    let pod = Pod::read(&pod.to_string()).and_then(|pod| RawObject::of(&pod)).context("a pod")?;
    let api = Pod::api(client, client.default_namespace());
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

/// Requests to the API: by whom, verb and kind.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<BTreeMap<(&'static str, String), u64>>>);

impl Requests {
    /// A client whose requests are counted.
    fn counted(&self, embedded: &Embedded, who: &'static str) -> Client {
        let counts = Arc::clone(&self.0);
        let service = embedded.service().map_request(move |request: http::Request<kube::client::Body>| {
            *counts.lock().entry((who, what(request.method(), request.uri()))).or_default() += 1;
            request
        });
        Client::new(service, "default")
    }

    fn table(&self) -> String {
        let counts = self.0.lock();
        let mut rows: Vec<_> = counts.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let lines = rows.iter().map(|((who, what), count)| format!("{count:>8}  {who:<12}  {what}\n"));
        format!("\nREQUESTS\n{}", lines.collect::<String>())
    }
}

/// A request in two words: verb and kind.
fn what(method: &http::Method, uri: &http::Uri) -> String {
    let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let parts = parts.get(if parts.first() == Some(&"api") { 2 } else { 3 }..).unwrap_or_default();
    let parts = match parts {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        parts => parts,
    };
    let kind = match parts {
        [kind, _, part, ..] => format!("{kind}/{part}"),
        [kind, ..] => (*kind).to_owned(),
        [] => "other".to_owned(),
    };
    let watches = uri.query().is_some_and(|query| query.contains("watch=true"));
    format!("{} {kind}", if watches { "WATCH" } else { method.as_str() })
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

    fn begin_term(&self, term: u64) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.provider.begin_term(term)
    }

    fn cloud_id(&self) -> Option<String> {
        self.provider.cloud_id()
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

    fn take_catalogs(&self, catalogs: &[Arc<Catalog>]) {
        self.provider.take_catalogs(catalogs);
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
