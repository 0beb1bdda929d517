//! `millpond pool list`.

use std::io::Write;

use clap::Args;
use millpond_plan::explain::explain_pools;
use millpond_plan::model::NodeId;
use serde_json::{Value, json};

use super::budgets::policy;
use super::cluster_api;
use super::summary::PoolSummary;
use crate::commands::format::{amount, memory, span};
use crate::commands::input::Input;
use crate::commands::list_output::{self, Grid, List, ListArgs};
use crate::commands::node_totals::{Totals, loads, share};
use crate::commands::table::Side::{Left, Right};

/// Arguments of `pool list`.
#[derive(Debug, Args)]
pub(crate) struct PoolListArgs {
    /// A Cluster API cluster: its node pools; without it, pools of this cluster
    #[arg(value_name = "CLUSTER")]
    cluster: Option<String>,

    /// The namespace of that cluster
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    namespace: String,

    #[command(flatten)]
    list: ListArgs,
}

pub(super) fn run(args: &PoolListArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    if let Some(cluster) = &args.cluster {
        return cluster_api::list(cluster, &args.namespace, &args.list, out);
    }
    list_output::run(&args.list, out, messages, |input| Ok(pools(input)))
}

/// Pools as rows, and what all nodes of theirs add up to.
struct Pools {
    /// The cells of each pool, those of `-o wide` too.
    rows: Vec<(Vec<String>, Vec<String>)>,
    /// Why each can make no node now.
    whys: Vec<String>,
    items: Vec<Value>,
    names: Vec<String>,
    sum: Totals,
}

fn pools(input: &Input) -> Pools {
    let snapshot = &input.snapshot;
    let loads = loads(snapshot);
    let standings = explain_pools(snapshot);
    let facts: Vec<PoolSummary<'_>> =
        standings.iter().map(|standing| PoolSummary::new(input, &loads, standing)).collect();
    let of_pools = facts.iter().flat_map(|pool| pool.nodes.iter().copied());
    Pools {
        rows: facts.iter().map(|pool| (cells(pool), more_cells(pool))).collect(),
        whys: facts.iter().map(|pool| pool.why_no_node().unwrap_or("-").to_owned()).collect(),
        items: facts.iter().map(PoolSummary::view).collect(),
        names: facts.iter().map(|pool| format!("nodepool/{}", pool.pool.name)).collect(),
        sum: Totals::of(snapshot, &loads, of_pools.collect::<Vec<NodeId>>()),
    }
}

fn cells(pool: &PoolSummary<'_>) -> Vec<String> {
    let used =
        pool.tightest().map_or_else(|| "-".to_owned(), |limit| format!("{} {}", share(limit.percent), limit.resource));
    vec![
        pool.pool.name.clone(),
        pool.class().unwrap_or("-").to_owned(),
        pool.pool.weight.to_string(),
        match pool.pool.replicas {
            Some(replicas) => format!("{}/{replicas}", pool.sum.nodes),
            None => pool.sum.nodes.to_string(),
        },
        pool.ready().to_owned(),
        amount("cpu", pool.cpu()),
        memory(pool.memory()),
        format!("{:.4}", pool.sum.dollars()),
        used,
        pool.age().map_or_else(|| "?".to_owned(), span),
    ]
}

fn more_cells(pool: &PoolSummary<'_>) -> Vec<String> {
    vec![
        share(pool.sum.cpu_percent()),
        share(pool.sum.memory_percent()),
        pool.sum.pods.to_string(),
        policy(&pool.pool.disruption).to_owned(),
    ]
}

impl List for Pools {
    fn grid(&self, wide: bool) -> Grid {
        let mut columns = vec![
            ("NAME", Left),
            ("CLASS", Left),
            ("WEIGHT", Right),
            ("NODES", Right),
            ("READY", Left),
            ("CPU", Right),
            ("MEMORY", Right),
            ("$/HOUR", Right),
            ("LIMIT-USED", Left),
            ("AGE", Right),
        ];
        if wide {
            columns.extend([("CPU%", Right), ("MEM%", Right), ("PODS", Right), ("CONSOLIDATION", Left)]);
        }
        let row =
            |(cells, more): &(Vec<String>, Vec<String>)| if wide { [&cells[..], more].concat() } else { cells.clone() };
        let mut rows: Vec<Vec<String>> = self.rows.iter().map(row).collect();
        // Where all is well there is nothing to explain.
        if self.whys.iter().any(|why| why != "-") {
            columns.push(("WHY NO NEW NODE", Left));
            rows.iter_mut().zip(&self.whys).for_each(|(row, why)| row.push(why.clone()));
        }
        Grid { columns, rows, age: "AGE", state: "READY", footer: self.sum.line() }
    }

    fn view(&self) -> Value {
        json!({ "items": self.items, "total": self.sum.view() })
    }

    fn names(&self) -> Vec<String> {
        self.names.clone()
    }
}
