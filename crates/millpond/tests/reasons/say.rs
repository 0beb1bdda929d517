//! The binary as a user calls it, with its answers as JSON.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Commands about one cluster.
pub(crate) struct Commands {
    kubeconfig: PathBuf,
}

impl Commands {
    pub(crate) fn new(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig }
    }

    /// Runs a command that succeeds.
    pub(crate) fn json(&self, words: &[&str]) -> Result<Value> {
        let output = Command::new(env!("CARGO_BIN_EXE_millpond"))
            .args(words)
            .args(["-o", "json", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .output()
            .context("the binary runs")?;
        let messages = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {messages}");
        serde_json::from_slice(&output.stdout).with_context(|| format!("{words:?}: {messages}"))
    }
}
