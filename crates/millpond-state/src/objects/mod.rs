//! Kubernetes objects, reduced to the fields that planning needs, deserialized without copying.
//!
//! These types contain only the fields that planning needs; the reader skips others. Kinds that other crates use as
//! well (NodePool, NodeClaim, NodeClass, NodeOverlay, CapacityBuffer, ScalingConstraint) are in `millpond-api`.

pub mod advisor;
pub mod cluster;
pub mod cluster_api;
pub mod meta;
pub mod pod;
pub mod storage;
pub mod text;

use millpond_api::capacity_buffer::CapacityBuffer;
use millpond_api::cluster_limits::ClusterLimits;
use millpond_api::karpenter::{NodeClaim, NodeOverlay, NodePool};
use millpond_api::node_class::NodeClass;
use millpond_api::scaling_advisor::{ScalingConstraint, ScalingFeedback};
use millpond_api::spelling::nearest;
use serde::{Deserialize, Deserializer};

use self::cluster::{
    ConfigMap, DisruptionBudget, LimitRange, Namespace, Node, PriorityClass, StoredTemplate, Workload,
};
use self::cluster_api::{ApiKind, Raw};
use self::pod::Pod;
use self::storage::{CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass};

/// A kind that planning looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A pod.
    Pod,
    /// A node.
    Node,
    /// A namespace.
    Namespace,
    /// A volume.
    PersistentVolume,
    /// A claim on a volume.
    PersistentVolumeClaim,
    /// A class of volumes.
    StorageClass,
    /// Volume drivers of a node and their limits.
    CsiNode,
    /// A priority by name.
    PriorityClass,
    /// How many pods may be evicted.
    PodDisruptionBudget,
    /// A pod on every node.
    DaemonSet,
    /// A fixed number of pods.
    ReplicaSet,
    /// ReplicaSets one after the other.
    Deployment,
    /// Pods with names and claims of their own.
    StatefulSet,
    /// Pods that end.
    Job,
    /// A stored pod template.
    PodTemplate,
    /// Default requests of containers in a namespace.
    LimitRange,
    /// Room that is kept free for pods.
    CapacityBuffer,
    /// A pool of nodes.
    NodePool,
    /// Own prices and resources of instance types.
    NodeOverlay,
    /// A node that was asked for.
    NodeClaim,
    /// Where the nodes of a pool come from.
    NodeClass(ClassKind),
    /// Scaling Advisor's pools.
    ScalingConstraint,
    /// What could not be had or let go, by the consumer of advice.
    ScalingFeedback,
    /// What all nodes of all pools may add up to.
    ClusterLimits,
    /// A catalogue of instance types, in some.
    ConfigMap,
    /// Machines of Cluster API, and what sets their number and their template.
    ClusterApi(ApiKind),
}

/// The node classes of different providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClassKind {
    /// Millpond's own.
    Millpond,
    /// Karpenter's for EC2.
    Ec2,
    /// Karpenter's for Compute Engine.
    Gce,
    /// Karpenter's for KWOK.
    Kwok,
}

impl ClassKind {
    /// The class that a pool names.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        let mut known = KINDS.iter().filter(|(known, name, _)| *known == group && *name == kind);
        known.find_map(|(.., kind)| if let Kind::NodeClass(class) = kind { Some(*class) } else { None })
    }
}

