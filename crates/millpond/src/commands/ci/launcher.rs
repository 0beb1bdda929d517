//! `millpond ci launcher`: a launcher on ZooKeeper, in the foreground.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use millpond_ci::config::Config;
use millpond_ci::driver;
use millpond_ci::launcher::reload::Files;
use millpond_ci::launcher::{Backend, Handle, Launcher, Settings};
use millpond_ci::model::ComponentKind;
use millpond_ci::records::{ZooKeeperSource, uploads};
use millpond_ci::web::Web;
use millpond_ci::zk::{Identity, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{CommonArgs, DEFAULT_CONFIG, web};
use crate::commands::dialects::ci::kubeconfig_files;
use crate::failure::Failure;

/// Where the certificate of this process's ZooKeeper connection has to come from.
const TLS_HINT: &str = "`zookeeper-tls` of the configuration names the files `cert`, `key` and `ca`";

#[derive(Debug, Args)]
pub(crate) struct LauncherArgs {
    /// A file with the bearer token that clients of the web API need for changes; without it there are none
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Taken for the original's sake: the launcher always runs in the foreground
    #[arg(short = 'd', long, hide = true)]
    foreground: bool,
}

/// Runs until it is stopped.
pub(crate) fn run(common: &CommonArgs, args: &LauncherArgs) -> anyhow::Result<ExitCode> {
    let main = common.config.clone().unwrap_or_else(|| Path::new(DEFAULT_CONFIG).to_owned());
    let files = Files { main, secure: common.secure.clone() };
    let config = Arc::new(read(&files)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("start the runtime")?.block_on(serve(files, config, args))?;
    Ok(ExitCode::SUCCESS)
}

/// The configuration as far as it is right.
fn read(files: &Files) -> anyhow::Result<Config> {
    let (config, errors) = files.read();
    let Some(config) = config else {
        return Err(Failure {
            message: errors.join("\n"),
            code: None,
            hint: Some("`-c FILE` names the configuration; `config-validate` checks it".to_owned()),
        }
        .into());
    };
    for error in errors {
        tracing::error!(error, "the configuration has a mistake; what it concerns is left out");
    }
    if config.zookeeper.servers.is_empty() {
        return Err(Failure {
            message: format!("`{}` names no `zookeeper-servers`", files.main.display()),
            code: None,
            hint: Some("`millpond up --ci-config FILE` provides CI nodes without ZooKeeper".to_owned()),
        }
        .into());
    }
    Ok(config)
}

async fn serve(files: Files, config: Arc<Config>, args: &LauncherArgs) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let store = Store::start(&config.zookeeper).map_err(|error| {
        let failure = Failure { message: error.to_string(), code: None, hint: Some(TLS_HINT.to_owned()) };
        let source = std::error::Error::source(&error).map(ToString::to_string);
        match source {
            Some(source) => anyhow::anyhow!(source).context(failure),
            None => failure.into(),
        }
    })?;
    store.serve_as(Identity {
        hostname: hostname.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kind: ComponentKind::Launcher,
    });
    let ends = CancellationToken::new();
    let sender = watch::Sender::new(Arc::clone(&config));
    let current = sender.subscribe();
    tokio::spawn(warn_of_restart(current.clone()));
    let backend: Arc<dyn Backend> = Arc::new(store.clone());
    let context = driver::Context::new(kubeconfig_files()).with_backend(Arc::clone(&backend));
    let (sender_of_uploads, uploads) = watch::channel(Arc::default());
    let images = Arc::new(ZooKeeperSource::new(store.client().clone()));
    tokio::spawn(uploads::follow(images, sender_of_uploads, ends.clone()));
    let launcher = Launcher::new(Settings {
        backend,
        config: current.clone(),
        drivers: Arc::new(move |config| driver::all(config, &context)),
        hostname,
        uploads: Some(uploads),
    });
    tokio::spawn(files.clone().follow(sender, ends.clone()));
    let web = web_of(&store, launcher.handle(), current.clone(), args.token_file.clone());
    tokio::spawn(web::follow(current, ends.clone(), web));
    tracing::info!(config = %files.main.display(), "the launcher works");
    let running = tokio::spawn(launcher.run(ends.clone()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    ends.cancel();
    running.await.context("the launcher has failed")?;
    store.close().await;
    Ok(())
}

/// The connection to ZooKeeper is made once.
async fn warn_of_restart(mut config: watch::Receiver<Arc<Config>>) {
    let mut known = config.borrow_and_update().zookeeper.clone();
    while config.changed().await.is_ok() {
        let now = config.borrow_and_update().zookeeper.clone();
        if now != known {
            tracing::warn!("the connection to ZooKeeper has changed in the configuration; restart the launcher for it");
            known = now;
        }
    }
}

/// The web API of this launcher.
fn web_of(
    store: &Store,
    handle: Handle,
    config: watch::Receiver<Arc<Config>>,
    token: Option<PathBuf>,
) -> impl Fn(bool) -> Web + Send + 'static {
    let store = store.clone();
    move |reads_need_token| {
        let (ready, counters) = (handle.clone(), handle.clone());
        Web {
            source: Arc::new(ZooKeeperSource::new(store.client().clone())),
            config: config.clone(),
            changes: store.changes(),
            ready: Arc::new(move || ready.is_ready()),
            counters: Arc::new(move || counters.counters()),
            authorize: web::of_file(token.clone()),
            reads_need_token,
        }
    }
}
