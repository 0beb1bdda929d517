//! Watch: what is there, then every change, in order, none left out.
//!
//! A watcher has no queue of its own: it remembers a revision and reads on in the store's history when its
//! collection changes. One that is slower than the history is old gets 410 and ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{Call, Selection};
use super::read::{check_not_in_future, parse_revision, served};
use super::respond::{self, ApiResponse};
use crate::convert;
use crate::http::ApiBody;
use crate::http::negotiate::Form;
use crate::server::Server;
use crate::status::{ApiError, FieldError};
use crate::store::{Event, EventKind, StoredObject};
use crate::table::{self, IncludeObject};

/// Watches without a timeout of their own end after half an hour to an hour, spread so that clients
/// do not all come back at once.
const DEFAULT_TIMEOUT_S: u64 = 1800;
/// Longest time that a client can ask for: a year, which no connection lasts and every clock can add.
const MAX_TIMEOUT_S: u64 = 365 * 24 * 60 * 60;
/// How often an idle watcher that allows bookmarks gets one.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Events written in one piece at most. A burst is delivered in few writes; but the reader gets the first event of a
/// piece only once the last is in it.
const EVENTS_PER_PIECE: usize = 32;
/// A piece with this many bytes gets no more events: larger ones are memory that is fetched and cleared anew each time.
const PIECE_BYTES: usize = 32 << 10;

/// Starts a watch.
pub(crate) fn watch(call: &Call) -> Result<ApiResponse, ApiError> {
    check_options(call)?;
    let selection = Selection::of(call)?;
    let revision = parse_revision(&call.query.resource_version)?;
    if call.query.send_initial_events == Some(true) {
        check_not_in_future(call, revision)?;
    }
    let deadline = Instant::now() + timeout(call);
    let mut watcher = Watcher {
        server: call.server.clone(),
        changed: call.server.store.subscribe(&call.resource.storage),
        shutdown: call.server.shutdown.clone(),
        writer: FrameWriter::of(call)?,
        selection,
        cursor: revision,
        initial: Vec::new().into_iter(),
        bookmarks: call.query.allow_bookmarks,
        initial_end: call.query.send_initial_events == Some(true),
        next_bookmark: Instant::now() + BOOKMARK_INTERVAL,
        deadline,
        refusal: None,
        ended: false,
    };
    if call.query.send_initial_events.unwrap_or(revision == 0) {
        watcher.start_with_current_state();
    } else if revision == 0 {
        watcher.cursor = call.server.store.revision();
    } else {
        watcher.check_cursor();
    }
    let body = ApiBody::stream(futures::stream::unfold(watcher, |mut watcher| async move {
        watcher.next().await.map(|piece| (piece, watcher))
    }));
    Ok(respond::with_type(StatusCode::OK, "application/json", body))
}

fn check_options(call: &Call) -> Result<(), ApiError> {
    let query = &call.query;
    let mut errors = Vec::new();
    match (query.send_initial_events, query.resource_version_match.as_str()) {
        (Some(_), "NotOlderThan") | (None, "") => {}
        (Some(_), _) => errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        (None, _) => errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
    }
    if errors.is_empty() && query.send_initial_events == Some(true) && !query.allow_bookmarks {
        errors.push(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for watch unless allowWatchBookmarks is set",
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors))
}

fn timeout(call: &Call) -> Duration {
    let seconds = match call.query.timeout_s {
        Some(seconds) if seconds > 0 => seconds,
        _ => DEFAULT_TIMEOUT_S + rand::random_range(0..DEFAULT_TIMEOUT_S),
    };
    Duration::from_secs(seconds.min(MAX_TIMEOUT_S))
}

struct Watcher {
    server: Arc<Server>,
    changed: Receiver<u64>,
    shutdown: CancellationToken,
    selection: Selection,
    writer: FrameWriter,
    /// The last revision that was read.
    cursor: u64,
    initial: std::vec::IntoIter<(Arc<str>, Arc<StoredObject>)>,
    bookmarks: bool,
    /// A bookmark that closes the initial events is still due.
    initial_end: bool,
    next_bookmark: Instant,
    deadline: Instant,
    /// The error that replaces all other output.
    refusal: Option<Bytes>,
    ended: bool,
}

