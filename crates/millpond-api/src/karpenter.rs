//! Karpenter's kinds, `karpenter.sh`: NodePool and NodeClaim (`v1`) and NodeOverlay (`v1alpha1`), with the rules that
//! Karpenter checks at run time, the names that it gives to things, and its hash of what a pool's nodes are.

mod hash;
mod node_claim;
mod node_overlay;
mod node_pool;
mod validate;

use serde::{Deserialize, Serialize};

pub use self::node_claim::{NodeClaim, NodeClaimResources, NodeClaimSpec, NodeClaimStatus};
pub use self::node_overlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
pub use self::node_pool::{
    Budget, ConsolidationPolicy, Disruption, DisruptionReason, NodeClaimTemplate, NodeClaimTemplateSpec, NodeCount,
    NodePool, NodePoolSpec, NodePoolStatus, TemplateMeta,
};
use crate::selector::Operator;

/// The API group.
pub const GROUP: &str = "karpenter.sh";

/// Annotation of pods and nodes: leave it alone (`true`, or for pods so long after their start).
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Annotation of pools and claims: the hash of the template, see [`NodePool::hash`].
pub const HASH_ANNOTATION: &str = "karpenter.sh/nodepool-hash";
/// Annotation of pools and claims: how the hash was made. Hashes of different versions cannot be compared.
pub const HASH_VERSION_ANNOTATION: &str = "karpenter.sh/nodepool-hash-version";
/// How [`NodePool::hash`] is made.
pub const HASH_VERSION: &str = "v3";
/// Annotation of claims: when the node must be gone, whatever blocks it (RFC 3339).
pub const TERMINATION_TIMESTAMP_ANNOTATION: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// Annotation of claims: whether fewer values than `minValues` were accepted (`true` or `false`).
pub const MIN_VALUES_RELAXED_ANNOTATION: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
/// Annotation of claims: the drivers, with commas, whose devices the pods of the node wait for.
pub const DRA_DRIVERS_ANNOTATION: &str = "karpenter.sh/requested-dra-drivers";
/// Annotation of claims: a NodeOverlay changed the price.
pub const PRICE_OVERLAY_ANNOTATION: &str = "karpenter.sh/price-overlay-applied";
/// Annotation of claims: a NodeOverlay changed the capacity.
pub const CAPACITY_OVERLAY_ANNOTATION: &str = "karpenter.sh/capacity-overlay-applied";
/// Annotation that other tools of Karpenter's world put on claims.
pub const PROVIDER_COMPATIBILITY_ANNOTATION: &str = "compatibility.karpenter.sh/provider";
/// Finalizer of claims and nodes: gone when drained and when the machine is gone.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// Taint of a node that is about to be taken away; its effect is `NoSchedule`.
pub const DISRUPTED_TAINT: &str = "karpenter.sh/disrupted";
/// Taint of a node that Karpenter has not seen yet; its effect is `NoExecute`.
pub const UNREGISTERED_TAINT: &str = "karpenter.sh/unregistered";
/// Label of a node that was seen.
pub const REGISTERED_LABEL: &str = "karpenter.sh/registered";
/// Label of a node that is ready for pods.
pub const INITIALIZED_LABEL: &str = "karpenter.sh/initialized";
/// Label of a node whose taints another controller manages.
pub const DO_NOT_SYNC_TAINTS_LABEL: &str = "karpenter.sh/do-not-sync-taints";
/// Millpond's annotation of a NodePool: dollars per hour that its nodes may cost together.
pub const PRICE_LIMIT_ANNOTATION: &str = "millpond.dev/limit-dollars-per-hour";

/// The most seconds that a budget, an age or a quiet time may have: a hundred years. Sums of it and a time fit.
pub const LIMIT_SECONDS: i64 = 100 * 365 * 86_400;

/// Types of conditions.
pub mod conditions {
    /// Claim: the machine was made.
    pub const LAUNCHED: &str = "Launched";
    /// Claim: its Node exists.
    pub const REGISTERED: &str = "Registered";
    /// Claim: its node is ready for pods.
    pub const INITIALIZED: &str = "Initialized";
    /// Claim: consolidation may look at its node.
    pub const CONSOLIDATABLE: &str = "Consolidatable";
    /// Claim: it is no longer what its pool or class asks for.
    pub const DRIFTED: &str = "Drifted";
    /// Claim: its node has no pods any more that must leave.
    pub const DRAINED: &str = "Drained";
    /// Claim: no volume is attached to its node any more.
    pub const VOLUMES_DETACHED: &str = "VolumesDetached";
    /// Claim: the deletion of the machine was requested.
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    /// Claim: node and claim agree.
    pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
    /// Claim: why it is being taken away.
    pub const DISRUPTION_REASON: &str = "DisruptionReason";
    /// Pool and overlay: nothing in it contradicts itself.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// Pool: its node class exists and is ready.
    pub const NODE_CLASS_READY: &str = "NodeClassReady";
    /// Pool: nodes that are launched come up.
    pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";

    /// Pool: a node of it can be launched. Not written as long as nothing has kept one from it.
    pub const LAUNCHABLE: &str = "Launchable";

    /// What `Ready` of a claim depends on.
    pub const OF_CLAIM: &[&str] = &[LAUNCHED, REGISTERED, INITIALIZED];
    /// The conditions that `Ready` of a pool depends on.
    pub const OF_POOL: &[&str] = &[VALIDATION_SUCCEEDED, NODE_CLASS_READY];
    /// The same for a pool that can never make a node as it is.
    pub const OF_HOPELESS_POOL: &[&str] = &[VALIDATION_SUCCEEDED, NODE_CLASS_READY, LAUNCHABLE];
    /// What `Ready` of an overlay depends on.
    pub const OF_OVERLAY: &[&str] = &[VALIDATION_SUCCEEDED];
}

/// Reason of [`conditions::LAUNCHABLE`]: the last claim could not be launched, for a reason that holds for the pool.
pub const LAUNCH_FAILED: &str = "LaunchFailed";
/// Reason of [`conditions::NODE_CLASS_READY`]: no controller that runs launches nodes of such a class.
pub const NODE_CLASS_NOT_MANAGED: &str = "NodeClassNotManaged";

/// Label of claims and nodes: the name of their node class is its value.
pub fn node_class_label(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

/// Names a node class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
pub struct NodeClassRef {
    /// Its API group.
    #[serde(default)]
    pub group: String,
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// A requirement on a label of a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRequirement {
    /// The label.
    pub key: String,
    /// How to compare.
    pub operator: Operator,
    /// The values to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// How many different values the types of a node must leave open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i64>,
}

/// The effect of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum TaintEffect {
    /// Pods that do not tolerate it are not placed there.
    NoSchedule,
    /// Pods are placed there only if no other node takes them.
    PreferNoSchedule,
    /// Pods are not placed there, and are evicted.
    NoExecute,
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Its effect.
    pub effect: TaintEffect,
}

impl Taint {
    /// The taint of a node that is about to be taken away.
    pub fn disrupted() -> Self {
        Self { key: DISRUPTED_TAINT.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule }
    }

    /// The taint that a node has until it is registered.
    pub fn unregistered() -> Self {
        Self { key: UNREGISTERED_TAINT.to_owned(), value: String::new(), effect: TaintEffect::NoExecute }
    }
}
