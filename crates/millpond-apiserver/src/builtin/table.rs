//! The table of built-in kinds, group by group, in the order of discovery.
//!
//! Facts of the Kubernetes 1.36 API. Exec, attach, logs, port-forward and proxy subresources are absent on
//! purpose: nothing here runs containers, so the paths answer 404.

use super::{
    Row, ScalePaths, apps, autoscaling, batch, certificates, core, devices, events, extension, fields, hooks, network,
    pod, policy, quota, rbac, service, storage,
};
use crate::resource::{NameRule, OtherSubresource, Verbs};

/// Namespaced, all verbs, no subresource, no rules of its own: every row starts from here.
const BASE: Row = Row {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: Verbs::All,
    status: false,
    scale: None,
    others: &[],
    name_rule: NameRule::Subdomain,
    fields: None,
    storage: None,
    storage_version: None,
    deprecation: None,
    hooks: &hooks::PLAIN,
};

/// `/scale` of a workload whose selector is a `LabelSelector` (or a map) in `spec.selector`.
const WORKLOAD_SCALE: Option<ScalePaths> = Some(ScalePaths {
    spec_replicas: ".spec.replicas",
    status_replicas: ".status.replicas",
    label_selector: ".spec.selector",
});

const GET_PATCH_UPDATE: &[&str] = &["get", "patch", "update"];

/// Verbs that are forwarded to a kubelet.
const CONNECT: &[&str] = &["create", "get"];

const POD_SUBRESOURCES: &[OtherSubresource] = &[
    OtherSubresource { name: "attach", kind: ("", "", "PodAttachOptions"), verbs: CONNECT },
    OtherSubresource { name: "binding", kind: ("", "v1", "Binding"), verbs: &["create"] },
    OtherSubresource { name: "ephemeralcontainers", kind: ("", "", "Pod"), verbs: GET_PATCH_UPDATE },
    OtherSubresource { name: "eviction", kind: ("policy", "v1", "Eviction"), verbs: &["create"] },
    OtherSubresource { name: "exec", kind: ("", "", "PodExecOptions"), verbs: CONNECT },
    OtherSubresource { name: "log", kind: ("", "", "Pod"), verbs: &["get"] },
    OtherSubresource { name: "portforward", kind: ("", "", "PodPortForwardOptions"), verbs: CONNECT },
    OtherSubresource { name: "resize", kind: ("", "", "Pod"), verbs: GET_PATCH_UPDATE },
];

const NAMESPACE_SUBRESOURCES: &[OtherSubresource] =
    &[OtherSubresource { name: "finalize", kind: ("", "", "Namespace"), verbs: &["update"] }];

const SERVICE_ACCOUNT_SUBRESOURCES: &[OtherSubresource] =
    &[OtherSubresource { name: "token", kind: ("authentication.k8s.io", "v1", "TokenRequest"), verbs: &["create"] }];

const SIGNING_REQUEST_SUBRESOURCES: &[OtherSubresource] =
    &[OtherSubresource { name: "approval", kind: ("", "", "CertificateSigningRequest"), verbs: GET_PATCH_UPDATE }];

const ENDPOINTS_DEPRECATION: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

/// All rows.
pub(super) fn rows() -> &'static [Row] {
    ROWS
}

