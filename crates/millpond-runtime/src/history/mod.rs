//! The decision history: what controllers decided, why, and what came of it.
//!
//! ```text
//!  controllers ── record ──▶ History ── one JSON line each ──▶ DIRECTORY/decisions.jsonl
//!  mirrors ────── observe ──▶   │  └─── snapshots (deflate) ─▶ DIRECTORY/snapshots/d-N
//!                               └── changed ──▶ pages, `millpond history -w`
//! ```
//!
//! The history is bounded in decisions and bytes; without a directory it is kept in memory alone. It is never read to
//! decide anything, so a full disk costs the file and nothing else. Types are in [`record`], the files in [`mod@file`].

mod file;
mod record;
mod view;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

pub use file::{HistoryError, read, read_snapshot};
use file::{Line, Log, Snapshots};
pub use record::{Action, Decision, DecisionKind, Nanos, ObjectRef, Outcome, Subject, Unplaced};

/// Decisions that are kept.
pub const MAX_DECISIONS: usize = 10_000;
/// Bytes of all decisions as JSON that are kept.
const MAX_BYTES: usize = 32 << 20;

/// The history; copies share it.
#[derive(Clone)]
pub struct History(Arc<Shared>);

struct Shared {
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
}

struct Inner {
    decisions: VecDeque<Entry>,
    bytes: usize,
    next: u64,
    changes: u64,
    /// Actions of which more is to come, by their object: the number of the decision and the place of the action.
    open: HashMap<ObjectRef, Vec<(u64, usize)>>,
    log: Log,
    snapshots: Snapshots,
}

struct Entry {
    decision: Arc<Decision>,
    bytes: usize,
    /// The number of its last change.
    changed: u64,
}

impl std::fmt::Debug for History {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("History").field("decisions", &self.0.inner.lock().decisions.len()).finish_non_exhaustive()
    }
}

/// In memory, and without snapshots.
impl Default for History {
    fn default() -> Self {
        Self::with(Vec::new(), Log::none(), Snapshots::none())
    }
}

impl History {
    /// One that is gone with the process.
    pub fn in_memory() -> Self {
        Self::with(Vec::new(), Log::none(), Snapshots::in_memory())
    }

    /// One that goes on with the files of a directory.
    pub fn open(directory: &Path) -> Result<Self, HistoryError> {
        let (decisions, log) = Log::open(directory)?;
        let snapshots = Snapshots::open(directory)?;
        Ok(Self::with(decisions, log, snapshots))
    }

    /// Forgets what the files of a directory say, and goes on from nothing.
    pub fn start_anew(directory: &Path) -> Result<Self, HistoryError> {
        file::clear(directory)?;
        Self::open(directory)
    }

    fn with(decisions: Vec<Decision>, log: Log, snapshots: Snapshots) -> Self {
        let next = decisions.last().map_or(1, |last| last.number + 1);
        let mut inner =
            Inner { decisions: VecDeque::new(), bytes: 0, next, changes: 0, open: HashMap::new(), log, snapshots };
        for decision in decisions {
            let bytes = file::length(&decision);
            inner.keep(decision, bytes);
        }
        Self(Arc::new(Shared { inner: Mutex::new(inner), changes: watch::Sender::new(0) }))
    }

    /// Adds a decision; returns its number.
    pub fn record(&self, mut decision: Decision) -> u64 {
        decision.shorten();
        let mut inner = self.0.inner.lock();
        decision.number = inner.next;
        inner.next += 1;
        let number = decision.number;
        let bytes = inner.log.append(&Line::Decision(&decision));
        inner.keep(decision, bytes);
        inner.compact_if_due();
        self.changed(inner);
        number
    }

    /// Whether more is to come of an action of this verb about an object.
    pub fn expects(&self, object: &ObjectRef, verb: &str) -> bool {
        let inner = self.0.inner.lock();
        let open = inner.open.get(object).into_iter().flatten();
        open.filter_map(|&(number, at)| inner.get(number)?.decision.actions.get(at)).any(|action| action.verb == verb)
    }

    /// Tells what came of all open actions of this verb about an object, and the name of its node if that is known.
    pub fn observe(&self, object: &ObjectRef, verb: &str, node: Option<&str>, outcome: &Outcome) {
        let mut inner = self.0.inner.lock();
        let Some(open) = inner.open.get(object).cloned() else { return };
        let mut any = false;
        for (number, at) in open {
            any |= inner.learn(number, at, verb, node, outcome);
        }
        if any {
            inner.compact_if_due();
            self.changed(inner);
        }
    }

    /// Adds what any plan costs at least: it is proved after the decision.
    pub fn set_bound(&self, number: u64, bound: Nanos) {
        let mut inner = self.0.inner.lock();
        let change = inner.changes + 1;
        let Some(place) = inner.place(number) else { return };
        let entry = &mut inner.decisions[place];
        Arc::make_mut(&mut entry.decision).bound_nanos = Some(bound);
        entry.changed = change;
        let decision = Arc::clone(&entry.decision);
        inner.changes = change;
        inner.log.append(&Line::Decision(&decision));
        self.changed(inner);
    }

