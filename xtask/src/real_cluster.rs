//! `cargo xtask real-cluster`: a real control plane for a person.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use millpond_testkit::RealCluster;
use millpond_testkit::real::{Part, Parts};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Arguments of the command.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// Run kube-controller-manager, with all its controllers or the given list
    /// (`*,-nodelifecycle`, `deployment,replicaset`)
    #[arg(long, value_name = "CONTROLLERS", num_args = 0..=1, default_missing_value = "*")]
    controller_manager: Option<String>,
    /// Run kube-scheduler
    #[arg(long)]
    scheduler: bool,
    /// Run kwok: nodes become Ready and pods run, in pretence
    #[arg(long)]
    kwok: bool,
    /// All three of the above
    #[arg(long)]
    full: bool,
    /// Let etcd wait for the disk, as in production
    #[arg(long)]
    durable: bool,
    /// A flag for kube-apiserver, such as `--apiserver-arg=--feature-gates=A=true`
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    apiserver_arg: Vec<String>,
}

/// Starts it, says how to use it, and waits for Ctrl-C.
pub(crate) fn run(args: &Args) -> Result<()> {
    // First of all, so that a Ctrl-C during the start cleans up as well.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("listen for Ctrl-C")?;
    ensure_parts(millpond_testkit::real::CLUSTER_PARTS)?;
    let started = Instant::now();
    let cluster = start(args)?;
    println!(
        "real Kubernetes {} is ready after {:.1} s at {}",
        millpond_testkit::real::kubernetes_version()?,
        started.elapsed().as_secs_f64(),
        cluster.access().server
    );
    print_usage(&cluster)?;
    signals.forever().next();
    println!("stopping");
    Ok(())
}

/// Builds missing parts, and says so, because it takes minutes.
pub(crate) fn ensure_parts(wanted: &[Part]) -> Result<Parts> {
    let parts = Parts::locate()?;
    for part in wanted {
        if !parts.has(part)? {
            let started = Instant::now();
            println!("building {} (once; it goes to a cache)", part.name);
            parts.build(part)?;
            println!("built {} in {} s", part.name, started.elapsed().as_secs());
        }
    }
    Ok(parts)
}

fn start(args: &Args) -> Result<RealCluster> {
    let mut builder = RealCluster::builder().durable(args.durable);
    let everything = args.full.then_some("*");
    if let Some(controllers) = args.controller_manager.as_deref().or(everything) {
        builder = builder.controller_manager(controllers);
    }
    if args.scheduler || args.full {
        builder = builder.scheduler();
    }
    if args.kwok || args.full {
        builder = builder.kwok();
    }
    for arg in &args.apiserver_arg {
        builder = builder.apiserver_arg(arg);
    }
    builder.start()
}

fn print_usage(cluster: &RealCluster) -> Result<()> {
    let kubectl = cluster.parts().path(&Part::KUBECTL)?;
    let folder: &Path = cluster.folder();
    println!();
    println!("  export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("  export KUBECACHEDIR={}/kubectl-cache", folder.display());
    println!("  alias kubectl={}", kubectl.display());
    println!("  kubectl get namespaces");
    println!();
    println!("logs: {}/*.log", folder.display());
    println!("Ctrl-C stops it and removes the folder");
    Ok(())
}
