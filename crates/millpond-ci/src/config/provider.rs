//! Providers, their pools, and the labels that a pool can provide.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{CORES, INSTANCES, RAM, Resources};

/// The driver of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Driver {
    /// Hosts that exist already.
    Static,
    /// Pods or namespaces.
    Kubernetes,
    /// Pods or projects.
    OpenShift,
    /// Pods in namespaces that exist already.
    OpenShiftPods,
    /// Servers of an OpenStack cloud.
    OpenStack,
    /// Slots of larger nodes that are themselves requested.
    Metastatic,
    /// A simulated OpenStack cloud.
    Fake,
}

impl Driver {
    /// Every driver that is built.
    pub const ALL: [Self; 7] = [
        Self::Static,
        Self::Kubernetes,
        Self::OpenShift,
        Self::OpenShiftPods,
        Self::OpenStack,
        Self::Metastatic,
        Self::Fake,
    ];

    /// Drivers of Nodepool that Millpond does not have.
    pub const NOT_BUILT: [&'static str; 4] = ["aws", "azure", "gce", "ibmvpc"];

    /// Its name in nodepool.yaml.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Kubernetes => "kubernetes",
            Self::OpenShift => "openshift",
            Self::OpenShiftPods => "openshiftpods",
            Self::OpenStack => "openstack",
            Self::Metastatic => "metastatic",
            Self::Fake => "fake",
        }
    }

    /// The driver of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|driver| driver.name() == name)
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The priority of pools and providers that have none of their own.
pub(super) const DEFAULT_PRIORITY: i64 = 100;

/// A provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider {
    /// Its name.
    pub name: String,
    /// The driver that creates its nodes.
    pub driver: Driver,
    /// How many requests are handled at a time; `None` is unlimited, 0 disables the provider.
    pub max_concurrency: Option<u64>,
    /// Limits on the sum of its nodes, over all pools.
    pub limits: Resources,
    /// How often a launch is tried.
    pub launch_retries: u64,
    /// Settings of the driver.
    pub details: ProviderDetails,
    /// Its pools in the order of the file.
    pub pools: Vec<Pool>,
}

impl Provider {
    /// How long one attempt to launch a node may take.
    pub fn launch_timeout_s(&self) -> Option<u64> {
        match &self.details {
            ProviderDetails::OpenStack(details) => Some(details.launch_timeout_s),
            ProviderDetails::Metastatic { launch_timeout_s, .. } => Some(*launch_timeout_s),
            ProviderDetails::None | ProviderDetails::Pods { .. } => None,
        }
    }
}

/// Settings of a provider that depend on its driver.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderDetails {
    /// No settings beyond the pools.
    None,
    /// Pods: the context of the kubeconfig file.
    Pods {
        /// `None` is the current context.
        context: Option<String>,
    },
    /// OpenStack, or its simulation.
    OpenStack(Box<OpenStackProvider>),
    /// Slots of larger nodes.
    Metastatic {
        /// How long a node may take to boot.
        boot_timeout_s: u64,
        /// How long a launch may take.
        launch_timeout_s: u64,
    },
}

/// A pool of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Pools with lower numbers get a request first.
    pub priority: i64,
    /// Limits on the sum of its nodes.
    pub limits: Resources,
    /// Attributes of its nodes; Zuul reads `executor-zone`.
    pub node_attributes: Option<Map<String, Value>>,
    /// What it can provide, by name.
    pub labels: BTreeMap<String, PoolLabel>,
    /// Hosts of a static pool.
    pub hosts: Vec<StaticHost>,
    /// How servers of it are made, where they come from OpenStack or its simulation.
    pub openstack: Option<OpenStackPool>,
}

/// A label of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolLabel {
    /// The usage of one node that counts against limits.
    pub resources: Resources,
    /// How a node of it is made.
    pub details: LabelDetails,
}

