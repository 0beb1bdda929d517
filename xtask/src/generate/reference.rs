//! Files of `docs/reference` that the binary writes about itself: its command line, its conversions, its
//! custom kinds, its metrics, node pool files, the schema of a plan, the reasons that it writes.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::GeneratedFile;
use crate::cargo::build_millpond;

/// Each file with the name that `millpond reference` takes.
const PAGES: &[(&str, &str)] = &[
    ("cli", "cli.md"),
    ("convert", "convert.md"),
    ("custom-kinds", "custom-kinds.md"),
    ("metrics", "metrics.md"),
    ("node-pool-files", "node-pool-files.md"),
    ("plan-schema", "plan.schema.json"),
    ("reasons", "reasons.md"),
];

/// Asks the binary of this tree for its pages.
pub(super) fn generate(_root: &Path) -> Result<Vec<GeneratedFile>> {
    let binary = build_millpond(false)?;
    PAGES.iter().map(|(name, file)| page(&binary, name, file)).collect()
}

fn page(binary: &Path, name: &str, file: &str) -> Result<GeneratedFile> {
    let output = Command::new(binary)
        .args(["reference", name])
        // Defaults that depend on the person are shown with `~`.
        .env_clear()
        .env("HOME", "~")
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run `{}`", binary.display()))?;
    if !output.status.success() {
        bail!("`millpond reference {name}` failed");
    }
    Ok(GeneratedFile { path: format!("docs/reference/{file}").into(), contents: output.stdout })
}
