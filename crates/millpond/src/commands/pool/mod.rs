//! `millpond pool`: the pools of a cluster.
//!
//! `list` and `get` read whatever the planner reads: NodePools, and the pools of ScalingConstraints. Pools that belong
//! to something else (the machine deployments of a Cluster API cluster) come in through [`facts::Facts`] too, and get
//! their verbs beside these.

mod budgets;
mod facts;
mod get;
mod list;

use std::io::Write;

use clap::Subcommand;
use millpond_api::spelling::nearest;
use millpond_plan::model::Snapshot;

use crate::failure::{Code, Failure};

/// See what pools there are, what they hold and what they cost
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List pools with nodes, price and what is used of their limits
    ///
    /// CPU and MEMORY are what the nodes of a pool have; LIMIT-USED is the limit that
    /// will be reached first.
    #[command(after_help = "Examples:
  millpond pool list
  millpond pool list -o wide --watch
  millpond pool list -f examples/karpenter --now 2026-11-16T08:00:00Z")]
    List(Box<list::PoolListArgs>),

    /// Show a pool: conditions, limits, when its nodes may go, what its nodes are
    #[command(after_help = "Examples:
  millpond pool get general
  millpond pool get general -f examples/karpenter --now 2026-11-16T08:00:00Z
  millpond pool get general -o yaml")]
    Get(Box<get::PoolGetArgs>),
}

/// Runs the command: data to `out`, talk to `talk`.
pub(crate) fn run(command: &PoolCommand, out: &mut impl Write, talk: &mut impl Write) -> anyhow::Result<()> {
    match command {
        PoolCommand::List(args) => list::run(args, out, talk),
        PoolCommand::Get(args) => get::run(args, out, talk),
    }
}

/// There is no pool of that name.
pub(crate) fn missing(snapshot: &Snapshot, name: &str) -> Failure {
    let names: Vec<&str> = snapshot.pools.iter().map(|pool| pool.name.as_str()).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "there is no pool at all".to_owned(),
        None => "`millpond pool list -o name` lists all".to_owned(),
    };
    Failure { message: format!("there is no pool `{name}`"), code: Some(Code::NotFound), hint: Some(hint) }
}
