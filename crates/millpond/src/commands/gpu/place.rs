//! `millpond gpu place`.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};
use millpond_api::condition;
use millpond_api::gpu_info::{
    CLAIM_LABEL, GPUInfoSpec, MOST_GPUS, MOST_HOURS, NONE_AVAILABLE, Proposal, RESERVED, Reserve,
};
use millpond_gpu::answer::{Ranking, explain, proposal};
use millpond_gpu::estate::{Estate, NodeView};
use millpond_gpu::kinds::GPUInfo;
use millpond_gpu::pools::Pools;
use millpond_plan::gpu::Undisturbed;
use serde_json::{Value, json};

use super::ClusterArgs;
use super::read::runtime;
use super::release::PLACED;
use crate::commands::{as_json, print};
use crate::failure::{Code, Failure};

/// How long the controller may take to answer a reservation.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Arguments of `gpu place`.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Hours that the job runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..=MOST_HOURS))]
    hours: i64,
    /// GPUs that the job needs; 0 for a job that needs none
    #[arg(long, alias = "gpu", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(0..=MOST_GPUS))]
    gpus: i64,
    /// Model of the GPUs: a name such as T4, or vendor and device such as 10de:1eb8
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The least memory of one GPU
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(i64).range(1..))]
    min_memory_gib: Option<i64>,
    /// Labels of suitable nodes, e.g. `zone=a,disk=ssd`
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    node_selector: Vec<(String, String)>,
    /// Keep the GPUs so long for a pod with the label millpond.dev/gpuinfo
    #[arg(long, value_name = "TTL", value_parser = ttl, conflicts_with = "filename")]
    reserve: Option<String>,
    /// Name of the reservation; one is made up without it
    #[arg(long, value_name = "NAME", requires = "reserve")]
    name: Option<String>,
    /// Namespace of the reservation
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    /// Say why every other node was not chosen
    #[arg(long)]
    explain: bool,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Lines for people
    Text,
    /// One object
    Json,
}

fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').ok_or("a label such as zone=a")?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

fn ttl(text: &str) -> Result<String, String> {
    match millpond_api::duration::parse_seconds(text) {
        Ok(seconds) if seconds > 0 => Ok(text.to_owned()),
        Ok(_) => Err("a duration above zero".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl PlaceArgs {
    fn spec(&self) -> GPUInfoSpec {
        GPUInfoSpec {
            des_acc_time: self.hours,
            gpu_required: self.gpus > 0,
            gpu_count: Some(self.gpus).filter(|gpus| *gpus > 0),
            gpu_model: self.model.clone(),
            min_memory_gib: self.min_memory_gib,
            node_selector: self.node_selector.iter().cloned().collect::<BTreeMap<_, _>>(),
            reserve: self.reserve.clone().map(|ttl| Reserve { gpus: None, ttl }),
            ..GPUInfoSpec::default()
        }
    }
}

/// The answer.
struct Placed<'e> {
    node: Option<&'e NodeView>,
    ranking: Ranking<'e>,
    /// The GPUInfo that keeps the GPUs, and until when.
    reservation: Option<(String, String, String)>,
    /// Why nothing fits.
    why: String,
    /// A proposal that would help.
    proposal: Option<Proposal>,
}

pub(super) fn run(args: &PlaceArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    if args.gpus == 0 && (args.model.is_some() || args.min_memory_gib.is_some() || args.reserve.is_some()) {
        let message = "`--model`, `--min-memory-gib` and `--reserve` need GPUs, and `--gpus` is 0".to_owned();
        return Err(Failure { message, code: Some(Code::Usage), hint: None }.into());
    }
    runtime()?.block_on(async {
        let (client, mut estate) = args.cluster.open(messages).await?;
        if let Some((reason, message)) = estate.stale() {
            let message = format!("the inventory is not fresh ({reason}): {message}");
            return Err(Failure { message, code: None, hint: None }.into());
        }
        let fits_none = Ranking::new(&estate, &args.spec(), None, None, None).best().is_none();
        if let Some(client) = client.as_ref().filter(|_| fits_none) {
            estate.pools = Some(Pools::fetch(client).await);
        }
        let placed = place(args, client.as_ref(), &estate).await?;
        let text = match args.output {
            Output::Json => as_json(&view(args, &placed))?,
            Output::Text => page(args, &placed),
        };
        print(out, &text)?;
        if placed.node.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        writeln!(messages, "error: {}", placed.why)?;
        if let Some(proposal) = &placed.proposal {
            writeln!(messages, "hint: {}", proposal.message)?;
        }
        Ok(ExitCode::FAILURE)
    })
}

async fn place<'e>(args: &PlaceArgs, client: Option<&Client>, estate: &'e Estate) -> anyhow::Result<Placed<'e>> {
    let spec = args.spec();
    let ranking = Ranking::new(estate, &spec, None, None, None);
    let why = ranking.summary();
    let proposal = proposal(estate, &spec, &ranking);
    let Some(best) = ranking.best() else {
        return Ok(Placed { node: None, ranking, reservation: None, why, proposal });
    };
    let Some(client) = client.filter(|_| args.reserve.is_some()) else {
        return Ok(Placed { node: Some(best), ranking, reservation: None, why, proposal });
    };
    match reserve(args, client, spec).await? {
        Ok((name, node, until)) => {
            let node = estate.node(&node).unwrap_or(best);
            let reservation = Some((name, node.name.clone(), until));
            Ok(Placed { node: Some(node), ranking, reservation, why, proposal })
        }
        Err(why) => Ok(Placed { node: None, ranking, reservation: None, why, proposal }),
    }
}

