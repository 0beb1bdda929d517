//! The launch request with its choices, and its answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use millpond_api::amounts::Amounts;
use millpond_api::karpenter::Taint;
use millpond_api::labels;
use millpond_api::node_class::NodeClass;
use serde::{Deserialize, Serialize};

use crate::Instance;

/// One way to buy one instance type. Written `m5.large/us-east-1a/spot`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferingKey {
    /// `m5.large`.
    pub instance_type: String,
    /// `us-east-1a`.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
}

impl OfferingKey {
    /// The offering of that type, zone and capacity type.
    pub fn new(instance_type: impl Into<String>, zone: impl Into<String>, capacity_type: impl Into<String>) -> Self {
        Self { instance_type: instance_type.into(), zone: zone.into(), capacity_type: capacity_type.into() }
    }
}

impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.instance_type, self.zone, self.capacity_type)
    }
}

/// The node that a type gives, whichever of its offerings is bought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Labels of the node that come from its type: `node.kubernetes.io/instance-type`, architecture, operating system
    /// and so on, each with one value.
    pub labels: BTreeMap<String, String>,
    /// Capacity of the node.
    pub capacity: Amounts,
    /// Allocatable resources of the node.
    pub allocatable: Amounts,
}

/// An offering together with the node that it gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What to buy.
    pub offering: OfferingKey,
    /// The node, shared with the other offerings of its type: a launch may have hundreds of choices.
    pub shape: Arc<Shape>,
    /// Nano-dollars an hour.
    pub price_nanos_hour: u64,
}

impl Choice {
    /// All labels of the node that come from type and offering.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.shape.labels.clone();
        labels.insert(labels::ZONE.to_owned(), self.offering.zone.clone());
        labels.insert(labels::CAPACITY_TYPE.to_owned(), self.offering.capacity_type.clone());
        labels
    }
}

/// A request for an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchRequest {
    /// Identity of the launch: the uid of the NodeClaim. One token, one instance.
    pub token: String,
    /// The name of the NodeClaim.
    pub claim: String,
    /// The class of the node.
    pub class: NodeClass,
    /// The offerings to try, in order.
    pub choices: Vec<Choice>,
    /// Labels that the node shall have at registration, beside those of the choice that is taken. The choice's hold
    /// where both say something.
    pub labels: BTreeMap<String, String>,
    /// Annotations that the node shall have at registration.
    pub annotations: BTreeMap<String, String>,
    /// Taints that the node shall have at registration: those of the claim, its startup taints, and
    /// `karpenter.sh/unregistered`.
    pub taints: Vec<Taint>,
}

/// The answer to a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// The instance that was created, now or when the token was first used.
    pub instance: Instance,
    /// Choices that were tried before and were unavailable, in the order of the request. Empty when the instance is of
    /// an earlier call.
    pub unavailable: Vec<OfferingKey>,
}
