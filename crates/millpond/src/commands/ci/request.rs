//! `millpond ci request`: NodeRequest objects, for clients that are not Zuul.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};
use millpond_api::ci::{FULFILLED, NodeRequestSpec, Precedence, RequestPhase};
use millpond_api::condition;
use millpond_ci::objects::kinds::NodeRequest;

use super::{CommonArgs, Output, source};
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml, cluster, format, print};
use crate::failure::{Code, Failure};

/// The kind's name for kubectl.
const RESOURCE: &str = "noderequest.millpond.dev";
/// A launcher that runs judges a request within milliseconds; without one, `create` goes on after this.
const REFUSED_WITHIN: Duration = Duration::from_secs(5);
/// Objects of one request; a list goes on until there are no more.
const PAGE: u32 = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum RequestCommand {
    /// Ask for nodes by label
    ///
    /// A request that no pool can ever meet is an error that says why. With `--wait`, the nodes are printed once they
    /// are ready.
    #[command(after_help = "Examples:
  millpond ci request create --label fedora
  millpond ci request create --label fedora --count 2 --wait
  millpond ci request create --label controller --label worker --label worker --name build-7 --wait -o json")]
    Create(CreateArgs),
    /// List requests
    #[command(after_help = "Examples:
  millpond ci request list
  millpond ci request list -A")]
    List {
        /// Of all namespaces
        #[arg(short = 'A', long)]
        all_namespaces: bool,
    },
    /// Show a request with its nodes, or why it waits
    #[command(after_help = "Examples:
  millpond ci request get build-7
  millpond ci request get build-7 -o yaml")]
    Get {
        /// The request
        name: String,
    },
    /// Delete requests and give their nodes back
    #[command(after_help = "Examples:
  millpond ci request delete build-7")]
    Delete {
        /// The requests
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// A label for each node, in order (repeatable)
    #[arg(short, long = "label", value_name = "LABEL", required = true)]
    labels: Vec<String>,
    /// How often the labels are repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Name of the request; one is made up without it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Of requests with the same precedence, lower numbers come first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
    /// Precedence of the request
    #[arg(long, value_enum, default_value = "normal")]
    precedence: Before,
    /// The tenant whose limits the nodes count against
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// The requestor
    #[arg(long, value_name = "NAME")]
    requestor: Option<String>,
    /// The provider that the nodes should come from, if it has them
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Launch fresh nodes, and use none that are ready already
    #[arg(long)]
    no_reuse: bool,
    /// Wait until the nodes are ready
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Before {
    High,
    Normal,
    Low,
}

pub(super) fn run(
    args: &CommonArgs,
    command: &RequestCommand,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    source::runtime()?.block_on(async {
        let client = cluster::connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        match command {
            RequestCommand::Create(create_args) => create(args, create_args, client, out, messages).await,
            RequestCommand::List { all_namespaces } => list(args, *all_namespaces, client, out).await,
            RequestCommand::Get { name } => {
                let found = fetch(&client, args.namespace(), name).await?;
                print(out, &shown(args.output, &found)?)
            }
            RequestCommand::Delete { names } => delete(args, names, client, out).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn create(
    common: &CommonArgs,
    args: &CreateArgs,
    client: Client,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<()> {
    let api = Api::<NodeRequest>::namespaced(client, common.namespace());
    let metadata = ObjectMeta {
        generate_name: args.name.is_none().then(|| "request-".to_owned()),
        name: args.name.clone(),
        ..ObjectMeta::default()
    };
    let created = api.create(&PostParams::default(), &NodeRequest::new(metadata, args.spec())).await;
    let created = created.map_err(|error| refused(&error, args))?;
    let name = created.name_any();
    let settled = |request: Option<&NodeRequest>| {
        request.is_none_or(|it| matches!(it.status.state, Some(RequestPhase::Fulfilled | RequestPhase::Failed)))
    };
    let judged = |request: Option<&NodeRequest>| request.is_none_or(|it| it.status.state.is_some());
    let waited = if args.wait {
        writeln!(messages, "{RESOURCE}/{name} created; waiting for its nodes")?;
        let waiting = await_condition(api.clone(), &name, settled);
        tokio::time::timeout(Duration::from_secs(args.timeout), waiting).await
    } else {
        tokio::time::timeout(REFUSED_WITHIN, await_condition(api.clone(), &name, judged)).await
    };
    let request = match waited {
        Ok(found) => found.context("cannot watch the request")?,
        Err(_) if args.wait => return Err(timed_out(&api, &name, args.timeout).await),
        // No launcher has seen it.
        Err(_) => Some(created),
    };
    let Some(request) = request else {
        let message = format!("the request `{name}` was deleted while it was waited for");
        return Err(Failure { message, code: Some(Code::Conflict), hint: None }.into());
    };
    if request.status.state == Some(RequestPhase::Failed) {
        return Err(failed(&request));
    }
    match common.output {
        Output::Table if args.wait => print(out, &nodes_table(&request)),
        Output::Table => print(out, &format!("{RESOURCE}/{name} created\n")),
        other => print(out, &shown(other, &request)?),
    }
}

impl CreateArgs {
    fn spec(&self) -> NodeRequestSpec {
        NodeRequestSpec {
            labels: self.labels.clone(),
            count: self.count,
            priority: self.priority,
            precedence: match self.precedence {
                Before::High => Precedence::High,
                Before::Normal => Precedence::Normal,
                Before::Low => Precedence::Low,
            },
            tenant: self.tenant.clone(),
            requestor: self.requestor.clone(),
            provider: self.provider.clone(),
            reuse: self.no_reuse.then_some(false),
            event_id: None,
        }
    }
}

fn refused(error: &kube::Error, args: &CreateArgs) -> anyhow::Error {
    let failure = |message: String, code, hint: Option<String>| Failure { message, code, hint }.into();
    match error {
        kube::Error::Api(status) if status.is_already_exists() => {
            let name = args.name.as_deref().unwrap_or_default();
            failure(format!("there is a request `{name}` already"), Some(Code::Conflict), None)
        }
        kube::Error::Api(status) if status.is_not_found() => {
            let hint = "`millpond install crds noderequests.millpond.dev | kubectl apply -f -` brings the kind; \
                        `millpond up --ci-config FILE` serves it";
            failure(
                "the cluster does not know NodeRequests, or not the namespace".to_owned(),
                Some(Code::NotFound),
                Some(hint.to_owned()),
            )
        }
        kube::Error::Api(status) => failure(format!("the request is refused: {}", status.message), None, None),
        other => anyhow::anyhow!("cannot create the request: {other}"),
    }
}

/// Why a request failed, in the words of its condition.
fn failed(request: &NodeRequest) -> anyhow::Error {
    let condition = condition::find(&request.status.conditions, FULFILLED);
    let why = condition.map_or("no pool can provide it", |condition| condition.message.as_str());
    let code = match condition.map(|condition| condition.reason.as_str()) {
        Some("UnknownLabel") => Some(Code::NotFound),
        Some("ExceedsLimit" | "NotEnoughHosts" | "TooManyNodes") => Some(Code::Conflict),
        _ => None,
    };
    let name = request.name_any();
    Failure {
        message: format!("the request `{name}` failed: {why}"),
        code,
        hint: Some(format!("`millpond explain request/{name}` says more; it stays until it is deleted")),
    }
    .into()
}

async fn timed_out(api: &Api<NodeRequest>, name: &str, seconds: u64) -> anyhow::Error {
    let status = api.get(name).await.map(|request| request.status).unwrap_or_default();
    let why = condition::find(&status.conditions, FULFILLED).map(|condition| format!(": {}", condition.message));
    Failure {
        message: format!("the request `{name}` has no nodes after {seconds} s{}", why.unwrap_or_default()),
        code: Some(Code::Timeout),
        hint: Some(format!("it goes on; `millpond ci request delete {name}` ends it")),
    }
    .into()
}

async fn fetch(client: &Client, namespace: &str, name: &str) -> anyhow::Result<NodeRequest> {
    let found = Api::<NodeRequest>::namespaced(client.clone(), namespace).get_opt(name).await;
    found.with_context(|| format!("cannot read the request `{namespace}/{name}`"))?.ok_or_else(|| {
        let message = format!("there is no request `{name}` in the namespace `{namespace}`");
        let hint = Some("`millpond ci request list -A` lists all".to_owned());
        Failure { message, code: Some(Code::NotFound), hint }.into()
    })
}

async fn list(common: &CommonArgs, all: bool, client: Client, out: &mut impl Write) -> anyhow::Result<()> {
    let api = if all { Api::<NodeRequest>::all(client) } else { Api::namespaced(client, common.namespace()) };
    let (mut requests, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await.context("cannot list requests")?;
        requests.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    let text = match common.output {
        Output::Json => as_json(&requests)?,
        Output::Yaml => as_yaml(&requests)?,
        Output::Name => requests.iter().map(|request| format!("{RESOURCE}/{}\n", request.name_any())).collect(),
        Output::Table if requests.is_empty() => "No requests.\n".to_owned(),
        Output::Table => requests_table(&requests, all) + "\n",
    };
    print(out, &text)
}

fn requests_table(requests: &[NodeRequest], all: bool) -> String {
    let mut columns = vec![
        ("NAME", Side::Left),
        ("LABELS", Side::Left),
        ("STATE", Side::Left),
        ("NODES", Side::Left),
        ("REQUESTOR", Side::Left),
        ("AGE", Side::Right),
    ];
    if all {
        columns.insert(0, ("NAMESPACE", Side::Left));
    }
    let mut table = Table::new(&columns);
    let now = jiff::Timestamp::now().as_second();
    for request in requests {
        let created = request.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0.as_second());
        let nodes: Vec<&str> = request.status.nodes.iter().map(|node| node.id.as_str()).collect();
        let mut cells = vec![
            request.name_any(),
            labels(request),
            request.status.state.unwrap_or_default().to_string(),
            nodes.join(","),
            request.spec.requestor.clone().unwrap_or_default(),
            format::span(now - created),
        ];
        if all {
            cells.insert(0, request.namespace().unwrap_or_default());
        }
        table.row(cells);
    }
    table.text()
}

fn labels(request: &NodeRequest) -> String {
    let labels = request.spec.labels.join(",");
    match request.spec.count {
        Some(count) if count > 1 => format!("{labels} x{count}"),
        _ => labels,
    }
}

fn nodes_table(request: &NodeRequest) -> String {
    let mut table = Table::new(&[
        ("NODE", Side::Left),
        ("LABEL", Side::Left),
        ("PROVIDER", Side::Left),
        ("ADDRESS", Side::Left),
        ("PORT", Side::Right),
        ("CONNECTION", Side::Left),
        ("USER", Side::Left),
    ]);
    for node in &request.status.nodes {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let address = node.interface_ip.clone().or_else(|| node.namespace.clone());
        table.row(vec![
            node.id.clone(),
            node.label.clone(),
            text(&node.provider),
            text(&address),
            node.connection_port.map(|port| port.to_string()).unwrap_or_default(),
            text(&node.connection_type),
            text(&node.username),
        ]);
    }
    format!("{RESOURCE}/{} fulfilled\n{}\n", request.name_any(), table.text())
}

/// One request in a form.
fn shown(output: Output, request: &NodeRequest) -> anyhow::Result<String> {
    Ok(match output {
        Output::Json => as_json(request)?,
        Output::Yaml => as_yaml(request)?,
        Output::Name => format!("{RESOURCE}/{}\n", request.name_any()),
        Output::Table if request.status.state == Some(RequestPhase::Fulfilled) => nodes_table(request),
        Output::Table => page(request),
    })
}

/// A request that waits or has failed, with what every pool says.
pub(crate) fn page(request: &NodeRequest) -> String {
    let state = request.status.state.unwrap_or_default();
    let mut page =
        format!("Request {} for {}: {state}\n", millpond_ci::objects::request_name(request), labels(request));
    if let Some(condition) = condition::find(&request.status.conditions, FULFILLED)
        && !condition.message.is_empty()
    {
        page += &format!("  {}\n", condition.message);
    }
    if request.status.state.is_none() {
        page += "  no launcher has seen it yet\n";
    }
    if !request.status.reasons.is_empty() {
        let mut table = Table::new(&[("POOL", Side::Left), ("REASON", Side::Left), ("MESSAGE", Side::Left)]);
        for said in &request.status.reasons {
            table.row(vec![said.pool.clone(), said.reason.clone(), said.message.clone()]);
        }
        page += "\n";
        table.add_to(&mut page);
    }
    page
}

/// `millpond explain request/NAME`.
pub(crate) fn explain(
    kubeconfig: Option<&std::path::Path>,
    context: Option<&str>,
    namespace: &str,
    name: &str,
) -> anyhow::Result<NodeRequest> {
    source::runtime()?.block_on(async {
        let client = cluster::connect(kubeconfig, context).await?;
        fetch(&client, namespace, name).await
    })
}

/// A fulfilled request, or one that waits.
pub(crate) fn explained(request: &NodeRequest) -> String {
    match request.status.state {
        Some(RequestPhase::Fulfilled) => nodes_table(request),
        _ => page(request),
    }
}

async fn delete(common: &CommonArgs, names: &[String], client: Client, out: &mut impl Write) -> anyhow::Result<()> {
    let namespace = common.namespace();
    let api = Api::<NodeRequest>::namespaced(client, namespace);
    for name in names {
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => print(out, &format!("{RESOURCE} \"{name}\" deleted\n"))?,
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let message = format!("there is no request `{name}` in the namespace `{namespace}`");
                let hint = Some("`millpond ci request list -A` lists all".to_owned());
                return Err(Failure { message, code: Some(Code::NotFound), hint }.into());
            }
            Err(error) => {
                return Err(anyhow::Error::new(error).context(format!("cannot delete the request `{name}`")));
            }
        }
    }
    Ok(())
}
