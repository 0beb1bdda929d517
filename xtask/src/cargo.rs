//! Calling cargo.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::tree;

/// Variables by which `cargo run` tells xtask about itself. Build scripts that
/// look at them (ring's does) would run again, and all that depends on them
/// would be compiled again, whenever a person's own cargo takes turns with this
/// one.
const ABOUT_XTASK: &[&str] = &["CARGO_BIN_", "CARGO_CRATE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_"];

/// cargo, at the root of the tree.
pub(crate) fn cargo() -> Command {
    // The cargo that runs this task, so that `cargo +toolchain xtask` holds.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(tree::root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| ABOUT_XTASK.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command
}

/// Builds the `millpond` binary and tells where it is.
pub(crate) fn build_millpond(release: bool) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--locked", "--package=millpond", "--message-format=json-render-diagnostics"]);
    if release {
        command.arg("--release");
    }
    let output = command.stderr(Stdio::inherit()).output().context("run cargo")?;
    if !output.status.success() {
        bail!("`millpond` does not build");
    }
    let messages = String::from_utf8(output.stdout).context("read cargo's messages")?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo built no binary of `millpond`")
}

/// The given binary, or the one that is built.
pub(crate) fn millpond(given: Option<&Path>, release: bool) -> Result<PathBuf> {
    match given {
        // Processes run in folders of their own.
        Some(file) => file.canonicalize().with_context(|| format!("find `{}`", file.display())),
        None => build_millpond(release),
    }
}

/// The crates of the workspace.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

/// One crate of the workspace.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// An arrow from a crate to another.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Only crates of the workspace have one.
    pub(crate) path: Option<PathBuf>,
    /// `dev`, `build`, or nothing for a normal dependency.
    pub(crate) kind: Option<String>,
}

/// What rustc is called for: a library, a binary, a test.
#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) src_path: PathBuf,
}

/// Reads the workspace, without its foreign dependencies.
pub(crate) fn metadata() -> Result<Metadata> {
    let output = cargo()
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed");
    }
    serde_json::from_slice(&output.stdout).context("read cargo's metadata")
}
