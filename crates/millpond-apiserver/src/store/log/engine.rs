//! The log itself: open, append, settle, close.
//!
//! A commit is one `write` of a batch into space that was filled with zeros
//! before, one small `write` of a slot, and one `fdatasync` for both. The slot
//! speaks of the commits *before* this one, so it never claims more than was
//! synced. Because the space is allocated and its length is known, the
//! `fdatasync` has no metadata to write.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::error::{AppendError, FileError, OpenError};
use super::format::{DATA_START, FrameBuilder, FrameKind, Header, MAX_BATCH_BYTES, PAGE, Seal, Slot};
use super::io::{Directory, FILE_NAME, LogFile, LogIo, NEW_FILE_NAME, is_disk_full, read_full};
use super::record::Record;
use super::recovered::{Note, Recovered};
use super::replay::{Replay, Retention};
use super::scan::{Preamble, Tail, read_preamble};
use super::walk::{Access, Walker};
use super::writer::FileWriter;

/// Zeros that always stay behind the data, so that an open file never has the
/// length of a closed one.
const SLACK_BYTES: u64 = PAGE as u64;
/// The smallest extension of the file, for small stores.
const LEAST_ALLOCATION_BYTES: u64 = 1 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// How to open a log.
#[derive(Debug, Clone)]
pub struct Options {
    /// The time now: decides what is old, and dates a new store.
    pub now_unix_ms: u64,
    /// The id of a new store, used if none exists.
    pub new_store_id: [u8; 16],
    /// History of this age and younger is recovered.
    pub history_ms: u64,
    /// Number of history records that are recovered, whatever their age.
    pub history_records: usize,
    /// Space is taken, and filled with zeros, in steps of this size at most.
    pub allocation_bytes: u64,
    /// The space that is allocated ahead, in steps of this size.
    pub ahead_bytes: u64,
    /// The space that is kept for deletes, should the disk run full.
    pub reserve_bytes: u64,
    /// A file with less to give back is not worth a compaction.
    pub compaction_growth_bytes: u64,
}

impl Options {
    /// The usual ones: five minutes and at least 1,000 records of history.
    ///
    /// Space is taken 8 MiB at a time: against growing the file with each write this makes a lone commit two to ten
    /// times faster, against 1 MiB still a fifth, while 32 MiB gain nothing and stop the commits for longer. The
    /// figures are in `docs/adr/0002-own-log.md`. Where there is time between commits ([`Log::fill_ahead`]), space is
    /// taken 1 MiB at a time before it is needed, and no commit waits for 8 MiB.
    pub fn new(now_unix_ms: u64, new_store_id: [u8; 16]) -> Self {
        Self {
            now_unix_ms,
            new_store_id,
            history_ms: 5 * 60 * 1000,
            history_records: 1000,
            allocation_bytes: 8 << 20,
            ahead_bytes: 1 << 20,
            reserve_bytes: 1 << 20,
            compaction_growth_bytes: 32 << 20,
        }
    }
}

/// How far the file is durable, for a compaction that reads along.
#[derive(Debug)]
pub(super) struct DurableEnd(AtomicU64);

impl DurableEnd {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// An open log. Reads are served from memory elsewhere; this is the file.
#[derive(Debug)]
pub struct Log {
    pub(super) io: Arc<dyn LogIo>,
    pub(super) file: Arc<dyn LogFile>,
    pub(super) path: PathBuf,
    pub(super) header: Header,
    seal: Seal,
    /// The slot that was written last.
    slot: Slot,
    /// Offset after the last batch.
    pub(super) end: u64,
    /// Length of the file; zeros from `end` on.
    allocated: u64,
    /// Space is not taken ahead before the data reach here: the disk was full.
    ahead_from: u64,
    pub(super) revision: u64,
    frame: FrameBuilder,
    poisoned: Option<Arc<str>>,
    pub(super) durable_end: Arc<DurableEnd>,
    pub(super) compaction: Weak<()>,
    /// Size of the file when a compaction was last begun and did not replace it.
    pub(super) attempted_bytes: Option<u64>,
    options: Options,
}

impl Log {
    /// Opens the store in a directory, or makes a new one.
    pub fn open(directory: &Path, options: Options) -> Result<(Self, Recovered), OpenError> {
        Self::open_in(Arc::new(Directory::lock(directory)?), options)
    }

