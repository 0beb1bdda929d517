//! `config/crds`: the CustomResourceDefinitions, one file each, as `millpond install crds` prints them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::GeneratedFile;
use crate::cargo::build_millpond;

/// Where they lie.
const FOLDER: &str = "config/crds";
/// The first line of each file.
const HEAD: &str = "# Made by `cargo xtask generate` from crates/millpond-api/src/crd; do not edit.\n";

/// Asks the binary of this tree for its definitions. A file of a definition that is no more is an error.
pub(super) fn generate(root: &Path) -> Result<Vec<GeneratedFile>> {
    let binary = build_millpond(false)?;
    let list: Value = serde_json::from_slice(&print(&binary, &["--output=json"])?).context("read the definitions")?;
    let items = list["items"].as_array().context("`millpond install crds` printed no list")?;
    let names: Vec<_> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
    let files = names.iter().map(|name| {
        let contents = [HEAD.as_bytes(), &print(&binary, &[name])?].concat();
        Ok(GeneratedFile { path: path_of(name), contents })
    });
    let files: Vec<GeneratedFile> = files.collect::<Result<_>>()?;
    refuse_leftovers(root, &files)?;
    Ok(files)
}

fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.yaml"))
}

fn print(binary: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(binary)
        .args(["install", "crds"])
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run `{}`", binary.display()))?;
    if !output.status.success() {
        bail!("`millpond install crds` failed");
    }
    Ok(output.stdout)
}

fn refuse_leftovers(root: &Path, files: &[GeneratedFile]) -> Result<()> {
    // Before the first run there is no folder.
    let Ok(entries) = std::fs::read_dir(root.join(FOLDER)) else { return Ok(()) };
    for entry in entries {
        let path = Path::new(FOLDER).join(entry.context("list the definitions")?.file_name());
        if !files.iter().any(|file| file.path == path) {
            bail!("`{}` is the file of no definition\nhint: remove it", path.display());
        }
    }
    Ok(())
}
