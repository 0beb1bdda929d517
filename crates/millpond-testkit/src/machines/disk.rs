//! The files that a machine has written: the upper directory of its overlay.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A file that differs from the one below it, or has none below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Where, without the slash at its begin.
    pub path: PathBuf,
    /// Its content, or the target of a link; empty for a directory or a removed file.
    pub content: Vec<u8>,
}

/// All changes of an overlay, by path. A directory is listed only if the layer below has none.
pub(super) fn changes(lower: &Path, upper: &Path) -> Result<Vec<Change>> {
    let (mut found, mut waiting) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = waiting.pop() {
        let entries = fs::read_dir(upper.join(&folder)).with_context(|| format!("read `{}`", folder.display()))?;
        for entry in entries {
            let entry = entry.context("read a disk")?;
            let (path, kind) = (folder.join(entry.file_name()), entry.file_type().context("read a disk")?);
            let below = lower.join(&path);
            let content = if kind.is_dir() {
                waiting.push(path.clone());
                if below.is_dir() {
                    continue;
                }
                Vec::new()
            } else if kind.is_symlink() {
                fs::read_link(entry.path()).context("read a link")?.into_os_string().into_encoded_bytes()
            } else if kind.is_char_device() || kind.is_socket() || kind.is_fifo() {
                Vec::new()
            } else {
                fs::read(entry.path()).context("read a disk")?
            };
            // A file that was put back as it was is no change.
            let same = kind.is_file() && fs::read(&below).is_ok_and(|present| present == content);
            if !same {
                found.push(Change { path, content });
            }
        }
    }
    found.sort();
    Ok(found)
}
