//! `millpond up`, from the built binary.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result};

use crate::kubeconfig::Access;
use crate::probe;
use crate::process::{Process, free_port};
use crate::scratch::Scratch;

/// A running `millpond up`. Dropping it kills it.
#[derive(Debug)]
pub struct EmbeddedServer {
    process: Process,
    access: Access,
    binary: PathBuf,
    args: Vec<OsString>,
    port: u16,
    // After the process, which writes into it.
    scratch: Scratch,
}

impl EmbeddedServer {
    /// Runs `BINARY up --data-dir D --port P ARGS` with a new folder and a free
    /// port, and waits until the API is ready.
    pub fn start(binary: &Path, args: &[impl AsRef<OsStr>]) -> Result<Self> {
        let scratch = Scratch::new("embedded")?;
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        let port = free_port()?;
        let (process, access) = launch(binary, &args, port, scratch.path())?;
        Ok(Self { process, access, binary: binary.to_owned(), args, port, scratch })
    }

    /// Starts it again, after [`stop`](Self::stop) or [`kill`](Self::kill), on
    /// the same folder and port.
    pub fn restart(&mut self) -> Result<()> {
        (self.process, self.access) = launch(&self.binary, &self.args, self.port, self.scratch.path())?;
        Ok(())
    }

    /// SIGTERM, and after a while SIGKILL.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.process.stop()
    }

    /// SIGKILL: what is not on the disk now is lost.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.process.kill()
    }

    /// The kubeconfig that the server wrote.
    pub fn kubeconfig(&self) -> PathBuf {
        data_folder(self.scratch.path()).join("kubeconfig")
    }

    /// The path of its data folder.
    pub fn data_folder(&self) -> PathBuf {
        data_folder(self.scratch.path())
    }

    /// The folder above the data: logs, and room for a test's own files.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Address and credentials.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The process, e.g. to read the memory that it takes.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// A client, as an administrator.
    #[cfg(feature = "client")]
    pub async fn client(&self) -> Result<kube::Client> {
        crate::kubeconfig::client(&self.kubeconfig()).await
    }
}

fn data_folder(scratch: &Path) -> PathBuf {
    scratch.join("data")
}

fn launch(binary: &Path, args: &[OsString], port: u16, scratch: &Path) -> Result<(Process, Access)> {
    let data = data_folder(scratch);
    let mut command = Command::new(binary);
    command.arg("up").arg("--data-dir").arg(&data).args(["--port", &port.to_string()]).args(args);
    let mut process = Process::spawn("millpond", &mut command, scratch)?;
    let kubeconfig = data.join("kubeconfig");
    let access = probe::wait_ready(|| Access::read(&kubeconfig), std::slice::from_mut(&mut process))
        .context("start `millpond up`")?;
    Ok((process, access))
}