/// How a node of a label is made.
#[derive(Debug, Clone, PartialEq)]
pub enum LabelDetails {
    /// A host of the pool has it.
    Static,
    /// A pod or a namespace.
    Pod(Box<PodLabel>),
    /// A server.
    OpenStack(Box<OpenStackLabel>),
    /// A slot.
    Metastatic(MetastaticLabel),
}

/// A host that exists already.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StaticHost {
    /// Name or address; also how Zuul reaches it.
    pub name: String,
    /// The labels that it can be requested by.
    #[serde(deserialize_with = "words")]
    pub labels: Vec<String>,
    /// The user that Zuul logs in as.
    #[serde(default = "zuul")]
    pub username: String,
    /// How long a connection may take.
    #[serde(default = "five", rename = "timeout")]
    pub timeout_s: u64,
    /// Keys that it may show; all if empty.
    #[serde(default, rename = "host-key", deserialize_with = "texts")]
    pub host_keys: Vec<String>,
    /// Whether keys are gathered before it is handed out.
    #[serde(default = "yes")]
    pub host_key_checking: bool,
    /// The port.
    #[serde(default)]
    pub connection_port: Option<u16>,
    /// The port, by its older name.
    #[serde(default)]
    pub ssh_port: Option<u16>,
    /// ssh, winrm, network_cli …
    #[serde(default = "ssh")]
    pub connection_type: String,
    /// Its shell.
    #[serde(default)]
    pub shell_type: Option<String>,
    /// How many jobs may use it at a time.
    #[serde(default = "one")]
    pub max_parallel_jobs: u32,
    /// Its Python.
    #[serde(default = "auto")]
    pub python_path: String,
}

impl StaticHost {
    /// The port that Zuul connects to.
    pub fn port(&self) -> u16 {
        self.connection_port.or(self.ssh_port).unwrap_or(22)
    }
}

/// A pod or a namespace.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PodLabel {
    /// Its name.
    pub name: String,
    /// `pod`, `namespace` or `project`; `openshiftpods` knows pods only.
    #[serde(default = "pod", rename = "type")]
    pub kind: String,
    /// A whole pod spec, which takes the place of all other settings.
    pub spec: Option<Map<String, Value>>,
    /// The image.
    pub image: Option<String>,
    /// When the image is pulled.
    #[serde(default = "if_not_present")]
    pub image_pull: String,
    /// Secrets for the registry.
    #[serde(default)]
    pub image_pull_secrets: Vec<Value>,
    /// Requested cores.
    pub cpu: Option<u64>,
    /// Requested memory in MiB.
    pub memory: Option<u64>,
    /// Requested ephemeral storage in MiB.
    pub storage: Option<u64>,
    /// Limit of cores.
    pub cpu_limit: Option<u64>,
    /// Limit of memory in MiB.
    pub memory_limit: Option<u64>,
    /// Limit of ephemeral storage in MiB.
    pub storage_limit: Option<u64>,
    /// GPUs.
    pub gpu: Option<f64>,
    /// The resource that GPUs are requested as.
    pub gpu_resource: Option<String>,
    /// Environment of the container.
    #[serde(default)]
    pub env: Vec<BTreeMap<String, String>>,
    /// Labels of Kubernetes nodes that it may run on.
    pub node_selector: Option<Map<String, Value>>,
    /// Whether the container is privileged.
    pub privileged: Option<bool>,
    /// The scheduler.
    pub scheduler_name: Option<String>,
    /// Volumes.
    #[serde(default)]
    pub volumes: Vec<Value>,
    /// Their mounts.
    #[serde(default)]
    pub volume_mounts: Vec<Value>,
    /// Labels of the pod.
    #[serde(default)]
    pub labels: Map<String, Value>,
    /// Labels of the pod that are templates over the request.
    #[serde(default)]
    pub dynamic_labels: Map<String, Value>,
    /// Annotations of the pod.
    #[serde(default)]
    pub annotations: Map<String, Value>,
    /// Further requested resources.
    #[serde(default)]
    pub extra_resources: BTreeMap<String, u64>,
    /// Python in the container.
    #[serde(default = "auto")]
    pub python_path: String,
    /// The container's shell.
    pub shell_type: Option<String>,
}

