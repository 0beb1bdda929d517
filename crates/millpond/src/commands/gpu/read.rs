//! The estate as of now: objects of the cluster, and the inventory of its vCenter.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use millpond_gpu::estate::{Estate, Facts, Vcenter};
use millpond_gpu::usage;
use millpond_vsphere::live::{State, Wanted};
use millpond_vsphere::{Freshness, Live};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ClusterArgs;
use crate::commands::{cluster, input};

/// Objects of one request.
const PAGE: u32 = 500;
/// The time limit for vCenter's inventory.
const INVENTORY_WITHIN: Duration = Duration::from_secs(30);

impl ClusterArgs {
    /// A client of the cluster.
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        cluster::connect(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }

    /// The client, and the estate as of now; what is odd is said to `talk`. Files need no client.
    pub(super) async fn open(&self, messages: &mut impl Write) -> anyhow::Result<(Option<Client>, Estate)> {
        if !self.filename.is_empty() {
            return Ok((None, Estate::build(&self.facts_of_files()?, None)));
        }
        let client = self.connect().await?;
        let estate = self.estate(&client, messages).await?;
        Ok((Some(client), estate))
    }

    fn now(&self) -> i64 {
        self.now.unwrap_or_else(jiff::Timestamp::now).as_second()
    }

    fn facts_of_files(&self) -> anyhow::Result<Facts> {
        let mut objects = Vec::new();
        for (name, bytes) in input::of_files(&self.filename)? {
            objects.extend(input::values(&name, &bytes)?);
        }
        Ok(Facts {
            nodes: of_kind(&objects, "Node")?,
            pods: of_kind(&objects, "Pod")?,
            claims: of_kind(&objects, "NodeClaim")?,
            windows: of_kind(&objects, "MaintenanceWindow")?,
            now: self.now(),
            assumed_s: self.gpu_assumed_hours.saturating_mul(3600),
            ..Facts::default()
        })
    }

    async fn estate(&self, client: &Client, messages: &mut impl Write) -> anyhow::Result<Estate> {
        let facts = self.facts(client).await?;
        let wanted = self.vsphere.sources().read(client).await;
        if matches!(wanted, Wanted::None) {
            return Ok(Estate::build(&facts, None));
        }
        let (live, stop) = (Live::new(Arc::new(jiff::Timestamp::now)), CancellationToken::new());
        let (_wanted, receiver) = watch::channel(wanted);
        let running = tokio::spawn(Arc::clone(&live).run(receiver, stop.clone()));
        let mut changes = live.changes();
        let settled = |state: &State| !matches!(state.freshness, Freshness::Unused | Freshness::Loading);
        let wait = async { while !live.read(settled) && changes.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(INVENTORY_WITHIN, wait).await;
        let estate = live.read(|state| {
            let observed_at = state.observed_at.map(jiff::Timestamp::as_second);
            let vcenter = Vcenter { freshness: &state.freshness, inventory: &state.inventory, observed_at };
            Estate::build(&facts, Some(&vcenter))
        });
        stop.cancel();
        let _ = running.await;
        if let Some((reason, message)) = estate.stale() {
            writeln!(messages, "warning: vCenter cannot be read ({reason}): {message}")?;
        }
        Ok(estate)
    }

    async fn facts(&self, client: &Client) -> anyhow::Result<Facts> {
        Ok(Facts {
            nodes: all::<Node>(client).await.context("cannot list nodes")?,
            pods: all::<Pod>(client).await.context("cannot list pods")?,
            infos: optional(all(client).await).context("cannot list gpuinfoes")?,
            claims: optional(all(client).await).context("cannot list nodeclaims")?,
            windows: optional(all(client).await).context("cannot list maintenancewindows")?,
            usage: usage::fetch(client).await,
            now: self.now(),
            assumed_s: self.gpu_assumed_hours.saturating_mul(3600),
        })
    }
}

/// The objects of a kind among those of files.
fn of_kind<K: DeserializeOwned>(objects: &[Value], kind: &str) -> anyhow::Result<Vec<Arc<K>>> {
    let read = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let read = serde_json::from_value(object.clone()).map(Arc::new);
        read.with_context(|| format!("{kind} `{name}` cannot be read"))
    };
    objects.iter().filter(|object| object["kind"] == kind).map(read).collect()
}

/// All objects of a kind, page by page.
async fn all<K>(client: &Client) -> kube::Result<Vec<Arc<K>>>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api = Api::<K>::all(client.clone());
    let (mut found, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items.into_iter().map(Arc::new));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Empty if the cluster does not have the kind.
fn optional<T>(found: kube::Result<Vec<T>>) -> kube::Result<Vec<T>> {
    match found {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        other => other,
    }
}

/// A runtime for one command.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}
