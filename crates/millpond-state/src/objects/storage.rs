//! Volumes, claims and their classes.

use serde::Deserialize;

use super::meta::{Metadata, NodeSelector};
use super::text::Text;

/// A PersistentVolume.
#[derive(Debug, Clone, Deserialize)]
pub struct PersistentVolume<'a> {
    /// Name, labels and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    #[serde(default)]
    pub spec: VolumeSpec<'a>,
}

/// What a volume is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec<'a> {
    /// The nodes that can reach it.
    #[serde(borrow)]
    pub node_affinity: VolumeAffinity<'a>,
    /// The driver that attaches it.
    pub csi: Option<Driver<'a>>,
    /// Its class.
    pub storage_class_name: Text<'a>,
    /// The claim that has it.
    pub claim_ref: Option<Bound>,
}

/// A reference to the bound claim, of which only the existence matters.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Bound {}

/// The nodes that can reach a volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VolumeAffinity<'a> {
    /// Must be.
    #[serde(borrow)]
    pub required: Option<NodeSelector<'a>>,
}

/// A driver of volumes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Driver<'a> {
    /// Its name.
    #[serde(borrow)]
    pub driver: Text<'a>,
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, Deserialize)]
pub struct PersistentVolumeClaim<'a> {
    /// Name, labels and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Desired state.
    #[serde(default)]
    pub spec: ClaimSpec<'a>,
}

/// What a claim asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec<'a> {
    /// The class; the cluster's default where none is said, no class where it is empty.
    #[serde(borrow)]
    pub storage_class_name: Option<Text<'a>>,
    /// The volume that it is bound to.
    pub volume_name: Text<'a>,
    /// Its access modes.
    pub access_modes: Vec<Text<'a>>,
}

/// A StorageClass.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageClass<'a> {
    /// Name, labels and so on.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// The driver that makes its volumes.
    #[serde(default)]
    pub provisioner: Text<'a>,
    /// When a volume is made.
    #[serde(default)]
    pub volume_binding_mode: Option<BindingMode>,
    /// Where volumes may be made.
    #[serde(default)]
    pub allowed_topologies: Vec<TopologyTerm<'a>>,
}

/// When a volume is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum BindingMode {
    /// As soon as the claim exists.
    Immediate,
    /// When a pod that uses it is placed.
    WaitForFirstConsumer,
}

/// Where volumes may be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTerm<'a> {
    /// Requirements that must all hold.
    #[serde(borrow)]
    pub match_label_expressions: Vec<TopologyRequirement<'a>>,
}

/// A label with the values that it may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct TopologyRequirement<'a> {
    /// The label.
    #[serde(borrow)]
    pub key: Text<'a>,
    /// The values.
    #[serde(default)]
    pub values: Vec<Text<'a>>,
}

/// A CSINode: what the drivers on a node can attach.
#[derive(Debug, Clone, Deserialize)]
pub struct CsiNode<'a> {
    /// The name of the node.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// The drivers.
    #[serde(default)]
    pub spec: CsiNodeSpec<'a>,
}

/// The drivers on a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec<'a> {
    /// Each of them.
    #[serde(borrow)]
    pub drivers: Vec<CsiDriver<'a>>,
}

/// A driver on a node.
#[derive(Debug, Clone, Deserialize)]
pub struct CsiDriver<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Its limit on attached volumes.
    #[serde(default)]
    pub allocatable: Option<VolumeCount>,
}

/// A number of volumes.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct VolumeCount {
    /// How many; without it there is no limit.
    #[serde(default)]
    pub count: Option<u32>,
}
