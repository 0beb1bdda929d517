//! Where the tree lies, and what is in it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// What holds no sources of ours, wherever it is. (`.git` is a file in a work
/// tree beside the first.)
const SKIPPED: &[&str] = &[".git", "target", "node_modules"];

/// The root of the workspace: the folder that holds `Cargo.lock`.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in a folder of the workspace").to_path_buf()
}

/// Every file below `root`, as paths relative to it, sorted.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("list `{}`", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("list `{}`", folder.display()))?;
            let kind = entry.file_type().context("look at a file")?;
            let path = entry.path();
            if SKIPPED.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let relative = path.strip_prefix(root).unwrap_or(&path);
                found.push(relative.to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}