    /// Keeps the snapshot that decisions were made from, as a text that plans can be made of again.
    pub fn keep_snapshot(&self, numbers: &[u64], text: &str) {
        let packed = file::pack(text);
        let mut inner = self.0.inner.lock();
        for &number in numbers {
            let failed = inner.get(number).is_some_and(|entry| entry.decision.failed());
            inner.snapshots.add(number, failed, packed.clone());
        }
    }

    /// Whether it is worth making a text of a snapshot.
    pub fn keeps_snapshots(&self) -> bool {
        self.0.inner.lock().snapshots.are_kept()
    }

    /// Whether the snapshot of a decision is kept.
    pub fn has_snapshot(&self, number: u64) -> bool {
        self.0.inner.lock().snapshots.has(number)
    }

    /// The snapshot of a decision.
    pub fn snapshot(&self, number: u64) -> Option<String> {
        self.0.inner.lock().snapshots.get(number)
    }

    /// A decision.
    pub fn get(&self, number: u64) -> Option<Arc<Decision>> {
        self.0.inner.lock().get(number).map(|entry| Arc::clone(&entry.decision))
    }

    /// All decisions, the oldest first.
    pub fn all(&self) -> Vec<Arc<Decision>> {
        self.0.inner.lock().decisions.iter().map(|entry| Arc::clone(&entry.decision)).collect()
    }

    /// The latest ones, the newest first.
    pub fn latest(&self, count: usize) -> Vec<Arc<Decision>> {
        self.0.inner.lock().decisions.iter().rev().take(count).map(|entry| Arc::clone(&entry.decision)).collect()
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.0.inner.lock().decisions.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of changes so far, as it rises.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Decisions that were added or changed after so many changes, and the number of changes by now.
    pub fn changed_since(&self, change: u64) -> (Vec<Arc<Decision>>, u64) {
        let inner = self.0.inner.lock();
        let new = inner.decisions.iter().filter(|entry| entry.changed > change);
        (new.map(|entry| Arc::clone(&entry.decision)).collect(), inner.changes)
    }

    fn changed(&self, inner: parking_lot::MutexGuard<'_, Inner>) {
        let changes = inner.changes;
        drop(inner);
        self.0.changes.send_replace(changes);
    }
}

impl Inner {
    fn place(&self, number: u64) -> Option<usize> {
        let first = self.decisions.front()?.decision.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        // Numbers have no gaps, unless a file lost lines.
        match self.decisions.get(at) {
            Some(entry) if entry.decision.number == number => Some(at),
            _ => self.decisions.iter().position(|entry| entry.decision.number == number),
        }
    }

    fn get(&self, number: u64) -> Option<&Entry> {
        self.decisions.get(self.place(number)?)
    }

    fn keep(&mut self, decision: Decision, bytes: usize) {
        for (at, action) in decision.actions.iter().enumerate().filter(|(_, action)| !action.is_final()) {
            self.open.entry(action.object.clone()).or_default().push((decision.number, at));
        }
        self.changes += 1;
        self.bytes += bytes;
        self.decisions.push_back(Entry { decision: Arc::new(decision), bytes, changed: self.changes });
        while self.decisions.len() > MAX_DECISIONS || (self.bytes > MAX_BYTES && self.decisions.len() > 1) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(entry) = self.decisions.pop_front() else { return };
        self.bytes -= entry.bytes;
        for action in &entry.decision.actions {
            self.close(&action.object, entry.decision.number);
        }
    }

    fn close(&mut self, object: &ObjectRef, number: u64) {
        if let Some(open) = self.open.get_mut(object) {
            open.retain(|(other, _)| *other != number);
            if open.is_empty() {
                self.open.remove(object);
            }
        }
    }

    fn learn(&mut self, number: u64, at: usize, verb: &str, node: Option<&str>, outcome: &Outcome) -> bool {
        let Some(place) = self.place(number) else { return false };
        let change = self.changes + 1;
        let entry = &mut self.decisions[place];
        if entry.decision.actions.get(at).is_none_or(|action| action.verb != verb) {
            return false;
        }
        let action = &mut Arc::make_mut(&mut entry.decision).actions[at];
        let named = node.filter(|_| action.node.is_none()).map(str::to_owned);
        let is_new = action.outcome.learn(outcome) | named.is_some();
        action.node = named.or(action.node.take());
        if !is_new {
            return false;
        }
        entry.changed = change;
        let action = action.clone();
        self.changes = change;
        self.log.append(&Line::Outcome { number, at, node: action.node.as_deref(), outcome: &action.outcome });
        if action.outcome.failed.is_some() {
            self.snapshots.mark_failed(number);
        }
        if action.is_final() {
            self.close(&action.object, number);
        }
        true
    }

