//! The state in memory: every object, and the recent history that watches and paged lists read from.
//!
//! The history is the queue of every watcher: a watcher keeps a revision and asks for what came after. One that falls
//! behind the history gets 410 instead of holding memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::watch;

use super::log::{HistoryRecord, Previous, Record, RecordKind};
use super::object::StoredObject;
use super::set_aside::{AllSetAside, SetAside};

/// Minimum number of revisions kept as history, whatever their age (kine's rule).
pub(super) const HISTORY_MIN_REVISIONS: usize = 1_000;
/// History kept at most: a watcher that is further behind must list again.
pub(super) const HISTORY_MAX_REVISIONS: usize = 200_000;
/// Bytes of objects that only the history holds. Bounds memory under a storm of writes to large objects.
pub(super) const HISTORY_MAX_BYTES: usize = 96 << 20;
/// Age beyond which history may go.
pub(super) const HISTORY_MAX_AGE_MS: u64 = 5 * 60 * 1000;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// The object was deleted; the event has its last state.
    Deleted,
}

/// One change.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// `namespace/name`, or `name`.
    pub key: Arc<str>,
    /// The object after the change; for deletions its last state, at the revision of the deletion.
    pub object: Arc<StoredObject>,
    /// The object before the change.
    pub previous: Option<Arc<StoredObject>>,
    /// The watch frame of an unconverted JSON watch: written by the first watcher, shared by all.
    pub(crate) frame: OnceLock<Bytes>,
}

impl Event {
    /// The revision of the change.
    pub fn revision(&self) -> u64 {
        self.object.revision
    }

    fn held_bytes(&self) -> usize {
        match self.kind {
            EventKind::Deleted => self.object.bytes.len(),
            _ => self.previous.as_ref().map_or(0, |previous| previous.bytes.len()),
        }
    }
}

/// All objects of one resource.
pub(super) struct Collection {
    pub(super) objects: BTreeMap<Arc<str>, Arc<StoredObject>>,
    events: VecDeque<Arc<Event>>,
    pub(super) changed: watch::Sender<u64>,
}

impl Default for Collection {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), events: VecDeque::new(), changed: watch::Sender::new(0) }
    }
}

/// Everything in memory.
#[derive(Default)]
pub(super) struct State {
    pub(super) revision: u64,
    /// History is complete above this revision.
    pub(super) compacted: u64,
    pub(super) collections: HashMap<Arc<str>, Collection>,
    /// Uid → place of the objects that are being deleted: the collector looks for owners that wait.
    pub(super) deleting: HashMap<Box<str>, (Arc<str>, Arc<str>)>,
    /// Objects that cannot be read. They are not served; their keys are taken until they are deleted.
    pub(super) set_aside: AllSetAside,
    /// One entry per event of the collections' histories, oldest first.
    history: VecDeque<HistoryEntry>,
    history_bytes: usize,
    /// About what the objects take in a file.
    live_bytes: usize,
}

struct HistoryEntry {
    revision: u64,
    time_unix_ms: u64,
    collection: Arc<str>,
    bytes: usize,
}

/// About what an object takes in a file: its text, its name, and the numbers around them.
fn stored_bytes(key: &str, object: &[u8]) -> usize {
    const AROUND: usize = 32;
    AROUND + key.len() + object.len()
}

/// The revision asked for is older than the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("revision is older than the history, which starts at {oldest}")]
pub struct Compacted {
    /// The oldest revision that can still be asked for.
    pub oldest: u64,
}

impl State {
    /// An empty state whose next revision follows `revision`.
    pub(super) fn at(revision: u64, compacted: u64) -> Self {
        Self { revision, compacted, ..Self::default() }
    }

    /// Takes in one committed change and returns its event.
    pub(super) fn apply(
        &mut self,
        collection_name: &Arc<str>,
        key: Arc<str>,
        deleted: bool,
        object: Arc<StoredObject>,
        time_unix_ms: u64,
    ) -> Arc<Event> {
        debug_assert!(object.revision > self.revision, "revisions only rise");
        self.revision = object.revision;
        if deleted {
            self.deleting.remove(&object.index.uid);
        } else if object.index.deleting {
            self.deleting.insert(object.index.uid.clone(), (collection_name.clone(), key.clone()));
        }
        let collection = self.collections.entry(collection_name.clone()).or_default();
        let previous = if deleted {
            collection.objects.remove(&key)
        } else {
            self.live_bytes += stored_bytes(&key, &object.bytes);
            collection.objects.insert(key.clone(), object.clone())
        };
        if let Some(previous) = &previous {
            self.live_bytes -= stored_bytes(&key, &previous.bytes);
        } else if let Some(unreadable) = self.set_aside.remove(collection_name, &key) {
            self.live_bytes -= stored_bytes(&key, &unreadable.bytes);
        }
        let kind = match (deleted, &previous) {
            (true, _) => EventKind::Deleted,
            (false, None) => EventKind::Added,
            (false, Some(_)) => EventKind::Modified,
        };
        let event = Arc::new(Event { kind, key, object, previous, frame: OnceLock::new() });
        self.remember(collection_name, event.clone(), time_unix_ms);
        event
    }

