//! Clusters by the name of their context. Contexts come from the Secret `nodepool-providers-secrets` (key `kube.config`)
//! and from the files of `KUBECONFIG` or `~/.kube/config`; both are followed: what changes is used for the next call.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::DriverError;
use crate::openstack::FILE_NAMES;

/// The Secret of Software Factory with the files of providers.
const PROVIDERS_SECRET: &str = "nodepool-providers-secrets";
/// Its key with contexts.
const KUBE_CONFIG: &str = "kube.config";

/// A cluster that can be spoken to.
pub(super) struct Cluster {
    /// The client.
    pub(super) client: Client,
    /// The API server's address.
    pub(super) host: String,
    /// Its authority in PEM, as base64.
    pub(super) ca: Option<String>,
    /// Whether certificates are not verified.
    pub(super) skip_tls: bool,
    /// The provider's own token, where it has one.
    pub(super) token: Option<String>,
}

/// Where contexts come from.
pub struct Contexts {
    files: Vec<PathBuf>,
    secret: Option<watch::Receiver<Option<String>>>,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    /// The version of the Secret that the clusters were built from.
    source: Option<Fingerprint>,
    clusters: BTreeMap<Option<String>, Arc<Cluster>>,
}

/// Tells whether what contexts come from has changed.
#[derive(Debug, Clone, PartialEq)]
struct Fingerprint {
    files: Vec<Option<(SystemTime, u64)>>,
    secret: Option<String>,
}

impl Contexts {
    /// Contexts of these files, and of the providers' Secret where it is watched.
    pub fn new(files: Vec<PathBuf>, secret: Option<watch::Receiver<Option<String>>>) -> Arc<Self> {
        Arc::new(Self { files, secret, cache: Mutex::default() })
    }

    /// The cluster of a context; the current one for none.
    pub(super) async fn cluster(&self, context: Option<&str>) -> Result<Arc<Cluster>, DriverError> {
        let secret = self.secret.as_ref().and_then(|secret| secret.borrow().clone());
        let source = Fingerprint { files: self.files.iter().map(stamp).collect(), secret };
        let name = context.map(ToOwned::to_owned);
        {
            let mut cache = self.cache.lock();
            if cache.source.as_ref() != Some(&source) {
                *cache = Cache { source: Some(source.clone()), clusters: BTreeMap::new() };
            }
            if let Some(cluster) = cache.clusters.get(&name) {
                return Ok(Arc::clone(cluster));
            }
        }
        let cluster = Arc::new(self.connect(context, source.secret.as_deref()).await?);
        let mut cache = self.cache.lock();
        if cache.source.as_ref() == Some(&source) {
            cache.clusters.insert(name, Arc::clone(&cluster));
        }
        Ok(cluster)
    }

    async fn connect(&self, context: Option<&str>, secret: Option<&str>) -> Result<Cluster, DriverError> {
        let unusable = |what: &str, error: &dyn std::fmt::Display| {
            DriverError::Permanent(format!("cannot use the kubeconfig {what}: {error}"))
        };
        if let Some(text) = secret {
            let read = Kubeconfig::from_yaml(text)
                .map_err(|error| unusable(&format!("in the Secret `{PROVIDERS_SECRET}`"), &error))?;
            if has(&read, context) {
                return cluster(read, context).await;
            }
        }
        let mut merged: Option<Kubeconfig> = None;
        for file in self.files.iter().filter(|file| file.exists()) {
            let read =
                Kubeconfig::read_from(file).map_err(|error| unusable(&format!("`{}`", file.display()), &error))?;
            merged = Some(match merged {
                None => read,
                Some(first) => first.merge(read).map_err(|error| unusable("files together", &error))?,
            });
        }
        match merged {
            Some(read) if has(&read, context) => cluster(read, context).await,
            None if context.is_none() => in_cluster(),
            // The context may still be added.
            _ => Err(DriverError::Transient(match context {
                Some(context) => format!("no kubeconfig has the context `{context}`"),
                None => "no kubeconfig has a current context".to_owned(),
            })),
        }
    }
}

