//! The cloud's memory in a file: one line for each change, written down before it is answered.
//!
//! ```text
//! 5d41a0b2 {"format":2}
//! 9c01e7f4 {"made":{"instance":{"id":"sim://default/i-0c7b…", …
//! e0338d19 {"ending":{"id":"sim://default/i-0c7b…","ends":1794803400000}}
//! ```
//!
//! Adding a line does not wait for the disk; answering does ([`Journal::last`], [`Journal::file`]): one sync serves all
//! that were added before it began.
//!
//! A line is the CRC-32 of its text and the text. A torn last line is the write that a crash cut off: it was never
//! acknowledged, and is dropped. A wrong line before the last is damage, and nothing is guessed. When most lines
//! describe instances that no longer exist, the file is rewritten and renamed into place.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::record::Change;

/// The version of the file.
const FORMAT: u32 = 2;
/// The oldest version that is read: without the cloud's name and without terms.
const OLDEST_FORMAT: u32 = 1;

/// Lines beyond what is needed before the file is written anew, at least.
const SLACK_LINES: usize = 1000;

/// Only the owner reads what runs in the cloud.
const MODE: u32 = 0o600;

/// Why the file of a cloud cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read or written.
    #[error("cannot {what} `{}`", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error("`{}` is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged.
    #[error("`{}` is damaged in line {line}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// How.
        problem: String,
    },
}

/// The first line.
#[derive(Deserialize, Serialize)]
struct Header {
    format: u32,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Arc<File>,
    /// Bytes that are known to be whole lines.
    length: u64,
    lines: usize,
    /// Counts what was added since the file was opened.
    added: u64,
    /// A write failed and could not be undone, or a sync failed: nothing can be added any more.
    broken: bool,
    /// The file is of an earlier format: it is written anew before anything is added.
    is_old: bool,
    /// Held as long as the file is.
    _lock: File,
}

impl Journal {
    /// Opens or makes the file; gives the changes that it holds.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Change>), OpenError> {
        let io = |what| move |source| OpenError::Io { what, path: path.to_owned(), source };
        let lock_path = beside(path, "lock");
        let lock = open_file(&lock_path).map_err(io("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::InUse { path: path.to_owned() },
            TryLockError::Error(source) => io("lock")(source),
        })?;
        let mut file = open_file(path).map_err(io("open"))?;
        file.set_permissions(std::fs::Permissions::from_mode(MODE)).map_err(io("protect"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        let Readable { changes, length, lines, is_old } = read(path, &bytes)?;
        let mut journal = Self {
            path: path.to_owned(),
            file: Arc::new(file),
            length,
            lines,
            added: 0,
            broken: false,
            is_old,
            _lock: lock,
        };
        if length < bytes.len() as u64 {
            tracing::warn!(file = %path.display(), bytes = bytes.len() as u64 - length, "dropped a torn last record");
            journal.file.set_len(length).map_err(io("shorten"))?;
        }
        if lines == 0 {
            journal.add_lines(&line(&Header { format: FORMAT }), 1).map_err(io("write"))?;
            journal.file.sync_data().map_err(io("write"))?;
            sync_directory(path).map_err(io("write"))?;
        }
        Ok((journal, changes))
    }

    /// Adds a change. When this returns it survives the end of the process, but no power cut yet.
    pub(super) fn add(&mut self, change: &Change) -> io::Result<()> {
        self.add_lines(&line(change), 1)
    }

    fn add_lines(&mut self, text: &[u8], lines: usize) -> io::Result<()> {
        self.usable()?;
        // The file is opened for appending: what a failed write left behind must not stand before the next line.
        match (&*self.file).write_all(text) {
            Ok(()) => {
                self.length += text.len() as u64;
                self.lines += lines;
                self.added += 1;
                Ok(())
            }
            Err(error) => {
                self.broken = self.file.set_len(self.length).is_err();
                Err(error)
            }
        }
    }

    fn usable(&self) -> io::Result<()> {
        if self.broken { Err(io::Error::other("an earlier write failed")) } else { Ok(()) }
    }

    /// The number of the last change that was added.
    pub(super) fn last(&self) -> u64 {
        self.added
    }

    /// The file to sync: then all that was added until now survives a power cut.
    pub(super) fn file(&self) -> io::Result<Arc<File>> {
        self.usable().map(|()| Arc::clone(&self.file))
    }

    /// A sync failed: what is on the disk is unknown.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
    }

    /// Whether the file is of an earlier format.
    pub(super) fn is_old(&self) -> bool {
        self.is_old
    }

    /// Whether most of the file is about what is no more.
    pub(super) fn is_wasteful(&self, needed: usize) -> bool {
        self.lines > 2 * needed + SLACK_LINES
    }

    /// Writes the file anew with these changes.
    pub(super) fn rewrite(&mut self, changes: impl Iterator<Item = Change>) -> io::Result<()> {
        let mut text = line(&Header { format: FORMAT });
        let mut lines = 1;
        for change in changes {
            text.extend(line(&change));
            lines += 1;
        }
        let new_path = beside(&self.path, "new");
        let mut file = open_file(&new_path)?;
        file.set_len(0)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&new_path, &self.path)?;
        self.file = Arc::new(file);
        self.length = text.len() as u64;
        self.lines = lines;
        self.is_old = false;
        // Until the new name is durable, a power cut brings the old file back, without what would be added now.
        let synced = sync_directory(&self.path);
        self.broken = synced.is_err();
        synced
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).read(true).append(true).mode(MODE).open(path)
}

fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(extension);
    path.with_file_name(name)
}

/// The name of a file is durable once its directory is.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_string(value).expect("records have only names for keys");
    format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes())).into_bytes()
}

/// What could be read of a file.
struct Readable {
    changes: Vec<Change>,
    length: u64,
    lines: usize,
    /// It is of an earlier format.
    is_old: bool,
}

fn read(path: &Path, bytes: &[u8]) -> Result<Readable, OpenError> {
    let mut readable = Readable { changes: Vec::new(), length: 0, lines: 0, is_old: false };
    let all: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for (index, line) in all.iter().enumerate() {
        let Some(text) = text_of(line) else {
            if index + 1 == all.len() {
                break;
            }
            return Err(damaged(path, index, "its checksum is wrong".to_owned()));
        };
        let wrong = |error: serde_json::Error| damaged(path, index, error.to_string());
        if index == 0 {
            let Header { format } = serde_json::from_str(text).map_err(wrong)?;
            if !(OLDEST_FORMAT..=FORMAT).contains(&format) {
                let problem = format!("it is of format {format}; this version reads formats up to {FORMAT}");
                return Err(damaged(path, index, problem));
            }
            readable.is_old = format < FORMAT;
        } else {
            readable.changes.push(serde_json::from_str(text).map_err(wrong)?);
        }
        readable.length += line.len() as u64;
        readable.lines += 1;
    }
    Ok(readable)
}

fn damaged(path: &Path, index: usize, problem: String) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), line: index + 1, problem }
}

/// The text of a whole line with the right checksum.
fn text_of(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (sum, text) = line.split_once(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == crc32fast::hash(text.as_bytes())).then_some(text)
}
