//! The journal of a plan: one file in the state directory, replaced as a whole by rename, synced before and after.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

const FILE: &str = "journal.json";

/// The record of the latest plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// Greatest epoch that was ever begun. It survives resets.
    pub epoch: i64,
    /// The plan, complete: a restarted agent needs no API server to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Steps that are done.
    #[serde(default)]
    pub done: usize,
    /// Content of the file that the step in progress appends to, in base64, from before the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// How to undo what was begun, in the order in which it was begun.
    #[serde(default)]
    pub undo: Vec<Undo>,
    /// Whether the reset has begun; then nothing of the plan is applied any more.
    #[serde(default)]
    pub resetting: bool,
    /// The outcome of the plan, which survives the reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// The outcome of the plan of an epoch, without the plan's content.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Hash of the plan.
    pub hash: String,
    /// Its steps.
    pub steps: usize,
    /// How many of them install Kubernetes.
    #[serde(default)]
    pub installation: usize,
    /// How many were done.
    pub done: usize,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// How to undo a part of a step. Each is written before that part is done, and can be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Undo {
    /// Removes a file that was not there before.
    RemoveFile {
        /// Absolute path.
        path: String,
    },
    /// Puts back a file that was there before.
    RestoreFile {
        /// Absolute path.
        path: String,
        /// Its content, in base64.
        content: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Removes a directory that was not there before, with everything in it.
    RemoveDirectory {
        /// Absolute path.
        path: String,
    },
    /// Removes from a directory what was not in it before.
    PruneDirectory {
        /// Absolute path.
        path: String,
        /// Its previous content, by relative paths.
        keep: BTreeSet<String>,
    },
    /// Makes systemd read its units again.
    ReloadUnits,
    /// Ends the pods that kubelet started.
    StopPods,
    /// Enables a unit that was enabled before: to disable another one of its name has taken that back.
    EnableUnit {
        /// Name.
        name: String,
    },
    /// Stops and disables a unit.
    StopUnit {
        /// Name.
        name: String,
    },
    /// Runs a command.
    Run {
        /// Program and arguments.
        argv: Vec<String>,
    },
}

/// Where the journal lies.
#[derive(Debug, Clone)]
pub struct JournalFile {
    directory: PathBuf,
}

impl JournalFile {
    /// The journal of a state directory, which is created for its owner alone.
    pub fn open(directory: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Reads the journal; an empty one if none was written yet.
    pub fn load(&self) -> io::Result<Journal> {
        match fs::read(self.directory.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Journal::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the journal. When this returns, it survives a loss of power.
    pub fn save(&self, journal: &Journal) -> io::Result<()> {
        let bytes = serde_json::to_vec(journal).map_err(io::Error::other)?;
        write_durably(&self.directory.join(FILE), &bytes, 0o600)
    }
}

/// Replaces a file by rename, so that a reader sees the old content or the new one, also after a crash.
pub fn write_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = path.parent().ok_or_else(|| io::Error::other("a file has a directory"))?;
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let temporary = parent.join(format!(".{name}.millpond"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
    // A temporary file of an earlier attempt keeps its mode.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(parent)?.sync_all()
}