impl Watcher {
    fn start_with_current_state(&mut self) {
        let selection = &self.selection;
        let keep = |object: &StoredObject, key: &str| selection.matches(object, key);
        let listing = self.server.store.list(&selection.resource.storage, &selection.prefix, None, 0, keep);
        self.cursor = listing.revision;
        self.initial = listing.items.into_iter();
    }

    /// A revision that this store has not reached was given out by another one. Waiting for it would hide every
    /// change until then; 410 makes clients list anew.
    fn check_cursor(&mut self) {
        let current = self.server.store.revision();
        if self.cursor > current {
            let text = format!("Too large resource version: {}, current: {current}", self.cursor);
            self.refusal = Some(error_frame(&ApiError::expired(text)));
        }
    }

    /// The next piece of the body; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(refusal) = self.refusal.take() {
                self.ended = true;
                return Some(refusal);
            }
            if !self.writer.shares_frames() {
                // Each frame is made anew, which takes a while: other tasks come first.
                tokio::task::yield_now().await;
            }
            if let Some(piece) = self.initial_piece() {
                return Some(piece);
            }
            self.changed.borrow_and_update();
            if let Some(piece) = self.changes() {
                return Some(piece);
            }
            let wake = if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
            tokio::select! {
                _ = self.changed.changed() => {}
                () = self.shutdown.cancelled() => return None,
                () = tokio::time::sleep_until(wake) => {
                    self.ended = Instant::now() >= self.deadline;
                    self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                    if self.bookmarks {
                        return Some(self.writer.bookmark(self.cursor, false));
                    }
                }
            }
        }
    }

    fn initial_piece(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        let mut read = 0;
        for (_, object) in self.initial.by_ref().take(EVENTS_PER_PIECE) {
            self.writer.write(&mut piece, "ADDED", &object, object.revision);
            // Rows of a Table are small compared with their objects.
            read += object.bytes.len();
            if read >= PIECE_BYTES {
                break;
            }
        }
        if piece.is_empty() && self.initial_end {
            self.initial_end = false;
            return Some(self.writer.bookmark(self.cursor, true));
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }

    /// The changes after the cursor, as one piece.
    fn changes(&mut self) -> Option<Bytes> {
        loop {
            let collection = &self.selection.resource.storage;
            let (events, complete_to) = match self.server.store.events_after(collection, self.cursor, EVENTS_PER_PIECE)
            {
                Ok(found) => found,
                Err(compacted) => {
                    self.ended = true;
                    let text = format!("too old resource version: {} ({})", self.cursor, compacted.oldest);
                    return Some(error_frame(&ApiError::expired(text)));
                }
            };
            let (frames, taken) = self.frames_of(&events);
            let all = taken == events.len();
            let more = !all || events.len() == EVENTS_PER_PIECE;
            let seen_to = if all { complete_to } else { events[taken - 1].revision() };
            self.cursor = self.cursor.max(seen_to);
            if let Some(piece) = joined(frames) {
                return Some(piece);
            }
            if !more {
                return None;
            }
        }
    }

    /// Changes as this watcher sees them, and how many were looked at: at least one, as far as they make one piece.
    fn frames_of(&mut self, events: &[Arc<Event>]) -> (Vec<Bytes>, usize) {
        let mut frames = Vec::with_capacity(events.len());
        let mut bytes = 0;
        for (index, event) in events.iter().enumerate() {
            let Some(shown) = self.shown(event) else { continue };
            let frame = match shown {
                // The usual case: all watchers share the bytes of a change.
                Shown::AsIs(kind) if self.writer.shares_frames() && kind == kind_text(event.kind) => {
                    shared_frame(event)
                }
                shown => self.frame_of(event, shown),
            };
            bytes += frame.len().max(event.object.bytes.len());
            frames.push(frame);
            if bytes >= PIECE_BYTES {
                return (frames, index + 1);
            }
        }
        (frames, events.len())
    }

    fn frame_of(&mut self, event: &Event, shown: Shown) -> Bytes {
        let mut piece = BytesMut::new();
        match shown {
            Shown::AsIs(kind) => self.writer.write(&mut piece, kind, &event.object, event.revision()),
            Shown::Left => {
                let previous = event.previous.as_ref().expect("an object that left was there before");
                self.writer.write(&mut piece, "DELETED", previous, event.revision());
            }
        }
        piece.freeze()
    }

    /// How a change looks through the selectors: an object may enter or leave the selection by changing.
    fn shown(&self, event: &Event) -> Option<Shown> {
        let selection = &self.selection;
        if selection.prefix.is_empty() && selection.selects_all() {
            return Some(Shown::AsIs(kind_text(event.kind)));
        }
        let before = event.previous.as_ref().is_some_and(|previous| selection.matches(previous, &event.key));
        let after = event.kind != EventKind::Deleted && selection.matches(&event.object, &event.key);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(Shown::AsIs("ADDED")),
            (true, true) => Some(Shown::AsIs("MODIFIED")),
            (true, false) if event.kind == EventKind::Deleted => Some(Shown::AsIs("DELETED")),
            (true, false) => Some(Shown::Left),
        }
    }
}

