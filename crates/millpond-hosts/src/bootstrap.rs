//! BootstrapKubeconfigs: the Secret with their kubeconfig, as bootstrap providers of Cluster API report it.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::capi::names::CLUSTER_NAME;
use millpond_api::condition::{Conditions, READY};
use millpond_api::meta::Condition;
use millpond_api::node_class::Kubelet;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, controller_of, is_leaving, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;

use crate::join::{self, Credentials, TOKEN_TTL};
use crate::kinds::BootstrapKubeconfig;
use crate::secrets;
use crate::stock::{Stock, enqueue};

/// Keeps the Secrets of BootstrapKubeconfigs.
pub struct Bootstraps {
    stock: Arc<Stock>,
}

impl Bootstraps {
    /// The controller, and the work queue that watches fill.
    pub fn new(stock: &Arc<Stock>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        enqueue(&stock.bootstrap, &queue);
        (Arc::new(Self { stock: Arc::clone(stock) }), queue)
    }

    /// Makes sure that the Secret is there; says why it is not.
    async fn ensure_secret(&self, config: &BootstrapKubeconfig) -> Result<Result<(), String>> {
        let key = Key::of(config);
        let known = secrets::get(&self.stock.client, &key).await?;
        let is_given = known.is_some_and(|known| controller_of(&known).is_none_or(|owner| owner.uid != config.uid()));
        if is_given {
            return Ok(Ok(()));
        }
        let endpoint = match join::endpoint(&self.stock, &key.namespace, &config.spec).await? {
            Ok(endpoint) => endpoint,
            Err(why) => return Ok(Err(why)),
        };
        let credentials = Credentials {
            kubelet: kubelet_configs(&key),
            key,
            owner: config,
            cluster: config.labels().get(CLUSTER_NAME).map(String::as_str),
            host: None,
            settings: Kubelet::default(),
        };
        join::ensure(&self.stock, &endpoint, credentials).await.map(Ok)
    }
}

/// ConfigMaps with the configuration of kubelets that join with a BootstrapKubeconfig: its own, then kubeadm's.
pub(crate) fn kubelet_configs(config: &Key) -> Vec<Key> {
    vec![config.clone(), Key::new("kube-system", "kubelet-config")]
}

impl Reconcile for Bootstraps {
    const NAME: &'static str = "bootstrapkubeconfig";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(config) = self.stock.bootstrap.get(key).filter(|config| !is_leaving(&**config)) else {
            return Ok(None);
        };
        let mut status = config.status.clone();
        let ready = match self.ensure_secret(&config).await? {
            Ok(()) => {
                status.data_secret_name.clone_from(&key.name);
                status.initialization.data_secret_created = Some(true);
                status.ready = true;
                Condition::holds(READY)
            }
            Err(why) => {
                status.ready = false;
                Condition::fails(READY, "ApiServerUnknown", why)
            }
        };
        let generation = config.metadata.generation.unwrap_or_default();
        Conditions::new(&mut status.conditions, &[], generation, self.stock.now()).set(ready);
        if let Some(patch) = status_patch(&*config, Some(&config.status), &status) {
            self.stock.bootstrap.patch_status(key, &patch).await?;
        }
        // The token is renewed before it expires.
        Ok(Some(TOKEN_TTL / 2))
    }
}
