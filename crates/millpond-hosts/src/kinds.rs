//! The kinds of own hosts, and those of Cluster API that they belong to, as a client reads and writes them.
//!
//! Specs and statuses are those of `millpond-api`, under Kubernetes' own metadata. Kinds of Cluster API are raw at
//! v1beta2, so that nothing of them is lost.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millpond_api::byoh;
use millpond_runtime::json_of_kind;
use millpond_runtime::kinds::Kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

macro_rules! kind {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $group:literal, $version:literal, $plural:literal, $spec:ty, $status:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Group and version.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub api_version: String,
            /// Kind.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub kind: String,
            /// Name, labels and so on.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// What is asked for.
            #[serde(default)]
            pub spec: $spec,
            /// What is.
            #[serde(default)]
            pub status: $status,
        }

        impl $name {
            /// A new object, without status.
            pub fn new(metadata: ObjectMeta, spec: $spec) -> Self {
                let (api_version, kind) = (concat!($group, "/", $version).to_owned(), $kind.to_owned());
                Self { api_version, kind, metadata, spec, status: Default::default() }
            }

            /// Its name.
            pub fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }

            /// Its namespace.
            pub fn namespace(&self) -> &str {
                self.metadata.namespace.as_deref().unwrap_or_default()
            }

            /// Its UID.
            pub fn uid(&self) -> &str {
                self.metadata.uid.as_deref().unwrap_or_default()
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = kube::core::NamespaceResourceScope;

            fn kind(_: &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group(_: &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version(_: &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Kind for $name {
            const NAMESPACED: bool = true;

            json_of_kind!();
        }
    };
}

macro_rules! byoh_kind {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $plural:literal, $spec:ty, $status:ty) => {
        kind!($(#[$doc])* $name, $kind, "infrastructure.cluster.x-k8s.io", "v1beta1", $plural, $spec, $status);
    };
}

macro_rules! cluster_api_kind {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $plural:literal) => {
        kind!($(#[$doc])* $name, $kind, "cluster.x-k8s.io", "v1beta2", $plural, Value, Value);
    };
}

byoh_kind!(
    /// A machine of one's own.
    ByoHost, "ByoHost", "byohosts", byoh::ByoHostSpec, byoh::ByoHostStatus
);
byoh_kind!(
    /// The infrastructure of a Machine, on a host.
    ByoMachine, "ByoMachine", "byomachines", byoh::ByoMachineSpec, byoh::ByoMachineStatus
);
byoh_kind!(
    /// What ByoMachines are cloned from.
    ByoMachineTemplate,
    "ByoMachineTemplate",
    "byomachinetemplates",
    byoh::ByoMachineTemplateSpec,
    byoh::ByoMachineTemplateStatus
);
byoh_kind!(
    /// The infrastructure of a Cluster.
    ByoCluster, "ByoCluster", "byoclusters", byoh::ByoClusterSpec, byoh::ByoClusterStatus
);
byoh_kind!(
    /// Credentials that a host joins a cluster with.
    BootstrapKubeconfig,
    "BootstrapKubeconfig",
    "bootstrapkubeconfigs",
    byoh::BootstrapKubeconfigSpec,
    byoh::BootstrapKubeconfigStatus
);
byoh_kind!(
    /// How Kubernetes is installed on one host.
    K8sInstallerConfig,
    "K8sInstallerConfig",
    "k8sinstallerconfigs",
    byoh::K8sInstallerConfigSpec,
    byoh::K8sInstallerConfigStatus
);
byoh_kind!(
    /// What K8sInstallerConfigs are cloned from.
    K8sInstallerConfigTemplate,
    "K8sInstallerConfigTemplate",
    "k8sinstallerconfigtemplates",
    byoh::K8sInstallerConfigTemplateSpec,
    NoStatus
);

cluster_api_kind!(
    /// A Cluster of Cluster API.
    Cluster, "Cluster", "clusters"
);
cluster_api_kind!(
    /// Machines with rolling updates.
    MachineDeployment, "MachineDeployment", "machinedeployments"
);
cluster_api_kind!(
    /// A machine that is a node, or will be.
    Machine, "Machine", "machines"
);

/// The status of a kind that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NoStatus {}

impl ByoHost {
    /// The host in the words of `millpond-api`.
    pub fn view(&self) -> byoh::ByoHost {
        let metadata = millpond_api::meta::ObjectMeta {
            name: self.name().to_owned(),
            namespace: self.namespace().to_owned(),
            uid: self.uid().to_owned(),
            labels: self.metadata.labels.clone().unwrap_or_default(),
            annotations: self.metadata.annotations.clone().unwrap_or_default(),
            ..millpond_api::meta::ObjectMeta::default()
        };
        byoh::ByoHost { metadata, spec: self.spec.clone(), status: self.status.clone() }
    }

    /// A label of the host.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}
