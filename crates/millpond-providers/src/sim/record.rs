//! The cloud's record of one instance, and the changes that its journal consists of.

use std::collections::BTreeMap;

use millpond_api::karpenter::Taint;
use millpond_api::node_class::Kubelet;
use millpond_api::sim_script::Script;
use serde::{Deserialize, Serialize};

use super::millis::Millis;
use crate::{Instance, InstanceState};

/// An instance, from its launch until it is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// The instance as callers see it, except for its state.
    pub(super) instance: Instance,
    pub(super) created: Millis,
    /// When it has booted.
    pub(super) boots: Millis,
    /// It boots, but its node never registers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) silent: bool,
    /// The template of its node.
    pub(super) node: NodeTemplate,
    /// Its kubelet settings, which never change.
    #[serde(default, skip_serializing_if = "Kubelet::is_default")]
    pub(super) kubelet: Kubelet,
    /// Its Node object was there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) registered: bool,
    /// When it ends, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ends: Option<Millis>,
    /// Whether the cloud deletes the Node object too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) node_gone: bool,
    /// Whether the cloud has deleted it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) node_removed: bool,
    /// Whether its end was reported.
    #[serde(skip)]
    pub(super) end_told: bool,
}

/// What a node gets when it boots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub(super) struct NodeTemplate {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
}

impl Record {
    pub(super) fn is_gone(&self, now: Millis) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }

    /// The instance as callers see it.
    pub(super) fn told(&self, now: Millis) -> Instance {
        let state = match self.ends {
            Some(_) => InstanceState::Ending,
            None if self.boots <= now => InstanceState::Running,
            None => InstanceState::Pending,
        };
        Instance { state, ..self.instance.clone() }
    }
}

/// A change of the cloud's memory; the journal is a list of these.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Change {
    /// The cloud got its name.
    Named { cloud: String },
    /// A controller leads in the term of this number.
    Term { term: u64 },
    /// A script holds from now on: of a class, or of the cloud as a whole.
    Script {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        script: Box<Script>,
        since: Millis,
    },
    /// An instance was made.
    Made(Box<Record>),
    /// The Node object of an instance is there.
    Registered { id: String },
    /// It is known when an instance ends.
    Ending {
        id: String,
        ends: Millis,
        #[serde(default, rename = "nodeGone", skip_serializing_if = "std::ops::Not::not")]
        node_gone: bool,
    },
    /// The cloud took the Node object of an instance away.
    NodeRemoved { id: String },
    /// Records of terminated instances are dropped after this time.
    Forgotten { id: String },
}
