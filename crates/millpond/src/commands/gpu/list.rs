//! `millpond gpu list`.

use std::io::Write;

use clap::{Args, ValueEnum};
use millpond_gpu::list::{Item, items};
use serde_json::json;

use super::ClusterArgs;
use super::read::runtime;
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml, print};

/// Arguments of `gpu list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people
    Table,
    /// One object
    Json,
    /// The same as YAML
    Yaml,
}

pub(super) fn run(args: &ListArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let (_, estate) = runtime()?.block_on(args.cluster.open(messages))?;
    let items = items(&estate);
    match args.output {
        Output::Table => print(out, &page(&items)),
        Output::Json => print(out, &as_json(&json!({"items": items}))?),
        Output::Yaml => print(out, &as_yaml(&json!({"items": items}))?),
    }
}

fn page(items: &[Item]) -> String {
    let (left, right) = (Side::Left, Side::Right);
    let mut table = Table::new(&[
        ("NODE", left),
        ("HOST", left),
        ("MODEL", left),
        ("ID", left),
        ("MEMORY", right),
        ("GPUS", right),
        ("FREE", right),
        ("HOURS", right),
        ("UNTIL", left),
    ]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for item in items {
        let hours = if item.assumed { format!("~{}", item.available_hours) } else { item.available_hours.to_string() };
        table.row(vec![
            or_dash(&item.node),
            or_dash(&item.host),
            or_dash(&item.model),
            or_dash(&item.id),
            item.memory_mib.map_or_else(|| "-".to_owned(), |memory| format!("{} GiB", memory >> 10)),
            item.gpus.to_string(),
            item.free.to_string(),
            hours,
            item.until.map_or_else(|| "-".to_owned(), |until| until.to_string()),
        ]);
    }
    let sum = |of: fn(&Item) -> u64, nodes: bool| -> u64 {
        items.iter().filter(|item| item.node.is_some() == nodes).map(of).sum()
    };
    let (gpus, free, spare) = (sum(|item| item.gpus, true), sum(|item| item.free, true), sum(|item| item.gpus, false));
    let spare = if spare > 0 { format!(", {spare} spare cards") } else { String::new() };
    format!("{}\n\n{gpus} GPUs, {free} free{spare}\n", table.text())
}
