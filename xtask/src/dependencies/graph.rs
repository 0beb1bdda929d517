//! The resolved dependency graph, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::cargo::cargo;

/// Every crate that a build for one of the wanted targets uses.
pub(crate) struct Graph {
    pub(crate) packages: Vec<Package>,
}

/// One crate of the graph.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) license: Option<String>,
    /// Where it comes from; crates of the workspace have none.
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Requirement>,
}

/// What a crate asks of another.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Requirement {
    pub(crate) name: String,
    pub(crate) req: String,
    pub(crate) path: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    /// The ids of what it is built with.
    dependencies: Vec<String>,
}

impl Graph {
    /// Asks cargo for the graph of the given targets.
    pub(crate) fn resolve(targets: &[String]) -> Result<Self> {
        let mut command = cargo();
        command.args(["metadata", "--format-version=1", "--locked"]);
        for target in targets {
            command.args(["--filter-platform", target]);
        }
        let output = command.stderr(Stdio::inherit()).output().context("run cargo")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed");
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout).context("read cargo's metadata")?;
        let used = metadata.reachable();
        let packages = metadata.packages.iter().filter(|package| used.contains(package.id.as_str())).cloned().collect();
        Ok(Self { packages })
    }
}

impl Metadata {
    /// What the workspace is built with. cargo also resolves dependencies of features that nothing turns on.
    fn reachable(&self) -> BTreeSet<&str> {
        let dependencies: BTreeMap<&str, &[String]> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node.dependencies.as_slice())).collect();
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = self.workspace_members.iter().map(String::as_str).collect();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(dependencies.get(id).into_iter().flat_map(|ids| ids.iter().map(String::as_str)));
            }
        }
        reached
    }
}
