//! The operations of `millpond store`: check, copy and restore a store.
//!
//! A file that is only appended to can be read while a server writes to it:
//! everything that its slots call durable stays as it is. So `check` and
//! `backup` need not stop the server. `restore` does, and takes the lock.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::engine::open_error;
use super::error::{CopyError, Damage, FileError, OpenError};
use super::format::{FORMAT, Header, Slot};
use super::io::{Directory, FILE_NAME, Holder, LogIo, NEW_FILE_NAME, create_private, lock_holder, sync_directory};
use super::record::{ObjectRef, RecordKind, RecordRef};
use super::recovered::Note;
use super::replay::{Replay, Retention};
use super::scan::{Preamble, Tail, read_header_only, read_preamble};
use super::walk::{Access, Visitor, Walker};
use super::writer::{FileWriter, WriteError};
use crate::store::verify;

/// By how much the revision of a restored store is raised above the backup's.
///
/// Clients remember revisions that were given out after the backup was made.
/// None of them may come to mean something else, so the store goes on above
/// them: this leaves room for 20,000 writes a second over half a day.
pub const DEFAULT_REVISION_RAISE: u64 = 1_000_000_000;

/// How a file was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// Closed in order.
    Closed,
    /// Not closed: its server crashed, was killed or lost power.
    NotClosed,
    /// A server has it open.
    InUse {
        /// The server's process, if it is known.
        process: Option<u32>,
    },
}

/// The result of [`check`].
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// The file.
    pub path: PathBuf,
    /// Whether it was closed.
    pub state: FileState,
    /// The version of its format.
    pub format: u32,
    /// The id of the store.
    pub store_id: [u8; 16],
    /// How many files the store has had, counting from 1.
    pub generation: u64,
    /// Length of the file, the space for later batches included.
    pub file_bytes: u64,
    /// Length of the data.
    pub data_bytes: u64,
    /// The last revision.
    pub revision: u64,
    /// Where history begins.
    pub compacted_revision: u64,
    /// Objects in the snapshot.
    pub snapshot_objects: u64,
    /// Batches after it,
    pub batches: u64,
    /// and records in those.
    pub records: u64,
    /// Objects that exist now, by resource.
    pub objects: BTreeMap<String, u64>,
    /// Objects that exist and cannot be read. A server sets them aside when it starts.
    pub unreadable: Vec<Unreadable>,
    /// Damage. The counts above are of what can be read.
    pub problems: Vec<Damage>,
    /// Harmless observations.
    pub notes: Vec<Note>,
}

/// An object whose bytes are intact but cannot be read as an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// `pods`, `deployments.apps`.
    pub resource: String,
    /// `namespace/name`, or `name` where there is no namespace.
    pub key: String,
    /// The revision that wrote it.
    pub revision: u64,
    /// Why it cannot be read.
    pub reason: String,
}

/// Reads a whole store, verifies every byte of it, and reads every object.
///
/// Damage is reported, not returned as an error; reading goes on behind it.
pub fn check(path: &Path) -> Result<CheckReport, OpenError> {
    let (file, holder) = open_to_read(path)?;
    let access = access(holder);
    let mut problems = Vec::new();
    let preamble = match preamble(&file, path, access) {
        Err(OpenError::Damaged(damage)) => {
            problems.push(damage);
            match read_header_only(&file, path) {
                Err(OpenError::Damaged(_)) => return Ok(unreadable(path, problems, &file)),
                result => result?,
            }
        }
        result => result?,
    };
    let mut tally = Tally::default();
    let mut walker = Walker::new(&file, path, &preamble, access);
    let tail = loop {
        match walker.run(&mut tally) {
            Ok(tail) => break tail,
            Err(OpenError::Damaged(damage)) => {
                problems.push(damage);
                if problems.len() >= MOST_PROBLEMS || !walker.skip_damage()? {
                    break Tail::Zeros;
                }
            }
            Err(error) => return Err(error),
        }
    };
    let state = match holder {
        Some(Holder { process }) => FileState::InUse { process },
        None if preamble.closed => FileState::Closed,
        None => FileState::NotClosed,
    };
    Ok(CheckReport {
        path: path.to_owned(),
        state,
        format: FORMAT,
        store_id: preamble.header.store_id,
        generation: preamble.header.generation,
        file_bytes: preamble.file_bytes,
        data_bytes: walker.end,
        revision: walker.seen.revision,
        compacted_revision: preamble.header.compacted_revision,
        snapshot_objects: walker.seen.objects,
        batches: walker.seen.batches,
        records: walker.seen.records,
        unreadable: std::mem::take(&mut tally.unreadable).into_values().collect(),
        objects: tally.counts(),
        problems,
        notes: notes(state, &preamble, tail),
    })
}

