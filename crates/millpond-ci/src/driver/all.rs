//! The drivers of a configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::fake::FakeCloud;
use super::kube::{self, Contexts};
use super::{Driver, DriverError, Drivers};
use crate::config::{self, Config, Provider};

/// What drivers need of their process; it outlives a change of the configuration.
pub struct Context {
    contexts: Arc<Contexts>,
    /// Simulated clouds keep their servers.
    clouds: Mutex<BTreeMap<String, (Provider, Arc<FakeCloud>)>>,
}

impl Context {
    /// Clusters come from these kubeconfig files.
    pub fn new(kubeconfig: Vec<PathBuf>) -> Self {
        Self::with_contexts(Contexts::new(kubeconfig, None))
    }

    /// Clusters come from these contexts.
    pub fn with_contexts(contexts: Arc<Contexts>) -> Self {
        Self { contexts, clouds: Mutex::default() }
    }

    fn cloud(&self, provider: &Provider) -> Arc<FakeCloud> {
        let mut clouds = self.clouds.lock();
        let known = clouds.get(&provider.name).filter(|(known, _)| known.details == provider.details);
        if let Some((_, cloud)) = known {
            return Arc::clone(cloud);
        }
        let cloud = Arc::new(FakeCloud::new(provider));
        clouds.insert(provider.name.clone(), (provider.clone(), Arc::clone(&cloud)));
        cloud
    }
}

/// The drivers of all providers; static ones have none.
pub fn all(config: &Config, context: &Context) -> Drivers {
    let mut drivers = kube::drivers(config, &context.contexts);
    for provider in &config.providers {
        let driver: Result<Arc<dyn Driver>, DriverError> = match provider.driver {
            config::Driver::Fake => Ok(context.cloud(provider)),
            config::Driver::OpenStack | config::Driver::Metastatic => {
                Err(DriverError::Permanent(format!("the driver `{}` is not there", provider.driver)))
            }
            config::Driver::Static
            | config::Driver::Kubernetes
            | config::Driver::OpenShift
            | config::Driver::OpenShiftPods => continue,
        };
        drivers.insert(provider.name.clone(), driver);
    }
    drivers
}
