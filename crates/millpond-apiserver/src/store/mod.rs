//! The store: every object in memory, every change in one durable log, recent history for watchers.
//!
//! ```text
//! handler ── Write ──▶ queue ──▶ writer thread: check ─▶ number ─▶ log (one sync per batch) ─▶ state ─▶ answer
//! reader  ◀──────────────────────────────────────────────────────────────────────────── state ◀─┘   └▶ watchers
//! ```
//!
//! A change becomes visible only after it is durable, so a crash never takes back a revision that a client saw.
//! Handlers prepare changes side by side and the writer only compares revisions: a handler that lost the race reads
//! again and retries. Without a log (`Store::in_memory`) a commit happens in place, which keeps virtual time exact: no
//! other thread is ever waited for.

pub mod log;
mod object;
mod set_aside;
mod state;
mod verify;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

pub use self::object::{
    EncodeError, EncodedObject, Index, Limits, MAX_OBJECT_BYTES, MAX_OBJECT_DEPTH, Owner, READABLE_DEPTH, StoredObject,
};
pub use self::set_aside::SetAside;
use self::state::State;
pub use self::state::{Compacted, Event, EventKind};
pub use self::writer::StoreOptions;
use self::writer::Writer;
use crate::clock::Clock;

/// The condition on the stored object under which a write happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The object does not exist.
    Absent,
    /// The object has this revision.
    Revision(u64),
}

impl Expect {
    /// Whether an object at `current` is what is expected.
    fn holds(self, current: Option<u64>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::Revision(revision) => current == Some(revision),
        }
    }
}

/// One change to one object.
#[derive(Debug)]
pub struct Write {
    /// Name of the collection.
    pub collection: Arc<str>,
    /// `namespace/name`, or `name`.
    pub key: Arc<str>,
    /// Condition.
    pub expect: Expect,
    /// The new state, or the last one.
    pub draft: EncodedObject,
    /// The object goes away; the draft is what its last event shows.
    pub delete: bool,
}

/// Why a write did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The object is at another revision, gone, or already there: read again.
    #[error("the object has changed")]
    Raced,
    /// The object cannot be stored.
    #[error(transparent)]
    Refused(#[from] EncodeError),
    /// The log cannot take writes.
    #[error("the store cannot write: {0}")]
    Unavailable(Arc<str>),
}

/// All objects of a range, at one revision.
#[derive(Debug)]
pub struct Listing {
    /// The revision that the listing shows.
    pub revision: u64,
    /// Objects with their keys, in the order of keys.
    pub items: Vec<(Arc<str>, Arc<StoredObject>)>,
    /// How many objects follow the last item.
    pub remaining: usize,
}

struct Shared {
    state: RwLock<State>,
    /// The latest revision, for readers that follow all changes.
    changed: watch::Sender<u64>,
    clock: Clock,
}

/// A handle on the store; clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    mode: Mode,
}

#[derive(Clone)]
enum Mode {
    /// Commits take this lock and happen in place.
    Memory(Arc<Mutex<()>>),
    Durable(Arc<Writer>),
}

impl Store {
    /// A store that forgets everything when dropped.
    pub fn in_memory(clock: Clock) -> Self {
        Self::in_memory_from(0, clock)
    }

    /// The same with revisions above `revision`: all up to it are too old to be resumed from.
    pub fn in_memory_from(revision: u64, clock: Clock) -> Self {
        let state = RwLock::new(State::at(revision, revision));
        let shared = Arc::new(Shared { state, changed: watch::Sender::new(revision), clock });
        Self { shared, mode: Mode::Memory(Arc::default()) }
    }

    /// Opens (or makes) the store in a directory.
    pub fn open(directory: &Path, options: StoreOptions, clock: Clock) -> Result<Self, log::OpenError> {
        let (writer, shared) = Writer::open(directory, options, clock)?;
        Ok(Self { shared, mode: Mode::Durable(Arc::new(writer)) })
    }

    /// Makes one change. When this returns, the change is durable and visible.
    pub async fn commit(&self, write: Write) -> Result<Arc<StoredObject>, CommitError> {
        match &self.mode {
            Mode::Durable(writer) => writer.commit(write).await,
            Mode::Memory(lock) => {
                let _one_at_a_time = lock.lock();
                let changed = {
                    let mut state = self.shared.state.write();
                    if !holds(&state, &write) {
                        return Err(CommitError::Raced);
                    }
                    let now = self.shared.clock.unix_ms();
                    let object = Arc::new(write.draft.seal(state.revision + 1));
                    let event = state.apply(&write.collection, write.key, write.delete, object, now);
                    state.trim_history(now);
                    (event.object.clone(), notifier(&state, &write.collection))
                };
                changed.1.send_replace(changed.0.revision);
                self.shared.changed.send_replace(changed.0.revision);
                Ok(changed.0)
            }
        }
    }

    /// One object.
    pub fn get(&self, collection: &str, key: &str) -> Option<Arc<StoredObject>> {
        self.shared.state.read().collections.get(collection)?.objects.get(key).cloned()
    }

    /// The object that was found unreadable when the store was opened, if this is one.
    pub fn set_aside(&self, collection: &str, key: &str) -> Option<Arc<SetAside>> {
        self.shared.state.read().set_aside.get(collection, key)
    }

    /// Keys of unreadable objects of a collection under `prefix`.
    pub fn set_aside_keys(&self, collection: &str, prefix: &str) -> Vec<Arc<str>> {
        self.shared.state.read().set_aside.keys(collection, prefix)
    }

    /// The latest revision.
    pub fn revision(&self) -> u64 {
        self.shared.state.read().revision
    }

    /// The oldest revision that watches and lists can start from.
    pub fn compacted_revision(&self) -> u64 {
        self.shared.state.read().compacted
    }

