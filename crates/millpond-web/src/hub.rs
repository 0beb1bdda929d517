//! One state for all viewers, and what changed of it.
//!
//! The state is made anew when something has changed and a page asks, or a stream is open. What is different from the state
//! before becomes deltas in a ring, from which a stream that was cut off goes on. Making states takes a tenth of the time
//! at most, and none while nothing asks.

mod frame;
mod samples;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use frame::{COLUMNS, Frame};
use samples::Samples;

use crate::Watched;
use crate::respond::Problem;

/// States are not made more often than this.
const SOONEST: Duration = Duration::from_millis(250);
/// Making states takes one part of so many of the time at most.
const SHARE: u32 = 10;
/// Without a change, a state is made anew after this: budgets and ages depend on the time.
const LONGEST: Duration = Duration::from_secs(30);
/// Where nothing tells of changes, the hub looks this often.
const LOOK: Duration = Duration::from_secs(1);
/// Deltas that are kept.
const MAX_DELTAS: usize = 512;
/// Bytes of deltas that are kept.
const MAX_BYTES: usize = 4 << 20;
/// Texts of the dictionary; with more, it begins anew.
const MAX_STRINGS: usize = 100_000;

/// A change that streams pass on.
#[derive(Debug, Clone)]
pub(crate) struct Delta {
    pub(crate) number: u64,
    pub(crate) topic: &'static str,
    pub(crate) data: Arc<str>,
}

pub(crate) struct Hub {
    watched: Arc<dyn Watched>,
    /// Begins every revision: those of another process are not taken for this one's.
    boot: String,
    state: Mutex<State>,
    refreshing: tokio::sync::Mutex<()>,
    streams: AtomicUsize,
    /// Whether states follow the cluster.
    following: AtomicBool,
    numbers: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    frame: Option<(Arc<Frame>, Instant)>,
    /// The change of the cluster that the frame has seen.
    seen: Option<u64>,
    /// No frame before this.
    not_before: Option<Instant>,
    number: u64,
    /// Deltas after this number are all in the ring.
    complete_from: u64,
    ring: VecDeque<Delta>,
    bytes: usize,
    strings: Strings,
    history: u64,
    samples: Samples,
}

/// The dictionary of columns; the first text is empty.
#[derive(Clone)]
pub(crate) struct Strings {
    all: Vec<Arc<str>>,
    index: HashMap<Arc<str>, u32>,
}

impl Default for Strings {
    fn default() -> Self {
        let mut strings = Self { all: Vec::new(), index: HashMap::new() };
        strings.number("");
        strings
    }
}

impl Strings {
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.index.get(text) {
            return *number;
        }
        let (number, text) = (self.all.len() as u32, Arc::<str>::from(text));
        self.all.push(Arc::clone(&text));
        self.index.insert(text, number);
        number
    }
}

/// What a stream gets.
pub(crate) enum News {
    /// These, in order.
    Deltas(Vec<Delta>),
    /// Too much was missed.
    Resync(u64),
}

