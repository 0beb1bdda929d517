//! Instances and their events, as providers report them.

use std::collections::BTreeMap;

use millpond_api::amounts::Amounts;
use millpond_api::time::Time;
use serde::{Deserialize, Serialize};

use crate::OfferingKey;

/// A machine that was made for a NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Its provider id, as `spec.providerID` of the node: `sim://default/i-0c7b…`.
    pub id: String,
    /// The token of its launch: the uid of its NodeClaim.
    pub token: String,
    /// The name of its NodeClaim.
    pub claim: String,
    /// The name of its NodeClass.
    pub class: String,
    /// What was bought.
    pub offering: OfferingKey,
    /// The image that it was made from.
    pub image: String,
    /// What the node has.
    pub capacity: Amounts,
    /// What pods can use of it.
    pub allocatable: Amounts,
    /// The labels of type and offering.
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    pub created: Time,
    /// Its phase.
    pub state: InstanceState,
}

/// How far an instance is. One that is gone is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum InstanceState {
    /// It is booting.
    Pending,
    /// It runs; its node registers, or has.
    Running,
    /// Its termination was requested, or the cloud is interrupting it.
    Ending,
}

/// Something that happened to an instance without a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceEvent {
    /// The cloud takes an instance back: drain and replace its node.
    Interrupted {
        /// The provider id.
        id: String,
        /// When it ends.
        at: Time,
    },
    /// An instance no longer exists, for any reason.
    Gone {
        /// The provider id.
        id: String,
    },
}

impl InstanceEvent {
    /// The provider id of the instance.
    pub fn id(&self) -> &str {
        match self {
            Self::Interrupted { id, .. } | Self::Gone { id } => id,
        }
    }
}