static ROWS: &[Row] = &[
    Row { kind: "Binding", plural: "bindings", verbs: Verbs::CreateOnly, ..BASE },
    Row { kind: "ConfigMap", plural: "configmaps", short_names: &["cm"], hooks: &core::CONFIG_MAP, ..BASE },
    Row {
        kind: "Endpoints",
        plural: "endpoints",
        short_names: &["ep"],
        deprecation: Some(ENDPOINTS_DEPRECATION),
        hooks: &service::ENDPOINTS,
        ..BASE
    },
    Row {
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        fields: Some(fields::EVENT),
        hooks: &events::CORE,
        ..BASE
    },
    Row { kind: "LimitRange", plural: "limitranges", short_names: &["limits"], hooks: &quota::LIMIT_RANGE, ..BASE },
    Row {
        kind: "Namespace",
        plural: "namespaces",
        short_names: &["ns"],
        namespaced: false,
        verbs: Verbs::AllButDeleteCollection,
        status: true,
        others: NAMESPACE_SUBRESOURCES,
        name_rule: NameRule::Label,
        fields: Some(fields::NAMESPACE),
        hooks: &core::NAMESPACE,
        ..BASE
    },
    Row {
        kind: "Node",
        plural: "nodes",
        short_names: &["no"],
        namespaced: false,
        status: true,
        fields: Some(fields::NODE),
        hooks: &core::NODE,
        ..BASE
    },
    Row {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        short_names: &["pvc"],
        status: true,
        hooks: &storage::CLAIM,
        ..BASE
    },
    Row {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        short_names: &["pv"],
        namespaced: false,
        status: true,
        hooks: &storage::VOLUME,
        ..BASE
    },
    Row {
        kind: "Pod",
        plural: "pods",
        short_names: &["po"],
        categories: &["all"],
        status: true,
        others: POD_SUBRESOURCES,
        fields: Some(fields::POD),
        hooks: &pod::POD,
        ..BASE
    },
    Row { kind: "PodTemplate", plural: "podtemplates", hooks: &pod::POD_TEMPLATE, ..BASE },
    Row {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        short_names: &["rc"],
        categories: &["all"],
        status: true,
        scale: WORKLOAD_SCALE,
        fields: Some(fields::REPLICATION_CONTROLLER),
        hooks: &apps::REPLICATION_CONTROLLER,
        ..BASE
    },
    Row {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        short_names: &["quota"],
        status: true,
        hooks: &quota::RESOURCE_QUOTA,
        ..BASE
    },
    Row { kind: "Secret", plural: "secrets", fields: Some(fields::SECRET), hooks: &core::SECRET, ..BASE },
    Row {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short_names: &["sa"],
        others: SERVICE_ACCOUNT_SUBRESOURCES,
        hooks: &core::SERVICE_ACCOUNT,
        ..BASE
    },
    Row {
        kind: "Service",
        plural: "services",
        short_names: &["svc"],
        categories: &["all"],
        status: true,
        name_rule: NameRule::Label,
        fields: Some(fields::SERVICE),
        hooks: &service::SERVICE,
        ..BASE
    },
    Row {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        plural: "apiservices",
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        name_rule: NameRule::PathSegment,
        hooks: &extension::API_SERVICE,
        ..BASE
    },
    Row {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        hooks: &apps::CONTROLLER_REVISION,
        ..BASE
    },
    Row {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        short_names: &["ds"],
        categories: &["all"],
        status: true,
        hooks: &apps::DAEMON_SET,
        ..BASE
    },
    Row {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        short_names: &["deploy"],
        categories: &["all"],
        status: true,
        scale: WORKLOAD_SCALE,
        hooks: &apps::DEPLOYMENT,
        ..BASE
    },
    Row {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        short_names: &["rs"],
        categories: &["all"],
        status: true,
        scale: WORKLOAD_SCALE,
        hooks: &apps::REPLICA_SET,
        ..BASE
    },
    Row {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        short_names: &["sts"],
        categories: &["all"],
        status: true,
        scale: WORKLOAD_SCALE,
        name_rule: NameRule::Label,
        hooks: &apps::STATEFUL_SET,
        ..BASE
    },
    Row {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        fields: Some(fields::NEW_EVENT),
        storage: Some("events"),
        hooks: &events::NEW,
        ..BASE
    },
    Row {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        namespaced: false,
        verbs: Verbs::CreateOnly,
        ..BASE
    },
    Row {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        namespaced: false,
        verbs: Verbs::CreateOnly,
        ..BASE
    },
    Row {
        group: "authorization.k8s.io",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        verbs: Verbs::CreateOnly,
        ..BASE
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        namespaced: false,
        verbs: Verbs::CreateOnly,
        ..BASE
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        namespaced: false,
        verbs: Verbs::CreateOnly,
        ..BASE
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        namespaced: false,
        verbs: Verbs::CreateOnly,
        ..BASE
    },
    Row {
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        short_names: &["hpa"],
        categories: &["all"],
        status: true,
        hooks: &autoscaling::V2,
        ..BASE
    },
    Row {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        short_names: &["hpa"],
        categories: &["all"],
        status: true,
        storage_version: Some("v2"),
        hooks: &autoscaling::V1,
        ..BASE
    },
    Row {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        short_names: &["cj"],
        categories: &["all"],
        status: true,
        hooks: &batch::CRON_JOB,
        ..BASE
    },
    Row {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        categories: &["all"],
        status: true,
        fields: Some(fields::JOB),
        hooks: &batch::JOB,
        ..BASE
    },
    Row {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short_names: &["csr"],
        namespaced: false,
        status: true,
        others: SIGNING_REQUEST_SUBRESOURCES,
        name_rule: NameRule::PathSegment,
        fields: Some(fields::CERTIFICATE_SIGNING_REQUEST),
        hooks: &certificates::SIGNING_REQUEST,
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        kind: "IngressClass",
        plural: "ingressclasses",
        namespaced: false,
        hooks: &network::INGRESS_CLASS,
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        kind: "Ingress",
        plural: "ingresses",
        short_names: &["ing"],
        status: true,
        hooks: &network::INGRESS,
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        kind: "IPAddress",
        plural: "ipaddresses",
        short_names: &["ip"],
        namespaced: false,
        name_rule: NameRule::Ip,
        hooks: &network::IP_ADDRESS,
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        short_names: &["netpol"],
        hooks: &network::NETWORK_POLICY,
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        namespaced: false,
        status: true,
        hooks: &network::SERVICE_CIDR,
        ..BASE
    },
    Row {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        short_names: &["pdb"],
        status: true,
        hooks: &policy::DISRUPTION_BUDGET,
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        namespaced: false,
        name_rule: NameRule::PathSegment,
        hooks: &rbac::CLUSTER_ROLE_BINDING,
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        plural: "clusterroles",
        namespaced: false,
        name_rule: NameRule::PathSegment,
        hooks: &rbac::CLUSTER_ROLE,
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        name_rule: NameRule::PathSegment,
        hooks: &rbac::ROLE_BINDING,
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        name_rule: NameRule::PathSegment,
        hooks: &rbac::ROLE,
        ..BASE
    },
    Row {
        group: "storage.k8s.io",
        kind: "CSIDriver",
        plural: "csidrivers",
        namespaced: false,
        hooks: &storage::CSI_DRIVER,
        ..BASE
    },
    Row {
        group: "storage.k8s.io",
        kind: "CSINode",
        plural: "csinodes",
        namespaced: false,
        hooks: &storage::CSI_NODE,
        ..BASE
    },
    Row {
        group: "storage.k8s.io",
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        hooks: &storage::CSI_CAPACITY,
        ..BASE
    },
    Row {
        group: "storage.k8s.io",
        kind: "StorageClass",
        plural: "storageclasses",
        short_names: &["sc"],
        namespaced: false,
        hooks: &storage::CLASS,
        ..BASE
    },
    Row {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        namespaced: false,
        status: true,
        hooks: &storage::ATTACHMENT,
        ..BASE
    },
    Row {
        group: "storage.k8s.io",
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        short_names: &["vac"],
        namespaced: false,
        hooks: &storage::ATTRIBUTES_CLASS,
        ..BASE
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        categories: &["api-extensions"],
        namespaced: false,
        hooks: &extension::POLICY,
        ..BASE
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "MutatingAdmissionPolicyBinding",
        plural: "mutatingadmissionpolicybindings",
        categories: &["api-extensions"],
        namespaced: false,
        hooks: &extension::POLICY,
        ..BASE
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        categories: &["api-extensions"],
        namespaced: false,
        hooks: &extension::WEBHOOKS,
        ..BASE
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        hooks: &extension::VALIDATING_POLICY,
        ..BASE
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        categories: &["api-extensions"],
        namespaced: false,
        hooks: &extension::POLICY,
        ..BASE
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        categories: &["api-extensions"],
        namespaced: false,
        hooks: &extension::WEBHOOKS,
        ..BASE
    },
    Row {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        hooks: &crate::crd::HOOKS,
        ..BASE
    },
    Row {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short_names: &["pc"],
        namespaced: false,
        hooks: &policy::PRIORITY_CLASS,
        ..BASE
    },
    Row { group: "coordination.k8s.io", kind: "Lease", plural: "leases", hooks: &policy::LEASE, ..BASE },
    Row {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        namespaced: false,
        hooks: &policy::RUNTIME_CLASS,
        ..BASE
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        hooks: &network::ENDPOINT_SLICE,
        ..BASE
    },
    Row {
        group: "resource.k8s.io",
        kind: "DeviceClass",
        plural: "deviceclasses",
        namespaced: false,
        hooks: &devices::CLASS,
        ..BASE
    },
    Row {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        plural: "resourceclaims",
        status: true,
        hooks: &devices::CLAIM,
        ..BASE
    },
    Row {
        group: "resource.k8s.io",
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        hooks: &devices::TEMPLATE,
        ..BASE
    },
    Row {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        plural: "resourceslices",
        namespaced: false,
        fields: Some(fields::RESOURCE_SLICE),
        hooks: &devices::SLICE,
        ..BASE
    },
    Row {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "FlowSchema",
        plural: "flowschemas",
        namespaced: false,
        status: true,
        hooks: &extension::FLOW_CONTROL,
        ..BASE
    },
    Row {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        namespaced: false,
        status: true,
        hooks: &extension::FLOW_CONTROL,
        ..BASE
    },
];
