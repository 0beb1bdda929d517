//! `millpond explain`: why a pod has no place and what would help, why a node stays or goes, why a CI request waits. The
//! reasons come from `millpond_plan::explain`, `millpond_plan::disruption` and the status of the request; here they get
//! words and columns.

pub(crate) mod hosts;
mod node;
mod pod;

use std::io::Write;

use clap::{Args, ValueEnum};
use millpond_api::spelling::nearest;
use millpond_plan::model::Snapshot;

use crate::commands::host::session::Session;
use crate::commands::input::{self, InputArgs, Purpose};
use crate::failure::{Code, Failure};

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// pod/NAME, node/NAME, machine/NAME, host/NAME, pool/NAME or request/NAME; a NAMESPACE/ may stand before the name
    #[arg(value_name = "KIND/NAME", value_parser = subject)]
    subject: Subject,

    /// The namespace of the pod, machine, host, pool or request
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
    Node(String),
    Machine(String),
    Host(String),
    Pool(String),
    Request(String),
}

fn subject(text: &str) -> Result<Subject, String> {
    let wrong =
        || "pod/NAME, pod/NAMESPACE/NAME, node/NAME, machine/NAME, host/NAME, pool/NAME or request/NAME".to_owned();
    let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
    match kind {
        "pod" | "pods" | "po" => Ok(Subject::Pod(name.to_owned())),
        "node" | "nodes" | "no" => Ok(Subject::Node(name.to_owned())),
        "machine" | "machines" | "ma" | "byomachine" | "byomachines" | "byom" => Ok(Subject::Machine(name.to_owned())),
        "host" | "hosts" | "byohost" | "byohosts" | "byoh" => Ok(Subject::Host(name.to_owned())),
        "pool" | "pools" | "machinedeployment" | "machinedeployments" | "md" => Ok(Subject::Pool(name.to_owned())),
        "request" | "requests" | "noderequest" | "noderequests" | "nreq" => Ok(Subject::Request(name.to_owned())),
        _ => Err(wrong()),
    }
}

/// Runs the command: data to `out`, messages to `messages`.
pub(crate) fn run(args: &ExplainArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    if let Subject::Request(name) = &args.subject {
        return super::print(out, &request(args, name)?);
    }
    if let Subject::Machine(name) | Subject::Host(name) | Subject::Pool(name) = &args.subject {
        return run_hosts(args, name, out);
    }
    let input = input::load(&args.input, Purpose::Plan, messages)?;
    let snapshot = &input.snapshot;
    let text = match &args.subject {
        Subject::Pod(name) => {
            let name = if name.contains('/') { name.clone() } else { format!("{}/{name}", args.namespace) };
            let found = snapshot.find_pod(&name).ok_or_else(|| missing_pod(snapshot, &name))?;
            pod::render(snapshot, found, args.output)?
        }
        Subject::Node(name) => {
            let found = snapshot.find_node(name).ok_or_else(|| missing_node(snapshot, name))?;
            node::render(snapshot, found, args.output)?
        }
        Subject::Machine(_) | Subject::Host(_) | Subject::Pool(_) | Subject::Request(_) => return Ok(()),
    };
    super::print(out, &text)
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

/// What the launcher has written of a request for CI nodes.
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
