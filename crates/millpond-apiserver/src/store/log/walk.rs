//! The order of frames in a file, and the entries in them.
//!
//! A [`Walker`] goes over a file from the first frame to the tail, checks
//! everything that one frame cannot say about itself (order, revisions,
//! counts, the slots' claims) and hands each entry to a [`Visitor`]:
//! `replay.rs` builds the state in memory from them, `tools.rs` counts or
//! copies them.

use std::path::Path;

use super::error::{Damage, FileError, OpenError};
use super::format::{DATA_START, FrameHeader, FrameKind, u64_at};
use super::io::LogFile;
use super::record::{ObjectRef, RecordRef, take_object, take_record};
use super::scan::{Frames, Preamble, Step, Tail, judge};
use super::writer::WriteError;

/// Receives the entries of a file in order.
pub(super) trait Visitor {
    /// An object as of the compacted revision.
    fn object(&mut self, object: ObjectRef<'_>) -> Result<(), WriteError>;
    /// Called after the last object; records follow.
    fn objects_end(&mut self) -> Result<(), WriteError> {
        Ok(())
    }
    /// A later write.
    fn record(&mut self, record: RecordRef<'_>) -> Result<(), WriteError>;
}

/// Whether another process may be appending to the file that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// The file stands still.
    Exclusive,
    /// The last batch may be on its way.
    Shared,
}

/// Goes over the frames of one file.
#[derive(Debug)]
pub(super) struct Walker<'f> {
    frames: Frames<'f>,
    path: &'f Path,
    preamble: &'f Preamble,
    access: Access,
    pub(super) seen: Seen,
    /// Behind the last good frame.
    pub(super) end: u64,
    /// The last bad frame.
    bad: u64,
}

impl<'f> Walker<'f> {
    pub(super) fn new(file: &'f dyn LogFile, path: &'f Path, preamble: &'f Preamble, access: Access) -> Self {
        let seal = preamble.header.seal();
        Self {
            frames: Frames::new(file, seal, DATA_START, preamble.file_bytes),
            path,
            preamble,
            access,
            seen: Seen {
                stage: Stage::Objects,
                objects: 0,
                records: 0,
                batches: 0,
                revision: preamble.header.compacted_revision,
                compacted_revision: preamble.header.compacted_revision,
            },
            end: DATA_START,
            bad: 0,
        }
    }

    /// Visits every entry up to the tail.
    pub(super) fn run(&mut self, visitor: &mut impl Visitor) -> Result<Tail, OpenError> {
        loop {
            let step = self.frames.next();
            match step.map_err(|error| FileError::new("read", self.path, error))? {
                Step::Frame { offset, header, payload } => {
                    match self.seen.visit(&header, payload, visitor) {
                        Ok(()) => {}
                        Err(Stop::File(error)) => return Err(error.into()),
                        Err(Stop::Damage { expected, found }) => {
                            return Err(Damage::new(self.path, offset, expected, found).into());
                        }
                    }
                    self.end = offset + header.frame_bytes();
                    self.check_watermark(offset)?;
                }
                Step::Bad(bad) if self.access == Access::Shared && bad.offset >= self.preamble.slot.durable => {
                    return self.finish(Tail::Zeros);
                }
                Step::Bad(bad) => {
                    self.bad = bad.offset;
                    let tail = judge(&mut self.frames, &bad, self.preamble, self.path)?;
                    return self.finish(tail);
                }
                Step::End => return self.finish(Tail::Zeros),
            }
        }
    }

    /// After damage: continues at the next readable frame; returns whether there is one.
    pub(super) fn skip_damage(&mut self) -> Result<bool, OpenError> {
        self.seen.stage = Stage::Lost;
        // The position is after a frame with invalid entries, or at an invalid frame.
        let from = self.frames.position.max(self.bad + 1);
        let next = self.frames.find_header(from);
        let next = next.map_err(|error| FileError::new("read", self.path, error))?;
        if let Some(next) = next {
            self.frames.position = next;
        }
        Ok(next.is_some())
    }

    /// The slot names the end of a frame, and the revision there.
    fn check_watermark(&self, offset: u64) -> Result<(), Damage> {
        let slot = &self.preamble.slot;
        if self.seen.stage == Stage::Lost || offset >= slot.durable || self.end < slot.durable {
            return Ok(());
        }
        if self.end > slot.durable {
            return Err(Damage::new(
                self.path,
                offset,
                format!("a batch that ends at {} or before", slot.durable),
                format!("one that ends at {}", self.end),
            ));
        }
        if self.seen.revision != slot.revision {
            return Err(Damage::new(
                self.path,
                offset,
                format!("revision {} at byte {}", slot.revision, slot.durable),
                format!("revision {}", self.seen.revision),
            ));
        }
        Ok(())
    }

