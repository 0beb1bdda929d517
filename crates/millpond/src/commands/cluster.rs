//! Objects of a live cluster, through its API: just those kinds that planning looks at, never Secrets.

use std::path::Path;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::failure::Failure;

/// Objects of one request; a list goes on until there are no more.
const PAGE: usize = 500;
/// Pages of one kind: five million objects.
const LIMIT_PAGES: usize = 10_000;

/// What is listed, and whether every cluster has it.
const LISTS: [(&str, bool); 21] = [
    ("/api/v1/namespaces", true),
    ("/api/v1/nodes", true),
    ("/api/v1/pods", true),
    ("/api/v1/configmaps?labelSelector=millpond.dev/catalog", true),
    ("/api/v1/persistentvolumes", true),
    ("/api/v1/persistentvolumeclaims", true),
    ("/apis/storage.k8s.io/v1/storageclasses", true),
    ("/apis/storage.k8s.io/v1/csinodes", true),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", true),
    ("/apis/policy/v1/poddisruptionbudgets", true),
    ("/apis/apps/v1/daemonsets", true),
    ("/apis/apps/v1/replicasets", true),
    ("/apis/apps/v1/statefulsets", true),
    ("/apis/karpenter.sh/v1/nodepools", false),
    ("/apis/karpenter.sh/v1/nodeclaims", false),
    ("/apis/millpond.dev/v1alpha1/nodeclasses", false),
    ("/apis/karpenter.k8s.aws/v1/ec2nodeclasses", false),
    ("/apis/karpenter.k8s.gcp/v1alpha1/gcenodeclasses", false),
    ("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", false),
    ("/apis/sa.gardener.cloud/v1alpha1/scalingconstraints", false),
    ("/apis/sa.gardener.cloud/v1alpha1/clusterscalingconstraints", false),
];

/// Lists everything, as texts with the path that they came from.
pub(super) fn read(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let client = connect(kubeconfig, context).await?;
        let mut texts = Vec::new();
        for (path, required) in LISTS {
            list(&client, path, required, &mut texts).await?;
        }
        Ok(texts)
    })
}

async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Client> {
    Client::try_from(configuration(kubeconfig, context).await?).context("cannot speak to the cluster")
}

async fn configuration(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
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
    let hint = Some("plan for files with `-f PATH`, or name a cluster with `--kubeconfig FILE`".to_owned());
    anyhow::Error::new(Failure { message, code: Some(crate::failure::Code::NotFound), hint })
}

async fn list(client: &Client, path: &str, required: bool, texts: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    let mut next = String::new();
    for _ in 0..LIMIT_PAGES {
        let separator = if path.contains('?') { '&' } else { '?' };
        let uri = format!("{path}{separator}limit={PAGE}{next}");
        let request = http::Request::get(uri).body(Vec::new()).context("ask the cluster")?;
        let text = match client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 && !required => return Ok(()),
            answer => answer.with_context(|| format!("cannot list {path}"))?,
        };
        let page: Page = serde_json::from_str(&text).with_context(|| format!("cannot read the list of {path}"))?;
        texts.push((path.to_owned(), text.into_bytes()));
        match page.metadata.next {
            Some(token) if !token.is_empty() => next = format!("&continue={}", escaped(&token)),
            _ => return Ok(()),
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
}
