//! The one thread that writes: it takes what has queued up, makes it durable with one sync, then lets it be seen.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use super::log::{self, AppendError, CompactError, CompactedFile, LiveObject, Log, Record, RecordKind, Snapshot};
use super::object::{StoredObject, loaded};
use super::state::State;
use super::{CommitError, SetAside, Shared, Write};
use crate::clock::Clock;

/// Writes in one commit at most: beyond this the log's sync no longer costs anything per write.
const BATCH_WRITES: usize = 4096;
/// Bytes in one commit at most, well below what the log takes.
const BATCH_BYTES: usize = 8 << 20;
/// With this many concurrent writers, the next batch is gathered for a moment: on a busy machine each sync would
/// otherwise cover only the few writes that came during the previous one, and syncs cost more than the writes.
const CROWD: usize = 32;
/// How long a batch is gathered; short compared with the latency at that load.
const GATHER: Duration = Duration::from_micros(300);
/// After so long without a write the log notes how far it reaches.
const IDLE: Duration = Duration::from_millis(500);
/// While the disk is full, the thread looks for space this often.
const PROBE: Duration = Duration::from_secs(1);

/// Settings of a durable store.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// Compact when the file has grown by this many bytes; by default the log decides.
    pub compaction_growth_bytes: Option<u64>,
}

type Reply = oneshot::Sender<Result<Arc<StoredObject>, CommitError>>;

enum Job {
    Write(Box<Write>, Reply),
    Compacted(Box<Result<CompactedFile, CompactError>>),
    Close(oneshot::Sender<()>),
}

/// A handle on the thread.
pub(super) struct Writer {
    queue: Mutex<Sender<Job>>,
    broken: Arc<RwLock<Option<Arc<str>>>>,
    writers: Arc<AtomicUsize>,
}

/// Counts a writer until it has looked at its answer.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(writers: &'a AtomicUsize) -> Self {
        writers.fetch_add(1, Ordering::Relaxed);
        Self(writers)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes the space that is kept for deletes: the disk may be full before the first write. Where it is full already, the
/// first write tells.
fn reserve(log: &mut Log) {
    match log.probe_space() {
        Ok(()) | Err(AppendError::DiskFull { .. }) => {}
        Err(problem) => tracing::error!(%problem, "cannot take the space that is kept for deletes"),
    }
}

impl Writer {
    pub(super) fn open(
        directory: &Path,
        options: StoreOptions,
        clock: Clock,
    ) -> Result<(Self, Arc<Shared>), log::OpenError> {
        let mut log_options = log::Options::new(clock.unix_ms(), uuid::Uuid::new_v4().into_bytes());
        if let Some(bytes) = options.compaction_growth_bytes {
            log_options.compaction_growth_bytes = bytes;
        }
        let (mut log, recovered) = Log::open(directory, log_options)?;
        reserve(&mut log);
        for note in &recovered.notes {
            tracing::info!(store = %directory.display(), "{note}");
        }
        let revision = recovered.revision;
        let shared =
            Arc::new(Shared { state: RwLock::new(rebuilt(recovered)), changed: watch::Sender::new(revision), clock });
        let (queue, jobs) = channel();
        let broken = Arc::new(RwLock::new(None));
        let writers = Arc::new(AtomicUsize::new(0));
        let thread = Thread {
            log: Some(log),
            shared: shared.clone(),
            broken: broken.clone(),
            writers: writers.clone(),
            queue: queue.clone(),
            pause: Box::new(std::thread::sleep),
        };
        std::thread::Builder::new()
            .name("millpond-store".to_owned())
            .spawn(move || thread.run(&jobs))
            .expect("a process that just started can start one more thread");
        Ok((Self { queue: Mutex::new(queue), broken, writers }, shared))
    }

    pub(super) async fn commit(&self, write: Write) -> Result<Arc<StoredObject>, CommitError> {
        let _counted = Counted::new(&self.writers);
        let (reply, answer) = oneshot::channel();
        let closed = || CommitError::Unavailable("the store is closed".into());
        self.queue.lock().send(Job::Write(Box::new(write), reply)).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    pub(super) fn broken(&self) -> Option<Arc<str>> {
        self.broken.read().clone()
    }

    pub(super) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.queue.lock().send(Job::Close(reply)).is_ok() {
            let _ = closed.await;
        }
    }
}