/// A longer report is of no use.
const MOST_PROBLEMS: usize = 100;

/// The result of [`backup`] or [`restore`].
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// The file that was written.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Objects that exist in it.
    pub objects: u64,
    /// The number of unreadable objects among them, which were copied as they are.
    pub unreadable: u64,
    /// Its last revision.
    pub revision: u64,
    /// Harmless observations about the source.
    pub notes: Vec<Note>,
}

/// Copies a store, in use or not, to a new file, verifying what it reads and then what it wrote. The file has its
/// final name only when it is complete.
pub fn backup(source: &Path, destination: &Path) -> Result<CopyReport, CopyError> {
    let partial = PartialBackup::write(source, destination);
    if partial.is_err() {
        // Half a backup is none; the error that stopped it matters more than this one.
        let _ = std::fs::remove_file(partial_path(destination));
    }
    partial?.finish()
}

/// Where a backup is written until it is complete. What a backup that was cut off left there is overwritten.
fn partial_path(destination: &Path) -> PathBuf {
    let mut name = destination.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// A complete backup under a name of its own.
pub(super) struct PartialBackup {
    report: CopyReport,
    destination: PathBuf,
}

impl PartialBackup {
    pub(super) fn write(source: &Path, destination: &Path) -> Result<Self, CopyError> {
        refuse_existing(destination)?;
        let (file, holder) = open_to_read(source)?;
        let access = access(holder);
        let preamble = preamble(&file, source, access)?;
        let path = partial_path(destination);
        let creating = |error| FileError::new("create", &path, error);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(creating(error).into()),
            _ => {}
        }
        let created = create_private(&path).map_err(creating)?;
        let report = copy_entries(&file, source, &preamble, access, created, &path)?;
        Ok(Self { report, destination: destination.to_owned() })
    }

    /// Gives it its final name, durably.
    pub(super) fn finish(mut self) -> Result<CopyReport, CopyError> {
        refuse_existing(&self.destination)?;
        std::fs::rename(&self.report.path, &self.destination)
            .map_err(|error| FileError::new("create", &self.destination, error))?;
        sync_directory(self.destination.parent().unwrap_or(Path::new("")))?;
        self.report.path = self.destination;
        Ok(self.report)
    }
}

fn refuse_existing(path: &Path) -> Result<(), CopyError> {
    match path.symlink_metadata() {
        Ok(_) => Err(CopyError::Exists { path: path.to_owned() }),
        Err(_) => Ok(()),
    }
}

fn copy_entries(
    file: &File,
    source: &Path,
    preamble: &Preamble,
    access: Access,
    created: File,
    destination: &Path,
) -> Result<CopyReport, CopyError> {
    let writer = FileWriter::new(Arc::new(created), destination.to_owned(), preamble.header);
    let mut copy = Copy(writer);
    let tail = Walker::new(file, source, preamble, access).run(&mut copy)?;
    copy.0.finish()?;
    let mut report = verify(destination)?;
    let state = match access {
        Access::Shared => FileState::InUse { process: None },
        Access::Exclusive if preamble.closed => FileState::Closed,
        Access::Exclusive => FileState::NotClosed,
    };
    report.notes = notes(state, preamble, tail);
    Ok(report)
}

