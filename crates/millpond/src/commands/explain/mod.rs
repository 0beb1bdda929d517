//! `millpond explain`: why a pod has no place and what would help, why a node stays or goes, what a pool can buy, why a CI
//! request waits. The
//! reasons come from `millpond_plan::explain`, `millpond_plan::disruption` and the status of the request; here they get
//! words and columns.

pub(crate) mod hosts;
mod node;
mod pod;
mod pool;

use std::io::Write;

use clap::{Args, ValueEnum};
use millpond_api::meta::Condition;
use millpond_api::spelling::nearest;
use millpond_plan::model::{PodId, Snapshot};
use millpond_plan::plan::Settings;
use millpond_state::objects::Kind;

use crate::commands::format::plural;
use crate::commands::host::session::Session;
use crate::commands::input::{self, Input, InputArgs, Purpose};
use crate::failure::{Code, Failure};

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// pod, deployment, replicaset, statefulset, job, node, nodeclaim, pool, machine, host or request, and the name after
    /// a slash; a NAMESPACE/ may stand before the name
    #[arg(value_name = "KIND/NAME", value_parser = subject)]
    subject: Subject,

    /// The namespace of the pod, workload, machine, host, pool or request
    #[arg(short, long, default_value = "default")]
    namespace: String,

    #[command(flatten)]
    input: InputArgs,

    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A page for people
    Table,
    /// One object
    Json,
    /// The same as YAML
    Yaml,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Pod(String),
    Workload(Kind, String),
    Node(String),
    Claim(String),
    Machine(String),
    Host(String),
    Pool(String),
    Request(String),
}

fn subject(text: &str) -> Result<Subject, String> {
    let wrong = || {
        "pod/NAME, pod/NAMESPACE/NAME, deployment/NAME, node/NAME, nodeclaim/NAME, pool/NAME, machine/NAME, host/NAME or request/NAME".to_owned()
    };
    let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
    match kind {
        "pod" | "pods" | "po" => Ok(Subject::Pod(name.to_owned())),
        "deployment" | "deployments" | "deploy" => Ok(Subject::Workload(Kind::Deployment, name.to_owned())),
        "replicaset" | "replicasets" | "rs" => Ok(Subject::Workload(Kind::ReplicaSet, name.to_owned())),
        "statefulset" | "statefulsets" | "sts" => Ok(Subject::Workload(Kind::StatefulSet, name.to_owned())),
        "job" | "jobs" => Ok(Subject::Workload(Kind::Job, name.to_owned())),
        "nodeclaim" | "nodeclaims" | "nc" => Ok(Subject::Claim(name.to_owned())),
        "node" | "nodes" | "no" => Ok(Subject::Node(name.to_owned())),
        "machine" | "machines" | "ma" | "byomachine" | "byomachines" | "byom" => Ok(Subject::Machine(name.to_owned())),
        "host" | "hosts" | "byohost" | "byohosts" | "byoh" => Ok(Subject::Host(name.to_owned())),
        "pool" | "pools" | "nodepool" | "nodepools" | "np" | "machinedeployment" | "machinedeployments" | "md" => {
            Ok(Subject::Pool(name.to_owned()))
        }
        "request" | "requests" | "noderequest" | "noderequests" | "nreq" => Ok(Subject::Request(name.to_owned())),
        _ => Err(wrong()),
    }
}

/// Runs the command: data to `out`, messages to `messages`.
pub(crate) fn run(args: &ExplainArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    if let Subject::Request(name) = &args.subject {
        return super::print(out, &request(args, name)?);
    }
    if let Subject::Machine(name) | Subject::Host(name) = &args.subject {
        return run_hosts(args, name, out);
    }
    // A pool that a plan would make up is none to be explained.
    let purpose = if matches!(args.subject, Subject::Pool(_)) { Purpose::List } else { Purpose::Plan };
    let input = input::load(&args.input, purpose, messages)?;
    let snapshot = &input.snapshot;
    let text = match &args.subject {
        Subject::Pod(name) => {
            let name = if name.contains('/') { name.clone() } else { format!("{}/{name}", args.namespace) };
            let found = snapshot.find_pod(&name).ok_or_else(|| missing_pod(snapshot, &name))?;
            pod::render(snapshot, found, args.output)?
        }
        Subject::Node(name) => {
            let found = snapshot.find_node(name).ok_or_else(|| missing_node(snapshot, name))?;
            node::render(&input, found, args.output)?
        }
        Subject::Workload(kind, name) => {
            let found = pod_of(args, &input, *kind, name, messages)?;
            pod::render(snapshot, found, args.output)?
        }
        Subject::Claim(name) => claim(&input, name, args.output)?,
        Subject::Pool(name) => match snapshot.find_pool(name) {
            Some(found) => pool::render(snapshot, found, args.output)?,
            // Pools of own hosts are MachineDeployments.
            None if args.input.objects.is_live() || snapshot.pools.is_empty() => return run_hosts(args, name, out),
            None => return Err(super::pool::missing(snapshot, name).into()),
        },
        Subject::Machine(_) | Subject::Host(_) | Subject::Request(_) => return Ok(()),
    };
    super::print(out, &text)
}

