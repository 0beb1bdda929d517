//! Nodepool, Zuul and others as they come from PyPI, each in a virtual environment of the cache: what Millpond is compared
//! with, and the other side of its protocols.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::debian::{is_done, run};
use super::{Parts, lock_cache};

/// The last release, a dependency that it forgets to name, and the client of ZooKeeper that it uses.
const NODEPOOL: &[&str] = &["nodepool==11.0.0", "cachetools", "kazoo"];

/// Zuul, whose scheduler requests nodes, and the tracing that its requests carry.
const ZUUL: &[&str] = &["zuul==14.3.0", "opentelemetry-sdk"];

/// Nova with its fixtures of functional tests, and what these need. SQLAlchemy from 2.1 on leaves servers in BUILD.
const NOVA: &[&str] = &[
    "nova==34.0.0",
    "openstack-placement==16.0.0",
    "wsgi-intercept",
    "SQLAlchemy<2.1",
    "fixtures",
    "testtools",
    "oslotest",
];

/// The engine that runs playbooks, alone.
const ANSIBLE: &[&str] = &["ansible-core==2.19.14"];

/// The folder of programs of an environment with Nodepool; makes it where it is missing, which takes a minute.
pub fn nodepool() -> Result<PathBuf> {
    environment("nodepool", "nodepool-11.0.0-venv", NODEPOOL)
}

/// The folder of programs of an environment with Zuul; makes it where it is missing, which takes minutes.
pub fn zuul() -> Result<PathBuf> {
    environment("zuul", "zuul-14.3.0-venv", ZUUL)
}

/// The folder of programs of an environment with OpenStack Nova; makes it where it is missing, which takes minutes.
pub fn nova() -> Result<PathBuf> {
    environment("nova", "nova-34.0.0-venv", NOVA)
}

/// The folder of programs of an environment with ansible-core; makes it where it is missing.
pub fn ansible() -> Result<PathBuf> {
    environment("ansible", "ansible-core-2.19.14-venv", ANSIBLE)
}

fn environment(name: &str, folder: &str, packages: &[&str]) -> Result<PathBuf> {
    let parts = Parts::locate()?;
    // An environment cannot be moved: it is made where it stays, and marked once it is whole.
    let folder = parts.cache.join(folder);
    let programs = folder.join("bin");
    let _lock = lock_cache(&parts.cache, name)?;
    if is_done(&folder) {
        return Ok(programs);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), "hint: `apt-get install python3-venv`")?;
    run(
        Command::new(programs.join("pip")).args(["install", "--quiet", "--disable-pip-version-check"]).args(packages),
        &format!("hint: {name} comes from PyPI"),
    )?;
    std::fs::write(folder.join(".done"), "").context("mark the environment")?;
    Ok(programs)
}
