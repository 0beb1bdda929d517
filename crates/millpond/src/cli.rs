//! The command line as a value: what is parsed, completed, and printed as a reference all come from here.

use clap::{Parser, Subcommand};

use crate::commands::{
    agent, bench, catalog, ci, completion, controller, convert, explain, gpu, history, host, install, node, plan, pool,
    reference, store, up,
};

/// One control plane for every kind of node pool
#[derive(Debug, Parser)]
#[command(name = "millpond", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "Examples:
  millpond up                      start the embedded control plane; kubectl works seconds later
  millpond up --demo               the same, with nodes and workloads that move
  millpond plan -f examples/web    what to buy for the pods in files, and what it costs
  millpond store check             verify the store of the default data directory
  source <(millpond completion bash)

Environment:
  MILLPOND_LOG   what is logged to stderr, e.g. `info` or `millpond_apiserver=debug` (default: warn,millpond_gpu=info)";

/// Every command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the embedded control plane
    Up(up::UpArgs),
    /// Run the controllers on an existing cluster
    ///
    /// Node pools of that cluster whose nodeClassRef names a Millpond NodeClass scale
    /// themselves; all others are left alone. `millpond install crds` brings the kinds.
    #[command(after_help = "Examples:
  millpond install crds | kubectl apply -f -
  millpond controller --kubeconfig ~/.kube/config
  millpond controller --no-leader-election")]
    Controller(controller::ControllerArgs),
    /// Plan which nodes to buy and to remove, at what price, and why
    ///
    /// Reads pods, nodes, node pools and what belongs to them from files, or from the
    /// current cluster, and changes nothing. Free capacity of existing nodes is used
    /// first; then the cheapest nodes are chosen that all rules of kube-scheduler
    /// and all limits allow, and a bound says how much cheaper any plan could be.
    #[command(after_help = "Examples:
  millpond plan -f examples/web
  millpond plan -f examples/web --compare
  kubectl get pods,nodes,nodepools -A -o yaml | millpond plan -f -
  millpond plan -f cluster.yaml --consolidate --check
  millpond plan -f cluster.yaml -o json --detailed-exitcode
  millpond plan -f cluster.yaml -o nodes > nodes.yaml")]
    Plan(Box<plan::PlanArgs>),
    /// Explain why a pod is unschedulable and what would help, why a node stays or goes, why a machine has no host
    #[command(after_help = "Examples:
  millpond explain pod/web-0 -f examples/stuck
  millpond explain pod/shop/web-0 -f cluster.yaml -o json
  millpond explain node/worker-3 -f examples/consolidate
  millpond explain machine/gpu-pool-x7k2p
  millpond explain host/node11
  millpond explain pool/gpu-pool -o json
  millpond explain request/build-7")]
    Explain(Box<explain::ExplainArgs>),
    /// Show what was decided, why, and what came of it, also for nodes that are gone
    ///
    /// Every decision that was carried out or refused is kept in the data directory of
    /// `millpond up`, with the times of each step, and for the last ones the snapshot
    /// that they were made from: `millpond plan -f` makes the same plan of it again.
    #[command(after_help = "Examples:
  millpond history
  millpond history node/general-x7
  millpond history pod/shop/web-0 --since 24h
  millpond history d-12 --save d-12.json
  millpond history --kind drift,expire -o json
  millpond history --watch")]
    History(history::HistoryArgs),
    /// Print the manifests that Millpond needs in a cluster
    #[command(
        subcommand,
        after_help = "Examples:
  millpond install crds | kubectl apply -f -
  millpond install crds nodepools.karpenter.sh
  millpond install crds -o json"
    )]
    Install(install::InstallCommand),
    /// Show pools, their usage and their cost
    #[command(
        subcommand,
        after_help = "Examples:
  millpond pool list -o wide
  millpond pool get general"
    )]
    Pool(pool::PoolCommand),
    /// Show nodes, their cost, and why they are kept
    #[command(
        subcommand,
        after_help = "Examples:
  millpond node list
  millpond node list --pool general --sort price"
    )]
    Node(node::NodeCommand),
    /// Show and manage the hosts of the capacity pool, and admit new ones
    #[command(
        subcommand,
        after_help = "Examples:
  millpond host list
  millpond host get node11
  millpond host token create"
    )]
    Host(host::HostCommand),
    /// Make this machine a host of the capacity pool
    ///
    /// The agent registers its machine with a one-time token, tells what the machine has,
    /// and makes it a node when a pool needs it: by the bootstrap data of kubeadm, or by
    /// kubelet's own TLS bootstrap. When the pool lets it go, the agent puts everything
    /// back as it was. Credentials and the journal are in the state directory; with
    /// credentials there, no token is needed.
    #[command(after_help = "Examples:
  millpond agent --server https://10.0.0.1:6443 --token ID.SECRET --ca-hash sha256:0011223344556677889900112233445566778899001122334455667788990011
  millpond agent --bootstrap-kubeconfig bootstrap.conf --namespace pool --label site=a,rack=7
  millpond agent --skip-installation
  millpond agent install --bootstrap-kubeconfig bootstrap.conf")]
    Agent(Box<agent::AgentArgs>),
    /// Maintain the store of the embedded API
    #[command(
        subcommand,
        after_help = "Examples:
  millpond store check --data-dir ./data
  millpond store backup --data-dir ./data monday.store
  millpond store restore --data-dir ./other monday.store"
    )]
    Store(store::StoreCommand),
    /// Show instance types and their prices
    #[command(
        subcommand,
        after_help = "Examples:
  millpond catalog types --cpu 4..16 --memory 16Gi.. --limit 10
  millpond catalog prices m5.large
  millpond catalog import machines.csv --out machines.catalog"
    )]
    Catalog(Box<catalog::CatalogCommand>),
    /// Show GPUs, find a node for a job, reserve its GPUs
    #[command(
        subcommand,
        after_help = "Examples:
  millpond gpu list
  millpond gpu place --hours 100 --gpus 1 --model T4"
    )]
    Gpu(gpu::GpuCommand),
    /// Provide CI nodes from Nodepool's configuration, and show them
    #[command(after_help = "Examples:
  millpond ci -c nodepool.yaml config-validate
  millpond ci list
  millpond ci request create --label fedora --count 2 --wait")]
    Ci(Box<ci::CiArgs>),
    /// Convert the pools of files or of a cluster to the format of another tool
    ///
    /// Reads what Millpond understands (NodePools and node classes, ScalingConstraints,
    /// templates of Cluster Autoscaler's kwok provider, instance types of Karpenter's) and
    /// prints the files of the tool that is named, with prices from the catalogue. Every field
    /// without an exact counterpart is reported on stderr: what was done with it, and why.
    #[command(after_help = "Examples:
  millpond export --to karpenter -f examples/scaling-advisor/constraint.yaml
  millpond export --to scaling-advisor -f examples/web --max-types 20
  millpond export --to cluster-autoscaler-kwok -f examples/scaling-advisor/constraint.yaml --out kwok
  millpond export --to karpenter --node-class kwok -f pools.yaml --report json
  kubectl get nodepools,nodeclasses -o yaml | millpond export --to scaling-advisor -f -")]
    Export(Box<convert::ExportArgs>),
    /// Turn another tool's files into NodePools, node classes and a catalogue
    ///
    /// Takes ScalingConstraints and requests of Gardener's Scaling Advisor, the ConfigMaps of
    /// Cluster Autoscaler's kwok provider, the instance types of Karpenter's KWOK provider, and
    /// NodePools of Karpenter's other providers, and prints objects that `kubectl apply` and
    /// `millpond plan -f` take. Every field without an exact counterpart is reported on stderr.
    #[command(after_help = "Examples:
  millpond import -f examples/scaling-advisor/constraint.yaml
  millpond import -f kwok-provider-templates.yaml --catalog gcp --out pools
  millpond import -f instance_types.json -f nodepools.yaml
  millpond import -f constraint.yaml | kubectl apply -f -")]
    Import(Box<convert::ImportArgs>),
    /// Run benchmarks on this machine
    #[command(after_help = "Examples:
  millpond bench api --objects 10000
  millpond bench karpenter --pods 20000
  millpond bench mixes --policy millpond,karpenter")]
    Bench(bench::BenchArgs),
    /// Print a script that completes commands and options
    #[command(visible_alias = "completions")]
    Completion(completion::CompletionArgs),
    /// Print the version, and the Kubernetes version of the API that is served
    #[command(after_help = "Examples:
  millpond version
  millpond version -o json")]
    Version(crate::commands::version::VersionArgs),
    /// Print a page of docs/reference
    #[command(hide = true)]
    Reference(reference::ReferenceArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let mut names = Vec::new();
        each(&Cli::command(), &mut |command| names.push(command.get_name().to_owned()));
        assert!(names.contains(&"restore".to_owned()), "{names:?}");
        each(&Cli::command(), &mut |command| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<_> = help.lines().filter(|line| line.starts_with("  millpond ")).collect();
            assert!(!examples.is_empty(), "`{}` has no example", command.get_name());
            for example in examples {
                // Two spaces begin a remark; what follows a bar or an arrow is the shell's.
                let ends = ["  ", " | ", " > "].iter().filter_map(|end| example.trim().find(end));
                let words = example.trim()[..ends.min().unwrap_or(example.trim().len())].split(' ');
                if let Err(problem) = Cli::try_parse_from(words) {
                    panic!("`{example}`: {problem}");
                }
            }
        });
    }

    fn each(command: &clap::Command, look: &mut impl FnMut(&clap::Command)) {
        look(command);
        command.get_subcommands().filter(|command| !command.is_hide_set()).for_each(|command| each(command, look));
    }
}
