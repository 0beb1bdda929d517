//! nodepool.yaml and secure.conf as typed values. Every mistake has a line and a column; one broken provider does not
//! hide the others.
//!
//! `schema` lists the keys, `check` compares a file with them, `read` turns a checked file into a [`Config`].

mod check;
mod diskimage;
mod provider;
mod read;
mod schema;
mod substitute;
#[cfg(test)]
mod tests;
pub mod words;

use std::collections::BTreeMap;

use millpond_api::catalog::import::FileError;
use serde::Deserialize;

pub use diskimage::{DiskImage, Origin};
pub use provider::{
    CloudImage, Driver, LabelDetails, MetastaticLabel, OpenStackLabel, OpenStackPool, OpenStackProvider, PodLabel,
    Pool, PoolLabel, Provider, ProviderDetails, ProviderImage, StaticHost,
};

/// Named amounts: `instances`, `cores`, `ram` (MiB), and others that a file names. A resource that is absent from a
/// limit is not limited.
pub type Resources = BTreeMap<String, u64>;

/// The resource that every node takes one of.
pub const INSTANCES: &str = "instances";
/// Processor cores.
pub const CORES: &str = "cores";
/// Memory in MiB.
pub const RAM: &str = "ram";

/// A whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How to reach ZooKeeper.
    pub zookeeper: ZooKeeper,
    /// Where the web API listens.
    pub webapp: WebApp,
    /// Folders of the image builder.
    pub builder: BuilderFolders,
    /// How long nodes stay on hold at most; `None` means for ever.
    pub max_hold_age_s: Option<u64>,
    /// Limits on the sum of each tenant's nodes, over all pools.
    pub tenant_limits: BTreeMap<String, Resources>,
    /// Labels, with those that only pools name.
    pub labels: BTreeMap<String, Label>,
    /// Images to build, without abstract ones.
    pub diskimages: BTreeMap<String, DiskImage>,
    /// Providers in the order of the file.
    pub providers: Vec<Provider>,
}

/// How to reach ZooKeeper.
#[derive(Debug, Clone, PartialEq)]
pub struct ZooKeeper {
    /// Servers of one ensemble.
    pub servers: Vec<ZooKeeperServer>,
    /// Client certificate and CA; without it, connections are not encrypted.
    pub tls: Option<ZooKeeperTls>,
    /// The session's time-out.
    pub timeout_s: f64,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ZooKeeperServer {
    /// Name or address.
    pub host: String,
    /// Its port for TLS clients.
    #[serde(default = "zookeeper_port")]
    pub port: u16,
    /// The path that all others are below.
    #[serde(default)]
    pub chroot: Option<String>,
}

fn zookeeper_port() -> u16 {
    2281
}

/// Files with certificates and keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ZooKeeperTls {
    /// The client's certificate.
    pub cert: String,
    /// The client's key.
    pub key: String,
    /// The authority that signed the servers' certificates.
    pub ca: String,
}

/// Where the web API listens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WebApp {
    /// The port.
    pub port: u16,
    /// The address; loopback if absent.
    pub listen_address: Option<String>,
}

impl Default for WebApp {
    fn default() -> Self {
        Self { port: 8005, listen_address: None }
    }
}

/// Folders of the image builder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuilderFolders {
    /// Elements of disk images.
    pub elements_dir: Option<String>,
    /// Finished images.
    pub images_dir: Option<String>,
    /// Logs of builds.
    pub build_log_dir: Option<String>,
    /// How many logs of an image are kept; negative keeps all.
    pub build_log_retention: Option<i64>,
}

/// A label that jobs request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Label {
    /// Its name.
    pub name: String,
    /// How many nodes are kept ready.
    #[serde(default)]
    pub min_ready: u64,
    /// After how many seconds a ready node is deleted; 0 means never.
    #[serde(default, rename = "max-ready-age")]
    pub max_ready_age_s: u64,
}

/// The result of reading a configuration.
#[derive(Debug)]
pub struct Reading {
    /// The parts that are right; `None` if the file as a whole cannot be read.
    pub config: Option<Config>,
    /// Errors, in the order of the file.
    pub errors: Vec<FileError>,
    /// Probable mistakes that do no harm.
    pub warnings: Vec<FileError>,
}

impl Reading {
    /// The configuration, if there is no mistake in it.
    pub fn valid(self) -> Result<Config, Vec<FileError>> {
        match self.config {
            Some(config) if self.errors.is_empty() => Ok(config),
            _ => Err(self.errors),
        }
    }
}

/// A file with its name, as messages show it.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// The name.
    pub name: &'a str,
    /// The contents.
    pub text: &'a str,
}

/// Reads nodepool.yaml and, if there is one, secure.conf. `env` gives the value of a variable.
pub fn read(main: File<'_>, secure: Option<File<'_>>, env: &dyn Fn(&str) -> Option<String>) -> Reading {
    read::read(main, secure, env)
}
