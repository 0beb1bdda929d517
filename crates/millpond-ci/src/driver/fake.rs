//! A simulated OpenStack cloud for tests and demonstrations: servers exist in memory, and are ready at once.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Map;

use super::{Driver, DriverError, Instance, Launch, Launched};
use crate::config::{CORES, CloudImage, INSTANCES, LabelDetails, Provider, ProviderDetails, RAM, Resources};
use crate::model::Json;

/// The flavour of every server.
const FLAVOR_CORES: u64 = 4;
const FLAVOR_RAM_MIB: u64 = 8192;

/// Addresses and keys say that nothing is behind them; Nodepool's own simulation does the same.
const ADDRESS: &str = "fake";
const HOST_KEY: &str = "ssh-rsa FAKEKEY";

/// The cloud of one provider.
#[derive(Debug)]
pub struct FakeCloud {
    cloud: String,
    region: Option<String>,
    images: Vec<CloudImage>,
    servers: Mutex<BTreeMap<String, Instance>>,
}

impl FakeCloud {
    /// The cloud of a provider. Its limits are those of the configuration.
    pub fn new(provider: &Provider) -> Self {
        let (cloud, region, images) = match &provider.details {
            ProviderDetails::OpenStack(details) => {
                (details.cloud.clone(), details.region_name.clone(), details.cloud_images.clone())
            }
            _ => (provider.name.clone(), None, Vec::new()),
        };
        Self { cloud, region, images, servers: Mutex::default() }
    }

    fn launch(&self, launch: &Launch) -> Result<Launched, DriverError> {
        let LabelDetails::OpenStack(label) = &launch.details.details else {
            return Err(DriverError::Permanent("the label is none of a cloud".to_owned()));
        };
        if label.min_ram > FLAVOR_RAM_MIB {
            let wanted = label.min_ram;
            return Err(DriverError::Permanent(format!("no flavor has {wanted} MiB of memory")));
        }
        let image = label.cloud_image.as_ref().and_then(|name| self.images.iter().find(|image| image.name == *name));
        let id = {
            let mut servers = self.servers.lock();
            let server = servers.entry(launch.node_id.clone()).or_insert_with(|| Instance {
                node_id: launch.node_id.clone(),
                pool: Some(launch.pool.name.clone()),
                external_id: Some(uuid::Uuid::new_v4().to_string()),
            });
            server.external_id.clone()
        };
        let uploaded = launch.image.as_ref();
        let (username, python) = (image.and_then(|it| it.username.clone()), image.map(|it| it.python_path.clone()));
        Ok(Launched {
            external_id: id,
            cloud: Some(self.cloud.clone()),
            region: self.region.clone(),
            az: Some("az1".to_owned()),
            host_id: Some("fake".to_owned()),
            hostname: Some(format!("np{}", launch.node_id)),
            interface_ip: Some(ADDRESS.to_owned()),
            public_ipv4: Some(ADDRESS.to_owned()),
            private_ipv4: Some(ADDRESS.to_owned()),
            connection_port: Some(Json::of(&image.map_or(22, |image| image.connection_port))),
            connection_type: Some(image.map_or_else(|| "ssh".to_owned(), |image| image.connection_type.clone())),
            username: Some(
                uploaded.map(|image| image.username.clone()).or(username).unwrap_or_else(|| "zuul".to_owned()),
            ),
            python_path: Some(
                uploaded.map(|image| image.python_path.clone()).or(python).unwrap_or_else(|| "auto".to_owned()),
            ),
            shell_type: uploaded.map_or_else(|| image.and_then(|it| it.shell_type.clone()), |it| it.shell_type.clone()),
            host_keys: vec![HOST_KEY.to_owned()],
            image_id: match &launch.image {
                Some(image) => Some(image.upload.path.clone()),
                None => label.cloud_image.clone().or_else(|| label.diskimage.clone()),
            },
            node_properties: Map::new(),
            resources: Some(Resources::from([
                (CORES.to_owned(), FLAVOR_CORES),
                (INSTANCES.to_owned(), 1),
                (RAM.to_owned(), FLAVOR_RAM_MIB),
            ])),
            ..Launched::default()
        })
    }
}

impl Driver for FakeCloud {
    fn launch<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<Launched, DriverError>> {
        Box::pin(std::future::ready(Self::launch(self, launch)))
    }

    fn delete<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<(), DriverError>> {
        self.servers.lock().remove(&instance.node_id);
        Box::pin(std::future::ready(Ok(())))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, DriverError>> {
        let servers = self.servers.lock().values().cloned().collect();
        Box::pin(std::future::ready(Ok(servers)))
    }
}
