//! Folders that go when their owner goes.

use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::child_reaper;

/// A temporary folder, readable by its owner alone.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    kept: bool,
}

impl Scratch {
    /// Creates a folder whose name starts with `millpond-` and the given word.
    pub fn new(word: &str) -> Result<Self> {
        // tempfile makes folders with mode 0700.
        let mut folder = tempfile::Builder::new()
            .prefix(&format!("millpond-{word}-"))
            .tempdir()
            .context("make a temporary folder")?;
        let kept = std::env::var_os("MILLPOND_KEEP").is_some();
        if kept {
            folder.disable_cleanup(true);
        } else {
            child_reaper::folder(folder.path())?;
        }
        Ok(Self { folder, kept })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            // The folder itself goes with the field, right after this.
            let _ = child_reaper::leave(self.folder.path());
        }
    }
}