    /// Takes in an object that was loaded, without an event.
    pub(super) fn restore(&mut self, collection_name: &Arc<str>, key: Arc<str>, object: Arc<StoredObject>) {
        if object.index.deleting {
            self.deleting.insert(object.index.uid.clone(), (collection_name.clone(), key.clone()));
        }
        self.live_bytes += stored_bytes(&key, &object.bytes);
        self.collections.entry(collection_name.clone()).or_default().objects.insert(key, object);
    }

    /// Takes in an object that was loaded and cannot be read.
    pub(super) fn restore_unreadable(&mut self, collection: &Arc<str>, key: Arc<str>, object: SetAside) {
        self.live_bytes += stored_bytes(&key, &object.bytes);
        self.set_aside.insert(collection.clone(), key, object);
    }

    /// The revision of an object, readable or not.
    pub(super) fn revision_of(&self, collection: &str, key: &str) -> Option<u64> {
        let object = self.collections.get(collection).and_then(|collection| collection.objects.get(key));
        let readable = object.map(|object| object.revision);
        readable.or_else(|| self.set_aside.get(collection, key).map(|object| object.revision))
    }

    /// About what a compacted file would hold: every object, and what only the history knows.
    pub(super) fn kept_bytes(&self) -> u64 {
        (self.live_bytes + self.history_bytes) as u64
    }

    /// Takes in an event of before the restart.
    pub(super) fn recall(
        &mut self,
        collection_name: &Arc<str>,
        key: Arc<str>,
        deleted: bool,
        object: Arc<StoredObject>,
        previous: Option<Arc<StoredObject>>,
        time_unix_ms: u64,
    ) {
        let kind = match (deleted, &previous) {
            (true, _) => EventKind::Deleted,
            (false, None) => EventKind::Added,
            (false, Some(_)) => EventKind::Modified,
        };
        let event = Arc::new(Event { kind, key, object, previous, frame: OnceLock::new() });
        self.remember(collection_name, event, time_unix_ms);
    }

    /// The history as the log keeps it.
    pub(super) fn history_records(&self) -> Vec<HistoryRecord> {
        let entries = self.history.iter().filter_map(|entry| Some((entry, self.event_at(entry)?)));
        entries
            .map(|(entry, event)| HistoryRecord {
                record: Record {
                    revision: entry.revision,
                    kind: if event.kind == EventKind::Deleted { RecordKind::Delete } else { RecordKind::Put },
                    time_unix_ms: entry.time_unix_ms,
                    resource: entry.collection.clone(),
                    key: event.key.clone(),
                    object: event.object.bytes.clone(),
                },
                previous: event
                    .previous
                    .as_ref()
                    .map(|previous| Previous { revision: previous.revision, object: previous.bytes.clone() }),
            })
            .collect()
    }

    /// Puts an event into the history.
    pub(super) fn remember(&mut self, collection_name: &Arc<str>, event: Arc<Event>, time_unix_ms: u64) {
        let bytes = event.held_bytes();
        self.history_bytes += bytes;
        self.history.push_back(HistoryEntry {
            revision: event.revision(),
            time_unix_ms,
            collection: collection_name.clone(),
            bytes,
        });
        self.collections.entry(collection_name.clone()).or_default().events.push_back(event);
    }