/// Settings of an OpenStack provider.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OpenStackProvider {
    /// The entry of `clouds.yaml`.
    pub cloud: String,
    /// The region.
    pub region_name: Option<String>,
    /// How long a node may take to boot.
    #[serde(default = "minute", rename = "boot-timeout")]
    pub boot_timeout_s: u64,
    /// How long a launch may take.
    #[serde(default = "hour", rename = "launch-timeout")]
    pub launch_timeout_s: u64,
    /// Calls a second.
    #[serde(default = "one_second")]
    pub rate: f64,
    /// Images of the cloud.
    #[serde(default)]
    pub cloud_images: Vec<CloudImage>,
    /// Disk images that are uploaded to it.
    #[serde(default)]
    pub diskimages: Vec<ProviderImage>,
    /// How uploaded images are named.
    #[serde(default = "image_name_format")]
    pub image_name_format: String,
    /// How long an upload may take.
    #[serde(default = "hour", rename = "image-upload-timeout")]
    pub image_upload_timeout_s: u64,
    /// A command that runs after an upload; an upload that it fails for is deleted.
    pub post_upload_hook: Option<String>,
}

/// How the servers of a pool are made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OpenStackPool {
    /// Names or ids of networks; those that Nova chooses if empty.
    #[serde(default)]
    pub networks: Vec<String>,
    /// Security groups.
    #[serde(default)]
    pub security_groups: Vec<String>,
    /// Zones, of which each request gets one.
    #[serde(default)]
    pub availability_zones: Vec<String>,
    /// Whether a server without a public address gets a floating one.
    #[serde(default = "yes")]
    pub auto_floating_ip: bool,
    /// Whether host keys are gathered before a server is handed out.
    #[serde(default = "yes")]
    pub host_key_checking: bool,
    /// Whether the project's quota is not looked at.
    #[serde(default)]
    pub ignore_provider_quota: bool,
}

impl Default for OpenStackPool {
    fn default() -> Self {
        Self {
            networks: Vec::new(),
            security_groups: Vec::new(),
            availability_zones: Vec::new(),
            auto_floating_ip: true,
            host_key_checking: true,
            ignore_provider_quota: false,
        }
    }
}

/// A disk image of a provider.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProviderImage {
    /// The disk image.
    pub name: String,
    /// Whether its uploads are paused.
    #[serde(default)]
    pub pause: bool,
    /// Properties of the uploaded image, beside those of the disk image.
    #[serde(default)]
    pub meta: Map<String, Value>,
    /// Whether servers get a config drive.
    pub config_drive: Option<bool>,
    /// ssh, winrm …
    #[serde(default = "ssh")]
    pub connection_type: String,
    /// The port that Zuul connects to.
    pub connection_port: Option<u16>,
}

/// An image of the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CloudImage {
    /// Its name in labels.
    pub name: String,
    /// Its id in the cloud.
    pub image_id: Option<String>,
    /// Its name in the cloud.
    pub image_name: Option<String>,
    /// Whether servers get a config drive.
    pub config_drive: Option<bool>,
    /// The user that Zuul logs in as.
    pub username: Option<String>,
    /// Its Python.
    #[serde(default = "auto")]
    pub python_path: String,
    /// Its shell.
    pub shell_type: Option<String>,
    /// ssh, winrm …
    #[serde(default = "ssh")]
    pub connection_type: String,
    /// The port that Zuul connects to.
    #[serde(default = "ssh_port")]
    pub connection_port: u16,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OpenStackLabel {
    /// Its name.
    pub name: String,
    /// The disk image.
    pub diskimage: Option<String>,
    /// The image of the cloud.
    pub cloud_image: Option<String>,
    /// The least memory of its flavour, in MiB.
    #[serde(default)]
    pub min_ram: u64,
    /// The flavour, or a part of its name.
    pub flavor_name: Option<String>,
    /// The key pair.
    pub key_name: Option<String>,
    /// Whether the console is logged when a launch fails.
    #[serde(default)]
    pub console_log: bool,
    /// Whether it boots from a volume.
    #[serde(default)]
    pub boot_from_volume: bool,
    /// The volume's size in GiB.
    #[serde(default = "fifty")]
    pub volume_size: u64,
    /// Metadata of the server.
    #[serde(default)]
    pub instance_properties: Map<String, Value>,
    /// Metadata of the server that are templates over the request.
    #[serde(default)]
    pub dynamic_instance_properties: Map<String, Value>,
    /// User data.
    pub userdata: Option<String>,
    /// Networks; those of the pool if absent.
    pub networks: Option<Vec<String>>,
    /// Whether host keys are gathered; as the pool says if absent.
    pub host_key_checking: Option<bool>,
}

