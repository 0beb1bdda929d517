//! Columns of the built-in kinds. Names, types, formats, priorities and cells are facts of Kubernetes 1.36; the
//! explanations are Millpond's own.

mod access;
mod admission;
mod cluster;
mod events;
mod network;
mod pods;
mod read;
mod scheduling;
mod storage;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::read::{time, words};
use crate::print::human_duration;
use crate::resource::{BuiltinColumns, ColumnDefinition};

pub(super) const AGE_DESCRIPTION: &str = "Time since the object was created";

/// The name column, first of almost every table.
pub(super) const NAME: ColumnDefinition = ColumnDefinition {
    name: "Name",
    ty: "string",
    format: "name",
    description: "Name of the object, unique among its kind in its namespace",
    priority: 0,
};

/// The second column of kinds without columns of their own.
pub(super) const CREATED_AT: ColumnDefinition = column("Created At", "date", "When the object was created");

const AGE: ColumnDefinition = text("Age", AGE_DESCRIPTION);

const fn column(name: &'static str, ty: &'static str, description: &'static str) -> ColumnDefinition {
    ColumnDefinition { name, ty, format: "", description, priority: 0 }
}

const fn text(name: &'static str, description: &'static str) -> ColumnDefinition {
    column(name, "string", description)
}

const fn integer(name: &'static str, description: &'static str) -> ColumnDefinition {
    column(name, "integer", description)
}

const fn boolean(name: &'static str, description: &'static str) -> ColumnDefinition {
    column(name, "boolean", description)
}

/// A column that is shown with `-o wide` only.
const fn wide(mut column: ColumnDefinition) -> ColumnDefinition {
    column.priority = 1;
    column
}

const CONTAINERS: ColumnDefinition = wide(text("Containers", "Names of the containers of the template"));
const IMAGES: ColumnDefinition = wide(text("Images", "Images of the containers of the template"));

/// Columns with rows that have no conditions.
const fn plain(definitions: &'static [ColumnDefinition], cells: fn(&Value, Timestamp) -> Vec<Value>) -> BuiltinColumns {
    BuiltinColumns { definitions, cells, conditions: |_| None }
}

/// Only the name and the age.
static NAME_AND_AGE: BuiltinColumns =
    plain(&[NAME, AGE], |object, now| vec![json!(read::name(object)), json!(age(object, now))]);

