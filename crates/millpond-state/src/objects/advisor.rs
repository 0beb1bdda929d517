//! Scaling Advisor's snapshot of a cluster, and the request that holds one: objects with their metadata and spec
//! side by side.

use millpond_api::scaling_advisor::ScalingConstraint;
use millpond_api::time::Time;
use serde::Deserialize;

use super::Object;
use super::cluster::{Node, NodeSpec, NodeStatus, PriorityClass};
use super::meta::{Condition, Metadata, NodeSelector, Owner, Taint};
use super::pod::{
    Affinity, Container, Pod, PodSpec, PodStatus, PreemptionPolicy, ResourceRequirements, SpreadConstraint, Toleration,
    Volume,
};
use super::storage::{
    Bound, ClaimSpec, CsiNode, CsiNodeSpec, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAffinity,
    VolumeSpec,
};
use super::text::{Amounts, Annotations, Pairs, Text};

/// A request to plan.
#[derive(Debug, Clone, Deserialize)]
pub struct Request<'a> {
    /// The pools to choose from.
    #[serde(default)]
    pub constraint: Option<ScalingConstraint>,
    /// The cluster.
    #[serde(default, borrow)]
    pub snapshot: Option<Snapshot<'a>>,
}

/// A cluster.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot<'a> {
    /// Its pods.
    #[serde(borrow)]
    pub pods: Vec<PodInfo<'a>>,
    /// Its nodes.
    pub nodes: Vec<NodeInfo<'a>>,
    /// Its volumes.
    pub pvs: Vec<VolumeInfo<'a>>,
    /// Claims on them.
    pub pvcs: Vec<ClaimInfo<'a>>,
    /// Classes of volumes.
    pub storage_classes: Vec<StorageClass<'a>>,
    /// Priorities.
    pub priority_classes: Vec<PriorityClass<'a>>,
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodInfo<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    namespace: Text<'a>,
    uid: Text<'a>,
    labels: Pairs<'a>,
    annotations: Annotations<'a>,
    owner_references: Vec<Owner<'a>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    aggregated_requests: Amounts<'a>,
    overhead: Amounts<'a>,
    node_selector: Pairs<'a>,
    affinity: Affinity<'a>,
    node_name: Text<'a>,
    scheduler_name: Text<'a>,
    priority_class_name: Text<'a>,
    preemption_policy: Option<PreemptionPolicy>,
    volumes: Vec<Volume<'a>>,
    tolerations: Vec<Toleration<'a>>,
    topology_spread_constraints: Vec<SpreadConstraint<'a>>,
    priority: Option<i32>,
}

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    uid: Text<'a>,
    labels: Pairs<'a>,
    annotations: Annotations<'a>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    capacity: Amounts<'a>,
    allocatable: Amounts<'a>,
    csi_node_spec: Option<CsiNodeSpec<'a>>,
    instance_type: Text<'a>,
    taints: Vec<Taint<'a>>,
    conditions: Vec<Condition<'a>>,
    unschedulable: bool,
}

/// A volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeInfo<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    labels: Pairs<'a>,
    node_affinity: Option<NodeSelector<'a>>,
    claim_ref: Option<Bound>,
    storage_class_name: Text<'a>,
}

/// A claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimInfo<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    namespace: Text<'a>,
    storage_class_name: Option<Text<'a>>,
    volume_name: Text<'a>,
    access_modes: Vec<Text<'a>>,
}

impl<'a> Snapshot<'a> {
    /// All of them as objects, each with its path in the document.
    pub fn objects(self) -> impl Iterator<Item = (String, Object<'a>)> {
        let at = |list: &'static str| move |index: usize| format!("{list}[{index}]");
        let classes = numbered(self.storage_classes, at("storageClasses"), Object::StorageClass);
        let priorities = numbered(self.priority_classes, at("priorityClasses"), Object::PriorityClass);
        let volumes = numbered(self.pvs, at("pvs"), |volume| Object::PersistentVolume(volume.into()));
        let claims = numbered(self.pvcs, at("pvcs"), |claim| Object::PersistentVolumeClaim(claim.into()));
        let drivers = self.nodes.iter().enumerate().filter_map(|(index, node)| {
            let metadata = Metadata { name: node.name.clone(), ..Metadata::default() };
            let spec = node.csi_node_spec.clone()?;
            Some((format!("nodes[{index}]"), Object::CsiNode(CsiNode { metadata, spec })))
        });
        let drivers: Vec<_> = drivers.collect();
        let nodes = numbered(self.nodes, at("nodes"), |node| Object::Node(Box::new(node.into())));
        let pods = numbered(self.pods, at("pods"), |pod| Object::Pod(Box::new(pod.into())));
        classes.chain(priorities).chain(volumes).chain(claims).chain(drivers).chain(nodes).chain(pods)
    }
}