/// Counts a stream as long as it is there.
pub(crate) struct Listening(Arc<Hub>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Hub {
    pub(crate) fn new(watched: Arc<dyn Watched>) -> Self {
        let mut bytes = [0; 6];
        SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
        Self {
            watched,
            boot: URL_SAFE_NO_PAD.encode(bytes).replace('-', "_"),
            state: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            streams: AtomicUsize::new(0),
            following: AtomicBool::new(false),
            numbers: watch::Sender::new(0),
        }
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    /// The revision of a number.
    pub(crate) fn revision(&self, number: u64) -> String {
        format!("{}-{number}", self.boot)
    }

    /// The number of a revision of this process.
    pub(crate) fn number(&self, revision: &str) -> Option<u64> {
        let (boot, number) = revision.rsplit_once('-')?;
        number.parse().ok().filter(|_| boot == self.boot)
    }

    /// The dictionary as of now: it has all that frames up to now use.
    pub(crate) fn strings(&self) -> Vec<Arc<str>> {
        self.state.lock().strings.all.clone()
    }

    pub(crate) fn samples<T>(&self, look: impl FnOnce(&Samples) -> T) -> T {
        look(&self.state.lock().samples)
    }

    /// The state, not older than the last change, unless it was made a moment ago.
    pub(crate) async fn frame(&self) -> Result<Arc<Frame>, Problem> {
        self.refresh(false).await
    }

    /// The state as of now, however short ago the last one was made.
    pub(crate) async fn frame_now(&self) -> Result<Arc<Frame>, Problem> {
        self.refresh(true).await
    }

    fn fresh(&self, force: bool) -> Option<Arc<Frame>> {
        let state = self.state.lock();
        let (frame, made) = state.frame.as_ref()?;
        let change = self.watched.changes().map(|changes| *changes.borrow());
        let early = !force && state.not_before.is_some_and(|then| Instant::now() < then);
        let same = state.seen.is_some() && state.seen == change && made.elapsed() < LONGEST;
        (early || same).then(|| Arc::clone(frame))
    }

    async fn refresh(&self, force: bool) -> Result<Arc<Frame>, Problem> {
        let _one = self.refreshing.lock().await;
        if let Some(frame) = self.fresh(force) {
            self.note_decisions();
            return Ok(frame);
        }
        // Read before the snapshot is taken: what changes meanwhile is seen as a change.
        let seen = self.watched.changes().map(|changes| *changes.borrow());
        let begun = Instant::now();
        let (watched, mut strings) = (Arc::clone(&self.watched), self.state.lock().strings.clone());
        if strings.all.len() > MAX_STRINGS {
            strings = Strings::default();
        }
        let made = tokio::task::spawn_blocking(move || {
            let snapshot = watched.snapshot()?;
            let owner = |namespace: &str, pod: &str| watched.owner(namespace, pod);
            let frame = Frame::new(snapshot, &mut strings, &owner);
            Ok::<_, String>((frame, strings))
        });
        let (frame, strings) = made
            .await
            .map_err(|_| Problem::unavailable("the state could not be made"))?
            .map_err(Problem::unavailable)?;
        self.note_decisions();
        let frame = self.take(frame, strings, seen, begun);
        self.numbers.send_replace(self.state.lock().number);
        Ok(frame)
    }

    /// Takes a state over; what is different from the one before goes into the ring.
    fn take(&self, mut frame: Frame, strings: Strings, seen: Option<u64>, begun: Instant) -> Arc<Frame> {
        let mut state = self.state.lock();
        let took = begun.elapsed();
        state.not_before = Some(Instant::now() + SOONEST.max(took * SHARE));
        state.seen = seen;
        state.samples.add(&frame);
        let deltas = match &state.frame {
            Some((before, _)) if strings.all.len() >= state.strings.all.len() => {
                frame.deltas(before, &strings.all[state.strings.all.len()..], state.strings.all.len())
            }
            _ => {
                // The first, or with another dictionary: no stream can go on from what was before.
                state.number += 1;
                state.ring.clear();
                state.bytes = 0;
                state.complete_from = state.number;
                Vec::new()
            }
        };
        state.strings = strings;
        for (topic, data) in deltas {
            state.push(topic, &data);
        }
        frame.number = state.number;
        let frame = Arc::new(frame);
        state.frame = Some((Arc::clone(&frame), Instant::now()));
        frame
    }

    /// New and changed decisions as deltas.
    fn note_decisions(&self) {
        let mut state = self.state.lock();
        let first = state.frame.is_none() && state.history == 0;
        let (changed, now) = self.watched.history().changed_since(state.history);
        state.history = now;
        // What was decided before the first page was opened is asked for, not told.
        if !first {
            changed.iter().for_each(|decision| state.push("decision", &decision.summary()));
        }
        let number = state.number;
        drop(state);
        self.numbers.send_replace(number);
    }

    /// Begins a stream; as long as there is one, states follow the cluster.
    pub(crate) fn listen(self: &Arc<Self>) -> (Listening, watch::Receiver<u64>) {
        self.streams.fetch_add(1, Ordering::SeqCst);
        if !self.following.swap(true, Ordering::SeqCst) {
            tokio::spawn(Arc::clone(self).follow());
        }
        (Listening(Arc::clone(self)), self.numbers.subscribe())
    }

    /// Makes states while streams are open.
    async fn follow(self: Arc<Self>) {
        loop {
            while self.streams() > 0 {
                // A cluster that is not known yet is asked again.
                let _ = self.frame().await;
                let (seen, history) = {
                    let state = self.state.lock();
                    (state.seen, state.history)
                };
                tokio::select! {
                    () = changed(self.watched.changes(), seen) => {}
                    () = changed(Some(self.watched.history().changes()), Some(history)) => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
                let due = self.state.lock().not_before;
                tokio::time::sleep_until(due.unwrap_or_else(|| Instant::now() + SOONEST)).await;
            }
            self.following.store(false, Ordering::SeqCst);
            // One that came meanwhile saw that this loop still ran.
            if self.streams() == 0 || self.following.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// What came after a number.
    pub(crate) fn after(&self, number: u64) -> News {
        let state = self.state.lock();
        if number < state.complete_from || number > state.number {
            return News::Resync(state.number);
        }
        News::Deltas(state.ring.iter().filter(|delta| delta.number > number).cloned().collect())
    }

    /// The number of the last change.
    pub(crate) fn last(&self) -> u64 {
        self.state.lock().number
    }
}

/// Ends when the number is not the one that was seen; never without numbers.
async fn changed(receiver: Option<watch::Receiver<u64>>, seen: Option<u64>) {
    if let Some(mut receiver) = receiver
        && receiver.wait_for(|number| Some(*number) != seen).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

impl State {
    fn push(&mut self, topic: &'static str, data: &Value) {
        self.number += 1;
        let data: Arc<str> = data.to_string().into();
        self.bytes += data.len();
        self.ring.push_back(Delta { number: self.number, topic, data });
        while self.ring.len() > MAX_DELTAS || (self.bytes > MAX_BYTES && self.ring.len() > 1) {
            let Some(dropped) = self.ring.pop_front() else { break };
            self.bytes -= dropped.data.len();
            self.complete_from = dropped.number;
        }
    }
}

/// What is different between two maps of rows: rows with other fields, new rows, names of those that are gone.
pub(crate) fn rows_changed(
    before: &BTreeMap<String, Vec<Value>>,
    after: &BTreeMap<String, Vec<Value>>,
) -> (Map<String, Value>, Vec<Value>, Vec<String>) {
    let (mut put, mut new) = (Map::new(), Vec::new());
    for (name, row) in after {
        match before.get(name) {
            None => new.push(frame::object(name, row)),
            Some(known) => {
                let fields = COLUMNS.iter().zip(row).zip(known).filter(|((_, value), known)| value != known);
                let fields: Map<String, Value> =
                    fields.map(|((column, value), _)| ((*column).to_owned(), value.clone())).collect();
                if !fields.is_empty() {
                    put.insert(name.clone(), Value::Object(fields));
                }
            }
        }
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name)).cloned().collect();
    (put, new, gone)
}

/// The `strings` of an event; none if the dictionary did not grow.
pub(crate) fn appended(new: &[Arc<str>], from: usize) -> Option<Value> {
    (!new.is_empty()).then(|| json!({ "from": from, "+": new }))
}
