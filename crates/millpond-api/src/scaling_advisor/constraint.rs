//! ScalingConstraint: pools to choose from, each with templates of nodes in zones.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::GROUP;
use crate::amounts::Amounts;
use crate::duration::Duration;
use crate::karpenter::Taint;
use crate::labels::{is_key, is_value};
use crate::meta::{Condition, Invalid, ObjectMeta, is_default, kind, null_as_default};

/// What advice may choose from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct ScalingConstraint {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What may be chosen.
    pub spec: ScalingConstraintSpec,
    /// What is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ScalingConstraintStatus,
}

kind!(ScalingConstraint, GROUP, "v1alpha1", "ScalingConstraint", "scalingconstraints", namespaced: true);

/// What may be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingConstraintSpec {
    /// Whom the advice is for.
    #[serde(default, rename = "consumerID", skip_serializing_if = "String::is_empty")]
    pub consumer_id: String,
    /// How long a type is left alone in a zone where it could not be had, for pools that say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_backoff_policy: Option<BackoffPolicy>,
    /// How nodes leave, for pools that say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_in_policy: Option<ScaleInPolicy>,
    /// The pools.
    #[serde(default, deserialize_with = "null_as_default")]
    pub node_pools: Vec<NodePool>,
}

impl ScalingConstraintSpec {
    /// How long a type is left alone where it could not be had: by the pool that has it, else by the constraint.
    pub fn backoff_of(&self, instance_type: &str) -> Option<BackoffPolicy> {
        let has = |pool: &&NodePool| pool.node_templates.iter().any(|of| of.instance_type == instance_type);
        self.node_pools.iter().filter(has).find_map(|pool| pool.backoff_policy).or(self.default_backoff_policy)
    }
}

/// What is known of a constraint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ScalingConstraintStatus {
    /// Whether advice can be given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How long a type is left alone in a zone where it could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackoffPolicy {
    /// Backoff after the first failure.
    pub initial_backoff: Duration,
    /// The longest, as it grows.
    pub max_backoff: Duration,
}

impl Default for BackoffPolicy {
    /// Karpenter's three minutes, growing to half an hour.
    fn default() -> Self {
        Self { initial_backoff: Duration(180), max_backoff: Duration(1_800) }
    }
}

/// How nodes leave. The Scaling Advisor has no settings for it yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct ScaleInPolicy {}

/// A pool: every template in every zone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePool {
    /// Its name.
    pub name: String,
    /// Its region.
    #[serde(default)]
    pub region: String,
    /// Its zones.
    #[serde(default)]
    pub availability_zones: Vec<String>,
    /// Labels of its nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of its nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Taints of its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// What its nodes may add up to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Amounts>,
    /// Pools of greater priority are used first.
    #[serde(default)]
    pub priority: i32,
    /// The nodes that it can have.
    #[serde(default)]
    pub node_templates: Vec<NodeTemplate>,
    /// Nodes that it never goes below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// How nodes of this pool leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_in_policy: Option<ScaleInPolicy>,
    /// How long a type of this pool is left alone; the field is named so there.
    #[serde(default, rename = "defaultBackoffPolicy", skip_serializing_if = "Option::is_none")]
    pub backoff_policy: Option<BackoffPolicy>,
}

/// A kind of node of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// Its name.
    pub name: String,
    /// `amd64` or `arm64`.
    #[serde(default)]
    pub architecture: String,
    /// Its instance type.
    pub instance_type: String,
    /// All that the machine has.
    #[serde(default)]
    pub capacity: Amounts,
    /// Kept for kubelet.
    #[serde(default, rename = "kubeReservedCapacity", skip_serializing_if = "Amounts::is_empty")]
    pub kube_reserved: Amounts,
    /// Kept for the operating system.
    #[serde(default, rename = "systemReservedCapacity", skip_serializing_if = "Amounts::is_empty")]
    pub system_reserved: Amounts,
    /// Volumes that can be attached; without it there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_volumes: Option<i32>,
    /// Templates of greater priority come first within their pool.
    #[serde(default)]
    pub priority: i32,
}

impl ScalingConstraint {
    /// What cannot be.
    pub fn validate(&self) -> Vec<Invalid> {
        let mut invalid = Vec::new();
        let mut names = BTreeSet::new();
        for (index, pool) in self.spec.node_pools.iter().enumerate() {
            let field = format!("spec.nodePools[{index}]");
            if !names.insert(&pool.name) {
                let problem = format!("the pool `{}` is there twice", pool.name);
                invalid.push(Invalid::new(format!("{field}.name"), problem));
            }
            check_pool(pool, &field, &mut invalid);
        }
        invalid
    }
}

fn check_pool(pool: &NodePool, field: &str, invalid: &mut Vec<Invalid>) {
    let mut refuse = |part: &str, problem: String| invalid.push(Invalid::new(format!("{field}{part}"), problem));
    if pool.name.is_empty() {
        refuse(".name", "is missing".to_owned());
    }
    if pool.region.is_empty() {
        refuse(".region", "is missing".to_owned());
    }
    if pool.availability_zones.is_empty() {
        refuse(".availabilityZones", "names no zone".to_owned());
    }
    if pool.node_templates.is_empty() {
        refuse(".nodeTemplates", "has no template".to_owned());
    }
    if pool.priority < 0 {
        refuse(".priority", format!("`{}` is negative", pool.priority));
    }
    if let Some(min) = pool.min.filter(|min| *min < 0) {
        refuse(".min", format!("`{min}` is negative"));
    }
    for (key, value) in &pool.labels {
        if !is_key(key) || !is_value(value) {
            refuse(&format!(".labels.{key}"), format!("`{key}: {value}` cannot be a label"));
        }
    }
    for (index, template) in pool.node_templates.iter().enumerate() {
        let part = format!(".nodeTemplates[{index}]");
        if template.instance_type.is_empty() {
            refuse(&format!("{part}.instanceType"), "is missing".to_owned());
        }
        if template.priority < 0 {
            refuse(&format!("{part}.priority"), format!("`{}` is negative", template.priority));
        }
        if let Some(most) = template.max_volumes.filter(|most| *most < 0) {
            refuse(&format!("{part}.maxVolumes"), format!("`{most}` is negative"));
        }
    }
}