    /// Objects under `prefix` after `after_key`; `keep` chooses, `limit` cuts (0: no limit).
    pub fn list(
        &self,
        collection: &str,
        prefix: &str,
        after_key: Option<&str>,
        limit: usize,
        mut keep: impl FnMut(&StoredObject, &str) -> bool,
    ) -> Listing {
        let state = self.shared.state.read();
        let range = state.range(collection, prefix, after_key).into_iter().flatten();
        let in_prefix = range.take_while(|(key, _)| key.starts_with(prefix));
        let (items, remaining) = take_page(in_prefix, limit, &mut keep);
        Listing { revision: state.revision, items, remaining }
    }

    /// The same as of an older revision.
    pub fn list_at(
        &self,
        collection: &str,
        prefix: &str,
        after_key: Option<&str>,
        limit: usize,
        revision: u64,
        mut keep: impl FnMut(&StoredObject, &str) -> bool,
    ) -> Result<Listing, Compacted> {
        let objects = {
            let state = self.shared.state.read();
            if revision >= state.revision {
                drop(state);
                return Ok(self.list(collection, prefix, after_key, limit, keep));
            }
            state.range_at(collection, prefix, after_key, revision)?
        };
        let (items, remaining) = take_page(objects.iter(), limit, &mut keep);
        Ok(Listing { revision, items, remaining })
    }

    /// Events of a collection after a revision, and the revision up to which they are complete.
    pub fn events_after(&self, collection: &str, after: u64, max: usize) -> Result<(Vec<Arc<Event>>, u64), Compacted> {
        let state = self.shared.state.read();
        let events = state.events_after(collection, after, max)?;
        let complete_to =
            if events.len() == max { events.last().map_or(after, |event| event.revision()) } else { state.revision };
        Ok((events, complete_to))
    }

    /// A receiver that wakes when the collection changes.
    pub fn subscribe(&self, collection: &Arc<str>) -> watch::Receiver<u64> {
        if let Some(collection) = self.shared.state.read().collections.get(collection) {
            return collection.changed.subscribe();
        }
        self.shared.state.write().collections.entry(collection.clone()).or_default().changed.subscribe()
    }

    /// Events of all collections after a revision, with the names of their collections.
    #[expect(clippy::type_complexity, reason = "a pair of a list and a number, read in one place")]
    pub fn all_events_after(&self, after: u64, max: usize) -> Result<(Vec<(Arc<str>, Arc<Event>)>, u64), Compacted> {
        let state = self.shared.state.read();
        let events = state.all_events_after(after, max)?;
        let complete_to = if events.len() == max {
            events.last().map_or(after, |(_, event)| event.revision())
        } else {
            state.revision
        };
        Ok((events, complete_to))
    }

    /// A receiver that wakes when anything changes.
    pub fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// The object with this uid among those that are being deleted.
    pub fn find_deleting(&self, uid: &str) -> Option<((Arc<str>, Arc<str>), Arc<StoredObject>)> {
        let state = self.shared.state.read();
        let (collection, key) = state.deleting.get(uid)?;
        let object = state.collections.get(collection)?.objects.get(key)?;
        Some(((collection.clone(), key.clone()), object.clone()))
    }

    /// Number of objects in a collection.
    pub fn count(&self, collection: &str) -> usize {
        self.shared.state.read().collections.get(collection).map_or(0, |collection| collection.objects.len())
    }

    /// Number of objects in each collection.
    pub fn sizes(&self) -> BTreeMap<Arc<str>, usize> {
        let state = self.shared.state.read();
        state.collections.iter().map(|(name, collection)| (name.clone(), collection.objects.len())).collect()
    }

    /// Every object of every collection at one revision.
    pub fn everything(&self) -> (u64, Vec<(Arc<str>, Arc<str>, Arc<StoredObject>)>) {
        self.shared.everything()
    }

    /// Forgets the history, as if all of it had grown old.
    pub fn forget_history(&self) {
        self.shared.state.write().forget_history();
    }

    /// Why the store takes no more writes, if so.
    pub fn broken(&self) -> Option<Arc<str>> {
        match &self.mode {
            Mode::Memory(_) => None,
            Mode::Durable(writer) => writer.broken(),
        }
    }

    /// Waits until the queue is empty and the log is closed. Later writes fail.
    pub async fn close(&self) {
        if let Mode::Durable(writer) = &self.mode {
            writer.close().await;
        }
    }
}

impl Shared {
    fn everything(&self) -> (u64, Vec<(Arc<str>, Arc<str>, Arc<StoredObject>)>) {
        let state = self.state.read();
        let objects = state.collections.iter().flat_map(|(name, collection)| {
            collection.objects.iter().map(move |(key, object)| (name.clone(), key.clone(), object.clone()))
        });
        (state.revision, objects.collect())
    }
}

fn notifier(state: &State, collection: &str) -> watch::Sender<u64> {
    state.collections[collection].changed.clone()
}

fn holds(state: &State, write: &Write) -> bool {
    write.expect.holds(state.revision_of(&write.collection, &write.key))
}

/// Takes up to `limit` chosen items and counts how many chosen ones follow.
fn take_page<'a>(
    objects: impl Iterator<Item = (&'a Arc<str>, &'a Arc<StoredObject>)>,
    limit: usize,
    keep: &mut impl FnMut(&StoredObject, &str) -> bool,
) -> (Vec<(Arc<str>, Arc<StoredObject>)>, usize) {
    let mut items = Vec::new();
    let mut remaining = 0;
    for (key, object) in objects.filter(|(key, object)| keep(object, key)) {
        if limit != 0 && items.len() == limit {
            remaining += 1;
        } else {
            items.push((key.clone(), object.clone()));
        }
    }
    (items, remaining)
}
