//! Drivers whose nodes are pods or namespaces: `kubernetes`, `openshift` and `openshiftpods`.
//!
//! ```text
//!   openshiftpods:  namespace = pool ── pod LABEL-ID, with a service account, role and token of its own
//!   kubernetes:     namespace POOL-ID (type namespace), or a pod LABEL in it (type pod)
//!   openshift:      the same with a project
//! ```
//!
//! Everything that is created carries the labels of Nodepool (`nodepool_node_id` and so on), by which it is found again.

mod account;
mod body;
mod contexts;
mod namespaces;
mod pods;
mod waiting;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::Status;
use tokio::sync::watch;

use super::{Driver as DriverTrait, DriverError, Drivers, Instance, Launch, Launched};
use crate::config::{Config, Driver, LabelDetails, PodLabel, Provider, ProviderDetails};
use crate::model::Node;

pub use contexts::{Contexts, ProvidersSecret, providers_secret};

/// The user that Zuul is in a namespace of its own.
const WORKER: &str = "zuul-worker";
/// Labels of everything that belongs to a node.
const NODE_ID: &str = "nodepool_node_id";
const PROVIDER: &str = "nodepool_provider_name";
const POOL: &str = "nodepool_pool_name";
const LABEL: &str = "nodepool_node_label";

/// Whether this driver is one of those here.
pub fn serves(driver: Driver) -> bool {
    matches!(driver, Driver::Kubernetes | Driver::OpenShift | Driver::OpenShiftPods)
}

/// The drivers of all providers of a configuration that run pods.
pub fn drivers(config: &Config, contexts: &Arc<Contexts>) -> Drivers {
    let providers = config.providers.iter().filter(|provider| serves(provider.driver));
    let drivers = providers.map(|provider| {
        let driver = KubeDriver::new(provider, Arc::clone(contexts));
        (provider.name.clone(), Ok(Arc::new(driver) as Arc<dyn DriverTrait>))
    });
    drivers.collect()
}

/// The driver of one provider.
pub struct KubeDriver {
    kind: Driver,
    provider: String,
    context: Option<String>,
    /// Namespaces of `openshiftpods`, prefixes of names elsewhere.
    pools: Vec<String>,
    contexts: Arc<Contexts>,
    /// Whether the provider's own token was handed out for want of rights; reported once.
    told: watch::Sender<bool>,
}

impl KubeDriver {
    /// The driver of a provider.
    pub fn new(provider: &Provider, contexts: Arc<Contexts>) -> Self {
        let context = match &provider.details {
            ProviderDetails::Pods { context } => context.clone(),
            _ => None,
        };
        Self {
            kind: provider.driver,
            provider: provider.name.clone(),
            context,
            pools: provider.pools.iter().map(|pool| pool.name.clone()).collect(),
            contexts,
            told: watch::Sender::new(false),
        }
    }

    fn label(launch: &Launch) -> Result<&PodLabel, DriverError> {
        match &launch.details.details {
            LabelDetails::Pod(label) => Ok(label),
            _ => Err(DriverError::Permanent(format!("the label `{}` is not one of pods", launch.label))),
        }
    }

    /// Says once for each provider that its own token is handed out.
    fn tell_of_shared_token(&self, message: &str) {
        if !self.told.send_replace(true) {
            tracing::warn!(
                provider = self.provider,
                reason = message,
                "no rights for a service account per node: jobs get the token of the provider"
            );
        }
    }
}

impl DriverTrait for KubeDriver {
    fn launch<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<Launched, DriverError>> {
        async move {
            let label = Self::label(launch)?;
            match self.kind {
                Driver::OpenShiftPods => self.launch_pod(launch, label).await,
                _ => self.launch_namespace(launch, label).await,
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<(), DriverError>> {
        async move {
            match self.kind {
                Driver::OpenShiftPods => Box::pin(self.delete_pod(instance)).await,
                _ => self.delete_namespace(instance).await,
            }
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, DriverError>> {
        async move {
            match self.kind {
                Driver::OpenShiftPods => self.list_pods().await,
                _ => self.list_namespaces().await,
            }
        }
        .boxed()
    }

    fn check<'a>(&'a self, node_id: &'a str, node: &'a Node) -> BoxFuture<'a, Result<(), DriverError>> {
        self.check_node(node_id, node).boxed()
    }
}

/// Translates an error of the API into one of a launch.
fn refused(doing: &str, error: &kube::Error) -> DriverError {
    match error {
        kube::Error::Api(status) if is_quota(status) => DriverError::Capacity(status.message.clone()),
        kube::Error::Api(status) if status.is_forbidden() || status.is_invalid() || status.code == 400 => {
            DriverError::Permanent(format!("cannot {doing}: {}", status.message))
        }
        kube::Error::Api(status) => DriverError::Transient(format!("cannot {doing}: {}", status.message)),
        // Other errors of the client may hold addresses, never credentials.
        other => DriverError::Transient(format!("cannot {doing}: {other}")),
    }
}

fn is_quota(status: &Status) -> bool {
    status.message.to_lowercase().contains("exceeded quota")
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Takes what is there already for what was to be created.
fn created<T>(outcome: kube::Result<T>, doing: &str) -> Result<Option<T>, DriverError> {
    match outcome {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(error) => Err(refused(doing, &error)),
    }
}
