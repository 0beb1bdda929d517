//! Compaction: a new file with the objects and the history worth keeping,
//! written beside the log while the log goes on.
//!
//! ```text
//! log thread      begin ── append ── append ── append ── finish ── append
//!                   │  job                                 ▲ file
//! another thread    └─ take the snapshot, write it, ───────┘
//!                      follow the appended batches
//! ```
//!
//! The snapshot is taken *after* `begin`, at whatever revision memory is then;
//! batches since `begin` are read back from the old file, and those that the
//! snapshot knows already are left out. `finish` copies the last few, syncs,
//! and gives the new file the store's name. A crash at any point leaves the
//! old file or the new one, each complete.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::engine::{DurableEnd, Log};
use super::error::{CompactError, Damage, FileError};
use super::format::{FrameKind, Header, Seal};
use super::io::{FILE_NAME, LogFile, LogIo, NEW_FILE_NAME};
use super::record::{HistoryRecord, LiveObject, take_record};
use super::scan::{Frames, Step};
use super::writer::{FileWriter, WriteError};

/// The job stops following the log when at most this much is left for `finish`,
const CLOSE_ENOUGH_BYTES: u64 = 1 << 20;
/// or after this many rounds, if commits are faster than the copy.
const MOST_ROUNDS: usize = 8;

/// All objects at one revision.
#[derive(Debug)]
pub struct Snapshot<L> {
    /// The revision of `live`, and the last that `history` may hold.
    pub revision: u64,
    /// Where `history` begins: it is complete above this revision.
    pub compacted_revision: u64,
    /// Every object that exists at `revision`, in any order.
    pub live: L,
    /// Every write above `compacted_revision` up to `revision`, oldest first.
    pub history: Vec<HistoryRecord>,
}

/// A compaction that has begun. It may be moved to another thread.
#[derive(Debug)]
pub struct CompactionJob {
    io: Arc<dyn LogIo>,
    old: Arc<dyn LogFile>,
    old_path: PathBuf,
    old_seal: Seal,
    durable_end: Arc<DurableEnd>,
    /// Batches from here on may be unknown to the snapshot.
    start: u64,
    revision: u64,
    header: Header,
    running: Arc<()>,
}

/// The new file, but for the last batches and its name.
#[derive(Debug)]
pub struct CompactedFile {
    writer: FileWriter,
    io: Arc<dyn LogIo>,
    old: Arc<dyn LogFile>,
    old_seal: Seal,
    /// The old file was followed up to this offset.
    followed: u64,
    snapshot_revision: u64,
    _running: Arc<()>,
}

/// The result of a compaction.
#[derive(Debug)]
pub struct CompactionSummary {
    /// Data in the file before.
    pub bytes_before: u64,
    /// Data in the file now.
    pub bytes_after: u64,
    /// The old file.
    pub retired: RetiredFile,
}