    /// Drops history that is too old or too much.
    pub(super) fn trim_history(&mut self, now_unix_ms: u64) {
        while self.history.len() > HISTORY_MIN_REVISIONS {
            let Some(oldest) = self.history.front() else { break };
            let old = oldest.time_unix_ms + HISTORY_MAX_AGE_MS < now_unix_ms;
            let much = self.history.len() > HISTORY_MAX_REVISIONS || self.history_bytes > HISTORY_MAX_BYTES;
            if !old && !much {
                break;
            }
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.history.pop_front() else { return };
        self.history_bytes -= oldest.bytes;
        self.compacted = oldest.revision;
        if let Some(collection) = self.collections.get_mut(&oldest.collection) {
            let dropped = collection.events.pop_front();
            debug_assert_eq!(dropped.map(|event| event.revision()), Some(oldest.revision));
        }
    }

    /// Forgets all history, so that every older revision is answered with 410 (for tests of that answer).
    pub(super) fn forget_history(&mut self) {
        while !self.history.is_empty() {
            self.drop_oldest();
        }
        self.compacted = self.revision;
    }

    /// Drops history up to a revision.
    pub(super) fn forget_history_to(&mut self, revision: u64) {
        while self.history.front().is_some_and(|oldest| oldest.revision <= revision) {
            self.drop_oldest();
        }
        self.compacted = self.compacted.max(revision);
    }

    /// Events of a collection after `after`, oldest first, at most `max`.
    pub(super) fn events_after(&self, name: &str, after: u64, max: usize) -> Result<Vec<Arc<Event>>, Compacted> {
        if after < self.compacted {
            return Err(Compacted { oldest: self.compacted });
        }
        let Some(collection) = self.collections.get(name) else { return Ok(Vec::new()) };
        let start = collection.events.partition_point(|event| event.revision() <= after);
        Ok(collection.events.iter().skip(start).take(max).cloned().collect())
    }

    /// Events of all collections after `after`, oldest first, at most `max`.
    pub(super) fn all_events_after(&self, after: u64, max: usize) -> Result<Vec<(Arc<str>, Arc<Event>)>, Compacted> {
        if after < self.compacted {
            return Err(Compacted { oldest: self.compacted });
        }
        let start = self.history.partition_point(|entry| entry.revision <= after);
        let entries = self.history.iter().skip(start).take(max);
        Ok(entries.filter_map(|entry| Some((entry.collection.clone(), self.event_at(entry)?))).collect())
    }

    fn event_at(&self, entry: &HistoryEntry) -> Option<Arc<Event>> {
        let events = &self.collections.get(&entry.collection)?.events;
        events.binary_search_by_key(&entry.revision, |event| event.revision()).ok().map(|at| events[at].clone())
    }

    /// Objects of a collection whose key starts with `prefix` and comes after `after_key`.
    pub(super) fn range(&self, name: &str, prefix: &str, after_key: Option<&str>) -> Range<'_> {
        let objects = self.collections.get(name).map(|collection| &collection.objects);
        let start: Bound<&str> = match after_key {
            Some(key) => Bound::Excluded(key),
            None => Bound::Included(prefix),
        };
        objects.map(|objects| objects.range::<str, _>((start, Bound::Unbounded)))
    }

    /// The same as of an older revision: newer changes are undone on the way.
    pub(super) fn range_at(
        &self,
        name: &str,
        prefix: &str,
        after_key: Option<&str>,
        revision: u64,
    ) -> Result<BTreeMap<Arc<str>, Arc<StoredObject>>, Compacted> {
        let mut objects: BTreeMap<Arc<str>, Arc<StoredObject>> = self
            .range(name, prefix, after_key)
            .into_iter()
            .flatten()
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        for event in self.events_after(name, revision, usize::MAX)?.iter().rev() {
            let wanted = event.key.starts_with(prefix) && after_key.is_none_or(|after| *event.key > *after);
            match &event.previous {
                _ if !wanted => {}
                Some(previous) => {
                    objects.insert(event.key.clone(), previous.clone());
                }
                None => {
                    objects.remove(&event.key);
                }
            }
        }
        Ok(objects)
    }
}

pub(super) type Range<'a> = Option<std::collections::btree_map::Range<'a, Arc<str>, Arc<StoredObject>>>;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::EncodedObject;

    #[test]
    fn what_a_compaction_would_keep_follows_the_writes() {
        let mut state = State::default();
        let write = |state: &mut State, deleted: bool, note: &str| {
            let object =
                EncodedObject::new(&json!({"metadata": {"uid": "u", "note": note}})).unwrap().seal(state.revision + 1);
            let bytes = object.bytes.len() as u64;
            state.apply(&"things".into(), "a".into(), deleted, Arc::new(object), 0);
            bytes
        };
        let short = write(&mut state, false, "short");
        let created = state.kept_bytes();
        assert!(created >= short);
        let long = write(&mut state, false, &"long".repeat(100));
        assert_eq!(state.kept_bytes(), created + long, "the object as it is, and as it was");
        let last = write(&mut state, true, "last");
        assert_eq!(state.kept_bytes(), short + last, "what the history tells of it");
        state.forget_history();
        assert_eq!(state.kept_bytes(), 0);
    }
}
