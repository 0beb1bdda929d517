//! What creates nodes: one [`Driver`] per provider. A driver knows machines, pods or slots; it knows nothing of requests,
//! limits or locks, and keeps nothing in memory that a restart would lose: everything it creates carries the id of its
//! node, and is found again through [`Driver::list`].
//!
//! Deliberately absent: back-off and retries of launches, quotas, timing of deletions. The launcher does these, once and
//! alike for all drivers. Static hosts are not launched, see [`hosts`].

mod all;
mod fake;
pub mod hostkeys;
pub mod hosts;
pub mod kube;
mod metastatic;
mod openstack;
mod template;

pub use all::{Context, all};
pub use fake::FakeCloud;
pub use metastatic::Metastatic;
pub use openstack::OpenStack;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::config::{Config, Pool, PoolLabel, Resources};
use crate::model::{Json, Node, NodeRequest};

/// Creates the nodes of one provider.
///
/// Every call may be dropped at any await point and may be repeated.
pub trait Driver: Send + Sync + 'static {
    /// Creates a node and waits until it can be used.
    ///
    /// The same node id never makes two instances: a call for an id that has one already continues with it.
    fn launch<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<Launched, DriverError>>;

    /// Deletes an instance and waits until it is gone. An instance that is not there is gone.
    fn delete<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<(), DriverError>>;

    /// Everything in the provider that carries a node id. The launcher deletes what belongs to no node.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, DriverError>>;

    /// Whether a ready node still works; asked before a node that was ready for a while is handed out.
    fn check<'a>(&'a self, _node_id: &'a str, _node: &'a Node) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Limits that the provider itself has, beside those of the configuration. A resource that is absent is not limited.
    fn limits(&self) -> BoxFuture<'_, Result<Resources, DriverError>> {
        Box::pin(std::future::ready(Ok(Resources::new())))
    }

    /// The usage of a node of each label, by pool and label, if the provider knows more than the configuration.
    fn sizes(&self) -> BoxFuture<'_, Result<Sizes, DriverError>> {
        Box::pin(std::future::ready(Ok(Sizes::new())))
    }
}

/// The usage of nodes that counts against limits, by pool and label.
pub type Sizes = BTreeMap<(String, String), Resources>;

/// An upload of a disk image that servers can boot from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadedImage {
    /// The provider's id of it.
    pub external_id: String,
    /// The path of its record in the store, which the node's record contains.
    pub path: String,
}

/// The newest ready uploads, by image and provider.
pub type Uploads = BTreeMap<(String, String), UploadedImage>;

/// Settings of a disk image for its servers, and its newest upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchImage {
    /// The upload.
    pub upload: UploadedImage,
    /// The user that Zuul logs in as.
    pub username: String,
    /// Its Python.
    pub python_path: String,
    /// Its shell.
    pub shell_type: Option<String>,
}

/// The inputs of a launch.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The id of the node's record; the instance must carry it.
    pub node_id: String,
    /// The provider's name.
    pub provider: String,
    /// The pool.
    pub pool: Arc<Pool>,
    /// The label's name.
    pub label: String,
    /// The label in this pool.
    pub details: Arc<PoolLabel>,
    /// The request that the node is for, with its id; `None` for a node that is kept ready.
    pub request: Option<(String, Arc<NodeRequest>)>,
    /// The image to boot from, if the label names a disk image that is uploaded.
    pub image: Option<LaunchImage>,
}

/// Something that exists in the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The node that it belongs to, as its tags say.
    pub node_id: String,
    /// The pool of that node, if the provider tells.
    pub pool: Option<String>,
    /// The provider's id of it. `None` where the launch was cut off before an id was known: then the driver finds it by
    /// its node id.
    pub external_id: Option<String>,
}

/// How a node is reached, and what else its record says about it. Fields that are `None` leave the record as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Launched {
    /// The provider's id.
    pub external_id: Option<String>,
    /// The provider's name in the cloud.
    pub cloud: Option<String>,
    /// Availability zone.
    pub az: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// The physical host.
    pub host_id: Option<String>,
    /// Name.
    pub hostname: Option<String>,
    /// The address that Zuul connects to.
    pub interface_ip: Option<String>,
    /// Public IPv4 address.
    pub public_ipv4: Option<String>,
    /// Private IPv4 address.
    pub private_ipv4: Option<String>,
    /// Public IPv6 address.
    pub public_ipv6: Option<String>,
    /// The port, or for Kubernetes a map with the credentials of this node alone.
    pub connection_port: Option<Json>,
    /// ssh, winrm, kubectl, namespace, project …
    pub connection_type: Option<String>,
    /// The user that Zuul logs in as.
    pub username: Option<String>,
    /// Python.
    pub python_path: Option<String>,
    /// Shell.
    pub shell_type: Option<String>,
    /// Host keys, as `TYPE BASE64`.
    pub host_keys: Vec<String>,
    /// The image.
    pub image_id: Option<String>,
    /// Data of the driver's own.
    pub driver_data: Option<Json>,
    /// spot, fleet …
    pub node_properties: Map<String, Value>,
    /// The usage that counts against limits, if it is known better than from the label.
    pub resources: Option<Resources>,
}

/// Why a driver did not do what it was asked for. Messages hold no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The provider has no room: quota or capacity. The request is decided again, and the label backs off.
    #[error("no capacity: {0}")]
    Capacity(String),
    /// A retry may succeed.
    #[error("{0}")]
    Transient(String),
    /// It fails until the configuration or the provider is changed.
    #[error("{0}")]
    Permanent(String),
}

impl DriverError {
    /// The word in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Capacity(_) => "quota",
            Self::Transient(_) => "unknown",
            Self::Permanent(_) => "permanent",
        }
    }
}

/// Creates the drivers of a configuration, by provider. A provider whose driver cannot be created has the reason
/// instead; the others work. Static providers have no driver.
pub type Factory = Arc<dyn Fn(&Config) -> Drivers + Send + Sync>;

/// Drivers by the name of their provider.
pub type Drivers = BTreeMap<String, Result<Arc<dyn Driver>, DriverError>>;

impl Launched {
    /// Writes the known properties into a node's record.
    pub fn write_to(self, node: &mut Node) {
        fn set<T>(target: &mut Option<T>, value: Option<T>) {
            if value.is_some() {
                *target = value;
            }
        }
        set(&mut node.external_id, self.external_id);
        set(&mut node.cloud, self.cloud);
        set(&mut node.az, self.az);
        set(&mut node.region, self.region);
        set(&mut node.host_id, self.host_id);
        set(&mut node.hostname, self.hostname);
        set(&mut node.interface_ip, self.interface_ip);
        set(&mut node.public_ipv4, self.public_ipv4);
        set(&mut node.private_ipv4, self.private_ipv4);
        set(&mut node.public_ipv6, self.public_ipv6);
        if let Some(port) = self.connection_port {
            node.set_port(port);
        }
        set(&mut node.connection_type, self.connection_type);
        set(&mut node.username, self.username);
        set(&mut node.python_path, self.python_path);
        set(&mut node.shell_type, self.shell_type);
        if !self.host_keys.is_empty() {
            node.host_keys = self.host_keys;
        }
        set(&mut node.image_id, self.image_id);
        set(&mut node.driver_data, self.driver_data);
        if !self.node_properties.is_empty() {
            node.node_properties = Some(self.node_properties);
        }
        set(&mut node.resources, self.resources);
    }
}
