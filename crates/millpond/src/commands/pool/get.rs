//! `millpond pool get`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use clap::{Args, ValueEnum};
use millpond_plan::explain::explain_pool;
use millpond_plan::model::{PoolId, Snapshot};
use millpond_plan::symbol::Symbol;
use serde_json::{Value, json};

use super::budgets::Budgets;
use super::cluster_api;
use super::summary::PoolSummary;
use crate::commands::format::span;
use crate::commands::input::{self, Input, InputArgs, Purpose};
use crate::commands::node_totals::{loads, price, share, state};
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml, print};

/// Values of a requirement that a line shows.
const SHOWN: usize = 6;

/// Arguments of `pool get`.
#[derive(Debug, Args)]
pub(crate) struct PoolGetArgs {
    /// The pool; after the name of a Cluster API cluster, one of its node pools
    #[arg(value_names = ["CLUSTER", "NAME"], num_args = 1..=2, required = true)]
    names: Vec<String>,

    /// The namespace of the Cluster API cluster
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    namespace: String,

    #[command(flatten)]
    input: InputArgs,

    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A page for people
    Table,
    /// The same, and what a node of the pool offers to the scheduler
    Wide,
    /// One object
    Json,
    /// The same as YAML
    Yaml,
}

pub(super) fn run(args: &PoolGetArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let name = match &args.names[..] {
        [cluster, name] => {
            return cluster_api::get(cluster, name, &args.namespace, &args.input.objects, args.output, out);
        }
        names => names.first().map(String::as_str).unwrap_or_default(),
    };
    let input = input::load(&args.input, Purpose::List, messages)?;
    let snapshot = &input.snapshot;
    let id = snapshot.find_pool(name).ok_or_else(|| super::missing(snapshot, name))?;
    let text = match args.output {
        Output::Table | Output::Wide => page(&input, id),
        Output::Json => as_json(&view(&input, id))?,
        Output::Yaml => as_yaml(&view(&input, id))?,
    };
    print(out, &text)
}

fn page(input: &Input, id: PoolId) -> String {
    let snapshot = &input.snapshot;
    let standing = explain_pool(snapshot, id);
    let pool = PoolSummary::new(input, &loads(snapshot), &standing);
    let mut text = String::new();
    let ready = match pool.why_no_node() {
        Some(why) if pool.ready() == "True" => format!("ready, but makes no node now: {why}"),
        Some(why) => format!("not ready, {why}"),
        None if pool.ready() == "True" => "ready".to_owned(),
        None => "its readiness is not reported yet".to_owned(),
    };
    _ = writeln!(text, "pool/{}: {ready}", pool.pool.name);
    _ = writeln!(text, "  {}", pool.sum.line());
    let class = pool
        .class()
        .zip(pool.class_kind())
        .map_or_else(|| "no class".to_owned(), |(name, kind)| format!("class {name} ({kind})"));
    let age = pool.age().map_or_else(String::new, |age| format!(", {} old", span(age)));
    let fixed = pool.pool.replicas.map_or_else(String::new, |replicas| format!(", fixed number of nodes: {replicas}"));
    _ = writeln!(text, "  {class}, weight {}{fixed}{age}", pool.pool.weight);
    conditions(&mut text, &pool, snapshot.now);
    requirements(&mut text, snapshot, &pool);
    limits(&mut text, &pool);
    Budgets::new(snapshot, pool.id).add_to(&mut text, &pool);
    nodes(&mut text, snapshot, &pool);
    text
}

fn conditions(text: &mut String, pool: &PoolSummary<'_>, now: i64) {
    if pool.conditions().is_empty() {
        return;
    }
    _ = writeln!(text, "\nConditions:");
    let mut table = Table::new(&[
        ("TYPE", Side::Left),
        ("STATUS", Side::Left),
        ("SINCE", Side::Right),
        ("REASON", Side::Left),
        ("MESSAGE", Side::Left),
    ]);
    for condition in pool.conditions() {
        let since = condition.last_transition_time.map_or_else(|| "?".to_owned(), |time| span(now - time.0));
        let cells = [&condition.kind, &condition.status, &since, &condition.reason, &condition.message];
        table.row(cells.map(Clone::clone).to_vec());
    }
    table.add_to(text);
}

fn requirements(text: &mut String, snapshot: &Snapshot, pool: &PoolSummary<'_>) {
    let all = wanted(snapshot, pool);
    if all.is_empty() {
        return;
    }
    _ = writeln!(text, "\nIts nodes have:");
    let mut table = Table::new(&[("LABEL", Side::Left), ("VALUES", Side::Left)]);
    for (key, values) in all {
        table.row(vec![key, values]);
    }
    table.add_to(text);
}

/// The pool's requirements on its nodes, by label; the label of the pool itself is left out.
fn wanted(snapshot: &Snapshot, pool: &PoolSummary<'_>) -> BTreeMap<String, String> {
    let all = pool.pool.requirements.iter().filter(|(key, _)| *key != snapshot.names.pool);
    let text = |key: Symbol| snapshot.text(key).to_owned();
    all.map(|(key, it)| (text(key), it.describe(&snapshot.symbols, SHOWN).to_string())).collect()
}

fn limits(text: &mut String, pool: &PoolSummary<'_>) {
    if pool.limits.is_empty() {
        _ = writeln!(text, "\nLimits: none");
        return;
    }
    _ = writeln!(text, "\nLimits:");
    let mut table =
        Table::new(&[("RESOURCE", Side::Left), ("USED", Side::Right), ("LIMIT", Side::Right), ("SHARE", Side::Right)]);
    for limit in &pool.limits {
        table.row(vec![limit.resource.clone(), limit.used.clone(), limit.most.clone(), share(limit.percent)]);
    }
    table.add_to(text);
}

/// The nodes of the pool, equal ones together.
fn nodes(text: &mut String, snapshot: &Snapshot, pool: &PoolSummary<'_>) {
    if pool.nodes.is_empty() {
        return;
    }
    _ = writeln!(text, "\nNodes:");
    let mut table = Table::new(&[
        ("NODES", Side::Right),
        ("TYPE", Side::Left),
        ("ZONE", Side::Left),
        ("CAPACITY-TYPE", Side::Left),
        ("$/HOUR EACH", Side::Right),
        ("STATE", Side::Left),
    ]);
    for (cells, count) in groups(snapshot, pool) {
        table.row([vec![count.to_string()], cells].concat());
    }
    table.add_to(text);
}

fn groups(snapshot: &Snapshot, pool: &PoolSummary<'_>) -> BTreeMap<Vec<String>, usize> {
    let mut groups: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for node in pool.nodes.iter().map(|id| &snapshot.nodes[id.index()]) {
        let text = |symbol: Option<Symbol>| symbol.map_or("-", |symbol| snapshot.text(symbol)).to_owned();
        let bought = node.capacity_type.map_or("-", |bought| bought.name()).to_owned();
        let cells = vec![text(node.instance_type), text(node.zone), bought, price(node.price), state(node)];
        *groups.entry(cells).or_default() += 1;
    }
    groups
}

fn view(input: &Input, id: PoolId) -> Value {
    let snapshot = &input.snapshot;
    let standing = explain_pool(snapshot, id);
    let pool = PoolSummary::new(input, &loads(snapshot), &standing);
    let mut view = pool.view();
    view["conditions"] = json!(pool.conditions());
    view["requirements"] = json!(wanted(snapshot, &pool));
    view["disruption"] = Budgets::new(snapshot, id).view();
    view["nodes"] = pool.nodes.iter().map(|node| snapshot.nodes[node.index()].name.clone()).collect();
    view
}
