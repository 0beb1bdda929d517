//! `millpond controller`: the controllers alone, on an existing cluster.

pub(crate) mod access;
mod endpoints;
mod exposition;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use kube::Client;
use millpond_controllers::capi::autoscale::GroupOptions;
use millpond_controllers::cluster::{Options, Urgent};
use millpond_hosts::stock::ApiServer;
use millpond_runtime::history::History;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::endpoints::{Check, EndpointArgs, Endpoints, Report};
use super::dialects::ci::CiDialectArgs;
use super::dialects::gpu::GpuArgs;
use super::history::FOLDER;
use super::kinds;
use super::lead::{self, CloudLocation, ControllerRunner, ElectionResult, Monitor, Readiness, Stuck};
use super::node_groups::NodeGroupArgs;
use super::threads::Threads;
use super::up::{Signals, default_data_dir, say};

/// Arguments of `millpond controller`.
#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// The cluster to act on; without it the current one, or the one that it runs in
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Directory of what is kept outside the cluster: the machines of the simulated cloud
    #[arg(long, value_name = "DIR", env = "MILLPOND_DATA_DIR", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    /// Tell in ScalingAdvice what would be done for pods, and change no node
    #[arg(long)]
    advise: bool,
    /// Act without asking whether another controller leads: only where no other one runs
    #[arg(long)]
    no_leader_election: bool,
    /// Namespace of the Lease by which one of several controllers leads
    #[arg(long, value_name = "NAMESPACE", default_value = lead::NAMESPACE)]
    leader_namespace: String,
    #[command(flatten)]
    endpoints: EndpointArgs,
    #[command(flatten)]
    node_groups: NodeGroupArgs,
    #[command(flatten)]
    gpu: GpuArgs,
    #[command(flatten)]
    ci: CiDialectArgs,
    /// The cluster that Cluster API's machines are in, if it is not the one that their nodes are in
    #[arg(long, value_name = "FILE")]
    management_kubeconfig: Option<PathBuf>,
    /// Keep the decision history in this directory, for `millpond history --data-dir DIR`; without it, in memory
    #[arg(long, value_name = "DIR")]
    history_dir: Option<PathBuf>,
}

/// Runs until Ctrl-C or SIGTERM.
pub(crate) fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let threads = Threads::beside_others()?;
    runtime.block_on(control(args, &threads))
}

async fn control(args: ControllerArgs, threads: &Threads) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let ci = args.ci.options()?;
    let endpoints = Endpoints::bind(&args.endpoints).await?;
    let client = connect(&args, threads.controllers()).await?;
    let version = client.apiserver_version().await.context("cannot speak to the cluster")?;
    kinds::require(&client, kinds::SERVED_WITHIN).await?;
    let urgent = Urgent { client: connect(&args, threads.urgent()).await?, threads: threads.urgent().clone() };
    let options = Options { urgent: Some(urgent), ..options(&args).await? };
    let stop = CancellationToken::new();
    let mut office = ControllerRunner::new(client.clone(), CloudLocation::Directory(args.data_dir.clone()), options);
    office.dialects.gpu = args.gpu.options(&args.leader_namespace);
    office.dialects.hosts.api_server = api_server(&args).await;
    office.dialects.ci = ci;
    office.dialects.ci_image = args.ci.image();
    let settled = office.settled();
    let (health, metrics) = endpoints.urls();
    let serving = tokio::spawn(endpoints.serve(Arc::new(office.monitor()), client.clone(), stop.clone()));
    let work = if args.no_leader_election {
        threads.controllers().spawn(office.act_alone(stop.clone()))
    } else {
        threads.controllers().spawn(office.lead(lead::candidate(client, &args.leader_namespace), stop.clone()))
    };
    say(&format!("Millpond controls a cluster of Kubernetes {}; Ctrl-C stops it.\n", version.git_version))?;
    if let Some(url) = health {
        say(&format!("  health      {url}/livez, {url}/readyz\n"))?;
    }
    if let Some(url) = metrics {
        say(&format!("  metrics     {url}/metrics\n"))?;
    }
    if settled.await == Ok(ElectionResult::Waits) {
        say("Another controller leads; this one waits.\n")?;
    }
    tokio::pin!(work);
    tokio::select! {
        () = signals.next() => {}
        ended = &mut work => return ended.context("the controllers failed")?,
    }
    say("\nStopping: what is under way is finished first; Ctrl-C again ends at once.\n")?;
    stop.cancel();
    tokio::select! {
        ended = work => ended.context("the controllers failed")??,
        () = signals.next() => return say("Ended at once.\n"),
    }
    let _ = serving.await;
    say("Stopped.\n")
}

