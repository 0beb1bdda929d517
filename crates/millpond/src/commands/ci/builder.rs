//! `millpond ci builder`: the image builder in the foreground.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use millpond_ci::builder::ansible::Ansible;
use millpond_ci::builder::cloud::ProviderClouds;
use millpond_ci::builder::files::Identity;
use millpond_ci::builder::objects::ObjectStore;
use millpond_ci::builder::ssh::{MOUNTS, SshFolder};
use millpond_ci::builder::web;
use millpond_ci::builder::zookeeper::ZooKeeperStore;
use millpond_ci::builder::{Builder, ImageStore, Settings, Source};
use millpond_ci::config::Config;
use millpond_runtime::clock::Clock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::builder_keys;
use super::{CommonArgs, DEFAULT_CONFIG};
use crate::commands::cluster;
use crate::commands::up::{Signals, say};
use crate::failure::{Code, Failure};

/// How long ZooKeeper is waited for before that is said.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// How often accepted host keys are read again.
const KEYS_AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(super) struct BuilderArgs {
    /// How many images are built at a time
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    build_workers: usize,
    /// How many images are uploaded at a time
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    upload_workers: usize,
    /// Serve build logs below /nodepool/builds/, and /metrics, on this loopback address
    #[arg(long, value_name = "ADDRESS:PORT")]
    log_address: Option<SocketAddr>,
    #[command(flatten)]
    pub(super) ssh: SshArgs,
}

/// Where the builder's key pair is.
#[derive(Debug, Clone, Args)]
pub(super) struct SshArgs {
    /// Folder of the builder's SSH key pair and of accepted host keys; `ssh` beside images-dir without it
    #[arg(long, value_name = "DIR")]
    pub(super) ssh_dir: Option<PathBuf>,
}

impl SshArgs {
    pub(super) fn folder(&self, config: Option<&Config>) -> Option<SshFolder> {
        let beside = || Some(Path::new(config?.builder.images_dir.as_deref()?).parent()?.join("ssh"));
        self.ssh_dir.clone().or_else(beside).map(SshFolder)
    }
}

/// Runs until Ctrl-C or SIGTERM.
pub(super) fn run(args: &CommonArgs, builder: &BuilderArgs) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(build(args, builder))?;
    Ok(ExitCode::SUCCESS)
}

