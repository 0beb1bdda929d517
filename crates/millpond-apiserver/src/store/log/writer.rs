//! Writing a whole file: the snapshot, the records after it, and last of all
//! the pages that make it a store.
//!
//! New stores, compactions, backups and restored backups all come from here.
//! Until [`FileWriter::finish`] the first pages are zero, so that a file that
//! was cut short is never taken for a store. What comes out is a store that
//! was closed in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{CompactError, FileError};
use super::format::{DATA_START, FrameBuilder, FrameKind, Header, Slot};
use super::io::LogFile;
use super::record::{ObjectRef, RecordRef};

/// Payload after which a frame is closed. Larger ones save nothing; smaller
/// ones spend more on headers and, when read, on calls.
const FRAME_BYTES: u64 = 1 << 20;
/// Unsynced bytes at most: many more, and one sync at the end would hold up
/// the commits that share the disk.
const SYNC_BYTES: u64 = 16 << 20;

/// Why an entry was not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// A rule forbids it.
    Rule { revision: u64, rule: &'static str },
    /// The disk failed.
    File(FileError),
}

impl From<FileError> for WriteError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<WriteError> for CompactError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Rule { revision, rule } => Self::Snapshot { revision, rule },
            WriteError::File(error) => Self::File(error),
        }
    }
}

/// A file in the making.
#[derive(Debug)]
pub(super) struct FileWriter {
    file: Arc<dyn LogFile>,
    path: PathBuf,
    header: Header,
    frame: FrameBuilder,
    position: u64,
    synced: u64,
    objects: u64,
    revision: u64,
}

/// A complete, durable file that has no name yet.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) file: Arc<dyn LogFile>,
    pub(super) header: Header,
    pub(super) slot: Slot,
}

impl FileWriter {
    pub(super) fn new(file: Arc<dyn LogFile>, path: PathBuf, header: Header) -> Self {
        Self {
            file,
            path,
            header,
            frame: FrameBuilder::new(FrameKind::Snapshot),
            position: DATA_START,
            synced: DATA_START,
            objects: 0,
            revision: header.compacted_revision,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Adds an object to the snapshot.
    pub(super) fn object(&mut self, object: ObjectRef<'_>) -> Result<(), WriteError> {
        let rule = object.broken_rule().or_else(|| {
            (object.revision > self.header.compacted_revision)
                .then_some("the object is newer than the compacted revision, and not in history")
        });
        if let Some(rule) = rule {
            return Err(WriteError::Rule { revision: object.revision, rule });
        }
        self.make_room(object.encoded_bytes(), FrameKind::Snapshot)?;
        object.encode(self.frame.entry());
        self.objects += 1;
        Ok(())
    }

    /// Ends the snapshot. Records follow.
    pub(super) fn end_objects(&mut self) -> Result<(), FileError> {
        self.flush(FrameKind::SnapshotEnd)?;
        let objects = self.objects.to_le_bytes();
        self.frame.entry().extend_from_slice(&objects);
        self.flush(FrameKind::Batch)
    }

    /// Adds a record after the snapshot.
    pub(super) fn record(&mut self, record: RecordRef<'_>) -> Result<(), WriteError> {
        let object = record.object_ref();
        let rule = object
            .broken_rule()
            .or_else(|| (record.revision <= self.revision).then_some("history is not in ascending order"));
        if let Some(rule) = rule {
            return Err(WriteError::Rule { revision: record.revision, rule });
        }
        self.make_room(record.encoded_bytes(), FrameKind::Batch)?;
        record.encode(self.frame.entry());
        self.revision = record.revision;
        Ok(())
    }

    /// Writes what is buffered and makes it durable, so that little is left for the end.
    pub(super) fn sync(&mut self) -> Result<(), FileError> {
        self.flush(FrameKind::Batch)?;
        self.sync_data()
    }

    /// Writes the first pages and makes the file durable.
    pub(super) fn finish(mut self) -> Result<Finished, FileError> {
        self.flush(FrameKind::Batch)?;
        let seal = self.header.seal();
        let slots = [0, 1].map(|sequence| Slot {
            sequence,
            durable: self.position,
            allocated: self.position,
            revision: self.revision,
            clean: true,
        });
        let writing = |error| FileError::new("write", &self.path, error);
        for slot in slots {
            let bytes = slot.encode(seal);
            self.file.write_all_at(&bytes, slot.offset()).map_err(writing)?;
        }
        self.file.write_all_at(&self.header.encode(), 0).map_err(writing)?;
        self.file.sync_all().map_err(|error| FileError::new("sync", &self.path, error))?;
        Ok(Finished { file: self.file, header: self.header, slot: slots[1] })
    }

    fn make_room(&mut self, bytes: u64, kind: FrameKind) -> Result<(), FileError> {
        if !self.frame.is_empty() && self.frame.payload_bytes() + bytes > FRAME_BYTES {
            self.flush(kind)?;
        }
        Ok(())
    }

    /// Writes the frame, unless it is empty, and begins one of kind `next`.
    fn flush(&mut self, next: FrameKind) -> Result<(), FileError> {
        if !self.frame.is_empty() {
            let bytes = self.frame.seal(self.header.seal(), self.position);
            self.file.write_all_at(bytes, self.position).map_err(|error| FileError::new("write", &self.path, error))?;
            self.position += bytes.len() as u64;
        }
        self.frame.start(next);
        if self.position - self.synced >= SYNC_BYTES {
            self.sync_data()?;
        }
        Ok(())
    }

    fn sync_data(&mut self) -> Result<(), FileError> {
        self.file.sync_data().map_err(|error| FileError::new("sync", &self.path, error))?;
        self.synced = self.position;
        Ok(())
    }
}
