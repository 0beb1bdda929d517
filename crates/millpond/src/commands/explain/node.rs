//! Why a node stays, or goes.

use std::fmt::Write as _;

use millpond_plan::disruption::{Consolidated, consolidate};
use millpond_plan::market::Market;
use millpond_plan::model::{NodeId, NodeState, Snapshot};
use millpond_plan::plan::{Removal, Settings};
use serde_json::json;

use super::Output;
use crate::commands::{as_json, as_yaml};

pub(super) fn render(snapshot: &Snapshot, node: NodeId, output: Output) -> anyhow::Result<String> {
    let market = Market::new(snapshot);
    let settings = Settings::default();
    let outcome = millpond_plan::plan_on(snapshot, &market, &settings);
    let consolidated = consolidate(snapshot, &market, outcome, &settings);
    let said = said(snapshot, node, &consolidated);
    let view = || json!({ "node": snapshot.nodes[node.index()].name, "goes": said.goes, "message": said.why });
    match output {
        Output::Table => Ok(page(snapshot, node, &said)),
        Output::Json => as_json(&view()),
        Output::Yaml => as_yaml(&view()),
    }
}

struct Said {
    goes: bool,
    why: String,
}

fn said(snapshot: &Snapshot, node: NodeId, consolidated: &Consolidated) -> Said {
    if snapshot.nodes[node.index()].state == NodeState::Leaving {
        return Said { goes: true, why: "it is being removed already".to_owned() };
    }
    let plan = &consolidated.outcome.plan;
    if let Some(removal) = plan.removals.iter().find(|removal| removal.nodes.contains(&node)) {
        return Said { goes: true, why: going(snapshot, node, removal, consolidated) };
    }
    let why = consolidated.kept[node.index()].as_ref();
    Said {
        goes: false,
        why: why.map_or_else(|| "nothing is gained by removing it".to_owned(), |why| why.sentence(snapshot)),
    }
}

fn going(snapshot: &Snapshot, node: NodeId, removal: &Removal, consolidated: &Consolidated) -> String {
    let plan = &consolidated.outcome.plan;
    let moved = plan.placements.iter().filter(|(pod, _)| snapshot.pods[pod.index()].node == Some(node)).count();
    let by: Vec<String> = removal.replacements.iter().map(|&new| plan.node_name(snapshot, new as usize)).collect();
    let with = removal.nodes.len() - 1;
    let together = if with == 0 { String::new() } else { format!(", together with {with} other nodes") };
    let replaced = if by.is_empty() { String::new() } else { format!(", replaced by {}", by.join(", ")) };
    let saved = removal.savings as f64 / 1e9;
    format!("{}: {moved} pods move{together}{replaced}; that saves ${saved:.4} per hour", removal.reason.name())
}

fn page(snapshot: &Snapshot, node: NodeId, said: &Said) -> String {
    let there = &snapshot.nodes[node.index()];
    let mut text = String::new();
    let verb = if said.goes { "goes" } else { "stays" };
    _ = writeln!(text, "node/{} {verb}: {}", there.name, said.why);
    let pods = snapshot.pods.iter().filter(|pod| pod.node == Some(node)).count();
    let of = |symbol: Option<millpond_plan::symbol::Symbol>| symbol.map_or("?", |symbol| snapshot.text(symbol));
    let pool = there.pool.map_or("no pool", |pool| &snapshot.pools[pool.index()].name);
    let price = there.price.map_or_else(|| "?".to_owned(), |price| format!("${:.4} per hour", price as f64 / 1e9));
    _ = writeln!(text, "  {pool}, {} in {}, {price}, {pods} pods", of(there.instance_type), of(there.zone));
    text
}
