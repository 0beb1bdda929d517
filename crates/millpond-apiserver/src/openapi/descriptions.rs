//! Prose about built-in types, as `kubectl explain` shows it.
//!
//! The texts are Kubernetes' own; they live in the `k8s-openapi` crate, whose schemas are made here when a
//! document needs them and dropped with it.

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates, coordination, core,
    discovery, events, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Schemas with descriptions, by the full name of their type.
pub(super) struct Descriptions(Map<String, Value>);

/// A type that every object's `apiVersion`, `kind` and `metadata` are described in.
const ANY_OBJECT: &str = "io.k8s.api.core.v1.ConfigMap";

macro_rules! definitions_of {
    ($($root:ty),* $(,)?) => {{
        let mut generator = SchemaSettings::openapi3().into_generator();
        $(generator.subschema_for::<$root>();)*
        generator.take_definitions(false)
    }};
}

impl Descriptions {
    /// Makes the schemas of all served kinds, which takes some milliseconds.
    pub(super) fn load() -> Self {
        Self(definitions_of![
            admissionregistration::v1::MutatingAdmissionPolicy,
            admissionregistration::v1::MutatingAdmissionPolicyBinding,
            admissionregistration::v1::MutatingWebhookConfiguration,
            admissionregistration::v1::ValidatingAdmissionPolicy,
            admissionregistration::v1::ValidatingAdmissionPolicyBinding,
            admissionregistration::v1::ValidatingWebhookConfiguration,
            apiextensions::v1::CustomResourceDefinition,
            apiregistration::v1::APIService,
            apps::v1::ControllerRevision,
            apps::v1::DaemonSet,
            apps::v1::Deployment,
            apps::v1::ReplicaSet,
            apps::v1::StatefulSet,
            authentication::v1::SelfSubjectReview,
            authentication::v1::TokenRequest,
            authentication::v1::TokenReview,
            authorization::v1::LocalSubjectAccessReview,
            authorization::v1::SelfSubjectAccessReview,
            authorization::v1::SelfSubjectRulesReview,
            authorization::v1::SubjectAccessReview,
            autoscaling::v1::HorizontalPodAutoscaler,
            autoscaling::v1::Scale,
            autoscaling::v2::HorizontalPodAutoscaler,
            batch::v1::CronJob,
            batch::v1::Job,
            certificates::v1::CertificateSigningRequest,
            coordination::v1::Lease,
            core::v1::Binding,
            core::v1::ComponentStatus,
            core::v1::ConfigMap,
            core::v1::Endpoints,
            core::v1::Event,
            core::v1::LimitRange,
            core::v1::Namespace,
            core::v1::Node,
            core::v1::PersistentVolume,
            core::v1::PersistentVolumeClaim,
            core::v1::Pod,
            core::v1::PodTemplate,
            core::v1::ReplicationController,
            core::v1::ResourceQuota,
            core::v1::Secret,
            core::v1::Service,
            core::v1::ServiceAccount,
            discovery::v1::EndpointSlice,
            events::v1::Event,
            flowcontrol::v1::FlowSchema,
            flowcontrol::v1::PriorityLevelConfiguration,
            meta::v1::APIResourceList,
            meta::v1::DeleteOptions,
            meta::v1::ListMeta,
            meta::v1::Status,
            networking::v1::IPAddress,
            networking::v1::Ingress,
            networking::v1::IngressClass,
            networking::v1::NetworkPolicy,
            networking::v1::ServiceCIDR,
            node::v1::RuntimeClass,
            policy::v1::Eviction,
            policy::v1::PodDisruptionBudget,
            rbac::v1::ClusterRole,
            rbac::v1::ClusterRoleBinding,
            rbac::v1::Role,
            rbac::v1::RoleBinding,
            resource::v1::DeviceClass,
            resource::v1::ResourceClaim,
            resource::v1::ResourceClaimTemplate,
            resource::v1::ResourceSlice,
            scheduling::v1::PriorityClass,
            storage::v1::CSIDriver,
            storage::v1::CSINode,
            storage::v1::CSIStorageCapacity,
            storage::v1::StorageClass,
            storage::v1::VolumeAttachment,
            storage::v1::VolumeAttributesClass,
        ])
    }

    /// What a type is.
    pub(super) fn of_type(&self, name: &str) -> Option<String> {
        let known = self.0.get(name).and_then(|schema| schema["description"].as_str());
        known.map(str::to_owned).or_else(|| match name.rsplit('.').next()? {
            "Patch" => Some("The body of a PATCH request.".to_owned()),
            "WatchEvent" => Some("A change of a watched object.".to_owned()),
            list => {
                let kind = list.strip_suffix("List")?;
                Some(format!("{kind}List is a list of {kind}"))
            }
        })
    }

    /// What a property of a type is.
    pub(super) fn of_property(&self, name: &str, property: &str) -> Option<String> {
        if let Some(schema) = self.0.get(name) {
            return schema["properties"][property]["description"].as_str().map(str::to_owned);
        }
        match property {
            "apiVersion" | "kind" => self.of_type_meta(property),
            "items" => Some("Objects of the list.".to_owned()),
            "metadata" => Some("Standard list metadata.".to_owned()),
            _ => None,
        }
    }

    /// What `apiVersion` or `kind` of any object is.
    pub(super) fn of_type_meta(&self, property: &str) -> Option<String> {
        self.of_property(ANY_OBJECT, property)
    }

    /// What `metadata` of any object is.
    pub(super) fn of_metadata(&self) -> Option<String> {
        self.of_property(ANY_OBJECT, "metadata")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn every_served_type_is_described() {
        let descriptions = Descriptions::load();
        for index in 0..builtin::len() {
            let name = builtin::type_at(index).name.as_deref().unwrap();
            assert!(descriptions.of_type(name).is_some(), "{name}");
        }
    }

    #[test]
    fn texts_are_those_that_kubectl_explain_shows() {
        let descriptions = Descriptions::load();
        let pod = "io.k8s.api.core.v1.Pod";
        let text = descriptions.of_type(pod).unwrap();
        assert!(text.starts_with("Pod is a collection of containers"), "{text}");
        let text = descriptions.of_property(pod, "spec").unwrap();
        assert!(text.starts_with("Specification of the desired behavior of the pod."), "{text}");
        assert!(descriptions.of_type_meta("kind").unwrap().starts_with("Kind is a string value"));
    }
}