enum Shown {
    /// The object of the event under this type.
    AsIs(&'static str),
    /// The object left the selection: its former state, at the revision of the change.
    Left,
}

fn kind_text(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Added => "ADDED",
        EventKind::Modified => "MODIFIED",
        EventKind::Deleted => "DELETED",
    }
}

/// Frames as one piece; a single one is not copied.
fn joined(mut frames: Vec<Bytes>) -> Option<Bytes> {
    if frames.len() < 2 {
        return frames.pop();
    }
    let mut piece = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
    frames.iter().for_each(|frame| piece.extend_from_slice(frame));
    Some(piece.freeze())
}

fn shared_frame(event: &Event) -> Bytes {
    let frame = event.frame.get_or_init(|| {
        let mut frame = BytesMut::with_capacity(event.object.bytes.len() + 40);
        write_plain(&mut frame, kind_text(event.kind), &event.object.bytes);
        frame.freeze()
    });
    frame.clone()
}

fn write_plain(piece: &mut BytesMut, kind: &str, object: &[u8]) {
    piece.extend_from_slice(b"{\"type\":\"");
    piece.extend_from_slice(kind.as_bytes());
    piece.extend_from_slice(b"\",\"object\":");
    piece.extend_from_slice(object);
    piece.extend_from_slice(b"}\n");
}

fn error_frame(error: &ApiError) -> Bytes {
    let mut frame = BytesMut::new();
    write_plain(&mut frame, "ERROR", error.to_status().to_string().as_bytes());
    frame.freeze()
}

/// Writes events in the form that the client asked for.
struct FrameWriter {
    resource: Arc<crate::resource::Resource>,
    server: Arc<Server>,
    form: Form,
    include: IncludeObject,
    /// Tables after the first come without column definitions.
    headers_sent: bool,
}

impl FrameWriter {
    fn of(call: &Call) -> Result<Self, ApiError> {
        Ok(Self {
            resource: call.resource.clone(),
            server: call.server.clone(),
            form: call.accepted.form,
            include: IncludeObject::parse(call.query.include_object.as_deref())?,
            headers_sent: false,
        })
    }

    fn shares_frames(&self) -> bool {
        self.form == Form::Plain && !convert::differs(&self.resource)
    }

    fn write(&mut self, piece: &mut BytesMut, kind: &str, object: &StoredObject, revision: u64) {
        if self.shares_frames() && object.revision == revision {
            return write_plain(piece, kind, &object.bytes);
        }
        let mut value = served(&self.resource, object);
        value["metadata"]["resourceVersion"] = json!(revision.to_string());
        let text = self.formed(&value).to_string();
        write_plain(piece, kind, text.as_bytes());
    }

    fn formed(&mut self, object: &Value) -> Value {
        match self.form {
            Form::Plain => object.clone(),
            Form::PartialMetadata => table::partial_metadata(object),
            Form::Table => {
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let no_headers = std::mem::replace(&mut self.headers_sent, true);
                let now = self.server.clock.now();
                table::render(&self.resource, std::iter::once(object), self.include, now, &meta, no_headers)
            }
        }
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let (kind, api_version) = match self.form {
            Form::Plain => (self.resource.kind.to_string(), self.resource.api_version()),
            Form::PartialMetadata => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            Form::Table => ("Table".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        if self.form == Form::Table {
            object["columnDefinitions"] = json!(null);
            object["rows"] = json!([]);
        }
        let mut frame = BytesMut::new();
        write_plain(&mut frame, "BOOKMARK", object.to_string().as_bytes());
        frame.freeze()
    }
}
