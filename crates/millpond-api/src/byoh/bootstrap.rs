//! BootstrapKubeconfig and K8sInstallerConfig with their templates: how hosts get credentials and Kubernetes.

use serde::{Deserialize, Serialize};

use super::Template;
use super::machine::Initialization;
use super::reference::ObjectReference;
use crate::meta::{Condition, ObjectMeta, is_default, kind};

/// Credentials that a host joins a cluster with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct BootstrapKubeconfig {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The API server.
    #[serde(default)]
    pub spec: BootstrapKubeconfigSpec,
    /// The kubeconfig.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: BootstrapKubeconfigStatus,
}

kind!(
    BootstrapKubeconfig, super::GROUP, "v1beta1", "BootstrapKubeconfig", "bootstrapkubeconfigs", namespaced: true
);

/// The API server that hosts join.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BootstrapKubeconfigSpec {
    /// Address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub apiserver: String,
    /// CA certificates in PEM, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub certificate_authority_data: String,
    /// Whether hosts trust any certificate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub insecure_skip_tls_verify: bool,
}

/// The kubeconfig with a bootstrap token.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapKubeconfigStatus {
    /// The kubeconfig, as the original provider shows it. Millpond keeps it in the Secret alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_kubeconfig_data: Option<String>,
    /// Secret with the bootstrap data: contract of bootstrap providers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data_secret_name: String,
    /// Contract with Cluster API v1beta2.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: Initialization,
    /// Contract with Cluster API v1beta1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready: bool,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What BootstrapKubeconfigs are cloned from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct BootstrapKubeconfigTemplate {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The clones.
    #[serde(default)]
    pub spec: BootstrapKubeconfigTemplateSpec,
}

kind!(
    BootstrapKubeconfigTemplate, super::GROUP, "v1beta1", "BootstrapKubeconfigTemplate",
    "bootstrapkubeconfigtemplates", namespaced: true
);

/// The clones of a template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct BootstrapKubeconfigTemplateSpec {
    /// Metadata and spec of the clones.
    #[serde(default)]
    pub template: Template<BootstrapKubeconfigSpec>,
}

/// How Kubernetes is installed on one host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct K8sInstallerConfig {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Where packages come from.
    #[serde(default)]
    pub spec: K8sInstallerConfigSpec,
    /// The Secret with the scripts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: K8sInstallerConfigStatus,
}

kind!(
    K8sInstallerConfig, super::GROUP, "v1beta1", "K8sInstallerConfig", "k8sinstallerconfigs", namespaced: true
);

/// Where packages come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct K8sInstallerConfigSpec {
    /// Registry of the bundles.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle_repo: String,
    /// Kind of bundle: `k8s`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle_type: String,
}

/// The Secret with the scripts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct K8sInstallerConfigStatus {
    /// Whether the Secret exists.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready: bool,
    /// Secret with the keys `install` and `uninstall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installation_secret: Option<ObjectReference>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What K8sInstallerConfigs are cloned from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct K8sInstallerConfigTemplate {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The clones.
    #[serde(default)]
    pub spec: K8sInstallerConfigTemplateSpec,
}

kind!(
    K8sInstallerConfigTemplate, super::GROUP, "v1beta1", "K8sInstallerConfigTemplate",
    "k8sinstallerconfigtemplates", namespaced: true
);

/// The clones of a template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct K8sInstallerConfigTemplateSpec {
    /// Metadata and spec of the clones.
    #[serde(default)]
    pub template: Template<K8sInstallerConfigSpec>,
}