/// A file that has lost its name. Dropping it frees its space, which takes a while for a large one: do it off the
/// commit path.
#[derive(Debug)]
pub struct RetiredFile(#[expect(dead_code, reason = "held for the sake of when it is dropped")] Arc<dyn LogFile>);

impl Log {
    /// Begins a compaction; `None` while another one runs or the log is
    /// read-only. Give it up by dropping the job or the file it wrote.
    pub fn begin_compaction(&mut self, now_unix_ms: u64) -> Option<CompactionJob> {
        if self.is_poisoned() || self.compaction.strong_count() > 0 {
            return None;
        }
        let running = Arc::new(());
        self.compaction = Arc::downgrade(&running);
        self.attempted_bytes = Some(self.end);
        Some(CompactionJob {
            io: Arc::clone(&self.io),
            old: Arc::clone(&self.file),
            old_path: self.path.clone(),
            old_seal: self.header.seal(),
            durable_end: Arc::clone(&self.durable_end),
            start: self.end,
            revision: self.revision,
            header: Header {
                store_id: self.header.store_id,
                generation: self.header.generation.wrapping_add(1),
                compacted_revision: 0,
                created_unix_ms: now_unix_ms,
            },
            running,
        })
    }

    /// Goes on in the new file. Takes as long as a few commits.
    pub fn finish_compaction(&mut self, mut compacted: CompactedFile) -> Result<CompactionSummary, CompactError> {
        if let Some(reason) = self.poison_reason() {
            return Err(CompactError::Poisoned { reason });
        }
        if !Arc::ptr_eq(&compacted.old, &self.file) {
            return Err(CompactError::Snapshot {
                revision: compacted.snapshot_revision,
                rule: "the compaction belongs to another log",
            });
        }
        if let Err(error) = compacted.follow(&self.path, self.end) {
            compacted.discard();
            return Err(error);
        }
        let CompactedFile { writer, old, .. } = compacted;
        let finished = writer.finish().inspect_err(|_| {
            let _ = self.io.remove(NEW_FILE_NAME);
        })?;
        self.take_name()?;
        let bytes_before = self.end;
        self.replace_file(finished.file, finished.header, finished.slot);
        Ok(CompactionSummary { bytes_before, bytes_after: self.end, retired: RetiredFile(old) })
    }

    /// When this fails, it is unknown which file the name will mean after a crash, so neither may be written to.
    fn take_name(&mut self) -> Result<(), FileError> {
        let renamed = self.io.rename(NEW_FILE_NAME, FILE_NAME).and_then(|()| self.io.sync_names());
        renamed.map_err(|source| {
            let error = FileError::new("replace", &self.path, source);
            self.poison(&format!("{error}: {}", error.source));
            error
        })
    }
}

impl CompactionJob {
    /// The snapshot has to be of this revision or a later one.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Writes the snapshot and follows the log until little is left.
    pub fn write(self, snapshot: Snapshot<impl Iterator<Item = LiveObject>>) -> Result<CompactedFile, CompactError> {
        if snapshot.revision < self.revision {
            return Err(CompactError::Snapshot {
                revision: snapshot.revision,
                rule: "it is older than the beginning of the compaction",
            });
        }
        let io = Arc::clone(&self.io);
        let written = self.write_file(snapshot);
        if written.is_err() {
            // The disk may be full: give the space back. The next start removes it as well.
            let _ = io.remove(NEW_FILE_NAME);
        }
        written
    }

    fn write_file(self, snapshot: Snapshot<impl Iterator<Item = LiveObject>>) -> Result<CompactedFile, CompactError> {
        let path = self.io.path(NEW_FILE_NAME);
        let file = self.io.create(NEW_FILE_NAME);
        let file = file.map_err(|error| FileError::new("create", &path, error))?;
        let header = Header { compacted_revision: snapshot.compacted_revision, ..self.header };
        let mut writer = FileWriter::new(file, path, header);
        let snapshot_revision = snapshot.revision;
        write_snapshot(&mut writer, snapshot)?;
        let mut compacted = CompactedFile {
            writer,
            io: self.io,
            old: self.old,
            old_seal: self.old_seal,
            followed: self.start,
            snapshot_revision,
            _running: self.running,
        };
        for _ in 0..MOST_ROUNDS {
            compacted.writer.sync()?;
            let end = self.durable_end.get();
            if end - compacted.followed <= CLOSE_ENOUGH_BYTES {
                break;
            }
            compacted.follow(&self.old_path, end)?;
        }
        Ok(compacted)
    }
}

impl CompactedFile {
    /// Copies the records of the old file up to `end` that the snapshot does not hold.
    fn follow(&mut self, path: &Path, end: u64) -> Result<(), CompactError> {
        let old = Arc::clone(&self.old);
        let mut frames = Frames::new(&*old, self.old_seal, self.followed, end);
        loop {
            let step = frames.next();
            match step.map_err(|error| FileError::new("read", path, error))? {
                Step::Frame { offset, header, mut payload } => {
                    let malformed = |found| Damage::new(path, offset, "a batch of records", found);
                    if header.kind != FrameKind::Batch {
                        return Err(malformed("a part of the snapshot").into());
                    }
                    for _ in 0..header.count {
                        let record = take_record(&mut payload).map_err(malformed)?;
                        if record.revision > self.snapshot_revision {
                            self.writer.record(record)?;
                        }
                    }
                }
                Step::Bad(bad) => return Err(bad.damage(path).into()),
                Step::End => break,
            }
        }
        self.followed = end;
        Ok(())
    }

    /// The path being written.
    pub fn path(&self) -> &Path {
        self.writer.path()
    }

    /// Abandons the compaction and frees its space.
    pub fn discard(self) {
        let _ = self.io.remove(NEW_FILE_NAME);
    }
}

/// Writes the objects as of the compacted revision, then the history.
///
/// An object that history touches was, at that revision, what its first record
/// replaced; every other object has not changed since.
fn write_snapshot(
    writer: &mut FileWriter,
    snapshot: Snapshot<impl Iterator<Item = LiveObject>>,
) -> Result<(), WriteError> {
    let mut touched = HashSet::new();
    for HistoryRecord { record, previous } in &snapshot.history {
        let first = touched.insert((&*record.resource, &*record.key));
        if let Some(previous) = previous.as_ref().filter(|_| first) {
            let object = LiveObject {
                resource: Arc::clone(&record.resource),
                key: Arc::clone(&record.key),
                revision: previous.revision,
                object: previous.object.clone(),
            };
            writer.object(object.as_ref())?;
        }
    }
    for object in snapshot.live {
        if !touched.contains(&(&*object.resource, &*object.key)) {
            writer.object(object.as_ref())?;
        }
    }
    writer.end_objects()?;
    for history in &snapshot.history {
        writer.record(history.record.as_ref())?;
    }
    if writer.revision() > snapshot.revision {
        return Err(WriteError::Rule {
            revision: writer.revision(),
            rule: "history goes beyond the snapshot's revision",
        });
    }
    Ok(())
}