/// How to restore.
#[derive(Debug, Clone, Copy)]
pub struct RestoreOptions {
    /// Replace an existing store.
    pub replace: bool,
    /// Raise the revision by this; see [`DEFAULT_REVISION_RAISE`].
    pub revision_raise: u64,
    /// The time now, to date the new file.
    pub now_unix_ms: u64,
}

/// Puts a backup into a data directory as its store.
///
/// The objects are those of the backup, under their own revisions. History is
/// left out and the store's revision raised, so that every watcher lists anew
/// instead of resuming in a past that is no longer true.
pub fn restore(backup: &Path, directory: &Path, options: RestoreOptions) -> Result<CopyReport, CopyError> {
    let (file, holder) = open_to_read(backup)?;
    let preamble = preamble(&file, backup, access(holder))?;
    let no_history = Retention { since_unix_ms: u64::MAX, least_records: 0 };
    let mut replay = Replay::new(no_history, preamble.header.compacted_revision);
    let mut walker = Walker::new(&file, backup, &preamble, access(holder));
    let tail = walker.run(&mut replay)?;
    let revision = walker.seen.revision;
    let raised = revision.checked_add(options.revision_raise);
    let header = Header {
        generation: preamble.header.generation.wrapping_add(1),
        compacted_revision: raised.ok_or(CopyError::RevisionRange { revision, by: options.revision_raise })?,
        created_unix_ms: options.now_unix_ms,
        ..preamble.header
    };
    let path = install(directory, header, replay, options.replace)?;
    let mut report = verify(&path)?;
    report.notes = notes(FileState::Closed, &preamble, tail);
    Ok(report)
}

/// Writes the objects to a new file and gives it the store's name.
fn install(directory: &Path, header: Header, replay: Replay, replace: bool) -> Result<PathBuf, CopyError> {
    let target = Directory::lock(directory)?;
    let path = target.path(FILE_NAME);
    let present = target.open(FILE_NAME).map_err(|error| open_error(&path, error))?;
    if present.is_some() && !replace {
        return Err(CopyError::Exists { path });
    }
    let new_path = target.path(NEW_FILE_NAME);
    let file = target.create(NEW_FILE_NAME).map_err(|error| FileError::new("create", &new_path, error))?;
    let written = write_objects(FileWriter::new(file, new_path, header), replay);
    if let Err(error) = written {
        let _ = target.remove(NEW_FILE_NAME);
        return Err(error.into());
    }
    target
        .rename(NEW_FILE_NAME, FILE_NAME)
        .and_then(|()| target.sync_names())
        .map_err(|error| FileError::new("replace", &path, error))?;
    Ok(path)
}

fn write_objects(mut writer: FileWriter, replay: Replay) -> Result<(), FileError> {
    for object in replay.finish().0 {
        match writer.object(object.as_ref()) {
            Ok(()) => {}
            Err(WriteError::File(error)) => return Err(error),
            Err(WriteError::Rule { rule, .. }) => {
                unreachable!("an object that was just read cannot break a rule: {rule}")
            }
        }
    }
    writer.end_objects()?;
    writer.finish()?;
    Ok(())
}

fn verify(path: &Path) -> Result<CopyReport, CopyError> {
    let report = check(path)?;
    if let Some(damage) = report.problems.into_iter().next() {
        return Err(OpenError::Damaged(damage).into());
    }
    Ok(CopyReport {
        path: report.path,
        bytes: report.file_bytes,
        objects: report.objects.values().sum(),
        unreadable: report.unreadable.len() as u64,
        revision: report.revision,
        notes: report.notes,
    })
}

/// Opens a file, and finds out whether a server has it: `Some` if so.
fn open_to_read(path: &Path) -> Result<(File, Option<Holder>), OpenError> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path: path.to_owned() },
        _ => FileError::new("open", path, error).into(),
    })?;
    let is_store = path.file_name().is_some_and(|name| name == FILE_NAME);
    let holder = path.parent().filter(|_| is_store).and_then(lock_holder);
    Ok((file, holder))
}

