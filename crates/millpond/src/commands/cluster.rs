//! Objects of a live cluster, through its API: just those kinds that planning looks at, never Secrets.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::de::IgnoredAny;

use tower::Layer as _;
use tower::layer::layer_fn;

use super::http2;
use super::request_timeout::{ANSWERED_WITHIN, RequestTimeout};
use crate::failure::{Code, Failure};

/// Objects of one request; a list goes on until there are no more.
const PAGE: usize = 500;
/// Pages of one kind: five million objects.
const LIMIT_PAGES: usize = 10_000;
/// A watch ends after this long and is begun anew, so that one that was silently cut is noticed.
const WATCH_SECONDS: u64 = 240;
/// Where kubelet mounts the token of a pod's service account.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// After a change, others that belong to it are waited for.
const GATHER: Duration = Duration::from_millis(500);

/// A kind that is listed.
pub(crate) struct List {
    path: &'static str,
    /// Whether every cluster has it.
    required: bool,
    /// Whether its changes affect lists of pools and nodes.
    watched: bool,
}

const fn standard(path: &'static str) -> List {
    List { path, required: true, watched: false }
}

const fn optional(path: &'static str) -> List {
    List { path, required: false, watched: false }
}

const fn watched(list: List) -> List {
    List { watched: true, ..list }
}

/// Everything that planning looks at.
pub(crate) const EVERYTHING: &[List] = &[
    standard("/api/v1/namespaces"),
    watched(standard("/api/v1/nodes")),
    watched(standard("/api/v1/pods")),
    standard(CATALOGS),
    standard("/api/v1/limitranges"),
    standard("/api/v1/podtemplates"),
    standard("/api/v1/persistentvolumes"),
    standard("/api/v1/persistentvolumeclaims"),
    standard("/apis/storage.k8s.io/v1/storageclasses"),
    standard("/apis/storage.k8s.io/v1/csinodes"),
    standard("/apis/scheduling.k8s.io/v1/priorityclasses"),
    standard("/apis/policy/v1/poddisruptionbudgets"),
    standard("/apis/apps/v1/daemonsets"),
    standard("/apis/apps/v1/deployments"),
    standard("/apis/apps/v1/replicasets"),
    standard("/apis/apps/v1/statefulsets"),
    watched(optional("/apis/karpenter.sh/v1/nodepools")),
    watched(optional("/apis/karpenter.sh/v1/nodeclaims")),
    optional("/apis/karpenter.sh/v1alpha1/nodeoverlays"),
    optional("/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers"),
    watched(optional(CLASSES)),
    watched(optional("/apis/millpond.dev/v1alpha1/clusterlimits")),
    optional("/apis/karpenter.k8s.aws/v1/ec2nodeclasses"),
    optional("/apis/karpenter.k8s.gcp/v1alpha1/gcenodeclasses"),
    optional("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"),
    optional("/apis/sa.gardener.cloud/v1alpha1/scalingconstraints"),
    optional("/apis/sa.gardener.cloud/v1alpha1/clusterscalingconstraints"),
    optional("/apis/sa.gardener.cloud/v1alpha1/scalingfeedbacks"),
    watched(optional("/apis/cluster.x-k8s.io/v1beta2/machinedeployments")),
    watched(optional("/apis/cluster.x-k8s.io/v1beta2/machines")),
    optional("/apis/cluster.x-k8s.io/v1beta2/machinesets"),
    optional("/apis/cluster.x-k8s.io/v1beta2/machinepools"),
    optional("/apis/cluster.x-k8s.io/v1beta2/clusters"),
    optional("/apis/bootstrap.cluster.x-k8s.io/v1beta1/kubeadmconfigtemplates"),
    optional("/apis/infrastructure.cluster.x-k8s.io/v1beta1/vspheremachinetemplates"),
    optional("/apis/infrastructure.cluster.x-k8s.io/v1beta1/azuremachinetemplates"),
    optional("/apis/infrastructure.cluster.x-k8s.io/v1beta1/dockermachinetemplates"),
    optional("/apis/infrastructure.cluster.x-k8s.io/v1beta1/byomachinetemplates"),
    optional("/apis/infrastructure.cluster.x-k8s.io/v1beta2/awsmachinetemplates"),
];

/// Millpond's node classes, with the catalogues that they may name.
pub(crate) const NODE_CLASSES: &[List] = &[optional(CLASSES), standard(CATALOGS)];

/// Pools of every dialect, with their node classes and catalogues.
pub(crate) const POOLS: &[List] = &[
    optional("/apis/karpenter.sh/v1/nodepools"),
    optional(CLASSES),
    optional("/apis/karpenter.k8s.aws/v1/ec2nodeclasses"),
    optional("/apis/karpenter.k8s.gcp/v1alpha1/gcenodeclasses"),
    optional("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"),
    optional("/apis/sa.gardener.cloud/v1alpha1/scalingconstraints"),
    optional("/apis/sa.gardener.cloud/v1alpha1/clusterscalingconstraints"),
    standard(CATALOGS),
];

const CLASSES: &str = "/apis/millpond.dev/v1alpha1/nodeclasses";
const CATALOGS: &str = "/api/v1/configmaps?labelSelector=millpond.dev/catalog";