/// API groups and names of the kinds.
const KINDS: [(&str, &str, Kind); 37] = [
    ("", "Pod", Kind::Pod),
    ("", "Node", Kind::Node),
    ("", "Namespace", Kind::Namespace),
    ("", "ConfigMap", Kind::ConfigMap),
    ("", "LimitRange", Kind::LimitRange),
    ("", "PersistentVolume", Kind::PersistentVolume),
    ("", "PersistentVolumeClaim", Kind::PersistentVolumeClaim),
    ("", "PodTemplate", Kind::PodTemplate),
    ("storage.k8s.io", "StorageClass", Kind::StorageClass),
    ("storage.k8s.io", "CSINode", Kind::CsiNode),
    ("scheduling.k8s.io", "PriorityClass", Kind::PriorityClass),
    ("policy", "PodDisruptionBudget", Kind::PodDisruptionBudget),
    ("apps", "DaemonSet", Kind::DaemonSet),
    ("apps", "ReplicaSet", Kind::ReplicaSet),
    ("apps", "Deployment", Kind::Deployment),
    ("apps", "StatefulSet", Kind::StatefulSet),
    ("batch", "Job", Kind::Job),
    ("karpenter.sh", "NodePool", Kind::NodePool),
    ("autoscaling.x-k8s.io", "CapacityBuffer", Kind::CapacityBuffer),
    ("karpenter.sh", "NodeClaim", Kind::NodeClaim),
    ("karpenter.sh", "NodeOverlay", Kind::NodeOverlay),
    ("millpond.dev", "NodeClass", Kind::NodeClass(ClassKind::Millpond)),
    ("millpond.dev", "ClusterLimits", Kind::ClusterLimits),
    ("karpenter.k8s.aws", "EC2NodeClass", Kind::NodeClass(ClassKind::Ec2)),
    ("karpenter.k8s.gcp", "GCENodeClass", Kind::NodeClass(ClassKind::Gce)),
    ("karpenter.kwok.sh", "KWOKNodeClass", Kind::NodeClass(ClassKind::Kwok)),
    ("sa.gardener.cloud", "ScalingConstraint", Kind::ScalingConstraint),
    ("sa.gardener.cloud", "ScalingConstraints", Kind::ScalingConstraint),
    ("sa.gardener.cloud", "ClusterScalingConstraint", Kind::ScalingConstraint),
    ("sa.gardener.cloud", "ScalingFeedback", Kind::ScalingFeedback),
    (cluster_api::GROUP, "MachineDeployment", Kind::ClusterApi(ApiKind::MachineDeployment)),
    (cluster_api::GROUP, "MachineSet", Kind::ClusterApi(ApiKind::MachineSet)),
    (cluster_api::GROUP, "MachinePool", Kind::ClusterApi(ApiKind::MachinePool)),
    (cluster_api::GROUP, "Machine", Kind::ClusterApi(ApiKind::Machine)),
    (cluster_api::GROUP, "Cluster", Kind::ClusterApi(ApiKind::Cluster)),
    // Every provider has its own; see `cluster_api::look_up`.
    (cluster_api::INFRASTRUCTURE, "MachineTemplate", Kind::ClusterApi(ApiKind::MachineTemplate)),
    (cluster_api::BOOTSTRAP, "ConfigTemplate", Kind::ClusterApi(ApiKind::ConfigTemplate)),
];

/// Kinds that are known to have nothing to do with planning: skipped without a word.
const IRRELEVANT: [&str; 49] = [
    "APIService",
    "Binding",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ComponentStatus",
    "ControllerRevision",
    "CronJob",
    "CSIDriver",
    "CSIStorageCapacity",
    "CustomResourceDefinition",
    "DeviceClass",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "FlowSchema",
    "HorizontalPodAutoscaler",
    "Ingress",
    "IngressClass",
    "IPAddress",
    "Kustomization",
    "Lease",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "NetworkPolicy",
    "NodeMetrics",
    "PodMetrics",
    "PriorityLevelConfiguration",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "ResourceSlice",
    "Role",
    "RoleBinding",
    "RuntimeClass",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceCIDR",
    "StorageVersion",
    "Status",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
    "VolumeAttributesClass",
    "VolumeSnapshot",
    "VolumeSnapshotClass",
];

/// What a kind's name means to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Planning looks at it.
    Used(Kind),
    /// It is irrelevant to planning.
    Irrelevant,
    /// It is unknown; with the most similar known kind, if any.
    Unknown(Option<&'static str>),
}

