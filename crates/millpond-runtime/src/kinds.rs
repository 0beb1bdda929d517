//! The built-in kinds that controllers watch and write.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind with its place in the API.
pub trait Kind:
    kube::Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug + Send + Sync + 'static
{
    /// The API for objects of a namespace; cluster-scoped kinds ignore it.
    fn api(client: &Client, namespace: &str) -> Api<Self>;
}

macro_rules! namespaced {
    ($($kind:ty),+ $(,)?) => {$(
        impl Kind for $kind {
            fn api(client: &Client, namespace: &str) -> Api<Self> {
                Api::namespaced(client.clone(), namespace)
            }
        }
    )+};
}

macro_rules! cluster_scoped {
    ($($kind:ty),+ $(,)?) => {$(
        impl Kind for $kind {
            fn api(client: &Client, _namespace: &str) -> Api<Self> {
                Api::all(client.clone())
            }
        }
    )+};
}

namespaced!(
    ConfigMap,
    ControllerRevision,
    DaemonSet,
    Deployment,
    Job,
    Lease,
    LimitRange,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodTemplate,
    ReplicaSet,
    Service,
    StatefulSet,
);
cluster_scoped!(CSINode, Namespace, Node, PersistentVolume, PriorityClass, StorageClass, VolumeAttachment);