    /// Opens the store in a directory that is locked already.
    pub fn open_in(io: Arc<dyn LogIo>, options: Options) -> Result<(Self, Recovered), OpenError> {
        let path = io.path(FILE_NAME);
        // The store's file comes first: its lock says whether the other names may be touched.
        let opened = io.open(FILE_NAME).map_err(|source| open_error(&path, source))?;
        probe(&*io)?;
        let (file, created) = match opened {
            Some(file) => (file, false),
            None => (create(&*io, &options)?, true),
        };
        let preamble = read_preamble(&*file, &path)?;
        let retention = Retention {
            since_unix_ms: options.now_unix_ms.saturating_sub(options.history_ms),
            least_records: options.history_records,
        };
        let mut replay = Replay::new(retention, preamble.header.compacted_revision);
        let mut walker = Walker::new(&*file, &path, &preamble, Access::Exclusive);
        let tail = walker.run(&mut replay)?;
        let (end, revision) = (walker.end, walker.seen.revision);
        if !preamble.closed {
            harden(&*file, preamble.slot.durable, end, tail)
                .map_err(|error| FileError::new("repair the end of", &path, error))?;
        }
        let compacted_revision = replay.compacted_revision;
        let (objects, history) = replay.finish();
        let recovered = Recovered {
            revision,
            compacted_revision,
            store_id: preamble.header.store_id,
            notes: notes(created, &preamble, tail),
            objects,
            history,
        };
        let log = Self {
            io,
            file,
            path,
            header: preamble.header,
            seal: preamble.header.seal(),
            slot: preamble.slot,
            end,
            allocated: preamble.file_bytes,
            ahead_from: 0,
            revision,
            frame: FrameBuilder::new(FrameKind::Batch),
            poisoned: None,
            durable_end: Arc::new(DurableEnd(AtomicU64::new(end))),
            compaction: Weak::new(),
            attempted_bytes: None,
            options,
        };
        Ok((log, recovered))
    }

    /// Writes a batch. All of it is durable on `Ok`; nothing of it counts on
    /// `Err`, though after [`AppendError::Failed`] a restart may find it.
    pub fn append(&mut self, batch: &[Record]) -> Result<(), AppendError> {
        self.append_keeping(batch, self.options.reserve_bytes)
    }

    /// The same for deletes: on a full disk they may use the space that is kept for them.
    pub fn append_deletes(&mut self, batch: &[Record]) -> Result<(), AppendError> {
        match self.append(batch) {
            Err(AppendError::DiskFull { .. }) => self.append_keeping(batch, 0),
            result => result,
        }
    }

    /// Writes a batch if `reserve` bytes stay free behind it.
    fn append_keeping(&mut self, batch: &[Record], reserve: u64) -> Result<(), AppendError> {
        self.check_usable()?;
        let Some(last) = batch.last() else {
            return Ok(());
        };
        self.check_batch(batch)?;
        self.frame.start(FrameKind::Batch);
        for record in batch {
            record.as_ref().encode(self.frame.entry());
        }
        let frame_bytes = self.frame.frame_bytes();
        self.make_room(frame_bytes + reserve)?;
        self.mark_open()?;
        self.write_slot(false)?;
        let bytes = self.frame.seal(self.seal, self.end);
        if let Err(error) = self.file.write_all_at(bytes, self.end) {
            return Err(self.erase_batch(frame_bytes, error));
        }
        self.sync()?;
        self.end += frame_bytes;
        self.revision = last.revision;
        self.durable_end.0.store(self.end, Ordering::Release);
        Ok(())
    }

    /// Extends the file a little before the space is needed. Called after a commit was answered: a commit that has to
    /// extend the file itself takes a larger step, and all its writers wait for that. A full disk is not reported here
    /// but by the commit that needs the space.
    pub fn fill_ahead(&mut self) -> Result<(), AppendError> {
        let step = self.options.ahead_bytes;
        let enough = self.allocated - self.end >= step + self.options.reserve_bytes + SLACK_BYTES;
        // A closed file has exactly the length of its data.
        if self.is_poisoned() || self.slot.clean || enough || self.end < self.ahead_from {
            return Ok(());
        }
        match self.grow(whole_pages(self.allocated + step)) {
            Err(AppendError::DiskFull { .. }) => self.ahead_from = self.end + step / 4,
            result => return result,
        }
        Ok(())
    }

    /// Whether there is space again for a write after the disk was full. Takes that space, and the reserve.
    pub fn probe_space(&mut self) -> Result<(), AppendError> {
        self.check_usable()?;
        self.mark_open()?;
        self.make_room(PAGE as u64 + self.options.reserve_bytes)
    }

    /// Records exactly how far the file is durable. For quiet moments: each batch does it for the batches before it,
    /// and the last batch has none after it.
    pub fn settle(&mut self) -> Result<(), AppendError> {
        self.check_usable()?;
        if self.slot.durable == self.end {
            return Ok(());
        }
        self.write_slot(false)?;
        self.sync()
    }