async fn build(args: &CommonArgs, builder: &BuilderArgs) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let listener = match builder.log_address {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let file = args.config.clone().unwrap_or_else(|| DEFAULT_CONFIG.into());
    let executable = std::env::current_exe().context("find this program")?;
    let package = executable.parent().unwrap_or(Path::new("/"));
    let clouds = Arc::new(ProviderClouds::new());
    let source = Source::open(&file, args.secure.as_deref(), package, clouds).map_err(wrong_configuration)?;
    let loaded = source.current();
    let (config, images) = (loaded.config.clone(), loaded.folders.images.clone());
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());

    let in_zookeeper = !config.zookeeper.servers.is_empty();
    let client = connect(args, in_zookeeper).await?;
    let identity = Identity::open(&images).map_err(|error| conflict(&error))?;
    let mut zookeeper = None;
    let store: Arc<dyn ImageStore> = if in_zookeeper {
        let version = env!("CARGO_PKG_VERSION");
        let store = ZooKeeperStore::start(&config.zookeeper, &hostname, version, &stop)
            .context("cannot use the files of `zookeeper-tls`")?;
        if let Err(trouble) = store.connected(CONNECTED_WITHIN).await {
            tracing::warn!(trouble, "waiting for ZooKeeper");
        }
        zookeeper = Some(Arc::clone(&store));
        store
    } else {
        let client = client.clone().context("no cluster")?;
        let store = ObjectStore::new(client, args.namespace(), &identity.id, Clock::Machine);
        store.watch(&stop, &tasks);
        store
    };
    let ssh = builder.ssh.folder(Some(&config)).context("no folder for SSH keys")?;
    let keys = KeySource { client: client.clone(), namespace: args.namespace().to_owned(), ssh: ssh.clone() };
    keys.bring().await?;
    tasks.spawn(keys.follow(stop.clone()));
    let config_dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let settings = Settings {
        source,
        identity,
        store,
        hostname,
        build_workers: builder.build_workers,
        upload_workers: builder.upload_workers,
        ansible: Ansible { ssh, config_dir },
        now: Arc::new(|| jiff::Timestamp::now().as_microsecond() as f64 / 1e6),
    };
    let works = Builder::new(settings)?;
    let records = if in_zookeeper { "ZooKeeper" } else { "the Kubernetes API" };
    say(&format!(
        "Millpond builds images of {}; records are in {records}; Ctrl-C stops it.\n  builder     {}\n  images      {}\n  logs        {}\n",
        file.display(),
        works.id(),
        images.display(),
        loaded.logs.dir.display()
    ))?;
    if let Some(listener) = listener {
        say(&format!("  log pages   http://{}{}\n", listener.local_addr()?, web::PATH))?;
        let (logs, metrics) = (Arc::clone(&works), Arc::clone(&works));
        let pages = web::Pages { logs: Arc::new(move || logs.logs()), metrics: Arc::new(move || metrics.metrics()) };
        tasks.spawn(web::serve(listener, pages, stop.clone()));
    }
    let work = tokio::spawn(works.run(stop.clone()));
    signals.next().await;
    say("\nStopping: a build that is under way is given up; Ctrl-C again ends at once.\n")?;
    stop.cancel();
    tokio::select! {
        ended = work => ended.context("the builder failed")?,
        () = signals.next() => return say("Ended at once.\n"),
    }
    tasks.close();
    tasks.wait().await;
    if let Some(store) = zookeeper {
        store.close().await;
    }
    Ok(())
}

/// Logs are for every client that can connect, so only this machine can.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() {
        let message = format!("`--log-address {address}` is not on loopback");
        let hint = Some("a proxy before it can publish the logs".to_owned());
        return Err(Failure { message, code: Some(Code::Usage), hint }.into());
    }
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// The cluster with records, or at least with the key pair. With ZooKeeper no cluster is needed.
async fn connect(args: &CommonArgs, in_zookeeper: bool) -> anyhow::Result<Option<Client>> {
    let is_named = args.kubeconfig.is_some() || args.context.is_some();
    if in_zookeeper && !is_named && !cluster::has_service_account() {
        return Ok(None);
    }
    let client = cluster::connect_controllers(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    Ok(Some(client))
}

/// Where the key pair and accepted host keys come from: mounts of a deployment, and the API of the cluster if it is used.
struct KeySource {
    client: Option<Client>,
    namespace: String,
    ssh: SshFolder,
}

impl KeySource {
    async fn bring(&self) -> anyhow::Result<()> {
        let home = self.ssh.0.parent().unwrap_or(Path::new("/"));
        self.ssh.adopt(MOUNTS.map(Path::new), home)?;
        match &self.client {
            Some(client) => builder_keys::bring(client, &self.namespace, &self.ssh).await,
            None => Ok(()),
        }
    }

    /// Brings what is accepted while the builder runs.
    async fn follow(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(KEYS_AGAIN) => {}
            }
            if let Err(error) = self.bring().await {
                tracing::warn!("SSH keys are read again later: {error:#}");
            }
        }
    }
}

fn wrong_configuration(error: millpond_ci::builder::SourceError) -> anyhow::Error {
    let hint = Some("`millpond ci -c FILE config-validate` checks a configuration".to_owned());
    Failure { message: error.to_string(), code: None, hint }.into()
}

fn conflict(error: &millpond_ci::builder::files::FilesError) -> anyhow::Error {
    let code = matches!(error, millpond_ci::builder::files::FilesError::InUse(_)).then_some(Code::Conflict);
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    Failure { message: format!("{error}{source}"), code, hint: None }.into()
}