/// Looks a kind up by `apiVersion` and `kind`.
pub fn look_up(api_version: &str, name: &str) -> Known {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if let Some((.., kind)) = KINDS.iter().find(|(known, kind, _)| *known == group && *kind == name) {
        return Known::Used(*kind);
    }
    if let Some(known) = cluster_api::look_up(group, name) {
        return known;
    }
    if IRRELEVANT.contains(&name) {
        return Known::Irrelevant;
    }
    let names = KINDS.iter().map(|(_, name, _)| *name);
    Known::Unknown(nearest(name, names))
}

/// The group that a kind of this name belongs to, where the name is right and the group is not.
pub fn group_of(name: &str) -> Option<&'static str> {
    KINDS.iter().find(|(_, kind, _)| *kind == name).map(|(group, ..)| *group)
}

/// An object that planning looks at.
#[derive(Debug, Clone)]
pub enum Object<'a> {
    /// A pod.
    Pod(Box<Pod<'a>>),
    /// A node.
    Node(Box<Node<'a>>),
    /// A namespace.
    Namespace(Namespace<'a>),
    /// A volume.
    PersistentVolume(PersistentVolume<'a>),
    /// A claim on a volume.
    PersistentVolumeClaim(PersistentVolumeClaim<'a>),
    /// A class of volumes.
    StorageClass(StorageClass<'a>),
    /// Volume drivers of a node and their limits.
    CsiNode(CsiNode<'a>),
    /// A priority by name.
    PriorityClass(PriorityClass<'a>),
    /// How many pods may be evicted.
    PodDisruptionBudget(DisruptionBudget<'a>),
    /// A DaemonSet, ReplicaSet, Deployment, StatefulSet or Job.
    Workload(Kind, Box<Workload<'a>>),
    /// A stored pod template.
    PodTemplate(Box<StoredTemplate<'a>>),
    /// Default requests of containers in a namespace.
    LimitRange(LimitRange<'a>),
    /// Room that is kept free for pods.
    CapacityBuffer(Box<CapacityBuffer>),
    /// A pool of nodes.
    NodePool(Box<NodePool>),
    /// Own prices and resources of instance types.
    NodeOverlay(Box<NodeOverlay>),
    /// A node that was asked for.
    NodeClaim(Box<NodeClaim>),
    /// Where the nodes of a pool come from.
    NodeClass(ClassKind, Box<NodeClass>),
    /// Scaling Advisor's pools.
    ScalingConstraint(Box<ScalingConstraint>),
    /// What could not be had or let go, by the consumer of advice.
    ScalingFeedback(Box<ScalingFeedback>),
    /// What all nodes of all pools may add up to.
    ClusterLimits(Box<ClusterLimits>),
    /// A catalogue of instance types, in some.
    ConfigMap(ConfigMap<'a>),
    /// Machines of Cluster API, and what sets their number and their template.
    ClusterApi(ApiKind, Box<Raw>),
}

impl<'a> Object<'a> {
    /// Reads the JSON of an object of a kind: here and not where it is asked for, since it is a lot of code.
    #[inline(never)]
    pub fn from_json(kind: Kind, text: &'a str) -> serde_json::Result<Self> {
        Self::read(kind, &mut serde_json::Deserializer::from_str(text))
    }

    /// Reads an object of a kind.
    pub fn read<'de: 'a, D: Deserializer<'de>>(kind: Kind, from: D) -> Result<Self, D::Error> {
        Ok(match kind {
            Kind::Pod => Self::Pod(Box::new(Pod::deserialize(from)?)),
            Kind::Node => Self::Node(Box::new(Node::deserialize(from)?)),
            Kind::Namespace => Self::Namespace(Namespace::deserialize(from)?),
            Kind::PersistentVolume => Self::PersistentVolume(PersistentVolume::deserialize(from)?),
            Kind::PersistentVolumeClaim => Self::PersistentVolumeClaim(PersistentVolumeClaim::deserialize(from)?),
            Kind::StorageClass => Self::StorageClass(StorageClass::deserialize(from)?),
            Kind::CsiNode => Self::CsiNode(CsiNode::deserialize(from)?),
            Kind::PriorityClass => Self::PriorityClass(PriorityClass::deserialize(from)?),
            Kind::PodDisruptionBudget => Self::PodDisruptionBudget(DisruptionBudget::deserialize(from)?),
            Kind::DaemonSet | Kind::ReplicaSet | Kind::Deployment | Kind::StatefulSet | Kind::Job => {
                Self::Workload(kind, Box::new(Workload::deserialize(from)?))
            }
            Kind::PodTemplate => Self::PodTemplate(Box::new(StoredTemplate::deserialize(from)?)),
            Kind::LimitRange => Self::LimitRange(LimitRange::deserialize(from)?),
            Kind::CapacityBuffer => Self::CapacityBuffer(Box::new(CapacityBuffer::deserialize(from)?)),
            Kind::NodePool => Self::NodePool(Box::new(NodePool::deserialize(from)?)),
            Kind::NodeOverlay => Self::NodeOverlay(Box::new(NodeOverlay::deserialize(from)?)),
            Kind::NodeClaim => Self::NodeClaim(Box::new(NodeClaim::deserialize(from)?)),
            Kind::NodeClass(class) => Self::NodeClass(class, Box::new(NodeClass::deserialize(from)?)),
            Kind::ScalingConstraint => Self::ScalingConstraint(Box::new(ScalingConstraint::deserialize(from)?)),
            Kind::ScalingFeedback => Self::ScalingFeedback(Box::new(ScalingFeedback::deserialize(from)?)),
            Kind::ClusterLimits => Self::ClusterLimits(Box::new(ClusterLimits::deserialize(from)?)),
            Kind::ConfigMap => Self::ConfigMap(ConfigMap::deserialize(from)?),
            Kind::ClusterApi(kind) => Self::ClusterApi(kind, Box::new(Raw::deserialize(from)?)),
        })
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pod(_) => Kind::Pod,
            Self::Node(_) => Kind::Node,
            Self::Namespace(_) => Kind::Namespace,
            Self::PersistentVolume(_) => Kind::PersistentVolume,
            Self::PersistentVolumeClaim(_) => Kind::PersistentVolumeClaim,
            Self::StorageClass(_) => Kind::StorageClass,
            Self::CsiNode(_) => Kind::CsiNode,
            Self::PriorityClass(_) => Kind::PriorityClass,
            Self::PodDisruptionBudget(_) => Kind::PodDisruptionBudget,
            Self::Workload(kind, _) => *kind,
            Self::PodTemplate(_) => Kind::PodTemplate,
            Self::LimitRange(_) => Kind::LimitRange,
            Self::CapacityBuffer(_) => Kind::CapacityBuffer,
            Self::NodePool(_) => Kind::NodePool,
            Self::NodeOverlay(_) => Kind::NodeOverlay,
            Self::NodeClaim(_) => Kind::NodeClaim,
            Self::NodeClass(class, _) => Kind::NodeClass(*class),
            Self::ScalingConstraint(_) => Kind::ScalingConstraint,
            Self::ScalingFeedback(_) => Kind::ScalingFeedback,
            Self::ClusterLimits(_) => Kind::ClusterLimits,
            Self::ConfigMap(_) => Kind::ConfigMap,
            Self::ClusterApi(kind, _) => Kind::ClusterApi(*kind),
        }
    }

    /// Whether a person wrote it: the server gives every object an identity.
    pub fn is_by_hand(&self) -> bool {
        let uid: &str = match self {
            Self::Pod(pod) => &pod.metadata.uid,
            Self::Node(node) => &node.metadata.uid,
            Self::Namespace(namespace) => &namespace.metadata.uid,
            Self::PersistentVolume(volume) => &volume.metadata.uid,
            Self::PersistentVolumeClaim(claim) => &claim.metadata.uid,
            Self::StorageClass(class) => &class.metadata.uid,
            Self::CsiNode(node) => &node.metadata.uid,
            Self::PriorityClass(class) => &class.metadata.uid,
            Self::PodDisruptionBudget(budget) => &budget.metadata.uid,
            Self::Workload(_, workload) => &workload.metadata.uid,
            Self::PodTemplate(template) => &template.metadata.uid,
            Self::LimitRange(range) => &range.metadata.uid,
            Self::CapacityBuffer(buffer) => &buffer.metadata.uid,
            Self::NodePool(pool) => &pool.metadata.uid,
            Self::NodeOverlay(overlay) => &overlay.metadata.uid,
            Self::NodeClaim(claim) => &claim.metadata.uid,
            Self::NodeClass(_, class) => &class.metadata.uid,
            Self::ScalingConstraint(constraint) => &constraint.metadata.uid,
            Self::ScalingFeedback(feedback) => &feedback.metadata.uid,
            Self::ClusterLimits(limits) => &limits.metadata.uid,
            Self::ConfigMap(map) => &map.metadata.uid,
            Self::ClusterApi(_, raw) => &raw.metadata.uid,
        };
        uid.is_empty()
    }

    /// Its namespace (empty for kinds of the cluster) and name.
    pub fn name(&self) -> (&str, &str) {
        match self {
            Self::Pod(pod) => (pod.metadata.namespace(), &pod.metadata.name),
            Self::Node(node) => ("", &node.metadata.name),
            Self::Namespace(namespace) => ("", &namespace.metadata.name),
            Self::PersistentVolume(volume) => ("", &volume.metadata.name),
            Self::PersistentVolumeClaim(claim) => (claim.metadata.namespace(), &claim.metadata.name),
            Self::StorageClass(class) => ("", &class.metadata.name),
            Self::CsiNode(node) => ("", &node.metadata.name),
            Self::PriorityClass(class) => ("", &class.metadata.name),
            Self::PodDisruptionBudget(budget) => (budget.metadata.namespace(), &budget.metadata.name),
            Self::Workload(_, workload) => (workload.metadata.namespace(), &workload.metadata.name),
            Self::PodTemplate(template) => (template.metadata.namespace(), &template.metadata.name),
            Self::LimitRange(range) => (range.metadata.namespace(), &range.metadata.name),
            Self::CapacityBuffer(buffer) => (namespace_of(&buffer.metadata), &buffer.metadata.name),
            Self::NodePool(pool) => ("", &pool.metadata.name),
            Self::NodeOverlay(overlay) => ("", &overlay.metadata.name),
            Self::NodeClaim(claim) => ("", &claim.metadata.name),
            Self::NodeClass(_, class) => ("", &class.metadata.name),
            Self::ScalingConstraint(constraint) => (&constraint.metadata.namespace, &constraint.metadata.name),
            Self::ScalingFeedback(feedback) => (&feedback.metadata.namespace, &feedback.metadata.name),
            Self::ClusterLimits(limits) => ("", &limits.metadata.name),
            Self::ConfigMap(map) => (map.metadata.namespace(), &map.metadata.name),
            Self::ClusterApi(_, raw) => (namespace_of(&raw.metadata), &raw.metadata.name),
        }
    }
}

/// The namespace of an object, `default` where none is said.
pub(crate) fn namespace_of(metadata: &millpond_api::meta::ObjectMeta) -> &str {
    if metadata.namespace.is_empty() { "default" } else { &metadata.namespace }
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(.., kind)| *kind == self).map_or("", |(_, name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_group_and_name() {
        assert_eq!(look_up("v1", "Pod"), Known::Used(Kind::Pod));
        assert_eq!(look_up("karpenter.sh/v1", "NodePool"), Known::Used(Kind::NodePool));
        assert_eq!(look_up("v1", "Service"), Known::Irrelevant);
        assert_eq!(look_up("karpenter.sh/v1", "Nodepool"), Known::Unknown(Some("NodePool")));
        assert_eq!(look_up("example.com/v1", "NodePool"), Known::Unknown(Some("NodePool")));
        assert_eq!(look_up("example.com/v1", "Teapot"), Known::Unknown(None));
        assert_eq!(group_of("NodePool"), Some("karpenter.sh"));
        assert_eq!(Kind::CsiNode.name(), "CSINode");
    }
}
