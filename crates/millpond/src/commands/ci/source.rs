//! The store that verbs use: ZooKeeper if the configuration names servers, else the Kubernetes API.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use anyhow::Context as _;
use millpond_ci::config::Config;
use millpond_ci::records::{ObjectSource, Source, SourceError, ZooKeeperSource};

use super::CommonArgs;
use crate::commands::cluster;
use crate::failure::Failure;

/// Records, with a runtime to reach them.
pub(super) struct Store {
    runtime: tokio::runtime::Runtime,
    /// Nodes, requests, images.
    pub(super) source: Box<dyn Source>,
    /// The configuration, if there is one.
    pub(super) config: Option<Config>,
}

impl Store {
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// A runtime for one command.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")
}

/// Finds the records.
pub(super) fn open(args: &CommonArgs, messages: &mut impl Write) -> anyhow::Result<Store> {
    let (runtime, config) = (runtime()?, args.configuration(messages)?);
    let source = runtime.block_on(connect(args, config.as_ref()))?;
    Ok(Store { runtime, source, config })
}

async fn connect(args: &CommonArgs, config: Option<&Config>) -> anyhow::Result<Box<dyn Source>> {
    if let Some(config) = config.filter(|config| !config.zookeeper.servers.is_empty()) {
        let connected = ZooKeeperSource::connect(&config.zookeeper).await;
        return Ok(Box::new(connected.map_err(unreachable)?));
    }
    let client = cluster::connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let labels: BTreeSet<String> = config.map(|config| config.labels.keys().cloned().collect()).unwrap_or_default();
    Ok(Box::new(ObjectSource::new(client, Arc::new(move || labels.clone()))))
}

fn unreachable(error: SourceError) -> anyhow::Error {
    let hint = "the configuration names the servers: `zookeeper-servers`, `zookeeper-tls`";
    Failure { message: error.to_string(), code: None, hint: Some(hint.to_owned()) }.into()
}
