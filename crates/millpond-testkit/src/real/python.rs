//! Nodepool as it comes from PyPI, in a virtual environment of the cache: what Millpond is compared with, and the other
//! side of its protocol.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::debian::{is_done, run};
use super::{Parts, lock_cache};

/// The last release, a dependency that it forgets to name, and the client of ZooKeeper that it uses.
const NODEPOOL: &[&str] = &["nodepool==11.0.0", "cachetools", "kazoo"];

/// The folder of programs of an environment with Nodepool; makes it where it is missing, which takes a minute.
pub fn nodepool() -> Result<PathBuf> {
    let parts = Parts::locate()?;
    // An environment cannot be moved: it is made where it stays, and marked once it is whole.
    let folder = parts.cache.join("nodepool-11.0.0-venv");
    let programs = folder.join("bin");
    let _lock = lock_cache(&parts.cache, "nodepool")?;
    if is_done(&folder) {
        return Ok(programs);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), "hint: `apt-get install python3-venv`")?;
    run(
        Command::new(programs.join("pip")).args(["install", "--quiet", "--disable-pip-version-check"]).args(NODEPOOL),
        "hint: Nodepool comes from PyPI",
    )?;
    std::fs::write(folder.join(".done"), "").context("mark the environment")?;
    Ok(programs)
}
