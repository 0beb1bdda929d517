//! A node as the filters and scores see it.

use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;

use super::labels::Labels;
use super::quantity::Amount;
use super::resources::Resources;
use super::taints::{Effect, Taint};

/// The taint that tolerations for `spec.unschedulable` must match.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// A node as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Allocatable resources.
    pub allocatable: Resources,
    /// How many pods it takes.
    pub max_pods: i64,
}

impl Node {
    /// Reads a node object.
    pub fn view(node: &core::Node) -> Self {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        Self {
            name: node.name_any(),
            labels: node.labels().clone(),
            taints: spec
                .and_then(|spec| spec.taints.as_deref())
                .unwrap_or_default()
                .iter()
                .filter_map(Taint::view)
                .collect(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            allocatable: allocatable.map(Resources::from_list).unwrap_or_default(),
            max_pods: allocatable
                .and_then(|list| list.get("pods"))
                .and_then(|quantity| Amount::parse(&quantity.0))
                .map_or(0, Amount::units),
        }
    }

    /// The cordon as a taint, so that a toleration can let a pod pass.
    pub fn cordon_taint() -> Taint {
        Taint { key: UNSCHEDULABLE_TAINT.into(), value: String::new(), effect: Effect::NoSchedule }
    }
}
