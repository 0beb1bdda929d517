//! The simulated cloud behind its lock: questions in, answers out, everything written down in between.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use millpond_api::node_class::NodeClass;
use millpond_api::sim_script::{Script, Verb};
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};

use super::calls::{Calls, Fault};
use super::journal::{Journal, OpenError};
use super::millis::Millis;
use super::record::{Change, Record};
use super::state::State;
use crate::{Instance, InstanceEvent, LaunchRequest, Launched, OfferingKey, ProviderError};

/// The name of a cloud in memory. It is gone with its process, and so is the API server that knows it.
const IN_MEMORY: &str = "in-memory";

/// Number of events that a slow listener may lag behind before it misses some; it then lists.
const EVENTS: usize = 1024;

/// The simulated cloud: its instances and what it does to its callers.
///
/// It outlives its callers: keep it behind an `Arc` beside the controllers that a test kills, or in a file
/// ([`Cloud::open`]), where every change is written down before it is answered. All times are arguments, so that the
/// same calls at the same times give the same answers.
#[derive(Debug)]
pub struct Cloud {
    inner: Mutex<Inner>,
    /// Held by the task that waits for the disk.
    syncing: Mutex<()>,
    /// Changes up to this number survive a power cut.
    durable: AtomicU64,
    events: broadcast::Sender<InstanceEvent>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    calls: Calls,
    journal: Option<Journal>,
    /// The last change that must survive a power cut before it is reported to a caller.
    must_last: u64,
}

/// The pending work on Node objects.
#[derive(Debug, Default)]
pub(super) struct NodeWork {
    /// Instances whose Node is to be created now.
    pub(super) make: Vec<String>,
    /// Nodes to be deleted now: the instance's id and the node's name.
    pub(super) remove: Vec<(String, String)>,
    /// When further work is due.
    pub(super) next: Option<Timestamp>,
}

impl Cloud {
    /// A cloud that ends with the process.
    pub fn in_memory() -> Self {
        let mut inner = Inner::default();
        inner.state.apply(Change::Named { cloud: IN_MEMORY.to_owned() });
        Self::with(inner)
    }

