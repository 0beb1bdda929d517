//! The drivers of a configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::fake::FakeCloud;
use super::kube::{self, Contexts};
use super::metastatic::Metastatic;
use super::openstack::OpenStack;
use super::{Driver, DriverError, Drivers};
use crate::config::{self, Config, Provider};
use crate::launcher::Backend;
use crate::openstack::Clouds;

/// What drivers need from their process; it is kept when the configuration changes.
pub struct Context {
    contexts: Arc<Contexts>,
    /// Where launchers submit requests of their own.
    backend: Option<Arc<dyn Backend>>,
    /// Drivers of slots know what they gave out.
    slots: Mutex<BTreeMap<String, (Provider, Arc<Metastatic>)>>,
    /// Simulated clouds keep their servers.
    clouds: Mutex<BTreeMap<String, (Provider, Arc<FakeCloud>)>>,
    /// Where the credentials of clouds come from.
    credentials: Clouds,
    /// Sessions with clouds.
    servers: Mutex<BTreeMap<String, (Provider, Arc<OpenStack>)>>,
}

impl Context {
    /// Clusters come from these kubeconfig files.
    pub fn new(kubeconfig: Vec<PathBuf>) -> Self {
        Self::with_contexts(Contexts::new(kubeconfig, None))
    }

    /// Clusters come from these contexts.
    pub fn with_contexts(contexts: Arc<Contexts>) -> Self {
        Self {
            contexts,
            backend: None,
            slots: Mutex::default(),
            clouds: Mutex::default(),
            credentials: Clouds::of_files(),
            servers: Mutex::default(),
        }
    }

    /// Clouds are logged in to with these credentials.
    #[must_use]
    pub fn with_clouds(self, credentials: Clouds) -> Self {
        Self { credentials, ..self }
    }

    /// Backing nodes of metastatic providers are requested from this store.
    #[must_use]
    pub fn with_backend(self, backend: Arc<dyn Backend>) -> Self {
        Self { backend: Some(backend), ..self }
    }

    fn slots(&self, provider: &Provider) -> Result<Arc<dyn Driver>, DriverError> {
        let backend = self
            .backend
            .as_ref()
            .ok_or_else(|| DriverError::Permanent("the driver `metastatic` needs requests in ZooKeeper".to_owned()))?;
        let mut slots = self.slots.lock();
        if let Some((_, driver)) = slots.get(&provider.name).filter(|(known, _)| known == provider) {
            return Ok(Arc::clone(driver) as Arc<dyn Driver>);
        }
        let driver = Arc::new(Metastatic::new(provider, Arc::clone(backend)));
        slots.insert(provider.name.clone(), (provider.clone(), Arc::clone(&driver)));
        Ok(driver)
    }

    fn servers(&self, provider: &Provider) -> Result<Arc<dyn Driver>, DriverError> {
        let mut servers = self.servers.lock();
        if let Some((_, driver)) = servers.get(&provider.name).filter(|(known, _)| known == provider) {
            return Ok(Arc::clone(driver) as Arc<dyn Driver>);
        }
        let driver = Arc::new(OpenStack::new(provider, self.credentials.clone())?);
        servers.insert(provider.name.clone(), (provider.clone(), Arc::clone(&driver)));
        Ok(driver)
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
            config::Driver::Metastatic => context.slots(provider),
            config::Driver::OpenStack => context.servers(provider),
            config::Driver::Static
            | config::Driver::Kubernetes
            | config::Driver::OpenShift
            | config::Driver::OpenShiftPods => continue,
        };
        drivers.insert(provider.name.clone(), driver);
    }
    drivers
}
