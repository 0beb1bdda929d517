//! `cargo xtask dependencies`: the rules of `deny.toml`, checked on the resolved dependency graph.
//!
//! cargo-deny takes longer to compile than the whole workspace, so the test command checks the same rules here: banned
//! crates, duplicate versions, wildcard requirements, licences and sources. `deny.toml` stays the only place that
//! states them, and `cargo deny check` still reads it. Advisories need a download and stay with cargo-deny.

mod graph;
mod rules;

use anyhow::{Context as _, Result, bail};

use self::graph::Graph;
use self::rules::Rules;
use crate::tree;

/// Checks the graph against the rules; gives a summary for the test command.
pub(crate) fn run() -> Result<String> {
    let text = std::fs::read_to_string(tree::root().join("deny.toml")).context("read `deny.toml`")?;
    let rules: Rules = toml::from_str(&text).context("parse `deny.toml`")?;
    let graph = Graph::resolve(&rules.graph.targets)?;
    let findings = rules.check(&graph)?;
    if findings.is_empty() {
        return Ok(format!("{} crates", graph.packages.len()));
    }
    for finding in &findings {
        println!("{finding}");
    }
    bail!("{} dependencies break a rule of `deny.toml`", findings.len())
}