/// Puts the recovered objects and history into memory. What cannot be read is set aside; history before an event
/// that cannot be read is dropped, so that watchers list anew instead of missing it.
fn rebuilt(recovered: log::Recovered) -> State {
    let mut state = State::at(recovered.revision, recovered.compacted_revision);
    let mut at_revision: HashMap<u64, Arc<StoredObject>> = HashMap::new();
    let in_history: std::collections::HashSet<u64> =
        recovered.history.iter().map(|entry| entry.record.revision).collect();
    for LiveObject { resource, key, revision, object } in recovered.objects {
        match loaded(revision, object.clone()) {
            Ok(object) => {
                if in_history.contains(&revision) {
                    at_revision.insert(revision, object.clone());
                }
                state.restore(&resource, key, object);
            }
            Err(problem) => {
                let problem = problem.to_string();
                tracing::error!(
                    resource = &*resource,
                    key = &*key,
                    revision,
                    problem,
                    "a stored object cannot be read: it is kept in the store and not served until it is deleted"
                );
                state.restore_unreadable(&resource, key, SetAside { revision, bytes: object, problem });
            }
        }
    }
    for log::HistoryRecord { record, previous } in recovered.history {
        let object = match at_revision.remove(&record.revision) {
            Some(object) => Ok(object),
            None => loaded(record.revision, record.object),
        };
        let previous = previous.map(|previous| loaded(previous.revision, previous.object)).transpose();
        let (Ok(object), Ok(previous)) = (object, previous) else {
            state.forget_history_to(record.revision);
            continue;
        };
        let deleted = record.kind == RecordKind::Delete;
        state.recall(&record.resource, record.key, deleted, object, previous, record.time_unix_ms);
    }
    state
}

struct Thread {
    /// `None` after the store was closed.
    log: Option<Log>,
    shared: Arc<Shared>,
    broken: Arc<RwLock<Option<Arc<str>>>>,
    writers: Arc<AtomicUsize>,
    queue: Sender<Job>,
    /// Lets a moment pass.
    pause: Box<dyn FnMut(Duration) + Send>,
}

/// A batch in progress: its records, and the callers that wait for it.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    objects: Vec<Arc<StoredObject>>,
    replies: Vec<Reply>,
    /// Revisions of keys after this batch; `None` for deleted keys.
    overlay: HashMap<(Arc<str>, Arc<str>), Option<u64>>,
    bytes: usize,
}

impl Batch {
    /// Separates deletes from other writes, each in order. A write that only continues a deletion (it sets a deadline
    /// or removes a finalizer) counts as a delete, because it leads to one. No delete depends on another write of its
    /// batch, because a write names a revision that was committed before.
    fn split_deletes(self) -> (Self, Self) {
        let (mut deletes, mut others) = (Self::default(), Self::default());
        for ((record, object), reply) in self.records.into_iter().zip(self.objects).zip(self.replies) {
            let is_delete = record.kind == RecordKind::Delete || object.index.deleting;
            let part = if is_delete { &mut deletes } else { &mut others };
            part.records.push(record);
            part.objects.push(object);
            part.replies.push(reply);
        }
        (deletes, others)
    }

    fn refuse(self, why: &Arc<str>) {
        for reply in self.replies {
            let _ = reply.send(Err(CommitError::Unavailable(why.clone())));
        }
    }
}