fn access(holder: Option<Holder>) -> Access {
    match holder {
        Some(_) => Access::Shared,
        None => Access::Exclusive,
    }
}

/// While a server writes, a slot may be read in the middle of being written.
fn preamble(file: &File, path: &Path, access: Access) -> Result<Preamble, OpenError> {
    const TRIES: usize = 10;
    let mut result = read_preamble(file, path);
    for _ in 1..TRIES {
        let retry = access == Access::Shared && matches!(result, Err(OpenError::Damaged(_)));
        if !retry {
            break;
        }
        result = read_preamble(file, path);
    }
    result
}

fn notes(state: FileState, preamble: &Preamble, tail: Tail) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Tail::Torn { offset, bytes } = tail {
        notes.push(Note::TornTail { offset, bytes });
    }
    if let Some(index) = preamble.damaged_slot
        && !matches!(state, FileState::InUse { .. })
    {
        let offset = Slot::page_offset(index);
        notes.push(Note::SlotReplaced { offset });
    }
    notes
}

fn unreadable(path: &Path, problems: Vec<Damage>, file: &File) -> CheckReport {
    CheckReport {
        path: path.to_owned(),
        state: FileState::NotClosed,
        format: FORMAT,
        store_id: [0; 16],
        generation: 0,
        file_bytes: file.metadata().map_or(0, |metadata| metadata.len()),
        data_bytes: 0,
        revision: 0,
        compacted_revision: 0,
        snapshot_objects: 0,
        batches: 0,
        records: 0,
        objects: BTreeMap::new(),
        unreadable: Vec::new(),
        problems,
        notes: Vec::new(),
    }
}

/// Writes each entry to another file.
struct Copy(FileWriter);

impl Visitor for Copy {
    fn object(&mut self, object: ObjectRef<'_>) -> Result<(), WriteError> {
        self.0.object(object)
    }

    fn objects_end(&mut self) -> Result<(), WriteError> {
        Ok(self.0.end_objects()?)
    }

    fn record(&mut self, record: RecordRef<'_>) -> Result<(), WriteError> {
        self.0.record(record)
    }
}

/// Counts the objects that exist, and reads them.
#[derive(Default)]
struct Tally {
    keys: BTreeMap<String, HashSet<Box<str>>>,
    unreadable: BTreeMap<(String, String), Unreadable>,
}

impl Tally {
    fn counts(self) -> BTreeMap<String, u64> {
        let counts = self.keys.into_iter().map(|(name, keys)| (name, keys.len() as u64));
        counts.filter(|&(_, count)| count > 0).collect()
    }

    fn put(&mut self, object: ObjectRef<'_>) {
        let ObjectRef { resource, key, revision, object } = object;
        if let Some(keys) = self.keys.get_mut(resource) {
            keys.insert(key.into());
        } else {
            self.keys.insert(resource.to_owned(), HashSet::from([key.into()]));
        }
        self.forget_unreadable(resource, key);
        if let Err(problem) = verify::index(object) {
            let (resource, key, reason) = (resource.to_owned(), key.to_owned(), problem.to_string());
            let place = (resource.clone(), key.clone());
            self.unreadable.insert(place, Unreadable { resource, key, revision, reason });
        }
    }

    fn forget_unreadable(&mut self, resource: &str, key: &str) {
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&(resource.to_owned(), key.to_owned()));
        }
    }
}

impl Visitor for Tally {
    fn object(&mut self, object: ObjectRef<'_>) -> Result<(), WriteError> {
        self.put(object);
        Ok(())
    }

    fn record(&mut self, record: RecordRef<'_>) -> Result<(), WriteError> {
        match record.kind {
            RecordKind::Put => self.put(record.object_ref()),
            RecordKind::Delete => {
                if let Some(keys) = self.keys.get_mut(record.resource) {
                    keys.remove(record.key);
                }
                self.forget_unreadable(record.resource, record.key);
            }
        }
        Ok(())
    }
}
