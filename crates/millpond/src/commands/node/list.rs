//! `millpond node list`.

use std::cmp::Reverse;
use std::io::Write;

use clap::{Args, ValueEnum};
use millpond_api::selector::{self, LabelValues, Requirement};
use millpond_controllers::capi::autoscale::GroupNodeStanding;
use millpond_plan::disruption::node_verdicts;
use millpond_plan::model::{CPU, MEMORY, Node, NodeId, PoolId, Snapshot};
use millpond_plan::plan::Settings;
use millpond_plan::symbol::Symbol;
use millpond_view::nodes::NodeRow;
use serde_json::{Value, json};

use crate::commands::format::percent;
use crate::commands::input::Input;
use crate::commands::list_output::{self, Grid, List, ListArgs};
use crate::commands::node_groups::group_nodes;
use crate::commands::node_totals::{Load, Totals, loads};
use crate::commands::table::Side::{Left, Right};
use crate::failure::Failure;

/// Arguments of `node list`.
#[derive(Debug, Args)]
pub(crate) struct NodeListArgs {
    #[command(flatten)]
    list: ListArgs,

    /// Only nodes of these pools
    #[arg(long, value_name = "POOL", value_delimiter = ',')]
    pool: Vec<String>,

    /// Only nodes with these labels, e.g. `zone=a,!gpu`
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = selector::parse)]
    selector: Option<Selector>,

    /// The order
    #[arg(long, value_name = "BY", value_enum, default_value = "name")]
    sort: Sort,
}

/// What keeps a node of a node group, for scripts.
pub(crate) const NODE_GROUP: &str = "NodeGroup";

/// What is selected by.
type Selector = Vec<Requirement>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By name
    Name,
    /// The dearest first
    Price,
    /// The oldest first
    Age,
    /// The least used first
    Cpu,
    /// The least used first
    Memory,
}

pub(super) fn run(args: &NodeListArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    list_output::run(&args.list, out, messages, |input| nodes(args, input))
}

/// The nodes that were asked for.
fn nodes(args: &NodeListArgs, input: &Input) -> anyhow::Result<Nodes> {
    let snapshot = &input.snapshot;
    let pools = args.pool.iter().map(|name| find_pool(snapshot, name)).collect::<Result<Vec<_>, _>>()?;
    let loads = loads(snapshot);
    let wanted = |id: &NodeId| {
        let node = &snapshot.nodes[id.index()];
        let of_pool = pools.is_empty() || node.pool.is_some_and(|pool| pools.contains(&pool));
        let selected = args.selector.as_ref().is_none_or(|selector| selects(selector, node, snapshot));
        of_pool && selected
    };
    let mut ids: Vec<NodeId> = (0..snapshot.nodes.len()).map(NodeId::from).filter(wanted).collect();
    sort(&mut ids, args.sort, snapshot, &loads);
    let verdicts = node_verdicts(snapshot, &Settings { consolidate: true, ..Settings::default() });
    let groups = group_nodes(input);
    let row = |id: &NodeId| {
        let row = NodeRow::new(snapshot, &verdicts, *id, &loads[id.index()]);
        in_group(row, groups.get(&snapshot.nodes[id.index()].name))
    };
    let rows = ids.iter().map(row).collect();
    Ok(Nodes { rows, sum: Totals::of(snapshot, &loads, ids) })
}

fn find_pool(snapshot: &Snapshot, name: &str) -> Result<PoolId, Failure> {
    snapshot.find_pool(name).ok_or_else(|| crate::commands::pool::missing(snapshot, name))
}

fn selects(selector: &[Requirement], node: &Node, snapshot: &Snapshot) -> bool {
    let text = |symbol: Symbol| snapshot.text(symbol).to_owned();
    let labels: LabelValues = node.labels.iter().map(|(key, value)| (text(key), vec![text(value)])).collect();
    selector.iter().all(|requirement| requirement.matches(&labels))
}

fn sort(ids: &mut [NodeId], by: Sort, snapshot: &Snapshot, loads: &[Load]) {
    let node = |id: &NodeId| &snapshot.nodes[id.index()];
    let used =
        |id: &NodeId, resource| percent(loads[id.index()].requests.get(resource), node(id).allocatable.get(resource));
    match by {
        // The nodes are sorted by name already.
        Sort::Name => {}
        Sort::Price => ids.sort_by_key(|id| Reverse(node(id).price)),
        Sort::Age => ids.sort_by_key(|id| node(id).created),
        Sort::Cpu => ids.sort_by_key(|id| used(id, CPU)),
        Sort::Memory => ids.sort_by_key(|id| used(id, MEMORY)),
    }
}

/// Nodes and what they add up to.
struct Nodes {
    rows: Vec<NodeRow>,
    sum: Totals,
}

/// A row of a node of a node group, which the rules of the group keep or remove.
fn in_group(mut row: NodeRow, standing: Option<&GroupNodeStanding>) -> NodeRow {
    if let Some(standing) = standing {
        row.is_disruptable = standing.is_unneeded;
        row.why.clone_from(&standing.why);
        row.blocker = (!standing.is_unneeded).then_some(NODE_GROUP);
    }
    row
}

impl List for Nodes {
    fn grid(&self, wide: bool) -> Grid {
        let mut columns = vec![
            ("NAME", Left),
            ("POOL", Left),
            ("TYPE", Left),
            ("ZONE", Left),
            ("CAPACITY-TYPE", Left),
            ("$/HOUR", Right),
            ("AGE", Right),
        ];
        if wide {
            columns.extend([("CPU", Right), ("MEMORY", Right)]);
        }
        columns.extend([("CPU%", Right), ("MEM%", Right), ("PODS", Right), ("STATE", Left), ("WHY", Left)]);
        let rows = self.rows.iter().map(|row| row.cells(wide)).collect();
        Grid { columns, rows, age: "AGE", state: "STATE", footer: self.sum.line() }
    }

    fn view(&self) -> Value {
        let items: Vec<Value> = self.rows.iter().map(NodeRow::view).collect();
        json!({ "items": items, "total": self.sum.view() })
    }

    fn names(&self) -> Vec<String> {
        self.rows.iter().map(|row| format!("node/{}", row.name)).collect()
    }
}