impl Report for Monitor {
    fn live(&self) -> Vec<Check> {
        let controllers = "controllers";
        let check = match self.panics() {
            Ok(panics) if panics.is_empty() => Check::passes(controllers),
            Ok(panics) => {
                let times = |(name, count): &(&str, usize)| format!("{name} panicked {count} times in ten minutes");
                Check::passes_with(controllers, &panics.iter().map(times).collect::<Vec<_>>().join(", "))
            }
            // The panic itself goes to the log: it may name objects.
            Err((name, _)) => Check::fails(controllers, format!("{name} panicked again and again and was given up")),
        };
        vec![Check::passes("ping"), check, loops(&self.stuck())]
    }

    fn ready(&self) -> Vec<Check> {
        let election = "leader-election";
        match self.readiness() {
            Readiness::Starting => vec![Check::fails(election, "no controller is elected yet")],
            Readiness::Follows => vec![Check::passes_with(election, "another controller leads; this one follows")],
            Readiness::Syncing => {
                let sync = Check::fails("informer-sync", "not all objects are listed yet");
                vec![Check::passes_with(election, "this controller leads"), sync]
            }
            Readiness::Leads => {
                vec![Check::passes_with(election, "this controller leads"), Check::passes("informer-sync")]
            }
        }
    }

    fn metrics(&self) -> String {
        Monitor::metrics(self)
    }
}

/// Fails with the controllers that do nothing any more. Names of objects stay in the log.
fn loops(stuck: &Stuck) -> Check {
    let stopped = stuck.stopped.iter().map(|name| format!("{name} has ended"));
    let hanging = stuck.hanging.iter().map(|(name, time)| format!("{name} hangs for {} min", time.as_secs() / 60));
    let all: Vec<String> = stopped.chain(hanging).collect();
    if all.is_empty() { Check::passes("loops") } else { Check::fails("loops", all.join(", ")) }
}

/// How own hosts reach the API server, from this process's configuration; `None` if its certificate is not known.
async fn api_server(args: &ControllerArgs) -> Option<ApiServer> {
    let config = super::cluster::configuration(args.kubeconfig.as_deref(), args.context.as_deref()).await.ok()?;
    let pem = |der: &Vec<u8>| {
        let text = STANDARD.encode(der);
        let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    let ca: String = config.root_cert.as_ref()?.iter().map(pem).collect();
    Some(ApiServer { url: config.cluster_url.to_string().trim_end_matches('/').to_owned(), ca: ca.into_bytes() })
}

/// A client whose own tasks run on the given threads.
async fn connect(args: &ControllerArgs, threads: &Handle) -> anyhow::Result<Client> {
    let (kubeconfig, context) = (args.kubeconfig.clone(), args.context.clone());
    let connected = async move { super::cluster::connect_controllers(kubeconfig.as_deref(), context.as_deref()).await };
    threads.spawn(connected).await.context("cannot speak to the cluster")?
}

/// The options of the controllers.
async fn options(args: &ControllerArgs) -> anyhow::Result<Options> {
    let management = match args.management_kubeconfig.as_deref() {
        Some(file) => {
            let client = super::cluster::connect_controllers(Some(file), None).await?;
            client.apiserver_version().await.context("cannot speak to the management cluster")?;
            Some(client)
        }
        None => None,
    };
    let node_groups = GroupOptions { management, ..args.node_groups.options() };
    let history = match &args.history_dir {
        Some(directory) => History::open(&directory.join(FOLDER)).context("cannot keep the decision history")?,
        None => History::default(),
    };
    Ok(Options { advise: args.advise, node_groups, history, ..Options::default() })
}