fn stamp(file: &PathBuf) -> Option<(SystemTime, u64)> {
    let about = std::fs::metadata(file).ok()?;
    Some((about.modified().ok()?, about.len()))
}

fn has(read: &Kubeconfig, context: Option<&str>) -> bool {
    let Some(wanted) = context.or(read.current_context.as_deref()) else { return false };
    read.contexts.iter().any(|known| known.name == wanted)
}

async fn cluster(read: Kubeconfig, context: Option<&str>) -> Result<Cluster, DriverError> {
    let options = KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    let unusable = |error: &dyn std::fmt::Display| {
        let name = context.unwrap_or("the current one");
        DriverError::Permanent(format!("cannot use the context `{name}` of the kubeconfig: {error}"))
    };
    let named = context.or(read.current_context.as_deref()).unwrap_or_default();
    let entry = read.contexts.iter().find(|known| known.name == named).and_then(|known| known.context.clone());
    let about = entry.as_ref().and_then(|entry| {
        read.clusters.iter().find(|known| known.name == entry.cluster).and_then(|known| known.cluster.clone())
    });
    let ca = about.as_ref().and_then(|about| match (&about.certificate_authority_data, &about.certificate_authority) {
        (Some(data), _) => Some(data.clone()),
        (None, Some(file)) => std::fs::read(file).ok().map(|pem| STANDARD.encode(pem)),
        (None, None) => None,
    });
    let mut config = Config::from_custom_kubeconfig(read, &options).await.map_err(|error| unusable(&error))?;
    let token = token_of(&config);
    let (host, skip_tls) =
        (config.cluster_url.to_string().trim_end_matches('/').to_owned(), config.accept_invalid_certs);
    // The launcher decides itself when to retry.
    config.default_retry = false;
    let client = Client::try_from(config).map_err(|error| unusable(&error))?;
    Ok(Cluster { client, host, ca, skip_tls, token })
}

fn token_of(config: &Config) -> Option<String> {
    use secrecy::ExposeSecret as _;
    let auth = &config.auth_info;
    let from_file = || std::fs::read_to_string(auth.token_file.as_ref()?).ok().map(|text| text.trim().to_owned());
    auth.token.as_ref().map(|token| token.expose_secret().to_owned()).or_else(from_file)
}

fn in_cluster() -> Result<Cluster, DriverError> {
    let config = Config::incluster()
        .map_err(|_| DriverError::Permanent("there is no kubeconfig, and this is no pod of a cluster".to_owned()))?;
    let (host, skip_tls, token) = (
        config.cluster_url.to_string().trim_end_matches('/').to_owned(),
        config.accept_invalid_certs,
        token_of(&config),
    );
    let ca = std::fs::read("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt").ok().map(|pem| STANDARD.encode(pem));
    let client = Client::try_from(config).map_err(|error| DriverError::Permanent(error.to_string()))?;
    Ok(Cluster { client, host, ca, skip_tls, token })
}

/// The present content of the providers' Secret.
#[derive(Clone)]
pub struct ProvidersSecret {
    /// `kube.config`
    pub contexts: watch::Receiver<Option<String>>,
    /// `clouds.yaml`, or `cloud.yaml` where that is absent.
    pub clouds: watch::Receiver<Option<String>>,
}

