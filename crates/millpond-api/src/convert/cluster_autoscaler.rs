//! Cluster Autoscaler's side, with its kwok provider: ConfigMaps with Nodes as templates of node groups, the
//! provider's configuration, and the priorities of the priority expander.
//!
//! A node group has one template: of two Nodes with the same group name the provider takes the first. So every type
//! in every zone is a group of its own, named by an annotation.

mod read;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(super) use read::{read, read_config_map};
pub(super) use write::write;

use crate::amounts::Amounts;
use crate::karpenter::Taint;
use crate::meta::is_default;

/// The ConfigMap of templates, and its key.
const TEMPLATES: (&str, &str) = ("kwok-provider-templates", "templates");
/// The ConfigMap of the provider's settings, and its key.
const CONFIG: (&str, &str) = ("kwok-provider-config", "config");
/// The ConfigMap of the priority expander, and its key.
const PRIORITIES: (&str, &str) = ("cluster-autoscaler-priority-expander", "priorities");
/// Where Cluster Autoscaler looks for all three: its own namespace, by convention this one.
const NAMESPACE: &str = "kube-system";

/// Annotation: the name of the group.
const GROUP: &str = "cluster-autoscaler.kwok.nodegroup/name";
/// Annotation: the fewest nodes of the group.
const LEAST: &str = "cluster-autoscaler.kwok.nodegroup/min-count";
/// Annotation: the most nodes of the group.
const MOST: &str = "cluster-autoscaler.kwok.nodegroup/max-count";
/// Annotation: nodes of the group at the start.
const DESIRED: &str = "cluster-autoscaler.kwok.nodegroup/desired-count";
/// The most nodes of a group that does not say.
const DEFAULT_MOST: u64 = 200;
/// Annotation of Millpond's own: dollars an hour, which Cluster Autoscaler's kwok provider has no field for.
const PRICE: &str = "millpond.dev/price-per-hour";

/// The content of the ConfigMaps.
#[derive(Debug, Clone, Default)]
pub(super) struct Templates {
    pub(super) nodes: Vec<(TemplateNode, Value)>,
    /// The label whose values are the groups.
    group_label: Option<String>,
    /// Priorities with patterns of group names, as they were written.
    priorities: Vec<(i64, Vec<String>)>,
}

/// A Node that is the template of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub(super) struct TemplateNode {
    #[serde(default)]
    metadata: TemplateMeta,
    #[serde(default)]
    spec: TemplateSpec,
    #[serde(default)]
    status: TemplateStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
struct TemplateMeta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    // Never left out: the provider writes into it, and fails where there is none.
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
struct TemplateSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
struct TemplateStatus {
    #[serde(default, skip_serializing_if = "is_default")]
    capacity: Amounts,
    #[serde(default, skip_serializing_if = "is_default")]
    allocatable: Amounts,
}
