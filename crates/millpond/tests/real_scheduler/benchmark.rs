//! Karpenter's benchmark as scenarios, from what `millpond bench karpenter --save` writes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::scenario::Scenario;

/// Pods in all; a fifth in each group.
const PODS: usize = 200;

/// The groups in the order of the file.
const GROUPS: [&str; 5] = ["generic", "zone-spread", "hostname-spread", "zone-affinity", "hostname-anti-affinity"];

/// Each group apart, and all together. Writes into the folder.
pub(crate) fn scenarios(folder: &Path) -> Result<Vec<Scenario>> {
    let saved = folder.join("saved");
    save(&saved)?;
    let text = std::fs::read_to_string(saved.join("pods.yaml")).context("read the saved pods")?;
    let pods: Vec<&str> = text.split("---\n").filter(|document| !document.trim().is_empty()).collect();
    ensure!(pods.len() == PODS, "{} pods were saved", pods.len());
    let scenario = |name: &str, pods: &[&str]| {
        let file = folder.join(format!("{name}.yaml"));
        std::fs::write(&file, pods.join("---\n")).with_context(|| format!("write `{}`", file.display()))?;
        let files = vec![file, saved.join("pools.yaml")];
        Scenario::new(format!("benchmark {name}"), files, saved.join("types.json"), (pods.len(), 0))
    };
    let mut all = vec![scenario("all groups", &pods)?];
    for (name, group) in GROUPS.iter().zip(pods.chunks(PODS / GROUPS.len())) {
        all.push(scenario(name, group)?);
    }
    Ok(all)
}

fn save(folder: &Path) -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(["bench", "karpenter", "--pods", &PODS.to_string(), "--save"]).arg(folder);
    let output = command.output().context("run millpond")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
