//! Flags about node groups of Cluster API, as the cluster-autoscaler has them.

use clap::Args;
use millpond_controllers::capi::autoscale::GroupOptions;
use millpond_state::groups::Discovery;

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
