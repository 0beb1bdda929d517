//! A cluster with hosts, and what is the same for all commands about them.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::core::ApiResource;
use kube::core::dynamic::DynamicObject;
use millpond_api::spelling::nearest;
use millpond_hosts::kinds::ByoHost;
use millpond_hosts::world::World;
use serde_json::Value;

use crate::commands::cluster::connect;
use crate::failure::{Code, Failure};

/// Which cluster is spoken to, and where in it the hosts are.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Namespace of the hosts
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,
    /// Kubeconfig of the cluster; the current one without it
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// How an object is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A page for people
    Table,
    /// One object
    Json,
    /// The same as YAML
    Yaml,
}

/// A cluster, and a runtime to speak to it.
pub(crate) struct Session {
    runtime: tokio::runtime::Runtime,
    pub(crate) client: Client,
}

impl Session {
    pub(crate) fn open(place: &PlaceArgs) -> anyhow::Result<Self> {
        Self::at(place.kubeconfig.as_deref(), place.context.as_deref())
    }

    /// The cluster of a kubeconfig.
    pub(crate) fn at(kubeconfig: Option<&std::path::Path>, context: Option<&str>) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
        let client = runtime.block_on(connect(kubeconfig, context))?;
        Ok(Self { runtime, client })
    }

    /// Does something in the cluster.
    pub(crate) fn run<T>(&self, what: &str, work: impl Future<Output = kube::Result<T>>) -> anyhow::Result<T> {
        self.runtime.block_on(work).map_err(|error| failed(what, error))
    }

    /// Hosts, machines and pools of a namespace, or of all.
    pub(crate) fn world(&self, namespace: Option<&str>) -> anyhow::Result<World> {
        self.run("list hosts", World::fetch(&self.client, namespace, Timestamp::now()))
    }

    pub(crate) fn hosts(&self, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<ByoHost>(&());
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// Merges a patch into a host.
    pub(crate) fn patch(&self, host: &ByoHost, patch: &Value) -> anyhow::Result<()> {
        let params = PatchParams { field_manager: Some("millpond-cli".to_owned()), ..PatchParams::default() };
        let api = self.hosts(host.namespace());
        let what = format!("change host `{}`", host.name());
        self.run(&what, api.patch(host.name(), &params, &Patch::Merge(patch))).map(drop)
    }
}

/// A host by its name; exit code 3 if there is none.
pub(crate) fn find<'w>(world: &'w World, namespace: &str, name: &str) -> anyhow::Result<&'w ByoHost> {
    world.host(namespace, name).ok_or_else(|| {
        let names = world.hosts.iter().map(ByoHost::name);
        let elsewhere = world.hosts.iter().find(|host| host.name() == name);
        let hint = match (elsewhere, nearest(name, names)) {
            (Some(host), _) => format!("it is in namespace `{}`: add `-n {0}`", host.namespace()),
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) if world.hosts.is_empty() => {
                "no host is registered; `millpond host token create` lets one in".to_owned()
            }
            (None, None) => "`millpond host list` lists all".to_owned(),
        };
        missing(&format!("there is no host `{name}`"), hint)
    })
}

/// An object does not exist: exit code 3.
pub(crate) fn missing(message: &str, hint: String) -> anyhow::Error {
    Failure { message: message.to_owned(), code: Some(Code::NotFound), hint: Some(hint) }.into()
}

/// The failed operation, with its exit code.
fn failed(what: &str, error: kube::Error) -> anyhow::Error {
    let code = match &error {
        kube::Error::Api(status) => match status.code {
            401 | 403 => Some(Code::NotAllowed),
            404 => Some(Code::NotFound),
            409 => Some(Code::Conflict),
            422 => Some(Code::Usage),
            _ => None,
        },
        _ => None,
    };
    let cause = match &error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    Failure { message: format!("cannot {what}: {cause}"), code, hint: None }.into()
}
