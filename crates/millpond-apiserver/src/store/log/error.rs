//! Errors of the store's file, with messages for users.
//!
//! Every message names the file; damage also names the offset, what was
//! expected there and what was found. [`OpenError::hint`] and
//! [`AppendError::hint`] give the next step, for callers that print `hint:` lines.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// A place in the file that is not what it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The damaged file.
    pub path: PathBuf,
    /// Offset in bytes of the first structure that is wrong.
    pub offset: u64,
    /// The content of an intact file at this place.
    pub expected: String,
    /// The content of this file.
    pub found: String,
}

impl Damage {
    pub(super) fn new(path: &Path, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { path: path.to_owned(), offset, expected: expected.into(), found: found.into() }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "the store `{}` is damaged at byte {}: expected {}, found {}",
            self.path.display(),
            self.offset,
            self.expected,
            self.found
        )
    }
}

impl std::error::Error for Damage {}

/// Why a file operation failed: which one, on what.
#[derive(Debug, Error)]
#[error("cannot {action} `{}`", path.display())]
pub struct FileError {
    /// The verb, as in "cannot read".
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

impl FileError {
    pub(super) fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source }
    }
}

/// Why a store was not opened, checked or copied.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process (or another `Log` of this one) has the directory.
    #[error("the store in `{}` is already open{}", directory.display(), held_by(*process))]
    AlreadyOpen {
        /// The directory that is locked.
        directory: PathBuf,
        /// The process that wrote itself into the lock file, if it did.
        process: Option<u32>,
    },
    /// The directory or the file cannot be written.
    #[error("cannot write to `{}`", path.display())]
    NotWritable {
        /// The file that was to be written.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// There is no store.
    #[error("there is no store at `{}`", path.display())]
    Missing {
        /// The path that was searched.
        path: PathBuf,
    },
    /// The file is not a store.
    #[error("`{}` is not a Millpond store: its first bytes are {found}", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        found: String,
    },
    /// The file has a later version of the format.
    #[error(
        "the store `{}` has format {found}, and this millpond reads format {supported}",
        path.display()
    )]
    UnsupportedFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format that this build reads and writes.
        supported: u32,
    },
    /// Bytes that were acknowledged are wrong or missing.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The operating system refused an operation.
    #[error(transparent)]
    File(#[from] FileError),
}

impl OpenError {
    /// The next step for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::AlreadyOpen { .. } => Some("stop the other `millpond up`, or give this one another `--data-dir`"),
            Self::NotWritable { .. } => Some("give this user write permission, or choose another `--data-dir`"),
            Self::Missing { .. } => Some("`--data-dir` names the directory that `millpond up` was started with"),
            Self::NotAStore { .. } => {
                Some("the store of a data directory is `millpond.store`; a backup comes from `millpond store backup`")
            }
            Self::UnsupportedFormat { .. } => Some("use the version of millpond that wrote it, or a later one"),
            Self::Damaged(_) => Some(
                "`millpond store check` lists the damage; \
                 `millpond store restore` brings a backup back",
            ),
            Self::File(_) => None,
        }
    }
}

fn held_by(process: Option<u32>) -> String {
    process.map_or_else(String::new, |id| format!(" in process {id}"))
}

/// Why a batch was not acknowledged.
#[derive(Debug, Error)]
pub enum AppendError {
    /// The disk is full. Nothing of the batch remains, and a later batch may succeed.
    #[error("the disk is full: cannot {action} `{}`", path.display())]
    DiskFull {
        /// The verb, as in "cannot write".
        action: &'static str,
        /// The store's file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The disk failed. Whether the batch is there shows only after a restart;
    /// until then the log accepts nothing more.
    #[error(transparent)]
    Failed(#[from] FileError),
    /// An earlier failure made the log read-only.
    #[error("the store is read-only since an earlier failure: {reason}")]
    Poisoned {
        /// The earlier failure.
        reason: Arc<str>,
    },
    /// The batch is larger than one batch may be; nothing was written.
    #[error("a batch of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its encoded size.
        bytes: u64,
        /// [`super::MAX_BATCH_BYTES`].
        limit: u64,
    },
    /// The batch breaks a rule of the log; nothing was written.
    #[error("revision {revision} cannot be stored: {rule}")]
    Refused {
        /// The offending record.
        revision: u64,
        /// The rule.
        rule: &'static str,
    },
}

impl AppendError {
    /// The next step for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::DiskFull { .. } => Some("free some space; the store goes on by itself"),
            Self::Failed(_) | Self::Poisoned { .. } => Some("look after the disk, then start millpond again"),
            Self::TooLarge { .. } | Self::Refused { .. } => None,
        }
    }
}

/// Why a compaction came to nothing. The log goes on with the file it has,
/// unless [`super::Log::is_poisoned`] says otherwise.
#[derive(Debug, Error)]
pub enum CompactError {
    /// The snapshot does not fit together with the log or with itself.
    #[error("the snapshot cannot be written at revision {revision}: {rule}")]
    Snapshot {
        /// Where the contradiction is.
        revision: u64,
        /// The rule that does not hold.
        rule: &'static str,
    },
    /// The present file turned out to be damaged while its tail was read.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The operating system refused an operation.
    #[error(transparent)]
    File(#[from] FileError),
    /// The log is read-only.
    #[error("the store is read-only since an earlier failure: {reason}")]
    Poisoned {
        /// The earlier failure.
        reason: Arc<str>,
    },
}

/// Why a store was not backed up or restored.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The source could not be read in full.
    #[error(transparent)]
    Source(#[from] OpenError),
    /// The file exists and is not to be overwritten.
    #[error("`{}` exists already", path.display())]
    Exists {
        /// The destination.
        path: PathBuf,
    },
    /// The restored revision would not fit a number.
    #[error("revision {revision} cannot be raised by {by}")]
    RevisionRange {
        /// The backup's revision.
        revision: u64,
        /// The raise that was asked for.
        by: u64,
    },
    /// The operating system refused an operation.
    #[error(transparent)]
    File(#[from] FileError),
}
