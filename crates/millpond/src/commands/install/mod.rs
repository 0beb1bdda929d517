//! `millpond install`: what a cluster needs before Millpond works there, to be looked at and applied.

mod ci;
mod controller;
mod crds;
pub(crate) mod rbac;

use std::io::Write;

use clap::{Subcommand, ValueEnum};
use millpond_api::crd;
use serde_json::{Value, json};

/// What is installed.
#[derive(Debug, Subcommand)]
pub(crate) enum InstallCommand {
    /// Print the CustomResourceDefinitions of all kinds
    ///
    /// `millpond up` installs them itself; any other cluster needs them. Applying them again changes nothing.
    #[command(after_help = "Examples:
  millpond install crds | kubectl apply -f -
  millpond install crds nodepools.karpenter.sh nodeclasses.millpond.dev
  millpond install crds --with cluster-api
  millpond install crds -o json")]
    Crds(crds::CrdsArgs),
    /// Print the service account of the controller and the roles that it needs
    ///
    /// The roles name every verb that the controller uses, and no other one.
    #[command(after_help = "Examples:
  millpond install rbac --namespace millpond-system | kubectl apply -f -")]
    Rbac(rbac::RbacArgs),
    /// Print everything that runs the controller in a cluster
    ///
    /// Namespace, service account, roles, a Deployment of two replicas that elect a leader, PodDisruptionBudget and the
    /// Service of its metrics. The kinds come from `millpond install crds`; with `--vsphere-secret` they are in the same
    /// file.
    #[command(after_help = "Examples:
  millpond install crds | kubectl apply --server-side -f -
  millpond install controller --image registry.example.com/millpond:0.1.0 | kubectl apply -f -
  millpond install controller --image IMAGE --service-monitor
  millpond install controller --image IMAGE --namespace gpuinfo-system --vsphere-secret vc-creds")]
    Controller(controller::ControllerArgs),
    /// Print everything that launches CI nodes for Zuul in a cluster
    ///
    /// Under the names of Software Factory: the Deployment `nodepool-launcher`, the StatefulSet `nodepool-builder`, the
    /// ConfigMap `nodepool-config` with what the deployment needs, and an Ingress for the API where a domain is named.
    #[command(after_help = "Examples:
  millpond install ci --image registry.example.com/millpond:0.1.0 | kubectl apply -f -
  millpond install ci --image IMAGE --namespace sf --fqdn sf.example.com --zookeeper zookeeper-0:2281")]
    Ci(ci::CiArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One document each
    Yaml,
    /// One list
    Json,
}

/// Prints what is asked for.
pub(crate) fn run(command: &InstallCommand, out: &mut impl Write) -> anyhow::Result<()> {
    match command {
        InstallCommand::Crds(args) => crds::run(args, out),
        InstallCommand::Rbac(args) => rbac::run(args, out),
        InstallCommand::Controller(args) => controller::run(args, out),
        InstallCommand::Ci(args) => ci::run(args, out),
    }
}

fn print_objects(objects: &[Value], output: Output, out: &mut impl Write) -> anyhow::Result<()> {
    let text = match output {
        Output::Yaml => objects.iter().map(|one| format!("---\n{}", crd::to_yaml(one))).collect(),
        Output::Json => super::as_json(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?,
    };
    super::print(out, &text)
}
