//! The resolved dependency graph, from `cargo metadata`.

use std::collections::BTreeSet;
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
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) license: Option<String>,
    /// Its registry; `None` for crates of the workspace.
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Requirement>,
}

/// A dependency of a crate on another.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Requirement {
    pub(crate) name: String,
    pub(crate) req: String,
    pub(crate) path: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

impl Graph {
    /// Asks cargo for the graph of the given targets.
    pub(crate) fn resolve(targets: &[String]) -> Result<Self> {
        let metadata = ask_cargo(&["metadata", "--format-version=1", "--locked"])?;
        let metadata: Metadata = serde_json::from_str(&metadata).context("read cargo's metadata")?;
        let mut used = BTreeSet::new();
        for target in targets {
            used.extend(built_for(target)?);
        }
        let is_used = |package: &Package| used.contains(&(package.name.clone(), package.version.clone()));
        Ok(Self { packages: metadata.packages.into_iter().filter(is_used).collect() })
    }
}

/// Names and versions of what the workspace is built with. `cargo metadata` also has the dependencies of features that
/// nothing turns on, so `cargo tree` tells.
fn built_for(target: &str) -> Result<BTreeSet<(String, String)>> {
    let tree = ask_cargo(&[
        "tree",
        "--locked",
        "--workspace",
        "--edges=all",
        "--prefix=none",
        "--format={p}",
        "--target",
        target,
    ])?;
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some((name.to_owned(), version.to_owned()))
    };
    Ok(tree.lines().filter_map(parse).collect())
}

fn ask_cargo(args: &[&str]) -> Result<String> {
    let output = cargo().args(args).stderr(Stdio::inherit()).output().context("run cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed", args.join(" "));
    }
    String::from_utf8(output.stdout).context("read what cargo prints")
}
