//! `millpond host list`.

use std::io::Write;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use millpond_api::selector::{self, LabelValues};
use millpond_api::spelling::nearest;
use millpond_hosts::kinds::ByoHost;
use millpond_hosts::report::{self, HostReport};
use serde_json::{Value, json};

use super::session::{PlaceArgs, Session};
use crate::commands::format::span;
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml, print};
use crate::failure::{Code, Failure};

/// Arguments of `millpond host list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Hosts of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only hosts with these labels, as kubectl takes them
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Only hosts in this state
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people
    Table,
    /// The same with more columns
    Wide,
    /// One object
    Json,
    /// The same as YAML
    Yaml,
    /// Names, as kubectl takes them
    Name,
}

/// Runs the command.
pub(super) fn run(args: &ListArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let usage = |message: String, hint: Option<String>| Failure { message, code: Some(Code::Usage), hint };
    let wanted = match &args.selector {
        Some(text) => selector::parse(text).map_err(|error| usage(format!("`-l {text}`: {error}"), None))?,
        None => Vec::new(),
    };
    let states = millpond_api::byoh::HostState::ALL.map(millpond_api::byoh::HostState::name);
    if let Some(state) =
        args.state.as_deref().filter(|state| !states.iter().any(|known| known.eq_ignore_ascii_case(state)))
    {
        let hint = nearest(state, states).map(|near| format!("did you mean `{near}`?"));
        let known = format!("states are {}", states.join(", "));
        return Err(usage(format!("there is no state `{state}`"), hint.or(Some(known))).into());
    }
    let session = Session::open(&args.place)?;
    let world = session.world((!args.all_namespaces).then_some(args.place.namespace.as_str()))?;
    let has_labels = |host: &&ByoHost| {
        let labels: LabelValues =
            host.metadata.labels.iter().flatten().map(|(key, value)| (key.clone(), vec![value.clone()])).collect();
        wanted.iter().all(|one| one.matches(&labels))
    };
    let in_state = |host: &&ByoHost| {
        let state = host.status.state.unwrap_or_default().name();
        args.state.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(state))
    };
    let hosts: Vec<(&ByoHost, HostReport)> =
        world.hosts.iter().filter(has_labels).filter(in_state).map(|host| (host, report::host(&world, host))).collect();
    let text = match args.output {
        Output::Table => page(&hosts, args.all_namespaces, false),
        Output::Wide => page(&hosts, args.all_namespaces, true),
        Output::Json => as_json(&view(&hosts))?,
        Output::Yaml => as_yaml(&view(&hosts))?,
        Output::Name => hosts.iter().map(|(host, _)| format!("byohost/{}\n", host.name())).collect(),
    };
    print(out, &text)
}

fn view(hosts: &[(&ByoHost, HostReport)]) -> Value {
    json!({"hosts": hosts.iter().map(|(_, report)| report).collect::<Vec<_>>()})
}

/// Pools that a host suits, by name.
fn serves(report: &HostReport) -> String {
    let pools: Vec<&str> = report.pools.iter().filter(|pool| pool.matches).map(|pool| pool.pool.as_str()).collect();
    listed(&pools)
}

fn listed(items: &[&str]) -> String {
    if items.is_empty() { "-".to_owned() } else { items.join(",") }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Labels that administrators set.
fn own_labels(report: &HostReport) -> String {
    let derived = |key: &str| {
        key.ends_with("infrastructure.cluster.x-k8s.io/host")
            || key.starts_with("capacity.infrastructure.cluster.x-k8s.io/")
            || key.starts_with("byoh.infrastructure.cluster.x-k8s.io/")
    };
    let own: Vec<String> =
        report.labels.iter().filter(|(key, _)| !derived(key)).map(|(key, value)| format!("{key}={value}")).collect();
    listed(&own.iter().map(String::as_str).collect::<Vec<_>>())
}

fn page(hosts: &[(&ByoHost, HostReport)], namespaces: bool, wide: bool) -> String {
    if hosts.is_empty() {
        return "No hosts. `millpond host token create` lets one in.\n".to_owned();
    }
    let mut columns = vec![("NAME", Side::Left)];
    if namespaces {
        columns.insert(0, ("NAMESPACE", Side::Left));
    }
    columns.extend([
        ("STATE", Side::Left),
        ("POOL", Side::Left),
        ("MACHINE", Side::Left),
        ("CPU", Side::Right),
        ("MEMORY", Side::Right),
        ("GPUS", Side::Right),
        ("SERVES", Side::Left),
        ("AGE", Side::Right),
    ]);
    if wide {
        columns.extend([("OS", Side::Left), ("ADDRESS", Side::Left), ("LABELS", Side::Left), ("NOTE", Side::Left)]);
    }
    let mut table = Table::new(&columns);
    for (host, report) in hosts {
        let capacity = |resource: &str| report.capacity.get(resource).cloned().unwrap_or_else(|| "-".to_owned());
        let created = host.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let age =
            created.map_or_else(|| "-".to_owned(), |created| span(Timestamp::now().duration_since(created).as_secs()));
        let mut cells = vec![report.host.clone()];
        if namespaces {
            cells.insert(0, report.namespace.clone());
        }
        cells.extend([
            report.state.clone(),
            or_dash(&report.pool),
            report.machine.clone().unwrap_or_else(|| "-".to_owned()),
            capacity("cpu"),
            capacity("memory"),
            host.status.gpus.to_string(),
            serves(report),
            age,
        ]);
        if wide {
            let network = host.status.network.iter().find(|one| one.is_default).or(host.status.network.first());
            let address = network.and_then(|network| network.ip_addrs.first()).map_or("-", String::as_str);
            cells.extend([
                or_dash(&host.status.host_info.os_image),
                address.to_owned(),
                own_labels(report),
                report.notes.first().cloned().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        table.row(cells);
    }
    table.text() + "\n"
}