/// A slot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MetastaticLabel {
    /// Its name.
    pub name: String,
    /// The label of the node that has the slots.
    pub backing_label: String,
    /// Slots of one node.
    #[serde(default = "one")]
    pub max_parallel_jobs: u32,
    /// How long an empty node is kept.
    #[serde(default = "minute", rename = "grace-time")]
    pub grace_time_s: u64,
    /// How long a node is kept at least.
    #[serde(default, rename = "min-retention-time")]
    pub min_retention_time_s: u64,
    /// After how long a node gets no new jobs.
    #[serde(rename = "max-age")]
    pub max_age_s: Option<u64>,
}

/// The names of limits in nodepool.yaml.
const LIMIT_KEYS: &[(&str, &str)] = &[
    ("max-servers", INSTANCES),
    ("max-projects", INSTANCES),
    ("max-pods", INSTANCES),
    ("max-cores", CORES),
    ("max-ram", RAM),
    ("max-volumes", "volumes"),
    ("max-volume-gb", "volume-gb"),
];

/// The limits among the keys of a provider, a pool or a tenant.
pub(super) fn limits(entries: &Map<String, Value>) -> Resources {
    let named = LIMIT_KEYS.iter().filter_map(|(key, resource)| Some((*resource, entries.get(*key)?.as_u64()?)));
    let mut limits: Resources = named.map(|(resource, limit)| (resource.to_owned(), limit)).collect();
    if let Some(Value::Object(others)) = entries.get("max-resources") {
        limits.extend(others.iter().filter_map(|(name, limit)| Some((name.clone(), limit.as_u64()?))));
    }
    limits
}

/// The resource of a limit's key.
pub(super) fn limited_resource(key: &str) -> &str {
    LIMIT_KEYS.iter().find(|(name, _)| *name == key).map_or(key, |(_, resource)| resource)
}

fn zuul() -> String {
    "zuul".to_owned()
}

fn auto() -> String {
    "auto".to_owned()
}

fn ssh() -> String {
    "ssh".to_owned()
}

fn pod() -> String {
    "pod".to_owned()
}

fn if_not_present() -> String {
    "IfNotPresent".to_owned()
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

fn five() -> u64 {
    5
}

fn fifty() -> u64 {
    50
}

fn minute() -> u64 {
    60
}

fn hour() -> u64 {
    3600
}

fn one_second() -> f64 {
    1.0
}

fn image_name_format() -> String {
    "{image_name}-{timestamp}".to_owned()
}

fn ssh_port() -> u16 {
    22
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrTexts {
    One(String),
    Several(Vec<String>),
}

fn texts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match TextOrTexts::deserialize(deserializer)? {
        TextOrTexts::One(text) => vec![text],
        TextOrTexts::Several(texts) => texts,
    })
}

/// A list of words, or one text with spaces between them.
fn words<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match TextOrTexts::deserialize(deserializer)? {
        TextOrTexts::One(text) => text.split_whitespace().map(ToOwned::to_owned).collect(),
        TextOrTexts::Several(texts) => texts,
    })
}