/// The columns of a built-in kind; `None` for kinds that show only name and age.
pub fn builtin_columns(group: &str, kind: &str) -> Option<&'static BuiltinColumns> {
    Some(match (group, kind) {
        ("", "Pod") => &pods::POD,
        ("", "PodTemplate") => &pods::POD_TEMPLATE,
        ("", "ReplicationController") => &workloads::REPLICATION_CONTROLLER,
        ("", "Service") => &network::SERVICE,
        ("", "Endpoints") => &network::ENDPOINTS,
        ("", "Node") => &cluster::NODE,
        ("" | "events.k8s.io", "Event") => &events::EVENT,
        ("", "Namespace") => &cluster::NAMESPACE,
        ("", "Secret") => &cluster::SECRET,
        ("", "ConfigMap") => &cluster::CONFIG_MAP,
        ("", "ServiceAccount")
        | ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate")
        | ("scheduling.k8s.io", "Workload") => &NAME_AND_AGE,
        ("", "PersistentVolume") => &storage::PERSISTENT_VOLUME,
        ("", "PersistentVolumeClaim") => &storage::PERSISTENT_VOLUME_CLAIM,
        ("", "ResourceQuota") => &cluster::RESOURCE_QUOTA,
        ("apps", "Deployment") => &workloads::DEPLOYMENT,
        ("apps", "ReplicaSet") => &workloads::REPLICA_SET,
        ("apps", "StatefulSet") => &workloads::STATEFUL_SET,
        ("apps", "DaemonSet") => &workloads::DAEMON_SET,
        ("apps", "ControllerRevision") => &workloads::CONTROLLER_REVISION,
        ("batch", "Job") => &workloads::JOB,
        ("batch", "CronJob") => &workloads::CRON_JOB,
        ("autoscaling", "HorizontalPodAutoscaler") => &workloads::HORIZONTAL_POD_AUTOSCALER,
        ("policy", "PodDisruptionBudget") => &scheduling::POD_DISRUPTION_BUDGET,
        ("scheduling.k8s.io", "PriorityClass") => &scheduling::PRIORITY_CLASS,
        ("node.k8s.io", "RuntimeClass") => &scheduling::RUNTIME_CLASS,
        ("coordination.k8s.io", "Lease") => &scheduling::LEASE,
        ("coordination.k8s.io", "LeaseCandidate") => &scheduling::LEASE_CANDIDATE,
        ("resource.k8s.io", "ResourceClaim") => &scheduling::RESOURCE_CLAIM,
        ("resource.k8s.io", "ResourceSlice") => &scheduling::RESOURCE_SLICE,
        ("resource.k8s.io", "DeviceTaintRule") => &scheduling::DEVICE_TAINT_RULE,
        ("networking.k8s.io", "Ingress") => &network::INGRESS,
        ("networking.k8s.io", "IngressClass") => &network::INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => &network::NETWORK_POLICY,
        ("networking.k8s.io", "ServiceCIDR") => &network::SERVICE_CIDR,
        ("networking.k8s.io", "IPAddress") => &network::IP_ADDRESS,
        ("discovery.k8s.io", "EndpointSlice") => &network::ENDPOINT_SLICE,
        ("storage.k8s.io", "StorageClass") => &storage::STORAGE_CLASS,
        ("storage.k8s.io", "VolumeAttributesClass") => &storage::VOLUME_ATTRIBUTES_CLASS,
        ("storage.k8s.io", "VolumeAttachment") => &storage::VOLUME_ATTACHMENT,
        ("storage.k8s.io", "CSINode") => &storage::CSI_NODE,
        ("storage.k8s.io", "CSIDriver") => &storage::CSI_DRIVER,
        ("storagemigration.k8s.io", "StorageVersionMigration") => &storage::STORAGE_VERSION_MIGRATION,
        ("internal.apiserver.k8s.io", "StorageVersion") => &storage::STORAGE_VERSION,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &access::ROLE_BINDING,
        ("certificates.k8s.io", "CertificateSigningRequest") => &access::CERTIFICATE_SIGNING_REQUEST,
        ("certificates.k8s.io", "ClusterTrustBundle") => &access::CLUSTER_TRUST_BUNDLE,
        ("certificates.k8s.io", "PodCertificateRequest") => &access::POD_CERTIFICATE_REQUEST,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => &access::FLOW_SCHEMA,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => &access::PRIORITY_LEVEL_CONFIGURATION,
        ("apiregistration.k8s.io", "APIService") => &access::API_SERVICE,
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            &admission::WEBHOOK_CONFIGURATION
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &admission::VALIDATING_POLICY,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => &admission::MUTATING_POLICY,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding") => {
            &admission::POLICY_BINDING
        }
        _ => return None,
    })
}

/// The columns of a Scale.
pub fn scale_columns() -> &'static BuiltinColumns {
    &workloads::SCALE
}

/// How long ago an object was created.
fn age(object: &Value, now: Timestamp) -> String {
    since(object, "/metadata/creationTimestamp", now)
}

/// How long ago the time at a pointer was.
fn since(object: &Value, pointer: &str, now: Timestamp) -> String {
    age_of(time(object, pointer), now)
}

/// How long ago a time was.
pub(super) fn age_of(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| "<unknown>".to_owned(), |time| human_duration(now.duration_since(time)))
}

/// A text, or a replacement if it is empty.
fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

/// Whether a condition of this type is there and true.
fn is_true(object: &Value, ty: &str) -> bool {
    condition(object, ty).is_some_and(|condition| condition["status"] == "True")
}

/// The first condition of a type in the status of an object.
fn condition<'a>(object: &'a Value, ty: &str) -> Option<&'a Value> {
    read::list(object, "/status/conditions").iter().find(|condition| condition["type"] == ty)
}

/// At most `max` items, and how many more there are.
fn with_more(items: &[String], total: usize, max: usize, separator: &str) -> String {
    let shown = items.iter().take(max).cloned().collect::<Vec<_>>().join(separator);
    if total > max { format!("{shown} + {} more...", total - max) } else { shown }
}

/// Names and images of the containers at a pointer, as two cells.
fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    let containers = read::list(object, pointer);
    [json!(words(containers, "name").join(",")), json!(words(containers, "image").join(","))]
}