/// The listed objects.
#[derive(Default)]
pub(crate) struct Listing {
    /// Texts with the path that they came from.
    pub(crate) texts: Vec<(String, Vec<u8>)>,
    /// Paths whose changes affect the result, each with the version that was listed.
    versions: Vec<(&'static str, String)>,
}

/// A cluster, and a runtime to speak to it.
pub(crate) struct Connection {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Connection {
    /// Finds the cluster; nothing is asked of it yet.
    pub(crate) fn open(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
        let client = runtime.block_on(connect(kubeconfig, context))?;
        Ok(Self { runtime, client })
    }

    /// Lists kinds, page by page.
    pub(crate) fn read(&self, lists: &[List]) -> anyhow::Result<Listing> {
        self.runtime.block_on(async {
            let mut listing = Listing::default();
            for list in lists {
                read_list(&self.client, list, &mut listing).await?;
            }
            Ok(listing)
        })
    }

    /// Waits until something has changed, or may have.
    pub(crate) fn wait(&self, listing: &Listing) {
        self.runtime.block_on(async {
            let watches = listing.versions.iter().map(|(path, version)| Box::pin(self.changed(path, version)));
            let mut watches: stream::FuturesUnordered<_> = watches.collect();
            watches.next().await;
            drop(watches);
            tokio::time::sleep(GATHER).await;
        });
    }

    /// Ends with the first event, and with anything that keeps events away: then it is time to look again too.
    async fn changed(&self, path: &str, version: &str) {
        let separator = if path.contains('?') { '&' } else { '?' };
        let version = escaped(version);
        let uri = format!("{path}{separator}watch=true&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}");
        let Ok(request) = http::Request::get(uri).body(Vec::new()) else { return };
        if let Ok(events) = self.client.request_events::<IgnoredAny>(request).await {
            let mut events = std::pin::pin!(events.into_stream());
            let _ = events.next().await;
        }
    }
}

/// A client of a cluster: the one that is named, or the current one.
pub(crate) async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Client> {
    Client::try_from(configuration(kubeconfig, context).await?).context("cannot speak to the cluster")
}

/// A client for controllers, which retry by themselves and need to see errors.
pub(crate) async fn connect_controllers(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Client> {
    let mut config = configuration(kubeconfig, context).await?;
    config.default_retry = false;
    let layer = layer_fn(|service| RequestTimeout::new(service, ANSWERED_WITHIN));
    if config.proxy_url.is_some() {
        let builder = ClientBuilder::try_from(config).context("cannot speak to the cluster")?;
        return Ok(builder.with_layer(&layer).build());
    }
    let service = layer_fn(|service| RequestTimeout::new(service, ANSWERED_WITHIN)).layer(http2::service(&config)?);
    Ok(Client::new(service, config.default_namespace))
}

/// Whether this process is in a pod that has a token for its cluster. The address of the API alone says nothing: every
/// pod has that.
pub(crate) fn has_service_account() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && Path::new(SERVICE_ACCOUNT_TOKEN).exists()
}

/// How to reach a cluster: the one that is named, or the current one.
pub(crate) async fn configuration(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    let config = match (kubeconfig, context) {
        (Some(path), _) => {
            let read = Kubeconfig::read_from(path).with_context(|| format!("cannot read `{}`", path.display()))?;
            Config::from_custom_kubeconfig(read, &options).await
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await,
        (None, None) => return Config::infer().await.map_err(|_| no_cluster()),
    };
    config.context("cannot use the kubeconfig")
}

fn no_cluster() -> anyhow::Error {
    let message = "there is no current cluster, and no file was named".to_owned();
    let hint = Some("name files with `-f PATH`, or a cluster with `--kubeconfig FILE`".to_owned());
    anyhow::Error::new(Failure { message, code: Some(Code::NotFound), hint })
}

/// All objects that planning looks at, with what `--save-snapshot` adds to them.
pub(crate) async fn read_everything(client: &Client) -> Result<Vec<serde_json::Value>, kube::Error> {
    let mut listing = Listing::default();
    let read = async {
        for list in EVERYTHING {
            read_list(client, list, &mut listing).await?;
        }
        super::input::kept(&listing.texts, true)
    };
    read.await.map_err(|error| match error.downcast::<kube::Error>() {
        Ok(error) => error,
        Err(error) => kube::Error::Service(error.into()),
    })
}

async fn read_list(client: &Client, list: &List, listing: &mut Listing) -> anyhow::Result<()> {
    let path = list.path;
    let mut next = String::new();
    for _ in 0..LIMIT_PAGES {
        let separator = if path.contains('?') { '&' } else { '?' };
        let uri = format!("{path}{separator}limit={PAGE}{next}");
        let request = http::Request::get(uri).body(Vec::new()).context("ask the cluster")?;
        let text = match client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 && !list.required => return Ok(()),
            answer => answer.with_context(|| format!("cannot list {path}"))?,
        };
        let page: Page = serde_json::from_str(&text).with_context(|| format!("cannot read the list of {path}"))?;
        listing.texts.push((path.to_owned(), text.into_bytes()));
        match page.metadata.next {
            Some(token) if !token.is_empty() => next = format!("&continue={}", escaped(&token)),
            _ => {
                if list.watched {
                    listing.versions.push((path, page.metadata.resource_version));
                }
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A token as a part of a query.
fn escaped(token: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    token.bytes().map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[derive(serde::Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
}

#[derive(serde::Deserialize, Default)]
struct ListMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
    #[serde(rename = "resourceVersion", default)]
    resource_version: String,
}
