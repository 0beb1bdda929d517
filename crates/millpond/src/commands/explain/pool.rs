//! What a pool can buy, and why it may be nothing.

use std::fmt::Write as _;

use millpond_plan::explain::{PoolStanding, explain_pool};
use millpond_plan::model::{PoolId, Snapshot};
use serde_json::{Value, json};

use super::Output;
use crate::commands::format::plural;
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml};

pub(super) fn render(snapshot: &Snapshot, pool: PoolId, output: Output) -> anyhow::Result<String> {
    let standing = explain_pool(snapshot, pool);
    match output {
        Output::Table => Ok(page(snapshot, &standing)),
        Output::Json => as_json(&view(snapshot, &standing)),
        Output::Yaml => as_yaml(&view(snapshot, &standing)),
    }
}

fn message(standing: &PoolStanding) -> String {
    match (&standing.verdict, &standing.cheapest) {
        (Some(verdict), _) if standing.is_permanent => format!("can make no node: {}", verdict.message),
        (Some(verdict), _) => format!("makes no node now: {}", verdict.message),
        (None, Some(cheapest)) => {
            format!("can make nodes of {}, at least {cheapest}", plural(standing.left, "type"))
        }
        (None, None) => "can make nodes".to_owned(),
    }
}

fn page(snapshot: &Snapshot, standing: &PoolStanding) -> String {
    let mut text = String::new();
    _ = writeln!(text, "pool/{} {}", snapshot.pools[standing.pool.index()].name, message(standing));
    let mut table = Table::new(&[("REQUIREMENT", Side::Left), ("TYPES LEFT", Side::Right)]);
    table.row(vec!["all types".to_owned(), standing.types.to_string()]);
    for (key, left) in &standing.steps {
        table.row(vec![snapshot.text(*key).to_owned(), left.to_string()]);
    }
    let named = standing.steps.last().map_or(standing.types, |(_, left)| *left);
    if standing.left < named {
        table.row(vec!["previous generations only by name".to_owned(), standing.left.to_string()]);
    }
    _ = writeln!(text);
    table.add_to(&mut text);
    text
}

fn view(snapshot: &Snapshot, standing: &PoolStanding) -> Value {
    let steps: Vec<Value> =
        standing.steps.iter().map(|(key, left)| json!({ "label": snapshot.text(*key), "typesLeft": left })).collect();
    json!({
        "pool": snapshot.pools[standing.pool.index()].name,
        "message": message(standing),
        "why": standing.why(),
        "permanent": standing.is_permanent,
        "rule": standing.verdict.as_ref().map(|verdict| verdict.rule.name()),
        "types": standing.types,
        "typesLeft": standing.left,
        "requirements": steps,
        "cheapest": standing.cheapest,
    })
}
