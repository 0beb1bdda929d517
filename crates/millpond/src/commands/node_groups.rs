//! Node groups of Cluster API: flags as the cluster-autoscaler has them, and why their nodes stay.

use std::collections::BTreeMap;

use clap::Args;
use millpond_controllers::capi::autoscale::{GroupNodeStanding, GroupOptions, standings};
use millpond_state::groups::{Discovery, NodeGroups};

use super::input::Input;

/// What becomes of the nodes of node groups, by name: it is not for pools' disruption settings to say.
pub(crate) fn group_nodes(input: &Input) -> BTreeMap<String, GroupNodeStanding> {
    let groups = input.state.node_groups(&NodeGroups::default());
    if groups.is_empty() { BTreeMap::new() } else { standings(&input.snapshot, &groups) }
}

/// Which node groups are scaled, and how.
#[derive(Debug, Args)]
pub(crate) struct NodeGroupArgs {
    /// Scale only these node groups: `clusterapi:namespace=NS,clusterName=NAME,label=value`; several add up
    #[arg(long, value_name = "SPEC")]
    node_group_auto_discovery: Vec<Discovery>,
    /// Bring node groups up to their least size
    #[arg(long, visible_alias = "enforce-node-group-min-size")]
    enforce_min: bool,
}

impl NodeGroupArgs {
    /// The same as controllers read it.
    pub(crate) fn options(&self) -> GroupOptions {
        let discovery = self.node_group_auto_discovery.clone();
        GroupOptions { management: None, discovery, enforce_min: self.enforce_min }
    }
}