fn numbered<'a, T>(
    list: Vec<T>,
    place: impl Fn(usize) -> String,
    object: impl Fn(T) -> Object<'a>,
) -> impl Iterator<Item = (String, Object<'a>)> {
    list.into_iter().enumerate().map(move |(index, entry)| (place(index), object(entry)))
}

impl<'a> From<PodInfo<'a>> for Pod<'a> {
    fn from(info: PodInfo<'a>) -> Self {
        let resources = ResourceRequirements { requests: info.aggregated_requests, limits: Amounts::default() };
        // Where a class is named, a priority of zero is one that was left out.
        let priority = info.priority.filter(|priority| *priority != 0 || info.priority_class_name.is_empty());
        Pod {
            metadata: Metadata {
                name: info.name,
                namespace: info.namespace,
                uid: info.uid,
                labels: info.labels,
                annotations: info.annotations,
                owner_references: info.owner_references,
                creation_timestamp: info.creation_timestamp,
                deletion_timestamp: info.deletion_timestamp,
                ..Metadata::default()
            },
            spec: PodSpec {
                node_name: info.node_name,
                scheduler_name: info.scheduler_name,
                priority,
                priority_class_name: info.priority_class_name,
                preemption_policy: info.preemption_policy,
                node_selector: info.node_selector,
                affinity: info.affinity,
                tolerations: info.tolerations,
                topology_spread_constraints: info.topology_spread_constraints,
                containers: vec![Container { resources, ..Container::default() }],
                overhead: info.overhead,
                volumes: info.volumes,
                ..PodSpec::default()
            },
            status: PodStatus::default(),
        }
    }
}

impl<'a> From<NodeInfo<'a>> for Node<'a> {
    fn from(info: NodeInfo<'a>) -> Self {
        let mut labels = info.labels;
        let label = millpond_api::labels::INSTANCE_TYPE;
        if labels.get(label).is_none() && !info.instance_type.is_empty() {
            labels.0.push((Text::from(label), info.instance_type));
        }
        Node {
            metadata: Metadata {
                name: info.name,
                uid: info.uid,
                labels,
                annotations: info.annotations,
                creation_timestamp: info.creation_timestamp,
                deletion_timestamp: info.deletion_timestamp,
                ..Metadata::default()
            },
            spec: NodeSpec { taints: info.taints, unschedulable: info.unschedulable, ..NodeSpec::default() },
            status: NodeStatus { capacity: info.capacity, allocatable: info.allocatable, conditions: info.conditions },
        }
    }
}

impl<'a> From<VolumeInfo<'a>> for PersistentVolume<'a> {
    fn from(info: VolumeInfo<'a>) -> Self {
        PersistentVolume {
            metadata: Metadata { name: info.name, labels: info.labels, ..Metadata::default() },
            spec: VolumeSpec {
                node_affinity: VolumeAffinity { required: info.node_affinity },
                csi: None,
                storage_class_name: info.storage_class_name,
                claim_ref: info.claim_ref,
            },
        }
    }
}

impl<'a> From<ClaimInfo<'a>> for PersistentVolumeClaim<'a> {
    fn from(info: ClaimInfo<'a>) -> Self {
        PersistentVolumeClaim {
            metadata: Metadata { name: info.name, namespace: info.namespace, ..Metadata::default() },
            spec: ClaimSpec {
                storage_class_name: info.storage_class_name,
                volume_name: info.volume_name,
                access_modes: info.access_modes,
            },
        }
    }
}