    fn finish(&self, tail: Tail) -> Result<Tail, OpenError> {
        let durable = self.preamble.slot.durable;
        let expected = match self.seen.stage {
            Stage::Objects => "the end of the snapshot".to_owned(),
            Stage::Records if self.end < durable => format!("batches up to byte {durable}"),
            _ => return Ok(tail),
        };
        Err(Damage::new(self.path, self.end, expected, "no more batches").into())
    }
}

/// How far a walk has come in the order of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Objects,
    Records,
    /// After damage: entries are read, their order is not checked.
    Lost,
}

/// Counts of a walk.
#[derive(Debug)]
pub(super) struct Seen {
    stage: Stage,
    pub(super) objects: u64,
    pub(super) records: u64,
    pub(super) batches: u64,
    pub(super) revision: u64,
    compacted_revision: u64,
}

/// Why the entries of a frame were not all visited.
enum Stop {
    Damage { expected: String, found: String },
    File(FileError),
}

impl From<WriteError> for Stop {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::File(error) => Self::File(error),
            WriteError::Rule { rule, .. } => Self::damage("an entry that may be stored", rule),
        }
    }
}

impl Stop {
    fn damage(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Damage { expected: expected.into(), found: found.into() }
    }

    fn malformed(found: &str) -> Self {
        Self::damage("entries as the header of the batch announces them", found)
    }
}

impl Seen {
    fn visit(&mut self, header: &FrameHeader, payload: &[u8], visitor: &mut impl Visitor) -> Result<(), Stop> {
        match (header.kind, self.stage) {
            (FrameKind::Snapshot, Stage::Objects | Stage::Lost) => self.visit_objects(header.count, payload, visitor),
            (FrameKind::SnapshotEnd, Stage::Objects) => {
                self.end_objects(payload)?;
                Ok(visitor.objects_end()?)
            }
            (FrameKind::SnapshotEnd, Stage::Lost) => Ok(()),
            (FrameKind::Batch, Stage::Records | Stage::Lost) => {
                self.batches += 1;
                self.visit_records(header.count, payload, visitor)
            }
            (FrameKind::Batch, Stage::Objects) => Err(Stop::damage("the snapshot", "a batch")),
            (FrameKind::Snapshot | FrameKind::SnapshotEnd, Stage::Records) => {
                Err(Stop::damage("a batch", "a part of the snapshot"))
            }
        }
    }

    fn visit_objects(&mut self, count: u32, mut payload: &[u8], visitor: &mut impl Visitor) -> Result<(), Stop> {
        for _ in 0..count {
            let object = take_object(&mut payload).map_err(Stop::malformed)?;
            if object.revision > self.compacted_revision && self.stage != Stage::Lost {
                return Err(Stop::damage(
                    format!("objects up to revision {}", self.compacted_revision),
                    format!("revision {}", object.revision),
                ));
            }
            self.objects += 1;
            visitor.object(object)?;
        }
        used_up(payload)
    }

    fn end_objects(&mut self, payload: &[u8]) -> Result<(), Stop> {
        if payload.len() != 8 || u64_at(payload, 0) != self.objects {
            let expected = format!("the end of a snapshot of {} objects", self.objects);
            return Err(Stop::damage(expected, "another number"));
        }
        self.stage = Stage::Records;
        Ok(())
    }

    fn visit_records(&mut self, count: u32, mut payload: &[u8], visitor: &mut impl Visitor) -> Result<(), Stop> {
        for _ in 0..count {
            let record = take_record(&mut payload).map_err(Stop::malformed)?;
            if record.revision <= self.revision && self.stage != Stage::Lost {
                return Err(Stop::damage(
                    format!("a revision above {}", self.revision),
                    format!("revision {}", record.revision),
                ));
            }
            self.revision = self.revision.max(record.revision);
            self.records += 1;
            visitor.record(record)?;
        }
        used_up(payload)
    }
}

fn used_up(rest: &[u8]) -> Result<(), Stop> {
    if rest.is_empty() {
        return Ok(());
    }
    Err(Stop::malformed("more bytes than entries"))
}
