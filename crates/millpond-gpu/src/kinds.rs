//! The kinds of this dialect as a client reads and writes them.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millpond_api::gpu_info::{self, GPUInfoSpec, GPUInfoStatus};
use millpond_api::karpenter::{NodeClaimSpec, NodeClaimStatus};
use millpond_api::maintenance_window::{MaintenanceWindowSpec, MaintenanceWindowStatus};
use millpond_runtime::json_of_kind;
use millpond_runtime::kinds::Kind;
use serde::{Deserialize, Serialize};

macro_rules! kind {
    (
        $(#[$doc:meta])* $name:ident, $group:expr, $version:literal, $plural:literal, $spec:ty, $status:ty, $scope:ident,
        $namespaced:literal
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// The group and version; written on creation.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub api_version: String,
            /// The kind; written on creation.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub kind: String,
            /// Name, labels and so on.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// Desired state.
            pub spec: $spec,
            /// Observed state.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl $name {
            /// A new one, without status.
            pub fn new(metadata: ObjectMeta, spec: $spec) -> Self {
                let api_version = format!("{}/{}", $group, $version);
                Self { api_version, kind: stringify!($name).to_owned(), metadata, spec, status: None }
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = kube::core::$scope;

            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($name).into()
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
            const NAMESPACED: bool = $namespaced;

            json_of_kind!();
        }
    };
}

kind!(
    /// A question for a node, and the answer.
    GPUInfo,
    gpu_info::GROUP,
    "v1",
    "gpuinfoes",
    GPUInfoSpec,
    GPUInfoStatus,
    NamespaceResourceScope,
    true
);
kind!(
    /// When hosts or nodes are disturbed.
    MaintenanceWindow,
    millpond_api::node_class::GROUP,
    "v1alpha1",
    "maintenancewindows",
    MaintenanceWindowSpec,
    MaintenanceWindowStatus,
    ClusterResourceScope,
    false
);
kind!(
    /// A node of a pool: when it expires, whether it is to be replaced.
    NodeClaim,
    "karpenter.sh",
    "v1",
    "nodeclaims",
    NodeClaimSpec,
    NodeClaimStatus,
    ClusterResourceScope,
    false
);
