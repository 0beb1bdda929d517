//! `millpond controller`: the controllers alone, on a cluster that is there.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use millpond_controllers::capi::autoscale::GroupOptions;
use millpond_controllers::cluster::{Options, Urgent};
use millpond_controllers::leader::Candidate;
use millpond_controllers::run::Controllers;
use millpond_providers::Provider;
use millpond_providers::sim::{Cloud, SimProvider};
use millpond_runtime::clock::Clock;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::kinds;
use super::node_groups::NodeGroupArgs;
use super::threads::Threads;
use super::up::{Signals, default_data_dir, say};

/// The Lease that decides who leads.
const LEASE: &str = "millpond-controller";

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
    /// Act without asking whether another controller leads
    #[arg(long)]
    no_leader_election: bool,
    /// Namespace of the Lease by which one of several controllers leads
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_namespace: String,
    #[command(flatten)]
    node_groups: NodeGroupArgs,
    /// The cluster that Cluster API's machines are in, if it is not the one that their nodes are in
    #[arg(long, value_name = "FILE")]
    management_kubeconfig: Option<PathBuf>,
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
    let client = connect(&args, threads.controllers()).await?;
    let version = client.apiserver_version().await.context("cannot speak to the cluster")?;
    kinds::require(&client, kinds::SERVED_WITHIN).await?;
    let cloud = open_cloud(&args.data_dir)?;
    let urgent = Urgent { client: connect(&args, threads.urgent()).await?, threads: threads.urgent().clone() };
    let options = Options { urgent: Some(urgent), ..options(&args).await? };
    let stop = CancellationToken::new();
    say(&format!("Millpond controls a cluster of Kubernetes {}; Ctrl-C stops it.\n", version.git_version))?;
    let work = threads.controllers().spawn(lead(client, cloud, options, args, stop.clone()));
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
    say("Stopped.\n")
}

/// A client whose own tasks run on some threads.
async fn connect(args: &ControllerArgs, threads: &Handle) -> anyhow::Result<Client> {
    let (kubeconfig, context) = (args.kubeconfig.clone(), args.context.clone());
    let connected = async move { super::cluster::connect_controllers(kubeconfig.as_deref(), context.as_deref()).await };
    threads.spawn(connected).await.context("cannot speak to the cluster")?
}

/// What the controllers are told.
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
    Ok(Options { advise: args.advise, node_groups, ..Options::default() })
}

/// Acts whenever this one leads, until it is stopped.
async fn lead(
    client: Client,
    cloud: Arc<Cloud>,
    options: Options,
    args: ControllerArgs,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    if args.no_leader_election {
        let crew = Crew::start(client, cloud, options, &stop);
        stop.cancelled().await;
        crew.ended().await;
        return Ok(());
    }
    let identity = format!("{}_{}", hostname(), std::process::id());
    let mut candidate = Candidate::new(client.clone(), &args.leader_namespace, LEASE, &identity, Clock::Machine);
    while candidate.elected(&stop).await {
        tracing::info!(identity, "leads");
        let term = stop.child_token();
        let crew = Crew::start(client.clone(), Arc::clone(&cloud), options.clone(), &term);
        candidate.lead(&stop).await;
        term.cancel();
        crew.ended().await;
        if stop.is_cancelled() {
            candidate.resign().await;
            break;
        }
    }
    Ok(())
}

fn hostname() -> String {
    std::env::var("HOSTNAME").unwrap_or_else(|_| "millpond".to_owned())
}

/// Opens the machines of the simulated cloud that are kept in a directory.
pub(crate) fn open_cloud(directory: &std::path::Path) -> anyhow::Result<Arc<Cloud>> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create `{}`", directory.display()))?;
    let file = directory.join("cloud.json");
    let cloud = Cloud::open(&file).with_context(|| format!("cannot use `{}`", file.display()))?;
    Ok(Arc::new(cloud))
}

/// All controllers with the providers that they use.
pub(crate) struct Crew {
    controllers: Controllers,
    booting: tokio::task::JoinHandle<()>,
}

impl Crew {
    /// Starts them; they stop with the token.
    pub(crate) fn start(client: Client, cloud: Arc<Cloud>, options: Options, stop: &CancellationToken) -> Self {
        let provider = Arc::new(SimProvider::new(cloud, client.clone(), Clock::Machine));
        let booting = tokio::spawn(Arc::clone(&provider).run(stop.clone()));
        let controllers = Controllers::start(client, options, [provider as Arc<dyn Provider>], stop);
        Self { controllers, booting }
    }

    /// What they count and see, whenever it is asked for: families in OpenMetrics text.
    pub(crate) fn metrics(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let context = Arc::downgrade(self.controllers.context());
        move || context.upgrade().map(|context| millpond_controllers::metrics::text(&context)).unwrap_or_default()
    }

    /// Waits until all have ended.
    pub(crate) async fn ended(self) {
        self.controllers.ended().await;
        let _ = self.booting.await;
    }
}