    /// Closes the file so that the next start can tell that nothing is missing.
    pub fn close(mut self) -> Result<(), AppendError> {
        self.check_usable()?;
        if self.slot.clean && self.allocated == self.end {
            return Ok(());
        }
        // Cutting the file comes last: a file of exactly its data's length has
        // two good slots, or is damaged.
        self.allocated = self.end;
        for _ in 0..2 {
            self.write_slot(true)?;
            self.sync()?;
        }
        let cut = self.file.set_length(self.end);
        cut.map_err(|error| self.fail("cut", error))?;
        let synced = self.file.sync_all();
        synced.map_err(|error| self.fail("sync", error))
    }

    /// Whether so much of the file is obsolete that a compaction pays; `kept_bytes` is about the size that it would
    /// leave. A file that only grew by new objects would merely be copied. After a failed compaction (a full disk?) the
    /// next one waits until the file has grown further.
    pub fn wants_compaction(&self, kept_bytes: u64) -> bool {
        let step = self.options.compaction_growth_bytes;
        let useless = self.end.saturating_sub(DATA_START + kept_bytes);
        let again = self.attempted_bytes.is_none_or(|bytes| self.end > bytes + step);
        useless > step.max(kept_bytes) && again
    }

    /// Whether an earlier failure made the log read-only.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// Bytes of the file that hold data.
    pub fn data_bytes(&self) -> u64 {
        self.end
    }

    /// The last durable revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Why the log is read-only; `None` if it is not.
    pub(super) fn poison_reason(&self) -> Option<Arc<str>> {
        self.poisoned.clone()
    }

    /// Goes on in another file, which was closed in order.
    pub(super) fn replace_file(&mut self, file: Arc<dyn LogFile>, header: Header, slot: Slot) {
        self.file = file;
        self.header = header;
        self.seal = header.seal();
        self.slot = slot;
        self.end = slot.durable;
        self.allocated = slot.durable;
        self.ahead_from = 0;
        self.attempted_bytes = None;
        self.durable_end = Arc::new(DurableEnd(AtomicU64::new(self.end)));
    }

    pub(super) fn poison(&mut self, reason: &str) {
        self.poisoned.get_or_insert_with(|| reason.into());
    }

    fn check_usable(&self) -> Result<(), AppendError> {
        match &self.poisoned {
            Some(reason) => Err(AppendError::Poisoned { reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }

    fn check_batch(&self, batch: &[Record]) -> Result<(), AppendError> {
        let mut previous = self.revision;
        let mut bytes = 0;
        for record in batch {
            let rule = record
                .as_ref()
                .object_ref()
                .broken_rule()
                .or_else(|| (record.revision <= previous).then_some("it is not above the one before it"));
            if let Some(rule) = rule {
                return Err(AppendError::Refused { revision: record.revision, rule });
            }
            previous = record.revision;
            bytes += record.encoded_bytes();
        }
        if bytes > MAX_BATCH_BYTES {
            return Err(AppendError::TooLarge { bytes, limit: MAX_BATCH_BYTES });
        }
        Ok(())
    }

    /// Makes sure that the batch goes to space that is allocated, durably.
    fn make_room(&mut self, frame_bytes: u64) -> Result<(), AppendError> {
        let needed = self.end + frame_bytes + SLACK_BYTES;
        if needed <= self.allocated {
            return Ok(());
        }
        let most = self.options.allocation_bytes;
        let step = self.end.max(LEAST_ALLOCATION_BYTES).min(most);
        let (generous, least) = (whole_pages(needed + step), whole_pages(needed));
        match self.grow(generous) {
            Err(AppendError::DiskFull { .. }) => self.grow(least),
            result => result,
        }
    }

    fn grow(&mut self, length: u64) -> Result<(), AppendError> {
        if let Err(source) = fill_zeros(&*self.file, self.allocated, length) {
            if !is_disk_full(&source) {
                return Err(self.fail("enlarge", source));
            }
            let cut = self.file.set_length(self.allocated);
            cut.map_err(|error| self.fail("cut", error))?;
            return Err(AppendError::DiskFull { action: "enlarge", path: self.path.clone(), source });
        }
        // A separate sync: a slot may claim the new length only once it is durable.
        self.sync()?;
        self.allocated = length;
        Ok(())
    }

    /// Before the first batch: a closed file is marked as being written.
    ///
    /// Its name is made durable as well. The process that created or compacted the file may have ended before doing so,
    /// and always leaves a closed file.
    fn mark_open(&mut self) -> Result<(), AppendError> {
        if !self.slot.clean {
            return Ok(());
        }
        let named = self.io.sync_names();
        named.map_err(|error| self.fail("sync the directory of", error))?;
        self.write_slot(false)?;
        self.sync()
    }

    /// Writes the next slot, unless it would say what the last one says.
    fn write_slot(&mut self, clean: bool) -> Result<(), AppendError> {
        let slot = Slot {
            sequence: self.slot.sequence + 1,
            durable: self.end,
            allocated: self.allocated,
            revision: self.revision,
            clean,
        };
        let same = Slot { sequence: self.slot.sequence, ..slot } == self.slot;
        if same && !clean {
            return Ok(());
        }
        let bytes = slot.encode(self.seal);
        match self.file.write_all_at(&bytes, slot.offset()) {
            Ok(()) => {
                self.slot = slot;
                Ok(())
            }
            Err(source) if is_disk_full(&source) => {
                Err(AppendError::DiskFull { action: "write", path: self.path.clone(), source })
            }
            Err(error) => Err(self.fail("write", error)),
        }
    }

    /// A sync that failed is never tried again: the kernel may have dropped
    /// the pages, and would report success without having written them.
    fn sync(&mut self) -> Result<(), AppendError> {
        let synced = self.file.sync_data();
        synced.map_err(|error| self.fail("sync", error))
    }

    /// A batch that could not be written in full leaves zeros, as before it.
    fn erase_batch(&mut self, frame_bytes: u64, source: io::Error) -> AppendError {
        if !is_disk_full(&source) {
            return self.fail("write", source);
        }
        let erased = fill_zeros(&*self.file, self.end, self.end + frame_bytes).and_then(|()| self.file.sync_data());
        match erased {
            Ok(()) => AppendError::DiskFull { action: "write", path: self.path.clone(), source },
            Err(error) => self.fail("write", error),
        }
    }

    fn fail(&mut self, action: &'static str, source: io::Error) -> AppendError {
        let error = FileError::new(action, &self.path, source);
        self.poison(&format!("{error}: {}", error.source));
        AppendError::Failed(error)
    }
}

fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE as u64)
}

fn fill_zeros(file: &dyn LogFile, from: u64, to: u64) -> io::Result<()> {
    let mut offset = from;
    while offset < to {
        let count = (to - offset).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..count as usize], offset)?;
        offset += count;
    }
    Ok(())
}

