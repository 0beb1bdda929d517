//! `sf.softwarefactory-project.io/v1` SoftwareFactory, as far as its `spec.nodepool` goes. Other parts of a deployment are
//! kept as they are and named as not managed.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::meta::{Condition, ObjectMeta, is_default, kind};

/// The group of the kind.
pub const GROUP: &str = "sf.softwarefactory-project.io";

/// A deployment of Software Factory.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct SoftwareFactory {
    /// Name, namespace and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: SoftwareFactorySpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: SoftwareFactoryStatus,
}

kind!(SoftwareFactory, GROUP, "v1", "SoftwareFactory", "softwarefactories", namespaced: true);

/// The desired state of a deployment.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct SoftwareFactorySpec {
    /// Its domain: the API is at `https://FQDN/nodepool/api/`.
    #[serde(default)]
    pub fqdn: String,
    /// Launcher and builder.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nodepool: NodepoolSpec,
    /// Labels of all created objects.
    #[serde(default, rename = "extraLabels", skip_serializing_if = "is_default")]
    pub extra_labels: std::collections::BTreeMap<String, String>,
    /// Parts that Millpond does not manage.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// Launcher and builder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodepoolSpec {
    /// The launcher.
    #[serde(default, skip_serializing_if = "is_default")]
    pub launcher: LauncherSpec,
    /// The image builder.
    #[serde(default, skip_serializing_if = "is_default")]
    pub builder: BuilderSpec,
    /// Where statsd metrics go, as `HOST:PORT`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub statsd_target: String,
}

/// The launcher.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LauncherSpec {
    /// INFO, WARN or DEBUG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// Limits of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// The image builder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuilderSpec {
    /// The volume of its images.
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage: StorageSpec,
    /// INFO, WARN or DEBUG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// Limits of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// Limits of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Limits {
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Its storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,
}

/// The observed state of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareFactoryStatus {
    /// Whether launcher and builder are ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready: bool,
    /// The generation that the rest speaks of.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The program that wrote the status.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reconciled_by: String,
    /// `nodepool-launcher` and `nodepool-builder` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