/// Asks the controller to keep the GPUs: name, node and end of the reservation, or why not.
async fn reserve(
    args: &PlaceArgs,
    client: &Client,
    spec: GPUInfoSpec,
) -> anyhow::Result<Result<(String, String, String), String>> {
    let api = Api::<GPUInfo>::namespaced(client.clone(), &args.namespace);
    let metadata = ObjectMeta {
        name: args.name.clone(),
        generate_name: args.name.is_none().then(|| "place-".to_owned()),
        labels: Some([(PLACED.to_owned(), "true".to_owned())].into()),
        ..ObjectMeta::default()
    };
    let created = api.create(&PostParams::default(), &GPUInfo::new(metadata, spec)).await;
    let name = created.context("cannot create a GPUInfo")?.name_any();
    let is_answered = |info: Option<&GPUInfo>| {
        info.is_none_or(|info| {
            let conditions = info.status.as_ref().map(|status| &status.conditions);
            conditions.is_some_and(|conditions| condition::find(conditions, RESERVED).is_some())
        })
    };
    let answered = tokio::time::timeout(ANSWER_WITHIN, await_condition(api.clone(), &name, is_answered)).await;
    let give_up = || async { drop(api.delete(&name, &DeleteParams::default()).await) };
    let Ok(answered) = answered else {
        give_up().await;
        let message = format!("no controller reserved the GPUs within {} s", ANSWER_WITHIN.as_secs());
        let hint = Some("`millpond controller` or `millpond up` must run for the cluster".to_owned());
        return Err(Failure { message, code: Some(Code::Timeout), hint }.into());
    };
    let status = answered.context("cannot watch the GPUInfo")?.and_then(|info| info.status).unwrap_or_default();
    let told = condition::find(&status.conditions, RESERVED).cloned();
    match (status.reservation, told) {
        (Some(kept), Some(told)) if told.is_true() => {
            let until = kept.until.map(|until| until.to_string()).unwrap_or_default();
            Ok(Ok((name, kept.node, until)))
        }
        (_, told) => {
            give_up().await;
            Ok(Err(told.map(|told| format!("{}: {}", told.reason, told.message)).unwrap_or_default()))
        }
    }
}

/// Each node that is not the answer: its name, the reason, and the reason in words.
fn others(args: &PlaceArgs, placed: &Placed<'_>) -> Vec<(String, &'static str, String)> {
    let spec = args.spec();
    let chosen = placed.node.map(|node| node.name.as_str());
    let suitable = placed.ranking.suitable.iter().filter(|(node, _)| Some(node.name.as_str()) != chosen);
    let ranked = suitable.map(|(node, score)| {
        let message = format!(
            "fits, but ranks lower: CPU demand {}, {} GPUs left over, {} hours",
            score.cpu_demand_mhz,
            score.gpus_left,
            node.undisturbed.hours()
        );
        (node.name.clone(), "NotWinner", message)
    });
    let rejected = placed.ranking.rejected.iter();
    let rejected = rejected.map(|(node, why)| (node.name.clone(), why.as_str(), explain(node, *why, &spec, None)));
    ranked.chain(rejected).collect()
}

fn view(args: &PlaceArgs, placed: &Placed<'_>) -> Value {
    let node = placed.node;
    let mut view = json!({
        "node": node.map(|node| &node.name),
        "host": node.map(|node| &node.host),
        "model": node.and_then(|node| node.model.as_ref()),
        "gpus": args.gpus,
        "free": node.map(|node| node.free(None)),
        "cpuUsage": node.map(|node| node.load.cpu),
        "memoryUsage": node.map(|node| node.load.memory_mib),
        "availableHours": node.map(|node| node.undisturbed.hours()),
        "until": node.and_then(|node| node.event.as_ref()?.at).map(millpond_api::time::Time),
        "assumed": node.map(|node| matches!(node.undisturbed, Undisturbed::Assumed(_))),
    });
    if node.is_none() {
        view["message"] = NONE_AVAILABLE.into();
        view["reason"] = placed.why.as_str().into();
        view["proposal"] = json!(placed.proposal);
    }
    if let Some((name, node, until)) = &placed.reservation {
        view["reservation"] = json!({
            "name": name, "namespace": args.namespace, "node": node, "gpus": args.gpus, "until": until,
            "label": {CLAIM_LABEL: name},
        });
    }
    if args.explain {
        let other = |(node, reason, message)| json!({"node": node, "reason": reason, "message": message});
        view["rejected"] = others(args, placed).into_iter().map(other).collect();
    }
    view
}

fn page(args: &PlaceArgs, placed: &Placed<'_>) -> String {
    let mut page = match placed.node {
        Some(node) => {
            let assumed = matches!(node.undisturbed, Undisturbed::Assumed(_));
            let hours = node.undisturbed.hours();
            let time = if assumed { format!("{hours} (assumed: no event is known)") } else { hours.to_string() };
            format!("node   {}\nhost   {}\nhours  {time}\n", node.name, node.host)
        }
        None => format!("{NONE_AVAILABLE}\n"),
    };
    if let Some((name, _, until)) = &placed.reservation {
        page += &format!("\nReserved until {until}: label the pod `{CLAIM_LABEL}: {name}`.\n");
    }
    if args.explain {
        let others = others(args, placed);
        if !others.is_empty() {
            page.push('\n');
        }
        for (node, reason, message) in others {
            page += &format!("{node}: {reason}: {message}\n");
        }
    }
    page
}