    fn compact_if_due(&mut self) {
        if self.log.is_long(self.bytes) {
            let all = self.decisions.iter().map(|entry| &*entry.decision);
            self.log.rewrite(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bought(name: &str) -> Decision {
        let mut decision = Decision::new(DecisionKind::Provision, "provisioner", 100, "1 node for 1 pod");
        let object = ObjectRef::new("NodeClaim", "", name);
        decision.actions.push(Action { verb: "create".to_owned(), object, ..Action::default() });
        decision
    }

    #[test]
    fn what_was_observed_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let claim = ObjectRef::new("NodeClaim", "", "a");
        {
            let history = History::open(directory.path()).unwrap();
            assert_eq!((history.record(bought("a")), history.record(bought("b"))), (1, 2));
            history.observe(&claim, "create", Some("node-a"), &Outcome { ready: Some(130), ..Outcome::default() });
            history.keep_snapshot(&[1], "a snapshot");
        }
        let history = History::open(directory.path()).unwrap();
        let first = history.get(1).unwrap();
        assert_eq!((first.actions[0].node.as_deref(), first.actions[0].outcome.ready), (Some("node-a"), Some(130)));
        assert_eq!(history.snapshot(1).as_deref(), Some("a snapshot"));
        assert!(history.expects(&claim, "create") && !history.expects(&claim, "delete"));
        history.observe(&claim, "create", None, &Outcome { gone: Some(200), ..Outcome::default() });
        assert!(!history.expects(&claim, "create"), "what is gone has no more to come");
        assert_eq!(history.record(bought("c")), 3);
        assert_eq!(read(directory.path()).unwrap().len(), 3, "another process reads the same file");
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let history = History::open(directory.path()).unwrap();
        history.record(bought("a"));
        history.record(bought("b"));
        drop(history);
        let path = directory.path().join("decisions.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        let history = History::open(directory.path()).unwrap();
        assert_eq!(history.len(), 1);
        history.record(bought("c"));
        drop(history);
        let names: Vec<String> =
            read(directory.path()).unwrap().iter().map(|it| it.actions[0].object.name.clone()).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn the_history_is_bounded_and_so_is_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let history = History::open(directory.path()).unwrap();
        for number in 0..MAX_DECISIONS + 5 {
            history.record(bought(&number.to_string()));
        }
        assert_eq!(history.len(), MAX_DECISIONS);
        assert_eq!(history.all()[0].number, 6);
        let claim = ObjectRef::new("NodeClaim", "", &(MAX_DECISIONS + 4).to_string());
        let live = history.0.inner.lock().bytes;
        for failure in 0..100_000 {
            // Every update is a line; a time that is known stays, so the reason changes nothing after the first.
            history.0.inner.lock().log.append(&Line::Outcome {
                number: 10,
                at: 0,
                node: None,
                outcome: &Outcome { created: Some(failure), ..Outcome::default() },
            });
        }
        history.observe(&claim, "create", None, &Outcome { created: Some(1), ..Outcome::default() });
        let size = std::fs::metadata(directory.path().join("decisions.jsonl")).unwrap().len() as usize;
        assert!(size < live * 2, "{size} bytes for {live}");
        assert_eq!(read(directory.path()).unwrap().len(), MAX_DECISIONS);
    }

    #[test]
    fn the_last_snapshots_are_kept_and_those_of_failures_longer() {
        for history in [History::in_memory(), {
            let directory = tempfile::tempdir().unwrap().keep();
            History::open(&directory).unwrap()
        }] {
            let failing = history.record(bought("fails"));
            history.keep_snapshot(&[failing], "of the failure");
            let claim = ObjectRef::new("NodeClaim", "", "fails");
            let failed = Some("no capacity".to_owned());
            history.observe(&claim, "create", None, &Outcome { failed, ..Outcome::default() });
            let numbers: Vec<u64> = (0..65).map(|number| history.record(bought(&number.to_string()))).collect();
            for &number in &numbers {
                history.keep_snapshot(&[number], &format!("snapshot {number}"));
            }
            assert!(!history.has_snapshot(numbers[0]) && history.has_snapshot(numbers[1]));
            assert_eq!(history.snapshot(failing).as_deref(), Some("of the failure"));
        }
    }

    #[test]
    fn readers_learn_what_changed() {
        let history = History::in_memory();
        history.record(bought("a"));
        history.record(bought("b"));
        let (all, change) = history.changed_since(0);
        assert_eq!(all.len(), 2);
        let outcome = Outcome { launched: Some(1), ..Outcome::default() };
        history.observe(&ObjectRef::new("NodeClaim", "", "a"), "create", None, &outcome);
        history.observe(&ObjectRef::new("NodeClaim", "", "a"), "create", None, &outcome);
        let (changed, next) = history.changed_since(change);
        assert_eq!((changed.len(), changed[0].number, next), (1, 1, change + 1), "the same again is no change");
        assert_eq!(*history.changes().borrow(), next);
    }
}