impl Thread {
    fn run(mut self, jobs: &Receiver<Job>) {
        while self.log.is_some() {
            let first = match jobs.recv_timeout(IDLE) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    self.idle();
                    match self.next_after_idle(jobs) {
                        Some(job) => job,
                        None => break,
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.turn(first, jobs);
        }
    }

    /// Waits for a job; meanwhile looks for space if the disk was full.
    fn next_after_idle(&mut self, jobs: &Receiver<Job>) -> Option<Job> {
        while self.broken.read().is_some() {
            match jobs.recv_timeout(PROBE) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => self.probe(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        jobs.recv().ok()
    }

    /// After a full disk: is there space again? A log that failed otherwise stays as it is until a restart.
    fn probe(&mut self) {
        let Some(log) = self.log.as_mut().filter(|log| !log.is_poisoned()) else { return };
        match log.probe_space() {
            Ok(()) => {
                tracing::info!("the disk has space again: the store can write");
                *self.broken.write() = None;
            }
            Err(log::AppendError::DiskFull { .. }) => {}
            Err(problem) => {
                self.note_failure(&problem);
            }
        }
    }

    /// Takes the first job; with a crowd under way, not before the others had a moment to queue theirs.
    fn turn(&mut self, first: Job, jobs: &Receiver<Job>) {
        if self.writers.load(Ordering::Relaxed) >= CROWD {
            (self.pause)(GATHER);
        }
        self.take(first, jobs);
    }

    fn idle(&mut self) {
        let now = self.shared.clock.unix_ms();
        self.shared.state.write().trim_history(now);
        if let Some(log) = &mut self.log
            && let Err(problem) = log.settle()
        {
            self.note_failure(&problem);
        }
    }

    /// Commits the first job together with all that wait behind it.
    fn take(&mut self, first: Job, jobs: &Receiver<Job>) {
        let mut batch = Batch::default();
        let mut next = Some(first);
        let mut after = None;
        while let Some(job) = next {
            match job {
                Job::Write(write, reply) => self.add(&mut batch, *write, reply),
                other => {
                    after = Some(other);
                    break;
                }
            }
            let full = batch.records.len() >= BATCH_WRITES || batch.bytes >= BATCH_BYTES;
            next = if full { None } else { jobs.try_recv().ok() };
        }
        self.commit(batch);
        match after {
            Some(Job::Compacted(file)) => self.finish_compaction(*file),
            Some(Job::Close(reply)) => self.close(reply),
            Some(Job::Write(..)) | None => {}
        }
        self.start_compaction();
    }

    fn add(&self, batch: &mut Batch, write: Write, reply: Reply) {
        let state = self.shared.state.read();
        let place = (write.collection, write.key);
        let current = match batch.overlay.get(&place) {
            Some(revision) => *revision,
            None => state.revision_of(&place.0, &place.1),
        };
        if !write.expect.holds(current) {
            let _ = reply.send(Err(CommitError::Raced));
            return;
        }
        let revision = state.revision + batch.records.len() as u64 + 1;
        let object = Arc::new(write.draft.seal(revision));
        batch.bytes += object.bytes.len();
        batch.records.push(Record {
            revision,
            kind: if write.delete { RecordKind::Delete } else { RecordKind::Put },
            time_unix_ms: self.shared.clock.unix_ms(),
            resource: place.0.clone(),
            key: place.1.clone(),
            object: object.bytes.clone(),
        });
        batch.overlay.insert(place, (!write.delete).then_some(revision));
        batch.objects.push(object);
        batch.replies.push(reply);
    }

    fn commit(&mut self, batch: Batch) {
        if batch.records.is_empty() {
            return;
        }
        let Some(log) = &mut self.log else { return };
        match log.append(&batch.records) {
            Ok(()) => {
                *self.broken.write() = None;
                self.publish(batch);
                self.fill_ahead();
            }
            Err(problem @ log::AppendError::DiskFull { .. }) => {
                let why = self.note_failure(&problem);
                let (deletes, others) = batch.split_deletes();
                others.refuse(&why);
                self.commit_deletes(deletes);
            }
            Err(problem) => batch.refuse(&self.note_failure(&problem)),
        }
    }

    /// On a full disk: deletes go to the space that is kept for them. The store stays unhealthy.
    fn commit_deletes(&mut self, batch: Batch) {
        let Some(log) = self.log.as_mut().filter(|_| !batch.records.is_empty()) else { return };
        match log.append_deletes(&batch.records) {
            Ok(()) => self.publish(batch),
            Err(problem) => batch.refuse(&self.note_failure(&problem)),
        }
    }

    /// All callers have their response, so there is time to prepare the space for the next commit.
    fn fill_ahead(&mut self) {
        let filled = self.log.as_mut().map_or(Ok(()), Log::fill_ahead);
        if let Err(problem) = filled {
            self.note_failure(&problem);
        }
    }

    /// Makes a durable batch visible, wakes the watchers, answers the writers.
    fn publish(&self, batch: Batch) {
        let mut wakes: HashMap<Arc<str>, (watch::Sender<u64>, u64)> = HashMap::new();
        let mut last = 0;
        {
            let mut state = self.shared.state.write();
            for (record, object) in batch.records.into_iter().zip(&batch.objects) {
                let deleted = record.kind == RecordKind::Delete;
                state.apply(&record.resource, record.key, deleted, object.clone(), record.time_unix_ms);
                last = record.revision;
                let sender = || state.collections[&record.resource].changed.clone();
                wakes.entry(record.resource.clone()).or_insert_with(|| (sender(), 0)).1 = record.revision;
            }
            state.trim_history(self.shared.clock.unix_ms());
        }
        for (sender, revision) in wakes.into_values() {
            sender.send_replace(revision);
        }
        self.shared.changed.send_replace(last);
        for (reply, object) in batch.replies.into_iter().zip(batch.objects) {
            let _ = reply.send(Ok(object));
        }
    }

    fn note_failure(&self, problem: &log::AppendError) -> Arc<str> {
        let mut why = problem.to_string();
        let mut source = std::error::Error::source(problem);
        while let Some(cause) = source {
            why = format!("{why}: {cause}");
            source = cause.source();
        }
        tracing::error!(problem = %why, "the store cannot write");
        let why: Arc<str> = why.into();
        *self.broken.write() = Some(why.clone());
        why
    }

    fn start_compaction(&mut self) {
        let kept_bytes = self.shared.state.read().kept_bytes();
        let Some(log) = self.log.as_mut().filter(|log| log.wants_compaction(kept_bytes)) else { return };
        let Some(job) = log.begin_compaction(self.shared.clock.unix_ms()) else { return };
        let (shared, queue) = (self.shared.clone(), self.queue.clone());
        let spawned = std::thread::Builder::new().name("millpond-compact".to_owned()).spawn(move || {
            // In a statement of its own: the lock must be released before the long write begins.
            let snapshot = shared.state.read().snapshot();
            let result = job.write(snapshot);
            let _ = queue.send(Job::Compacted(Box::new(result)));
        });
        if let Err(problem) = spawned {
            tracing::warn!(%problem, "cannot compact the store now");
        }
    }

    fn finish_compaction(&mut self, file: Result<CompactedFile, CompactError>) {
        let Some(log) = &mut self.log else { return };
        match file.and_then(|file| log.finish_compaction(file)) {
            Ok(summary) => {
                tracing::info!(before = summary.bytes_before, after = summary.bytes_after, "compacted the store");
                // Giving back the space of a large file takes a while.
                let _ = std::thread::Builder::new().spawn(move || drop(summary.retired));
            }
            Err(problem) => tracing::warn!(%problem, "could not compact the store"),
        }
    }

    fn close(&mut self, reply: oneshot::Sender<()>) {
        if let Some(log) = self.log.take()
            && let Err(problem) = log.close()
        {
            self.note_failure(&problem);
        }
        let _ = reply.send(());
    }
}

impl State {
    /// Everything, as the log's compaction wants it. The iterator owns what it needs.
    fn snapshot(&self) -> Snapshot<std::vec::IntoIter<LiveObject>> {
        let live: Vec<LiveObject> = self
            .collections
            .iter()
            .flat_map(|(name, collection)| {
                collection.objects.iter().map(move |(key, object)| LiveObject {
                    resource: name.clone(),
                    key: key.clone(),
                    revision: object.revision,
                    object: object.bytes.clone(),
                })
            })
            .chain(self.set_aside.iter().map(|(resource, key, object)| LiveObject {
                resource,
                key,
                revision: object.revision,
                object: object.bytes.clone(),
            }))
            .collect();
        Snapshot {
            revision: self.revision,
            compacted_revision: self.compacted,
            live: live.into_iter(),
            history: self.history_records(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{EncodedObject, Expect};
    use super::*;

    /// One turn of the writer thread with this many writers: the first has queued its write, the others do so while the
    /// thread pauses. Returns the number of pauses, and the batches and records in the file.
    fn turn_with(writers: usize) -> (usize, u64, u64) {
        let directory = tempfile::tempdir().unwrap();
        let (log, recovered) = Log::open(directory.path(), log::Options::new(0, [7; 16])).unwrap();
        let shared = Arc::new(Shared {
            state: RwLock::new(rebuilt(recovered)),
            changed: watch::Sender::new(0),
            clock: Clock::System,
        });
        let (queue, jobs) = channel();
        let (mut others, mut answers): (Vec<_>, Vec<_>) = (0..writers).map(write).unzip();
        let first = others.remove(0);
        let pauses = Arc::new(AtomicUsize::new(0));
        let (counted, joining) = (pauses.clone(), queue.clone());
        let pause = move |length| {
            assert_eq!(length, GATHER);
            counted.fetch_add(1, Ordering::Relaxed);
            others.drain(..).for_each(|job| joining.send(job).unwrap());
        };
        let mut thread = Thread {
            log: Some(log),
            shared,
            broken: Arc::default(),
            writers: Arc::new(AtomicUsize::new(writers)),
            queue,
            pause: Box::new(pause),
        };
        thread.turn(first, &jobs);
        assert!(answers.remove(0).try_recv().unwrap().is_ok(), "the first is answered");
        thread.close(oneshot::channel().0);
        let file = log::check(&directory.path().join(log::FILE_NAME)).unwrap();
        (pauses.load(Ordering::Relaxed), file.batches, file.records)
    }

    fn write(number: usize) -> (Job, oneshot::Receiver<Result<Arc<StoredObject>, CommitError>>) {
        let (reply, answer) = oneshot::channel();
        let write = Write {
            collection: "things".into(),
            key: number.to_string().into(),
            expect: Expect::Absent,
            draft: EncodedObject::new(&json!({"metadata": {"uid": number.to_string()}})).unwrap(),
            delete: false,
        };
        (Job::Write(Box::new(write), reply), answer)
    }

    /// A thread over a disk in memory.
    fn thread_on(disk: &log::faulty::FaultyDisk) -> (Thread, Receiver<Job>) {
        let options = log::Options {
            reserve_bytes: 16 << 10,
            allocation_bytes: 2048,
            ahead_bytes: 2048,
            ..log::Options::new(0, [7; 16])
        };
        let (log, recovered) = Log::open_in(Arc::new(disk.clone()), options).unwrap();
        let state = RwLock::new(rebuilt(recovered));
        let shared = Arc::new(Shared { state, changed: watch::Sender::new(0), clock: Clock::System });
        let (queue, jobs) = channel();
        let (broken, writers) = (Arc::default(), Arc::default());
        (Thread { log: Some(log), shared, broken, writers, queue, pause: Box::new(|_| ()) }, jobs)
    }

    fn job(key: &str, expect: Expect, size: usize, delete: bool) -> (Job, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        let object = json!({"metadata": {"uid": key}, "data": "x".repeat(size)});
        let (collection, draft) = ("things".into(), EncodedObject::new(&object).unwrap());
        (Job::Write(Box::new(Write { collection, key: key.into(), expect, draft, delete }), reply), answer)
    }

    type Answer = Result<Arc<StoredObject>, CommitError>;

    #[tokio::test]
    async fn space_for_deletes_is_taken_at_start() {
        let directory = tempfile::tempdir().unwrap();
        let length = || std::fs::metadata(directory.path().join(log::FILE_NAME)).unwrap().len();
        let kept = log::Options::new(0, [7; 16]).reserve_bytes;
        for start in ["a new file", "a file that was closed, which leaves it as long as its data"] {
            let (writer, _shared) = Writer::open(directory.path(), StoreOptions::default(), Clock::System).unwrap();
            assert!(length() > kept, "{start} has {} bytes, nothing was written yet", length());
            writer.close().await;
            assert!(length() < kept, "{start} was closed with {} bytes", length());
        }
    }

    #[test]
    fn a_full_disk_lets_deletes_through_and_health_recovers_without_a_write() {
        let disk = log::faulty::FaultyDisk::new(1);
        let (mut thread, jobs) = thread_on(&disk);
        let commit = |thread: &mut Thread, all: Vec<(Job, oneshot::Receiver<Answer>)>| {
            let (mut waiting, mut answers): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            let first = waiting.remove(0);
            waiting.into_iter().for_each(|job| thread.queue.send(job).unwrap());
            thread.turn(first, &jobs);
            answers.iter_mut().map(|answer| answer.try_recv().unwrap()).collect::<Vec<Answer>>()
        };
        let keys: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
        let made = commit(&mut thread, keys.iter().map(|key| job(key, Expect::Absent, 250, false)).collect());
        disk.set_capacity(Some(disk.used_bytes()));

        let large = 2 << 20;
        let mut mixed = vec![job("large", Expect::Absent, large, false)];
        for (key, answer) in keys.iter().zip(made) {
            mixed.push(job(key, Expect::Revision(answer.unwrap().revision), 250, true));
        }
        let answers = commit(&mut thread, mixed);
        assert!(answers[0].is_err(), "the disk is full");
        assert!(answers[1..].iter().all(Result::is_ok), "deletes beside a write that does not fit");
        assert!(thread.shared.state.read().collections["things"].objects.is_empty());
        assert!(thread.broken.read().is_some());
        thread.probe();
        assert!(thread.broken.read().is_some(), "the disk is still full");
        disk.set_capacity(None);
        thread.probe();
        assert!(thread.broken.read().is_none(), "no write was needed");
        assert!(commit(&mut thread, vec![job("large", Expect::Absent, large, false)])[0].is_ok());
    }

    #[test]
    fn a_lone_writer_is_not_held_up() {
        assert_eq!(turn_with(1), (0, 1, 1));
        assert_eq!(turn_with(CROWD - 1), (0, 1, 1), "nor are a few");
    }

    #[test]
    fn a_crowd_shares_one_commit() {
        assert_eq!(turn_with(CROWD), (1, 1, CROWD as u64));
    }
}
