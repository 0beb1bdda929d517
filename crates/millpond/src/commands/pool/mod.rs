//! `millpond pool`: the pools of a cluster.
//!
//! `list` and `get` read whatever the planner reads: NodePools, and the pools of ScalingConstraints. Node pools of a
//! Cluster API cluster have its name before theirs, and verbs of their own: [`cluster_api`].

mod budgets;
mod cluster_api;
mod get;
mod list;
mod summary;

use std::io::Write;

use clap::Subcommand;
use millpond_api::spelling::nearest;
use millpond_plan::model::Snapshot;

use crate::failure::{Code, Failure};

/// Show pools, their usage and their cost; set node pools of Cluster API clusters
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List pools with nodes, price and what is used of their limits
    ///
    /// CPU and MEMORY are what the nodes of a pool have; LIMIT-USED is the limit that
    /// will be reached first.
    #[command(after_help = "Examples:
  millpond pool list
  millpond pool list -o wide --watch
  millpond pool list my-cluster -n clusters
  millpond pool list -f examples/karpenter --now 2026-11-16T08:00:00Z")]
    List(Box<list::PoolListArgs>),

    /// Show a pool: conditions, limits, when its nodes may go, what its nodes are
    #[command(after_help = "Examples:
  millpond pool get general
  millpond pool get general -f examples/karpenter --now 2026-11-16T08:00:00Z
  millpond pool get general -o yaml
  millpond pool get my-cluster md-0 -o wide")]
    Get(Box<get::PoolGetArgs>),

    /// Make or change a node pool of a Cluster API cluster, as a file says
    ///
    /// Files are those of `tanzu cluster node-pool set`, with GPUs. A new pool is copied
    /// from another one; what the file leaves out stays as it is. What will be made,
    /// changed in place and rolled out is shown first.
    #[command(after_help = "Examples:
  millpond pool set my-cluster -f gpu.yaml --dry-run
  millpond pool set my-cluster -f gpu.yaml --base-machine-deployment md-0
  millpond pool set my-cluster -f gpu.yaml --yes")]
    Set(cluster_api::SetArgs),

    /// Give a node pool of a Cluster API cluster another number of machines
    #[command(after_help = "Examples:
  millpond pool scale my-cluster md-0 --replicas 5")]
    Scale(cluster_api::ScaleArgs),

    /// Delete a node pool of a Cluster API cluster, with its machines
    ///
    /// The last pool of a cluster stays. Templates go when no machine needs them any more.
    #[command(after_help = "Examples:
  millpond pool delete my-cluster gpu --dry-run
  millpond pool delete my-cluster gpu --wait --timeout 30m")]
    Delete(cluster_api::DeleteArgs),
}

/// Runs the command: data to `out`, messages to `messages`.
pub(crate) fn run(command: &PoolCommand, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    match command {
        PoolCommand::List(args) => list::run(args, out, messages),
        PoolCommand::Get(args) => get::run(args, out, messages),
        PoolCommand::Set(args) => cluster_api::set(args, out, messages),
        PoolCommand::Scale(args) => cluster_api::scale(args, out, messages),
        PoolCommand::Delete(args) => cluster_api::delete(args, out, messages),
    }
}

/// No pool has that name.
pub(crate) fn missing(snapshot: &Snapshot, name: &str) -> Failure {
    let names: Vec<&str> = snapshot.pools.iter().map(|pool| pool.name.as_str()).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "there is no pool at all".to_owned(),
        None => "`millpond pool list -o name` lists all".to_owned(),
    };
    Failure { message: format!("there is no pool `{name}`"), code: Some(Code::NotFound), hint: Some(hint) }
}