/// Finds out now, not at the first compaction, whether files can be made
/// here, and removes what an interrupted compaction left.
fn probe(io: &dyn LogIo) -> Result<(), OpenError> {
    let probed = io.create(NEW_FILE_NAME).and_then(|_| io.remove(NEW_FILE_NAME));
    match probed {
        Err(error) if !is_disk_full(&error) => Err(open_error(&io.path(NEW_FILE_NAME), error)),
        _ => Ok(()),
    }
}

pub(super) fn open_error(path: &Path, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::ResourceBusy => {
            let directory = path.parent().unwrap_or(Path::new("")).to_owned();
            OpenError::AlreadyOpen { directory, process: None }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenError::NotWritable { path: path.to_owned(), source }
        }
        _ => FileError::new("open", path, source).into(),
    }
}

/// A new, empty store under its name.
fn create(io: &dyn LogIo, options: &Options) -> Result<Arc<dyn LogFile>, OpenError> {
    let path = io.path(FILE_NAME);
    let creating = |source| FileError::new("create", &path, source);
    let file = io.create(NEW_FILE_NAME).map_err(creating)?;
    let header = Header {
        store_id: options.new_store_id,
        generation: 1,
        compacted_revision: 0,
        created_unix_ms: options.now_unix_ms,
    };
    let mut writer = FileWriter::new(file, io.path(NEW_FILE_NAME), header);
    writer.end_objects()?;
    let finished = writer.finish()?;
    io.rename(NEW_FILE_NAME, FILE_NAME).map_err(creating)?;
    io.sync_names().map_err(creating)?;
    Ok(finished.file)
}

/// After a crash: makes what was read as durable as it is about to be shown.
///
/// Batches that no slot speaks of may exist in the page cache alone, even
/// after a sync that failed. Writing the same bytes again makes the pages
/// dirty, so that this sync covers them. What was torn becomes zeros again.
fn harden(file: &dyn LogFile, durable: u64, end: u64, tail: Tail) -> io::Result<()> {
    let mut buffer = vec![0; ZEROS.len()];
    let mut offset = durable;
    while offset < end {
        let wanted = (end - offset).min(buffer.len() as u64) as usize;
        let count = read_full(file, &mut buffer[..wanted], offset)?;
        if count < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_all_at(&buffer[..count], offset)?;
        offset += count as u64;
    }
    if let Tail::Torn { offset, bytes } = tail {
        fill_zeros(file, offset, offset + bytes)?;
    }
    file.sync_all()
}

fn notes(created: bool, preamble: &Preamble, tail: Tail) -> Vec<Note> {
    let mut notes = Vec::new();
    if created {
        notes.push(Note::Created);
    } else if !preamble.closed {
        notes.push(Note::NotClosed);
    }
    if let Tail::Torn { offset, bytes } = tail {
        notes.push(Note::TornTail { offset, bytes });
    }
    if let Some(index) = preamble.damaged_slot {
        let offset = Slot::page_offset(index);
        notes.push(Note::SlotReplaced { offset });
    }
    notes
}
