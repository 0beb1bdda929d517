//! A real OpenStack Nova with its fake virt driver, on loopback: API, scheduler, conductor and a compute service in one
//! process, whose servers exist in its database alone. `tests/openstack/serve.py` is that process.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process::{Process, Waited};
use crate::real::python;
use crate::scratch::Scratch;

/// Its imports alone take seconds; a busy machine takes longer.
const READY_WITHIN: Duration = Duration::from_mins(3);
/// What the process says when it serves, before its port.
const SERVES: &str = "serves ";
/// The password that its Keystone accepts.
const PASSWORD: &str = "correct-horse";

/// A running cloud. Dropping it ends it.
#[derive(Debug)]
pub struct OpenStack {
    process: Process,
    port: u16,
    scratch: Scratch,
}

impl OpenStack {
    /// Starts a cloud whose project may have so many cores.
    pub fn start(cores: u32) -> Result<Self> {
        let programs = python::nova()?;
        let scratch = Scratch::new("openstack")?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/openstack/serve.py");
        let mut command = Command::new(programs.join("python"));
        command.arg(script).arg(PASSWORD).arg(format!("cores={cores}")).current_dir(scratch.path());
        let mut process = Process::spawn("nova", &mut command, scratch.path())?;
        if process.wait_for(READY_WITHIN, |printed| port(printed).is_some())? != Waited::Satisfied {
            bail!("Nova does not serve:\n{}", process.log_tail());
        }
        let port = port(&process.printed()).context("Nova said its port")?;
        Ok(Self { process, port, scratch })
    }

    /// A `clouds.yaml` with the cloud `mine`, with the right password or a wrong one.
    pub fn clouds_yaml(&self, is_right: bool) -> String {
        let password = if is_right { PASSWORD } else { "wrong-horse" };
        format!(
            "clouds:\n  mine:\n    region_name: one\n    auth:\n      auth_url: http://127.0.0.1:{}/identity\n      \
             username: me\n      password: {password}\n      project_name: ci\n",
            self.port
        )
    }

    /// A folder of its own for files of tests.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The last lines that it printed.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

/// The port in a whole line.
fn port(printed: &str) -> Option<u16> {
    printed.split_inclusive('\n').find_map(|line| line.strip_suffix('\n')?.strip_prefix(SERVES)?.parse().ok())
}
