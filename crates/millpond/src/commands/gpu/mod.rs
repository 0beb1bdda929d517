//! `millpond gpu`: the GPUs of the whole estate, and a node for a job.

mod list;
mod place;
mod read;
mod release;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::dialects::gpu::VsphereArgs;

/// Show GPUs, find a node for a job, reserve its GPUs
#[derive(Debug, Subcommand)]
pub(crate) enum GpuCommand {
    /// List the GPUs of all nodes, and the spare cards of hosts
    ///
    /// FREE are those that neither a pod nor a reservation holds. HOURS are left until the
    /// node is disturbed; a tilde marks an assumption where no event is known. Cards that
    /// no virtual machine holds have a host and no node.
    #[command(after_help = "Examples:
  millpond gpu list
  millpond gpu list -f examples/gpuinfo
  millpond gpu list -o json")]
    List(list::ListArgs),
    /// Find the best node for a job
    ///
    /// Prints node and host. Where no node fits it prints `None available`, and the exit code
    /// is 1. With `--reserve` the GPUs are kept for a pod with the label
    /// `millpond.dev/gpuinfo: NAME`; the controller must run for that.
    #[command(after_help = "Examples:
  millpond gpu place --hours 100
  millpond gpu place --hours 100 --gpus 2 --model T4 --explain
  millpond gpu place --hours 100 --gpus 1 --reserve 2h -o json
  millpond gpu place --hours 8 --gpus 0")]
    Place(Box<place::PlaceArgs>),
    /// Give reserved GPUs back
    #[command(after_help = "Examples:
  millpond gpu release place-x7k2p
  millpond gpu release training --namespace ml")]
    Release(release::ReleaseArgs),
}

/// The cluster, and the vCenter below it.
#[derive(Debug, Args)]
struct ClusterArgs {
    /// A file or folder with nodes, pods and MaintenanceWindows (repeatable); without it the current cluster
    #[arg(short = 'f', long = "filename", alias = "file", value_name = "PATH", conflicts_with_all = ["kubeconfig", "context"])]
    filename: Vec<PathBuf>,
    /// Act as if it were this time, e.g. 2026-11-16T08:00:00Z
    #[arg(long, value_name = "TIME")]
    now: Option<jiff::Timestamp>,
    /// The kubeconfig of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    vsphere: VsphereArgs,
    /// Hours that a node without a known event is assumed to stay undisturbed
    #[arg(long, value_name = "HOURS", default_value_t = millpond_gpu::controller::ASSUMED_HOURS)]
    gpu_assumed_hours: u64,
}

/// Runs the command: data to `out`, messages to `messages`.
pub(crate) fn run(command: &GpuCommand, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    match command {
        GpuCommand::List(args) => list::run(args, out, messages).map(|()| ExitCode::SUCCESS),
        GpuCommand::Place(args) => place::run(args, out, messages),
        GpuCommand::Release(args) => release::run(args, out).map(|()| ExitCode::SUCCESS),
    }
}