    /// The cloud of a file; a new one if the file is not there. The file is this process's until the cloud is
    /// dropped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let (journal, changes) = Journal::open(path)?;
        let mut inner = Inner { journal: Some(journal), ..Inner::default() };
        changes.into_iter().for_each(|change| inner.state.apply(change));
        inner.settle_name().map_err(|source| OpenError::Io { what: "write", path: path.to_owned(), source })?;
        Ok(Self::with(inner))
    }

    /// The cloud's own name, stored in its file.
    pub fn id(&self) -> String {
        self.inner.lock().state.cloud.clone()
    }

    /// Takes note of a term: calls of lower ones are refused from now on. To be answered once [`Self::sync`] has returned.
    pub(super) fn begin_term(&self, term: u64) -> Result<(), ProviderError> {
        self.inner.lock().admit(Some(term))
    }

    fn with(inner: Inner) -> Self {
        let (events, _) = broadcast::channel(EVENTS);
        let (syncing, durable) = (Mutex::new(()), AtomicU64::new(0));
        Self { inner: Mutex::new(inner), syncing, durable, events, changed: Notify::new() }
    }

    /// Gives the cloud as a whole another script, which begins to hold now. The one that holds already goes on.
    pub fn set_script(&self, script: &Script, now: Timestamp) -> Result<(), ProviderError> {
        self.hold(None, script, now.into())
    }

    /// The script of the cloud as a whole.
    pub fn script(&self) -> Script {
        self.inner.lock().state.scripts.cloud.script.clone()
    }

    /// Applies a class's settings of the cloud (`spec.sim`), if they changed.
    pub(super) fn set_class(&self, class: &NodeClass, now: Timestamp) -> Result<(), ProviderError> {
        let script = class.spec.sim.clone().unwrap_or_default();
        self.hold(Some(&class.metadata.name), &script, now.into())
    }

    fn hold(&self, class: Option<&str>, script: &Script, now: Millis) -> Result<(), ProviderError> {
        let mut inner = self.inner.lock();
        let held = inner.state.scripts.get(class);
        if held.map_or(*script == Script::default(), |held| held.script == *script) {
            return Ok(());
        }
        let class = class.map(str::to_owned);
        inner.keep(Change::Script { class, script: Box::new(script.clone()), since: now }, Durability::Yes)?;
        drop(inner);
        self.sync()?;
        self.changed.notify_waiters();
        Ok(())
    }

    /// The image that a class's instances are made from.
    pub(super) fn image(&self, class: &str) -> String {
        self.inner.lock().state.scripts.image(class).to_owned()
    }

    /// The record of an instance, while it exists.
    pub(super) fn record(&self, id: &str) -> Option<Record> {
        self.inner.lock().state.records.get(id).cloned()
    }

    /// Counts a call, and returns its fault.
    pub(super) fn begin(&self, verb: Verb, class: Option<&str>, now: Timestamp) -> Fault {
        let Inner { state, calls, .. } = &mut *self.inner.lock();
        calls.begin(verb, class, &state.scripts, now.into())
    }

    /// Launches an instance; `most` says how many of an offering there are, where that is limited: of reservations.
    pub fn create(
        &self,
        request: &LaunchRequest,
        most: impl Fn(&OfferingKey) -> Option<u32>,
        now: Timestamp,
    ) -> Result<Launched, ProviderError> {
        let launched = self.launch(request, most, None, now);
        self.sync().and(launched)
    }

    /// The same; to be answered once [`Self::sync`] has returned.
    pub(super) fn launch(
        &self,
        request: &LaunchRequest,
        most: impl Fn(&OfferingKey) -> Option<u32>,
        term: Option<u64>,
        now: Timestamp,
    ) -> Result<Launched, ProviderError> {
        self.at(now, |inner, now| {
            inner.admit(term)?;
            let (change, answer) = inner.state.launch(request, most, now).answer(now);
            change.map_or(Ok(()), |change| inner.keep(change, Durability::Yes))?;
            answer
        })
    }

    /// Requests the termination of an instance.
    pub fn delete(&self, id: &str, now: Timestamp) -> Result<(), ProviderError> {
        let ended = self.end(id, None, now);
        self.sync().and(ended)
    }

    /// The same; to be answered once [`Self::sync`] has returned.
    pub(super) fn end(&self, id: &str, term: Option<u64>, now: Timestamp) -> Result<(), ProviderError> {
        self.at(now, |inner, now| {
            inner.admit(term)?;
            let change = inner.state.end(id, now)?;
            change.map_or(Ok(()), |change| inner.keep(change, Durability::Yes))
        })
    }

    /// The instance of an id, as far as the cloud tells of it by now.
    pub fn get(&self, id: &str, now: Timestamp) -> Result<Instance, ProviderError> {
        let found = self.find(id, None, now);
        self.sync().and(found)
    }

    /// The same; to be answered once [`Self::sync`] has returned.
    pub(super) fn find(&self, id: &str, term: Option<u64>, now: Timestamp) -> Result<Instance, ProviderError> {
        self.at(now, |inner, now| inner.admit(term).and_then(|()| inner.state.get(id, now)))
    }

    /// All instances that the cloud shows by now, by id.
    pub fn list(&self, now: Timestamp) -> Result<Vec<Instance>, ProviderError> {
        let found = self.find_all(None, now);
        self.sync().and(found)
    }

    /// The same; to be answered once [`Self::sync`] has returned.
    pub(super) fn find_all(&self, term: Option<u64>, now: Timestamp) -> Result<Vec<Instance>, ProviderError> {
        self.at(now, |inner, now| inner.admit(term).map(|()| inner.state.list(now)))
    }

    /// All instances that exist, by id.
    pub fn instances(&self, now: Timestamp) -> Vec<Instance> {
        let now = now.into();
        let inner = self.inner.lock();
        let live = inner.state.records.values().filter(|record| !record.is_gone(now));
        live.map(|record| record.told(now)).collect()
    }

    /// Takes an instance back after a notice, as a script can do: for tests.
    pub fn interrupt(&self, id: &str, notice: Duration, now: Timestamp) -> Result<(), ProviderError> {
        let told = self.at(now, |inner, now| {
            let ends = now.after(notice);
            // An instance that ends earlier anyway gets no notice.
            let record = inner.state.records.get(id).filter(|record| !record.is_gone(now));
            let record = record.ok_or_else(|| ProviderError::NotFound { message: format!("no instance `{id}`") })?;
            if record.ends.is_none_or(|known| ends < known) {
                inner.keep(Change::Ending { id: id.to_owned(), ends, node_gone: false }, Durability::Yes)?;
                let _ = self.events.send(InstanceEvent::Interrupted { id: id.to_owned(), at: ends.time() });
            }
            Ok(())
        });
        self.sync().and(told)
    }

    /// Whether everything reported to callers survives a power cut.
    pub(super) fn is_durable(&self) -> bool {
        self.inner.lock().must_last <= self.durable.load(Ordering::Acquire)
    }

    /// Waits for the disk until everything that may be reported survives a power cut. One sync serves all waiting tasks.
    pub(super) fn sync(&self) -> Result<(), ProviderError> {
        if self.is_durable() {
            return Ok(());
        }
        let _turn = self.syncing.lock();
        if self.is_durable() {
            return Ok(());
        }
        let (file, last) = {
            let inner = self.inner.lock();
            let Some(journal) = &inner.journal else { return Ok(()) };
            (journal.file().map_err(|error| not_written(&error))?, journal.last())
        };
        if let Err(error) = file.sync_data() {
            self.inner.lock().journal.iter_mut().for_each(Journal::give_up);
            return Err(not_written(&error));
        }
        self.durable.store(last, Ordering::Release);
        Ok(())
    }

    /// Events of instances that happen without a call, from now on. Time advances only with calls, or with
    /// [`super::SimProvider::run`].
    pub fn subscribe(&self) -> broadcast::Receiver<InstanceEvent> {
        self.events.subscribe()
    }

    /// Woken whenever there may be other work than before.
    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The pending work on Node objects.
    pub(super) fn node_work(&self, now: Timestamp) -> NodeWork {
        // Whether it could be written down shows at the next call.
        let _ = self.at(now, |_, _| Ok(()));
        let now = Millis::from(now);
        let inner = self.inner.lock();
        let mut work = NodeWork::default();
        let mut next = inner.state.next_due();
        for record in inner.state.node_work.iter().filter_map(|id| inner.state.records.get(id)) {
            let due = record.ends.unwrap_or(record.boots);
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
            } else if record.ends.is_some() {
                work.remove.push((record.instance.id.clone(), record.instance.claim.clone()));
            } else {
                work.make.push(record.instance.id.clone());
            }
        }
        work.next = next.map(Millis::timestamp);
        work
    }

    /// Records that the Node object of an instance exists.
    pub(super) fn registered(&self, id: &str) -> Result<(), ProviderError> {
        // Not synced: after a crash the Node is found again.
        self.inner.lock().keep(Change::Registered { id: id.to_owned() }, Durability::No)
    }

    /// Records that the Node object of an instance was deleted with it.
    pub(super) fn node_removed(&self, id: &str) -> Result<(), ProviderError> {
        self.inner.lock().keep(Change::NodeRemoved { id: id.to_owned() }, Durability::No)
    }

    /// Advances time, runs the call, and sends the events of both.
    fn at<R>(
        &self,
        now: Timestamp,
        ask: impl FnOnce(&mut Inner, Millis) -> Result<R, ProviderError>,
    ) -> Result<R, ProviderError> {
        let now = Millis::from(now);
        let mut inner = self.inner.lock();
        let (before, mut events) = (inner.state.version, Vec::new());
        let result = inner.go_on(now, &mut events).and_then(|()| ask(&mut inner, now));
        // Events that the call caused are sent with its answer.
        let _ = inner.go_on(now, &mut events);
        let after = inner.state.version;
        drop(inner);
        if !events.is_empty() {
            // Whether it could be written down shows in the answer.
            let _ = self.sync();
        }
        for event in events {
            // No receiver: the event is dropped.
            let _ = self.events.send(event);
        }
        if before != after {
            self.changed.notify_waiters();
        }
        result
    }
}

