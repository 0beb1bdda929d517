//! `millpond node`: the nodes of a cluster, whatever pool or dialect they come from.

mod list;

pub(crate) use list::NODE_GROUP;

use std::io::Write;

use clap::Subcommand;

/// Show nodes, their cost, and why they are kept
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes with price, use, and why each is still there
    ///
    /// Percentages are what pods request of what a node has for pods. WHY is what a
    /// plan with consolidation says of the node now; `millpond explain node/NAME`
    /// says it at length. Below the table is what the listed nodes add up to.
    #[command(after_help = "Examples:
  millpond node list
  millpond node list --watch
  millpond node list --pool general --sort price -o wide
  millpond node list -l topology.kubernetes.io/zone=us-east-1a -o json
  millpond node list -f examples/karpenter --now 2026-11-16T08:00:00Z")]
    List(Box<list::NodeListArgs>),
}

/// Runs the command: data to `out`, messages to `messages`.
pub(crate) fn run(command: &NodeCommand, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    match command {
        NodeCommand::List(args) => list::run(args, out, messages),
    }
}
