//! Why a node stays, or goes.

use std::fmt::Write as _;

use millpond_controllers::capi::autoscale::GroupNodeStanding;
use millpond_plan::disruption::{DisruptionBlocker, NodeVerdict, node_verdict};
use millpond_plan::model::{NodeId, Snapshot};
use millpond_plan::plan::{Removal, Settings};
use millpond_plan::symbol::Symbol;
use serde_json::{Value, json};

use super::Output;
use crate::commands::format::plural;
use crate::commands::input::Input;
use crate::commands::node::NODE_GROUP;
use crate::commands::node_groups::group_nodes;
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml};

pub(super) fn render(input: &Input, node: NodeId, output: Output) -> anyhow::Result<String> {
    let snapshot = &input.snapshot;
    if let Some(standing) = group_nodes(input).get(&snapshot.nodes[node.index()].name) {
        return of_group(snapshot, node, standing, output);
    }
    let verdict = node_verdict(snapshot, node, &Settings { consolidate: true, ..Settings::default() });
    match output {
        Output::Table => Ok(page(snapshot, node, &verdict)),
        Output::Json => as_json(&view(snapshot, node, &verdict)),
        Output::Yaml => as_yaml(&view(snapshot, node, &verdict)),
    }
}

/// A node of a node group, which goes by the rules of the cluster-autoscaler.
fn of_group(snapshot: &Snapshot, node: NodeId, standing: &GroupNodeStanding, output: Output) -> anyhow::Result<String> {
    let name = &snapshot.nodes[node.index()].name;
    let verb = if standing.is_unneeded { "goes" } else { "stays" };
    let view = json!({
        "node": name,
        "disruptable": standing.is_unneeded,
        "message": format!("it {verb}: {}", standing.why),
        "why": standing.why,
        "blocker": (!standing.is_unneeded).then_some(NODE_GROUP),
    });
    match output {
        Output::Table => {
            let mut text = format!("node/{name} {verb}: {}\n", standing.why);
            facts(&mut text, snapshot, node);
            Ok(text)
        }
        Output::Json => as_json(&view),
        Output::Yaml => as_yaml(&view),
    }
}

fn page(snapshot: &Snapshot, node: NodeId, verdict: &NodeVerdict) -> String {
    let there = &snapshot.nodes[node.index()];
    let mut text = String::new();
    let verb = if verdict.is_disruptable() { "goes" } else { "stays" };
    _ = writeln!(text, "node/{} {verb}: {}", there.name, verdict.why(snapshot));
    facts(&mut text, snapshot, node);
    match &verdict.removal {
        Some(removal) => going(&mut text, snapshot, node, verdict, removal),
        None if verdict.is_disruptable() => {}
        None => staying(&mut text, snapshot, verdict),
    }
    text
}

/// What it is and what it costs.
fn facts(text: &mut String, snapshot: &Snapshot, node: NodeId) {
    let there = &snapshot.nodes[node.index()];
    let pods = snapshot.pods.iter().filter(|pod| pod.node == Some(node)).count();
    let of = |symbol: Option<Symbol>| symbol.map_or("?", |symbol| snapshot.text(symbol));
    let pool = there.pool.map_or("no pool", |pool| &snapshot.pools[pool.index()].name);
    let price = there.price.map_or_else(|| "?".to_owned(), |price| format!("${:.4} per hour", price as f64 / 1e9));
    _ = writeln!(text, "  {pool}, {} in {}, {price}, {}", of(there.instance_type), of(there.zone), plural(pods, "pod"));
}

fn going(text: &mut String, snapshot: &Snapshot, node: NodeId, verdict: &NodeVerdict, removal: &Removal) {
    let moved = moved(snapshot, node, verdict).len();
    let moves = format!("{} {}", plural(moved, "pod"), if moved == 1 { "moves" } else { "move" });
    let new = replacements(snapshot, verdict, removal);
    let instead = match &new[..] {
        [] => String::new(),
        [one] => format!(" when {one} is ready"),
        several => format!(" when {} are ready", several.join(", ")),
    };
    let saved = removal.savings as f64 / 1e9;
    _ = writeln!(text, "  {}: {moves}{instead}; that saves ${saved:.4} per hour", removal.reason.name());
}

/// Every reason for which nodes are taken away, and what is in its way before the pods are looked at.
fn staying(text: &mut String, snapshot: &Snapshot, verdict: &NodeVerdict) {
    let mut table = Table::new(&[("REASON TO GO", Side::Left), ("IN ITS WAY", Side::Left)]);
    for (reason, allowed) in &verdict.reasons {
        let why = allowed.as_ref().err().map_or_else(|| "-".to_owned(), |blocker| blocker.sentence(snapshot));
        table.row(vec![reason.name().to_owned(), why]);
    }
    _ = writeln!(text);
    table.add_to(text);
}

/// Names of the pods of a node that get another one.
fn moved(snapshot: &Snapshot, node: NodeId, verdict: &NodeVerdict) -> Vec<String> {
    let placed = verdict.outcome.plan.placements.iter();
    let here = placed.filter(|(pod, _)| snapshot.pods[pod.index()].node == Some(node));
    here.map(|(pod, _)| snapshot.pod_name(*pod)).collect()
}

fn replacements(snapshot: &Snapshot, verdict: &NodeVerdict, removal: &Removal) -> Vec<String> {
    removal.replacements.iter().map(|&new| verdict.outcome.plan.node_name(snapshot, new as usize)).collect()
}

fn view(snapshot: &Snapshot, node: NodeId, verdict: &NodeVerdict) -> Value {
    let reasons: Vec<Value> = verdict
        .reasons
        .iter()
        .map(|(reason, allowed)| {
            let blocker = allowed.as_ref().err();
            json!({
                "reason": reason.name(),
                "blocker": blocker.map(DisruptionBlocker::name),
                "message": blocker.map(|blocker| blocker.sentence(snapshot)),
            })
        })
        .collect();
    let removal = verdict.removal.as_ref().map(|removal| {
        let nodes: Vec<&str> = removal.nodes.iter().map(|node| &*snapshot.nodes[node.index()].name).collect();
        json!({
            "reason": removal.reason.name(),
            "nodes": nodes,
            "pods": moved(snapshot, node, verdict),
            "replacements": replacements(snapshot, verdict, removal),
            "savingsPerHour": removal.savings as f64 / 1e9,
        })
    });
    let opens = verdict.not_before().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    json!({
        "node": snapshot.nodes[node.index()].name,
        "disruptable": verdict.is_disruptable(),
        "message": verdict.sentence(snapshot),
        "why": verdict.why(snapshot),
        "blocker": verdict.blocker.as_ref().map(DisruptionBlocker::name),
        "notBefore": opens.map(|time| time.to_string()),
        "reasons": reasons,
        "removal": removal,
    })
}