/// Follows the providers' Secret of a namespace until the token is cancelled.
pub fn providers_secret(
    client: Client,
    namespace: &str,
    stop: CancellationToken,
) -> (ProvidersSecret, impl Future<Output = ()> + Send + use<>) {
    let ((contexts, contexts_seen), (clouds, clouds_seen)) = (watch::channel(None), watch::channel(None));
    let api = Api::<Secret>::namespaced(client, namespace);
    let follow = async move {
        let config = watcher::Config::default().fields(&format!("metadata.name={PROVIDERS_SECRET}"));
        let mut events = std::pin::pin!(watcher(api, config).default_backoff());
        let mut listed = false;
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            match event {
                Ok(watcher::Event::Init) => listed = false,
                Ok(watcher::Event::InitApply(secret) | watcher::Event::Apply(secret)) => {
                    listed = true;
                    contexts.send_if_modified(|known| replace(known, file_in(&secret, &[KUBE_CONFIG])));
                    clouds.send_if_modified(|known| replace(known, file_in(&secret, &FILE_NAMES)));
                }
                Ok(watcher::Event::InitDone) if listed => {}
                Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => {
                    contexts.send_if_modified(|known| replace(known, None));
                    clouds.send_if_modified(|known| replace(known, None));
                }
                Err(error) => tracing::debug!(%error, "cannot watch the Secret of providers"),
            }
        }
    };
    (ProvidersSecret { contexts: contexts_seen, clouds: clouds_seen }, follow)
}

/// The first of these files that the Secret has.
fn file_in(secret: &Secret, names: &[&str]) -> Option<String> {
    let data = secret.data.as_ref()?;
    let bytes = names.iter().find_map(|name| data.get(*name))?;
    Some(String::from_utf8_lossy(&bytes.0).into_owned())
}

fn replace(known: &mut Option<String>, now: Option<String>) -> bool {
    let changed = *known != now;
    *known = now;
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(server: &str, context: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
             clusters: [{{name: c, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}]\n\
             contexts: [{{name: {context}, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{token: abc}}}}]\n"
        )
    }

    #[tokio::test]
    async fn a_changed_file_is_used_for_the_next_call() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let contexts = Contexts::new(vec![file.clone()], None);
        let missing = contexts.cluster(Some("one")).await.err().unwrap();
        assert_eq!(missing, DriverError::Transient("no kubeconfig has the context `one`".to_owned()));
        std::fs::write(&file, kubeconfig("https://192.0.2.1:6443", "one")).unwrap();
        let cluster = contexts.cluster(Some("one")).await.unwrap();
        assert_eq!((cluster.host.as_str(), cluster.token.as_deref()), ("https://192.0.2.1:6443", Some("abc")));
        assert!(cluster.skip_tls);
        // The same cluster while nothing changes.
        assert!(Arc::ptr_eq(&cluster, &contexts.cluster(Some("one")).await.unwrap()));
        std::fs::write(&file, kubeconfig("https://192.0.2.22:6443", "one")).unwrap();
        assert_eq!(contexts.cluster(Some("one")).await.unwrap().host, "https://192.0.2.22:6443");
        assert_eq!(contexts.cluster(None).await.unwrap().host, "https://192.0.2.22:6443");
    }

    #[test]
    fn clouds_have_two_names_in_the_secret() {
        let secret = |names: &[&str]| {
            let data = names.iter().map(|name| ((*name).to_owned(), k8s_openapi::ByteString(name.as_bytes().to_vec())));
            Secret { data: Some(data.collect()), ..Secret::default() }
        };
        let of = |names: &[&str]| file_in(&secret(names), &FILE_NAMES);
        assert_eq!(of(&["cloud.yaml", "kube.config"]).as_deref(), Some("cloud.yaml"));
        assert_eq!(of(&["cloud.yaml", "clouds.yaml"]).as_deref(), Some("clouds.yaml"));
        assert_eq!(of(&["kube.config"]), None);
    }

    #[tokio::test]
    async fn the_secret_comes_first_where_it_has_the_context() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, kubeconfig("https://192.0.2.1:6443", "one")).unwrap();
        let (sender, receiver) = watch::channel(Some(kubeconfig("https://192.0.2.2:6443", "openshiftpods")));
        let contexts = Contexts::new(vec![file], Some(receiver));
        assert_eq!(contexts.cluster(Some("openshiftpods")).await.unwrap().host, "https://192.0.2.2:6443");
        assert_eq!(contexts.cluster(Some("one")).await.unwrap().host, "https://192.0.2.1:6443");
        sender.send_replace(None);
        assert!(contexts.cluster(Some("openshiftpods")).await.is_err());
    }
}
