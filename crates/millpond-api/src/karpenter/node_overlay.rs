//! `karpenter.sh/v1alpha1` NodeOverlay: own prices and own resources of instance types.
//!
//! What it does to a catalogue is in [`crate::catalog::overlay`], which also reads it from files with the place of
//! what is wrong in them.

use serde::{Deserialize, Serialize};

use super::{GROUP, PoolRequirement};
use crate::amounts::Amounts;
use crate::meta::{Condition, ObjectMeta, is_default, kind};

/// Changes prices and resources of what it matches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeOverlay {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: NodeOverlaySpec,
    /// What is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: NodeOverlayStatus,
}

kind!(NodeOverlay, GROUP, "v1alpha1", "NodeOverlay", "nodeoverlays", namespaced: false);

/// What it matches, and what becomes of that.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlaySpec {
    /// All must hold.
    #[serde(default)]
    pub requirements: Vec<PoolRequirement>,
    /// The price: `0.096`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// What is added to the price: `-30%`, `+0.05`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    /// Dollars an hour on top of whatever price holds, for licences: Millpond's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surcharge: Option<String>,
    /// Extended resources that the types have besides their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amounts>,
    /// Overlays of greater weight win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeOverlayStatus {
    /// `Ready` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