/// The pod of a workload that is explained as an example: one without a place if there is one.
fn pod_of(
    args: &ExplainArgs,
    input: &Input,
    kind: Kind,
    name: &str,
    messages: &mut impl Write,
) -> anyhow::Result<PodId> {
    let (namespace, name) = name.split_once('/').unwrap_or((&args.namespace, name));
    let not_found = |message: String| Failure {
        message,
        code: Some(Code::NotFound),
        hint: Some("`-n NAMESPACE` looks in another namespace".to_owned()),
    };
    let word = match kind {
        Kind::Deployment => "deployment",
        Kind::ReplicaSet => "replicaset",
        Kind::StatefulSet => "statefulset",
        _ => "job",
    };
    let names = input
        .state
        .pods_of(kind, namespace, name)
        .ok_or_else(|| not_found(format!("there is no {word} `{name}` in namespace `{namespace}`")))?;
    let snapshot = &input.snapshot;
    let pods: Vec<PodId> = names.iter().filter_map(|name| snapshot.find_pod(name)).collect();
    let outcome = millpond_plan::plan(snapshot, &Settings::default());
    let unplaced = |pod: &&PodId| outcome.report.unplaced.iter().any(|(unplaced, _)| unplaced == *pod);
    let without = pods.iter().filter(unplaced).count();
    let (all, have) = (plural(pods.len(), "pod"), if without == 1 { "has" } else { "have" });
    let found = pods.iter().find(unplaced).or_else(|| pods.first());
    let found = found.ok_or_else(|| not_found(format!("{word} `{namespace}/{name}` has no pods")))?;
    writeln!(messages, "{word} {namespace}/{name}: {all}, of which {without} {have} no place")?;
    Ok(*found)
}

/// A claim by its node, or by what its conditions wait for where it has none.
fn claim(input: &Input, name: &str, output: Output) -> anyhow::Result<String> {
    let claim = input.state.claim(name).ok_or_else(|| {
        let hint = Some("`kubectl get nodeclaims` lists all".to_owned());
        Failure { message: format!("there is no NodeClaim `{name}`"), code: Some(Code::NotFound), hint }
    })?;
    let node = Some(claim.status.node_name.as_str()).filter(|node| !node.is_empty()).unwrap_or(name);
    if let Some(found) = input.snapshot.find_node(node) {
        return node::render(input, found, output);
    }
    let waiting: Vec<&Condition> = claim.status.conditions.iter().filter(|it| it.status != "True").collect();
    match output {
        Output::Table => {
            let lines = waiting.iter().map(|it| format!("  {} {}: {}\n", it.kind, it.reason, it.message));
            Ok(format!("nodeclaim/{name} has no node yet:\n{}", lines.collect::<String>()))
        }
        Output::Json => super::as_json(&waiting),
        Output::Yaml => super::as_yaml(&waiting),
    }
}

/// Own hosts are explained from a live cluster.
fn run_hosts(args: &ExplainArgs, name: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let objects = &args.input.objects;
    if !objects.is_live() {
        let message = "machines, hosts and pools of own hosts are explained from a live cluster".to_owned();
        let hint = Some("leave `-f` out, or name a cluster with `--kubeconfig FILE`".to_owned());
        return Err(Failure { message, code: Some(Code::Usage), hint }.into());
    }
    let (kubeconfig, context) = objects.cluster();
    let (namespace, name) = name.split_once('/').unwrap_or((&args.namespace, name));
    let world = Session::at(kubeconfig, context)?.world(Some(namespace))?;
    let text = match args.subject {
        Subject::Machine(_) => hosts::machine(&world, namespace, name, args.output)?,
        Subject::Host(_) => hosts::host(&world, namespace, name, args.output)?,
        _ => hosts::pool(&world, namespace, name, args.output)?,
    };
    super::print(out, &text)
}

/// The state that the launcher has written to a request for CI nodes.
fn request(args: &ExplainArgs, name: &str) -> anyhow::Result<String> {
    let (namespace, name) = name.split_once('/').unwrap_or((&args.namespace, name));
    let (kubeconfig, context) = args.input.objects.cluster();
    let found = super::ci::request::explain(kubeconfig, context, namespace, name)?;
    match args.output {
        Output::Table => Ok(super::ci::request::explained(&found)),
        Output::Json => super::as_json(&found),
        Output::Yaml => super::as_yaml(&found),
    }
}

fn missing_pod(snapshot: &Snapshot, name: &str) -> anyhow::Error {
    let names: Vec<String> = (0..snapshot.pods.len()).map(|pod| snapshot.pod_name(pod.into())).collect();
    missing("pod", name, names.iter().map(String::as_str))
}

fn missing_node(snapshot: &Snapshot, name: &str) -> anyhow::Error {
    missing("node", name, snapshot.nodes.iter().map(|node| node.name.as_str()))
}

fn missing<'a>(kind: &str, name: &str, mut names: impl Iterator<Item = &'a str> + Clone) -> anyhow::Error {
    let hint = match nearest(name, names.clone()) {
        Some(known) => format!("did you mean `{kind}/{known}`?"),
        None if names.next().is_some() => "`millpond plan -o json` lists pods and nodes".to_owned(),
        None => format!("no {kind} was read at all"),
    };
    let message = format!("there is no {kind} `{name}`");
    anyhow::Error::new(Failure { message, code: Some(Code::NotFound), hint: Some(hint) })
}
