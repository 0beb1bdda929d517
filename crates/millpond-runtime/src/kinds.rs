//! The built-in kinds that controllers watch and write.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, PodTemplateSpec,
    Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::raw_object::RawObject;

/// A kind with its place in the API, and the only reader and writer of its JSON.
///
/// Both are written out where a kind is declared (see [`json_of_kind`](crate::json_of_kind)): a generic one would be
/// compiled again in every crate that asks for it.
pub trait Kind: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static {
    /// Whether its objects are in namespaces.
    const NAMESPACED: bool;

    /// Reads an object.
    fn read(text: &str) -> serde_json::Result<Self>;

    /// Writes it.
    fn write(&self) -> serde_json::Result<Box<RawValue>>;

    /// The API for objects of a namespace, as text; cluster-scoped kinds ignore it.
    fn api(client: &Client, namespace: &str) -> Api<RawObject> {
        let kind = ApiResource::erase::<Self>(&());
        if Self::NAMESPACED {
            Api::namespaced_with(client.clone(), namespace, &kind)
        } else {
            Api::all_with(client.clone(), &kind)
        }
    }
}

/// [`Kind::read`] and [`Kind::write`] of a kind that serde can read and write.
#[macro_export]
macro_rules! json_of_kind {
    () => {
        #[inline(never)]
        fn read(text: &str) -> serde_json::Result<Self> {
            serde_json::from_str(text)
        }

        #[inline(never)]
        fn write(&self) -> serde_json::Result<Box<serde_json::value::RawValue>> {
            serde_json::value::to_raw_value(self)
        }
    };
}

macro_rules! kinds {
    ($namespaced:literal: $($kind:ty),+ $(,)?) => {$(
        impl Kind for $kind {
            const NAMESPACED: bool = $namespaced;

            json_of_kind!();
        }
    )+};
}

kinds!(true:
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
    Role,
    Service,
    StatefulSet,
);
kinds!(false: CSINode, CertificateSigningRequest, Namespace, Node, PersistentVolume, PriorityClass, StorageClass, VolumeAttachment);

/// A template of pods as a tree, to compare and to keep. Goes over text, as everything here does, for which there is
/// a writer already.
#[inline(never)]
pub fn template_tree(template: &PodTemplateSpec) -> Value {
    serde_json::to_string(template).and_then(|text| serde_json::from_str(&text)).unwrap_or_default()
}

/// The template of pods that a tree holds, if it is one.
#[inline(never)]
pub fn template_of_tree(tree: &Value) -> Option<PodTemplateSpec> {
    serde_json::from_str(&tree.to_string()).ok()
}
