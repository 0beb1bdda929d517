//! Why a pod is where it is, or nowhere.

use std::fmt::Write as _;

use millpond_plan::explain::{PodExplanation, PoolExplanation, Standing};
use millpond_plan::model::{PodId, Snapshot};
use millpond_plan::plan::Settings;
use millpond_view::explain::{about, view};

use super::Output;
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml};

pub(super) fn render(snapshot: &Snapshot, pod: PodId, output: Output) -> anyhow::Result<String> {
    let outcome = millpond_plan::plan(snapshot, &Settings::default());
    let explained = millpond_plan::explain::explain_in(snapshot, &outcome, pod);
    match output {
        Output::Table => Ok(page(snapshot, &explained)),
        Output::Json => as_json(&view(snapshot, &explained)),
        Output::Yaml => as_yaml(&view(snapshot, &explained)),
    }
}

fn page(snapshot: &Snapshot, explained: &PodExplanation) -> String {
    let mut text = String::new();
    _ = writeln!(text, "pod/{}: {}", snapshot.pod_name(explained.pod), explained.message);
    if !explained.nodes.is_empty() || explained.closed_nodes > 0 {
        _ = writeln!(text, "\nNodes that are there and do not take it:");
        let mut table = Table::new(&[("NODES", Side::Right), ("RULE", Side::Left)]);
        for (rule, nodes) in &explained.nodes {
            table.row(vec![nodes.to_string(), rule.name().to_owned()]);
        }
        if explained.closed_nodes > 0 {
            table.row(vec![explained.closed_nodes.to_string(), "closed to new pods".to_owned()]);
        }
        table.add_to(&mut text);
    }
    if explained.standing == Standing::Unplaced {
        for pool in &explained.pools {
            of_pool(&mut text, snapshot, pool);
        }
    }
    if let Some(nearest) = &explained.nearest {
        _ = writeln!(text, "\nNearest miss: {}", nearest.message);
    }
    if let Some(suggestion) = &explained.suggestion {
        _ = writeln!(text, "\nWhat would help (tried by planning again): {}", suggestion.message);
    }
    text
}

fn of_pool(text: &mut String, snapshot: &Snapshot, pool: &PoolExplanation) {
    let name = &snapshot.pools[pool.pool.index()].name;
    let why = pool.verdict.as_ref().map_or("could take it", |verdict| verdict.message.as_str());
    _ = writeln!(text, "\npool/{name}: {why}");
    let mut table = Table::new(&[
        ("RULE", Side::Left),
        ("ABOUT", Side::Left),
        ("TYPES OUT", Side::Right),
        ("TYPES LEFT", Side::Right),
        ("OFFERS LEFT", Side::Right),
    ]);
    table.row(vec!["all types".to_owned(), String::new(), String::new(), pool.types.to_string(), String::new()]);
    for step in &pool.steps {
        table.row(vec![
            step.rule.name().to_owned(),
            about(snapshot, step),
            step.types_removed.to_string(),
            step.types_left.to_string(),
            step.offers_left.to_string(),
        ]);
    }
    table.add_to(text);
}
