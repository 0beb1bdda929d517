//! kubectl, configured for one server.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process::without_proxies;
use crate::real::{Part, Parts};

/// Runs kubectl against one server.
#[derive(Clone, Debug)]
pub struct Kubectl {
    binary: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// `folder` holds kubectl's discovery cache, which it keeps per address: a
    /// folder per server keeps what one test learnt from the next.
    pub fn new(parts: &Parts, kubeconfig: &Path, folder: &Path) -> Result<Self> {
        Ok(Self {
            binary: parts.path(&Part::KUBECTL)?,
            kubeconfig: kubeconfig.to_owned(),
            cache: folder.join("kubectl-cache"),
        })
    }

    /// A command without arguments, for the caller to fill in and run.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        without_proxies(&mut command)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
            // A person's own preferences must not decide a test.
            .env("KUBERC", "off")
            .stdin(Stdio::null());
        command
    }

    /// Runs to the end; gives what was printed, or an error with what kubectl
    /// complained about.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        self.run_with_input(args, "")
    }

    /// The same, with something on stdin (`-f -`).
    pub fn run_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        let mut child = self
            .command()
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl has no stdin")?;
        let input = input.to_owned();
        // Beside the reading: kubectl may print before it has read all.
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().context("wait for kubectl")?;
        // A kubectl that does not read its input closes it; its answer counts.
        let _ = writer.join();
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("read what kubectl printed")
    }
}
