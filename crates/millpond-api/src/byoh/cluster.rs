//! ByoCluster and ByoClusterTemplate: what a Cluster needs of own hosts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Template;
use super::machine::Initialization;
use crate::meta::{Condition, ObjectMeta, is_default, kind};

/// The infrastructure of a Cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ByoCluster {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Address of the control plane.
    #[serde(default)]
    pub spec: ByoClusterSpec,
    /// Whether it is ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ByoClusterStatus,
}

kind!(ByoCluster, super::GROUP, "v1beta1", "ByoCluster", "byoclusters", namespaced: true);

/// Address of the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ByoClusterSpec {
    /// Where the API server is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub control_plane_endpoint: ControlPlaneEndpoint,
    /// Registry of installation bundles.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle_lookup_base_registry: String,
}

/// Host and port of an API server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ControlPlaneEndpoint {
    /// Name or address.
    #[serde(default)]
    pub host: String,
    /// Port.
    #[serde(default)]
    pub port: i32,
}

/// Whether the infrastructure of a cluster is ready.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ByoClusterStatus {
    /// Contract with Cluster API v1beta2.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: Initialization,
    /// Contract with Cluster API v1beta1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready: bool,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Failure domains that free hosts lie in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<FailureDomain>,
}

/// A failure domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// Its name.
    pub name: String,
    /// Whether control planes may lie in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// What ByoClusters are cloned from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ByoClusterTemplate {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The clones.
    #[serde(default)]
    pub spec: ByoClusterTemplateSpec,
}

kind!(
    ByoClusterTemplate, super::GROUP, "v1beta1", "ByoClusterTemplate", "byoclustertemplates", namespaced: true
);

/// The clones of a template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ByoClusterTemplateSpec {
    /// Metadata and spec of the clones.
    #[serde(default)]
    pub template: Template<ByoClusterSpec>,
}