fn not_written(error: &std::io::Error) -> ProviderError {
    ProviderError::Other { message: format!("the cloud could not write down what was asked for: {error}") }
}

/// Whether a change must survive a power cut before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    Yes,
    No,
}

impl Inner {
    /// Refuses a call of a term that is over; takes note of one that begins.
    fn admit(&mut self, term: Option<u64>) -> Result<(), ProviderError> {
        self.state.admit(term)?.map_or(Ok(()), |change| self.keep(change, Durability::Yes))
    }

    /// A cloud without a name gets one; a file of an earlier format becomes one of today's.
    fn settle_name(&mut self) -> std::io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let name = Change::Named { cloud: uuid::Uuid::new_v4().to_string() };
        match (self.state.cloud.is_empty(), journal.is_old()) {
            (true, false) => {
                journal.add(&name)?;
                journal.file()?.sync_data()?;
                self.state.apply(name);
            }
            (is_new, true) => {
                if is_new {
                    self.state.apply(name);
                }
                journal.rewrite(self.state.changes())?;
            }
            (false, false) => {}
        }
        Ok(())
    }

    /// Writes a change to the journal, then applies it.
    fn keep(&mut self, change: Change, durable: Durability) -> Result<(), ProviderError> {
        if let Some(journal) = &mut self.journal {
            journal.add(&change).map_err(|error| not_written(&error))?;
            if durable == Durability::Yes {
                self.must_last = journal.last();
            }
        }
        self.state.apply(change);
        self.tidy();
        Ok(())
    }

    fn tidy(&mut self) {
        let needed = self.state.records.len() + self.state.scripts.classes.len();
        let Some(journal) = self.journal.as_mut().filter(|journal| journal.is_wasteful(needed)) else { return };
        if let Err(error) = journal.rewrite(self.state.changes()) {
            // The old file is whole; the next change tries again.
            tracing::warn!(%error, "could not write the cloud's file anew");
        }
    }

    /// Performs the events that are due by now.
    fn go_on(&mut self, now: Millis, events: &mut Vec<InstanceEvent>) -> Result<(), ProviderError> {
        while let Some((change, event)) = self.state.happened(now) {
            if let Some(change) = change {
                let durable = if matches!(change, Change::Forgotten { .. }) { Durability::No } else { Durability::Yes };
                self.keep(change, durable)?;
            }
            events.extend(event);
        }
        Ok(())
    }
}
