//! `cargo xtask k8s-conformance`: Kubernetes' own end-to-end suite, as the
//! judge of an API server.
//!
//! Beside the server run the real kube-controller-manager, kube-scheduler and
//! kwok, and three nodes that pretend. No container runs, so specs that look
//! into one cannot pass on any server; the rest can. `suite` runs `e2e.test`,
//! `report` says what came out.

mod report;
mod suite;
mod wide;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use millpond_testkit::real::{CLUSTER_PARTS, Part, Parts};
use millpond_testkit::{Controllers, EmbeddedServer, Kubectl, RealCluster, Scratch};

use crate::real_cluster::ensure_parts;
use crate::{cargo, ginkgo, tree};

use self::suite::{Selection, Suite};
use self::wide::Wide;

/// The specs of API machinery with validating policies, of access reviews, certificates and service accounts that need no container and no webhook.
const FOCUS: &str = r"\[sig-api-machinery\].*(Watchers|FieldValidation|CustomResourceDefinition resources|Servers with support for Table|ServerSideApply|Garbage|Namespaces|Discovery|chunking|ValidatingAdmissionPolicy).*\[Conformance\]|\[sig-auth\] (Certificates API|SubjectReview|ServiceAccounts should (create a serviceAccountToken|guarantee|run through|update)).*\[Conformance\]";

/// Specs that cannot run here, or that would take most of the time.
const SKIP: &str = r"Webhook|Slow";

/// The specs of the Kubernetes conformance programme.
const CONFORMANCE: &str = r"\[Conformance\]";

/// Matches no spec.
const NEVER: &str = "^$";

/// Specs that take longer than ten seconds on any server, because they wait by the clock.
const NOT_QUICK: &str =
    "orphan pods created by rc|return chunks of results|observe add, update, and delete|all pods are removed";

/// Nodes for the specs that schedule.
const NODES: usize = 3;

/// Arguments of the command.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// Specs whose full name matches this expression
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// Leave out specs whose full name matches this expression
    #[arg(long, value_name = "REGEX")]
    skip: Option<String>,
    /// Which API server is judged
    #[arg(long, value_enum, default_value_t = Against::Embedded)]
    against: Against,
    /// Every spec that needs no container, as listed in
    /// tests/realcluster/conformance.txt; `--focus` and `--skip` narrow it
    #[arg(long)]
    wide: bool,
    /// Only the specs that take a few seconds
    #[arg(long)]
    quick: bool,
    /// Judge the release build of `millpond`
    #[arg(long)]
    release: bool,
    /// How many specs run at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    jobs: usize,
    /// Write names, outcomes, times and messages to a JSON file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only list the specs
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// `millpond up --bare`
    Embedded,
    /// kube-apiserver and etcd
    Real,
}

impl Args {}

/// Chooses the specs, starts a server with controllers, runs, reports.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut wanted = CLUSTER_PARTS.to_vec();
    wanted.push(Part::E2E_TEST);
    let parts = ensure_parts(&wanted)?;
    let scratch = Scratch::new("conformance")?;
    let suite = Suite::new(&parts, scratch.path())?;
    let specs = choose(args, &suite)?;
    if args.list {
        for spec in &specs {
            println!("{spec}");
        }
        println!("{} specs", specs.len());
        return Ok(());
    }
    let server = Server::start(args, &parts)?;
    create_nodes(&server.kubectl(&parts)?)?;
    let started = Instant::now();
    println!("{} specs against {}", specs.len(), server.title());
    let outcomes = suite.run(&server.kubeconfig(), &specs, args.jobs)?;
    if let Some(file) = &args.report {
        ginkgo::write(file, &outcomes)?;
    }
    report::print(&outcomes, specs.len(), server.title(), started.elapsed())
}

/// The names of the specs to run.
fn choose(args: &Args, suite: &Suite) -> Result<Vec<String>> {
    let (focus, skip) = if args.wide { (CONFORMANCE, NEVER) } else { (FOCUS, SKIP) };
    let focus = args.focus.as_deref().unwrap_or(focus);
    let mut skip = vec![args.skip.as_deref().unwrap_or(skip)];
    if args.quick {
        skip.push(NOT_QUICK);
    }
    let mut specs = suite.list(&Selection { focus, skip: &skip })?;
    if args.wide {
        let wide = Wide::read(&tree::root())?;
        wide.ensure_known(&suite.list(&Selection { focus: CONFORMANCE, skip: &[] })?)?;
        let real_only = |spec: &String| wide.real_only.iter().any(|(name, _)| name == spec);
        specs.retain(|spec| wide.common.contains(spec) || (args.against == Against::Real && real_only(spec)));
        if args.against == Against::Embedded {
            for (name, reason) in &wide.real_only {
                println!("left out: {name} ({reason})");
            }
        }
    }
    if specs.is_empty() {
        bail!("no spec matches `{focus}`");
    }
    Ok(specs)
}

/// The server under judgement and all that runs beside it.
enum Server {
    Real(RealCluster),
    // The controllers go first when it is dropped.
    Embedded { _controllers: Controllers, server: EmbeddedServer },
}

impl Server {
    fn start(args: &Args, parts: &Parts) -> Result<Self> {
        match args.against {
            Against::Real => {
                let cluster = RealCluster::builder().controller_manager("*").scheduler().kwok();
                Ok(Self::Real(cluster.start()?))
            }
            Against::Embedded => {
                let server = EmbeddedServer::start(&cargo::build_millpond(args.release)?, &["--bare"])?;
                let controllers = Controllers::builder().controller_manager("*").scheduler().kwok();
                let controllers = controllers.start(parts, &server.kubeconfig())?;
                Ok(Self::Embedded { _controllers: controllers, server })
            }
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Real(_) => "kube-apiserver and etcd",
            Self::Embedded { .. } => "`millpond up --bare`",
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Real(cluster) => cluster.kubeconfig().to_owned(),
            Self::Embedded { server, .. } => server.kubeconfig(),
        }
    }

    fn kubectl(&self, parts: &Parts) -> Result<Kubectl> {
        match self {
            Self::Real(cluster) => cluster.kubectl(),
            Self::Embedded { server, .. } => Kubectl::new(parts, &server.kubeconfig(), server.folder()),
        }
    }
}

/// Makes the nodes and waits until kwok and the controllers have them Ready.
fn create_nodes(kubectl: &Kubectl) -> Result<()> {
    let nodes: Vec<_> = (1..=NODES)
        .map(|number| {
            let name = format!("node-{number}");
            // Loopback: no server answers on addresses of nodes and pods.
            let addresses = serde_json::json!([
                {"type": "InternalIP", "address": format!("127.0.1.{number}")},
                {"type": "Hostname", "address": name},
            ]);
            let resources = serde_json::json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
            serde_json::json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
                "status": {"capacity": resources, "allocatable": resources, "addresses": addresses},
            })
        })
        .collect();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": nodes}).to_string();
    kubectl.run_with_input(&["create", "-f", "-"], &list).context("create nodes")?;
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=60s", "nodes", "--all"]).context("wait for the nodes")?;
    Ok(())
}
