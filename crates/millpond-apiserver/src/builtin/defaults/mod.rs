//! Defaults, type by type, wherever a type occurs: a probe gets its period in a Pod, in a template of a
//! Deployment and in a template of a CronJob's Jobs alike.
//!
//! Outer types are filled before the types inside them, as the real API server does. Simple constants
//! (`protocol: TCP`) come with the schema; what depends on other fields is here.

mod image;
mod others;
mod pod;
mod workload;

use std::sync::LazyLock;

use serde_json::Value;

use crate::schema::{self, Schema, SchemaRef, Zero};

/// Fills in what a type does not say.
type TypeDefault = fn(&mut Value);

/// (full name of the type, what fills it in)
const TYPES: &[(&str, TypeDefault)] = &[
    ("io.k8s.api.core.v1.Pod", pod::pod),
    ("io.k8s.api.core.v1.PodSpec", pod::pod_spec),
    ("io.k8s.api.core.v1.Container", pod::container),
    ("io.k8s.api.core.v1.EphemeralContainer", pod::container),
    ("io.k8s.api.core.v1.Probe", pod::probe),
    ("io.k8s.api.core.v1.HTTPGetAction", pod::http_get),
    ("io.k8s.api.core.v1.ObjectFieldSelector", pod::field_selector),
    ("io.k8s.api.core.v1.Volume", pod::volume),
    ("io.k8s.api.core.v1.SecretVolumeSource", pod::default_mode),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", pod::default_mode),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", pod::default_mode),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", pod::default_mode),
    ("io.k8s.api.core.v1.ServiceAccountTokenProjection", pod::token_projection),
    ("io.k8s.api.core.v1.HostPathVolumeSource", pod::host_path),
    ("io.k8s.api.core.v1.ReplicationController", workload::replication_controller),
    ("io.k8s.api.apps.v1.Deployment", workload::deployment),
    ("io.k8s.api.apps.v1.ReplicaSet", workload::replica_set),
    ("io.k8s.api.apps.v1.StatefulSet", workload::stateful_set),
    ("io.k8s.api.apps.v1.DaemonSet", workload::daemon_set),
    ("io.k8s.api.batch.v1.Job", workload::job),
    ("io.k8s.api.batch.v1.CronJob", workload::cron_job),
    ("io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", workload::pod_condition_pattern),
    ("io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler", workload::autoscaler_v1),
    ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", workload::autoscaler),
    ("io.k8s.api.core.v1.Service", others::service),
    ("io.k8s.api.core.v1.Endpoints", others::endpoints),
    ("io.k8s.api.core.v1.Namespace", others::namespace),
    ("io.k8s.api.core.v1.NodeStatus", others::node_status),
    ("io.k8s.api.core.v1.Secret", others::secret),
    ("io.k8s.api.core.v1.LimitRangeItem", others::limit_range_item),
    ("io.k8s.api.core.v1.PersistentVolume", others::persistent_volume),
    ("io.k8s.api.core.v1.PersistentVolumeClaim", others::persistent_volume_claim),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", others::persistent_volume_claim_spec),
    ("io.k8s.api.storage.v1.StorageClass", others::storage_class),
    ("io.k8s.api.storage.v1.CSIDriver", others::csi_driver),
    ("io.k8s.api.discovery.v1.EndpointPort", others::endpoint_port),
    ("io.k8s.api.networking.v1.NetworkPolicy", others::network_policy),
    ("io.k8s.api.networking.v1.NetworkPolicyPort", others::network_policy_port),
    ("io.k8s.api.networking.v1.IngressClass", others::ingress_class),
    ("io.k8s.api.rbac.v1.ClusterRoleBinding", others::role_binding),
    ("io.k8s.api.rbac.v1.RoleBinding", others::role_binding),
    ("io.k8s.api.rbac.v1.Subject", others::subject),
    ("io.k8s.api.scheduling.v1.PriorityClass", others::priority_class),
    ("io.k8s.api.admissionregistration.v1.ValidatingWebhook", others::webhook),
    ("io.k8s.api.admissionregistration.v1.MutatingWebhook", others::mutating_webhook),
    ("io.k8s.api.admissionregistration.v1.RuleWithOperations", others::webhook_rule),
    ("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations", others::webhook_rule),
    ("io.k8s.api.admissionregistration.v1.ServiceReference", others::service_reference),
    ("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec", others::failure_policy),
    ("io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicySpec", others::failure_policy),
    ("io.k8s.api.admissionregistration.v1.MatchResources", others::match_resources),
    ("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference", others::service_reference),
    ("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", others::flow_schema_spec),
    ("io.k8s.api.flowcontrol.v1.ExemptPriorityLevelConfiguration", others::exempt_level),
    ("io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration", others::limited_level),
    ("io.k8s.api.flowcontrol.v1.QueuingConfiguration", others::queuing),
    ("io.k8s.api.resource.v1.ExactDeviceRequest", others::device_request),
    ("io.k8s.api.resource.v1.DeviceSubRequest", others::device_request),
];

/// The same by place in the table of types.
static BY_INDEX: LazyLock<Vec<Option<TypeDefault>>> = LazyLock::new(|| {
    let mut by_index = vec![None; usize::from(schema::builtin::len())];
    for (name, fill) in TYPES {
        let Some(SchemaRef::Named(index)) = schema::builtin::lookup(name) else {
            panic!("the table of types has no `{name}`");
        };
        by_index[usize::from(index)] = Some(*fill);
    }
    by_index
});

/// Fills in the defaults of a value and of everything inside it.
pub(super) fn fill(schema: &SchemaRef, value: &mut Value) {
    if let SchemaRef::Named(index) = schema
        && value.is_object()
        && let Some(fill_type) = BY_INDEX[usize::from(*index)]
    {
        fill_type(value);
    }
    match value {
        Value::Object(map) => {
            fill_constants(schema, map);
            // Defaults belong to objects; scalars hold none.
            for (name, inner) in map.iter_mut().filter(|(_, inner)| inner.is_object() || inner.is_array()) {
                if let Some(property) = schema.properties.get(name.as_str()) {
                    fill(&property.schema, inner);
                } else if let Some(additional) = &schema.additional {
                    fill(additional, inner);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_schema) = &schema.items {
                for item in items {
                    fill(item_schema, item);
                }
            }
        }
        _ => {}
    }
}

fn fill_constants(schema: &Schema, map: &mut serde_json::Map<String, Value>) {
    for (name, property) in schema.properties.defaulted() {
        let Some(default) = &property.default else { continue };
        let nothing = property.zero == Zero::Omitted && matches!(default.as_str(), Some("") | None);
        if !nothing && map.get(name).is_none_or(Value::is_null) {
            map.insert(name.to_owned(), default.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_type_exists() {
        assert_eq!(BY_INDEX.iter().flatten().count(), TYPES.len());
    }
}
