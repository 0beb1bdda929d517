//! Millpond's, Karpenter's and Cluster API's kinds as a client reads and writes them: the specs and statuses of
//! `millpond-api` under Kubernetes' own metadata. Those of Cluster API are raw, so that nothing of them is lost;
//! `millpond_api::capi` has the views.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millpond_api::{capacity_buffer, cluster_limits, karpenter, node_class, scaling_advisor};
use millpond_runtime::json_of_kind;
use millpond_runtime::kinds::Kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

macro_rules! kind {
    (
        $(#[$doc:meta])* $name:ident, $group:expr, $version:literal, $plural:literal, $spec:ty, $status:ty, $scope:ident
    ) => {
        kind!($(#[$doc])* $name, stringify!($name), $group, $version, $plural, $spec, $status, $scope, "written");
    };
    (
        $(#[$doc:meta])* $name:ident, $kind:expr, $group:expr, $version:literal, $plural:literal, $spec:ty, $status:ty,
        $scope:ident, $silent:literal
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// API version; set on creation.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub api_version: String,
            /// Kind; set on creation.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub kind: String,
            /// Metadata.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// Desired state.
            pub spec: $spec,
            /// Observed state.
            #[serde(default, skip_serializing_if = $silent)]
            pub status: $status,
        }

        impl $name {
            /// A new object without status.
            pub fn new(metadata: ObjectMeta, spec: $spec) -> Self {
                let (api_version, kind) = (concat!($group, "/", $version).to_owned(), $kind.to_owned());
                Self { api_version, kind, metadata, spec, status: Default::default() }
            }

            /// Its name.
            pub fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = kube::core::$scope;

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

    };
}

macro_rules! cluster_kind {
    ($(#[$doc:meta])* $name:ident, $group:expr, $version:literal, $plural:literal, $spec:ty, $status:ty) => {
        kind!($(#[$doc])* $name, $group, $version, $plural, $spec, $status, ClusterResourceScope);

        impl Kind for $name {
            const NAMESPACED: bool = false;

            json_of_kind!();
        }
    };
}

macro_rules! namespaced_kind {
    ($(#[$doc:meta])* $name:ident, $group:expr, $version:literal, $plural:literal, $spec:ty, $status:ty) => {
        kind!($(#[$doc])* $name, $group, $version, $plural, $spec, $status, NamespaceResourceScope);

        impl Kind for $name {
            const NAMESPACED: bool = true;

            json_of_kind!();
        }
    };
}

/// A kind of Cluster API: raw, at the version that is asked for; see `capi::client` for servers without it.
macro_rules! cluster_api_kind {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $plural:literal) => {
        kind!(
            $(#[$doc])* $name, $kind, "cluster.x-k8s.io", "v1beta2", $plural, Value, Value, NamespaceResourceScope,
            "Value::is_null"
        );

        impl Kind for $name {
            const NAMESPACED: bool = true;

            json_of_kind!();
        }
    };
}

/// The status of most kinds is always serialized.
fn written<T>(_: &T) -> bool {
    false
}

cluster_kind!(
    /// A pool of nodes.
    NodePool,
    "karpenter.sh",
    "v1",
    "nodepools",
    karpenter::NodePoolSpec,
    karpenter::NodePoolStatus
);
cluster_kind!(
    /// A node from the decision to buy it until its machine is gone.
    NodeClaim,
    "karpenter.sh",
    "v1",
    "nodeclaims",
    karpenter::NodeClaimSpec,
    karpenter::NodeClaimStatus
);
cluster_kind!(
    /// What a provider needs to launch nodes of a pool.
    NodeClass,
    "millpond.dev",
    "v1alpha1",
    "nodeclasses",
    node_class::NodeClassSpec,
    node_class::NodeClassStatus
);
cluster_kind!(
    /// Limits on the sum of all nodes.
    ClusterLimits,
    "millpond.dev",
    "v1alpha1",
    "clusterlimits",
    cluster_limits::ClusterLimitsSpec,
    cluster_limits::ClusterLimitsStatus
);
cluster_kind!(
    /// User-defined prices and resources of instance types.
    NodeOverlay,
    "karpenter.sh",
    "v1alpha1",
    "nodeoverlays",
    karpenter::NodeOverlaySpec,
    karpenter::NodeOverlayStatus
);
namespaced_kind!(
    /// Capacity that is kept free for pods.
    CapacityBuffer,
    "autoscaling.x-k8s.io",
    "v1beta1",
    "capacitybuffers",
    capacity_buffer::CapacityBufferSpec,
    capacity_buffer::CapacityBufferStatus
);
namespaced_kind!(
    /// The pools that advice may choose from.
    ScalingConstraint,
    "sa.gardener.cloud",
    "v1alpha1",
    "scalingconstraints",
    scaling_advisor::ScalingConstraintSpec,
    scaling_advisor::ScalingConstraintStatus
);
namespaced_kind!(
    /// Nodes that should be added and removed.
    ScalingAdvice,
    "sa.gardener.cloud",
    "v1alpha1",
    "scalingadvices",
    scaling_advisor::ScalingAdviceSpec,
    scaling_advisor::ScalingAdviceStatus
);
namespaced_kind!(
    /// What the consumer of advice could not do.
    ScalingFeedback,
    "sa.gardener.cloud",
    "v1alpha1",
    "scalingfeedbacks",
    scaling_advisor::ScalingFeedbackSpec,
    NoStatus
);

cluster_api_kind!(
    /// A Cluster of Cluster API.
    CapiCluster,
    "Cluster",
    "clusters"
);
cluster_api_kind!(
    /// Machines with rolling updates.
    MachineDeployment,
    "MachineDeployment",
    "machinedeployments"
);
cluster_api_kind!(
    /// Machines of one template.
    MachineSet,
    "MachineSet",
    "machinesets"
);
cluster_api_kind!(
    /// Machines of a cloud's own autoscaling group.
    MachinePool,
    "MachinePool",
    "machinepools"
);
cluster_api_kind!(
    /// A machine that is or will become a node.
    Machine,
    "Machine",
    "machines"
);
cluster_api_kind!(
    /// Which broken machines are replaced.
    MachineHealthCheck,
    "MachineHealthCheck",
    "machinehealthchecks"
);

/// The status of a kind that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NoStatus {}
